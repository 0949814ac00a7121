//! The sidecar, bound and run as its own program does it, on ports of its own.

use std::net::SocketAddr;

use okapi_auth_sidecar::clock::Clock;
use okapi_auth_sidecar::config::PREFIX;
use okapi_auth_sidecar::{Config, Server, ServerError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Outcome;
use crate::support::raw::{self, Request};

/// A running sidecar. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct Sidecar {
    filter: SocketAddr,
    admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), ServerError>>,
}

impl Sidecar {
    /// Starts one in the current runtime. Settings are names without prefix and values; what is not named has its default.
    pub(crate) async fn start(
        upstream: SocketAddr,
        settings: &[(&str, &str)],
        clock: Clock,
    ) -> Outcome<Self> {
        let upstream = format!("http://{upstream}");
        let own = [
            ("UPSTREAM_URL", upstream.as_str()),
            ("LISTEN", "127.0.0.1:0"),
            ("ADMIN_LISTEN", "127.0.0.1:0"),
        ];
        let pairs = own.iter().chain(settings);
        let config = Config::from_pairs(
            pairs.map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned())),
        )?;
        let server = Server::bind_with_clock(config, clock).await?;
        let (filter, admin) = (server.filter_addr(), server.admin_addr());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            // Asked to stop, or nobody is left who could ask.
            let _ = stopped.await;
        }));
        Ok(Self {
            filter,
            admin,
            stop: Some(stop),
            running,
        })
    }

    /// The filter port.
    pub(crate) fn filter(&self) -> SocketAddr {
        self.filter
    }

    /// The admin port.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        self.running.abort();
    }
}

/// One series of the admin port's `/metrics`, named as it is exposed; 0 if it is not there.
pub(crate) async fn metric(admin: SocketAddr, series: &str) -> Outcome<f64> {
    let mut request = Request::new("GET", "/metrics");
    request.headers.push("Host", "sidecar");
    let answer = raw::ask(admin, &request).await?;
    let value = answer.text().lines().find_map(|line| {
        let rest = line.strip_prefix(series)?;
        rest.starts_with(' ').then(|| rest.trim().to_owned())
    });
    Ok(value.map_or(Ok(0.0), |value| value.parse())?)
}
