//! A sidecar in front of a stand-in, both on ports of their own and in this process.

use crate::support::raw::{self, Answer, Connection, Request};
use crate::support::standin::call::FilterCall;
use crate::support::standin::{Options, Standin};
use okapi_auth_sidecar::clock::Clock;
use okapi_auth_sidecar::config::PREFIX;
use okapi_auth_sidecar::{Config, Server, ServerError};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A permission that the librarian at the desk has and the reader has not.
pub(crate) const LOANS: &str = "circulation.loans.collection.get";
/// The admin port's bearer token where a test sets one.
pub(crate) const ADMIN_TOKEN: &str = "0123456789abcdef";

/// A running sidecar. Dropped, it stops at once; [`Sidecar::stop`] drains it.
pub(crate) struct Sidecar {
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Both of its clocks, which a test can move.
    pub(crate) clock: Clock,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), ServerError>>,
}

/// The settings of a test's sidecar: ports of its own, no jitter, and what the test says.
pub(crate) fn config(upstream: &str, settings: &[(&str, &str)]) -> Config {
    let base = [
        ("UPSTREAM_URL", upstream),
        ("LISTEN", "127.0.0.1:0"),
        ("ADMIN_LISTEN", "127.0.0.1:0"),
        ("CACHE_TTL_JITTER", "0"),
        ("WORKER_THREADS", "2"),
    ];
    let pairs = base.iter().chain(settings);
    Config::from_pairs(pairs.map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned())))
        .unwrap_or_else(|errors| panic!("the test's settings are wrong: {errors}"))
}

impl Sidecar {
    /// Starts one with these settings (names without prefix) in front of `upstream`.
    pub(crate) async fn start(upstream: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_at(Clock::movable(), upstream, settings).await
    }

    /// The same with another clock.
    async fn start_at(clock: Clock, upstream: &str, settings: &[(&str, &str)]) -> Self {
        let server = Server::bind_with_clock(config(upstream, settings), clock.clone())
            .await
            .expect("free ports");
        let (addr, admin) = (server.filter_addr(), server.admin_addr());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            admin,
            clock,
            stop: Some(stop),
            running,
        }
    }

    /// Asks once on a connection of its own.
    pub(crate) async fn ask(&self, call: &FilterCall) -> Answer {
        self.send(&call.request()).await
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn send(&self, request: &Request) -> Answer {
        raw::ask(self.addr, request).await.expect("an answer")
    }

    /// Opens a connection to the filter port.
    pub(crate) async fn connect(&self) -> Connection {
        Connection::open(self.addr).await.expect("a connection")
    }

    /// Sends a request to the admin port, with the bearer token if there is one.
    pub(crate) async fn admin(&self, method: &str, path: &str, bearer: Option<&str>) -> Answer {
        let mut request = Request::new(method, path);
        request.headers.push("Host", "sidecar");
        if let Some(bearer) = bearer {
            request
                .headers
                .push("Authorization", format!("Bearer {bearer}"));
        }
        raw::ask(self.admin, &request).await.expect("an answer")
    }

    /// The value of one series of `/metrics`, named as it is exposed; 0 if it is not there.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let answer = self.admin("GET", "/metrics", None).await;
        let line = answer.text().lines().find_map(|line| {
            let rest = line.strip_prefix(series)?;
            rest.starts_with(' ').then(|| rest.trim().to_owned())
        });
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Moves both clocks.
    pub(crate) fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).expect("not that far");
        self.clock.shift(millis, millis);
    }

    /// Asks it to stop.
    pub(crate) fn signal(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Asks it to stop and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.signal();
        (&mut self.running)
            .await
            .expect("it does not panic")
            .expect("it stops in order");
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A stand-in of the recorded world, whose clock stands still until a test moves it, and a sidecar in front of it.
pub(crate) async fn pair(settings: &[(&str, &str)]) -> (Standin, Sidecar) {
    pair_at(Clock::movable(), settings).await
}

/// The same with a sidecar whose clocks stand still as well: for tests that count seconds.
pub(crate) async fn still_pair(settings: &[(&str, &str)]) -> (Standin, Sidecar) {
    pair_at(Clock::still(), settings).await
}

async fn pair_at(clock: Clock, settings: &[(&str, &str)]) -> (Standin, Sidecar) {
    let standin = Standin::start(Options::default()).await;
    standin.clock().stop();
    let sidecar = Sidecar::start_at(clock, &standin.url(), settings).await;
    // The probe at the start is not part of any test.
    standin.seen(1).await;
    standin.forget_calls();
    (standin, sidecar)
}

/// The usual call: the desk's librarian lists loans.
pub(crate) fn loans(token: &str) -> FilterCall {
    FilterCall::get("/circulation/loans?limit=1")
        .token(token)
        .required(&[LOANS])
}

/// Looking at a sidecar from outside.
impl Sidecar {
    /// Asks, and tells whether the answer came from the cache: the stand-in saw no call. It must be a yes.
    pub(crate) async fn hits(&self, standin: &Standin, call: &FilterCall) -> bool {
        let before = standin.calls().total;
        let answer = self.ask(call).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        standin.calls().total == before
    }

    /// The sum of all series of `/metrics` whose names and labels start like this.
    pub(crate) async fn sum(&self, start: &str) -> f64 {
        let answer = self.admin("GET", "/metrics", None).await;
        let values = answer
            .text()
            .lines()
            .filter(|line| line.starts_with(start))
            .map(|line| line.rsplit(' ').next().expect("a value"));
        values
            .map(|value| value.parse::<f64>().expect("a number"))
            .sum()
    }

    /// Waits until a series of `/metrics` has this value at least; fails the test if it does not come to that.
    pub(crate) async fn until(&self, series: &str, value: f64) {
        let mut pauses = 0;
        while self.metric(series).await < value {
            pauses += 1;
            assert!(pauses < 2_000, "{series} never reached {value}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets everything that was sent before reach the sidecar: whatever lies in a socket is read while these answers are made.
    pub(crate) async fn settle(&self) {
        for _ in 0..5 {
            self.admin("GET", "/health/live", None).await;
        }
    }
}
