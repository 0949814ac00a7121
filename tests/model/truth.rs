//! What is true: who is active, who has which permission, what the permission sets hold, and since when not any more.

use crate::plan::Millis;

pub(crate) const TENANTS: usize = 2;
/// Users of a tenant; the first is the administrator, of whom nothing is ever taken.
pub(crate) const USERS: usize = 5;
/// Permissions; the last is the administrator's alone.
pub(crate) const PERMISSIONS: usize = 5;
pub(crate) const ADMINISTRATION: usize = PERMISSIONS - 1;
/// Permission sets, which users have, or modules in their tokens.
pub(crate) const SETS: usize = 2;
/// What can be assigned to a user: permissions, then sets.
pub(crate) const NAMES: [&str; PERMISSIONS + SETS] = [
    "loans.get",
    "loans.post",
    "users.get",
    "notes.get",
    "administration",
    "set.desk",
    "set.notes",
];

/// Some of the permissions, by place.
pub(crate) type Mask = u32;

/// One thing that is true or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    True,
    Lost(Loss),
    /// Since the world's start.
    Never,
}

/// How a fact became untrue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// When the sidecar let the write's request through and which of the sidecar's processes that was; none if the
    /// request went another way.
    pub(crate) announced: Option<(Millis, u32)>,
    /// End of the write.
    pub(crate) ended: Millis,
}

impl Fact {
    pub(crate) fn holds(self) -> bool {
        self == Self::True
    }

    fn set(&mut self, value: bool, loss: Loss) {
        match (self.holds(), value) {
            (true, false) => *self = Self::Lost(loss),
            (false, true) => *self = Self::True,
            (true, true) | (false, false) => {}
        }
    }
}

/// A permission's being part of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) fact: Fact,
    /// When mod-permissions last told of it although it was lost.
    pub(crate) told_late: Option<Millis>,
}

/// Whether a user may do anything at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Active,
    Inactive,
    Deleted,
}

#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: String,
    pub(crate) active: Fact,
    deleted: bool,
    /// By place in [`NAMES`].
    pub(crate) assigned: [Fact; PERMISSIONS + SETS],
}

#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) users: Vec<User>,
    pub(crate) sets: [[Part; PERMISSIONS]; SETS],
}

/// One change of the truth.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Activity(usize, usize, Activity),
    /// Tenant, user, place in [`NAMES`].
    Assigned(usize, usize, usize, bool),
    /// Tenant, set, permission.
    Part(usize, usize, usize, bool),
    /// Restart of all mod-authtoken with another signing key.
    Key,
}

#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) key: u32,
    /// When each signing key but the last became worthless.
    pub(crate) keys_ended: Vec<Millis>,
}

impl Truth {
    pub(crate) fn new() -> Self {
        let tenant = |tenant: usize| Tenant {
            users: (0..USERS).map(|user| User::new(tenant, user)).collect(),
            sets: std::array::from_fn(|set| {
                std::array::from_fn(|permission| Part {
                    fact: if permission == set + 1 {
                        Fact::True
                    } else {
                        Fact::Never
                    },
                    told_late: None,
                })
            }),
        };
        Self {
            tenants: (0..TENANTS).map(tenant).collect(),
            key: 0,
            keys_ended: Vec::new(),
        }
    }

    pub(crate) fn user(&self, tenant: usize, user: usize) -> &User {
        &self.tenants[tenant].users[user]
    }

    pub(crate) fn user_by_id(&self, tenant: usize, id: &str) -> Option<usize> {
        self.tenants[tenant]
            .users
            .iter()
            .position(|user| user.id == id)
    }

    pub(crate) fn apply(&mut self, change: &Change, loss: Loss) {
        match *change {
            Change::Activity(tenant, user, activity) => {
                let user = &mut self.tenants[tenant].users[user];
                user.deleted = activity == Activity::Deleted;
                user.active.set(activity == Activity::Active, loss);
            }
            Change::Assigned(tenant, user, name, value) => {
                self.tenants[tenant].users[user].assigned[name].set(value, loss);
            }
            Change::Part(tenant, set, permission, value) => {
                let part = &mut self.tenants[tenant].sets[set][permission];
                if part.fact.holds() != value {
                    part.fact.set(value, loss);
                    part.told_late = None;
                }
            }
            Change::Key => {
                self.key += 1;
                self.keys_ended.push(loss.ended);
            }
        }
    }

    /// What mod-permissions' database says of a tenant's sets.
    pub(crate) fn sets(&self, tenant: usize) -> [Mask; SETS] {
        self.tenants[tenant].sets.map(|parts| {
            let held = |permission: &usize| parts[*permission].fact.holds();
            (0..PERMISSIONS)
                .filter(held)
                .map(|permission| 1 << permission)
                .sum()
        })
    }

    /// Notes that mod-permissions tells these sets now.
    pub(crate) fn told(&mut self, tenant: usize, sets: [Mask; SETS], now: Millis) {
        for (parts, told) in self.tenants[tenant].sets.iter_mut().zip(sets) {
            for (permission, part) in parts.iter_mut().enumerate() {
                if told & 1 << permission != 0 && !part.fact.holds() {
                    part.told_late = Some(now);
                }
            }
        }
    }
}

impl User {
    fn new(tenant: usize, user: usize) -> Self {
        let has = |name: usize| match name {
            ADMINISTRATION => user == 0,
            name if name < PERMISSIONS => name != user,
            _ => user != 0,
        };
        Self {
            id: format!("{user}0000000-0000-4000-8000-00000000000{tenant}"),
            active: Fact::True,
            deleted: false,
            assigned: std::array::from_fn(|name| if has(name) { Fact::True } else { Fact::Never }),
        }
    }

    pub(crate) fn activity(&self) -> Activity {
        match (self.active.holds(), self.deleted) {
            (true, _) => Activity::Active,
            (false, false) => Activity::Inactive,
            (false, true) => Activity::Deleted,
        }
    }

    /// The permissions that these sets make of what is assigned.
    pub(crate) fn expanded(&self, sets: [Mask; SETS]) -> Mask {
        let mut mask = 0;
        for (name, fact) in self.assigned.iter().enumerate() {
            match name.checked_sub(PERMISSIONS) {
                _ if !fact.holds() => {}
                None => mask |= 1 << name,
                Some(set) => mask |= sets[set],
            }
        }
        mask
    }
}
