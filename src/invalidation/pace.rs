//! How often the whole process may send the refresh header.
//!
//! One header empties mod-authtoken's permission memory for all tenants, so a storm of events must not become a storm
//! of refreshes. Pure over the clock that is passed in.

use super::hold::Cleared;
use crate::clock::MonoMillis;

/// So many refreshes may leave in [`WINDOW`].
const PER_WINDOW: usize = 2;
/// Milliseconds.
const WINDOW: u64 = 1_000;
/// So many refused holds are remembered; more than that wait unremembered, which only costs them their place.
const MOST_WAITING: usize = 64;

/// The pace of one process.
#[derive(Debug, Default)]
pub(super) struct Pace {
    sent: [Option<MonoMillis>; PER_WINDOW],
    waiting: Vec<Waiting>,
    /// The latest refresh that was answered 202.
    pub(super) cleared: Option<Cleared>,
}

#[derive(Debug)]
struct Waiting {
    tick: u64,
    asked: MonoMillis,
}

impl Pace {
    /// Whether the hold of the event `tick` may send now; the oldest of those who wait go first.
    pub(super) fn admit(&mut self, tick: u64, now: MonoMillis) -> bool {
        self.waiting.retain(|waiting| now < waiting.asked + WINDOW);
        let free = self
            .sent
            .iter()
            .filter(|sent| sent.is_none_or(|sent| now >= sent + WINDOW))
            .count();
        let older = self
            .waiting
            .iter()
            .filter(|waiting| waiting.tick < tick)
            .count();
        let admitted = older < free;
        self.waiting.retain(|waiting| waiting.tick != tick);
        if admitted {
            self.sent.rotate_left(1);
            self.sent[PER_WINDOW - 1] = Some(now);
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.push(Waiting { tick, asked: now });
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_refreshes_a_second_leave_the_process() {
        let mut pace = Pace::default();
        let admitted = (0..100u64)
            .filter(|n| pace.admit(1_000 - n, n * 100))
            .count();

        assert_eq!(admitted, 20);
    }

    #[test]
    fn the_oldest_hold_goes_first() {
        let mut pace = Pace::default();
        assert!(pace.admit(1, 0));
        assert!(pace.admit(2, 0));
        assert!(!pace.admit(3, 500));
        assert!(!pace.admit(4, 500));

        assert!(
            !pace.admit(9, 1_000),
            "two older ones wait for the two places"
        );
        assert!(pace.admit(3, 1_000));
        assert!(pace.admit(4, 1_000));
        assert!(!pace.admit(9, 1_000));
    }

    #[test]
    fn who_stopped_asking_holds_nobody_up() {
        let mut pace = Pace::default();
        assert!(pace.admit(1, 0) && pace.admit(2, 0));
        assert!(!pace.admit(3, 500) && !pace.admit(4, 500));

        assert!(pace.admit(9, 1_600));
    }
}
