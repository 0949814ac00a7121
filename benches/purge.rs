//! Purging one user among 200,000 decisions: how long it takes, and what the hits of another thread notice of it.
//!
//! `cargo bench --bench purge`. The filter is the real one; behind it answers an auth module of this process that says yes to
//! everything. Two goals: a purge takes less than 50 us, and holds no lock for which a hit waits longer than 20 us. Hits are
//! timed twice, alone and while another thread does nothing but purge. A thread that the machine takes its core from is late
//! in both runs, so what counts is the 99.9th of a hundred; the worst is shown.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, request};
use okapi_auth_sidecar::body::Body;
use okapi_auth_sidecar::clock::Clock;
use okapi_auth_sidecar::config::PREFIX;
use okapi_auth_sidecar::decision::Answer;
use okapi_auth_sidecar::filter::{Answering, Filter};
use okapi_auth_sidecar::invalidation::Reach;
use okapi_auth_sidecar::metrics::Metrics;
use okapi_auth_sidecar::upstream::{AuthModule, Head, Manner, UpstreamError};
use okapi_auth_sidecar::{Config, headers};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const USERS: usize = 20_000;
const DEMANDS: usize = 10;
const TENANT: &str = "diku";
/// How long hits are timed, in each of the two runs.
const RUN: Duration = Duration::from_secs(2);
/// Microseconds.
const LONGEST_PURGE: f64 = 50.0;
const LONGEST_WAIT: f64 = 20.0;

/// Says yes at once.
#[derive(Debug)]
struct Yes(HeaderValue);

impl AuthModule for Yes {
    fn host(&self) -> &HeaderValue {
        &self.0
    }

    async fn ask(&self, head: &Head) -> Result<Answer, UpstreamError> {
        let token = head.headers[headers::TOKEN].clone();
        let tokens = format!(r#"{{"_":"{}"}}"#, token.to_str().unwrap_or_default());
        let mut answer = HeaderMap::new();
        answer.insert(headers::PERMISSIONS, HeaderValue::from_static("[]"));
        answer.insert(
            headers::MODULE_TOKENS,
            HeaderValue::try_from(tokens).expect("a token is a header value"),
        );
        answer.insert(headers::TOKEN, token);
        answer.insert(headers::USER_ID, head.headers[headers::USER_ID].clone());
        Ok(Answer {
            status: StatusCode::ACCEPTED,
            headers: answer,
            body: Bytes::new(),
        })
    }

    async fn relay(
        &self,
        _: &request::Parts,
        _: Body,
        _: Manner,
    ) -> Result<Response<Body>, UpstreamError> {
        Err(UpstreamError::Timeout)
    }
}

fn user_id(user: usize) -> String {
    format!("00000000-0000-4000-8000-{user:012x}")
}

fn token(user: usize) -> HeaderValue {
    let claims = format!(
        r#"{{"sub":"user{user}","type":"access","exp":4102444800,"user_id":"{}","tenant":"{TENANT}"}}"#,
        user_id(user)
    );
    let text = format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.{}",
        BASE64URL.encode(claims),
        BASE64URL.encode([7; 32])
    );
    HeaderValue::try_from(text).expect("base64 makes a header value")
}

/// A head of the usual size.
fn head(user: usize, demand: usize) -> HeaderMap {
    let mut map = HeaderMap::new();
    let value = |text: String| HeaderValue::try_from(text).expect("a header value");
    map.insert("user-agent", HeaderValue::from_static("Mozilla/5.0"));
    map.insert("accept", HeaderValue::from_static("application/json"));
    map.insert(headers::TENANT, HeaderValue::from_static(TENANT));
    map.insert(headers::URL, HeaderValue::from_static("http://okapi:9130"));
    map.insert(headers::TOKEN, token(user));
    map.insert(headers::USER_ID, value(user_id(user)));
    map.insert(
        headers::PERMISSIONS_REQUIRED,
        value(format!("permission.number.{demand}")),
    );
    map.insert(headers::MODULE_PERMISSIONS, HeaderValue::from_static("{}"));
    map.insert(
        headers::REQUEST_ID,
        HeaderValue::from_static("123456/loans"),
    );
    map
}

fn request(map: &HeaderMap) -> Request<Body> {
    let mut request = Request::new(Body::Empty);
    *request.method_mut() = Method::GET;
    *request.headers_mut() = map.clone();
    request
}

fn filter() -> Filter<Yes> {
    let pairs = [
        ("UPSTREAM_URL", "http://auth:8081"),
        ("CACHE_MAX_BYTES", "512MiB"),
        ("CACHE_TTL", "10m"),
        ("CACHE_REFRESH_AHEAD", "1"),
    ];
    let config = Config::from_pairs(
        pairs.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned())),
    )
    .expect("good settings");
    let (_, over) = watch::channel(false);
    Filter::new(
        &config,
        Yes(HeaderValue::from_static("auth:8081")),
        Arc::new(Metrics::new(20)),
        Clock::system(),
        over,
    )
}

/// Microseconds of every hit, in order of size.
struct Hits(Vec<f64>);

impl Hits {
    /// Times hits of users that nobody purges for [`RUN`].
    fn time(filter: &Arc<Filter<Yes>>) -> Self {
        let heads: Vec<HeaderMap> = (USERS / 2..USERS / 2 + 1_000)
            .map(|user| head(user, user % DEMANDS))
            .collect();
        let mut times = Vec::with_capacity(4_000_000);
        let end = Instant::now() + RUN;
        for (number, head) in heads.iter().cycle().enumerate() {
            let request = request(head);
            let before = Instant::now();
            let answering = filter.call(request);
            let took = before.elapsed();
            assert!(
                matches!(answering, Answering::Now(Some(_))),
                "not a hit although nothing of it was purged"
            );
            times.push(took.as_secs_f64() * 1e6);
            if number % 1_024 == 0 {
                // The recorder keeps every sample until it is told to add them up.
                filter.metrics().upkeep();
                if Instant::now() >= end {
                    break;
                }
            }
        }
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    fn at(&self, of_a_thousand: usize) -> f64 {
        let last = self.0.len() - 1;
        self.0[last * of_a_thousand / 1_000]
    }
}

fn line(text: &str) {
    use std::io::Write;
    // Whoever does not want to read it may go.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime");
    let _guard = runtime.enter();
    let filter = Arc::new(filter());
    runtime.block_on(fill(&filter));
    let decisions = filter.cache().size().decisions;
    line(&format!("decisions: {decisions}, of {USERS} users"));
    assert!(
        decisions > 190_000,
        "the cache holds less than it was given"
    );

    let alone = Hits::time(&filter);
    let over = AtomicBool::new(false);
    let (count, purging, during) = std::thread::scope(|scope| {
        let purger = scope.spawn(|| purge_until(&filter, &over));
        let during = Hits::time(&filter);
        over.store(true, Ordering::Relaxed);
        let (count, purging) = purger.join().expect("the purger ends");
        (count, purging, during)
    });
    let purge = purging.as_secs_f64() * 1e6 / f64::from(count);
    line(&format!("purge of a user: {purge:.2} us (mean of {count})"));
    line("a hit, in us        alone   purging   ratio");
    for (name, of_a_thousand) in [
        ("median", 500),
        ("99 %", 990),
        ("99.9 %", 999),
        ("worst", 1_000),
    ] {
        let (before, after) = (alone.at(of_a_thousand), during.at(of_a_thousand));
        line(&format!(
            "{name:<15} {before:>9.2} {after:>9.2} {:>7.2}",
            after / before
        ));
    }
    let waits = during.at(999) - alone.at(999);
    let good = purge < LONGEST_PURGE && waits < LONGEST_WAIT;
    line(if good {
        "within the goals"
    } else {
        "NOT within the goals"
    });
    ExitCode::from(u8::from(!good))
}

async fn fill(filter: &Arc<Filter<Yes>>) {
    for user in 0..USERS {
        for demand in 0..DEMANDS {
            let answered = filter.call(request(&head(user, demand))).await;
            assert!(answered.is_ok_and(|answer| answer.status() == StatusCode::ACCEPTED));
        }
        if user % 64 == 0 {
            filter.metrics().upkeep();
        }
    }
}

/// Purges one user after the other, of the half that is not asked for; how many and how long.
fn purge_until(filter: &Filter<Yes>, over: &AtomicBool) -> (u32, Duration) {
    let users: Vec<String> = (0..USERS / 2).map(user_id).collect();
    let (mut purges, mut purging) = (0, Duration::ZERO);
    for user in users.iter().cycle() {
        let before = Instant::now();
        filter
            .revocations()
            .revoke(Reach::User(TENANT.as_bytes(), user));
        purging += before.elapsed();
        purges += 1;
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    (purges, purging)
}
