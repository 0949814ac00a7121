//! `register` and `unregister`: Okapi's discovery entries of the auth module, exchanged without a moment in which no one, or no
//! one that works, is asked.
//!
//! `plan` says which steps lead there, as values; `procedure` carries them out and goes back after a failure; `choose` finds the
//! module; `sample` knows how often to look. What may not enter: HTTP (that is `okapi`), and anything that serves.
//!
//! The order is the whole point. Before our entry is in use, every Okapi pod is asked whether it reaches its sidecar, by an
//! entry that no tenant uses (a rehearsal). Then our entry is added, real calls are made, and only then are the direct entries removed, each
//! with a record kept in the discovery itself: whoever has to undo this needs nothing but Okapi.

mod args;
mod choose;
mod failure;
mod interrupt;
mod plan;
mod procedure;
mod report;
mod sample;
mod values;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

use crate::okapi::{Access, Okapi, OkapiError};
use args::{ArgsError, CommonArgs};
use choose::ChoiceError;
use failure::Failure;
use interrupt::Interrupts;
use plan::{Refusal, Restore, Step, View, Wish};
use procedure::{Calls, Pace, Run, insist, patience_or};
use report::{Console, Ending, Report, StepReport, describe};

pub use args::{ENV_NAMES, RegisterArgs, UnregisterArgs};

/// While a rollout makes requests fail, how often it is looked whether it still does.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
/// How many Okapi pods are assumed when nobody tells.
const PODS_ASSUMED: usize = 3;

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

/// What is to be done.
#[derive(Debug)]
enum Task {
    Register { url: String, parking: bool },
    Unregister { restore: Restore },
}

impl Task {
    fn name(&self) -> &'static str {
        match self {
            Self::Register { .. } => "register",
            Self::Unregister { .. } => "unregister",
        }
    }

    fn parking(&self) -> bool {
        match self {
            Self::Register { parking, .. } => *parking,
            Self::Unregister { .. } => true,
        }
    }

    fn plan(&self, view: &View, wish: &Wish) -> Result<Vec<Step>, Refusal> {
        match self {
            Self::Register { url, .. } => plan::register(view, wish, url),
            Self::Unregister { restore } => plan::unregister(view, wish, restore),
        }
    }

    /// Whether the entries are those that were wished for.
    fn is_done(&self, view: &View, wish: &Wish) -> bool {
        match self {
            Self::Register { url, .. } => view.entries == [wish.entry(url)],
            Self::Unregister { .. } => {
                view.entry(&wish.instance).is_none() && !view.entries.is_empty()
            }
        }
    }

    fn success(&self, changed: bool, view: &View, wish: &Wish) -> String {
        let entries: Vec<String> = view.entries.iter().map(plan::show).collect();
        let entries = entries.join(", ");
        let so_already = if changed { "" } else { ", as it was before" };
        match self {
            Self::Register { .. } => {
                format!(
                    "done: Okapi asks the sidecar for {}{so_already}: {entries}",
                    wish.module
                )
            }
            Self::Unregister { .. } => {
                format!(
                    "done: Okapi asks {} itself{so_already}: {entries}",
                    wish.module
                )
            }
        }
    }
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

/// All that is found out before anything is changed.
struct Preparation<'a, 'c> {
    task: &'a Task,
    okapi: &'a Okapi,
    common: &'a CommonArgs,
    pods: Option<u16>,
    deadline: Instant,
    console: &'a mut Console<'c>,
    report: &'a mut Report,
}

/// What was found out.
struct Found {
    wish: Wish,
    calls: Option<Calls>,
    pods: usize,
}

impl Preparation<'_, '_> {
    async fn run(&mut self) -> Result<(Ending, String), Failure> {
        let mut interrupts = Interrupts::new().map_err(Failure::Signals)?;
        let found = tokio::select! {
            biased;
            signal = interrupts.next() => return Err(Failure::Interrupted(signal)),
            found = self.find_out() => found?,
        };
        let mut run = Run {
            okapi: self.okapi,
            wish: found.wish,
            calls: found.calls,
            pace: Pace {
                samples: self.common.samples,
                interval: self.common.sample_interval,
                put_back_for: self.common.put_back_for,
                deadline: self.deadline,
                pods: found.pods,
            },
            console: &mut *self.console,
            report: &mut *self.report,
            baseline: None,
            unanswered: false,
        };
        switch(self.task, self.common.dry_run, &mut run, &mut interrupts).await
    }

    async fn find_out(&mut self) -> Result<Found, Failure> {
        let until = patience_or(self.deadline);
        let module = self.find_module(until).await?;
        self.report.module_id = Some(module.clone());
        let calls = self.find_calls(&module, until).await?;
        let pods = self.count_pods(until).await?;
        Ok(Found {
            wish: Wish {
                instance: self.common.instance(&module),
                parking: self.task.parking(),
                module,
            },
            calls,
            pods,
        })
    }

    async fn find_module(&mut self, until: Instant) -> Result<String, Failure> {
        let name = &self.common.module_name;
        if let Some(wanted) = self.common.wanted_module() {
            self.see_that_it_is_known(wanted, until).await?;
            return Ok(wanted.to_owned());
        }
        let module = if let Some(tenant) = self.common.tenant() {
            let enabled = insist(until, || self.okapi.tenant_modules(tenant)).await?;
            choose::enabled(&enabled, name, tenant)?
        } else {
            let known = insist(until, || self.okapi.modules(name)).await?;
            let entries = insist(until, || self.okapi.entries()).await?;
            choose::known(&known, name, &entries)?
        };
        self.console
            .line(&format!("     the auth module is {module}"));
        Ok(module)
    }

    /// An unknown id is a slip of the pen: Okapi would take entries for it without a word.
    async fn see_that_it_is_known(&self, wanted: &str, until: Instant) -> Result<(), Failure> {
        if insist(until, || self.okapi.knows(wanted)).await? {
            return Ok(());
        }
        let may_clean_up = match self.task {
            Task::Register { .. } => false,
            Task::Unregister { .. } => true,
        };
        if may_clean_up {
            let entries = insist(until, || self.okapi.entries()).await?;
            if entries.iter().any(|entry| entry.srvc_id == wanted) {
                return Ok(());
            }
        }
        let known = insist(until, || self.okapi.modules(&self.common.module_name)).await?;
        Err(Failure::Choice(ChoiceError::Unknown {
            wanted: wanted.to_owned(),
            known,
        }))
    }

    /// A call for a tenant that does not use the module would go well whatever we do.
    async fn find_calls(&mut self, module: &str, until: Instant) -> Result<Option<Calls>, Failure> {
        let tenant = self.common.tenant().unwrap_or_else(|| self.okapi.tenant());
        let enabled = insist(until, || self.okapi.tenant_modules(tenant)).await?;
        if enabled.iter().any(|id| id == module) {
            return Ok(Some(Calls {
                tenant: tenant.to_owned(),
                path: self.common.probe_path.clone(),
            }));
        }
        match self.task {
            Task::Register { .. } => Err(Failure::Choice(ChoiceError::NotEnabled {
                name: module.to_owned(),
                tenant: tenant.to_owned(),
            })),
            Task::Unregister { .. } => {
                self.console.line(&format!(
                    "     {module} is not enabled for tenant {tenant:?}: no real calls are made (see --tenant)"
                ));
                Ok(None)
            }
        }
    }

    async fn count_pods(&mut self, until: Instant) -> Result<usize, Failure> {
        if let Some(pods) = self.pods {
            return Ok(usize::from(pods));
        }
        match insist(until, || self.okapi.nodes()).await {
            Ok(pods) => Ok(pods.max(1)),
            Err(error @ OkapiError::Refused { .. }) if !error.may_pass() => {
                self.console.line(&format!(
                    "     Okapi does not tell how many pods it has ({error}); {PODS_ASSUMED} are assumed (see --okapi-pods)"
                ));
                Ok(PODS_ASSUMED)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Plans, carries out, and goes back after a failure.
async fn switch(
    task: &Task,
    dry_run: bool,
    run: &mut Run<'_, '_>,
    interrupts: &mut Interrupts,
) -> Result<(Ending, String), Failure> {
    let found = run.view(patience_or(run.pace.deadline)).await?;
    run.report.entries_before.clone_from(&found.entries);
    run.report.records.clone_from(&found.parked);
    for entry in &found.entries {
        run.console
            .line(&format!("     found {}", plan::show(entry)));
    }
    warn_of_localhost(task, run);
    let steps = task.plan(&found, &run.wish)?;
    if dry_run {
        return Ok(planned(&steps, run));
    }

    let changes = steps.iter().any(is_change);
    let worked = tokio::select! {
        biased;
        signal = interrupts.next() => return Err(Failure::Interrupted(signal)),
        worked = see_how_it_is(task, &found, run) => worked?,
    };
    let failure = match carry_out(&steps, changes, run, interrupts).await {
        Ok(()) => match finish(task, changes, run).await {
            Ok(ended) => return Ok(ended),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    go_back(task, &found, &steps, worked, failure, run).await
}

/// When all is as wished for already, there is nothing to go back to: a rollout may then make the checks fail as long as `--wait` says.
async fn carry_out(
    steps: &[Step],
    changes: bool,
    run: &mut Run<'_, '_>,
    interrupts: &mut Interrupts,
) -> Result<(), Failure> {
    loop {
        match run.carry_out(steps, interrupts).await {
            Err(failure)
                if failure.is_a_verdict() && !changes && Instant::now() < run.pace.deadline =>
            {
                tokio::select! {
                    signal = interrupts.next() => return Err(Failure::Interrupted(signal)),
                    () = tokio::time::sleep(BETWEEN_LOOKS) => run.report.steps.clear(),
                }
            }
            ended => return ended,
        }
    }
}

/// Whether requests went well before anything was changed. Without that, to register would be to blame the sidecar for others' failures, so it
/// is not even begun; to unregister is what one does in such a case.
async fn see_how_it_is(task: &Task, found: &View, run: &mut Run<'_, '_>) -> Result<bool, Failure> {
    if found.entries.is_empty() {
        return Ok(true);
    }
    match task {
        Task::Register { url, .. } if plan::is_in_use(found, url) => Ok(true),
        Task::Register { .. } => loop {
            match run.see_how_it_is(found.entries.len()).await {
                Ok(()) => return Ok(true),
                Err(Failure::AlreadyFailing { .. }) if Instant::now() < run.pace.deadline => {
                    tokio::time::sleep(BETWEEN_LOOKS).await;
                }
                Err(failure) => return Err(failure),
            }
        },
        Task::Unregister { .. } => {
            let works = run.see_how_it_is(found.entries.len()).await.is_ok();
            if !works {
                run.console.line("     requests fail as it is now");
                run.baseline = None;
            }
            Ok(works)
        }
    }
}

fn is_change(step: &Step) -> bool {
    match step {
        Step::Add(_) | Step::Park(_) | Step::Remove(_) | Step::Forget(_) => true,
        Step::Await(_) | Step::Call { .. } | Step::Health(_) => false,
    }
}

fn planned(steps: &[Step], run: &mut Run<'_, '_>) -> (Ending, String) {
    for step in steps {
        run.console.line(&format!("plan {}", describe(step)));
        run.report.steps.push(StepReport::of(step, "planned", None));
    }
    let changes = steps.iter().filter(|step| is_change(step)).count();
    let message = match changes {
        0 => "dry run: there is nothing to change".to_owned(),
        1 => "dry run: 1 change would be made".to_owned(),
        n => format!("dry run: {n} changes would be made"),
    };
    (Ending::Planned, message)
}

/// Some pods resolve it to an IPv6 address first, where nobody listens.
fn warn_of_localhost(task: &Task, run: &mut Run<'_, '_>) {
    match task {
        Task::Register { url, .. } if url.contains("//localhost") => run
            .console
            .line("     note: localhost may be an IPv6 address first; 127.0.0.1 is the sidecar's"),
        Task::Register { .. } | Task::Unregister { .. } => {}
    }
}

/// Sees that the entries are now what they should be.
async fn finish(
    task: &Task,
    changes: bool,
    run: &mut Run<'_, '_>,
) -> Result<(Ending, String), Failure> {
    let now = run.view(patience_or(Instant::now())).await?;
    run.report.records.clone_from(&now.parked);
    if !task.is_done(&now, &run.wish) {
        return Err(Failure::NotAsPlanned {
            entries: now.entries.iter().map(plan::show).collect(),
        });
    }
    let message = task.success(changes, &now, &run.wish);
    run.report.entries_after = Some(now.entries);
    let ending = if changes {
        Ending::Done
    } else {
        Ending::Unchanged
    };
    Ok((ending, message))
}

/// After a failure: back to what was found, or at least away from what has shown that it does not work.
async fn go_back(
    task: &Task,
    found: &View,
    steps: &[Step],
    worked: bool,
    failure: Failure,
    run: &mut Run<'_, '_>,
) -> Result<(Ending, String), Failure> {
    let goal = match task {
        Task::Unregister { .. } if !worked => {
            // There is nothing good to go back to: who asked for mod-authtoken itself keeps what there is of it.
            let now = run.view(patience_or(Instant::now())).await;
            run.report.entries_after = now.ok().map(|view| view.entries);
            let message =
                format!("{failure}; requests failed before as well, so nothing is put back");
            return Ok((Ending::NeedsHands, message));
        }
        Task::Register { url, .. } if failure.is_a_verdict() => {
            let without = plan::without_url(found, url);
            // A sidecar that was in use beside others may fail because of them: it goes only when they are reached.
            if run.reaches_all(&without).await {
                without
            } else {
                found.clone()
            }
        }
        Task::Register { .. } | Task::Unregister { .. } => found.clone(),
    };
    let touched = plan::touched(steps, found, &goal);
    let put_back = run.put_back(&goal, &touched).await;
    let now = run.view(Instant::now()).await;
    match (put_back, now) {
        (Ok(()), Ok(now)) => {
            run.report.records = now.parked;
            let as_found = now.entries == found.entries;
            run.report.entries_after = Some(now.entries);
            let state = if as_found {
                "the entries are as they were"
            } else {
                "the entry that does not work was taken out"
            };
            Ok((failure.ending(), format!("{failure}; {state}")))
        }
        (put_back, _) => Ok((Ending::NeedsHands, by_hand(found, &failure, put_back.err()))),
    }
}

/// What a person has to do when we could not.
fn by_hand(found: &View, failure: &Failure, error: Option<OkapiError>) -> String {
    let wanted: Vec<String> = found
        .entries
        .iter()
        .map(|entry| serde_json::to_string(entry).unwrap_or_else(|_| plan::show(entry)))
        .collect();
    let reason = error.map(|error| format!(" ({error})")).unwrap_or_default();
    format!(
        "{failure}; the entries could not be put back{reason}. Look at GET /_/discovery/modules and POST what is missing of: {}",
        wanted.join(" ")
    )
}
