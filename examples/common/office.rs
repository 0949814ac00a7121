//! A day's work in a library: check-outs and check-ins by some librarians at once, without a sidecar, with one that has just
//! started, and with one that is warm.

use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;
use super::desk::{Librarian, Work};
use super::load::{Figures, Long, Shift};
use super::original::{self, Breakdown};
use super::platform::{Distances, Effort, Place, Platform};
use super::table::{Table, count, millis, percent};

/// How often each librarian does each kind of work where nothing changes between the first time and the last.
pub(crate) const ROUNDS: u32 = 5;
/// The kinds of work, in the order of all figures.
pub(crate) const KINDS: [&str; 2] = ["check-out", "check-in"];

/// One kind of work, measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// What the librarians saw.
    pub(crate) figures: Figures,
    /// What it took.
    pub(crate) effort: Effort,
}

impl Measured {
    /// Calls that reached the auth module, for one piece of work.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a run makes far fewer than 2^52 calls"
    )]
    pub(crate) fn reached(&self) -> f64 {
        self.effort.reached as f64 / f64::from(self.figures.times.max(1))
    }

    /// Time beyond the network, for one piece of work.
    pub(crate) fn far_end(&self) -> Duration {
        self.effort.far_end.took / self.figures.times.max(1)
    }
}

/// Both kinds of work in one set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// How many librarians.
    pub(crate) users: usize,
    /// Which set-up.
    pub(crate) set_up: &'static str,
    /// In the order of [`KINDS`].
    pub(crate) work: [Measured; 2],
}

/// The office: a platform as far apart as FOLIO's was.
#[derive(Debug)]
pub(crate) struct Office {
    /// The platform.
    pub(crate) platform: Platform,
    work: [Work; 2],
    module_time: Duration,
    /// What the stand-in's timer was set to, and what that made of it.
    tuned: (Duration, Duration),
}

impl Office {
    /// Opens it for at most so many librarians.
    pub(crate) fn open(librarians: usize) -> Outcome<Self> {
        eprintln!("tuning the stand-in auth module");
        let mut platform = Platform::start(librarians, Distances::FOLIO)?;
        let tuned = platform.tune()?;
        Ok(Self {
            platform,
            work: [Work::check_out()?, Work::check_in()?],
            module_time: original::module_time(),
            tuned,
        })
    }

    /// Lets so many people log in.
    pub(crate) fn librarians(&self, users: usize) -> Vec<Librarian> {
        (0..users)
            .map(|number| Librarian::new(self.platform.standin(), number))
            .collect()
    }

    /// Measures both kinds of work, one after the other, so that the calls that reach the module are known of each.
    pub(crate) fn measure(
        &self,
        set_up: &'static str,
        librarians: &[Librarian],
        rounds: u32,
    ) -> Outcome<Run> {
        let users = librarians.len();
        eprint!("users: {users:>2}, {set_up} ...");
        let began = Instant::now();
        let shift = self.shift(Long::Times(rounds))?;
        let mut measured = [Measured::default(); 2];
        for (measured, work) in measured.iter_mut().zip(&self.work) {
            let (figures, effort) = self.platform.measure(|| shift.work(librarians, &[work]))?;
            let figures = figures.into_iter().fold(Figures::default(), Figures::and);
            *measured = Measured { figures, effort };
        }
        eprintln!(" {:.1} s", began.elapsed().as_secs_f64());
        Ok(Run {
            users,
            set_up,
            work: measured,
        })
    }

    /// Measures check-outs and check-ins in turn; the effort is that of both.
    pub(crate) fn in_turn(
        &self,
        librarians: &[Librarian],
        long: Long,
    ) -> Outcome<(Vec<Figures>, Effort)> {
        let (shift, work) = (self.shift(long)?, self.work.each_ref());
        self.platform.measure(|| shift.work(librarians, &work))
    }

    fn shift(&self, long: Long) -> Outcome<Shift> {
        Ok(Shift {
            auth: self.platform.entry()?,
            module_time: self.module_time,
            long,
        })
    }

    /// Does each kind of work once, unmeasured and without waiting: the auth module then knows these people.
    pub(crate) fn get_known(&self, librarians: &[Librarian]) -> Outcome<()> {
        let shift = Shift {
            module_time: Duration::ZERO,
            ..self.shift(Long::Times(1))?
        };
        shift.work(librarians, &self.work.each_ref())?;
        Ok(())
    }

    /// So many people without a sidecar, with one that has just started (as has the auth module), and with the same when warm.
    pub(crate) fn without_cold_and_warm(&mut self, users: usize) -> Outcome<[Run; 3]> {
        let librarians = self.librarians(users);
        self.platform.build(Place::Nowhere)?;
        self.get_known(&librarians)?;
        let without = self.measure("without sidecar", &librarians, ROUNDS)?;
        self.platform.restart_module();
        self.platform.build(Place::BesideOkapi)?;
        let cold = self.measure("cold sidecar", &librarians, 1)?;
        let warm = self.measure("warm sidecar", &librarians, ROUNDS)?;
        Ok([without, cold, warm])
    }

    /// How it is set up, as sentences.
    pub(crate) fn set_up(&self) -> String {
        let (delay, took) = self.tuned;
        let (delay, took, module_time) = (millis(delay), millis(took), millis(self.module_time));
        format!(
            "The check-out is recorded (33 calls), the check-in is made of recorded calls (21). Each user has a token.\n\
             Set up as FOLIO measured: the auth module takes 5 ms (a stand-in whose timer was set to {delay},\n\
             measured {took}), the network before it 1 ms; for what modules and Okapi do besides, each call\n\
             waits {module_time}, which is what FOLIO's check-out leaves for it."
        )
    }
}

/// FOLIO's figures for one kind of work, a row for each run.
pub(crate) fn table_of_users(runs: &[[Run; 3]], kind: usize) -> Table {
    let mut table = Table::new(&[
        KINDS[kind],
        "users",
        "# of auth calls",
        "reached mod-authtoken",
        "Total request time",
        "Total time on auth calls",
        "share",
    ]);
    if kind == 0 {
        table.row(published("FOLIO's measurement", original::CHECK_OUT));
        table.row(published("FOLIO's theory", original::THEORY));
    }
    for (number, runs) in runs.iter().enumerate() {
        if kind == 0 || number > 0 {
            table.gap();
        }
        for run in runs {
            let measured = run.work[kind];
            table.row([
                run.set_up.to_owned(),
                run.users.to_string(),
                count(measured.figures.mean_calls()),
                count(measured.reached()),
                millis(measured.figures.mean_total()),
                millis(measured.figures.mean_auth()),
                percent(measured.figures.share()),
            ]);
        }
    }
    table
}

fn published(name: &str, figures: Breakdown) -> [String; 7] {
    [
        name.to_owned(),
        "1".to_owned(),
        figures.calls.to_string(),
        figures.calls.to_string(),
        millis(figures.total),
        millis(figures.auth),
        percent(figures.share()),
    ]
}
