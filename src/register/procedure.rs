//! Carries plans out: one step after the other, and back again after a failure.
//!
//! The trap: on a secured system our own calls pass the auth module, so while a broken entry is in use a part of them fails,
//! the repairs included. Changes are therefore repeated until the discovery shows that they are made, and each is harmless
//! when it is made already. Checks are never repeated: what fails for us fails for users.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failure::Failure;
use super::plan::{self, Step, View, Wish};
use super::report::{Console, Report, StepReport, describe};
use super::sample::draws;
use crate::okapi::{Entry, Okapi, OkapiError};
use crate::shutdown::Signals;

/// How long one change, or one question before the first change, is repeated while it may yet go well.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a wait says that it still waits.
const NEWS: Duration = Duration::from_secs(10);
/// How long a request that went out without an answer may still take to have its effect.
const AFTERMATH: Duration = Duration::from_secs(1);

/// For whom real calls are made, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    /// The tenant.
    pub tenant: String,
    /// The path.
    pub path: String,
}

/// How often to look, and how long to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// At least so many checks in a row.
    pub samples: u16,
    /// Between two health checks.
    pub interval: Duration,
    /// How long it is tried to put everything back.
    pub put_back_for: Duration,
    /// When waiting for a rollout ends.
    pub deadline: Instant,
    /// How many Okapi pods there are.
    pub pods: usize,
}

/// A run that has found its module.
#[derive(Debug)]
pub(crate) struct Run<'a, 'c> {
    pub okapi: &'a Okapi,
    pub wish: Wish,
    pub calls: Option<Calls>,
    pub pace: Pace,
    pub console: &'a mut Console<'c>,
    pub report: &'a mut Report,
    /// The status that real calls had before anything was changed.
    pub baseline: Option<u16>,
    /// Whether a change was asked for and never answered: it may still be made, any time.
    pub unanswered: bool,
}

/// Repeats a question until it is answered, or has no prospect, or `until` has come.
///
/// # Errors
/// The last one.
pub(crate) async fn insist<T, F>(
    until: Instant,
    mut ask: impl FnMut() -> F,
) -> Result<T, OkapiError>
where
    F: Future<Output = Result<T, OkapiError>>,
{
    loop {
        match ask().await {
            Err(error) if error.may_pass() && Instant::now() < until => sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// Until when a question before the first change is repeated.
pub(crate) fn patience_or(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + PATIENCE)
}

impl Run<'_, '_> {
    /// What the discovery holds now.
    pub(crate) async fn view(&self, until: Instant) -> Result<View, OkapiError> {
        let all = insist(until, || self.okapi.entries()).await?;
        Ok(View::of(all, &self.wish))
    }

    /// Makes real calls before anything is changed, to know what a good one looks like.
    pub(crate) async fn see_how_it_is(&mut self, entries: usize) -> Result<(), Failure> {
        if let Some(calls) = self.calls.clone() {
            self.baseline = None;
            match self.make_calls(&calls, None, entries).await {
                Ok(detail) => {
                    let line = format!("ok   make real calls, as it is now: {detail}");
                    self.console.line(&line);
                }
                Err(Failure::CallFailed { answer, .. }) => {
                    return Err(Failure::AlreadyFailing {
                        path: calls.path,
                        tenant: calls.tenant,
                        answer,
                    });
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Carries the steps out. A signal ends it between two calls, never in the middle of a change.
    pub(crate) async fn carry_out(
        &mut self,
        steps: &[Step],
        interrupts: &mut Signals,
    ) -> Result<(), Failure> {
        for step in steps {
            let done = match step {
                Step::Add(_) | Step::Park(_) | Step::Remove(_) | Step::Forget(_) => {
                    match interrupts.seen() {
                        Some(signal) => Err(Failure::Interrupted(signal)),
                        None => self.insist_on(step).await.map(|()| None),
                    }
                }
                Step::Await(_) | Step::Call { .. } | Step::Health(_) => {
                    tokio::select! {
                        biased;
                        signal = interrupts.next() => Err(Failure::Interrupted(signal)),
                        done = self.check(step) => done,
                    }
                }
            };
            match done {
                Ok(detail) => self.note(step, "done", detail, false),
                Err(failure) => {
                    self.note(step, "failed", Some(failure.to_string()), false);
                    return Err(failure);
                }
            }
        }
        match interrupts.seen() {
            Some(signal) => Err(Failure::Interrupted(signal)),
            None => Ok(()),
        }
    }

    /// Goes back to `goal`, whatever is there now, for as long as it takes, within limits.
    ///
    /// # Errors
    /// What stood in the way last.
    pub(crate) async fn put_back(
        &mut self,
        goal: &View,
        touched: &[String],
    ) -> Result<(), OkapiError> {
        let until = Instant::now() + self.pace.put_back_for;
        loop {
            let trouble = match self.view(Instant::now()).await {
                Ok(now) => {
                    let steps = plan::back(&now, goal, &self.wish, touched);
                    if steps.is_empty() && !self.unanswered {
                        return Ok(());
                    }
                    if steps.is_empty() {
                        self.unanswered = false;
                        sleep(AFTERMATH).await;
                        continue;
                    }
                    self.try_back(&steps).await
                }
                Err(error) => Err(error),
            };
            match trouble {
                Ok(()) => {}
                Err(error) if Instant::now() >= until => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn try_back(&mut self, steps: &[Step]) -> Result<(), OkapiError> {
        for step in steps {
            self.change(step).await?;
            self.note(step, "done", None, true);
        }
        Ok(())
    }

    /// One try at one change.
    async fn change(&mut self, step: &Step) -> Result<(), OkapiError> {
        let done = match step {
            Step::Add(entry) | Step::Park(entry) => self.okapi.add(entry).await,
            Step::Remove(entry) | Step::Forget(entry) => self.okapi.remove(entry).await,
            Step::Await(_) | Step::Call { .. } | Step::Health(_) => Ok(()),
        };
        if let Err(OkapiError::NoAnswer { .. }) = done {
            self.unanswered = true;
        }
        done
    }

    /// Repeats a change until it is made. Whether it is made is what the discovery shows, not what the answer was.
    async fn insist_on(&mut self, step: &Step) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let Err(error) = self.change(step).await else {
                return Ok(());
            };
            let refusal = error.refusal();
            let may_be_made =
                error.may_pass() || refusal.is_some_and(crate::okapi::Answer::says_duplicate);
            if may_be_made
                && let Ok(now) = self.view(Instant::now()).await
                && plan::is_made(step, &now)
            {
                return Ok(());
            }
            if !error.may_pass() || Instant::now() >= until {
                let unknown = refusal.is_some_and(|answer| answer.status == 404);
                return Err(match step {
                    Step::Park(_) if unknown => Failure::NoParking(error),
                    _ => Failure::Okapi(error),
                });
            }
            sleep(PAUSE).await;
        }
    }

    async fn check(&mut self, step: &Step) -> Result<Option<String>, Failure> {
        match step {
            Step::Await(entry) => self.wait_for(entry).await.map(Some),
            Step::Health(entry) => self.see_health(entry).await.map(Some),
            Step::Call { url, entries } => match self.calls.clone() {
                Some(calls) => {
                    let done = self.make_calls(&calls, url.as_deref(), *entries).await;
                    done.map(Some)
                }
                None => Ok(Some("left out: no tenant to make them for".to_owned())),
            },
            Step::Add(_) | Step::Park(_) | Step::Remove(_) | Step::Forget(_) => Ok(None),
        }
    }

    /// Whether every pod reaches every entry.
    pub(crate) async fn reaches_all(&mut self, view: &View) -> bool {
        for entry in &view.entries {
            if self.see_health(entry).await.is_err() {
                return false;
            }
        }
        true
    }

    fn health_draws(&self) -> u32 {
        draws(self.pace.pods, self.pace.samples)
    }

    /// Asks again and again until enough answers in a row were good, so that every pod was met; a pod without a sidecar starts it anew.
    async fn wait_for(&mut self, entry: &Entry) -> Result<String, Failure> {
        let wanted = self.health_draws();
        let mut good = 0;
        let mut news_at = Instant::now() + NEWS;
        while good < wanted {
            let reason = match self.okapi.health(entry).await {
                Ok(health) if health.health_status => None,
                Ok(health) => Some(health.health_message),
                Err(error) if error.may_pass() => Some(error.to_string()),
                Err(error) => return Err(error.into()),
            };
            match reason {
                None => good += 1,
                Some(reason) if Instant::now() >= self.pace.deadline => {
                    return Err(Failure::Unhealthy {
                        instance: plan::show(entry),
                        reason,
                        good,
                        wanted,
                    });
                }
                Some(reason) => {
                    if Instant::now() >= news_at {
                        news_at = Instant::now() + NEWS;
                        self.console.line(&format!(
                            "     still waiting: {good} of {wanted} good in a row, then {reason}"
                        ));
                    }
                    good = 0;
                }
            }
            sleep(self.pace.interval).await;
        }
        Ok(format!("{wanted} good answers in a row"))
    }

    /// As `wait_for`, but in use: one bad answer is a verdict. A question that died on its way says nothing and is asked again.
    async fn see_health(&mut self, entry: &Entry) -> Result<String, Failure> {
        let wanted = self.health_draws();
        for good in 0..wanted {
            let until = Instant::now() + PATIENCE;
            let health = insist(until, || self.okapi.health(entry)).await?;
            if !health.health_status {
                return Err(Failure::Unhealthy {
                    instance: plan::show(entry),
                    reason: health.health_message,
                    good,
                    wanted,
                });
            }
            sleep(self.pace.interval).await;
        }
        Ok(format!("{wanted} good answers"))
    }

    /// Makes so many calls that each pod and each entry was met; all must be answered as they were before.
    async fn make_calls(
        &mut self,
        calls: &Calls,
        url: Option<&str>,
        entries: usize,
    ) -> Result<String, Failure> {
        let wanted = draws(self.pace.pods * entries.max(1), self.pace.samples);
        let mut traced = 0;
        let mut met = 0;
        for number in 1..=wanted {
            let failed = |answer: String, expected: String| Failure::CallFailed {
                number,
                wanted,
                path: calls.path.clone(),
                tenant: calls.tenant.clone(),
                answer,
                expected,
            };
            let answer = match self.okapi.ask(&calls.tenant, &calls.path).await {
                Ok(answer) => answer,
                Err(error) => return Err(failed(error.to_string(), String::new())),
            };
            if answer.says_no_route() {
                return Err(Failure::NoRoute {
                    path: calls.path.clone(),
                    tenant: calls.tenant.clone(),
                    answer: Box::new(answer),
                });
            }
            if !answer.passed_auth() {
                return Err(failed(answer.to_string(), String::new()));
            }
            let before = *self.baseline.get_or_insert(answer.status);
            if answer.status != before {
                return Err(failed(
                    answer.to_string(),
                    format!("; before it was {before}"),
                ));
            }
            if let Some(url) = url
                && let Some(went_there) = answer.went_to(&self.wish.module, url)
            {
                traced += 1;
                met += u32::from(went_there);
            }
        }
        match (url, traced, met) {
            (Some(url), 1.., 0) => Err(Failure::NeverMet {
                calls: traced,
                url: url.to_owned(),
            }),
            (Some(_), 1.., _) => Ok(format!("{wanted} good answers, {met} of them by that way")),
            (_, _, _) => Ok(format!("{wanted} good answers")),
        }
    }

    fn note(&mut self, step: &Step, result: &'static str, detail: Option<String>, put_back: bool) {
        let mark = match (put_back, result) {
            (true, _) => "back",
            (false, "done") => "ok  ",
            (false, _) => "FAIL",
        };
        let more = detail
            .as_deref()
            .map(|text| format!(": {text}"))
            .unwrap_or_default();
        self.console
            .line(&format!("{mark} {}{more}", describe(step)));
        let mut report = StepReport::of(step, result, detail);
        report.put_back = put_back;
        self.report.steps.push(report);
    }
}
