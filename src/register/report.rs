//! What is said of a run: lines for people as it goes along, one document for programs at its end.

use std::io::Write;

use serde::Serialize;

use super::args::Output;
use super::plan::{Step, show};
use crate::okapi::Entry;

/// How a run ended. The numbers are the process's exit codes and part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// 0: all is as wished for, and something was changed for it.
    Done,
    /// 0: all was as wished for.
    Unchanged,
    /// 0: this was a dry run.
    Planned,
    /// 2: the command line is wrong.
    Usage,
    /// 3: it cannot work like this; nothing was changed.
    Refused,
    /// 4: Okapi cannot be reached or does not allow it; what had been changed was put back.
    OkapiFailed,
    /// 5: a check failed; what had been changed was put back.
    CheckFailed,
    /// 6: not everything could be put back.
    NeedsHands,
    /// 7: a signal came; what had been changed was put back.
    Interrupted,
}

impl Ending {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done | Self::Unchanged | Self::Planned => 0,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::OkapiFailed => 4,
            Self::CheckFailed => 5,
            Self::NeedsHands => 6,
            Self::Interrupted => 7,
        }
    }
}

/// The document of `--output json`. Fields are added over time, none is renamed.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// `register` or `unregister`.
    pub command: &'static str,
    /// Okapi's address.
    pub okapi_url: Option<String>,
    /// How it ended.
    pub result: Ending,
    /// The process's exit code.
    pub exit_code: u8,
    /// The same in a sentence.
    pub message: String,
    /// The auth module, once it is known.
    pub module_id: Option<String>,
    /// Its entries before, as Okapi had them: whoever has to repair something by hand needs these.
    pub entries_before: Vec<Entry>,
    /// Its entries after, or nothing when Okapi could not be asked any more.
    pub entries_after: Option<Vec<Entry>>,
    /// Records of direct entries that Okapi's discovery keeps, out of use.
    pub records: Vec<Entry>,
    /// What was done, or would be, in this order.
    pub steps: Vec<StepReport>,
}

/// One step of the document.
#[derive(Debug, Serialize)]
pub(crate) struct StepReport {
    /// `park`, `await`, `forget`, `add`, `call`, `health`, `remove`.
    pub step: &'static str,
    /// The instance id, when the step has to do with one.
    pub instance: Option<String>,
    /// The address, when the step has to do with one.
    pub url: Option<String>,
    /// What came of it: `planned`, `done`, `failed`.
    pub result: &'static str,
    /// More of it.
    pub detail: Option<String>,
    /// Whether this step undid others after a failure.
    pub put_back: bool,
}

impl StepReport {
    /// What is to be said of a step.
    pub(crate) fn of(step: &Step, result: &'static str, detail: Option<String>) -> Self {
        let (instance, url) = match step {
            Step::Await(entry)
            | Step::Add(entry)
            | Step::Health(entry)
            | Step::Park(entry)
            | Step::Remove(entry)
            | Step::Forget(entry) => (Some(entry.inst_id.clone()), entry.url.clone()),
            Step::Call { url, entries: _ } => (None, url.clone()),
        };
        Self {
            step: name(step),
            instance,
            url,
            result,
            detail,
            put_back: false,
        }
    }
}

/// A step in a word.
pub(crate) fn name(step: &Step) -> &'static str {
    match step {
        Step::Await(_) => "await",
        Step::Add(_) => "add",
        Step::Call { .. } => "call",
        Step::Health(_) => "health",
        Step::Park(_) => "park",
        Step::Remove(_) => "remove",
        Step::Forget(_) => "forget",
    }
}

/// A step in a line.
pub(crate) fn describe(step: &Step) -> String {
    match step {
        Step::Await(entry) => format!("wait until every Okapi pod reaches {}", show(entry)),
        Step::Add(entry) => format!("add {}", show(entry)),
        Step::Call { url: Some(url), .. } => format!("make real calls by way of {url}"),
        Step::Call { url: None, .. } => "make real calls".to_owned(),
        Step::Health(entry) => format!("ask the Okapi pods for the health of {}", show(entry)),
        Step::Park(entry) => format!("keep {} out of use", show(entry)),
        Step::Remove(entry) => format!("remove {}", show(entry)),
        Step::Forget(entry) => format!("forget {}", show(entry)),
    }
}

/// Where the lines and the document go. A reader who went away stops nothing: the switch matters more than its report.
pub(crate) struct Console<'a> {
    out: &'a mut (dyn Write + Send),
    progress: &'a mut (dyn Write + Send),
    output: Output,
}

impl std::fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console")
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

impl<'a> Console<'a> {
    /// `out` gets the result, `progress` what programs should not read.
    pub(crate) fn new(
        out: &'a mut (dyn Write + Send),
        progress: &'a mut (dyn Write + Send),
        output: Output,
    ) -> Self {
        Self {
            out,
            progress,
            output,
        }
    }

    /// A line that goes along.
    pub(crate) fn line(&mut self, text: &str) {
        let target = match self.output {
            Output::Text => &mut self.out,
            Output::Json => &mut self.progress,
        };
        let _ = writeln!(target, "{text}").and_then(|()| target.flush());
    }

    /// The end: the sentence, or the document.
    pub(crate) fn end(&mut self, report: &Report) {
        match (self.output, report.result.code()) {
            (Output::Json, _) => {
                let document = serde_json::to_string_pretty(report)
                    .expect("a report holds strings and numbers only");
                let _ = writeln!(self.out, "{document}").and_then(|()| self.out.flush());
            }
            (Output::Text, 0) => self.line(&report.message),
            (Output::Text, _) => {
                let _ = writeln!(self.progress, "error: {}", report.message)
                    .and_then(|()| self.progress.flush());
            }
        }
    }
}
