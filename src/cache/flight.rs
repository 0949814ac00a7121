//! Questions on their way to the auth module, so that equal ones share one call.
//!
//! Knows nothing of HTTP: what a flight brings back is its type parameter. The traps: whoever comes after a revocation
//! must not join a question asked before it, and a question that was refused meanwhile must not be stored by an older
//! call that said yes; both are decided under the one lock of the key.

use crate::clock::MonoMillis;
use crate::invalidation::{Asked, Tick};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What makes two questions on their way the same, beside their key.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// A HEAD request: answers without body are nobody else's.
    pub head: bool,
    /// The tick of the latest revocation that reaches who asks: older questions are not joined.
    pub not_before: Tick,
    /// Whether a hold runs: then nobody joins a question that is not young, nor later one that was asked in a hold.
    pub held: bool,
    /// Questions asked at this time or later are young.
    pub young_from: MonoMillis,
    /// Whether it has leave to carry the refresh header: leave is counted and rare, so the call is made.
    pub refresh: bool,
}

/// All flights of the process, by key.
#[derive(Debug)]
pub struct Flights<T> {
    hasher: ahash::RandomState,
    shards: [Mutex<Shard<T>>; 16],
}

type Shard<T> = HashMap<Box<[u8]>, Vec<Arc<Flight<T>>>, ahash::RandomState>;

#[derive(Debug)]
struct Flight<T> {
    asked: Asked,
    head: bool,
    held: bool,
    refused: AtomicBool,
    outcome: watch::Receiver<Option<T>>,
}

/// How a question gets its answer.
#[derive(Debug)]
pub enum Boarding<T, S> {
    /// By waiting for a call that is on its way.
    Join(Waiting<T>),
    /// By what a call stored that landed since the asker looked.
    Stored(S),
    /// By making the call.
    Lead(Lead<T>),
}

/// A place on a flight.
#[derive(Debug)]
pub struct Waiting<T>(watch::Receiver<Option<T>>);

/// The duty to make the call. Dropped without landing, it tells those who wait that there will be no answer.
pub struct Lead<T> {
    flights: Arc<Flights<T>>,
    key: Box<[u8]>,
    flight: Arc<Flight<T>>,
    outcome: watch::Sender<Option<T>>,
}

impl<T> fmt::Debug for Lead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("asked", &self.flight.asked)
            .finish_non_exhaustive()
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self {
            hasher: ahash::RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl<T> Flights<T> {
    /// Joins a call for `key` that serves the wish, or takes what `stored` finds, or leads a new call asked at `asked`.
    /// `stored` is asked while no call for the key can land: without it, who looked just before a landing and boards
    /// just after it would ask again.
    pub fn board<S>(
        self: &Arc<Self>,
        key: &[u8],
        wish: Wish,
        asked: Asked,
        stored: impl FnOnce() -> Option<S>,
    ) -> Boarding<T, S> {
        let mut shard = self.shard(key);
        let joinable = shard
            .get(key)
            .and_then(|flights| flights.iter().find(|flight| flight.serves(wish)));
        if let Some(flight) = joinable {
            return Boarding::Join(Waiting(flight.outcome.clone()));
        }
        if let Some(stored) = stored() {
            return Boarding::Stored(stored);
        }
        Boarding::Lead(self.depart(&mut shard, key, wish, asked))
    }

    /// Leads a new call if none is on its way for `key`: for refreshing in the background.
    pub fn lead_if_alone(
        self: &Arc<Self>,
        key: &[u8],
        wish: Wish,
        asked: Asked,
    ) -> Option<Lead<T>> {
        let mut shard = self.shard(key);
        (!shard.contains_key(key)).then(|| self.depart(&mut shard, key, wish, asked))
    }

    /// The question of `key` was refused: runs `forget` and lets no call that is on its way store its answer.
    pub fn refuse(&self, key: &[u8], forget: impl FnOnce()) {
        let shard = self.shard(key);
        for flight in shard.get(key).into_iter().flatten() {
            flight.refused.store(true, Ordering::SeqCst);
        }
        forget();
    }

    /// How many calls are on their way.
    pub fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| lock(shard).values().map(Vec::len).sum::<usize>())
            .sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn depart(
        self: &Arc<Self>,
        shard: &mut Shard<T>,
        key: &[u8],
        wish: Wish,
        asked: Asked,
    ) -> Lead<T> {
        let (sender, receiver) = watch::channel(None);
        let flight = Arc::new(Flight {
            asked,
            head: wish.head,
            held: wish.held,
            refused: AtomicBool::new(false),
            outcome: receiver,
        });
        shard.entry(key.into()).or_default().push(flight.clone());
        Lead {
            flights: self.clone(),
            key: key.into(),
            flight,
            outcome: sender,
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard<T>> {
        let hash = usize::try_from(self.hasher.hash_one(key) >> 60).unwrap_or(0);
        lock(&self.shards[hash])
    }
}

impl<T> Flight<T> {
    fn serves(&self, wish: Wish) -> bool {
        self.head == wish.head
            && self.asked.tick >= wish.not_before
            && (self.asked.at >= wish.young_from || !(self.held || wish.held))
            && !wish.refresh
            // Who comes after a known no must not get the yes of a question that was asked before it.
            && !self.refused.load(Ordering::SeqCst)
    }
}

impl<T> Lead<T> {
    /// When the question was asked.
    pub fn asked(&self) -> Asked {
        self.flight.asked
    }

    /// Ends the flight: `store` is told whether the question was refused meanwhile, and runs while nobody can refuse
    /// it or ask it anew; then all who wait get what it returns.
    pub fn land(self, store: impl FnOnce(bool) -> T) {
        let mut shard = self.flights.shard(&self.key);
        let outcome = store(self.flight.refused.load(Ordering::SeqCst));
        self.flight.leave(&self.key, &mut shard);
        drop(shard);
        self.outcome.send_replace(Some(outcome));
    }
}

impl<T> Flight<T> {
    fn leave(self: &Arc<Self>, key: &[u8], shard: &mut Shard<T>) {
        if let Some(flights) = shard.get_mut(key) {
            flights.retain(|other| !Arc::ptr_eq(other, self));
            if flights.is_empty() {
                shard.remove(key);
            }
        }
    }
}

impl<T> Drop for Lead<T> {
    fn drop(&mut self) {
        // After a landing this finds nothing to do.
        let mut shard = self.flights.shard(&self.key);
        self.flight.leave(&self.key, &mut shard);
    }
}

impl<T: Clone> Waiting<T> {
    /// The flight's outcome; none if its leader went away without one.
    pub async fn outcome(mut self) -> Option<T> {
        self.0
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|outcome| outcome.clone())
    }
}

impl<T: Clone> Lead<T> {
    /// A place on the own flight: the call runs in a task of its own.
    pub fn waiting(&self) -> Waiting<T> {
        Waiting(self.flight.outcome.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish {
        head: false,
        not_before: 0,
        held: false,
        young_from: 0,
        refresh: false,
    };

    fn asked(tick: Tick, at: MonoMillis) -> Asked {
        Asked { tick, at }
    }

    fn board(
        flights: &Arc<Flights<u32>>,
        key: &[u8],
        wish: Wish,
        asked: Asked,
    ) -> Boarding<u32, ()> {
        flights.board(key, wish, asked, || None)
    }

    fn lead(flights: &Arc<Flights<u32>>, wish: Wish, asked: Asked) -> Lead<u32> {
        match board(flights, b"k", wish, asked) {
            Boarding::Lead(lead) => lead,
            Boarding::Join(_) | Boarding::Stored(()) => panic!("it should lead"),
        }
    }

    fn join(flights: &Arc<Flights<u32>>, wish: Wish) -> Option<Waiting<u32>> {
        match board(flights, b"k", wish, asked(9, 9_000)) {
            Boarding::Join(waiting) => Some(waiting),
            Boarding::Lead(_) | Boarding::Stored(()) => None,
        }
    }

    #[tokio::test]
    async fn equal_questions_share_one_call() {
        let flights = Arc::<Flights<u32>>::default();
        let lead = lead(&flights, WISH, asked(0, 0));
        let waiting: Vec<_> = (0..100).map(|_| join(&flights, WISH).unwrap()).collect();

        lead.land(|refused| if refused { 0 } else { 7 });

        for waiting in waiting {
            assert_eq!(waiting.outcome().await, Some(7));
        }
        assert!(flights.is_empty());
    }

    #[test]
    fn what_was_stored_meanwhile_is_taken_instead_of_asking_again() {
        let flights = Arc::<Flights<u32>>::default();

        let boarding = flights.board(b"k", WISH, asked(0, 0), || Some("stored"));

        assert!(matches!(boarding, Boarding::Stored("stored")));
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn a_leader_that_goes_away_leaves_nobody_waiting() {
        let flights = Arc::<Flights<u32>>::default();
        let lead = lead(&flights, WISH, asked(0, 0));
        let waiting = join(&flights, WISH).unwrap();

        drop(lead);

        assert_eq!(waiting.outcome().await, None);
        assert!(flights.is_empty());
    }

    #[test]
    fn who_comes_after_a_revocation_asks_anew() {
        let flights = Arc::<Flights<u32>>::default();
        let _old = lead(&flights, WISH, asked(4, 0));

        assert!(
            join(
                &flights,
                Wish {
                    not_before: 4,
                    ..WISH
                }
            )
            .is_some()
        );
        let wish = Wish {
            not_before: 5,
            ..WISH
        };
        let _new = lead(&flights, wish, asked(5, 0));
        assert!(join(&flights, wish).is_some(), "the new call is joined");
    }

    #[test]
    fn head_and_refresh_keep_flights_apart() {
        let flights = Arc::<Flights<u32>>::default();
        let _lead = lead(&flights, WISH, asked(0, 1_000));

        assert!(join(&flights, Wish { head: true, ..WISH }).is_none());
        assert!(
            join(
                &flights,
                Wish {
                    refresh: true,
                    ..WISH
                }
            )
            .is_none()
        );
    }

    #[test]
    fn in_a_hold_and_out_of_it_only_a_young_question_is_joined() {
        for (asked_held, wish_held, young_from, joined) in [
            (false, false, 1_001, true),
            (false, true, 1_001, false),
            (true, false, 1_001, false),
            (true, true, 1_000, true),
        ] {
            let flights = Arc::<Flights<u32>>::default();
            let first = Wish {
                held: asked_held,
                ..WISH
            };
            let _lead = lead(&flights, first, asked(0, 1_000));

            let wish = Wish {
                held: wish_held,
                young_from,
                ..WISH
            };
            assert_eq!(join(&flights, wish).is_some(), joined);
        }
    }

    #[test]
    fn a_refusal_reaches_every_call_for_its_key_and_no_other() {
        let flights = Arc::<Flights<u32>>::default();
        let one = lead(&flights, WISH, asked(0, 0));
        let two = lead(&flights, Wish { head: true, ..WISH }, asked(0, 0));
        let Boarding::Lead(other) = board(&flights, b"other", WISH, asked(0, 0)) else {
            panic!("another key is another flight");
        };
        let mut forgotten = false;

        flights.refuse(b"k", || forgotten = true);

        let told = |lead: Lead<u32>| {
            let mut told = false;
            lead.land(|refused| {
                told = refused;
                0
            });
            told
        };
        assert!(forgotten && told(one) && told(two));
        assert!(!told(other));
    }

    #[test]
    fn who_comes_after_a_refusal_asks_anew() {
        let flights = Arc::<Flights<u32>>::default();
        let _old = lead(&flights, WISH, asked(0, 0));
        assert!(join(&flights, WISH).is_some());

        flights.refuse(b"k", || {});

        let _new = lead(&flights, WISH, asked(0, 0));
        assert!(join(&flights, WISH).is_some(), "the new call is joined");
    }

    #[test]
    fn leave_for_a_refresh_is_used_even_beside_a_call_that_refreshes() {
        let flights = Arc::<Flights<u32>>::default();
        let wish = Wish {
            refresh: true,
            ..WISH
        };
        let _first = lead(&flights, wish, asked(0, 0));

        let _second = lead(&flights, wish, asked(0, 0));

        assert!(join(&flights, WISH).is_some(), "others join either");
    }

    #[test]
    fn a_background_refresh_leads_only_when_alone() {
        let flights = Arc::<Flights<u32>>::default();
        let first = flights.lead_if_alone(b"k", WISH, asked(0, 0));

        assert!(first.is_some());
        assert!(flights.lead_if_alone(b"k", WISH, asked(0, 0)).is_none());
        drop(first);
        assert!(flights.lead_if_alone(b"k", WISH, asked(0, 0)).is_some());
    }
}
