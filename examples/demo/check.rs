//! Counts what reaches the auth module. No waiting, so it takes no time to speak of.

use std::process::ExitCode;
use std::time::Duration;

use crate::common::Outcome;
use crate::common::desk::{Librarian, Work};
use crate::common::load::{Long, Shift};
use crate::common::platform::{Distances, Place, Platform};
use crate::common::table::Table;

/// So many librarians in the second half.
const MANY: usize = 8;
/// Keys of a check-out; two of its 33 calls ask what another one has asked.
const KEYS: u64 = 31;
/// What the auth module itself asks at first: the user, the user's permissions, the module's permission set.
const LOOK_UPS: u64 = 3;

/// What was counted, and what it should have been.
struct Count {
    what: &'static str,
    wanted: u64,
    counted: u64,
}

/// Counts and tells; the exit code says whether all is as it should be.
pub(crate) fn run() -> Outcome<ExitCode> {
    let mut counts = Vec::new();
    without(&mut counts)?;
    one_by_one(&mut counts)?;
    at_once(&mut counts)?;
    let mut table = Table::new(&["calls that reach the auth module", "wanted", "counted", ""]);
    for count in &counts {
        let verdict = if count.wanted == count.counted {
            "ok"
        } else {
            "WRONG"
        };
        table.row([
            count.what.to_owned(),
            count.wanted.to_string(),
            count.counted.to_string(),
            verdict.to_owned(),
        ]);
    }
    print!("{table}");
    let right = counts.iter().all(|count| count.wanted == count.counted);
    Ok(if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The recording's own counts: if these are wrong, the set-up is, and the others mean nothing.
fn without(counts: &mut Vec<Count>) -> Outcome<()> {
    let mut platform = Platform::start(1, Distances::NONE)?;
    platform.build(Place::Nowhere)?;
    let librarian = [Librarian::new(platform.standin(), 0)];
    let count = |what, wanted| counted(&platform, &librarian, what, wanted);
    counts.push(count("no sidecar: first check-out of all", 33 + LOOK_UPS)?);
    counts.push(count("no sidecar: the same again", 33)?);
    Ok(())
}

/// Check-outs one after the other, through a sidecar that begins empty.
fn one_by_one(counts: &mut Vec<Count>) -> Outcome<()> {
    let mut platform = Platform::start(MANY, Distances::NONE)?;
    platform.build(Place::BesideOkapi)?;
    let standin = platform.standin();
    let mut librarians: Vec<_> = (0..MANY)
        .map(|number| Librarian::new(standin, number))
        .collect();
    let one = &librarians[..1];
    counts.push(counted(
        &platform,
        one,
        "empty sidecar: first check-out of all",
        KEYS + LOOK_UPS,
    )?);
    counts.push(counted(&platform, one, "the same user again", 0)?);
    counts.push(counted(
        &platform,
        &librarians[1..2],
        "the next user's first",
        KEYS,
    )?);
    librarians[0].log_in(standin);
    counts.push(counted(
        &platform,
        &librarians[..1],
        "the first user's after a new login",
        1,
    )?);
    counts.push(counted(&platform, &librarians[..1], "the same again", 0)?);
    counts.push(counted(
        &platform,
        &librarians[2..],
        "six more users' first, at once",
        6 * KEYS,
    )?);
    counts.push(counted(
        &platform,
        &librarians,
        "all eight again, at once",
        0,
    )?);
    for librarian in &mut librarians {
        librarian.log_in(standin);
    }
    counts.push(counted(
        &platform,
        &librarians,
        "all eight after new logins, at once",
        MANY as u64,
    )?);
    Ok(())
}

/// Eight at once on an empty sidecar and an auth module that has just started: equal questions go up once.
fn at_once(counts: &mut Vec<Count>) -> Outcome<()> {
    let mut platform = Platform::start(MANY, Distances::NONE)?;
    platform.build(Place::BesideOkapi)?;
    let librarians: Vec<_> = (0..MANY)
        .map(|number| Librarian::new(platform.standin(), number))
        .collect();
    // Their users differ, but the look-ups' own filter calls do not, and who waits for an equal one shares it.
    let wanted = MANY as u64 * KEYS + LOOK_UPS;
    counts.push(counted(
        &platform,
        &librarians,
        "empty sidecar: eight first check-outs at once",
        wanted,
    )?);
    Ok(())
}

fn counted(
    platform: &Platform,
    librarians: &[Librarian],
    what: &'static str,
    wanted: u64,
) -> Outcome<Count> {
    let work = Work::check_out()?;
    let shift = Shift {
        auth: platform.entry()?,
        module_time: Duration::ZERO,
        long: Long::Times(1),
    };
    let act = || shift.work(librarians, &[&work]);
    let (_, effort) = platform.measure(act)?;
    Ok(Count {
        what,
        wanted,
        counted: effort.reached,
    })
}
