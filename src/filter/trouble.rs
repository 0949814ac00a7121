//! Says that the auth module gives no answer, without a line per request: an outage has thousands.

use crate::upstream::UpstreamError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Between two lines, in milliseconds.
const PAUSE: u64 = 1_000;

/// When the last line was written and how many were not since.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    next_line: AtomicU64,
    unsaid: AtomicU64,
}

impl Trouble {
    /// Notes a failure; writes it down if the last line is long enough ago.
    pub(super) fn note(&self, error: &UpstreamError, now: u64) {
        let due = self.next_line.load(Ordering::Relaxed);
        let mine = now >= due
            && self
                .next_line
                .compare_exchange(due, now + PAUSE, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let more = self.unsaid.swap(0, Ordering::Relaxed);
        let source = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(
            cause = error.cause().as_str(),
            source,
            more,
            "no answer from the auth module"
        );
    }
}
