//! `cargo run --release --example revocation`: how long a permission outlives the write that took it away.
//!
//! For every event that the sidecar listens to, and some that nobody announces: the time from the end of the write until a
//! user who goes on working is refused, without a sidecar, with one in each of its ways, and with one that does not listen.
//! The clocks of the stand-in auth module and of the sidecar are moved, so that half a day takes less than a second; what
//! happens on the wire is real.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to print"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../tests/support/mod.rs"]
mod support;

mod balancer;
mod cases;
mod report;
mod stage;
mod trial;

use clap::Parser;
use common::Outcome;

/// How long a permission outlives the write that took it away.
#[derive(Debug, Parser)]
struct Options {
    /// Only the events whose names hold this text.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> Outcome<()> {
    report::run(&Options::parse().only)
}
