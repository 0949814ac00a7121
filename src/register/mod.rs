//! `register` and `unregister`: Okapi's discovery entries of the auth module, exchanged without a moment in which no one, or no
//! one that works, is asked.
//!
//! `plan` says which steps lead there, as values; `switch` and `procedure` carry them out and go back after a failure; `prepare` and
//! `choose` find the module; `sample` knows how often to look. What may not enter: HTTP (that is `okapi`), and anything that serves.
//!
//! The order is the whole point. Before our entry is in use, every Okapi pod is asked whether it reaches its sidecar, by an
//! entry that no tenant uses (a rehearsal). Then our entry is added, real calls are made, and only then are the direct entries removed, each
//! with a record kept in the discovery itself: whoever has to undo this needs nothing but Okapi.

mod args;
mod choose;
mod failure;
mod plan;
mod prepare;
mod procedure;
mod report;
mod sample;
mod switch;
mod task;
mod values;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

use crate::okapi::{Access, Okapi};
use args::{ArgsError, CommonArgs};
use failure::Failure;
use plan::Restore;
use prepare::Preparation;
use report::{Console, Ending, Report};
use task::Task;

pub use args::{ENV_NAMES, RegisterArgs, UnregisterArgs};

/// Has Okapi ask the sidecar instead of mod-authtoken. `out` gets the result (with `--output json` one document), `progress` errors and,
/// with json, the lines that go along. The exit codes are in the command's help.
pub async fn register(
    args: RegisterArgs,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn Write + Send),
) -> ExitCode {
    let console = Console::new(out, progress, args.common.output);
    let task = Task::Register {
        url: args.url.clone(),
        parking: !args.no_parking,
    };
    let pods = args.okapi.okapi_pods;
    run(task, args.access(), &args.common, pods, args.wait, console).await
}

/// Has Okapi ask mod-authtoken itself again. As [`register`], the other way round.
pub async fn unregister(
    args: UnregisterArgs,
    out: &mut (dyn Write + Send),
    progress: &mut (dyn Write + Send),
) -> ExitCode {
    let console = Console::new(out, progress, args.common.output);
    let restore = match (args.direct_url.is_empty(), args.restore) {
        (false, _) => Restore::Urls(args.direct_url.clone()),
        (true, true) => Restore::Records,
        (true, false) => Restore::Nothing,
    };
    let pods = args.okapi.okapi_pods;
    let task = Task::Unregister { restore };
    run(
        task,
        args.access(),
        &args.common,
        pods,
        Duration::ZERO,
        console,
    )
    .await
}

async fn run(
    task: Task,
    access: Result<Access, ArgsError>,
    common: &CommonArgs,
    pods: Option<u16>,
    wait: Duration,
    mut console: Console<'_>,
) -> ExitCode {
    let mut report = Report {
        command: task.name(),
        okapi_url: access.as_ref().ok().map(|access| access.url.to_string()),
        result: Ending::Refused,
        exit_code: Ending::Refused.code(),
        message: String::new(),
        module_id: None,
        entries_before: Vec::new(),
        entries_after: None,
        records: Vec::new(),
        steps: Vec::new(),
    };
    let ended = match access
        .map_err(Failure::from)
        .and_then(|access| Ok(Okapi::new(access)?))
    {
        Ok(okapi) => {
            let mut run = Preparation {
                task: &task,
                okapi: &okapi,
                common,
                pods,
                deadline: Instant::now() + wait,
                console: &mut console,
                report: &mut report,
            };
            run.run().await
        }
        Err(failure) => Err(failure),
    };
    let (ending, message) = match ended {
        Ok(ended) => ended,
        Err(failure) => (failure.ending(), failure.to_string()),
    };
    report.result = ending;
    report.exit_code = ending.code();
    report.message = message;
    console.end(&report);
    ExitCode::from(ending.code())
}
