//! FOLIO's comparison of eight users, without and with a cache: means, and the auth module's processor time.

use std::time::Duration;

use crate::common::Outcome;
use crate::common::load::{Figures, Long};
use crate::common::office::Office;
use crate::common::original;
use crate::common::platform::{Effort, Place};
use crate::common::table::Table;

/// So many of them.
const USERS: usize = 8;
/// How often each does both kinds of work.
const ROUNDS: u32 = 15;

/// Measures and prints.
pub(crate) fn print(office: &mut Office) -> Outcome<()> {
    let librarians = office.librarians(USERS);
    office.platform.restart_module();
    office.platform.build(Place::Nowhere)?;
    eprintln!("users: {USERS:>2}, without sidecar ...");
    let without = office.in_turn(&librarians, Long::Times(ROUNDS))?;
    office.platform.restart_module();
    office.platform.build(Place::BesideOkapi)?;
    eprintln!("users: {USERS:>2}, with a sidecar that has just started ...");
    let with = office.in_turn(&librarians, Long::Times(ROUNDS))?;
    println!(
        "# {USERS} users, {ROUNDS} rounds of a check-out and a check-in each, sidecar and auth module just started\n"
    );
    let mut table = Table::new(&[
        "",
        "FOLIO without",
        "with",
        "ratio",
        "ours without",
        "with",
        "ratio",
    ]);
    table.row(times(
        "check-in",
        original::CHECK_IN_8,
        [&without, &with],
        1,
    ));
    table.row(times(
        "check-out",
        original::CHECK_OUT_8,
        [&without, &with],
        0,
    ));
    let [theirs, ours] = [&without, &with].map(|(_, effort)| effort.module);
    table.row([
        "mod-authtoken's processor time".to_owned(),
        String::new(),
        String::new(),
        format!("{:.2}", original::MODULE_PROCESSOR_8),
        processor(theirs),
        processor(ours),
        theirs.zip(ours).map_or_else(unknown, |(without, with)| {
            format!("{:.2}", with.as_secs_f64() / without.as_secs_f64())
        }),
    ]);
    table.row([
        "calls that reached it".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        without.1.reached.to_string(),
        with.1.reached.to_string(),
        ratio(without.1.reached, with.1.reached),
    ]);
    table.row([
        "the sidecar's own processor time".to_owned(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        processor(with.1.sidecar),
    ]);
    println!("{table}");
    println!(
        "FOLIO's cache was one in Okapi. Its platform took longer for everything besides auth, so compare the ratios.\n\
         The processor time is that of our stand-in's thread, which is no JVM: only its ratio says something.\n"
    );
    Ok(())
}

fn times(
    name: &str,
    original: (f64, f64),
    ours: [&(Vec<Figures>, Effort); 2],
    kind: usize,
) -> [String; 7] {
    let [without, with] = ours.map(|(figures, _)| figures[kind].mean_total().as_secs_f64());
    [
        name.to_owned(),
        format!("{:.3} s", original.0),
        format!("{:.3} s", original.1),
        format!("{:.2}", original.1 / original.0),
        format!("{without:.3} s"),
        format!("{with:.3} s"),
        format!("{:.2}", with / without),
    ]
}

fn processor(time: Option<Duration>) -> String {
    time.map_or_else(unknown, |time| format!("{:.3} s", time.as_secs_f64()))
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a run makes far fewer than 2^52 calls"
)]
fn ratio(without: u64, with: u64) -> String {
    format!("{:.2}", with as f64 / without as f64)
}
