//! Times check-outs and check-ins without a sidecar, with one that knows nothing yet, and with one that is warm.

use std::time::Duration;

use tokio::time::Instant;

use crate::common::Outcome;
use crate::common::desk::{Librarian, Work};
use crate::common::load::{self, Figures};
use crate::common::original::{self, Breakdown};
use crate::common::platform::{Distances, Effort, Place, Platform};
use crate::common::table::{Table, count, millis, percent};

/// So many librarians work at once, one run after the other.
const USERS: [usize; 4] = [1, 5, 8, 20];
/// How often each of them does it where nothing changes between the first time and the last.
const ROUNDS: u32 = 5;

/// One way to the auth module, with so many librarians.
struct Run {
    users: usize,
    set_up: &'static str,
    check_out: Figures,
    check_in: Figures,
    reached: [f64; 2],
}

/// Measures and prints; progress goes to standard error.
pub(crate) fn run() -> Outcome<()> {
    let began = Instant::now();
    let most = USERS.into_iter().max().unwrap_or_default();
    let mut platform = Platform::start(most, Distances::FOLIO)?;
    eprintln!("tuning the stand-in auth module");
    let (delay, took) = platform.tune()?;
    let module_time = original::module_time();
    let mut runs = Vec::new();
    for users in USERS {
        runs.extend(with_users(&mut platform, users, module_time)?);
    }
    let saved = platform.metric("auth_sidecar_time_saved_seconds_total")?;
    print(&runs, module_time, (delay, took));
    println!("The last sidecar's own account of the time it saved: {saved:.1} s.");
    println!("All of this took {:.0} s.", began.elapsed().as_secs_f64());
    Ok(())
}

fn with_users(platform: &mut Platform, users: usize, module_time: Duration) -> Outcome<Vec<Run>> {
    let work = [Work::check_out()?, Work::check_in()?];
    let librarians: Vec<_> = (0..users)
        .map(|number| Librarian::new(platform.standin(), number))
        .collect();
    let mut runs = Vec::new();
    let mut one = |platform: &Platform, set_up, rounds| -> Outcome<()> {
        eprint!("users: {users:>2}, {set_up} ...");
        let began = Instant::now();
        let entry = platform.entry()?;
        let mut figures = Vec::new();
        let mut reached = Vec::new();
        // One kind after the other, so that the calls that reach the module are known of each.
        for work in &work {
            let act = || load::at_once(entry, &librarians, &[work], rounds, module_time);
            let (found, Effort { reached: up, .. }) = platform.measure(act)?;
            let found = found.into_iter().fold(Figures::default(), Figures::and);
            reached.push(u32::try_from(up).map(f64::from)? / f64::from(found.times));
            figures.push(found);
        }
        eprintln!(" {:.1} s", began.elapsed().as_secs_f64());
        runs.push(Run {
            users,
            set_up,
            check_out: figures[0],
            check_in: figures[1],
            reached: [reached[0], reached[1]],
        });
        Ok(())
    };
    platform.build(Place::Nowhere)?;
    // So that the auth module remembers the users, as it would in the middle of a day.
    let (entry, all) = (platform.entry()?, work.each_ref());
    load::at_once(entry, &librarians, &all, 1, Duration::ZERO)?;
    one(platform, "without sidecar", ROUNDS)?;
    platform.restart_module();
    platform.build(Place::BesideOkapi)?;
    one(platform, "cold sidecar", 1)?;
    one(platform, "warm sidecar", ROUNDS)?;
    Ok(runs)
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

fn print(runs: &[Run], module_time: Duration, (delay, took): (Duration, Duration)) {
    for (name, which) in [("check-out", 0), ("check-in", 1)] {
        let mut table = Table::new(&[
            name,
            "users",
            "# of auth calls",
            "reached mod-authtoken",
            "Total request time",
            "Total time on auth calls",
            "share",
        ]);
        if which == 0 {
            table.row(published("FOLIO's measurement", original::CHECK_OUT));
            table.row(published("FOLIO's theory", original::THEORY));
        }
        for run in runs {
            if run.set_up == runs[0].set_up {
                table.gap();
            }
            let figures = [run.check_out, run.check_in][which];
            table.row([
                run.set_up.to_owned(),
                run.users.to_string(),
                count(figures.mean_calls()),
                count(run.reached[which]),
                millis(figures.mean_total()),
                millis(figures.mean_auth()),
                percent(figures.share()),
            ]);
        }
        println!("{table}");
    }
    let (delay, took, module_time) = (millis(delay), millis(took), millis(module_time));
    println!(
        "Means over all users and {ROUNDS} rounds; cold: the first round, sidecar and auth module just started.\n\
         The check-out is recorded (33 calls), the check-in is made of recorded calls (21). Each user has a token.\n\
         Set up as FOLIO measured: the auth module takes 5 ms (a stand-in whose timer was set to {delay},\n\
         measured {took}), the network before it 1 ms; for what modules and Okapi do besides, each call\n\
         waits {module_time}, which is what FOLIO's check-out leaves for it. The sidecar stands beside Okapi."
    );
}
