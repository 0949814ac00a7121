//! What mod-authtoken itself remembers between requests (its `UserService`, `ModulePermissionsSource`, `PermService`).
//!
//! No single-flight: two requests that miss at once both ask. Nothing here forgets because of a login or a logout.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// mod-authtoken empties its memory of users and consortia, and looks for unused `SYS#` sets, this often.
const SWEEP: Duration = Duration::from_hours(12);
/// A `SYS#` set is forgotten by the next sweep once nobody has used it for this long.
const UNUSED: Duration = Duration::from_hours(72);

/// Permission names, shared by those who read them.
pub type Names = Arc<[String]>;

/// How long things are remembered.
#[derive(Clone, Copy, Debug)]
pub struct Periods {
    /// Whether a user is active (`user.cache.seconds`).
    pub user: Duration,
    /// A user's permissions.
    pub permissions: Duration,
    /// Parts of a token's permissions that are not `SYS#` sets.
    pub sets: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            user: Duration::from_mins(1),
            permissions: Duration::from_mins(1),
            sets: Duration::from_mins(5),
        }
    }
}

/// By tenant, then by user or list: what is remembered, and since when.
type PerTenant<K, V> = HashMap<String, HashMap<K, (V, Duration)>>;

/// The memory itself. All ages are of the stand-in's clock, handed in as `now`.
#[derive(Debug, Default)]
pub struct Memory {
    periods: Periods,
    active: PerTenant<String, bool>,
    consortia: HashMap<String, bool>,
    permissions: PerTenant<String, Names>,
    sets: PerTenant<Vec<String>, Names>,
    system: HashMap<String, (Names, Duration)>,
    swept: Duration,
}

impl Memory {
    /// An empty memory.
    pub fn new(periods: Periods) -> Self {
        Self {
            periods,
            ..Self::default()
        }
    }

    /// What a restart does.
    pub fn forget_all(&mut self, now: Duration) {
        *self = Self::new(self.periods);
        self.swept = now;
    }

    /// What `Authtoken-Refresh-Cache: true` does, for all tenants. The active flags and `SYS#` sets stay.
    pub fn forget_permissions(&mut self) {
        self.permissions.clear();
        self.sets.clear();
    }

    /// Whether the user is active, if that is known. A user record without the flag counts as inactive.
    pub fn active(&mut self, tenant: &str, user: &str, now: Duration) -> Option<bool> {
        self.sweep(now);
        let (active, since) = self.active.get(tenant)?.get(user)?;
        (now.saturating_sub(*since) <= self.periods.user).then_some(*active)
    }

    /// Remembers an active flag.
    pub fn set_active(&mut self, tenant: &str, user: &str, active: bool, now: Duration) {
        let users = self.active.entry(tenant.to_owned()).or_default();
        users.insert(user.to_owned(), (active, now));
    }

    /// Whether the tenant is in a consortium, if that is known: true and false alike, until the next sweep.
    pub fn consortium(&mut self, tenant: &str, now: Duration) -> Option<bool> {
        self.sweep(now);
        self.consortia.get(tenant).copied()
    }

    /// Remembers whether a tenant is in a consortium.
    pub fn set_consortium(&mut self, tenant: &str, member: bool) {
        self.consortia.insert(tenant.to_owned(), member);
    }

    /// A user's permissions, if they are known.
    pub fn permissions(&self, tenant: &str, user: &str, now: Duration) -> Option<Names> {
        let (names, since) = self.permissions.get(tenant)?.get(user)?;
        (now.saturating_sub(*since) < self.periods.permissions).then(|| Arc::clone(names))
    }

    /// Remembers a user's permissions.
    pub fn set_permissions(&mut self, tenant: &str, user: &str, names: Names, now: Duration) {
        let users = self.permissions.entry(tenant.to_owned()).or_default();
        users.insert(user.to_owned(), (names, now));
    }

    /// A token's permissions with their parts, if they are known.
    pub fn sets(&self, tenant: &str, list: &[String], now: Duration) -> Option<Names> {
        let (names, since) = self.sets.get(tenant)?.get(list)?;
        (now.saturating_sub(*since) < self.periods.sets).then(|| Arc::clone(names))
    }

    /// Remembers a token's permissions with their parts.
    pub fn set_sets(&mut self, tenant: &str, list: &[String], names: Names, now: Duration) {
        let lists = self.sets.entry(tenant.to_owned()).or_default();
        lists.insert(list.to_vec(), (names, now));
    }

    /// The parts of a `SYS#` set, if they are known and there are some. By name alone: tenants share them.
    pub fn system(&mut self, name: &str, now: Duration) -> Option<Names> {
        self.sweep(now);
        let (parts, used) = self.system.get_mut(name)?;
        if parts.is_empty() {
            return None;
        }
        *used = now;
        Some(Arc::clone(parts))
    }

    /// Remembers the parts of a `SYS#` set.
    pub fn set_system(&mut self, name: &str, parts: Names, now: Duration) {
        self.system.insert(name.to_owned(), (parts, now));
    }

    fn sweep(&mut self, now: Duration) {
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.active.clear();
        self.consortia.clear();
        self.system
            .retain(|_, (_, used)| now.saturating_sub(*used) <= UNUSED);
    }
}
