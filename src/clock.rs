//! The two clocks, read once per request and passed down.
//!
//! Monotonic time says how long something lasts; the wall clock is what `exp` means, and the only one that notices
//! a suspended machine. No room but the edge (`filter`, `server`, `admin`) reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Milliseconds of the monotonic clock since the process's clock was made.
pub type MonoMillis = u64;
/// Milliseconds since the Unix epoch by the wall clock.
pub type WallMillis = u64;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock.
    pub mono: MonoMillis,
    /// The wall clock.
    pub wall: WallMillis,
}

/// Where [`Now`] comes from. Clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock {
    base: Instant,
    skew: Option<Arc<Skew>>,
}

#[derive(Debug)]
struct Skew {
    /// What the wall clock showed when this one was made.
    wall_base: WallMillis,
    /// Whether the clocks go on by themselves.
    runs: bool,
    mono: AtomicI64,
    wall: AtomicI64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self {
            base: Instant::now(),
            skew: None,
        }
    }

    /// The machine's clocks, which [`Clock::shift`] can move: for tests of what a stepped or suspended clock does.
    /// Its wall clock goes on with the monotonic one, so that nothing else moves it, and both stand still while
    /// tokio's time does.
    pub fn movable() -> Self {
        Self::skewed(true)
    }

    /// Clocks that stand still but for [`Clock::shift`]: for tests that count seconds on a machine that may be busy.
    pub fn still() -> Self {
        Self::skewed(false)
    }

    fn skewed(runs: bool) -> Self {
        Self {
            base: Instant::now(),
            skew: Some(Arc::new(Skew {
                wall_base: machine_wall(),
                runs,
                mono: AtomicI64::new(0),
                wall: AtomicI64::new(0),
            })),
        }
    }

    /// Moves a movable clock by so many milliseconds, for all its clones; the machine's clocks stay.
    pub fn shift(&self, mono: i64, wall: i64) {
        if let Some(skew) = &self.skew {
            skew.mono.fetch_add(mono, Ordering::SeqCst);
            skew.wall.fetch_add(wall, Ordering::SeqCst);
        }
    }

    /// Both clocks now.
    pub fn now(&self) -> Now {
        self.at(Instant::now())
    }

    /// Both clocks, where the monotonic one was just read.
    pub fn at(&self, instant: Instant) -> Now {
        let mono = millis(instant.saturating_duration_since(self.base).as_millis());
        match &self.skew {
            None => Now {
                mono,
                wall: machine_wall(),
            },
            Some(skew) => {
                let mono = if skew.runs { mono } else { 0 };
                Now {
                    mono: mono.saturating_add_signed(skew.mono.load(Ordering::SeqCst)),
                    wall: (skew.wall_base + mono)
                        .saturating_add_signed(skew.wall.load(Ordering::SeqCst)),
                }
            }
        }
    }
}

/// A wall clock before 1970 reads as 0: every decision is then void, which is safe.
fn machine_wall() -> WallMillis {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| millis(since.as_millis()))
}

/// Milliseconds that fit: half a billion years of them do.
pub fn millis(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_movable_clock_moves_for_all_its_clones() {
        let clock = Clock::movable();
        let other = clock.clone();
        let before = other.now();

        clock.shift(5_000, -3_600_000);

        let after = other.now();
        assert!(after.mono >= before.mono + 5_000);
        assert!(after.wall <= before.wall - 3_590_000);
    }

    #[test]
    fn a_still_clock_moves_by_hand_alone() {
        let clock = Clock::still();
        let before = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(clock.now(), before);

        clock.shift(5_000, 7_000);

        let after = clock.now();
        assert_eq!(
            (after.mono, after.wall),
            (before.mono + 5_000, before.wall + 7_000)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_movable_clock_stands_still_while_tokios_does() {
        let clock = Clock::movable();
        let before = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));

        assert_eq!(clock.now(), before);
    }
}
