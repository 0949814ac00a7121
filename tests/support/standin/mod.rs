//! A stand-in for mod-authtoken: answers Okapi's auth filter calls as the real one does, from a small world in memory.
//!
//! For tests and the demo only; it is no part of the sidecar. It is proven by the recorded exchanges (`tests/standin`): all of
//! them but a few, named there, come out equal.
//!
//! | file | what |
//! |---|---|
//! | `filter.rs` | the filter: who may do what, in mod-authtoken's order and words |
//! | `validate.rs`, `permissions.rs` | its two questions: is the token good, and which permissions count |
//! | `own.rs` | mod-authtoken's own routes: tokens and the tenant interface |
//! | `lookups.rs` | its questions to mod-users and mod-permissions, directly or through an Okapi |
//! | `memory.rs` | what it remembers between requests |
//! | `modules.rs` | mod-users and mod-permissions, and what the latter remembers |
//! | `world.rs` | users, permissions, permission sets, the signing key: the truth, which tests change |
//! | `token.rs`, `json.rs`, `chance.rs` | signing, order of claims, what is random |
//! | `path.rs`, `wire.rs`, `server.rs` | paths, bytes, connections |
//! | `clock.rs`, `control.rs` | time that can be moved; counts, log, slow, held and broken answers |
//! | `call.rs`, `okapi.rs` | requests as Okapi sends them; a very small Okapi |
//!
//! ```ignore
//! let standin = Standin::start(Options::default()).await;
//! let token = standin.access_token("diku", DESK);
//! let answer = raw::ask(standin.addr(), &FilterCall::get("/loans").token(&token).request()).await?;
//! standin.world(|world| world.set_active("diku", DESK, false));
//! standin.clock().advance(Duration::from_secs(61));
//! ```

pub mod call;
pub mod chance;
pub mod clock;
pub mod control;
mod filter;
pub mod json;
pub mod lookups;
mod memory;
pub mod modules;
pub mod okapi;
mod own;
mod path;
mod permissions;
mod server;
pub mod token;
mod validate;
mod wire;
pub mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::chance::Chance;
use self::clock::Clock;
use self::control::{Calls, Control, Gate, Seen, Trouble};
use self::lookups::LookUps;
use self::memory::{Memory, Periods};
use self::modules::Modules;
use self::own::Own;
use self::server::Connections;
use self::token::Key;
use self::world::World;
use super::raw::Request;

/// Librarian at the desk of `diku` and `college`: circulation and some administration.
pub const DESK: &str = "11111111-1111-4111-8111-111111111111";
/// May read users, nothing else.
pub const READER: &str = "22222222-2222-4222-8222-222222222222";
/// Not active.
pub const GONE: &str = "33333333-3333-4333-8333-333333333333";
/// Has an umlaut in the name.
pub const MUELLER: &str = "44444444-4444-4444-8444-444444444444";
/// Another librarian.
pub const DESK5: &str = "55555555-5555-4555-8555-000000000005";
/// May change users, permissions and permission sets.
pub const ADMIN: &str = "66666666-6666-4666-8666-666666666666";

/// How the stand-in is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 finds a free one.
    pub listen: SocketAddr,
    /// The world at the start.
    pub world: World,
    /// Where its look-ups go.
    pub look_ups: LookUps,
    /// How long it takes to make an answer. Timers are no finer than a millisecond.
    pub delay: Duration,
    /// How long an answer is on its way, on top of `delay`: for showing what a far away module costs.
    pub network: Duration,
    /// How long it remembers whether a user is active.
    pub user_memory: Duration,
    /// How long it remembers a user's permissions.
    pub permission_memory: Duration,
    /// How long it remembers the parts of a token's own permissions (other than `SYS#` sets).
    pub token_memory: Duration,
    /// How long mod-permissions trusts its permission sets.
    pub set_memory: Duration,
    /// Life of an access token, in seconds.
    pub access_token_life: i64,
    /// Life of a refresh token, in seconds.
    pub refresh_token_life: i64,
    /// How many requests the log keeps; 0 keeps none, which is quicker.
    pub log: usize,
}

impl Default for Options {
    /// The recorded world and mod-authtoken's own defaults.
    fn default() -> Self {
        let periods = Periods::default();
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            world: World::recorded(),
            look_ups: LookUps::World,
            delay: Duration::ZERO,
            network: Duration::ZERO,
            user_memory: periods.user,
            permission_memory: periods.permissions,
            token_memory: periods.sets,
            set_memory: Duration::from_secs(30),
            access_token_life: 600,
            refresh_token_life: 604_800,
            log: 10_000,
        }
    }
}

/// Settings that do not change while it runs.
#[derive(Debug)]
struct Settings {
    set_memory: Duration,
    access_token_life: i64,
    refresh_token_life: i64,
}

/// The module itself: all state, and nothing of the wire. No lock is held while anything waits.
#[derive(Debug)]
pub struct Module {
    clock: Clock,
    look_ups: LookUps,
    settings: Settings,
    world: Mutex<World>,
    modules: Mutex<Modules>,
    memory: Mutex<Memory>,
    own: Mutex<Own>,
    chance: Mutex<Chance>,
}

impl Module {
    fn world(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }

    fn modules(&self) -> MutexGuard<'_, Modules> {
        locked(&self.modules)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        locked(&self.memory)
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        locked(&self.own)
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        locked(&self.chance)
    }

    fn key(&self) -> Key {
        self.world().key().clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running stand-in. It stops, connections and all, when it is dropped.
#[derive(Debug)]
pub struct Standin {
    address: SocketAddr,
    module: Arc<Module>,
    control: Arc<Control>,
    connections: Connections,
    acceptor: JoinHandle<()>,
}

impl Standin {
    /// Binds and serves in tasks of the current runtime. Panics when the address is taken.
    pub async fn start(options: Options) -> Self {
        let listener = TcpListener::bind(options.listen)
            .await
            .expect("an address to listen on");
        let address = listener.local_addr().expect("the address it listens on");
        let control = Control::new(options.log, options.delay + options.network);
        let module = Module {
            clock: Clock::new(),
            look_ups: options.look_ups,
            settings: Settings {
                set_memory: options.set_memory,
                access_token_life: options.access_token_life,
                refresh_token_life: options.refresh_token_life,
            },
            world: Mutex::new(options.world),
            modules: Mutex::default(),
            memory: Mutex::new(Memory::new(Periods {
                user: options.user_memory,
                permissions: options.permission_memory,
                sets: options.token_memory,
            })),
            own: Mutex::default(),
            chance: Mutex::default(),
        };
        let (module, control) = (Arc::new(module), Arc::new(control));
        let connections = Connections::default();
        let acceptor = tokio::spawn(server::accept(
            listener,
            Arc::clone(&module),
            Arc::clone(&control),
            Arc::clone(&connections),
        ));
        Self {
            address,
            module,
            control,
            connections,
            acceptor,
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The same as a base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Reads or changes the world.
    pub fn world<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.module.world())
    }

    /// Says what comes next where the real module draws lots.
    pub fn chance<T>(&self, change: impl FnOnce(&mut Chance) -> T) -> T {
        change(&mut self.module.chance())
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.module.clock
    }

    /// The module without its server, for an Okapi in the same process to ask mod-users and mod-permissions of its world.
    pub fn module(&self) -> Arc<Module> {
        Arc::clone(&self.module)
    }

    /// How many requests have come in.
    pub fn calls(&self) -> Calls {
        self.control.calls()
    }

    /// The requests that have come in, oldest first, as far as the log reaches.
    pub fn requests(&self) -> Vec<Seen> {
        self.control.log()
    }

    /// Waits until this many requests have come in; fails the test if they do not within 20 s.
    pub async fn seen(&self, count: u64) {
        self.control.seen(count).await;
    }

    /// Empties the log and zeroes the counts.
    pub fn forget_calls(&self) {
        self.control.forget();
    }

    /// Sets how long every answer takes from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.control.set_delay(delay);
    }

    /// Puts trouble in place of the next answers, whatever is asked.
    pub fn script(&self, times: usize, trouble: Trouble) {
        self.script_when(times, |_| true, trouble);
    }

    /// Puts trouble in place of the next answers to requests of this kind.
    pub fn script_when(
        &self,
        times: usize,
        applies: impl Fn(&Request) -> bool + Send + 'static,
        trouble: Trouble,
    ) {
        self.control.script(times, Box::new(applies), trouble);
    }

    /// Holds all answers from now on, until the gate releases them.
    #[must_use]
    pub fn hold(&self) -> Gate {
        self.hold_when(|_| true)
    }

    /// Holds the answers to requests of this kind from now on, until the gate releases them.
    #[must_use]
    pub fn hold_when(&self, applies: impl Fn(&Request) -> bool + Send + 'static) -> Gate {
        self.control.hold(Box::new(applies))
    }

    /// Closes all connections at once, in the middle of whatever they do; new ones are accepted.
    pub fn drop_connections(&self) {
        locked(&self.connections).abort_all();
    }

    /// What a restart of the module does: memories are empty, connections closed. The port stays open all the while.
    pub fn restart(&self) {
        self.module.memory().forget_all(self.module.clock.now());
        self.drop_connections();
    }

    /// A restart with another signing key: no older token is good any more.
    pub fn restart_with_key(&self, setting: &str) {
        self.world(|world| world.set_key(setting));
        self.restart();
    }

    /// An access token for a user of the world, as a login now would give it.
    pub fn access_token(&self, tenant: &str, user: &str) -> String {
        let now = self.clock().wall();
        self.access_token_until(tenant, user, now + self.module.settings.access_token_life)
    }

    /// An access token for a user of the world that is good until the end of this second since 1970.
    pub fn access_token_until(&self, tenant: &str, user: &str, expires: i64) -> String {
        let now = self.clock().wall();
        self.world(|world| world.access_token(tenant, user, now, expires))
    }

    /// The token that a module gets when it works for a user.
    pub fn module_token(
        &self,
        tenant: &str,
        user: &str,
        module: &str,
        permissions: &[&str],
    ) -> String {
        self.world(|world| world.module_token(tenant, user, module, permissions))
    }

    /// A token without a user.
    pub fn dummy_token(&self, tenant: &str, subject: &str, permissions: &[&str]) -> String {
        self.world(|world| world.dummy_token(tenant, subject, permissions))
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.drop_connections();
    }
}
