//! The world in which the load runs: the stand-in, the people, what was counted, and what went wrong.

use crate::people::{PERMISSIONS, Person, Written};
use crate::support::standin::world::{User, World};
use crate::support::standin::{Options, Standin};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the stand-in remembers users.
pub(crate) const USER_MEMORY: Duration = Duration::from_secs(5);
/// How long the stand-in remembers permissions.
pub(crate) const PERMISSION_MEMORY: Duration = Duration::from_secs(10);
/// Life of a decision.
pub(crate) const TTL: Duration = Duration::from_secs(20);
/// Hits later than this refresh their decision.
pub(crate) const LATE: Duration = Duration::from_secs(16);
/// `REVOCATION_HOLD`.
pub(crate) const HOLD: Duration = Duration::from_secs(2);

/// The sidecar's settings. A small cache, so that it is full of old callers soon and memory has no reason to grow.
pub(crate) const SETTINGS: [(&str, &str); 8] = [
    ("CACHE_TTL", "20s"),
    ("CACHE_REFRESH_AHEAD", "0.8"),
    ("CACHE_MAX_BYTES", "2MiB"),
    ("REVOCATION_HOLD", "2s"),
    ("REVOCATION_UPSTREAM_REFRESH", "one"),
    ("UPSTREAM_USER_CACHE", "5s"),
    ("UPSTREAM_PERMISSION_CACHE", "10s"),
    ("UPSTREAM_POOL_IDLE_TIMEOUT", "2s"),
];

/// Both tenants of the load.
pub(crate) const TENANTS: [&str; 2] = ["north", "south"];
const PEOPLE: usize = 100;
/// Violations beyond this are counted, not shown.
const SHOWN: usize = 20;

/// What all tasks share.
pub(crate) struct Stage {
    people: Vec<Mutex<Person>>,
    standin: tokio::sync::RwLock<Option<Standin>>,
    address: SocketAddr,
    outage: Mutex<Option<Outage>>,
    admins: [String; 2],
    resting: AtomicBool,
    /// Requests sent to the filter port.
    pub(crate) sent: AtomicU64,
    /// Hits as the model has them.
    pub(crate) expected_hits: AtomicU64,
    statuses: Mutex<BTreeMap<u16, u64>>,
    violations: Mutex<Findings>,
    /// Whether every write that takes something away is made to take longer than `HOLD`.
    pub(crate) late_writes: bool,
    writes: Mutex<Writes>,
    beyond: Mutex<Findings>,
}

/// Sentences, of which the first are kept and all are counted.
#[derive(Default)]
struct Findings {
    first: Vec<String>,
    count: usize,
}

impl Findings {
    fn add(&mut self, what: String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(what);
        }
    }

    fn shown(&self) -> Vec<String> {
        let more = self.count - self.first.len();
        let more = (more > 0).then(|| format!("{more} more"));
        self.first.iter().cloned().chain(more).collect()
    }
}

/// The writes that took something away.
#[derive(Clone, Copy, Default)]
pub(crate) struct Writes {
    pub(crate) all: usize,
    pub(crate) late: usize,
    pub(crate) longest: Duration,
}

/// When the auth module was not there.
#[derive(Clone, Copy)]
struct Outage {
    from: Instant,
    until: Option<Instant>,
}

impl Stage {
    pub(crate) async fn start(late_writes: bool) -> Self {
        let mut world = World::recorded();
        for tenant in TENANTS {
            let admin = User {
                username: "admin".to_owned(),
                active: Some(true),
                permissions: vec!["soak.admin".to_owned()],
            };
            world.add_user(tenant, &admin_id(tenant), admin);
        }
        let standin =
            Standin::start(options(world, (std::net::Ipv4Addr::LOCALHOST, 0).into())).await;
        let far = standin.clock().wall() + 8 * 24 * 3_600;
        let admins =
            TENANTS.map(|tenant| standin.access_token_until(tenant, &admin_id(tenant), far));
        let people = (0..PEOPLE).map(|number| Mutex::new(Person::new(&standin, number, 0)));
        Self {
            people: people.collect(),
            address: standin.addr(),
            standin: tokio::sync::RwLock::new(Some(standin)),
            outage: Mutex::default(),
            admins,
            resting: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            expected_hits: AtomicU64::new(0),
            statuses: Mutex::default(),
            violations: Mutex::default(),
            late_writes,
            writes: Mutex::default(),
            beyond: Mutex::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn admin_token(&self, tenant: &str) -> &str {
        &self.admins[usize::from(tenant != TENANTS[0])]
    }

    /// The person in this place, whoever that is right now.
    pub(crate) fn person(&self, place: usize) -> MutexGuard<'_, Person> {
        locked(&self.people[place])
    }

    pub(crate) fn places(&self) -> usize {
        self.people.len()
    }

    /// Does something with the stand-in; waits while it is down.
    pub(crate) async fn with<T>(&self, act: impl FnOnce(&Standin) -> T) -> T {
        let mut act = Some(act);
        loop {
            if let Some(standin) = &*self.standin.read().await {
                let act = act.take().expect("it is done once");
                return act(standin);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Takes the auth module away for a while: port and connections closed, memories lost, the world stays.
    pub(crate) async fn restart(&self, down: Duration) {
        let from = Instant::now();
        *locked(&self.outage) = Some(Outage { from, until: None });
        let world = {
            let mut standin = self.standin.write().await;
            let world = standin
                .as_ref()
                .map(|standin| standin.world(|world| world.clone()));
            *standin = None;
            world.expect("nobody else restarts it")
        };
        tokio::time::sleep(down).await;
        let standin = Standin::start(options(world, self.address)).await;
        *self.standin.write().await = Some(standin);
        let until = Some(Instant::now());
        *locked(&self.outage) = Some(Outage { from, until });
    }

    /// Whether the auth module was away, or just back, while a request was on its way.
    pub(crate) fn was_away(&self, sent: Instant, answered: Instant) -> bool {
        locked(&self.outage).is_some_and(|outage| {
            let until = outage.until.unwrap_or(answered) + Duration::from_secs(1);
            answered >= outage.from && sent <= until
        })
    }

    pub(crate) fn count(&self, status: u16) {
        *locked(&self.statuses).entry(status).or_default() += 1;
    }

    pub(crate) fn statuses(&self) -> BTreeMap<u16, u64> {
        locked(&self.statuses).clone()
    }

    pub(crate) fn violation(&self, what: String) {
        locked(&self.violations).add(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        locked(&self.violations).shown()
    }

    pub(crate) fn violation_count(&self) -> usize {
        locked(&self.violations).count
    }

    /// A write whose announcement was sent at `began` has just ended.
    pub(crate) fn written(&self, began: Instant) -> Written {
        let ended = Instant::now();
        let written = Written {
            ended,
            took: ended - began,
        };
        let mut writes = locked(&self.writes);
        writes.all += 1;
        writes.late += usize::from(written.late());
        writes.longest = writes.longest.max(written.took);
        written
    }

    pub(crate) fn writes(&self) -> Writes {
        *locked(&self.writes)
    }

    /// A grant that is wrong and that nobody promised not to give.
    pub(crate) fn beyond_limit(&self, what: String) {
        locked(&self.beyond).add(what);
    }

    pub(crate) fn beyond_limits(&self) -> Vec<String> {
        locked(&self.beyond).shown()
    }

    pub(crate) fn beyond_limit_count(&self) -> usize {
        locked(&self.beyond).count
    }

    /// Tells the workers to stop.
    pub(crate) fn rest(&self) {
        self.resting.store(true, Ordering::Relaxed);
    }

    pub(crate) fn resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }
}

fn options(world: World, listen: SocketAddr) -> Options {
    Options {
        listen,
        world,
        delay: Duration::from_millis(2),
        user_memory: USER_MEMORY,
        permission_memory: PERMISSION_MEMORY,
        log: 0,
        ..Options::default()
    }
}

fn admin_id(tenant: &str) -> String {
    let number = usize::from(tenant != TENANTS[0]);
    format!("99999999-9999-4999-8999-{number:012x}")
}

/// A user who may do all that the load asks for.
pub(crate) fn user(name: &str) -> User {
    User {
        username: name.to_owned(),
        active: Some(true),
        permissions: PERMISSIONS.map(str::to_owned).to_vec(),
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
