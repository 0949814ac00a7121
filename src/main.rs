//! okapi-auth-sidecar
use std::io::{stderr, stdout};
use std::process::ExitCode;

use clap::Parser;
use okapi_auth_sidecar::register::{self, RegisterArgs, UnregisterArgs};

/// A cache of decisions in front of mod-authtoken.
#[derive(Debug, Parser)]
#[command(name = "okapi-auth-sidecar")]
enum Command {
    /// Has Okapi ask the sidecar instead of mod-authtoken.
    Register(RegisterArgs),
    /// Has Okapi ask mod-authtoken itself again.
    Unregister(UnregisterArgs),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Command::parse() {
        Command::Register(args) => register::register(args, &mut stdout(), &mut stderr()).await,
        Command::Unregister(args) => register::unregister(args, &mut stdout(), &mut stderr()).await,
    }
}
