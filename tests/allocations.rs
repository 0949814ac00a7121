//! What a hit and a stored decision cost the allocator: counted, so that no machine's mood decides.
//!
//! The load has the shape of `benches/compare`: 500 callers, half with a module's token, ask 33 demands, a third of
//! them for a module with permissions of its own, a third with desired permissions; 16 or 17 headers, about a kilobyte.
//! The ceilings are what was counted when they were last looked at; whoever needs more raises them, and says in the
//! commit what it buys.

#![allow(
    clippy::unwrap_used,
    clippy::format_push_string,
    clippy::print_stdout,
    reason = "a broken premise may panic here"
)]

#[path = "support/bytes.rs"]
mod bytes;

use ::bytes::Bytes;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use okapi_auth_sidecar::Config;
use okapi_auth_sidecar::body::Body;
use okapi_auth_sidecar::clock::Clock;
use okapi_auth_sidecar::config::PREFIX;
use okapi_auth_sidecar::decision::Answer;
use okapi_auth_sidecar::filter::Filter;
use okapi_auth_sidecar::headers;
use okapi_auth_sidecar::invalidation::{Reach, Revocations};
use okapi_auth_sidecar::metrics::Metrics;
use okapi_auth_sidecar::upstream::{AuthModule, Head, Manner, UpstreamError};
use okapi_auth_sidecar::wire::{self, Beginning};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::time::Instant;

#[allow(
    clippy::print_stdout,
    reason = "what was counted is worth a line, whatever the ceiling"
)]
fn tell(text: &str) {
    println!("{text}");
}

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CALLERS: usize = 500;
const DEMANDS: usize = 33;

/// Allocations and reallocations of one hit, from the request's bytes to the answer's: now and then room for the histogram.
const ALLOCATIONS_PER_HIT: f64 = 0.02;
/// Bytes of a stored decision with its share of callers, demands, shared values, tables and revocation rows. Without
/// what an allocator adds for itself; the spread (378 to 390) is how the seeded hashes fill the tables' shards.
const BYTES_PER_DECISION: f64 = 410.0;

/// An auth module that says yes to everybody, and says it as mod-authtoken does.
#[derive(Debug)]
struct Yes {
    host: HeaderValue,
    asked: Arc<AtomicU64>,
}

impl AuthModule for Yes {
    fn host(&self) -> &HeaderValue {
        &self.host
    }

    async fn ask(&self, head: &Head) -> Result<Answer, UpstreamError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(yes(&head.headers))
    }

    async fn relay(
        &self,
        parts: &request::Parts,
        _: Body,
        _: Manner,
    ) -> Result<Response<Body>, UpstreamError> {
        panic!("nothing of this load is passed through: {}", parts.uri)
    }
}

fn yes(asked: &HeaderMap) -> Answer {
    let text = |name: HeaderName| asked[name].to_str().expect("text").to_owned();
    let token = text(headers::TOKEN);
    let module = text(headers::MODULE_PERMISSIONS)
        .split('"')
        .nth(1)
        .map(|module| format!("\"{module}\":\"{}\",", module_token(&token[30..90], module)))
        .unwrap_or_default();
    let permissions = text(headers::PERMISSIONS_REQUIRED).replace(',', "\",\"");
    let fields = [
        (http::header::CONTENT_TYPE, "text/plain".to_owned()),
        (headers::PERMISSIONS, format!("[\"{permissions}\"]")),
        (
            headers::MODULE_TOKENS,
            format!("{{{module}\"_\":\"{token}\"}}"),
        ),
        (headers::USER_ID, text(headers::USER_ID)),
        (headers::TOKEN, token),
    ];
    let value = |text: String| HeaderValue::from_maybe_shared(Bytes::from(text)).expect("a value");
    Answer {
        status: StatusCode::ACCEPTED,
        headers: fields
            .into_iter()
            .map(|(name, text)| (name, value(text)))
            .collect(),
        body: Bytes::new(),
    }
}

fn jwt(claims: &str, number: usize) -> String {
    let signature: Vec<u8> = (0..32u8)
        .map(|at| at.wrapping_mul(37) ^ number.to_le_bytes()[usize::from(at % 8)])
        .collect();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.{}",
        encode(claims.as_bytes()),
        encode(&signature)
    )
}

fn module_token(user: &str, module: &str) -> String {
    jwt(
        &format!(
            r#"{{"sub":"{user}","type":"module","extra_permissions":["SYS#{module}#/items/{{id}}#[GET]"],"tenant":"diku0","module":"{module}"}}"#
        ),
        7,
    )
}

/// The fields that one caller sends the same every time.
fn caller(number: usize) -> Vec<(&'static str, String)> {
    let id = format!("{number:08x}-4a1b-4c2d-8e3f-{:012x}", number * 7919);
    let tenant = format!("diku{}", number % 4);
    let claims = if number.is_multiple_of(2) {
        format!(
            r#"{{"sub":"desk{number}","type":"module","extra_permissions":["SYS#mod-circulation-24.4.0#/circulation/check-in-by-barcode#[POST]"],"user_id":"{id}","tenant":"{tenant}","module":"mod-circulation-24.4.0"}}"#
        )
    } else {
        format!(
            r#"{{"sub":"desk{number}","type":"access","exp":4102444800,"user_id":"{id}","iat":1700000000,"tenant":"{tenant}"}}"#
        )
    };
    vec![
        ("user-agent", "Go-http-client/1.1".to_owned()),
        ("accept", "application/json, text/plain".to_owned()),
        (
            "x-okapi-permissions",
            r#"["circulation.check-in-by-barcode.post"]"#.to_owned(),
        ),
        ("x-okapi-tenant", tenant),
        ("x-okapi-user-id", id),
        ("accept-encoding", "gzip".to_owned()),
        ("x-okapi-token", jwt(&claims, number)),
    ]
}

/// The fields that one demand has the same for every caller.
fn demand(number: usize) -> Vec<(&'static str, String)> {
    let module = format!("mod-area{number}-19.2.1");
    let mut required = format!("area{number}-storage.items.item.get");
    if number % 8 == 3 {
        required = format!("{required},area{number}-storage.holdings.item.get");
    }
    let module_permissions = if number.is_multiple_of(3) {
        format!(r#"{{"{module}":["SYS#{module}#/area{number}-storage/items/{{id}}#[GET]"]}}"#)
    } else {
        "{}".to_owned()
    };
    let mut fields = vec![
        ("x-okapi-permissions-required", required),
        ("x-okapi-module-permissions", module_permissions),
        ("x-okapi-match-path-pattern", "/*".to_owned()),
        ("host", "127.0.0.1:8071".to_owned()),
    ];
    if (number / 3).is_multiple_of(3) {
        let desired = format!("area{number}.read.basic,area{number}.read.restricted");
        fields.push(("x-okapi-permissions-desired", desired));
    }
    fields
}

/// A request as hyper hands it over; values of this one only, as everything that comes from a socket.
fn request(caller_number: usize, demand_number: usize, sequence: usize) -> Request<Body> {
    let fresh = [
        (
            "x-okapi-request-id",
            format!("{sequence:06}/circulation;{:06}/item-storage", sequence * 7),
        ),
        ("x-okapi-url", "http://okapi:9130".to_owned()),
        ("x-okapi-request-ip", "10.1.2.3".to_owned()),
        (
            "x-okapi-request-timestamp",
            (1_700_000_000_000 + sequence).to_string(),
        ),
        ("x-okapi-request-method", "GET".to_owned()),
    ];
    let mut request = Request::get(format!(
        "/area{demand_number}-storage/items/{sequence:08x}-4a1b-4c2d-8e3f-{sequence:012x}"
    ));
    let fields = caller(caller_number)
        .into_iter()
        .chain(fresh)
        .chain(demand(demand_number));
    for (name, value) in fields {
        request = request.header(name, value);
    }
    request.body(Body::Empty).expect("a request")
}

fn config() -> Config {
    let settings = [
        ("UPSTREAM_URL", "http://127.0.0.1:1"),
        ("CACHE_TTL", "10m"),
        ("CACHE_REFRESH_AHEAD", "1"),
    ];
    let pairs = settings.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
    Config::from_pairs(pairs).expect("settings")
}

/// Asks every question once and gives the filter that now knows all answers.
async fn fill(filter: &Arc<Filter<Yes>>) {
    for caller_number in 0..CALLERS {
        for demand_number in 0..DEMANDS {
            let request = request(caller_number, demand_number, 0);
            let Ok(response) = filter.call(request).await;
            assert_eq!(response.status(), StatusCode::ACCEPTED);
        }
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("a small number"))
}

/// All in one test, since all threads' allocations are counted together.
#[tokio::test(flavor = "current_thread")]
async fn a_hit_and_a_decision_cost_the_allocator_no_more_than_they_did() {
    let asked = Arc::<AtomicU64>::default();
    let auth_module = Yes {
        host: HeaderValue::from_static("mod-authtoken:8081"),
        asked: asked.clone(),
    };
    let config = config();
    let metrics = Arc::new(Metrics::new(config.metrics_tenants));
    let (_give_up, over) = watch::channel(false);

    let region = Region::new(ALLOCATOR);
    let filter = Arc::new(Filter::new(
        &config,
        auth_module,
        metrics,
        Clock::system(),
        over,
    ));
    fill(&filter).await;
    let change = region.change();

    let size = filter.cache().size();
    assert_eq!(
        (size.decisions, size.callers, size.demands),
        ((CALLERS * DEMANDS) as u64, CALLERS as u64, DEMANDS as u64),
        "every question has a decision of its own"
    );
    let bytes = count(change.bytes_allocated - change.bytes_deallocated) / count(CALLERS * DEMANDS);
    let counted = size.bytes / (CALLERS * DEMANDS) as u64;
    tell(&format!(
        "{bytes:.1} bytes per decision, of which the cache itself counts {counted}"
    ));

    let per_hit = count_hits(&filter);
    tell(&format!("{per_hit:.3} allocations per hit"));
    assert_eq!(
        asked.load(Ordering::Relaxed),
        size.decisions,
        "all of them were hits"
    );
    let (short, long) = (bytes_per_row(36), bytes_per_row(8_000));
    tell(&format!(
        "{short:.1} bytes per revocation row, {long:.1} for a long name"
    ));
    assert!(bytes <= BYTES_PER_DECISION, "{bytes:.1} bytes per decision");
    assert!(
        per_hit <= ALLOCATIONS_PER_HIT,
        "{per_hit:.3} allocations per hit"
    );
    assert!(long <= short, "{long:.1} bytes per row of a long name");
}

/// Bytes of a revocation row of a user (and a tenant) with a name of that length.
fn bytes_per_row(length: usize) -> f64 {
    const ROWS: usize = 1_000;
    let revocations = Revocations::new(config().memory, ROWS);
    let region = Region::new(ALLOCATOR);
    for number in 0..ROWS {
        let name = format!("{number:0length$}");
        revocations.revoke(Reach::User(name.as_bytes(), &name));
    }
    let change = region.change();
    count(change.bytes_allocated - change.bytes_deallocated) / count(ROWS)
}

/// Allocations and reallocations per hit over all questions.
fn count_hits(filter: &Arc<Filter<Yes>>) -> f64 {
    let mut answer = Vec::new();
    let mut hit = |request: &[u8]| {
        answer.clear();
        let answered = wire::with_head(request, |beginning| match beginning {
            Beginning::Whole(head) => filter.answer_at_once(&head, Instant::now(), &mut answer),
            other => panic!("{other:?}"),
        });
        assert!(answered && answer.starts_with(b"HTTP/1.1 202 "));
    };
    // Thread-local buffers and histograms grow once.
    for demand_number in 0..DEMANDS {
        hit(&bytes(&request(0, demand_number, 1)));
    }
    let requests: Vec<_> = (0..CALLERS * DEMANDS)
        .map(|number| bytes(&request(number / DEMANDS, number % DEMANDS, number)))
        .collect();

    let region = Region::new(ALLOCATOR);
    for request in &requests {
        hit(request);
    }
    let change = region.change();

    count(change.allocations + change.reallocations) / count(CALLERS * DEMANDS)
}
