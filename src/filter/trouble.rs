//! Says what goes wrong without a line per request: an outage has thousands.

use std::sync::atomic::{AtomicU64, Ordering};

/// Between two lines, in milliseconds.
const PAUSE: u64 = 1_000;

/// A line of the log that is written at most once a second.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    next: AtomicU64,
    unsaid: AtomicU64,
}

impl Seldom {
    /// Whether the line is to be written at `now`, and how many times it was not since it last was.
    pub(super) fn due(&self, now: u64) -> Option<u64> {
        let due = self.next.load(Ordering::Relaxed);
        let mine = now >= due
            && self
                .next
                .compare_exchange(due, now + PAUSE, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_tells_how_many_were_left_out() {
        let line = Seldom::default();

        let said: Vec<Option<u64>> = [0, 0, 999, 1_000, 1_001, 5_000]
            .into_iter()
            .map(|now| line.due(now))
            .collect();

        assert_eq!(said, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
