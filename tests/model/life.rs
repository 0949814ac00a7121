//! What happens in a world, step by step: requests above all, and everything that changes what their answer should be.

use crate::module::locked;
use crate::plan::{Clocks, Millis};
use crate::requests::{ADMINISTER, DEMANDS, Demand, Draft, Memory, Purpose, Reach};
use crate::token::{Kind, Token, WALL_START};
use crate::truth::{ADMINISTRATION, Activity, Change, NAMES, PERMISSIONS, SETS, TENANTS, USERS};
use crate::world::World;
use http::Method;

/// So many tokens of a user are still in use.
const TOKENS: usize = 4;

/// Who has which tokens.
#[derive(Debug, Default)]
pub(crate) struct Purses {
    users: [[Vec<usize>; USERS]; TENANTS],
    dummies: [Vec<usize>; TENANTS],
}

impl Purses {
    pub(crate) fn fill(world: &mut World) -> Self {
        let mut purses = Self::default();
        for tenant in 0..TENANTS {
            for user in 0..USERS {
                purses.log_in(world, tenant, user);
                purses.log_in(world, tenant, user);
            }
            for given in [0b0001, 0b0110] {
                let token = mint(world, tenant, 0, Kind::Dummy { given });
                purses.dummies[tenant].push(token);
            }
        }
        purses
    }

    /// One more token, of any kind, for a user.
    fn log_in(&mut self, world: &mut World, tenant: usize, user: usize) {
        let expires = (WALL_START + world.now()) / 1_000 + world.dice.pick(&[20, 90, 600, 3_600]);
        let kind = match world.dice.below(8) {
            0 => Kind::Legacy,
            1 => Kind::Module {
                set: None,
                names_user: true,
            },
            2 => Kind::Module {
                set: Some(world.dice.index(SETS)),
                names_user: true,
            },
            3 => Kind::Module {
                set: None,
                names_user: false,
            },
            _ => Kind::Access { expires },
        };
        let token = mint(world, tenant, user, kind);
        world.latest_tokens[tenant][user] = token;
        let purse = &mut self.users[tenant][user];
        purse.push(token);
        if purse.len() > TOKENS {
            purse.remove(world.dice.index(TOKENS - 1));
        }
    }

    /// One of a user's tokens, mostly the latest. Who finds it dead mostly logs in again.
    fn token(&mut self, world: &mut World, tenant: usize, user: usize) -> usize {
        let purse = &self.users[tenant][user];
        let token = if world.dice.per_mille(800) {
            purse[purse.len() - 1]
        } else {
            world.dice.pick(purse)
        };
        if locked(&world.platform).is_dead(token) && world.dice.per_mille(600) {
            self.log_in(world, tenant, user);
            return self.token(world, tenant, user);
        }
        token
    }
}

fn mint(world: &World, tenant: usize, user: usize, kind: Kind) -> usize {
    let mut platform = locked(&world.platform);
    let number = platform.tokens.len();
    let token = Token::mint(&platform.truth, tenant, user, kind, number);
    platform.add_token(token)
}

impl World {
    /// Lives for so many steps.
    pub(crate) async fn live(&mut self, steps: u64) {
        let mut purses = Purses::fill(self);
        for step in 0..steps {
            self.counts.steps += 1;
            let time = self.some_time();
            if time > 0 {
                self.pass(time).await;
            }
            self.one_thing(&mut purses).await;
            if self.dice.per_mille(800) {
                self.settle().await;
            }
            if step % 256 == 0 {
                self.filter.metrics().upkeep();
            }
        }
        self.end().await;
    }

    fn some_time(&mut self) -> Millis {
        let tempo = self.plan.tempo;
        match self.dice.below(1_000) {
            0 => self.dice.below(40_000),
            1..=3 => self.dice.below(self.plan.ttl),
            4..=200 => 0,
            _ => self.dice.below(5 * tempo / 2),
        }
    }

    async fn one_thing(&mut self, purses: &mut Purses) {
        let (tempo, between) = (self.plan.tempo, self.plan.between_writes);
        if self.dice.below(between) < tempo {
            return self.announce(purses);
        }
        if self.dice.below(4 * between) < tempo {
            let (changes, ..) = self.some_change();
            self.note(|| format!("unseen by the sidecar: {changes:?}"));
            return self.write(&changes, false);
        }
        match self.dice.below(3_000) {
            0 if self.dice.per_mille(500) => self.change_key(),
            1 if self.dice.per_mille(500) => self.restart_sidecar(),
            2..=4 => self.restart_module(),
            5..=12 => self.clocks_go_wrong().await,
            13..=18 if self.plan.trouble => self.trouble_begins(),
            19..=28 => self.purge_something(),
            29..=33 => self.filter.sweep(),
            34..=48 if self.plan.crowd => self.storm(purses),
            50..=89 => {
                let (tenant, user) = self.somebody();
                purses.log_in(self, tenant, user);
                self.pass_through(purses, Method::POST, "/token/sign", Purpose::Read);
            }
            90..=99 => {
                self.pass_through(purses, Method::POST, "/token/invalidate", Purpose::Logout);
            }
            100..=114 => self.look_alike(purses),
            115..=159 => self.cancel_one(),
            160..=167 => {
                let purpose = Purpose::RefreshFromOutside;
                self.pass_through(purses, Method::GET, "/notes/1", purpose);
            }
            168..=700 => self.same_again(purses),
            _ => {
                let draft = self.read(purses);
                self.begin(draft);
            }
        }
    }

    /// Several of the same at once, or one that was asked before.
    fn same_again(&mut self, purses: &mut Purses) {
        let draft = match self.earlier.take() {
            Some(earlier) => earlier,
            None => self.read(purses),
        };
        let times = self.dice.pick(&[1, 1, 1, 2, 4]);
        for _ in 0..times {
            self.begin(draft.clone());
        }
        if self.dice.per_mille(950) {
            self.earlier = Some(draft);
        }
    }

    fn somebody(&mut self) -> (usize, usize) {
        let tenant = usize::from(self.dice.per_mille(200));
        // A few do most of the work.
        let user = self.dice.pick(&[0, 1, 1, 1, 1, 1, 2, 2, 3, 4]);
        (tenant, user)
    }

    /// A user of whom something can be taken.
    fn victim(&mut self) -> (usize, usize) {
        let (tenant, user) = self.somebody();
        (tenant, if user == 0 { 1 } else { user })
    }

    /// An ordinary request.
    fn read(&mut self, purses: &mut Purses) -> Draft {
        let (tenant, user) = self.somebody();
        let token = if self.dice.per_mille(80) {
            Some(self.dice.pick(&purses.dummies[tenant]))
        } else {
            Some(purses.token(self, tenant, user))
        };
        let demand = self.demand();
        let method = match self.dice.below(20) {
            0 => Method::HEAD,
            1 | 2 => Method::POST,
            _ => Method::GET,
        };
        let number = self.dice.below(3);
        let mut draft = self.draft(method, format!("/notes/{number}?limit=1"), tenant, token);
        draft.demand = demand;
        self.twist(&mut draft);
        draft
    }

    fn demand(&mut self) -> Demand {
        let place = self.dice.index(DEMANDS.len());
        if self.dice.per_mille(700) {
            DEMANDS[place.min(3)]
        } else {
            DEMANDS[place]
        }
    }

    fn draft(
        &mut self,
        method: Method,
        target: String,
        tenant: usize,
        token: Option<usize>,
    ) -> Draft {
        let user_header = token.and_then(|token| {
            let platform = locked(&self.platform);
            let token = &platform.tokens[token];
            token.leaves_user_open().then_some(token.user)
        });
        Draft {
            method,
            target,
            tenant,
            token,
            user_header,
            demand: DEMANDS[0],
            other_url: false,
            form: false,
            purpose: Purpose::Read,
        }
    }

    /// A request that this change decides about, if it is somebody's.
    pub(crate) fn draft_about(&mut self, change: &Change) -> Option<Draft> {
        let (tenant, user, permission) = match *change {
            Change::Activity(tenant, user, _) => (tenant, user, None),
            Change::Assigned(tenant, user, name, _) if name < PERMISSIONS => {
                (tenant, user, Some(name))
            }
            Change::Assigned(tenant, user, name, _) => (tenant, user, Some(name - PERMISSIONS + 1)),
            // The user who has it by the set alone.
            Change::Part(tenant, _, permission, _) => {
                (tenant, permission.clamp(1, USERS - 1), Some(permission))
            }
            Change::Key => return None,
        };
        let token = self.latest_tokens[tenant][user];
        let mut draft = self.draft(Method::GET, "/notes/0".to_owned(), tenant, Some(token));
        draft.demand.required = permission.map_or(0, |permission| 1 << permission);
        Some(draft)
    }

    /// Something about a request is unusual now and then.
    fn twist(&mut self, draft: &mut Draft) {
        match self.dice.below(150) {
            0 => draft.token = None,
            1 => draft.tenant = 1 - draft.tenant,
            2 => draft.user_header = Some(self.dice.index(USERS)),
            3..=8 => draft.form = true,
            9..=14 => draft.other_url = true,
            _ => {}
        }
    }

    fn pass_through(
        &mut self,
        purses: &mut Purses,
        method: Method,
        target: &str,
        purpose: Purpose,
    ) {
        let (tenant, user) = self.somebody();
        let token = purses.token(self, tenant, user);
        let mut draft = self.draft(method, target.to_owned(), tenant, Some(token));
        draft.purpose = purpose;
        self.begin(draft);
    }

    /// What could be taken for an event and is none.
    fn look_alike(&mut self, purses: &mut Purses) {
        let (method, target) = self.dice.pick(&[
            ("POST", "/users"),
            ("POST", "/users/expire/timer"),
            ("PUT", "/users/profile-picture"),
            ("PUT", "/users/configurations/entry/1"),
            (
                "GET",
                "/perms/users/20000000-0000-4000-8000-000000000000/permissions?indexField=userId",
            ),
            ("POST", "/perms/users"),
            ("POST", "/token/refresh"),
        ]);
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (tenant, user) = self.somebody();
        let token = purses.token(self, tenant, user);
        let draft = self.draft(method, target.to_owned(), tenant, Some(token));
        self.begin(draft);
    }

    /// A request that says that something is about to change, mostly by somebody who may.
    fn announce(&mut self, purses: &mut Purses) {
        let (changes, reach, memory, line) = self.some_change();
        let (Reach::User(tenant, _) | Reach::Tenant(tenant)) = reach;
        let (method, target) = line;
        let system = target.starts_with("/_/");
        let user = if self.dice.per_mille(850) {
            0
        } else {
            self.dice.index(USERS)
        };
        let token = (!system).then(|| purses.token(self, tenant, user));
        let noticed = memory.is_some();
        let mut draft = self.draft(method, target, tenant, token);
        draft.demand = if system { DEMANDS[0] } else { ADMINISTER };
        draft.form = self.dice.per_mille(100);
        draft.purpose = match memory {
            Some(memory) => Purpose::Announce {
                reach,
                memory,
                changes,
            },
            None => Purpose::Unnoticed(changes),
        };
        debug_assert!(noticed || draft.method == Method::POST);
        self.begin(draft);
    }

    /// Changes of the truth, whom the sidecar takes them to concern, whose memory outlives them, and their request. Without
    /// a memory the request is no event.
    #[allow(
        clippy::too_many_lines,
        reason = "it is the design's table, row by row"
    )]
    #[allow(clippy::type_complexity, reason = "used twice, right here")]
    fn some_change(&mut self) -> (Vec<Change>, Reach, Option<Memory>, (Method, String)) {
        let (tenant, user) = self.victim();
        let id = {
            let id = locked(&self.platform).truth.user(tenant, user).id.clone();
            if self.dice.per_mille(300) {
                id.to_uppercase()
            } else {
                id
            }
        };
        let own_id = format!("a{user}000000-0000-4000-8000-0000000000{tenant}0");
        let name = loop {
            let name = self.dice.index(NAMES.len());
            if name != ADMINISTRATION {
                break name;
            }
        };
        let (one, all) = (Reach::User(tenant, user), Reach::Tenant(tenant));
        let assigned = |value| vec![Change::Assigned(tenant, user, name, value)];
        let row = if self.plan.sets && self.dice.per_mille(800) {
            12
        } else {
            self.dice.below(18)
        };
        match row {
            0..=2 => {
                let activity = if self.dice.per_mille(600) {
                    Activity::Active
                } else {
                    Activity::Inactive
                };
                let change = Change::Activity(tenant, user, activity);
                let line = (Method::PUT, format!("/users/{id}"));
                (vec![change], one, Some(Memory::User), line)
            }
            3 => {
                let change = Change::Activity(tenant, user, Activity::Deleted);
                let line = (Method::DELETE, format!("/users/{id}"));
                (vec![change], one, Some(Memory::User), line)
            }
            4 if self.dice.per_mille(300) => {
                let change = Change::Activity(tenant, user, Activity::Deleted);
                let line = (Method::DELETE, "/users?query=username==x*".to_owned());
                (vec![change], all, Some(Memory::User), line)
            }
            4..=6 => {
                let target = format!(
                    "/perms/users/{id}/permissions/{}?indexField=userId",
                    NAMES[name]
                );
                let line = (Method::DELETE, target);
                (assigned(false), one, Some(Memory::Permission), line)
            }
            7 => {
                let target = format!(
                    "/perms/users/{own_id}/permissions/{}?full=true",
                    NAMES[name]
                );
                let line = (Method::DELETE, target);
                (assigned(false), all, Some(Memory::Permission), line)
            }
            8 => {
                let changes = (0..NAMES.len())
                    .filter(|name| *name != ADMINISTRATION)
                    .map(|name| Change::Assigned(tenant, user, name, self.dice.per_mille(700)))
                    .collect();
                let line = (Method::PUT, format!("/perms/users/{own_id}"));
                (changes, all, Some(Memory::Permission), line)
            }
            9 | 10 => {
                let target = format!("/perms/users/{id}/permissions?full=true&indexField=userId");
                let line = (Method::POST, target);
                (assigned(true), one, Some(Memory::None), line)
            }
            11 => {
                let line = (Method::POST, format!("/perms/users/{own_id}/permissions"));
                (assigned(true), one, None, line)
            }
            12..=15 => {
                let line = (Method::PUT, format!("/perms/permissions/{own_id}"));
                (self.set_change(tenant), all, Some(Memory::Set), line)
            }
            16 => {
                let line = (Method::POST, "/_/tenantpermissions".to_owned());
                (self.set_change(tenant), all, Some(Memory::Set), line)
            }
            _ => {
                let target = self.dice.pick(&["/user-tenants", "/_/tenant"]);
                let line = (Method::POST, target.to_owned());
                (Vec::new(), all, Some(Memory::None), line)
            }
        }
    }

    fn set_change(&mut self, tenant: usize) -> Vec<Change> {
        let set = self.dice.index(SETS);
        // Mostly the one that some users have by this set alone.
        let permission = match self.dice.below(3) {
            0 => self.dice.index(PERMISSIONS - 1),
            _ => set + 1,
        };
        let value = self.dice.per_mille(550);
        vec![Change::Part(tenant, set, permission, value)]
    }

    fn change_key(&mut self) {
        self.note(|| "another signing key".to_owned());
        self.write(&[Change::Key], false);
    }

    fn restart_module(&mut self) {
        let mut platform = locked(&self.platform);
        let replica = self.dice.index(platform.replicas());
        platform.restart(replica);
        drop(platform);
        self.note(|| format!("mod-authtoken {replica} is started anew"));
    }

    fn trouble_begins(&mut self) {
        let lasts = self.dice.below(20_000);
        let mut platform = locked(&self.platform);
        platform.trouble_until = platform.now + lasts;
        drop(platform);
        self.note(|| format!("mod-authtoken is in trouble for {lasts}"));
    }

    async fn clocks_go_wrong(&mut self) {
        match self.plan.clocks {
            Clocks::Steady => {}
            Clocks::Suspended => {
                let time = self.dice.below(90_000);
                self.suspend(time).await;
            }
            Clocks::Stepped => {
                let by = i64::try_from(self.dice.below(180_000)).expect("fits") - 90_000;
                self.step_wall(by);
            }
        }
    }

    fn purge_something(&mut self) {
        let (tenant, user) = self.somebody();
        let reach = match self.dice.below(4) {
            0 => None,
            1 => Some(Reach::Tenant(tenant)),
            _ => Some(Reach::User(tenant, user)),
        };
        self.purge(reach);
    }

    /// Many users nobody has heard of change, and many people log in.
    fn storm(&mut self, purses: &mut Purses) {
        let (tenant, _) = self.somebody();
        for _ in 0..40 {
            let number = self.dice.below(100_000);
            let token = purses.token(self, tenant, 0);
            let target = format!("/users/b0000000-0000-4000-8000-0000000{number:05}");
            let mut draft = self.draft(Method::PUT, target, tenant, Some(token));
            draft.demand = ADMINISTER;
            self.begin(draft);
        }
        for _ in 0..20 {
            let (tenant, user) = self.somebody();
            purses.log_in(self, tenant, user);
            let draft = self.read(purses);
            self.begin(draft);
        }
    }
}
