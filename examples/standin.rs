//! The stand-in for mod-authtoken as a server of its own: `cargo run --example standin -- --listen 127.0.0.1:9131`.
//!
//! For looking at the sidecar without a FOLIO: it knows the users of `tests/golden/world.json` and takes as long for an
//! answer as FOLIO measured. `deploy/compose` puts it behind the sidecar.
#![allow(clippy::print_stdout, reason = "an example is there to print")]

#[path = "../tests/support/mod.rs"]
mod support;

use clap::Parser;
use std::net::SocketAddr;
use std::time::Duration;
use support::standin::{Options, Standin};
use tokio::signal::unix::{SignalKind, signal};

/// A stand-in for mod-authtoken.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9131")]
    listen: SocketAddr,
    /// How long it takes for an answer, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5)]
    delay: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    // As PID 1 a process without a handler of its own ignores SIGTERM.
    let mut terminate = signal(SignalKind::terminate())?;
    let standin = Standin::start(Options {
        listen: arguments.listen,
        delay: Duration::from_millis(arguments.delay),
        log: 0,
        ..Options::default()
    })
    .await;
    println!("{}", standin.url());
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}
