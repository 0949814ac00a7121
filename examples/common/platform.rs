//! Stand-in auth module, small Okapi for its look-ups, network and sidecar, put together and taken apart again.

use std::net::SocketAddr;
use std::time::Duration;

use okapi_auth_sidecar::clock::Clock;

use super::Outcome;
use super::desk;
use super::load::{Long, Shift};
use super::network::{FarEnd, Network};
use super::part::Part;
use super::sidecar::{self, Sidecar};
use crate::support::standin::lookups::LookUps;
use crate::support::standin::okapi::Okapi;
use crate::support::standin::{Options, Standin};

/// What FOLIO measured of the first auth call of a warm check-out: the module's own time.
pub(crate) const MODULE_TIME: Duration = Duration::from_millis(5);
/// And on the network, there and back.
pub(crate) const NETWORK_TIME: Duration = Duration::from_millis(1);

/// Where the sidecar stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: Okapi asks the auth module over the network.
    Nowhere,
    /// Beside Okapi, so the network lies behind it.
    BesideOkapi,
    /// Beside the auth module, so the network lies before it.
    BesideAuth,
}

/// How far away things are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distances {
    /// How long the auth module takes.
    pub(crate) module: Duration,
    /// How long the network takes, there and back.
    pub(crate) network: Duration,
}

impl Distances {
    /// FOLIO's.
    pub(crate) const FOLIO: Self = Self {
        module: MODULE_TIME,
        network: NETWORK_TIME,
    };
    /// None at all: for counting.
    pub(crate) const NONE: Self = Self {
        module: Duration::ZERO,
        network: Duration::ZERO,
    };
}

/// Everything, running.
#[derive(Debug)]
pub(crate) struct Platform {
    distances: Distances,
    /// Taken down first: what asks before what is asked.
    route: Option<Route>,
    okapi: Okapi,
    standin: Standin,
    beside: Part,
    auth: Part,
    _gateway: Part,
}

/// The way from Okapi to the auth module.
#[derive(Debug)]
struct Route {
    entry: SocketAddr,
    sidecar: Option<Sidecar>,
    network: Option<Network>,
}

/// What the auth module and the sidecar had to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    /// Filter calls and look-ups that reached the auth module.
    pub(crate) reached: u64,
    /// Its thread's processor time.
    pub(crate) module: Option<Duration>,
    /// The sidecar's.
    pub(crate) sidecar: Option<Duration>,
    /// What the network saw of what lies behind it.
    pub(crate) far_end: FarEnd,
}

impl Platform {
    /// Starts the auth module with so many librarians, and no way to it yet.
    pub(crate) fn start(librarians: usize, distances: Distances) -> Outcome<Self> {
        let (auth, gateway, beside) = (
            Part::new("auth module")?,
            Part::new("okapi")?,
            Part::new("sidecar")?,
        );
        let okapi = gateway.run(Okapi::start())?;
        let options = Options {
            world: desk::world(librarians)?,
            look_ups: LookUps::Gateway(okapi.url()),
            log: 0,
            ..Options::default()
        };
        let standin = auth.run(Standin::start(options))?;
        Ok(Self {
            distances,
            route: None,
            okapi,
            standin,
            beside,
            auth,
            _gateway: gateway,
        })
    }

    /// The auth module.
    pub(crate) fn standin(&self) -> &Standin {
        &self.standin
    }

    /// Builds the way anew; a sidecar on it has just been started and knows nothing.
    pub(crate) fn build(&mut self, place: Place) -> Outcome<()> {
        self.route = None;
        let auth = self.standin.addr();
        let route = match place {
            Place::Nowhere => {
                let network = self.network(auth)?;
                Route {
                    entry: network.as_ref().map_or(auth, Network::near),
                    sidecar: None,
                    network,
                }
            }
            Place::BesideOkapi => {
                let network = self.network(auth)?;
                let sidecar = self.sidecar(network.as_ref().map_or(auth, Network::near))?;
                Route {
                    entry: sidecar.filter(),
                    sidecar: Some(sidecar),
                    network,
                }
            }
            Place::BesideAuth => {
                let sidecar = self.sidecar(auth)?;
                let network = self.network(sidecar.filter())?;
                Route {
                    entry: network.as_ref().map_or(sidecar.filter(), Network::near),
                    sidecar: Some(sidecar),
                    network,
                }
            }
        };
        self.okapi.connect(route.entry, &self.standin);
        self.route = Some(route);
        Ok(())
    }

    fn network(&self, far: SocketAddr) -> Outcome<Option<Network>> {
        let length = self.distances.network;
        (!length.is_zero())
            .then(|| Network::start(far, length))
            .transpose()
    }

    fn sidecar(&self, upstream: SocketAddr) -> Outcome<Sidecar> {
        self.beside
            .run(async move { Sidecar::start(upstream, &[], Clock::system()).await })?
    }

    /// Lets the auth module forget everything, as a restart does.
    pub(crate) fn restart_module(&self) {
        self.standin.restart();
    }

    /// Where Okapi asks.
    pub(crate) fn entry(&self) -> Outcome<SocketAddr> {
        Ok(self.route()?.entry)
    }

    /// A metric of the sidecar.
    pub(crate) fn metric(&self, series: &'static str) -> Outcome<f64> {
        let sidecar = self
            .route()?
            .sidecar
            .as_ref()
            .ok_or("there is no sidecar")?;
        let admin = sidecar.admin();
        self.beside
            .run(async move { sidecar::metric(admin, series).await })?
    }

    /// What is done meanwhile, and what the auth module and the sidecar have to do for it.
    pub(crate) fn measure<T>(&self, act: impl FnOnce() -> Outcome<T>) -> Outcome<(T, Effort)> {
        let network = self.route()?.network.as_ref();
        let (module, sidecar) = (self.auth.processor_time(), self.beside.processor_time());
        if let Some(network) = network {
            network.take();
        }
        let before = self.reached();
        let done = act()?;
        let since =
            |now: Option<Duration>, then: Option<Duration>| Some(now?.saturating_sub(then?));
        let effort = Effort {
            reached: self.reached() - before,
            module: since(self.auth.processor_time(), module),
            sidecar: since(self.beside.processor_time(), sidecar),
            far_end: network.map(Network::take).unwrap_or_default(),
        };
        Ok((done, effort))
    }

    fn reached(&self) -> u64 {
        let calls = self.standin.calls();
        calls.filter + calls.look_ups
    }

    fn route(&self) -> Outcome<&Route> {
        Ok(self
            .route
            .as_ref()
            .ok_or("there is no way to the auth module")?)
    }

    /// Sets the stand-in's delay so that it takes as long as it should: timers round up, and how far depends on the machine.
    /// Tells what it was set to and what it then took.
    pub(crate) fn tune(&mut self) -> Outcome<(Duration, Duration)> {
        let wanted = self.distances.module;
        self.build(Place::Nowhere)?;
        let librarian = [desk::Librarian::new(&self.standin, 0)];
        let work = desk::Work::check_out()?;
        let shift = Shift {
            auth: self.entry()?,
            module_time: Duration::ZERO,
            long: Long::Times(2),
        };
        let mut best: Option<(Duration, Duration)> = None;
        for delay in [wanted, wanted.saturating_sub(Duration::from_millis(1))] {
            self.standin.set_delay(delay);
            let run = || shift.work(&librarian, &[&work]);
            // Once to warm up: look-ups are no part of it.
            run()?;
            let (_, effort) = self.measure(run)?;
            let took = effort.far_end.took / effort.far_end.answers.max(1);
            if best.is_none_or(|(_, other)| wanted.abs_diff(took) < wanted.abs_diff(other)) {
                best = Some((delay, took));
            }
        }
        let best = best.ok_or("nothing was measured")?;
        self.standin.set_delay(best.0);
        Ok(best)
    }
}
