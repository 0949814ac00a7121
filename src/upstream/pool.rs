//! Connections to the auth module: made, kept while they rest, given up when they are old.
//!
//! Unbounded on purpose: the auth module, asked by us, asks Okapi, which asks us, so a call that waits for a place in
//! a small pool may be the one that the others wait for. Knows nothing of what travels on a connection.

use super::UpstreamError;
use super::restoring::{NextHead, Restoring};
use crate::body::Body;
use crate::config::UpstreamUrl;
use crate::metrics::Metrics;
use crate::tls::{self, TlsError};
use http::Uri;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tower_service::Service;

/// More header fields than any Okapi sends: hyper stops at 100 unless told otherwise (Vert.x has no such limit).
const MOST_HEADERS: usize = 1_024;
/// Bytes of an answer's head that are read at the most: eight times what Okapi would accept.
const LARGEST_HEAD: usize = 64 * 1024;

/// How connections are made and how long they are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolPolicy {
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) max_age: Duration,
}

/// A connection that can carry one request now.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Body>,
    /// Whether it has carried one before, so that it may have died since.
    pub(super) used: bool,
    pub(super) next_head: NextHead,
    born: Instant,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

/// The pool.
pub(super) struct Pool {
    policy: PoolPolicy,
    target: Uri,
    connector: HttpsConnector<HttpConnector>,
    idle: Mutex<VecDeque<(Instant, Connection)>>,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(
        url: &UpstreamUrl,
        ca_file: Option<&Path>,
        policy: PoolPolicy,
        metrics: Arc<Metrics>,
    ) -> Result<Self, TlsError> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        let https = url.scheme == http::uri::Scheme::HTTPS;
        let tls = tls::client_config(https, ca_file, "AUTH_SIDECAR_UPSTREAM_CA_FILE")?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let target = Uri::builder()
            .scheme(url.scheme.clone())
            .authority(url.authority.clone())
            .path_and_query("/")
            .build()
            .expect("scheme, authority and path make a URI");
        Ok(Self {
            policy,
            target,
            connector,
            idle: Mutex::default(),
            metrics,
        })
    }

    /// A connection that rested, the latest used first, if one is still good.
    pub(super) fn rested(&self) -> Option<Connection> {
        let now = Instant::now();
        let mut idle = self.idle();
        while let Some((since, connection)) = idle.pop_back() {
            let good = connection.sender.is_ready()
                && now < since + self.policy.idle_timeout
                && now < connection.born + self.policy.max_age;
            if good {
                return Some(connection);
            }
        }
        None
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Connection, UpstreamError> {
        let made = tokio::time::timeout(self.policy.connect_timeout, self.make()).await;
        made.unwrap_or(Err(UpstreamError::ConnectTimeout))
    }

    async fn make(&self) -> Result<Connection, UpstreamError> {
        let mut connector = self.connector.clone();
        std::future::poll_fn(|context| connector.poll_ready(context))
            .await
            .map_err(UpstreamError::Connect)?;
        let io = connector
            .call(self.target.clone())
            .await
            .map_err(UpstreamError::Connect)?;
        let next_head = NextHead::default();
        let (sender, connection) = http1::Builder::new()
            .title_case_headers(true)
            .max_headers(MOST_HEADERS)
            .max_header_size(LARGEST_HEAD)
            .handshake(Restoring::new(io, next_head.clone()))
            .await
            .map_err(UpstreamError::from_hyper)?;
        let metrics = self.metrics.clone();
        metrics.upstream_connected();
        tokio::spawn(async move {
            // Its error is also the error of the request that was on it.
            let _ = connection.await;
            metrics.upstream_disconnected();
        });
        Ok(Connection {
            sender,
            used: false,
            next_head,
            born: Instant::now(),
        })
    }

    /// Takes a connection back as soon as its answer has been read to the end; one that broke is dropped.
    pub(super) fn give_back(self: &Arc<Self>, mut connection: Connection) {
        connection.used = true;
        if connection.sender.is_ready() {
            self.rest(connection);
            return;
        }
        if connection.sender.is_closed() {
            return;
        }
        let pool = self.clone();
        tokio::spawn(async move {
            if connection.sender.ready().await.is_ok() {
                pool.rest(connection);
            }
        });
    }

    /// Closes connections that rested too long. To be called about every second.
    pub(super) fn close_idle(&self) {
        let now = Instant::now();
        let idle_timeout = self.policy.idle_timeout;
        self.idle().retain(|(since, connection)| {
            now < *since + idle_timeout && !connection.sender.is_closed()
        });
    }

    fn rest(&self, connection: Connection) {
        let now = Instant::now();
        if now < connection.born + self.policy.max_age {
            self.idle().push_back((now, connection));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<(Instant, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
