//! Binds both listeners, serves, drains.
//!
//! The filter port has an accept loop of its own, because the ready-made one has no header timeout, no idle timeout and
//! no bounded drain. A connection answers plain hits from the bytes that came in and has hyper serve everything else,
//! request by request. No business rules here.

mod connection;
mod exchange;

use crate::admin::Admin;
use crate::clock::Clock;
use crate::config::Config;
use crate::filter::Filter;
use crate::metrics::Metrics;
use crate::upstream::{TlsError, Upstream};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections that may wait to be accepted, as far as the system's `somaxconn` goes. The library's 128 are few: when a
/// gateway opens all of its connections at once, each one too many is tried again a second later.
const BACKLOG: u32 = 4_096;
/// After an accept that failed (mostly for want of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For the answers that say it is over to leave.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// A probe or a scrape sends its head at once; more of them at a time than this are none.
const ADMIN_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const MOST_ADMIN_CONNECTIONS: usize = 64;
const UPKEEP: Duration = Duration::from_secs(1);
const SWEEP: Duration = Duration::from_secs(30);

/// Why the server does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The filter port cannot be bound.
    #[error("AUTH_SIDECAR_LISTEN: {address} cannot be bound: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The admin port cannot be bound.
    #[error("AUTH_SIDECAR_ADMIN_LISTEN: {address} cannot be bound: {source}")]
    AdminListen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// TLS towards upstream cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The admin port broke.
    #[error("the admin port broke: {0}")]
    Admin(#[source] tokio::task::JoinError),
}

/// Both ports, bound.
#[derive(Debug)]
pub struct Server {
    filter: Arc<Filter>,
    config: Config,
    listener: TcpListener,
    admin_listener: TcpListener,
    addresses: (SocketAddr, SocketAddr),
    give_up: watch::Sender<bool>,
}

impl Server {
    /// Binds both ports and prepares the way upstream; nothing is served yet.
    ///
    /// # Errors
    /// [`ServerError`] if a port is taken or the upstream's trust anchors cannot be had.
    pub async fn bind(config: Config) -> Result<Self, ServerError> {
        Self::bind_with_clock(config, Clock::system()).await
    }

    /// As [`Self::bind`], with another clock.
    ///
    /// # Errors
    /// As [`Self::bind`].
    #[allow(
        clippy::unused_async,
        reason = "sockets belong to a runtime: who binds must be in one"
    )]
    pub async fn bind_with_clock(config: Config, clock: Clock) -> Result<Self, ServerError> {
        let metrics = Arc::new(Metrics::new(config.metrics_tenants));
        let upstream = Upstream::new(&config, metrics.clone())?;
        let (give_up, over) = watch::channel(false);
        let filter = Arc::new(Filter::new(&config, upstream, metrics, clock, over));
        let (listener, address) = bind(config.listen).map_err(|source| ServerError::Listen {
            address: config.listen,
            source,
        })?;
        let (admin_listener, admin_address) =
            bind(config.admin_listen).map_err(|source| ServerError::AdminListen {
                address: config.admin_listen,
                source,
            })?;
        Ok(Self {
            filter,
            config,
            listener,
            admin_listener,
            addresses: (address, admin_address),
            give_up,
        })
    }

    /// Where the filter port is bound.
    pub fn filter_addr(&self) -> SocketAddr {
        self.addresses.0
    }

    /// Where the admin port is bound.
    pub fn admin_addr(&self) -> SocketAddr {
        self.addresses.1
    }

    /// Serves until `shutdown` ends, then drains: keeps serving for `DRAIN_DELAY` while not ready, stops accepting,
    /// waits up to `SHUTDOWN_TIMEOUT` for answers that are due, and answers 503 to those that still wait.
    ///
    /// # Errors
    /// [`ServerError::Admin`] if the admin port breaks.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServerError> {
        let draining = Arc::new(AtomicBool::new(false));
        let admin = Admin::new(
            self.filter.clone(),
            self.config.admin_token.clone(),
            draining.clone(),
        );
        let (admin_stop, admin_stopped) = watch::channel(false);
        let admin = tokio::spawn(serve_admin(self.admin_listener, admin, admin_stopped));
        let housekeeping = tokio::spawn(keep_house(self.filter.clone()));
        let probing = tokio::spawn({
            let filter = self.filter.clone();
            async move { filter.probe_upstream().await }
        });
        tracing::info!(
            filter = %self.addresses.0,
            admin = %self.addresses.1,
            upstream = %self.config.upstream_url,
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        let (stop_connections, stopping) = watch::channel(false);
        let (delay, stop) = (self.config.drain_delay, draining.clone());
        let filter = self.filter.clone();
        let drained = async move {
            shutdown.await;
            stop.store(true, Ordering::SeqCst);
            filter.metrics().draining();
            tracing::info!("stopping");
            tokio::time::sleep(delay).await;
        };
        tokio::select! {
            () = accept(&self.listener, &self.filter, &stopping) => {}
            () = drained => {}
        }
        // From here on the port is closed: who connects now is refused and may try elsewhere.
        drop(self.listener);
        drain(
            stop_connections,
            stopping,
            self.config.shutdown_timeout,
            &self.give_up,
        )
        .await;
        probing.abort();
        housekeeping.abort();
        admin_stop.send_replace(true);
        admin.await.map_err(ServerError::Admin)
    }
}

fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted process gets its port back at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn accept(listener: &TcpListener, filter: &Arc<Filter>, stop: &watch::Receiver<bool>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => serve(stream, filter, stop),
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn serve(stream: TcpStream, filter: &Arc<Filter>, stop: &watch::Receiver<bool>) {
    // Answers are small and whole: waiting to fill a packet only makes them late.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let (filter, stop) = (filter.clone(), stop.clone());
    filter.metrics().connected();
    tokio::spawn(async move {
        connection::serve(stream, filter.clone(), stop).await;
        filter.metrics().disconnected();
    });
}

/// Tells all connections to end, and waits until they have: each holds a receiver for as long as it lasts.
async fn drain(
    stop: watch::Sender<bool>,
    receiver: watch::Receiver<bool>,
    timeout: Duration,
    give_up: &watch::Sender<bool>,
) {
    drop(receiver);
    stop.send_replace(true);
    if tokio::time::timeout(timeout, stop.closed()).await.is_ok() {
        tracing::info!("stopped: every answer that was due has left");
        return;
    }
    give_up.send_replace(true);
    if tokio::time::timeout(LAST_ANSWERS, stop.closed())
        .await
        .is_ok()
    {
        tracing::warn!(
            "stopped: some requests were answered 503, since AUTH_SIDECAR_SHUTDOWN_TIMEOUT was over"
        );
    } else {
        tracing::warn!("stopped with connections still open");
    }
}

/// Serves the admin port until told to stop. Bounded in time and number: it listens on all interfaces by default, and what
/// rests on it must not use up the file descriptors of the filter port.
async fn serve_admin(listener: TcpListener, admin: Admin, mut stop: watch::Receiver<bool>) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(ADMIN_IDLE_TIMEOUT);
    let router = TowerToHyperService::new(admin.router());
    let places = Arc::new(Semaphore::new(MOST_ADMIN_CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned();
        let accepted = tokio::select! {
            // An error means that the server is gone, which is a reason to stop as well.
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        match accepted {
            (place, Ok((stream, _))) => {
                let connection = server.serve_connection(TokioIo::new(stream), router.clone());
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection to the admin port ended badly");
                    }
                    drop(place);
                });
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "a connection to the admin port cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn keep_house(filter: Arc<Filter>) {
    let mut upkeep = tokio::time::interval(UPKEEP);
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            _ = upkeep.tick() => filter.upkeep(),
            _ = sweep.tick() => {
                let filter = filter.clone();
                // Off the threads that answer: it looks at every entry.
                let swept = tokio::task::spawn_blocking(move || filter.sweep()).await;
                if swept.is_err() {
                    tracing::error!("a sweep broke off");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PREFIX;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn an_upstream_that_leads_back_here_is_found_although_it_did_not_answer_at_first() {
        let place = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("http://{}", place.local_addr().unwrap());
        let settings = [
            ("UPSTREAM_URL", upstream.as_str()),
            ("LISTEN", "127.0.0.1:0"),
            ("ADMIN_LISTEN", "127.0.0.1:0"),
        ];
        let pairs = settings.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let server = Server::bind(Config::from_pairs(pairs).unwrap())
            .await
            .unwrap();
        let (filter, address) = (server.filter.clone(), server.filter_addr());
        let running = tokio::spawn(server.run(std::future::pending()));

        // The first connection is closed at once; those after it go to the filter port.
        drop(place.accept().await.unwrap());
        let (mut client, _) = place.accept().await.unwrap();
        let mut back = TcpStream::connect(address).await.unwrap();
        // Ends with an error as soon as one of them closes.
        let _ = tokio::time::timeout(
            Duration::from_secs(5),
            tokio::io::copy_bidirectional(&mut client, &mut back),
        )
        .await;

        assert!(filter.looped());
        running.abort();
    }

    #[tokio::test]
    async fn an_admin_client_that_never_ends_its_request_keeps_nobody_from_stopping() {
        let settings = [
            ("UPSTREAM_URL", "http://127.0.0.1:1"),
            ("LISTEN", "127.0.0.1:0"),
            ("ADMIN_LISTEN", "127.0.0.1:0"),
        ];
        let pairs = settings.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let server = Server::bind(Config::from_pairs(pairs).unwrap())
            .await
            .unwrap();
        let admin = server.admin_addr();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let mut client = TcpStream::connect(admin).await.unwrap();
        client
            .write_all(b"GET /health/live HTTP/1.1\r\nHo")
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;

        stop.send(()).unwrap();

        let ended = tokio::time::timeout(Duration::from_secs(10), running).await;
        assert!(ended.unwrap().unwrap().is_ok());
    }
}
