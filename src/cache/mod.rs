//! The bounded store of decisions: callers and demands are interned to numbers, a decision's key is a pair of numbers.
//!
//! Equality of the record's bytes decides who a caller is; the seeded hash only finds the place. Numbers are never
//! reused, so a decision whose caller or demand was evicted is simply never found again. Records are interned when a
//! decision is stored, never by looking one up: garbage tokens push nobody out; records that no decision needs any more
//! go with the sweep. What may not enter: HTTP, policy. No other room names `quick_cache`, which has no lifetimes: who
//! reads a decision judges it.

pub mod flight;

use crate::clock::MonoMillis;
use crate::decision::{Decision, Kept, Share};
use crate::invalidation::{Revocations, Scopes, Tick};
use crate::token::Claims;
use http::HeaderValue;
use quick_cache::sync::{Cache as Store, EntryAction, EntryResult};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Who asks, decoded once.
#[derive(Debug)]
pub struct Caller {
    number: u64,
    /// The tenant header's bytes.
    pub tenant: Box<[u8]>,
    /// The effective user, lower case.
    pub user: Option<Box<str>>,
    /// What its token claims.
    pub claims: Claims,
    /// Its generation rows.
    pub scopes: Scopes,
    /// The metric label of its tenant.
    pub label: u32,
    latest_life: AtomicU64,
    latest_asked: AtomicU64,
    /// The number that was next when a decision of it was last about to be stored.
    wanted: AtomicU64,
}

/// What a caller is made of when its first decision is stored.
#[derive(Debug)]
pub struct CallerParts {
    /// The tenant header's bytes.
    pub tenant: Box<[u8]>,
    /// The effective user, lower case.
    pub user: Option<Box<str>>,
    /// What its token claims.
    pub claims: Claims,
    /// Its generation rows.
    pub scopes: Scopes,
    /// The metric label of its tenant.
    pub label: u32,
}

impl Caller {
    fn new(number: u64, parts: CallerParts) -> Self {
        Self {
            number,
            tenant: parts.tenant,
            user: parts.user,
            claims: parts.claims,
            scopes: parts.scopes,
            label: parts.label,
            latest_life: AtomicU64::new(0),
            latest_asked: AtomicU64::new(0),
            wanted: AtomicU64::new(number),
        }
    }

    /// Whether some decision of this caller may still be good.
    pub fn has_live_decision(&self, revocations: &Revocations, now: MonoMillis) -> bool {
        now < self.latest_life.load(Ordering::Relaxed)
            && revocations.good(&self.scopes, self.latest_asked.load(Ordering::Relaxed))
    }

    fn stored(&self, fresh_until: MonoMillis, asked: Tick) {
        self.latest_life.fetch_max(fresh_until, Ordering::Relaxed);
        self.latest_asked.fetch_max(asked, Ordering::Relaxed);
    }
}

/// The two records of one question.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    /// Who asks ([`crate::key::Question::write_caller`]).
    pub caller: &'a [u8],
    /// What is asked ([`crate::key::Question::write_demand`]).
    pub demand: &'a [u8],
}

impl std::fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A caller's record holds its token.
        f.write_str("Records(…)")
    }
}

/// Why a decision left before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// Its room was needed.
    Capacity,
    /// Its life was over.
    Expired,
    /// A revocation made it void.
    Revoked,
    /// The auth module refused the same question.
    Refused,
}

impl Eviction {
    /// Every cause, for metrics that are there from the start.
    pub const ALL: [Self; 4] = [Self::Capacity, Self::Expired, Self::Revoked, Self::Refused];

    /// The cause as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Refused => "refused",
        }
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Decisions, void and expired ones that were not swept yet included.
    pub decisions: u64,
    /// Callers.
    pub callers: u64,
    /// Demands.
    pub demands: u64,
    /// Bytes of all of them: keys, values and tables.
    pub bytes: u64,
    /// The bound on those bytes.
    pub capacity: u64,
}

type Number = (u64, u64);

#[derive(Clone, Copy)]
struct Demand {
    number: u64,
    /// The number that was next when a decision for it was last about to be stored.
    wanted: u64,
}

/// The store.
pub struct Cache {
    callers: Store<Box<[u8]>, Arc<Caller>, CallerWeight, ahash::RandomState>,
    demands: Store<Box<[u8]>, Demand, DemandWeight, ahash::RandomState>,
    decisions: Store<Number, Arc<Decision>, DecisionWeight, ahash::RandomState, CountEvictions>,
    values: Store<SharedKey, Arc<Kept>, ValueWeight, ahash::RandomState>,
    /// Bytes of all shared values that anybody holds: decisions hold what the table has dropped.
    live_values: Arc<AtomicU64>,
    next: AtomicU64,
    /// The number that was next when the latest sweep began.
    settled: AtomicU64,
    evicted: Arc<AtomicU64>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// What a slot of the tables costs beside key and value: measured (`tests/allocations.rs`), not derived.
const SLOT: u64 = 76;
/// What an allocation costs beside its bytes.
const ALLOCATION: u64 = 16;
/// Reference counts of an `Arc`.
const COUNTS: u64 = 16;

impl Cache {
    /// A store bounded to `bytes`, all in all.
    pub fn new(bytes: u64) -> Self {
        let evicted = Arc::<AtomicU64>::default();
        // A decision is small, its caller is shared by all its demands: five eighths and a quarter; what is left goes
        // to the demands and the shared values, of which a platform has few.
        let (decisions, callers) = (bytes / 8 * 5, bytes / 4);
        let demands = bytes / 16;
        let values = bytes - decisions - callers - demands;
        Self {
            callers: store(
                callers,
                700,
                CallerWeight,
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            demands: store(
                demands,
                300,
                DemandWeight,
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            decisions: store(
                decisions,
                400,
                DecisionWeight,
                CountEvictions(evicted.clone()),
            ),
            values: store(
                values,
                200,
                ValueWeight,
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            live_values: Arc::default(),
            next: AtomicU64::new(1),
            settled: AtomicU64::new(0),
            evicted,
        }
    }

    /// The caller of this record, if a decision of it was ever stored.
    pub fn caller(&self, record: &[u8]) -> Option<Arc<Caller>> {
        self.callers.get(record)
    }

    /// What is stored for this question, good or not.
    pub fn find(&self, records: Records<'_>) -> Option<(Arc<Caller>, Arc<Decision>)> {
        let caller = self.callers.get(records.caller)?;
        let demand = self.demands.get(records.demand)?;
        let decision = self.decisions.get(&(caller.number, demand.number))?;
        Some((caller, decision))
    }

    /// Stores a decision; `caller` is called if the caller is new, or its rows were lost.
    pub fn store(
        &self,
        records: Records<'_>,
        decision: Decision,
        caller: impl FnOnce() -> CallerParts,
    ) {
        let caller = self.intern_caller(records.caller, caller);
        let demand = self.intern_demand(records.demand);
        caller.stored(decision.fresh_until(), decision.asked());
        let (number, decision) = ((caller.number, demand), Arc::new(decision));
        let stored = &mut Some((number, decision.clone()));
        self.decisions
            .insert_with_lifecycle(number, decision, stored);
    }

    /// Removes what is stored for this question. Tells whether there was something.
    pub fn remove(&self, records: Records<'_>) -> bool {
        let number = self
            .callers
            .get(records.caller)
            .zip(self.demands.get(records.demand));
        number.is_some_and(|(caller, demand)| {
            self.decisions
                .remove(&(caller.number, demand.number))
                .is_some()
        })
    }

    /// Looks at every decision with its caller, if that is still known, without keeping hits waiting.
    pub fn for_each(&self, mut look: impl FnMut(Option<&Caller>, &Decision)) {
        let callers = self.callers_by_number();
        for ((caller, _), decision) in self.decisions.iter() {
            look(callers.get(&caller).map(AsRef::as_ref), &decision);
        }
    }

    /// Removes every decision for which `judge` names a cause, and tells how many were removed per cause; those whose
    /// caller went for want of room are among [`Self::capacity_evictions`]. Then the callers, demands and shared values
    /// that no decision needs. Takes each lock for one entry at a time.
    pub fn sweep(
        &self,
        judge: impl Fn(&Caller, &Decision) -> Option<Eviction>,
    ) -> HashMap<Eviction, u64> {
        // Callers and decisions are listed one after the other, while more are stored. A caller whose number is older than
        // the last sweep has been in its table for long, so if it is not listed now, it was evicted.
        let settled = self
            .settled
            .swap(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
        let callers = self.callers_by_number();
        let (mut removed, mut used) = (HashMap::new(), Used::default());
        for (number, decision) in self.decisions.iter() {
            let cause = match callers.get(&number.0) {
                Some(caller) => judge(caller, &decision),
                None => (number.0 < settled).then_some(Eviction::Capacity),
            };
            let Some(cause) = cause else {
                used.add(number);
                continue;
            };
            let same = |other: &Arc<Decision>| Arc::ptr_eq(other, &decision);
            if self.decisions.remove_if(&number, same).is_none() {
                used.add(number);
                continue;
            }
            if cause == Eviction::Capacity {
                // One counter for all that went for want of room, whether it was a decision or its caller.
                self.evicted.fetch_add(1, Ordering::Relaxed);
            } else {
                *removed.entry(cause).or_default() += 1;
            }
        }
        drop(callers);
        self.sweep_unused(&used, settled);
        removed
    }

    /// Whoever was wanted since the number was `settled` stays: the decision may be on its way into its table, or into a
    /// part of it that was looked at already. That is asked again under the lock under which it is told.
    fn sweep_unused(&self, used: &Used, settled: u64) {
        for (record, caller) in self.callers.iter() {
            let unwanted = |caller: &Arc<Caller>| caller.wanted.load(Ordering::Relaxed) < settled;
            if unwanted(&caller) && !used.callers.contains(&caller.number) {
                self.callers.remove_if(&record, |other| {
                    other.number == caller.number && unwanted(other)
                });
            }
        }
        for (record, demand) in self.demands.iter() {
            if demand.wanted < settled && !used.demands.contains(&demand.number) {
                self.demands.remove_if(&record, |other| {
                    other.number == demand.number && other.wanted < settled
                });
            }
        }
        for (key, value) in self.values.iter() {
            drop(value);
            // The table's key and value and the key at hand: no decision holds it, and under the lock none gets it.
            self.values
                .remove_if(key.0.as_bytes(), |value| Arc::strong_count(value) == 3);
        }
    }

    /// How much there is.
    pub fn size(&self) -> Size {
        Size {
            decisions: self.decisions.len() as u64,
            callers: self.callers.len() as u64,
            demands: self.demands.len() as u64,
            bytes: self.decisions.weight()
                + self.callers.weight()
                + self.demands.weight()
                + self.values.weight(),
            capacity: self.decisions.capacity()
                + self.callers.capacity()
                + self.demands.capacity()
                + self.values.capacity(),
        }
    }

    /// How many decisions were evicted for want of room so far.
    pub fn capacity_evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn callers_by_number(&self) -> HashMap<u64, Arc<Caller>, ahash::RandomState> {
        self.callers
            .iter()
            .map(|(_, caller)| (caller.number, caller))
            .collect()
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The caller of the record, made if it is new or its rows were lost. Of two decisions that are its first, both find
    /// the same one.
    fn intern_caller(&self, record: &[u8], parts: impl FnOnce() -> CallerParts) -> Arc<Caller> {
        let wanted = self.next.load(Ordering::Relaxed);
        let known = self.callers.entry(&Box::from(record), None, |_, caller| {
            if caller.scopes.dead() {
                return EntryAction::ReplaceWithGuard;
            }
            caller.wanted.fetch_max(wanted, Ordering::Relaxed);
            EntryAction::Retain(caller.clone())
        });
        match known {
            EntryResult::Retained(caller) => caller,
            EntryResult::Vacant(place) | EntryResult::Replaced(place, _) => {
                let caller = Arc::new(Caller::new(self.number(), parts()));
                // Refused only where another thread has put one there meanwhile: then this one is never found again.
                let _ = place.insert(caller.clone());
                caller
            }
            EntryResult::Removed(..) | EntryResult::Timeout => {
                unreachable!("nothing is removed and no timeout given")
            }
        }
    }

    fn intern_demand(&self, record: &[u8]) -> u64 {
        let wanted = self.next.load(Ordering::Relaxed);
        let known = self.demands.entry(&Box::from(record), None, |_, demand| {
            demand.wanted = demand.wanted.max(wanted);
            EntryAction::Retain(demand.number)
        });
        match known {
            EntryResult::Retained(number) => number,
            EntryResult::Vacant(place) | EntryResult::Replaced(place, _) => {
                let number = self.number();
                // As with callers.
                let _ = place.insert(Demand {
                    number,
                    wanted: number,
                });
                number
            }
            EntryResult::Removed(..) | EntryResult::Timeout => {
                unreachable!("nothing is removed and no timeout given")
            }
        }
    }
}

/// The callers and demands of decisions that stay.
#[derive(Default)]
struct Used {
    callers: HashSet<u64, ahash::RandomState>,
    demands: HashSet<u64, ahash::RandomState>,
}

impl Used {
    fn add(&mut self, (caller, demand): Number) {
        self.callers.insert(caller);
        self.demands.insert(demand);
    }
}

impl Share for Cache {
    /// While all values fit into their share of the room they are free; beyond it every decision pays for its own, so
    /// that what decisions hold after the table dropped it stays within the bound.
    fn share(&self, value: &HeaderValue) -> (Arc<Kept>, u32) {
        let kept = self.values.get(value.as_bytes()).unwrap_or_else(|| {
            let kept = Arc::new(Kept::new(value, &self.live_values));
            self.values.insert(SharedKey(kept.clone()), kept.clone());
            kept
        });
        let free = self.live_values.load(Ordering::Relaxed) <= self.values.capacity();
        let bytes = if free { 0 } else { kept.cost() };
        (kept, u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

fn store<K, V, W, L>(
    bytes: u64,
    usual: u64,
    weighter: W,
    lifecycle: L,
) -> Store<K, V, W, ahash::RandomState, L>
where
    K: Eq + Hash,
    V: Clone,
    W: Weighter<K, V> + Clone,
    L: Lifecycle<K, V> + Clone,
{
    let items = usize::try_from((bytes / usual).max(16)).unwrap_or(usize::MAX);
    let options = OptionsBuilder::new()
        .estimated_items_capacity(items)
        .weight_capacity(bytes)
        .build()
        .expect("both capacities are given");
    Store::with_options(options, weighter, ahash::RandomState::new(), lifecycle)
}

/// A shared value as its own key: its bytes.
#[derive(Clone)]
struct SharedKey(Arc<Kept>);

impl Hash for SharedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

impl PartialEq for SharedKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl Eq for SharedKey {}

impl Borrow<[u8]> for SharedKey {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[derive(Clone)]
struct CountEvictions(Arc<AtomicU64>);

impl Lifecycle<Number, Arc<Decision>> for CountEvictions {
    /// What is being stored. The decision whose place it takes is reported here as well, and did not go for want of room;
    /// so is the new one itself if it is too large to be taken, and that did.
    type RequestState = Option<(Number, Arc<Decision>)>;

    fn on_evict(&self, stored: &mut Self::RequestState, number: Number, evicted: Arc<Decision>) {
        let replaced = stored
            .as_ref()
            .is_some_and(|(place, decision)| *place == number && !Arc::ptr_eq(decision, &evicted));
        if !replaced {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Clone)]
struct CallerWeight;
impl Weighter<Box<[u8]>, Arc<Caller>> for CallerWeight {
    fn weight(&self, record: &Box<[u8]>, caller: &Arc<Caller>) -> u64 {
        let texts = caller.tenant.len()
            + caller.user.as_ref().map_or(0, |user| user.len())
            + caller.claims.user.as_ref().map_or(0, String::len);
        let fixed = size_of::<Caller>() + size_of::<Box<[u8]>>() + size_of::<Arc<Caller>>();
        SLOT + COUNTS + 5 * ALLOCATION + (record.len() + texts + fixed) as u64
    }
}

#[derive(Clone)]
struct DemandWeight;
impl Weighter<Box<[u8]>, Demand> for DemandWeight {
    fn weight(&self, record: &Box<[u8]>, _: &Demand) -> u64 {
        SLOT + ALLOCATION + (record.len() + size_of::<Box<[u8]>>() + size_of::<Demand>()) as u64
    }
}

#[derive(Clone)]
struct DecisionWeight;
impl Weighter<Number, Arc<Decision>> for DecisionWeight {
    fn weight(&self, _: &Number, decision: &Arc<Decision>) -> u64 {
        let heap = decision.heap_bytes();
        let allocations = if heap == 0 { 1 } else { 2 };
        let fixed = size_of::<Decision>() + size_of::<Number>() + size_of::<Arc<Decision>>();
        SLOT + COUNTS + allocations * ALLOCATION + (heap + fixed) as u64
    }
}

#[derive(Clone)]
struct ValueWeight;
impl Weighter<SharedKey, Arc<Kept>> for ValueWeight {
    fn weight(&self, value: &SharedKey, _: &Arc<Kept>) -> u64 {
        SLOT + COUNTS + 3 * ALLOCATION + (value.0.len() + 2 * size_of::<HeaderValue>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::decision::{Answer, LifePolicy, prove};
    use crate::headers::{MODULE_TOKENS, PERMISSIONS, TOKEN};
    use crate::invalidation::hold::{Memory, UpstreamRefresh};
    use crate::invalidation::{Asked, Subject};
    use crate::key::Question;
    use crate::token::Kind;
    use std::time::Duration;

    const POLICY: LifePolicy = LifePolicy {
        ttl: Duration::from_mins(1),
        jitter: 0.0,
        skew: Duration::ZERO,
        refresh_ahead: 1.0,
        stale_if_error: Duration::ZERO,
    };
    const CLAIMS: Claims = Claims {
        user: None,
        exp: None,
        kind: Kind::Ordinary,
    };

    /// Stores the answer with these permissions as the caller's decision number `demand`.
    fn store_one(cache: &Cache, scopes: &Scopes, demand: usize, permissions: &str) {
        store_as(cache, b"caller", demand, permissions, || scopes.clone());
    }

    fn store_as(
        cache: &Cache,
        caller: &[u8],
        demand: usize,
        permissions: &str,
        scopes: impl FnOnce() -> Scopes,
    ) {
        let question = Question {
            token: Some(b"h.p.s"),
            module_permissions: Some(b"{}"),
            ..Question::default()
        };
        let headers = [
            (PERMISSIONS, permissions),
            (MODULE_TOKENS, r#"{"_":"h.p.s"}"#),
            (TOKEN, "h.p.s"),
        ];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()));
        let answer = Answer {
            status: http::StatusCode::ACCEPTED,
            headers: headers.into_iter().collect(),
            body: bytes::Bytes::new(),
        };
        let proven = prove(&question, Some(&CLAIMS), &answer).unwrap();
        let (asked, now) = (Asked { tick: 0, at: 0 }, Now { mono: 0, wall: 0 });
        let decision = Decision::keep(proven, &CLAIMS, asked, now, &POLICY, 0.0, cache).unwrap();
        let demand = demand.to_le_bytes();
        let records = Records {
            caller,
            demand: &demand,
        };
        cache.store(records, decision, || CallerParts {
            tenant: (*b"t").into(),
            user: None,
            claims: CLAIMS,
            scopes: scopes(),
            label: 0,
        });
    }

    fn finds(cache: &Cache, caller: &[u8], demand: usize) -> bool {
        let demand = demand.to_le_bytes();
        let records = Records {
            caller,
            demand: &demand,
        };
        cache.find(records).is_some()
    }

    fn scopes() -> Scopes {
        let memory = Memory {
            write: 0,
            user: 0,
            permission: 0,
            refresh: UpstreamRefresh::Off,
        };
        let subject = Subject {
            tenant: b"t",
            user: None,
        };
        Revocations::new(memory, 16).scopes(subject)
    }

    #[test]
    fn values_that_only_decisions_still_hold_stay_within_the_bound() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());

        for number in 0..2_000 {
            let permissions = format!(r#"["{number}{}"]"#, "p".repeat(4_000));
            store_one(&cache, &scopes, number, &permissions);
            // As a decision that is renewed: now its value is found in the table.
            store_one(&cache, &scopes, number, &permissions);
        }

        let live = cache.live_values.load(Ordering::Relaxed);
        assert!(cache.size().decisions > 50 && live > 100_000);
        assert!(live <= 1 << 20, "{live} bytes where 1 MiB may be held");
    }

    #[test]
    fn a_value_that_many_share_costs_them_nothing() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());
        let permissions = format!(r#"["{}"]"#, "p".repeat(4_000));

        for number in 0..500 {
            store_one(&cache, &scopes, number, &permissions);
        }

        assert_eq!(cache.size().decisions, 500);
        assert!(cache.live_values.load(Ordering::Relaxed) < 5_000);
    }

    #[test]
    fn a_replaced_decision_did_not_go_for_want_of_room() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());

        for _ in 0..5 {
            store_one(&cache, &scopes, 1, "[]");
        }

        assert_eq!(cache.size().decisions, 1);
        assert_eq!(cache.capacity_evictions(), 0);
    }

    #[test]
    fn what_a_full_table_drops_went_for_want_of_room() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());

        for number in 0..10_000 {
            store_one(&cache, &scopes, number, "[]");
        }

        let evicted = cache.capacity_evictions();
        assert_eq!(cache.size().decisions + evicted, 10_000);
        assert!(evicted > 5_000, "{evicted}");
    }

    #[test]
    fn a_decision_that_finds_no_room_at_all_went_for_want_of_it() {
        let (cache, scopes) = (Cache::new(4 << 10), scopes());
        store_one(&cache, &scopes, 1, "[]");

        // Too large for the shared values, so the decision pays for it, and is too large itself.
        let permissions = format!(r#"["{}"]"#, "p".repeat(4_000));
        store_one(&cache, &scopes, 1, &permissions);

        assert_eq!(cache.size().decisions, 0);
        assert_eq!(cache.capacity_evictions(), 1);
    }

    #[test]
    fn what_no_decision_needs_is_swept() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());
        for number in 0..100 {
            let permissions = format!(r#"["{number}"]"#);
            store_as(&cache, &[number], number.into(), &permissions, || {
                scopes.clone()
            });
        }
        let judge = |caller: &Caller, _: &Decision| {
            let (kept, _) = cache.find(Records {
                caller: &[7],
                demand: &7_usize.to_le_bytes(),
            })?;
            (caller.number != kept.number).then_some(Eviction::Expired)
        };

        let removed = cache.sweep(judge);
        assert_eq!(removed, HashMap::from([(Eviction::Expired, 99)]));
        let size = cache.size();
        assert_eq!(
            (size.callers, size.demands),
            (100, 100),
            "who came since the last sweep stays"
        );
        cache.sweep(judge);

        let size = cache.size();
        assert_eq!((size.callers, size.demands, size.decisions), (1, 1, 1));
        assert_eq!(cache.values.len(), 1);
        assert!(finds(&cache, &[7], 7));
        assert_eq!(cache.capacity_evictions(), 0);
    }

    /// The sweep looks at the tables one after the other: what comes while it does is not lost.
    #[test]
    fn what_is_stored_during_a_sweep_is_found_after_it() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());
        let store_all = |demand: usize| {
            for number in 0..50 {
                store_as(&cache, &[number], demand, "[]", || scopes.clone());
            }
        };
        store_all(1);
        cache.sweep(|_, _| None);
        let seen = std::cell::Cell::new(0);

        cache.sweep(|_, _| {
            seen.set(seen.get() + 1);
            if seen.get() == 50 {
                store_all(2);
            }
            (seen.get() <= 50).then_some(Eviction::Expired)
        });

        for number in 0..50 {
            assert!(finds(&cache, &[number], 2), "caller {number}");
        }
    }

    #[test]
    fn a_demand_that_is_wanted_again_during_a_sweep_stays() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());
        let store_all = |caller: &[u8]| {
            for demand in 0..50 {
                store_as(&cache, caller, demand, "[]", || scopes.clone());
            }
        };
        store_all(b"one");
        cache.sweep(|_, _| None);
        let seen = std::cell::Cell::new(0);

        cache.sweep(|_, _| {
            seen.set(seen.get() + 1);
            if seen.get() == 50 {
                store_all(b"two");
            }
            (seen.get() <= 50).then_some(Eviction::Expired)
        });

        for demand in 0..50 {
            assert!(finds(&cache, b"two", demand), "demand {demand}");
        }
    }

    #[test]
    fn two_first_decisions_of_a_caller_are_both_found() {
        let (cache, scopes) = (Cache::new(1 << 20), scopes());
        let (cache, scopes) = (&cache, &scopes);
        let (stored, other) = std::sync::mpsc::channel();

        std::thread::scope(|threads| {
            store_as(cache, b"caller", 1, "[]", || {
                threads.spawn(move || {
                    store_one(cache, scopes, 2, "[]");
                    let _ = stored.send(());
                });
                // It has to wait for this very caller; long enough that it would be done if it had not.
                let _ = other.recv_timeout(Duration::from_millis(200));
                scopes.clone()
            });
        });

        assert!(finds(cache, b"caller", 1) && finds(cache, b"caller", 2));
        assert_eq!(cache.size().callers, 1);
    }
}
