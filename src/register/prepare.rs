//! What is found out before anything is changed: which module, whom to make real calls for, how many pods.

use tokio::time::Instant;

use super::args::CommonArgs;
use super::choose::{self, ChoiceError};
use super::failure::Failure;
use super::plan::Wish;
use super::procedure::{Calls, Pace, Run, insist, patience_or};
use super::report::{Console, Ending, Report};
use super::switch::switch;
use super::task::Task;
use crate::okapi::{Okapi, OkapiError};
use crate::shutdown::Signals;

/// How many Okapi pods are assumed when nobody tells.
const PODS_ASSUMED: usize = 3;

/// All that is found out before anything is changed.
pub(super) struct Preparation<'a, 'c> {
    pub(super) task: &'a Task,
    pub(super) okapi: &'a Okapi,
    pub(super) common: &'a CommonArgs,
    pub(super) pods: Option<u16>,
    pub(super) deadline: Instant,
    pub(super) console: &'a mut Console<'c>,
    pub(super) report: &'a mut Report,
}

/// What was found out.
struct Found {
    wish: Wish,
    calls: Option<Calls>,
    pods: usize,
}

impl Preparation<'_, '_> {
    /// Finds out, and switches.
    pub(super) async fn run(&mut self) -> Result<(Ending, String), Failure> {
        let mut interrupts = Signals::install().map_err(Failure::Signals)?;
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
