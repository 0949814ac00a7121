//! `cargo run --release --example soak -- 30m`: a mixed load for a given time, and what must hold meanwhile and after it.
//!
//! The sidecar's own binary runs as a process in front of the stand-in auth module; everything is on loopback. People work,
//! log in again when their tokens end, lose and regain permissions, are switched off and on, are replaced by new ones; an
//! operator purges; the auth module is restarted. Checked: resident memory is flat after warm-up, nothing is left of
//! connections and file descriptors, every request got an answer that fits, nobody was let in or out wrongly, and as many
//! hits as the model of `people.rs` says. Exit code 1 and a line for each violation otherwise.
//!
//! Every write is timed. One that took longer than `REVOCATION_HOLD` loses its bound and not the ttl, so wrong grants
//! between the two are told and counted apart; `--late-writes` makes them come.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to print"
)]

#[path = "../../tests/faults/process.rs"]
mod process;
#[path = "../../tests/support/mod.rs"]
mod support;

mod disturb;
mod judge;
mod people;
mod stage;
mod work;

use clap::Parser;
use process::Process;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// A mixed load for a given time, and what must hold meanwhile and after it.
#[derive(Debug, Parser)]
struct Options {
    /// How long, such as 90s, 30m or 2h; at least 60s.
    #[arg(default_value = "2m", value_parser = duration)]
    time: Duration,
    /// The sidecar to look at, instead of one that is built for this run.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Makes every write that takes something away take longer than `REVOCATION_HOLD`: grants after the bound, which is
    /// then lost, must come, and end with the ttl.
    #[arg(long)]
    late_writes: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let seconds = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    seconds
        .filter(|seconds| (60..=7 * 24 * 3_600).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "a whole number with s, m or h, at least 60s".to_owned())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let options = Options::parse();
    let binary = options.binary.unwrap_or_else(built);
    let violations = run(&binary, options.time, options.late_writes).await;
    for violation in &violations {
        println!("VIOLATION: {violation}");
    }
    if violations.is_empty() {
        println!("soak: all held");
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Builds the sidecar with this example's own profile: cargo does not do that for examples.
fn built() -> PathBuf {
    let example = std::env::current_exe().expect("this program's own path");
    let folder = example
        .ancestors()
        .nth(2)
        .expect("target/<profile>/examples");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--bin", "okapi-auth-sidecar"]);
    build.arg("--manifest-path");
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.status().expect("cargo runs");
    assert!(status.success(), "the sidecar cannot be built");
    folder.join("okapi-auth-sidecar")
}

async fn run(binary: &Path, time: Duration, late_writes: bool) -> Vec<String> {
    let stage = stage::Stage::start(late_writes).await;
    let process = Process::start(binary, &stage.url(), &stage::SETTINGS, None).await;
    let idle = judge::Idle::of(&process).await;
    println!("{time:?} of load; idle: {idle}");

    let stage = std::sync::Arc::new(stage);
    let process = std::sync::Arc::new(process);
    let workers = work::start(&stage, process.addr);
    let disturbances = disturb::start(&stage, &process);
    let samples = judge::watch(&stage, &process, time).await;
    for disturbance in disturbances {
        disturbance.abort();
        // Aborted is how all of them end, unless one of them broke.
        if let Err(error) = disturbance.await
            && error.is_panic()
        {
            stage.violation("a disturbance broke".to_owned());
        }
    }
    stage.rest();
    for worker in workers {
        if worker.await.is_err() {
            stage.violation("a worker broke".to_owned());
        }
    }
    judge::judge(&stage, process, &idle, &samples).await;
    stage.violations()
}
