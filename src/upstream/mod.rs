//! Asks the auth module: hyper's own client, targets byte for byte, values as bytes, names in Title-Case.
//!
//! What may not enter: the cache; anything that rewrites a request. A client that resolves `..` or `\` turns
//! `/foo/..\_\tenant` into `/_/tenant`, which mod-authtoken waves through, so no URL type stands between: the request
//! target goes up as hyper read it. Of the headers only the fixed list of connection headers stays here.

mod pool;
mod restoring;

pub use crate::tls::TlsError;

use crate::body::Body;
use crate::config::Config;
use crate::decision::Answer;
use crate::headers;
use crate::metrics::{Call, FailureCause, Metrics, Retry};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, request};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use pool::{Connection, Pool, PoolPolicy};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The largest body of a filter answer; mod-authtoken's are a sentence.
const LARGEST_ANSWER: usize = 1 << 20;
/// Between two tries to connect while a module starts.
const CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The connection could not be made.
    #[error("cannot connect")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was not made in time.
    #[error("no connection in time")]
    ConnectTimeout,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The connection ended before the answer did.
    #[error("the connection ended before the answer did")]
    Closed(#[source] hyper::Error),
    /// The answer is no HTTP/1.1.
    #[error("the answer is no HTTP")]
    Protocol(#[source] hyper::Error),
    /// The answer is 101, though nothing that goes up asks for another protocol.
    #[error("the answer switches to another protocol")]
    Switched,
    /// The answer is larger than anybody would accept.
    #[error("the answer is too large")]
    TooLarge,
    /// This process is stopping and cannot wait any longer.
    #[error("stopping")]
    Drained,
}

impl UpstreamError {
    /// The cause for metrics and logs.
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Connect(_) => FailureCause::Connect,
            Self::ConnectTimeout => FailureCause::ConnectTimeout,
            Self::Timeout => FailureCause::Timeout,
            Self::Closed(_) => FailureCause::Closed,
            Self::Protocol(_) | Self::Switched => FailureCause::Protocol,
            Self::TooLarge => FailureCause::TooLarge,
            Self::Drained => FailureCause::Drained,
        }
    }

    fn from_hyper(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            Self::TooLarge
        } else if error.is_parse() {
            Self::Protocol(error)
        } else {
            Self::Closed(error)
        }
    }
}

/// The auth module, as the filter needs it: [`Upstream`], or one that a test has in its own memory.
pub trait AuthModule: fmt::Debug + Send + Sync + 'static {
    /// What goes into `Host`.
    fn host(&self) -> &HeaderValue;

    /// Asks a filter call and awaits the whole answer.
    fn ask(&self, head: &Head) -> impl Future<Output = Result<Answer, UpstreamError>> + Send;

    /// Passes a request on and its answer back, both as streams; waits for the answer's head only.
    fn relay(
        &self,
        parts: &request::Parts,
        body: Body,
        manner: Manner,
    ) -> impl Future<Output = Result<Response<Body>, UpstreamError>> + Send;
}

/// The head of a request that may be sent more than once.
#[derive(Clone)]
pub struct Head {
    /// Its method.
    pub method: Method,
    /// Its target, as it came.
    pub target: Uri,
    /// Its headers, as they go up.
    pub headers: HeaderMap,
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl Head {
    /// The head that goes up for a request's head: without those headers that are not passed on.
    pub fn new(method: &Method, target: &Uri, headers: &HeaderMap, host: &HeaderValue) -> Self {
        let mut outgoing = HeaderMap::with_capacity(headers.len() + 1);
        for (name, value) in headers {
            if !headers::stays_here(name.as_str()) {
                outgoing.append(name, value.clone());
            }
        }
        outgoing.insert(HOST, host.clone());
        Self {
            method: method.clone(),
            target: target.clone(),
            headers: outgoing,
        }
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::Empty);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// How a call that is not shared is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// A filter call without a body: the filter's timeout, and once more on a fresh connection.
    Filter,
    /// Anything else: the pass-through timeout, asked once.
    Other,
    /// The tenant interface: as other calls, and the connect is tried for as long as a module may take to start.
    Tenant,
}

/// The way to the auth module.
#[derive(Clone)]
pub struct Upstream {
    pool: Arc<Pool>,
    host: HeaderValue,
    timeout: Duration,
    passthrough_timeout: Duration,
    connect_retry: Duration,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Upstream {
    /// Prepares the way; connects to nothing yet.
    ///
    /// # Errors
    /// [`TlsError`] if the upstream is https and its trust anchors cannot be had.
    ///
    /// # Panics
    /// Never: an authority is a header value.
    pub fn new(config: &Config, metrics: Arc<Metrics>) -> Result<Self, TlsError> {
        let policy = PoolPolicy {
            connect_timeout: config.connect_timeout,
            idle_timeout: config.pool_idle_timeout,
            max_age: config.connection_max_age,
        };
        let pool = Pool::new(
            &config.upstream_url,
            config.ca_file.as_deref(),
            policy,
            metrics.clone(),
        )?;
        let host = HeaderValue::from_str(config.upstream_url.authority.as_str())
            .expect("an authority is a header value");
        Ok(Self {
            pool: Arc::new(pool),
            host,
            timeout: config.upstream_timeout,
            passthrough_timeout: config.passthrough_timeout,
            connect_retry: config.connect_retry,
            metrics,
        })
    }

    async fn ask_once_or_twice(&self, head: &Head) -> Result<Answer, UpstreamError> {
        let connection = match self.pool.rested() {
            Some(connection) => connection,
            None => self.pool.connect().await?,
        };
        let deadline = Instant::now() + self.timeout;
        let used = connection.used;
        match self.exchange(connection, head.request(), deadline).await {
            Err(UpstreamError::Closed(_)) if used => {
                self.metrics.upstream_retried(Retry::Pooled);
                let connection = self.pool.connect().await?;
                let response = self.exchange(connection, head.request(), deadline).await?;
                collect(response, &head.method, deadline).await
            }
            response => collect(response?, &head.method, deadline).await,
        }
    }

    async fn relay_in(
        &self,
        parts: &request::Parts,
        body: Body,
        manner: Manner,
    ) -> Result<Response<Body>, UpstreamError> {
        let head = Head::new(&parts.method, &parts.uri, &parts.headers, &self.host);
        let response = match manner {
            Manner::Filter => {
                let connection = match self.pool.rested() {
                    Some(connection) => connection,
                    None => self.pool.connect().await?,
                };
                let deadline = Instant::now() + self.timeout;
                let used = connection.used;
                match self.exchange(connection, head.request(), deadline).await {
                    Err(UpstreamError::Closed(_)) if used => {
                        self.metrics.upstream_retried(Retry::Pooled);
                        let connection = self.pool.connect().await?;
                        self.exchange(connection, head.request(), deadline).await?
                    }
                    response => response?,
                }
            }
            // What cannot be asked twice never travels on a connection that may have died while it rested.
            Manner::Other => {
                let connection = self.pool.connect().await?;
                self.pass(connection, &head, body).await?
            }
            Manner::Tenant => {
                let connection = self.connect_while_starting().await?;
                self.pass(connection, &head, body).await?
            }
        };
        let (mut parts, body) = response.into_parts();
        drop_connection_headers(&mut parts.headers);
        Ok(Response::from_parts(parts, Body::from(body)))
    }

    async fn pass(
        &self,
        connection: Connection,
        head: &Head,
        body: Body,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let mut request = head.request();
        if !body.is_end_stream() && body.size_hint().exact().is_none() {
            // hyper drops a streamed body of GET, HEAD and CONNECT unless the headers say that there is one.
            let chunked = HeaderValue::from_static("chunked");
            request.headers_mut().insert(TRANSFER_ENCODING, chunked);
        }
        *request.body_mut() = body;
        let deadline = Instant::now() + self.passthrough_timeout;
        self.exchange(connection, request, deadline).await
    }

    /// Okapi takes a refused connection for a module that is still starting and tries again; behind our open port it
    /// cannot see that, so we try for it.
    async fn connect_while_starting(&self) -> Result<Connection, UpstreamError> {
        let give_up = Instant::now() + self.connect_retry;
        loop {
            match self.pool.connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() + CONNECT_PAUSE >= give_up => return Err(error),
                Err(_) => {
                    self.metrics.upstream_retried(Retry::Connect);
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        request: Request<Body>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, UpstreamError> {
        if crate::target::holds(request.uri()) {
            connection.next_head.has_stand_ins();
        }
        let response = tokio::time::timeout_at(deadline, connection.sender.send_request(request))
            .await
            .map_err(|_| UpstreamError::Timeout)?
            .map_err(UpstreamError::from_hyper)?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(UpstreamError::Switched);
        }
        self.pool.give_back(connection);
        Ok(response)
    }

    /// Asks the auth module's health route with a probe header, on a connection of its own.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn probe(&self, probe: &HeaderValue) -> Result<StatusCode, UpstreamError> {
        let mut headers = HeaderMap::new();
        headers.insert(headers::PROBE, probe.clone());
        let target = Uri::from_static("/admin/health");
        let head = Head::new(&Method::GET, &target, &headers, &self.host);
        let connection = self.pool.connect().await?;
        let response = self
            .exchange(connection, head.request(), Instant::now() + self.timeout)
            .await?;
        Ok(response.status())
    }

    /// Closes connections that rested too long. To be called about every second.
    pub fn close_idle(&self) {
        self.pool.close_idle();
    }
}

/// Each answer and each failure is counted here.
impl AuthModule for Upstream {
    fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Within the filter's timeout from when a connection is had.
    async fn ask(&self, head: &Head) -> Result<Answer, UpstreamError> {
        let began = Instant::now();
        let answer = self.ask_once_or_twice(head).await;
        match &answer {
            Ok(answer) => self.metrics.upstream_answered(
                Call::Filter,
                answer.status.as_u16(),
                began.elapsed(),
            ),
            Err(error) => self.metrics.upstream_failed(error.cause()),
        }
        answer
    }

    async fn relay(
        &self,
        parts: &request::Parts,
        body: Body,
        manner: Manner,
    ) -> Result<Response<Body>, UpstreamError> {
        let began = Instant::now();
        let response = self.relay_in(parts, body, manner).await;
        match &response {
            Ok(response) => {
                self.metrics.upstream_answered(
                    Call::Passthrough,
                    response.status().as_u16(),
                    began.elapsed(),
                );
            }
            Err(error) => self.metrics.upstream_failed(error.cause()),
        }
        response
    }
}

/// Reads an answer to its end.
async fn collect(
    response: Response<Incoming>,
    method: &Method,
    deadline: Instant,
) -> Result<Answer, UpstreamError> {
    let (mut parts, body) = response.into_parts();
    drop_connection_headers(&mut parts.headers);
    if *method != Method::HEAD {
        parts.headers.remove(CONTENT_LENGTH);
    }
    let body = tokio::time::timeout_at(deadline, Limited::new(body, LARGEST_ANSWER).collect())
        .await
        .map_err(|_| UpstreamError::Timeout)?;
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(UpstreamError::TooLarge),
        Err(error) => match error.downcast::<hyper::Error>() {
            Ok(error) => return Err(UpstreamError::from_hyper(*error)),
            Err(_) => return Err(UpstreamError::TooLarge),
        },
    };
    Ok(Answer {
        status: parts.status,
        headers: parts.headers,
        body,
    })
}

fn drop_connection_headers(headers: &mut HeaderMap) {
    let dropped: Vec<_> = headers
        .keys()
        .filter(|name| headers::hop_by_hop(name.as_str()))
        .cloned()
        .collect();
    for name in dropped {
        headers.remove(name);
    }
}

/// An answer whose head was streamed and whose body is a sentence: read whole, so that the sentence can be looked at.
///
/// # Errors
/// [`UpstreamError`], if the body breaks off or does not come in time.
pub async fn read_short(
    body: Body,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, UpstreamError> {
    let read = tokio::time::timeout(timeout, Limited::new(body, limit).collect())
        .await
        .map_err(|_| UpstreamError::Timeout)?;
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => match error.downcast::<hyper::Error>() {
            Ok(error) => Err(UpstreamError::from_hyper(*error)),
            Err(_) => Err(UpstreamError::TooLarge),
        },
    }
}
