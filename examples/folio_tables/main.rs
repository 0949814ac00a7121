//! `cargo run --release --example folio_tables`: FOLIO's own tables again, original and ours side by side.
//!
//! What a check-out and a check-in spend on auth, eight users, 1 to 20 users; the table that Apache Knox made of its alias
//! cache, in our terms; and, when asked for, loans over as many minutes as one likes. The set-up is the demo's.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to print"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../tests/support/mod.rs"]
mod support;

mod breakdown;
mod eight;
mod knox;
mod loans;

use clap::{Parser, ValueEnum};
use common::Outcome;
use common::office::{KINDS, Office, ROUNDS, table_of_users};
use tokio::time::Instant;

/// FOLIO's tables again, from runs of our own.
#[derive(Debug, Parser)]
struct Options {
    /// Which tables; all but `loans` if none is named.
    #[arg(value_enum)]
    tables: Vec<Which>,
    /// How many minutes the loans take.
    #[arg(long, default_value_t = 30)]
    minutes: u32,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// What a check-out and a check-in spend on auth.
    Breakdown,
    /// Eight users, as in FOLIO's comparison.
    Eight,
    /// 1, 5, 8 and 20 users.
    Users,
    /// Adding and getting 200 and 500 entries.
    Knox,
    /// Loans over many minutes: does anything drift?
    Loans,
}

fn main() -> Outcome<()> {
    let began = Instant::now();
    let options = Options::parse();
    let tables = match options.tables.as_slice() {
        [] => vec![Which::Breakdown, Which::Eight, Which::Users, Which::Knox],
        tables => tables.to_vec(),
    };
    let mut office = Office::open(20)?;
    for table in tables {
        match table {
            Which::Breakdown => breakdown::print(&mut office)?,
            Which::Eight => eight::print(&mut office)?,
            Which::Users => users(&mut office)?,
            Which::Knox => knox::print(&mut office)?,
            Which::Loans => loans::print(&mut office, options.minutes)?,
        }
    }
    println!("{}", office.set_up());
    println!("All of this took {:.0} s.", began.elapsed().as_secs_f64());
    Ok(())
}

fn users(office: &mut Office) -> Outcome<()> {
    let mut runs = Vec::new();
    for users in [1, 5, 8, 20] {
        runs.push(office.without_cold_and_warm(users)?);
    }
    println!(
        "# 1, 5, 8 and 20 users, sidecar beside Okapi; means over all users and {ROUNDS} rounds\n"
    );
    for kind in 0..KINDS.len() {
        println!("{}", table_of_users(&runs, kind));
    }
    Ok(())
}
