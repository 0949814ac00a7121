//! `cargo run --release --example demo`: what a sidecar does for check-outs and check-ins, in FOLIO's own table.
//!
//! Everything runs in this process and on loopback: a stand-in for mod-authtoken that takes 5 ms for an answer, a network
//! of 1 ms before it, the sidecar, and a small gateway that replays a recorded check-out and a check-in for 1, 5, 8 and 20
//! librarians. `--check` counts instead of timing, and fails when a count is not what it should be.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to print"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../tests/support/mod.rs"]
mod support;

mod check;
mod show;

use clap::Parser;
use common::Outcome;
use std::process::ExitCode;

/// What a sidecar in front of mod-authtoken does for check-outs and check-ins.
#[derive(Debug, Parser)]
struct Options {
    /// Count the calls that reach the auth module, and fail if they are not as many as they should be; takes a second.
    #[arg(long)]
    check: bool,
}

fn main() -> Outcome<ExitCode> {
    if Options::parse().check {
        check::run()
    } else {
        show::run()?;
        Ok(ExitCode::SUCCESS)
    }
}
