//! Eight users at work for many minutes through one sidecar: does anything drift?

use std::time::Duration;

use crate::common::Outcome;
use crate::common::load::Long;
use crate::common::office::Office;
use crate::common::platform::Place;
use crate::common::table::{Table, millis};

const USERS: usize = 8;
const MINUTE: Duration = Duration::from_mins(1);

/// Measures and prints, a row for each minute.
pub(crate) fn print(office: &mut Office, minutes: u32) -> Outcome<()> {
    let librarians = office.librarians(USERS);
    office.platform.restart_module();
    office.platform.build(Place::BesideOkapi)?;
    let mut table = Table::new(&[
        "minute",
        "check-outs",
        "mean check-out",
        "mean check-in",
        "time on auth",
        "reached mod-authtoken",
        "entries",
        "resident MB",
    ]);
    let mut means = Vec::new();
    for minute in 1..=minutes {
        eprintln!("minute {minute} of {minutes}");
        let (figures, effort) = office.in_turn(&librarians, Long::Over(MINUTE))?;
        let [check_out, check_in] = [figures[0], figures[1]];
        let entries = office.platform.metric("auth_sidecar_cache_entries")?;
        let resident = office.platform.metric("process_resident_memory_bytes")?;
        means.push(check_out.mean_total().as_secs_f64() * 1_000.0);
        table.row([
            minute.to_string(),
            check_out.times.to_string(),
            millis(check_out.mean_total()),
            millis(check_in.mean_total()),
            millis(check_out.mean_auth()),
            effort.reached.to_string(),
            format!("{entries:.0}"),
            format!("{:.1}", resident / (1_024.0 * 1_024.0)),
        ]);
    }
    println!(
        "# {USERS} users at work for {minutes} minutes through one sidecar, which starts empty\n"
    );
    println!("{table}");
    println!(
        "Drift of the mean check-out: {:+.3} ms a minute (least squares, without the first minute).\n\
         Resident is the whole process, stand-in and users included.\n",
        slope(means.get(1..).unwrap_or_default())
    );
    Ok(())
}

/// How much the values grow from one to the next, by least squares; 0 for fewer than two.
fn slope(values: &[f64]) -> f64 {
    let places = || (0..).map(f64::from);
    let count = places().zip(values).count();
    if count < 2 {
        return 0.0;
    }
    let mean = |sum: f64| sum / places().nth(count).unwrap_or(1.0);
    let (middle, mean_value) = (mean(places().take(count).sum()), mean(values.iter().sum()));
    let (mut over, mut under) = (0.0, 0.0);
    for (place, value) in places().zip(values) {
        over += (place - middle) * (value - mean_value);
        under += (place - middle) * (place - middle);
    }
    over / under
}
