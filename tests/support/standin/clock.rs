//! The stand-in's clock: it runs by itself, and a test can move it.
//!
//! Two clocks, as in the real thing: `exp` is judged by the wall clock, memories age. `advance` moves both, as time does.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A handle on the clock; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Hands>);

#[derive(Debug)]
struct Hands {
    started: Instant,
    /// Microseconds that tests added to the age of everything.
    ahead: AtomicU64,
    /// Microseconds between this wall clock and the machine's.
    wall_ahead: AtomicI64,
}

impl Clock {
    /// A clock that shows the machine's time.
    pub fn new() -> Self {
        Self(Arc::new(Hands {
            started: Instant::now(),
            ahead: AtomicU64::new(0),
            wall_ahead: AtomicI64::new(0),
        }))
    }

    /// Time since the start, moved time included: what memories age by.
    pub fn now(&self) -> Duration {
        self.0.started.elapsed() + Duration::from_micros(self.0.ahead.load(Ordering::Relaxed))
    }

    /// Wall clock, whole seconds since 1970: what `exp` is judged by.
    pub fn wall(&self) -> i64 {
        (machine() + self.0.wall_ahead.load(Ordering::Relaxed)).div_euclid(1_000_000)
    }

    /// Lets this much time pass at once, on both clocks.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.0.ahead.fetch_add(micros, Ordering::Relaxed);
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        self.0.wall_ahead.fetch_add(micros, Ordering::Relaxed);
    }

    /// Moves the wall clock alone, to this time since 1970, as an operator or NTP would. Memories do not notice.
    pub fn set_wall(&self, since_1970: Duration) {
        let wanted = i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX);
        self.0
            .wall_ahead
            .store(wanted - machine(), Ordering::Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// The machine's wall clock in microseconds.
fn machine() -> i64 {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
}
