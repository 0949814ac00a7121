//! Runs every event in every set-up, from several starting points, and prints the worst of each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

use super::cases::{CASES, Case, Sign};
use super::stage::SetUp;
use super::trial::{self, Lag, Since, Steps};
use crate::common::Outcome;
use crate::common::table::Table;

/// Since when people are at work: what the auth module remembers at the write's end is then of every age.
const SINCE: [Since; 5] = [
    Since::JustNow,
    Since::Before(Duration::from_secs(1)),
    Since::Before(Duration::from_secs(20)),
    Since::Before(Duration::from_secs(40)),
    Since::Before(Duration::from_secs(58)),
];
/// The steps of what is printed.
const FINE: Steps = Steps {
    early: Duration::from_millis(250),
    late: Duration::from_secs(1),
};
/// Four times as wide, for comparison.
const COARSE: Steps = Steps {
    early: Duration::from_secs(1),
    late: Duration::from_secs(4),
};
/// How long Okapi's own token cache keeps an answer (`token_cache_ttl_ms`).
const OKAPI: Duration = Duration::from_mins(3);
/// What the moved clocks gain by running on while a trial runs.
const DRIFT: Duration = Duration::from_millis(200);

/// A trial to be run.
#[derive(Clone, Copy)]
struct Job {
    case: usize,
    set_up: usize,
    since: usize,
    fine: bool,
}

/// One cell of the tables.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// By beginning, fine and coarse.
    lags: [[Option<Lag>; 2]; SINCE.len()],
}

/// Runs and prints; fails if a promise was broken. Progress goes to standard error.
pub(crate) fn run(only: &str) -> Outcome<()> {
    let began = Instant::now();
    let rows: Vec<_> = (0..CASES.len())
        .filter(|row| CASES[*row].name.contains(only))
        .collect();
    let cells = measure(&rows)?;
    let row = |row: usize| (&CASES[row], &cells[row]);
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    println!(
        "From the end of the write until a user who asks all the time is refused, in seconds, at most\n"
    );
    println!("{}", first_refusals(&rows));
    println!(
        "From the end of the write until the last yes that any of the user's thirteen sessions got, in seconds, at most\n"
    );
    let (table, broken) = last_yes(&rows);
    println!("{table}");
    println!(
        "one, many, off: REVOCATION_UPSTREAM_REFRESH (many: two auth modules take turns); not listening: REVOCATION_LISTEN=false.\n\
         All other settings as they come: ttl 60 s (without jitter, so the longest), refresh-ahead at 0.8 of it.\n\
         The auth module remembers users and permissions for 60 s, a module's sets for 300 s; mod-permissions its sets for 30 s.\n\
         Worst of {} runs: the user began to work just before the end of the write, or 1, 20, 40, 58 s before its\n\
         announcement. A write takes 1 s.\n\
         0: the first request after the write. Steps of {} s for ten seconds, then of {} s ({} times as long for the\n\
         consortium): no number is too high by more than a step, and none too low.\n\
         ~: with steps of {} and {} s it is another number, beyond what the steps explain: who asks how often decides.\n\
         Our share alone: the auth module remembers nothing, so it is only the sidecar that lets pass what it would refuse.\n\
         With Okapi's cache: computed, {} s on top, since Okapi asks nobody for so long; refusals it does not keep.",
        SINCE.len(),
        FINE.early.as_secs_f64(),
        FINE.late.as_secs(),
        CASES.iter().map(|case| case.pace).max().unwrap_or(1),
        COARSE.early.as_secs(),
        COARSE.late.as_secs(),
        OKAPI.as_secs(),
    );
    println!("All of this took {:.0} s.", began.elapsed().as_secs_f64());
    if broken > 0 {
        return Err(format!("{broken} promises were broken").into());
    }
    Ok(())
}

/// Runs all trials, on as many threads as there are processors.
fn measure(rows: &[usize]) -> Outcome<Vec<[Cell; SetUp::ALL.len()]>> {
    let jobs: VecDeque<_> = rows
        .iter()
        .flat_map(|&case| (0..SetUp::ALL.len()).map(move |set_up| (case, set_up)))
        .flat_map(|(case, set_up)| {
            (0..SINCE.len()).flat_map(move |since| {
                [true, false].map(|fine| Job {
                    case,
                    set_up,
                    since,
                    fine,
                })
            })
        })
        .collect();
    let (all, done) = (jobs.len(), AtomicUsize::new(0));
    let jobs = Mutex::new(jobs);
    let cells = Mutex::new(vec![[Cell::default(); SetUp::ALL.len()]; CASES.len()]);
    let work = || -> Outcome<()> {
        while let Some(job) = locked(&jobs).pop_front() {
            // A runtime of its own: nothing of one trial lives on in the next.
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let steps = if job.fine { FINE } else { COARSE };
            let set_up = SetUp::ALL[job.set_up];
            let trial = trial::run(&CASES[job.case], set_up, SINCE[job.since], steps);
            let lag = runtime.block_on(trial)?;
            locked(&cells)[job.case][job.set_up].lags[job.since][usize::from(!job.fine)] =
                Some(lag);
            let number = done.fetch_add(1, Ordering::Relaxed) + 1;
            if number.is_multiple_of(50) || number == all {
                eprintln!("{number} of {all} runs, now: {}", CASES[job.case].name);
            }
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a trial broke down")?)
    })?;
    Ok(cells.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn first_refusals(rows: &[(&Case, &[Cell; SetUp::ALL.len()])]) -> Table {
    let mut headings = vec!["event"];
    headings.extend(SetUp::ALL.map(SetUp::heading));
    headings.extend(["Okapi's cache alone", "with many"]);
    let mut table = Table::new(&headings);
    for (case, cells) in rows {
        let mut row = vec![case.name.to_owned()];
        row.extend(cells.iter().map(|cell| {
            let mark = if cell.depends_on_steps() { "~" } else { "" };
            format!("{mark}{}", seconds(cell.first()))
        }));
        for set_up in [SetUp::Nobody, SetUp::Many] {
            let place = SetUp::ALL.iter().position(|one| *one == set_up);
            let lag = place.map_or(Duration::ZERO, |place| cells[place].first());
            let okapi = match case.sign {
                Sign::LetIn => Duration::ZERO,
                Sign::Refused => OKAPI,
            };
            row.push(seconds(lag + okapi));
        }
        table.row(row);
    }
    table
}

/// The table, and how many promises were broken.
fn last_yes(rows: &[(&Case, &[Cell; SetUp::ALL.len()])]) -> (Table, usize) {
    let mut headings = vec!["event"];
    headings.extend(SetUp::ALL.map(SetUp::heading));
    headings.extend(["promised: one", "many", ""]);
    let mut table = Table::new(&headings);
    let mut broken = 0;
    for (case, cells) in rows {
        let mut row = vec![case.name.to_owned()];
        row.extend(cells.iter().map(|cell| match cell.last() {
            Some(last) => seconds(last),
            None => "none".to_owned(),
        }));
        if let Some(promised) = case.promised {
            let mut verdict = "kept";
            for (set_up, most) in [SetUp::One, SetUp::Many].into_iter().zip(promised) {
                row.push(most.to_string());
                let last = SetUp::ALL
                    .iter()
                    .zip(cells.iter())
                    .find_map(|(one, cell)| (*one == set_up).then(|| cell.last())?);
                let most = Duration::from_secs(u64::from(most)) + DRIFT;
                if last.is_some_and(|last| last > most) {
                    broken += 1;
                    verdict = "BROKEN";
                }
            }
            row.push(verdict.to_owned());
        }
        table.row(row);
    }
    (table, broken)
}

impl Cell {
    fn fine(&self) -> impl Iterator<Item = Lag> {
        self.lags.iter().filter_map(|[fine, _]| *fine)
    }

    fn first(&self) -> Duration {
        self.fine().map(|lag| lag.first).max().unwrap_or_default()
    }

    fn last(&self) -> Option<Duration> {
        self.fine().filter_map(|lag| lag.last).max()
    }

    /// Whether wider steps gave a number that cannot be the same: the spans in which the truth must lie are apart.
    fn depends_on_steps(&self) -> bool {
        self.lags.iter().any(|lags| match lags {
            [Some(fine), Some(coarse)] => {
                fine.first + DRIFT < coarse.first.saturating_sub(coarse.step)
                    || coarse.first + DRIFT < fine.first.saturating_sub(fine.step)
            }
            [_, _] => false,
        })
    }
}

/// To the nearest quarter, since clocks run on a little while they are moved.
fn seconds(time: Duration) -> String {
    let quarters = (time.as_secs_f64() * 4.0).round() / 4.0;
    if quarters > 10_000.0 {
        format!("{:.1} h", quarters / 3_600.0)
    } else {
        format!("{quarters}")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
