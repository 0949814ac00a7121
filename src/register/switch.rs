//! One switch from beginning to end: look, plan, carry out, look again, and back after a failure.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failure::Failure;
use super::plan::{self, Step, View};
use super::procedure::{Run, patience_or};
use super::report::{Ending, StepReport, describe};
use super::task::Task;
use crate::okapi::OkapiError;
use crate::shutdown::Signals;

/// While a rollout makes requests fail, how often it is looked whether it still does.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// Plans, carries out, and goes back after a failure.
pub(super) async fn switch(
    task: &Task,
    dry_run: bool,
    run: &mut Run<'_, '_>,
    interrupts: &mut Signals,
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
    interrupts: &mut Signals,
) -> Result<(), Failure> {
    loop {
        match run.carry_out(steps, interrupts).await {
            Err(failure)
                if failure.is_a_verdict() && !changes && Instant::now() < run.pace.deadline =>
            {
                tokio::select! {
                    signal = interrupts.next() => return Err(Failure::Interrupted(signal)),
                    () = sleep(BETWEEN_LOOKS) => run.report.steps.clear(),
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
                    sleep(BETWEEN_LOOKS).await;
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
