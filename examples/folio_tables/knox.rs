//! The table that Apache Knox made of its alias cache, in our terms: an entry is added by asking for it first, and got by asking
//! again. Without a cache both go all the way.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::common::Outcome;
use crate::common::desk::Librarian;
use crate::common::office::Office;
use crate::common::original;
use crate::common::platform::{Place, Platform};
use crate::common::table::Table;
use crate::support::raw::Connection;
use crate::support::standin::call::FilterCall;

const SIZES: [usize; 2] = [200, 500];
const ROUNDS: usize = 5;

/// One round: how long adding took, and getting.
type Round = [Duration; 2];

/// Measures and prints.
pub(crate) fn print(office: &mut Office) -> Outcome<()> {
    let librarian = office.librarians(1).remove(0);
    let platform = &mut office.platform;
    let mut without = Vec::new();
    let mut with = Vec::new();
    for size in SIZES {
        for round in 1..=ROUNDS {
            eprintln!("{size} entries, round {round} of {ROUNDS}");
            platform.build(Place::Nowhere)?;
            without.push(add_and_get(platform, &librarian, size)?);
            platform.build(Place::BesideOkapi)?;
            with.push(add_and_get(platform, &librarian, size)?);
        }
    }
    println!("# Adding and getting entries, as Apache Knox did with its alias cache; ms\n");
    let mut table = Table::new(&[
        "entries",
        "round",
        "without: add",
        "get",
        "both",
        "with: add",
        "get",
        "both",
        "gained",
    ]);
    let sizes = SIZES
        .iter()
        .flat_map(|size| (1..=ROUNDS).map(move |round| (size, round)));
    for ((size, round), (without, with)) in sizes.zip(without.iter().zip(&with)) {
        if round == 1 {
            table.gap();
        }
        let mut row = vec![size.to_string(), round.to_string()];
        row.extend(three(without));
        row.extend(three(with));
        row.push(gained(sum(without), sum(with)));
        table.row(row);
    }
    println!("{table}");
    println!("{}", knox());
    Ok(())
}

fn add_and_get(platform: &Platform, librarian: &Librarian, size: usize) -> Outcome<Round> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entry = platform.entry()?;
    let call = FilterCall::get("/circulation/loans").token(librarian.token());
    runtime.block_on(async {
        let mut connection = Connection::open(entry).await?;
        // What the auth module has to look up for this user is no part of it.
        connection.ask(&call.request()).await?;
        let mut round = Round::default();
        for took in &mut round {
            let began = Instant::now();
            for number in 0..size {
                let name = format!("entry.{number}");
                let call = call.clone().desired(&[&name]);
                let answer = connection.ask(&call.request()).await?;
                if answer.status != 202 {
                    return Err(format!("{}: {}", answer.status, answer.text()).into());
                }
            }
            *took = began.elapsed();
        }
        Ok(round)
    })
}

/// Knox's own figures.
fn knox() -> String {
    let mean = |values: [u32; 10]| f64::from(values.iter().sum::<u32>()) / 10.0;
    let [without, with] = original::KNOX_200.map(mean);
    let (least, most) = original::KNOX_GAIN;
    format!(
        "Knox, 200 aliases added and got, means of ten: {without:.0} ms without, {with:.0} ms with, {:.1}% gained (KNOX-2134);\n\
         {least} to {most}% gained at 200 and 500 aliases in five rounds (KNOX-2136).\n",
        (1.0 - with / without) * 100.0
    )
}

fn three(round: &Round) -> [String; 3] {
    let [add, get] = *round;
    [add, get, add + get].map(|time| format!("{:.1}", time.as_secs_f64() * 1_000.0))
}

fn sum(round: &Round) -> Duration {
    round.iter().sum()
}

fn gained(without: Duration, with: Duration) -> String {
    format!(
        "{:.1}%",
        (1.0 - with.as_secs_f64() / without.as_secs_f64()) * 100.0
    )
}
