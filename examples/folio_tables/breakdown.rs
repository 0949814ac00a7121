//! What one user's check-out and check-in spend on auth, in the lines of FOLIO's page.

use std::time::Duration;

use crate::common::Outcome;
use crate::common::office::{KINDS, Measured, Office, ROUNDS, Run};
use crate::common::original::{self, Breakdown};
use crate::common::platform::Place;
use crate::common::table::{Table, count, millis, percent};

/// Measures and prints.
pub(crate) fn print(office: &mut Office) -> Outcome<()> {
    let [without, cold, warm] = office.without_cold_and_warm(1)?;
    // The same user comes back with another token; nothing else is new.
    let mut librarian = office.librarians(1);
    librarian[0].log_in(office.platform.standin());
    let login = office.measure("warm, new login", &librarian, 1)?;
    office.platform.build(Place::BesideAuth)?;
    office.get_known(&librarian)?;
    let far = office.measure("warm, far sidecar", &librarian, ROUNDS)?;
    let runs = [without, cold, warm, login, far];
    println!(
        "# What one user's work spends on auth; means over {ROUNDS} rounds, cold and new login: one\n"
    );
    for kind in 0..KINDS.len() {
        println!("{}", table(&runs, kind));
    }
    println!(
        "Reached mod-authtoken: calls that the sidecar did not answer, its own look-ups included.\n\
         The sidecar stands beside Okapi, and its time counts as network; a far one stands beside mod-authtoken,\n\
         and its time counts as module. FOLIO's theory is of a cache inside Okapi, which makes no call at all.\n"
    );
    Ok(())
}

fn table(runs: &[Run; 5], kind: usize) -> Table {
    let originals: &[(&str, Breakdown)] = match kind {
        0 => &[
            ("FOLIO", original::CHECK_OUT),
            ("FOLIO's theory", original::THEORY),
        ],
        _ => &[],
    };
    let mut headings = vec![KINDS[kind]];
    headings.extend(originals.iter().map(|(name, _)| *name));
    headings.extend(runs.iter().map(|run| run.set_up));
    let mut table = Table::new(&headings);
    let mut row =
        |name: &str, original: fn(&Breakdown) -> String, ours: fn(&Measured) -> String| {
            let mut cells = vec![name.to_owned()];
            cells.extend(originals.iter().map(|(_, figures)| original(figures)));
            cells.extend(runs.iter().map(|run| ours(&run.work[kind])));
            table.row(cells);
        };
    row(
        "# of auth calls",
        |original| original.calls.to_string(),
        |ours| count(ours.figures.mean_calls()),
    );
    row(
        "reached mod-authtoken",
        |original| original.calls.to_string(),
        |ours| count(ours.reached()),
    );
    row(
        "Total request time",
        |original| millis(original.total),
        |ours| millis(ours.figures.mean_total()),
    );
    row(
        "Total time on calls to mod-authtoken",
        |original| millis(original.auth),
        |ours| millis(ours.figures.mean_auth()),
    );
    row(
        "  of the request time",
        |original| percent(original.share()),
        |ours| percent(ours.figures.share()),
    );
    row(
        "Total auth module time",
        |original| millis(original.module),
        |ours| millis(ours.far_end()),
    );
    row(
        "  of the auth time",
        |original| percent(share(original.module, original.auth)),
        |ours| percent(share(ours.far_end(), ours.figures.mean_auth())),
    );
    row(
        "Total auth network time",
        |original| millis(original.network),
        |ours| millis(network(ours)),
    );
    row(
        "  of the auth time",
        |original| percent(share(original.network, original.auth)),
        |ours| percent(share(network(ours), ours.figures.mean_auth())),
    );
    table
}

fn network(ours: &Measured) -> Duration {
    ours.figures.mean_auth().saturating_sub(ours.far_end())
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE)
}
