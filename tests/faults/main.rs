//! Faults of the machine and of the network, each with the promised outcome: status, time bound, nothing lost, recovery
//! without help. The sidecar is a process of its own, since limits and signals belong to processes.

mod process;
#[path = "../support/mod.rs"]
mod support;

mod crowded;
mod deaf;
mod memory;
mod signal;

use process::Process;
use std::path::Path;
use support::standin::call::FilterCall;
use support::standin::{Options, Standin};

/// A permission that the librarian at the desk has.
const LOANS: &str = "circulation.loans.collection.get";

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_okapi-auth-sidecar"))
}

/// A stand-in, and a sidecar's process in front of it.
async fn pair(settings: &[(&str, &str)], open_files: Option<u32>) -> (Standin, Process) {
    let standin = Standin::start(Options::default()).await;
    let process = Process::start(binary(), &standin.url(), settings, open_files).await;
    (standin, process)
}

/// The usual call: the desk's librarian lists loans. Another number is another question.
fn loans(token: &str, number: usize) -> FilterCall {
    FilterCall::get("/circulation/loans?limit=1")
        .token(token)
        .required(&[LOANS])
        .desired(&[&format!("loans.{number}")])
}
