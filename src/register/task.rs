//! What is to be done, and how one sees that it is done. Pure.

use super::plan::{self, Refusal, Restore, Step, View, Wish};

/// What is to be done.
#[derive(Debug)]
pub(super) enum Task {
    Register { url: String, parking: bool },
    Unregister { restore: Restore },
}

impl Task {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Register { .. } => "register",
            Self::Unregister { .. } => "unregister",
        }
    }

    pub(super) fn parking(&self) -> bool {
        match self {
            Self::Register { parking, .. } => *parking,
            Self::Unregister { .. } => true,
        }
    }

    pub(super) fn plan(&self, view: &View, wish: &Wish) -> Result<Vec<Step>, Refusal> {
        match self {
            Self::Register { url, .. } => plan::register(view, wish, url),
            Self::Unregister { restore } => plan::unregister(view, wish, restore),
        }
    }

    /// Whether the entries are those that were wished for.
    pub(super) fn is_done(&self, view: &View, wish: &Wish) -> bool {
        match self {
            Self::Register { url, .. } => view.entries == [wish.entry(url)],
            Self::Unregister { .. } => {
                view.entry(&wish.instance).is_none() && !view.entries.is_empty()
            }
        }
    }

    pub(super) fn success(&self, changed: bool, view: &View, wish: &Wish) -> String {
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
