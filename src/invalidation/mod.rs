//! What makes stored decisions void: one counter that ticks at every revocation, and for everything, each tenant and
//! each user the tick of its latest.
//!
//! A decision remembers the tick at which its question was asked and is good only while no scope of its caller has a
//! later one. So a revocation is a few stores, whatever the cache holds, and the request path compares three numbers.
//! What may not enter: a scan of the cache. The trap: the tick must be read *before* upstream is asked, and a scope's
//! row must get its tick before the counter shows it; the other way round a question asked just before the event
//! would look as if it were asked after it.
//!
//! Rows are found by hashes of their names, so that a name of eight kilobytes costs no more than another. Two names with
//! the same hash have one row and with it each other's revocations and holds: more is void, never less.

pub mod event;
pub mod hold;
mod pace;

use crate::clock::MonoMillis;
use event::Event;
use hold::{Cleared, Hold, Kind, Memory};
use pace::Pace;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tick of the revocation counter.
pub type Tick = u64;

/// When a question was asked, by the counter and by the clock. Take it before upstream is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The counter.
    pub tick: Tick,
    /// The monotonic clock.
    pub at: MonoMillis,
}

/// Whom a question concerns: a tenant and, if it has one, its user (lower case).
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The tenant's bytes, as in the header.
    pub tenant: &'a [u8],
    /// The effective user.
    pub user: Option<&'a str>,
}

/// What a revocation reaches.
#[derive(Clone, Copy, Debug)]
pub enum Reach<'a> {
    /// Everything.
    All,
    /// A tenant.
    Tenant(&'a [u8]),
    /// A user of a tenant.
    User(&'a [u8], &'a str),
}

impl Reach<'_> {
    /// The reach as a metric label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Reach::All => "all",
            Reach::Tenant(_) => "tenant",
            Reach::User(..) => "user",
        }
    }
}

/// Why an answer is delivered but not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// Its scope was revoked after it was asked.
    Revoked,
    /// It was asked during a hold of this kind.
    Held(Kind),
}

/// The rows of one caller. A row that was evicted is dead, and so is every caller that points at it.
#[derive(Clone, Debug)]
pub struct Scopes {
    tenant: Arc<Row>,
    user: Option<Arc<Row>>,
}

/// Leave to send the refresh header with one call.
#[derive(Debug)]
pub struct Refresh {
    sent: MonoMillis,
    row: Arc<Row>,
    kind: Kind,
}

#[derive(Debug, Default)]
struct Row {
    revoked: AtomicU64,
    dead: AtomicBool,
    /// The latest end of any hold: nearly always in the past, and then nobody takes the lock.
    held_until: AtomicU64,
    holds: Mutex<[Option<Hold>; 3]>,
}

/// The revocations of one process.
#[derive(Debug)]
pub struct Revocations {
    memory: Memory,
    most_users: usize,
    names: ahash::RandomState,
    tick: AtomicU64,
    all: Arc<Row>,
    tables: Mutex<Tables>,
    pace: Mutex<Pace>,
    flushed_all_at: Mutex<Option<MonoMillis>>,
}

#[derive(Debug, Default)]
struct Tables {
    tenants: HashMap<u64, Arc<Row>, ahash::RandomState>,
    users: HashMap<UserKey, Arc<Row>, ahash::RandomState>,
    /// By name: whose hash was flushed may not be kept from a flush of its own.
    flushed_tenants: HashMap<Box<[u8]>, MonoMillis, ahash::RandomState>,
}

/// The hashes of a tenant's and of a user's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct UserKey {
    tenant: u64,
    user: u64,
}

/// So many tenants have a row of their own.
const MOST_TENANTS: usize = 4_096;
/// A refresh header from outside, or a token that looks as if the signing key had changed, costs at most this often.
const TENANT_FLUSH_PAUSE: u64 = 10_000;
const ALL_FLUSH_PAUSE: u64 = 60_000;

impl Revocations {
    /// No revocation yet; rows for `most_users` users.
    pub fn new(memory: Memory, most_users: usize) -> Self {
        Self {
            memory,
            most_users: most_users.max(16),
            names: ahash::RandomState::new(),
            tick: AtomicU64::new(0),
            all: Arc::default(),
            tables: Mutex::default(),
            pace: Mutex::default(),
            flushed_all_at: Mutex::default(),
        }
    }

    /// The moment before upstream is asked.
    pub fn asked(&self, at: MonoMillis) -> Asked {
        Asked {
            tick: self.tick.load(Ordering::SeqCst),
            at,
        }
    }

    /// The rows of a subject, made if they are missing. For callers that are about to be stored, not for look-ups.
    pub fn scopes(&self, subject: Subject<'_>) -> Scopes {
        let mut tables = lock(&self.tables);
        Scopes {
            tenant: self.tenant_row(&mut tables, subject.tenant),
            user: subject
                .user
                .map(|user| self.user_row(&mut tables, subject.tenant, user)),
        }
    }

    /// Whether what was asked at `tick` for these rows is still true as far as this process knows.
    pub fn good(&self, scopes: &Scopes, tick: Tick) -> bool {
        scopes.rows(&self.all).all(|row| row.good(tick))
    }

    /// The tick of the latest revocation that reaches the subject. Makes no rows.
    pub fn latest(&self, subject: Subject<'_>) -> Tick {
        let tables = lock(&self.tables);
        let rows = self.find(&tables, subject);
        [Some(&self.all), rows.0, rows.1]
            .into_iter()
            .flatten()
            .map(|row| row.revoked.load(Ordering::SeqCst))
            .max()
            .unwrap_or_default()
    }

    /// Whether a hold of the subject runs at `now`. Makes no rows.
    pub fn held(&self, subject: Subject<'_>, now: MonoMillis) -> Option<Kind> {
        let rows = {
            let tables = lock(&self.tables);
            let rows = self.find(&tables, subject);
            [Some(self.all.clone()), rows.0.cloned(), rows.1.cloned()]
        };
        rows.into_iter()
            .flatten()
            .find_map(|row| self.row_held(&row, now))
    }

    /// Whether an answer asked then may be kept for these rows.
    ///
    /// # Errors
    /// [`NotNow`], if a revocation or a hold stands against it.
    pub fn storable(&self, scopes: &Scopes, asked: Asked) -> Result<(), NotNow> {
        if !self.good(scopes, asked.tick) {
            return Err(NotNow::Revoked);
        }
        match scopes
            .rows(&self.all)
            .find_map(|row| self.row_held(row, asked.at))
        {
            Some(kind) => Err(NotNow::Held(kind)),
            None => Ok(()),
        }
    }

    /// Makes everything void that was asked before now for `reach`. When this returns, no request finds it any more.
    pub fn revoke(&self, reach: Reach<'_>) {
        self.revoke_and_hold(reach, None, 0);
    }

    /// As [`Self::revoke`], and begins the event's hold.
    pub fn announce(&self, event: Event, reach: Reach<'_>, now: MonoMillis) {
        self.revoke_and_hold(reach, hold_of(event), now);
    }

    /// A refresh header from outside was answered 202: its user is void at once, its tenant at most every ten
    /// seconds. Tells how far it reached, if anywhere.
    pub fn refreshed_outside<'a>(
        &self,
        subject: Subject<'a>,
        now: MonoMillis,
    ) -> Option<Reach<'a>> {
        let tenant_too = {
            let mut tables = lock(&self.tables);
            let flushed = &mut tables.flushed_tenants;
            let due = flushed
                .get(subject.tenant)
                .is_none_or(|at| now >= at + TENANT_FLUSH_PAUSE);
            if due {
                flushed.retain(|_, at| now < *at + TENANT_FLUSH_PAUSE);
                flushed.insert(subject.tenant.into(), now);
            }
            due
        };
        let reach = match subject.user {
            _ if tenant_too => Reach::Tenant(subject.tenant),
            Some(user) => Reach::User(subject.tenant, user),
            None => return None,
        };
        self.revoke(reach);
        Some(reach)
    }

    /// The signing key seems to have changed: drops everything, at most once a minute. Tells whether it did.
    pub fn signing_key_changed(&self, now: MonoMillis) -> bool {
        let mut flushed = lock(&self.flushed_all_at);
        if flushed.is_some_and(|at| now < at + ALL_FLUSH_PAUSE) {
            return false;
        }
        *flushed = Some(now);
        self.revoke(Reach::All);
        true
    }

    /// Whether a call for this subject should carry the refresh header, and may. `Err` where the pace of the whole
    /// process forbids what the hold wants.
    ///
    /// # Errors
    /// [`Suppressed`], to be counted.
    pub fn refresh(
        &self,
        subject: Subject<'_>,
        now: MonoMillis,
    ) -> Result<Option<Refresh>, Suppressed> {
        let rows = {
            let tables = lock(&self.tables);
            let rows = self.find(&tables, subject);
            [rows.0.cloned(), rows.1.cloned()]
        };
        let mut pace = lock(&self.pace);
        let cleared = pace.cleared;
        let wanting = rows
            .into_iter()
            .flatten()
            .filter(|row| now < row.held_until.load(Ordering::SeqCst))
            .flat_map(|row| Kind::ALL.map(|kind| (row.clone(), kind)))
            .filter_map(|(row, kind)| {
                let hold = lock(&row.holds)[slot(kind)]?;
                let wants = hold.wants_refresh(kind, now, &self.memory, cleared);
                wants.then_some((hold.tick, row, kind))
            })
            .min_by_key(|(tick, ..)| *tick);
        let Some((tick, row, kind)) = wanting else {
            return Ok(None);
        };
        if !pace.admit(tick, now) {
            return Err(Suppressed);
        }
        if let Some(hold) = &mut lock(&row.holds)[slot(kind)] {
            hold.sent(now);
        }
        Ok(Some(Refresh {
            sent: now,
            row,
            kind,
        }))
    }

    /// A call with the refresh header was answered 202.
    pub fn refreshed(&self, refresh: &Refresh, now: MonoMillis) {
        let cleared = Cleared {
            sent: refresh.sent,
            answered: now,
        };
        {
            let mut pace = lock(&self.pace);
            // A slow answer to an earlier call must not take back what a later one has shown.
            if pace
                .cleared
                .is_none_or(|latest| latest.sent <= cleared.sent)
            {
                pace.cleared = Some(cleared);
            }
        }
        if let Some(hold) = &mut lock(&refresh.row.holds)[slot(refresh.kind)] {
            hold.refreshed(refresh.kind, cleared, &self.memory);
        }
    }

    fn revoke_and_hold(&self, reach: Reach<'_>, kind: Option<Kind>, now: MonoMillis) {
        // One lock orders all revocations: the row has its tick before the counter shows it.
        let mut tables = lock(&self.tables);
        let row = match reach {
            Reach::All => self.all.clone(),
            Reach::Tenant(tenant) => self.tenant_row(&mut tables, tenant),
            Reach::User(tenant, user) => self.user_row(&mut tables, tenant, user),
        };
        let tick = self.tick.load(Ordering::SeqCst) + 1;
        row.revoked.fetch_max(tick, Ordering::SeqCst);
        if let Some(kind) = kind {
            row.hold(kind, tick, now, &self.memory);
        }
        self.tick.store(tick, Ordering::SeqCst);
    }

    fn row_held(&self, row: &Row, at: MonoMillis) -> Option<Kind> {
        if at >= row.held_until.load(Ordering::SeqCst) {
            return None;
        }
        let cleared = lock(&self.pace).cleared;
        let holds = *lock(&row.holds);
        Kind::ALL.into_iter().find(|&kind| {
            holds[slot(kind)].is_some_and(|hold| hold.covers(kind, at, &self.memory, cleared))
        })
    }

    fn find<'t>(
        &self,
        tables: &'t Tables,
        subject: Subject<'_>,
    ) -> (Option<&'t Arc<Row>>, Option<&'t Arc<Row>>) {
        let user = subject.user.map(|user| self.user_key(subject.tenant, user));
        (
            tables.tenants.get(&self.tenant_key(subject.tenant)),
            user.and_then(|user| tables.users.get(&user)),
        )
    }

    fn tenant_key(&self, tenant: &[u8]) -> u64 {
        self.names.hash_one(tenant)
    }

    fn user_key(&self, tenant: &[u8], user: &str) -> UserKey {
        UserKey {
            tenant: self.tenant_key(tenant),
            user: self.names.hash_one(user),
        }
    }

    fn tenant_row(&self, tables: &mut Tables, tenant: &[u8]) -> Arc<Row> {
        let key = self.tenant_key(tenant);
        if let Some(row) = tables.tenants.get(&key) {
            return row.clone();
        }
        if tables.tenants.len() >= MOST_TENANTS {
            evict(&mut tables.tenants, |_| self.all.clone());
        }
        let row = Arc::<Row>::default();
        tables.tenants.insert(key, row.clone());
        row
    }

    fn user_row(&self, tables: &mut Tables, tenant: &[u8], user: &str) -> Arc<Row> {
        let key = self.user_key(tenant, user);
        if let Some(row) = tables.users.get(&key) {
            return row.clone();
        }
        // Made first, so that a user's row that is lost always finds its tenant's to widen to, or everything's.
        self.tenant_row(tables, tenant);
        if tables.users.len() >= self.most_users {
            let Tables { tenants, users, .. } = &mut *tables;
            evict(users, |key| {
                tenants.get(&key.tenant).unwrap_or(&self.all).clone()
            });
        }
        let row = Arc::<Row>::default();
        tables.users.insert(key, row.clone());
        row
    }
}

/// The hold wanted a refresh, the process may not send one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no refresh may be sent now")]
pub struct Suppressed;

/// Makes room for a quarter: first by rows that no caller points at, then by any. What a lost row knew moves to the wider
/// scope, so a decision can only become void, never good again.
fn evict<K: std::hash::Hash + Eq, S: BuildHasher>(
    rows: &mut HashMap<K, Arc<Row>, S>,
    wider: impl Fn(&K) -> Arc<Row>,
) {
    let mut surplus = rows.len() / 4;
    for unused_only in [true, false] {
        rows.retain(|key, row| {
            if surplus == 0 || (unused_only && Arc::strong_count(row) > 1) {
                return true;
            }
            surplus -= 1;
            row.give_up(&wider(key));
            false
        });
    }
}

impl Scopes {
    /// Whether one of the rows was evicted, so that who points at them must be made anew.
    pub fn dead(&self) -> bool {
        [Some(&self.tenant), self.user.as_ref()]
            .into_iter()
            .flatten()
            .any(|row| row.dead.load(Ordering::SeqCst))
    }

    fn rows<'a>(&'a self, all: &'a Arc<Row>) -> impl Iterator<Item = &'a Row> {
        [Some(&self.tenant), self.user.as_ref(), Some(all)]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
    }
}

impl Row {
    fn good(&self, tick: Tick) -> bool {
        self.revoked.load(Ordering::SeqCst) <= tick && !self.dead.load(Ordering::SeqCst)
    }

    fn hold(&self, kind: Kind, tick: Tick, now: MonoMillis, memory: &Memory) {
        let mut holds = lock(&self.holds);
        let old = holds[slot(kind)];
        let hold = Hold::begin(kind, tick, now, memory, old);
        holds[slot(kind)] = Some(hold);
        self.held_until.fetch_max(hold.until(), Ordering::SeqCst);
    }

    fn give_up(&self, wider: &Self) {
        // Wider first: between the two stores a reader sees the revocation twice, never not at all.
        wider
            .revoked
            .fetch_max(self.revoked.load(Ordering::SeqCst), Ordering::SeqCst);
        let mine = *lock(&self.holds);
        let mut theirs = lock(&wider.holds);
        for (mine, theirs) in mine.into_iter().zip(theirs.iter_mut()) {
            if let Some(hold) = mine {
                *theirs = Some(hold.widen(*theirs));
            }
        }
        wider
            .held_until
            .fetch_max(self.held_until.load(Ordering::SeqCst), Ordering::SeqCst);
        self.dead.store(true, Ordering::SeqCst);
    }
}

fn slot(kind: Kind) -> usize {
    match kind {
        Kind::User => 0,
        Kind::Permission => 1,
        Kind::Set => 2,
    }
}

/// Which memory below an event's write outlives (design, table of section 3).
fn hold_of(event: Event) -> Option<Kind> {
    match event {
        Event::UserChange | Event::UsersDelete => Some(Kind::User),
        Event::PermissionRevoke | Event::PermissionUserChange => Some(Kind::Permission),
        Event::PermissionSetChange => Some(Kind::Set),
        Event::PermissionGrant
        | Event::UserTenantsChange
        | Event::TenantInit
        | Event::Logout
        | Event::RefreshHeader
        | Event::SigningKey
        | Event::UserInactive => None,
    }
}

/// A poisoned lock means that some thread panicked between two stores of plain numbers: they are still numbers.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::hold::UpstreamRefresh;
    use super::*;
    use proptest::prelude::*;

    fn revocations(refresh: UpstreamRefresh, most_users: usize) -> Revocations {
        let memory = Memory {
            write: 5_000,
            user: 60_000,
            permission: 60_000,
            refresh,
        };
        Revocations::new(memory, most_users)
    }

    const U1: Subject<'static> = Subject {
        tenant: b"t1",
        user: Some("u1"),
    };
    const U2: Subject<'static> = Subject {
        tenant: b"t1",
        user: Some("u2"),
    };
    const U1_IN_T2: Subject<'static> = Subject {
        tenant: b"t2",
        user: Some("u1"),
    };
    const NOBODY: Subject<'static> = Subject {
        tenant: b"t1",
        user: None,
    };

    #[test]
    fn a_revocation_reaches_its_scope_and_nothing_else() {
        for (reach, good) in [
            (Reach::User(b"t1", "u1"), [false, true, true, true]),
            (Reach::Tenant(b"t1"), [false, false, true, false]),
            (Reach::All, [false; 4]),
        ] {
            let revocations = revocations(UpstreamRefresh::Many, 100);
            let scopes = [U1, U2, U1_IN_T2, NOBODY].map(|subject| revocations.scopes(subject));
            let asked = revocations.asked(0);

            revocations.revoke(reach);

            assert_eq!(
                scopes
                    .each_ref()
                    .map(|scopes| revocations.good(scopes, asked.tick)),
                good
            );
            let later = revocations.asked(0);
            assert!(
                scopes
                    .iter()
                    .all(|scopes| revocations.good(scopes, later.tick))
            );
        }
    }

    #[test]
    fn a_question_asked_before_the_event_is_void_even_if_its_row_is_made_after() {
        let revocations = revocations(UpstreamRefresh::Many, 100);
        let asked = revocations.asked(0);

        revocations.revoke(Reach::User(b"t1", "u1"));

        let scopes = revocations.scopes(U1);
        assert!(!revocations.good(&scopes, asked.tick));
        assert_eq!(revocations.latest(U1), 1);
        assert_eq!(revocations.latest(U2), 0);
    }

    #[test]
    fn losing_a_row_never_revives_a_decision() {
        let revocations = revocations(UpstreamRefresh::Many, 16);
        let asked = revocations.asked(0);
        let kept = revocations.scopes(U2);
        revocations.announce(Event::UserChange, Reach::User(b"t1", "u1"), 0);

        for n in 0..100 {
            revocations.revoke(Reach::User(b"t1", &format!("x{n}")));
        }

        let scopes = revocations.scopes(U1);
        assert!(!revocations.good(&scopes, asked.tick));
        assert_eq!(
            revocations.storable(&scopes, revocations.asked(1_000)),
            Err(NotNow::Held(Kind::User)),
            "the hold of the lost row is the tenant's now"
        );
        assert!(
            !revocations.good(&kept, asked.tick),
            "and so is its revocation"
        );
    }

    #[test]
    fn an_evicted_row_is_dead_for_the_callers_that_point_at_it() {
        let revocations = revocations(UpstreamRefresh::Many, 16);
        let held: Vec<Scopes> = (0..40)
            .map(|n| {
                revocations.scopes(Subject {
                    tenant: b"t1",
                    user: Some(&format!("u{n}")),
                })
            })
            .collect();

        let dead = held
            .iter()
            .filter(|scopes| !revocations.good(scopes, Tick::MAX))
            .count();

        assert!(dead >= 24, "{dead} of 40 rows were lost where 16 fit");
    }

    #[test]
    fn what_was_asked_during_a_hold_is_not_stored_and_what_is_asked_after_it_is() {
        let revocations = revocations(UpstreamRefresh::Many, 100);
        let scopes = revocations.scopes(U1);
        revocations.announce(Event::UserChange, Reach::User(b"t1", "u1"), 1_000);

        assert_eq!(
            revocations.storable(&scopes, revocations.asked(65_999)),
            Err(NotNow::Held(Kind::User))
        );
        assert_eq!(
            revocations.storable(&scopes, revocations.asked(66_000)),
            Ok(())
        );
        assert_eq!(
            revocations.storable(&revocations.scopes(U2), revocations.asked(1_001)),
            Ok(())
        );
    }

    #[test]
    fn holds_of_different_kinds_overlap_and_each_counts_from_its_latest_event() {
        let revocations = revocations(UpstreamRefresh::Many, 100);
        let scopes = revocations.scopes(U1);
        revocations.announce(Event::PermissionSetChange, Reach::Tenant(b"t1"), 0);
        revocations.announce(Event::UserChange, Reach::User(b"t1", "u1"), 50_000);

        let held = |at| revocations.storable(&scopes, revocations.asked(at));

        assert_eq!(held(94_999), Err(NotNow::Held(Kind::Set)));
        assert_eq!(held(95_000), Err(NotNow::Held(Kind::User)));
        assert_eq!(held(115_000), Ok(()));
    }

    #[test]
    fn a_grant_revokes_and_holds_nothing() {
        let revocations = revocations(UpstreamRefresh::Many, 100);
        let scopes = revocations.scopes(U1);
        let asked = revocations.asked(0);

        revocations.announce(Event::PermissionGrant, Reach::User(b"t1", "u1"), 0);

        assert!(!revocations.good(&scopes, asked.tick));
        assert_eq!(revocations.storable(&scopes, revocations.asked(1)), Ok(()));
    }

    #[test]
    fn with_one_auth_module_a_refresh_of_any_tenant_ends_the_holds_it_came_late_enough_for() {
        let revocations = revocations(UpstreamRefresh::One, 100);
        let (one, two) = (revocations.scopes(U1), revocations.scopes(U1_IN_T2));
        revocations.announce(Event::PermissionRevoke, Reach::User(b"t1", "u1"), 0);
        revocations.announce(Event::PermissionRevoke, Reach::User(b"t2", "u1"), 3_000);

        let refresh = revocations.refresh(U1, 5_000).unwrap().unwrap();
        revocations.refreshed(&refresh, 5_020);

        assert_eq!(revocations.storable(&one, revocations.asked(5_021)), Ok(()));
        assert_eq!(
            revocations.storable(&two, revocations.asked(5_021)),
            Err(NotNow::Held(Kind::Permission))
        );
    }

    #[test]
    fn refreshes_are_wanted_only_by_those_in_a_hold() {
        let revocations = revocations(UpstreamRefresh::Many, 100);
        revocations.announce(Event::PermissionRevoke, Reach::User(b"t1", "u1"), 0);

        assert!(revocations.refresh(U2, 10).unwrap().is_none());
        assert!(revocations.refresh(U1, 10).unwrap().is_some());
        assert!(
            revocations.refresh(U1, 20).unwrap().is_none(),
            "one a second"
        );
        assert!(revocations.refresh(U1, 1_010).unwrap().is_some());
    }

    #[test]
    fn many_holds_send_two_refreshes_a_second_between_them() {
        let revocations = revocations(UpstreamRefresh::Many, 1_000);
        let users: Vec<String> = (0..50).map(|n| format!("u{n}")).collect();
        let subjects: Vec<Subject<'_>> = users
            .iter()
            .map(|user| Subject {
                tenant: b"t1",
                user: Some(user),
            })
            .collect();
        for user in &users {
            revocations.announce(Event::PermissionRevoke, Reach::User(b"t1", user), 0);
        }

        let (mut sent, mut suppressed) = (0, 0);
        for now in (0..10_000).step_by(100) {
            for subject in &subjects {
                match revocations.refresh(*subject, now) {
                    Ok(Some(_)) => sent += 1,
                    Ok(None) => {}
                    Err(Suppressed) => suppressed += 1,
                }
            }
        }

        assert_eq!(sent, 20);
        assert!(suppressed > 0);
    }

    #[test]
    fn everything_is_dropped_for_a_new_signing_key_at_most_once_a_minute() {
        let revocations = revocations(UpstreamRefresh::Many, 100);

        assert!(revocations.signing_key_changed(0));
        assert!(!revocations.signing_key_changed(59_999));
        assert!(revocations.signing_key_changed(60_000));
    }

    #[test]
    fn a_refresh_header_from_outside_reaches_its_tenant_every_ten_seconds() {
        let revocations = revocations(UpstreamRefresh::Many, 100);
        let reaches = [0, 1, 9_999, 10_000].map(|now| {
            revocations
                .refreshed_outside(U1, now)
                .map(|reach| reach.as_str())
        });

        assert_eq!(reaches, ["tenant", "user", "user", "tenant"].map(Some));
        assert_eq!(
            revocations
                .refreshed_outside(U1_IN_T2, 10_000)
                .map(|reach| reach.as_str()),
            Some("tenant")
        );
    }

    proptest! {
        /// Whatever is evicted meanwhile: what was asked before a revocation of its scope is never good again.
        #[test]
        fn no_order_of_events_and_evictions_revives_what_was_asked_before(
            operations in prop::collection::vec((0..40u32, 0..3u32, any::<bool>()), 1..200),
        ) {
            let revocations = revocations(UpstreamRefresh::Many, 16);
            let mut asked: HashMap<u32, (Tick, bool, Option<Scopes>)> = HashMap::new();
            for (user, tenant, revoke) in operations {
                let tenants: [&[u8]; 3] = [b"t0", b"t1", b"t2"];
                let name = format!("u{user}");
                let key = user * 3 + tenant;
                let tenant = tenants[tenant as usize];
                if revoke {
                    revocations.revoke(Reach::User(tenant, &name));
                    if let Some(entry) = asked.get_mut(&key) {
                        entry.1 = true;
                    }
                } else {
                    let scopes = revocations.scopes(Subject { tenant, user: Some(&name) });
                    asked.insert(key, (revocations.asked(0).tick, false, Some(scopes)));
                }
                for (key, (tick, revoked, scopes)) in &asked {
                    if *revoked {
                        let subject_user = format!("u{}", key / 3);
                        let tenant = tenants[(key % 3) as usize];
                        let subject = Subject { tenant, user: Some(&subject_user) };
                        prop_assert!(revocations.latest(subject) > *tick);
                        prop_assert!(scopes.as_ref().is_none_or(|scopes| !revocations.good(scopes, *tick)));
                    }
                }
            }
        }
    }
}
