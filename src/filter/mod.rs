//! The filter port's handler: parse, key, look up, answer; else ask, judge, store, answer.
//!
//! Joins the rooms and holds no rules of its own: what may be answered from the cache is `key`'s to say, what may be
//! kept `decision`'s, what is void `invalidation`'s. A hit is answered at once, in the caller's own poll, without a
//! box, a lock that anybody else may hold for long, or a wait, and mostly before the HTTP library has seen it. Everything
//! else is a future of its own.

mod announce;
mod miss;
mod reply;
mod trouble;

use crate::body::{Beginning, Body};
use crate::cache::flight::Flights;
use crate::cache::{Cache, Caller, Eviction, Records};
use crate::clock::{Clock, Now};
use crate::config::Config;
use crate::decision::{Asker, Decision, Freshness, LifePolicy};
use crate::headers;
use crate::invalidation::{Revocations, Subject, event};
use crate::key::{self, Bypass, FilterRequest, KeyScope, Question, RequestLine};
use crate::metrics::{FailureCause, Levels, Metrics, Outcome, Probe};
use crate::report::{Call, Report};
use crate::upstream::{AuthModule, Manner, Upstream, UpstreamError};
use crate::wire;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, request};
use http_body::Body as _;
use miss::Landed;
use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use trouble::Seldom;

/// A chunked body that is not known to be empty after this is treated as a body.
const FIRST_CHUNK: Duration = Duration::from_secs(1);
/// Between two probes of an upstream that does not answer yet.
const PROBE_PAUSE: Duration = Duration::from_secs(5);
/// The longest refusal that is read on its way through, to see whom it concerns.
const LONGEST_REFUSAL: u64 = 1_024;

/// The handler and all it joins.
pub struct Filter<U = Upstream> {
    upstream: U,
    cache: Cache,
    flights: Arc<Flights<Landed>>,
    revocations: Revocations,
    metrics: Arc<Metrics>,
    clock: Clock,
    life: LifePolicy,
    key_scope: KeyScope,
    listen: bool,
    refusal_timeout: Duration,
    probe: HeaderValue,
    looped: AtomicBool,
    no_answer: Seldom,
    probes: [Seldom; 2],
    report: Option<Report>,
    give_up: watch::Receiver<bool>,
}

impl<U: AuthModule> fmt::Debug for Filter<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("upstream", &self.upstream)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// The way a request gets its answer: at once, or later.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the answer that is there, which is passed on at once"
)]
pub enum Answering {
    /// From the cache.
    Now(Option<Response<Body>>),
    /// Everything else.
    Later(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::Later(_) => "Later",
        })
    }
}

impl Answering {
    /// 400: the request target has a fragment, which would not go up as it came.
    pub fn bad_target() -> Self {
        Self::Now(Some(reply::bad_target()))
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(response) => Poll::Ready(Ok(response
                .take()
                .expect("a finished future is not polled again"))),
            Self::Later(future) => future.as_mut().poll(context).map(Ok),
        }
    }
}

/// A decision that may answer.
struct Found {
    caller: Arc<Caller>,
    decision: Arc<Decision>,
    freshness: Freshness,
}

thread_local! {
    /// The two records of the request at hand: written anew for each, so that no look-up allocates.
    static RECORDS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl<U: AuthModule> Filter<U> {
    /// Joins the rooms.
    ///
    /// # Panics
    /// Never: hexadecimal digits make a header value.
    ///
    /// `give_up` turns true when whoever still waits for upstream must be told that it is over.
    pub fn new(
        config: &Config,
        upstream: U,
        metrics: Arc<Metrics>,
        clock: Clock,
        give_up: watch::Receiver<bool>,
    ) -> Self {
        // A user's row for every four kilobytes of cache: more than its callers and decisions take.
        let most_users = usize::try_from(config.cache_max_bytes / 4096).unwrap_or(usize::MAX);
        let random: u64 = ahash::RandomState::new().hash_one(std::process::id());
        Self {
            upstream,
            cache: Cache::new(config.cache_max_bytes),
            flights: Arc::default(),
            revocations: Revocations::new(config.memory, most_users),
            metrics,
            clock,
            life: config.life,
            key_scope: config.key_scope,
            listen: config.revocation_listen,
            refusal_timeout: config.upstream_timeout,
            probe: HeaderValue::from_str(&format!("{random:016x}")).expect("hexadecimal digits"),
            looped: AtomicBool::new(false),
            no_answer: Seldom::default(),
            probes: Default::default(),
            report: Report::new(config.request_report),
            give_up,
        }
    }

    /// Answers a request.
    pub fn call(self: &Arc<Self>, request: Request<Body>) -> Answering {
        let began = Instant::now();
        let parsed = self.parse(request.method(), request.uri(), request.headers());
        if parsed.bypass.is_none()
            && request.body().is_end_stream()
            && parsed.probe.is_none()
            && let Some(found) = self.hit(request.method(), request.uri(), &parsed, began, began)
        {
            return Answering::Now(Some(self.answer_hit(&found, &parsed.question, began)));
        }
        let filter = self.clone();
        Answering::Later(Box::pin(async move { filter.later(request, began).await }))
    }

    /// Answers a request that the HTTP library has not seen if it is a plain hit, which means nothing beside its answer:
    /// appends the answer to `wire` and tells so. The request must have no body, and nothing for the connection.
    pub fn answer_at_once(
        &self,
        head: &wire::Head<'_, '_>,
        began: Instant,
        wire: &mut Vec<u8>,
    ) -> bool {
        if self.life.ttl.is_zero() {
            return false;
        }
        let Some(question) = key::at_a_glance(head, self.upstream.host()) else {
            return false;
        };
        let line = RequestLine::of_head(head);
        if self.listen && event::announced(line).is_some() {
            return false;
        }
        let Some(found) = self.find(line, &question, self.clock.at(began)) else {
            return false;
        };
        if found.freshness != Freshness::Fresh {
            return false;
        }
        found.decision.write_answer(Asker::of(&question), wire);
        let took = began.elapsed();
        self.metrics.hit(found.caller.label, took);
        self.note(|| Call {
            line,
            id: head.field(&headers::REQUEST_ID),
            outcome: Outcome::Hit,
            began,
            took,
        });
        true
    }

    fn parse<'a>(
        &self,
        method: &Method,
        target: &Uri,
        headers: &'a HeaderMap,
    ) -> FilterRequest<'a> {
        let mut parsed = FilterRequest::parse(method, target, headers, self.upstream.host());
        if self.life.ttl.is_zero() {
            parsed.bypass = parsed.bypass.or(Some(Bypass::TtlZero));
        }
        parsed
    }

    /// The decision that may answer at `looked`, if there is one; what the request announces is told.
    fn hit(
        self: &Arc<Self>,
        method: &Method,
        target: &Uri,
        parsed: &FilterRequest<'_>,
        began: Instant,
        looked: Instant,
    ) -> Option<Found> {
        let now = self.clock.at(looked);
        let found = self.find(RequestLine::of(method, target), &parsed.question, now)?;
        match found.freshness {
            Freshness::Fresh => {}
            Freshness::Late => self.refresh_ahead(method, target, parsed, &found, now),
            Freshness::Stale | Freshness::Gone => return None,
        }
        self.let_in(method, target, parsed, began);
        Some(found)
    }

    /// What a hit means beside its answer.
    fn let_in(&self, method: &Method, target: &Uri, parsed: &FilterRequest<'_>, began: Instant) {
        self.listen_to(method, target, parsed, StatusCode::ACCEPTED);
        self.note(|| Call {
            line: RequestLine::of(method, target),
            id: parsed.request_id(),
            outcome: Outcome::Hit,
            began,
            took: began.elapsed(),
        });
    }

    /// The answer of a decision that was found.
    fn answer_hit(&self, found: &Found, question: &Question<'_>, began: Instant) -> Response<Body> {
        let response = reply::hit(&found.decision, question);
        self.metrics.hit(found.caller.label, began.elapsed());
        response
    }

    /// Adds the call to the report of what requests cost, if there is one.
    fn note<'a>(&self, call: impl FnOnce() -> Call<'a>) {
        if let Some(report) = &self.report {
            report.note(&call());
        }
    }

    /// What requests cost in auth calls; none unless it is switched on.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// The stored decision of this question, if no revocation made it void.
    fn find(&self, line: RequestLine<'_>, question: &Question<'_>, now: Now) -> Option<Found> {
        RECORDS.with_borrow_mut(|(caller, demand)| {
            question.write_caller(caller);
            question.write_demand(demand, self.key_scope, line);
            let (caller, decision) = self.cache.find(Records { caller, demand })?;
            let good = self.revocations.good(&caller.scopes, decision.asked());
            good.then(|| Found {
                freshness: decision.freshness(now, &self.life),
                caller,
                decision,
            })
        })
    }

    /// Answers what is no hit, or not known to be one before its body is seen.
    async fn later(self: Arc<Self>, request: Request<Body>, began: Instant) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let parsed = self.parse(&parts.method, &parts.uri, &parts.headers);
        if let Some(probe) = parsed.probe {
            return self.probed(probe);
        }
        if let Some(reason) = parsed.bypass {
            return self.pass_through(&parts, body, reason, began).await;
        }
        match first_chunk(body).await {
            FirstChunk::Body(body) => self.pass_through(&parts, body, Bypass::Body, began).await,
            FirstChunk::Broken => {
                self.metrics.bypassed(Bypass::Body, began.elapsed());
                reply::bad_body()
            }
            FirstChunk::Empty { seen_late } => {
                // The body was not known to be empty when the request came; time has passed since.
                let looked = Instant::now();
                if seen_late
                    && let Some(found) = self.hit(&parts.method, &parts.uri, &parsed, began, looked)
                {
                    return self.answer_hit(&found, &parsed.question, began);
                }
                self.miss(&parts, &parsed, began).await
            }
        }
    }

    /// Passes a request through: alone, unstored, streamed both ways.
    async fn pass_through(
        &self,
        parts: &request::Parts,
        body: Body,
        reason: Bypass,
        began: Instant,
    ) -> Response<Body> {
        let manner = manner(parts, &body);
        let relayed = tokio::select! {
            relayed = self.upstream.relay(parts, body, manner) => relayed,
            () = self.must_give_up() => Err(UpstreamError::Drained),
        };
        let response = match relayed {
            Ok(response) => self.look_at_refusal(parts, response, reason).await,
            Err(error) => self.failed(&error),
        };
        let parsed = self.parse(&parts.method, &parts.uri, &parts.headers);
        self.listen_to(&parts.method, &parts.uri, &parsed, response.status());
        let took = began.elapsed();
        self.metrics.bypassed(reason, took);
        self.note(|| Call {
            line: RequestLine::of(&parts.method, &parts.uri),
            id: parsed.request_id(),
            outcome: Outcome::Bypass,
            began,
            took,
        });
        response
    }

    /// Reads a refusal that passes through if it is a sentence, since it may concern what is stored.
    async fn look_at_refusal(
        &self,
        parts: &request::Parts,
        response: Response<Body>,
        reason: Bypass,
    ) -> Response<Body> {
        let status = response.status();
        if status.is_server_error() || status == StatusCode::ACCEPTED || !reason.judges_the_token()
        {
            return response;
        }
        let short = response
            .body()
            .size_hint()
            .exact()
            .is_some_and(|length| length <= LONGEST_REFUSAL);
        if !short {
            self.refused(parts, reason, status, b"");
            return response;
        }
        let (head, body) = response.into_parts();
        match crate::upstream::read_short(body, 2 * 1_024, self.refusal_timeout).await {
            Ok(body) => {
                self.refused(parts, reason, status, &body);
                Response::from_parts(head, Body::from(body))
            }
            Err(error) => {
                self.metrics.upstream_failed(error.cause());
                self.failed(&error)
            }
        }
    }

    /// Says once, at the edge, what went wrong, and makes the answer.
    fn failed(&self, error: &UpstreamError) -> Response<Body> {
        let cause = error.cause();
        if cause == FailureCause::Drained {
            self.metrics.upstream_failed(cause);
        }
        self.note_failure(error);
        reply::failure(cause)
    }

    fn note_failure(&self, error: &UpstreamError) {
        if let Some(more) = self.no_answer.due(self.clock.now().mono) {
            let source = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(
                cause = error.cause().as_str(),
                source,
                more,
                "no answer from the auth module"
            );
        }
    }

    /// Ends when whoever still waits must be told that it is over.
    async fn must_give_up(&self) {
        let mut give_up = self.give_up.clone();
        if give_up.wait_for(|over| *over).await.is_err() {
            // Nobody is left who could say so.
            std::future::pending::<()>().await;
        }
    }

    fn probed(&self, probe: &[u8]) -> Response<Body> {
        let now = self.clock.now().mono;
        let [own, foreign] = &self.probes;
        let whose = if probe == self.probe.as_bytes() {
            self.looped.store(true, Ordering::Relaxed);
            if let Some(more) = own.due(now) {
                tracing::error!(
                    more,
                    "AUTH_SIDECAR_UPSTREAM_URL leads back to this process: it will not become ready"
                );
            }
            Probe::Own
        } else {
            if let Some(more) = foreign.due(now) {
                tracing::error!(
                    more,
                    "another auth sidecar takes this filter port for mod-authtoken: its upstream address is wrong"
                );
            }
            Probe::Foreign
        };
        self.metrics.loop_detected(whose);
        reply::loop_detected()
    }

    /// Whether upstream's address was found to lead back here.
    pub fn looped(&self) -> bool {
        self.looped.load(Ordering::Relaxed)
    }

    /// Removes what is of no use any more. To be called now and then, where it may take its time.
    pub fn sweep(&self) {
        let now = self.clock.now();
        let removed = self.cache.sweep(|caller, decision| {
            if !self.revocations.good(&caller.scopes, decision.asked()) {
                return Some(Eviction::Revoked);
            }
            match decision.freshness(now, &self.life) {
                Freshness::Gone => Some(Eviction::Expired),
                Freshness::Fresh | Freshness::Late | Freshness::Stale => None,
            }
        });
        for (cause, how_many) in removed {
            self.metrics.evicted(cause, how_many);
        }
    }

    /// What the gauges show.
    pub fn levels(&self) -> Levels {
        Levels {
            cache: self.cache.size(),
            capacity_evictions: self.cache.capacity_evictions(),
            in_flight: self.flights.len(),
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The cache, for those who look at it from the admin port.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The revocations, for those who purge from the admin port.
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Whether a decision may still answer.
    pub fn is_live(&self, caller: &Caller, decision: &Decision, now: Now) -> bool {
        self.revocations.good(&caller.scopes, decision.asked())
            && matches!(
                decision.freshness(now, &self.life),
                Freshness::Fresh | Freshness::Late
            )
    }

    fn subject<'a>(parsed: &FilterRequest<'a>, user: Option<&'a str>) -> Subject<'a> {
        Subject {
            tenant: parsed.question.tenant(),
            user,
        }
    }
}

impl Filter {
    /// Asks upstream's health with a probe of our own, to find out whether its address leads back here. Asks until there
    /// is an answer: an address that leads here through a Service is refused until this process is ready.
    pub async fn probe_upstream(&self) {
        let mut said = false;
        loop {
            match self.upstream.probe(&self.probe).await {
                Ok(status) if status == StatusCode::LOOP_DETECTED => {
                    tracing::error!(
                        "AUTH_SIDECAR_UPSTREAM_URL leads to the filter port of an auth sidecar, not to mod-authtoken"
                    );
                    return;
                }
                Ok(status) => {
                    tracing::info!(status = status.as_u16(), "the auth module answers");
                    return;
                }
                Err(error) if !said => {
                    said = true;
                    tracing::warn!(
                        cause = error.cause().as_str(),
                        "the auth module does not answer yet; requests will be tried all the same"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }

    /// Closes idle upstream connections and drains histograms. To be called about every second.
    pub fn upkeep(&self) {
        self.upstream.close_idle();
        self.metrics.upkeep();
    }
}

/// How a request that is passed through is asked.
fn manner(parts: &request::Parts, body: &Body) -> Manner {
    if parts.uri.path().starts_with("/_/tenant") {
        return Manner::Tenant;
    }
    let filter_form = parts
        .headers
        .contains_key(crate::headers::MODULE_PERMISSIONS)
        || parts.headers.contains_key(crate::headers::FILTER);
    if filter_form && body.is_end_stream() {
        Manner::Filter
    } else {
        Manner::Other
    }
}

/// What is known of a body once its beginning was seen.
enum FirstChunk {
    Empty { seen_late: bool },
    Body(Body),
    Broken,
}

/// Okapi copies a client's `Transfer-Encoding: chunked` to a filter call without body: it ends with its first chunk.
async fn first_chunk(mut body: Body) -> FirstChunk {
    if body.is_end_stream() {
        return FirstChunk::Empty { seen_late: false };
    }
    if body.size_hint().exact().is_some() {
        return FirstChunk::Body(body);
    }
    match tokio::time::timeout(FIRST_CHUNK, body.beginning()).await {
        Ok(Beginning::End) => FirstChunk::Empty { seen_late: true },
        // Passed on, what broke off would end like a body that is empty and whole.
        Ok(Beginning::Broken) => FirstChunk::Broken,
        // Not there yet: the auth module is asked, and sees what comes of it.
        Ok(Beginning::Data) | Err(_) => FirstChunk::Body(body),
    }
}
