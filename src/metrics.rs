//! Every metric's name, help, labels and buckets, and a typed function to record each.
//!
//! No other room spells a metric's name. Each server has a recorder of its own, so that tests can run many; handles
//! are made once, because looking one up by labels costs more than the whole look-up of a decision. The trap: the
//! recorder keeps every histogram sample until somebody drains it, so [`Metrics::upkeep`] must be driven.

use crate::cache::{Eviction, Size};
use crate::decision::NotStored;
use crate::invalidation::event::Event;
use crate::invalidation::hold::Kind;
use crate::key::Bypass;
use metrics::{Counter, Gauge, Histogram, Unit, with_local_recorder};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How a request was answered, in RFC 9211's words where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// From the cache.
    Hit,
    /// By asking the auth module.
    Miss,
    /// By somebody else's call that was on its way.
    Collapsed,
    /// A background call late in a decision's life; no request waited for it.
    Refreshed,
    /// From the cache past the decision's life, since upstream is down and `CACHE_STALE_IF_ERROR` allows it.
    Stale,
    /// Passed through.
    Bypass,
}

impl Outcome {
    /// The outcome as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Collapsed => "collapsed",
            Self::Refreshed => "refreshed",
            Self::Stale => "stale",
            Self::Bypass => "bypass",
        }
    }
}

/// Which of the two ways of asking upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// A filter call, whole answer awaited.
    Filter,
    /// Anything else, streamed.
    Passthrough,
}

impl Call {
    const ALL: [Self; 2] = [Self::Filter, Self::Passthrough];

    fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Passthrough => "passthrough",
        }
    }
}

/// Why upstream gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCause {
    /// The connection was refused or could not be made.
    Connect,
    /// It was not made in time.
    ConnectTimeout,
    /// The answer did not come in time.
    Timeout,
    /// The connection ended before or within the answer.
    Closed,
    /// The answer was no HTTP.
    Protocol,
    /// The answer was too large.
    TooLarge,
    /// The process was told to stop meanwhile.
    Drained,
}

impl FailureCause {
    const ALL: [Self; 7] = [
        Self::Connect,
        Self::ConnectTimeout,
        Self::Timeout,
        Self::Closed,
        Self::Protocol,
        Self::TooLarge,
        Self::Drained,
    ];

    /// The cause as a metric label and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::TooLarge => "too_large",
            Self::Drained => "drained",
        }
    }
}

/// Why a call was tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// A pooled connection was dead.
    Pooled,
    /// The auth module is starting: the connection is tried again for its tenant interface.
    Connect,
}

impl Retry {
    const ALL: [Self; 2] = [Self::Pooled, Self::Connect];

    fn as_str(self) -> &'static str {
        match self {
            Self::Pooled => "pooled",
            Self::Connect => "connect",
        }
    }
}

/// Whose probe came in on the filter port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// This process's: upstream's address leads back to it.
    Own,
    /// Another sidecar's.
    Foreign,
}

impl Probe {
    const ALL: [Self; 2] = [Self::Own, Self::Foreign];

    fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Foreign => "foreign",
        }
    }
}

/// What a purge was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purge {
    /// Everything.
    All,
    /// A tenant.
    Tenant,
    /// A user of a tenant.
    User,
}

impl Purge {
    const ALL: [Self; 3] = [Self::All, Self::Tenant, Self::User];

    /// The scope as a metric label and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Tenant => "tenant",
            Self::User => "user",
        }
    }
}

/// Gauges that the rooms themselves know and that are set when somebody looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    /// The cache.
    pub cache: Size,
    /// Decisions evicted for want of room so far.
    pub capacity_evictions: u64,
    /// Calls waiting for upstream.
    pub in_flight: usize,
}

/// A metric label per value of a closed enum.
struct PerLabel<K, M>(HashMap<K, M, ahash::RandomState>);

impl<K: Hash + Eq + Copy, M> PerLabel<K, M> {
    fn new(values: impl IntoIterator<Item = K>, make: impl Fn(K) -> M) -> Self {
        Self(
            values
                .into_iter()
                .map(|value| (value, make(value)))
                .collect(),
        )
    }

    fn with(&self, value: K, record: impl FnOnce(&M)) {
        if let Some(metric) = self.0.get(&value) {
            record(metric);
        }
    }
}

/// All metrics of one server.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    handles: Handles,
    tenants: Tenants,
    /// Running mean of upstream's time for a filter call, in nanoseconds.
    mean_call: AtomicU64,
    /// That mean, once for each hit, in nanoseconds.
    saved: AtomicU64,
}

/// The metrics whose labels are closed enums.
struct Handles {
    hits: Counter,
    hit_seconds: Histogram,
    outcomes: PerLabel<Outcome, (Counter, Histogram)>,
    bypasses: PerLabel<Bypass, Counter>,
    bypass_seconds: Histogram,
    upstream_seconds: PerLabel<Call, Histogram>,
    upstream_answers: PerLabel<&'static str, Counter>,
    upstream_failures: PerLabel<FailureCause, Counter>,
    upstream_retries: PerLabel<Retry, Counter>,
    refreshes: PerLabel<&'static str, Counter>,
    upstream_connections: Gauge,
    stored: Counter,
    not_stored: PerLabel<NotStored, Counter>,
    held: PerLabel<Kind, Counter>,
    evictions: PerLabel<Eviction, Counter>,
    revocations: PerLabel<(Event, &'static str), Counter>,
    purges: PerLabel<Purge, Counter>,
    loops: PerLabel<Probe, Counter>,
    connections: Gauge,
    draining: Gauge,
    ready: Gauge,
    cache_entries: Gauge,
    cache_bytes: Gauge,
    cache_capacity: Gauge,
    cache_callers: Gauge,
    cache_demands: Gauge,
    in_flight: Gauge,
    other_tenants: TenantCounters,
    process: metrics_process::Collector,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Labels are found under a lock, once per caller; a hit finds its counters without one.
struct Tenants {
    labels: Mutex<HashMap<Box<[u8]>, u32, ahash::RandomState>>,
    counters: Box<[OnceLock<TenantCounters>]>,
}

#[derive(Clone)]
struct TenantCounters {
    hits: Counter,
    misses: Counter,
}

/// The label that all tenants beyond the first [`Metrics::new`]'s `most_tenants` share.
const OTHER: &str = "other";

/// Answer times in seconds: a hit takes tens of microseconds, the auth module one to thirty milliseconds; the steps up to
/// a second tell an auth module that is slow from one that hangs.
const ANSWER_BUCKETS: [f64; 14] = [
    0.000_02, 0.000_05, 0.000_1, 0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0,
    10.0,
];
const UPSTREAM_BUCKETS: [f64; 11] = [
    0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0,
];

const REACHES: [&str; 3] = ["user", "tenant", "all"];
const STATUSES: [&str; 5] = ["202", "2xx", "3xx", "4xx", "5xx"];
const SENT: &str = "sent";
const SUPPRESSED: &str = "suppressed";

impl Metrics {
    /// Registers every metric; the first `most_tenants` tenants get a label of their own.
    ///
    /// # Panics
    /// Never: the buckets are not empty.
    pub fn new(most_tenants: usize) -> Self {
        let matcher = |name: &str| Matcher::Full(name.to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(matcher("auth_sidecar_answer_seconds"), &ANSWER_BUCKETS)
            .expect("there are buckets")
            .set_buckets_for_metric(matcher("auth_sidecar_upstream_seconds"), &UPSTREAM_BUCKETS)
            .expect("there are buckets")
            .build_recorder();
        let handles = with_local_recorder(&recorder, || {
            describe();
            Handles::register()
        });
        Self {
            handle: recorder.handle(),
            recorder,
            handles,
            tenants: Tenants {
                labels: Mutex::default(),
                counters: (0..most_tenants).map(|_| OnceLock::new()).collect(),
            },
            mean_call: AtomicU64::new(0),
            saved: AtomicU64::new(0),
        }
    }

    /// A request was answered from the cache.
    pub fn hit(&self, tenant: u32, took: Duration) {
        self.handles.hits.increment(1);
        self.handles.hit_seconds.record(took);
        self.tenant(tenant, |counters| counters.hits.increment(1));
        self.saved
            .fetch_add(self.mean_call.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A filter call was answered in another way than by a hit or a bypass.
    pub fn answered(&self, outcome: Outcome, tenant: u32, took: Duration) {
        self.handles.outcomes.with(outcome, |(count, seconds)| {
            count.increment(1);
            seconds.record(took);
        });
        self.tenant(tenant, |counters| counters.misses.increment(1));
    }

    /// A decision was asked anew in the background.
    pub fn refreshed(&self) {
        self.handles
            .outcomes
            .with(Outcome::Refreshed, |(count, _)| count.increment(1));
    }

    /// A request was passed through.
    pub fn bypassed(&self, reason: Bypass, took: Duration) {
        self.handles
            .bypasses
            .with(reason, |count| count.increment(1));
        self.handles.bypass_seconds.record(took);
    }

    /// Upstream began to answer (or, for a filter call, did answer) with this status after so long.
    pub fn upstream_answered(&self, call: Call, status: u16, took: Duration) {
        self.handles
            .upstream_seconds
            .with(call, |seconds| seconds.record(took));
        let class = match status {
            202 => "202",
            ..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            500.. => "5xx",
        };
        self.handles
            .upstream_answers
            .with(class, |count| count.increment(1));
        if call == Call::Filter {
            self.average(took);
        }
    }

    /// Upstream gave no answer.
    pub fn upstream_failed(&self, cause: FailureCause) {
        self.handles
            .upstream_failures
            .with(cause, |count| count.increment(1));
    }

    /// A call is tried again.
    pub fn upstream_retried(&self, retry: Retry) {
        self.handles
            .upstream_retries
            .with(retry, |count| count.increment(1));
    }

    /// A connection to upstream was opened.
    pub fn upstream_connected(&self) {
        self.handles.upstream_connections.increment(1.0);
    }

    /// A connection to upstream has ended.
    pub fn upstream_disconnected(&self) {
        self.handles.upstream_connections.decrement(1.0);
    }

    /// A call carried the refresh header because of a hold.
    pub fn refresh_sent(&self) {
        self.handles
            .refreshes
            .with(SENT, |count| count.increment(1));
    }

    /// A hold wanted a refresh that could not be sent.
    pub fn refresh_suppressed(&self) {
        self.handles
            .refreshes
            .with(SUPPRESSED, |count| count.increment(1));
    }

    /// A decision was stored.
    pub fn stored(&self) {
        self.handles.stored.increment(1);
    }

    /// An answer was not stored.
    pub fn not_stored(&self, reason: NotStored) {
        self.handles
            .not_stored
            .with(reason, |count| count.increment(1));
    }

    /// An answer was delivered and not stored because of a hold.
    pub fn held(&self, kind: Kind) {
        self.handles.held.with(kind, |count| count.increment(1));
    }

    /// Decisions were removed before anybody asked for them again.
    pub fn evicted(&self, cause: Eviction, how_many: u64) {
        self.handles
            .evictions
            .with(cause, |count| count.increment(how_many));
    }

    /// A revocation; `reach` is `user`, `tenant` or `all`.
    pub fn revoked(&self, event: Event, reach: &'static str) {
        self.handles
            .revocations
            .with((event, reach), |count| count.increment(1));
    }

    /// An operator purged.
    pub fn purged(&self, scope: Purge) {
        self.handles.purges.with(scope, |count| count.increment(1));
    }

    /// A probe came in on the filter port.
    pub fn loop_detected(&self, probe: Probe) {
        self.handles.loops.with(probe, |count| count.increment(1));
    }

    /// A connection to the filter port was accepted.
    pub fn connected(&self) {
        self.handles.connections.increment(1.0);
    }

    /// A connection to the filter port has ended.
    pub fn disconnected(&self) {
        self.handles.connections.decrement(1.0);
    }

    /// The process was told to stop.
    pub fn draining(&self) {
        self.handles.draining.set(1.0);
    }

    /// What readiness is now. Set when somebody looks, like the levels that [`Self::render`] is given.
    pub fn ready(&self, ready: bool) {
        self.handles.ready.set(f64::from(u8::from(ready)));
    }

    /// The label of a tenant, made at its first request while there is room, else that of all others.
    pub fn tenant_label(&self, tenant: &[u8]) -> u32 {
        let mut labels = self
            .tenants
            .labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = labels.get(tenant) {
            return *label;
        }
        let label = labels.len();
        let Some(counters) = self.tenants.counters.get(label) else {
            return u32::MAX;
        };
        let name = String::from_utf8_lossy(tenant).into_owned();
        counters
            .get_or_init(|| with_local_recorder(&self.recorder, || TenantCounters::register(name)));
        let label = u32::try_from(label).unwrap_or(u32::MAX);
        labels.insert(tenant.into(), label);
        label
    }

    /// The label of a tenant that has one, else that of all others. Outsiders' inventions take no place by this.
    pub fn known_tenant(&self, tenant: &[u8]) -> u32 {
        let labels = self
            .tenants
            .labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        labels.get(tenant).copied().unwrap_or(u32::MAX)
    }

    /// Drains what the recorder keeps of histograms. To be called about every second.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The exposition in Prometheus' text format, version 0.0.4.
    pub fn render(&self, levels: &Levels) -> String {
        let handles = &self.handles;
        #[allow(
            clippy::cast_precision_loss,
            reason = "gauges are floats; sizes are far below 2^52"
        )]
        let set = |gauge: &Gauge, value: u64| gauge.set(value as f64);
        set(&handles.cache_entries, levels.cache.decisions);
        set(&handles.cache_bytes, levels.cache.bytes);
        set(&handles.cache_capacity, levels.cache.capacity);
        set(&handles.cache_callers, levels.cache.callers);
        set(&handles.cache_demands, levels.cache.demands);
        set(&handles.in_flight, levels.in_flight as u64);
        handles.evictions.with(Eviction::Capacity, |count| {
            count.absolute(levels.capacity_evictions);
        });
        with_local_recorder(&self.recorder, || handles.process.collect());
        let mut text = self.handle.render();
        text.push_str(&self.render_saved());
        text
    }

    /// The recorder's counters are whole numbers; seconds are not.
    fn render_saved(&self) -> String {
        let saved = Duration::from_nanos(self.saved.load(Ordering::Relaxed)).as_secs_f64();
        format!(
            "# HELP auth_sidecar_time_saved_seconds_total Upstream's mean time for a filter call, once for each hit.\n\
             # TYPE auth_sidecar_time_saved_seconds_total counter\n\
             auth_sidecar_time_saved_seconds_total {saved}\n\n"
        )
    }

    /// Moves the running mean by a thirty-second of the difference; the first call is the mean.
    fn average(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mean = self.mean_call.load(Ordering::Relaxed);
        let next = if mean == 0 {
            took
        } else {
            mean - mean / 32 + took / 32
        };
        self.mean_call.store(next, Ordering::Relaxed);
    }

    fn tenant(&self, label: u32, record: impl FnOnce(&TenantCounters)) {
        let own = self
            .tenants
            .counters
            .get(label as usize)
            .and_then(OnceLock::get);
        record(own.unwrap_or(&self.handles.other_tenants));
    }
}

impl TenantCounters {
    fn register(tenant: String) -> Self {
        Self {
            hits: metrics::counter!("auth_sidecar_tenant_requests_total", "tenant" => tenant.clone(), "outcome" => "hit"),
            misses: metrics::counter!("auth_sidecar_tenant_requests_total", "tenant" => tenant, "outcome" => "miss"),
        }
    }
}

impl Handles {
    fn register() -> Self {
        use metrics::{counter, gauge, histogram};
        let outcome = |outcome: Outcome| {
            (
                counter!("auth_sidecar_requests_total", "outcome" => outcome.as_str(), "reason" => "none"),
                histogram!("auth_sidecar_answer_seconds", "outcome" => outcome.as_str()),
            )
        };
        let (hits, hit_seconds) = outcome(Outcome::Hit);
        let build = gauge!("auth_sidecar_build_info", "version" => env!("CARGO_PKG_VERSION"));
        build.set(1.0);
        let process = metrics_process::Collector::default();
        process.describe();
        let revocations = Event::ALL
            .into_iter()
            .flat_map(|event| REACHES.map(|reach| (event, reach)));
        Self {
            hits,
            hit_seconds,
            outcomes: PerLabel::new(
                [
                    Outcome::Miss,
                    Outcome::Collapsed,
                    Outcome::Refreshed,
                    Outcome::Stale,
                ],
                outcome,
            ),
            bypass_seconds: histogram!("auth_sidecar_answer_seconds", "outcome" => Outcome::Bypass.as_str()),
            bypasses: PerLabel::new(
                Bypass::ALL,
                |reason| counter!("auth_sidecar_requests_total", "outcome" => "bypass", "reason" => reason.as_str()),
            ),
            upstream_seconds: PerLabel::new(
                Call::ALL,
                |call| histogram!("auth_sidecar_upstream_seconds", "kind" => call.as_str()),
            ),
            upstream_answers: PerLabel::new(
                STATUSES,
                |status| counter!("auth_sidecar_upstream_answers_total", "status" => status),
            ),
            upstream_failures: PerLabel::new(
                FailureCause::ALL,
                |cause| counter!("auth_sidecar_upstream_failures_total", "cause" => cause.as_str()),
            ),
            upstream_retries: PerLabel::new(
                Retry::ALL,
                |retry| counter!("auth_sidecar_upstream_retries_total", "cause" => retry.as_str()),
            ),
            refreshes: PerLabel::new(
                [SENT, SUPPRESSED],
                |result| counter!("auth_sidecar_upstream_refreshes_total", "result" => result),
            ),
            upstream_connections: gauge!("auth_sidecar_upstream_connections"),
            stored: counter!("auth_sidecar_stored_total"),
            not_stored: PerLabel::new(
                NotStored::ALL,
                |reason| counter!("auth_sidecar_not_stored_total", "reason" => reason.as_str()),
            ),
            held: PerLabel::new(
                Kind::ALL,
                |kind| counter!("auth_sidecar_held_answers_total", "kind" => kind.as_str()),
            ),
            evictions: PerLabel::new(
                Eviction::ALL,
                |cause| counter!("auth_sidecar_evictions_total", "cause" => cause.as_str()),
            ),
            revocations: PerLabel::new(
                revocations,
                |(event, reach)| counter!("auth_sidecar_revocations_total", "event" => event.as_str(), "scope" => reach),
            ),
            purges: PerLabel::new(
                Purge::ALL,
                |scope| counter!("auth_sidecar_purges_total", "scope" => scope.as_str()),
            ),
            loops: PerLabel::new(
                Probe::ALL,
                |probe| counter!("auth_sidecar_loops_detected_total", "probe" => probe.as_str()),
            ),
            connections: gauge!("auth_sidecar_connections"),
            draining: gauge!("auth_sidecar_draining"),
            ready: gauge!("auth_sidecar_ready"),
            cache_entries: gauge!("auth_sidecar_cache_entries"),
            cache_bytes: gauge!("auth_sidecar_cache_bytes"),
            cache_capacity: gauge!("auth_sidecar_cache_capacity_bytes"),
            cache_callers: gauge!("auth_sidecar_cache_callers"),
            cache_demands: gauge!("auth_sidecar_cache_demands"),
            in_flight: gauge!("auth_sidecar_upstream_in_flight"),
            other_tenants: TenantCounters::register(OTHER.to_owned()),
            process,
        }
    }
}

fn describe() {
    let counters = [
        (
            "auth_sidecar_requests_total",
            "Requests on the filter port by how they were answered, passed-through ones by reason.",
        ),
        (
            "auth_sidecar_tenant_requests_total",
            "Filter calls by tenant; the first tenants have a label of their own, the rest share \"other\".",
        ),
        (
            "auth_sidecar_upstream_answers_total",
            "Upstream's answers by status; 202 is a yes.",
        ),
        (
            "auth_sidecar_upstream_failures_total",
            "Calls that upstream did not answer, by cause.",
        ),
        (
            "auth_sidecar_upstream_retries_total",
            "Calls tried again: on a fresh connection, or while the auth module starts.",
        ),
        (
            "auth_sidecar_upstream_refreshes_total",
            "Refresh headers sent upstream because of a revocation, and those the pace forbade.",
        ),
        ("auth_sidecar_stored_total", "Decisions stored."),
        (
            "auth_sidecar_not_stored_total",
            "Answers passed on and not stored, by reason.",
        ),
        (
            "auth_sidecar_held_answers_total",
            "Answers not stored because a write may not have reached the memories below, by whose memory.",
        ),
        (
            "auth_sidecar_evictions_total",
            "Decisions removed, by cause.",
        ),
        (
            "auth_sidecar_revocations_total",
            "Revocations by the event that announced them and by reach.",
        ),
        ("auth_sidecar_purges_total", "Purges by an operator."),
        (
            "auth_sidecar_loops_detected_total",
            "Probes that came in on the filter port: an upstream address leads to a sidecar.",
        ),
    ];
    for (name, help) in counters {
        metrics::describe_counter!(name, help);
    }
    let gauges = [
        (
            "auth_sidecar_upstream_connections",
            "Open connections to upstream.",
        ),
        (
            "auth_sidecar_upstream_in_flight",
            "Shared calls waiting for upstream.",
        ),
        (
            "auth_sidecar_connections",
            "Open connections to the filter port.",
        ),
        ("auth_sidecar_draining", "1 while the process is stopping."),
        (
            "auth_sidecar_ready",
            "1 while /health/ready says 200, 0 while it says 503.",
        ),
        ("auth_sidecar_cache_entries", "Decisions in the cache."),
        (
            "auth_sidecar_cache_bytes",
            "Bytes the cache holds, keys, values and tables.",
        ),
        (
            "auth_sidecar_cache_capacity_bytes",
            "The bound on those bytes.",
        ),
        ("auth_sidecar_cache_callers", "Callers with decisions."),
        ("auth_sidecar_cache_demands", "Different demands."),
        (
            "auth_sidecar_build_info",
            "Always 1; the version is a label.",
        ),
    ];
    for (name, help) in gauges {
        metrics::describe_gauge!(name, help);
    }
    metrics::describe_histogram!(
        "auth_sidecar_answer_seconds",
        Unit::Seconds,
        "Time to answer, by outcome."
    );
    metrics::describe_histogram!(
        "auth_sidecar_upstream_seconds",
        Unit::Seconds,
        "Upstream's time: whole answer of a filter call, head of another."
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(text: &'a str, start: &str) -> Option<&'a str> {
        text.lines()
            .find_map(|line| line.strip_prefix(start))
            .map(str::trim)
    }

    #[test]
    fn everything_is_exposed_before_anything_happens() {
        let text = Metrics::new(2).render(&Levels::default());

        assert_eq!(
            line(
                &text,
                r#"auth_sidecar_requests_total{outcome="hit",reason="none"}"#
            ),
            Some("0")
        );
        assert_eq!(
            line(
                &text,
                r#"auth_sidecar_requests_total{outcome="bypass",reason="no_token"}"#
            ),
            Some("0")
        );
        assert_eq!(
            line(
                &text,
                r#"auth_sidecar_not_stored_total{reason="module_tokens"}"#
            ),
            Some("0")
        );
        assert!(text.contains("process_open_fds "));
    }

    #[test]
    fn each_hit_saves_the_mean_time_of_upstream() {
        let metrics = Metrics::new(2);
        metrics.upstream_answered(Call::Filter, 202, Duration::from_millis(5));
        let label = metrics.tenant_label(b"diku");

        metrics.hit(label, Duration::from_micros(30));
        metrics.hit(label, Duration::from_micros(30));

        let text = metrics.render(&Levels::default());
        assert_eq!(
            line(&text, "auth_sidecar_time_saved_seconds_total"),
            Some("0.01")
        );
        assert_eq!(
            line(&text, r#"auth_sidecar_answer_seconds_count{outcome="hit"}"#),
            Some("2")
        );
    }

    #[test]
    fn answers_of_a_quarter_and_of_half_a_second_are_told_apart() {
        let metrics = Metrics::new(0);
        for millis in [200, 400, 800] {
            metrics.answered(Outcome::Miss, 0, Duration::from_millis(millis));
        }

        let text = metrics.render(&Levels::default());
        let below = |le: &str| {
            let start =
                format!(r#"auth_sidecar_answer_seconds_bucket{{outcome="miss",le="{le}"}}"#);
            line(&text, &start).map(str::to_owned)
        };
        assert_eq!(
            ["0.1", "0.25", "0.5", "1"].map(below),
            ["0", "1", "2", "3"].map(|count| Some(count.to_owned()))
        );
    }

    #[test]
    fn tenants_beyond_the_first_share_a_label() {
        let metrics = Metrics::new(1);
        for tenant in ["a", "b", "c"] {
            let label = metrics.tenant_label(tenant.as_bytes());
            metrics.answered(Outcome::Miss, label, Duration::from_millis(1));
        }

        let text = metrics.render(&Levels::default());
        assert_eq!(
            line(
                &text,
                r#"auth_sidecar_tenant_requests_total{tenant="a",outcome="miss"}"#
            ),
            Some("1")
        );
        assert_eq!(
            line(
                &text,
                r#"auth_sidecar_tenant_requests_total{tenant="other",outcome="miss"}"#
            ),
            Some("2")
        );
        assert!(!text.contains(r#"tenant="b""#));
    }

    #[test]
    fn asking_for_a_tenant_s_label_makes_none() {
        let metrics = Metrics::new(1);
        assert_eq!(metrics.known_tenant(b"invented"), u32::MAX);

        let label = metrics.tenant_label(b"diku");

        assert_eq!(metrics.known_tenant(b"diku"), label);
    }
}
