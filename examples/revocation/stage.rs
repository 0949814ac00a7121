//! A platform whose time can be moved: auth modules, small Okapi, and in some set-ups a sidecar.
//!
//! Everything runs on one thread, so that nothing goes on while time jumps.

use std::net::SocketAddr;
use std::time::Duration;

use okapi_auth_sidecar::clock::Clock;

use super::balancer::Balancer;
use super::cases::Case;
use crate::common::Outcome;
use crate::common::sidecar::Sidecar;
use crate::support::raw::{Answer, Connection, Request};
use crate::support::standin::lookups::LookUps;
use crate::support::standin::okapi::Okapi;
use crate::support::standin::world::World;
use crate::support::standin::{Options, Standin};

/// What stands between Okapi and the auth module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetUp {
    /// Nothing.
    Nobody,
    /// A sidecar that knows that there is one auth module.
    One,
    /// A sidecar with its defaults, and two auth modules behind one address.
    Many,
    /// A sidecar that sends no refresh header.
    Off,
    /// A sidecar that does not listen at all: only its ttl.
    Deaf,
}

impl SetUp {
    /// All of them, in the order of the columns.
    pub(crate) const ALL: [Self; 5] = [Self::Nobody, Self::One, Self::Many, Self::Off, Self::Deaf];

    /// The column's heading.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Nobody => "no sidecar",
            Self::One => "one",
            Self::Many => "many",
            Self::Off => "off",
            Self::Deaf => "not listening",
        }
    }

    /// The sidecar's settings, if there is one. No jitter: decisions live as long as they may.
    fn settings(self) -> Option<&'static [(&'static str, &'static str)]> {
        const JITTER: (&str, &str) = ("CACHE_TTL_JITTER", "0");
        match self {
            Self::Nobody => None,
            Self::One => Some(&[JITTER, ("REVOCATION_UPSTREAM_REFRESH", "one")]),
            Self::Many => Some(&[JITTER]),
            Self::Off => Some(&[JITTER, ("REVOCATION_UPSTREAM_REFRESH", "off")]),
            Self::Deaf => Some(&[JITTER, ("REVOCATION_LISTEN", "false")]),
        }
    }

    fn modules(self) -> usize {
        match self {
            Self::Many => 2,
            Self::Nobody | Self::One | Self::Off | Self::Deaf => 1,
        }
    }
}

/// What is running.
#[derive(Debug)]
pub(crate) struct Stage {
    entry: SocketAddr,
    connection: Option<Connection>,
    sidecar_clock: Clock,
    _sidecar: Option<Sidecar>,
    _balancer: Option<Balancer>,
    modules: Vec<Standin>,
    _okapi: Okapi,
}

impl Stage {
    /// Starts everything in the world before the event.
    pub(crate) async fn build(set_up: SetUp, case: &Case) -> Outcome<Self> {
        let okapi = Okapi::start().await;
        let mut modules = Vec::new();
        for _ in 0..set_up.modules() {
            let mut options = Options {
                world: case.world(),
                look_ups: LookUps::Gateway(okapi.url()),
                log: 0,
                ..Options::default()
            };
            if case.forgetful {
                options.permission_memory = Duration::ZERO;
            }
            modules.push(Standin::start(options).await);
        }
        let balancer = match set_up.modules() {
            1 => None,
            _ => Some(Balancer::start(modules.iter().map(Standin::addr).collect()).await?),
        };
        let auth = balancer.as_ref().map_or(modules[0].addr(), Balancer::addr);
        let sidecar_clock = Clock::movable();
        let sidecar = match set_up.settings() {
            None => None,
            Some(settings) => Some(Sidecar::start(auth, settings, sidecar_clock.clone()).await?),
        };
        let entry = sidecar.as_ref().map_or(auth, Sidecar::filter);
        // The first module's world is what mod-users and mod-permissions know.
        okapi.connect(entry, &modules[0]);
        let stage = Self {
            entry,
            connection: None,
            sidecar_clock,
            _sidecar: sidecar,
            _balancer: balancer,
            modules,
            _okapi: okapi,
        };
        stage.settle().await;
        Ok(stage)
    }

    /// Time on the platform's clocks since it was built.
    pub(crate) fn now(&self) -> Duration {
        self.modules[0].clock().now()
    }

    /// Lets time pass at once, everywhere.
    pub(crate) async fn pass(&self, time: Duration) -> Outcome<()> {
        let millis = i64::try_from(time.as_millis())?;
        for module in &self.modules {
            module.clock().advance(time);
        }
        self.sidecar_clock.shift(millis, millis);
        self.settle().await;
        Ok(())
    }

    /// Lets what goes on in the background come to its end: a call upstream takes a few turns of the one thread.
    async fn settle(&self) {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
    }

    /// Asks as Okapi would.
    pub(crate) async fn ask(&mut self, request: &Request) -> Outcome<Answer> {
        if let Some(connection) = &mut self.connection
            && let Ok(answer) = connection.ask(request).await
        {
            return Ok(answer);
        }
        // None yet, or the other side closed it: a restarted module, or the balancer.
        let mut connection = Connection::open(self.entry).await?;
        let answer = connection.ask(request).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// The first auth module: for tokens, which all of them take.
    pub(crate) fn module(&self) -> &Standin {
        &self.modules[0]
    }

    /// Changes the truth.
    pub(crate) fn change(&self, change: fn(&mut World)) {
        for module in &self.modules {
            module.world(change);
        }
    }

    /// Restarts the auth modules with another signing key.
    pub(crate) fn change_key(&mut self) {
        for module in &self.modules {
            module.restart_with_key("another key for the same platform");
        }
        self.connection = None;
    }
}
