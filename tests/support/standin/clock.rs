//! The stand-in's clock: it runs by itself, and a test can move or stop it.
//!
//! Two faces, as in the real thing: `exp` is judged by the wall clock, memories age by the other. `advance` moves both, as time
//! does. A test that counts seconds stops it first: then nothing depends on how busy the machine is.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::locked;

/// A handle on the clock; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    /// What both faces showed when the hands were last touched: age, and time since 1970.
    age: Duration,
    wall: Duration,
    /// When that was; `None` while the clock stands still.
    touched: Option<Instant>,
}

impl Hands {
    fn passed(&self) -> Duration {
        self.touched
            .map(|touched| touched.elapsed())
            .unwrap_or_default()
    }
}

impl Clock {
    /// A running clock that shows the machine's time.
    pub fn new() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(Arc::new(Mutex::new(Hands {
            age: Duration::ZERO,
            wall,
            touched: Some(Instant::now()),
        })))
    }

    /// Time since the start, moved time included: what memories age by.
    pub fn now(&self) -> Duration {
        let hands = self.hands();
        hands.age + hands.passed()
    }

    /// Wall clock, whole seconds since 1970: what `exp` is judged by.
    pub fn wall(&self) -> i64 {
        let hands = self.hands();
        let wall = hands.wall + hands.passed();
        i64::try_from(wall.as_secs()).unwrap_or(i64::MAX)
    }

    /// Lets this much time pass at once, on both faces.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands();
        hands.age += by;
        hands.wall += by;
    }

    /// Stops both faces; `advance` and `set_wall` still move them.
    pub fn stop(&self) {
        let mut hands = self.hands();
        let passed = hands.passed();
        hands.age += passed;
        hands.wall += passed;
        hands.touched = None;
    }

    /// Moves the wall clock alone, to this time since 1970, as an operator or NTP would. Memories do not notice.
    pub fn set_wall(&self, since_1970: Duration) {
        let mut hands = self.hands();
        // What has passed since the last touch is added on reading, so it is taken off here.
        hands.wall = since_1970.saturating_sub(hands.passed());
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        locked(&self.0)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
