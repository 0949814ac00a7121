//! Times check-outs and check-ins without a sidecar, with one that knows nothing yet, and with one that is warm.

use tokio::time::Instant;

use crate::common::Outcome;
use crate::common::office::{KINDS, Office, ROUNDS, table_of_users};

/// So many librarians work at once, one run after the other.
const USERS: [usize; 4] = [1, 5, 8, 20];

/// Measures and prints; progress goes to standard error.
pub(crate) fn run() -> Outcome<()> {
    let began = Instant::now();
    let mut office = Office::open(20)?;
    let mut runs = Vec::new();
    for users in USERS {
        runs.push(office.without_cold_and_warm(users)?);
    }
    let saved = office
        .platform
        .metric("auth_sidecar_time_saved_seconds_total")?;
    for kind in 0..KINDS.len() {
        println!("{}", table_of_users(&runs, kind));
    }
    println!(
        "Means over all users and {ROUNDS} rounds; cold: the first round, sidecar and auth module just started."
    );
    println!("{} The sidecar stands beside Okapi.", office.set_up());
    println!("By its own count the last sidecar saved its users {saved:.1} s of waiting.");
    println!("All of this took {:.0} s.", began.elapsed().as_secs_f64());
    Ok(())
}
