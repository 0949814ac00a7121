//! Why a run failed, whose fault it is, and how the run therefore ends.

use super::args::ArgsError;
use super::choose::ChoiceError;
use super::plan::Refusal;
use super::report::Ending;
use crate::okapi::{Answer, OkapiError};

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line cannot be used.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// No module id.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// The plan forbids itself.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// Okapi did not do it.
    #[error("{}{}", .0, hint(.0))]
    Okapi(#[from] OkapiError),
    /// Okapi knows only real modules.
    #[error(
        "this Okapi refuses entries of modules it does not know ({0}), so there can be no rehearsal and no record: give --no-parking, and keep the entries that are removed (--output json shows them)"
    )]
    NoParking(#[source] OkapiError),
    /// Requests fail before anything was changed.
    #[error(
        "GET {path} for tenant {tenant:?} fails already, before anything was changed: {answer}; a switch could not be checked, so repair this first"
    )]
    AlreadyFailing {
        /// What was asked for.
        path: String,
        /// For whom.
        tenant: String,
        /// What came.
        answer: String,
    },
    /// The path proves nothing.
    #[error(
        "GET {path} for tenant {tenant:?} does not get as far as the auth module: {answer}; name a path that this tenant has with --probe-path"
    )]
    NoRoute {
        /// What was asked for.
        path: String,
        /// For whom.
        tenant: String,
        /// What came.
        answer: Box<Answer>,
    },
    /// An instance is not reached.
    #[error(
        "Okapi does not reach {instance}: {reason} ({good} of {wanted} checks in a row were good)"
    )]
    Unhealthy {
        /// The instance and its address.
        instance: String,
        /// Okapi's words.
        reason: String,
        /// How many good checks there were since the last bad one.
        good: u32,
        /// How many there should have been.
        wanted: u32,
    },
    /// A real call failed.
    #[error(
        "real call {number} of {wanted}, GET {path} for tenant {tenant:?}, failed: {answer}{expected}"
    )]
    CallFailed {
        /// Which one.
        number: u32,
        /// Of how many.
        wanted: u32,
        /// What was asked for.
        path: String,
        /// For whom.
        tenant: String,
        /// What came.
        answer: String,
        /// What should have come, in words.
        expected: String,
    },
    /// All calls were good, but none went to the sidecar.
    #[error(
        "{calls} real calls were good, but by its trace headers Okapi sent none of them to {url}"
    )]
    NeverMet {
        /// How many.
        calls: u32,
        /// Where they should have gone.
        url: String,
    },
    /// The discovery is not what was made of it.
    #[error(
        "after all steps the entries are {entries:?}; somebody else is at work on them, or Okapi's own Kubernetes discovery"
    )]
    NotAsPlanned {
        /// What is there.
        entries: Vec<String>,
    },
    /// Signals cannot be handled, so an interrupted run could not be put back.
    #[error("signals cannot be handled here: {0}; nothing was begun")]
    Signals(#[source] std::io::Error),
    /// A signal.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

impl Failure {
    /// How a run ends that failed so, when everything could be put back.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::Args(_) | Self::Okapi(OkapiError::Tls(_) | OkapiError::Setup(_)) => Ending::Usage,
            Self::Choice(_)
            | Self::Refusal(_)
            | Self::NoParking(_)
            | Self::Signals(_)
            | Self::AlreadyFailing { .. }
            | Self::NoRoute { .. } => Ending::Refused,
            Self::Okapi(_) => Ending::OkapiFailed,
            Self::Unhealthy { .. }
            | Self::CallFailed { .. }
            | Self::NeverMet { .. }
            | Self::NotAsPlanned { .. } => Ending::CheckFailed,
            Self::Interrupted(_) => Ending::Interrupted,
        }
    }

    /// Whether what was being switched to has shown that it does not work.
    pub(crate) fn is_a_verdict(&self) -> bool {
        self.ending() == Ending::CheckFailed
    }
}

/// What helps with a refusal of Okapi's.
fn hint(error: &OkapiError) -> &'static str {
    match error.refusal() {
        Some(answer) if answer.says_denied() => {
            "; the user or token needs okapi.discovery.get, okapi.discovery.post, okapi.discovery.delete, okapi.discovery.health.get, okapi.proxy.modules.list, okapi.proxy.modules.get and okapi.proxy.tenants.modules.list in its tenant, which must be supertenant"
        }
        Some(answer) if answer.says_no_route() => {
            "; the tenant of user or token must be the one that has Okapi's own module, which is supertenant"
        }
        Some(_) | None => "",
    }
}
