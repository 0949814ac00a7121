//! Many questions from one hand: lists built to look alike, and a flood that wants others out of the cache.
//!
//! Through `Filter::call`, with an auth module in memory that says yes and tells what it was asked for.

use crate::harness::config;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use okapi_auth_sidecar::body::Body;
use okapi_auth_sidecar::clock::Clock;
use okapi_auth_sidecar::decision::Answer;
use okapi_auth_sidecar::filter::Filter;
use okapi_auth_sidecar::headers;
use okapi_auth_sidecar::metrics::Metrics;
use okapi_auth_sidecar::upstream::{AuthModule, Head, Manner, UpstreamError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

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
        let text = |name: HeaderName| {
            head.headers[name]
                .to_str()
                .expect("a test that runs")
                .to_owned()
        };
        let token = text(headers::TOKEN);
        let permissions = text(headers::PERMISSIONS_REQUIRED).replace(',', "\",\"");
        let fields = [
            (http::header::CONTENT_TYPE, "text/plain".to_owned()),
            (headers::PERMISSIONS, format!("[\"{permissions}\"]")),
            (headers::MODULE_TOKENS, format!("{{\"_\":\"{token}\"}}")),
            (headers::TOKEN, token),
        ];
        let fields = fields.map(|(name, text)| {
            (
                name,
                HeaderValue::from_str(&text).expect("a test that runs"),
            )
        });
        Ok(Answer {
            status: StatusCode::ACCEPTED,
            headers: fields.into_iter().collect::<HeaderMap>(),
            body: Bytes::new(),
        })
    }

    async fn relay(
        &self,
        parts: &request::Parts,
        _: Body,
        _: Manner,
    ) -> Result<Response<Body>, UpstreamError> {
        panic!("nothing here is passed through: {}", parts.uri)
    }
}

struct Crowd {
    filter: Arc<Filter<Yes>>,
    asked: Arc<AtomicU64>,
    _give_up: watch::Sender<bool>,
}

impl Crowd {
    fn new(cache: &str) -> Self {
        let settings = [
            ("CACHE_MAX_BYTES", cache),
            ("CACHE_TTL", "10m"),
            ("CACHE_REFRESH_AHEAD", "1"),
        ];
        let config = config("http://127.0.0.1:1", &settings);
        let asked = Arc::<AtomicU64>::default();
        let yes = Yes {
            host: HeaderValue::from_static("mod-authtoken:8081"),
            asked: asked.clone(),
        };
        let (give_up, over) = watch::channel(false);
        let metrics = Arc::new(Metrics::new(1));
        let filter = Arc::new(Filter::new(&config, yes, metrics, Clock::system(), over));
        Self {
            filter,
            asked,
            _give_up: give_up,
        }
    }

    /// Asks; the permissions in the answer, and whether it came from the cache.
    async fn ask(&self, token: &str, required: &str) -> (String, bool) {
        let before = self.asked.load(Ordering::Relaxed);
        let request = Request::get("/things")
            .header("X-Okapi-Tenant", "diku")
            .header("X-Okapi-Url", "http://okapi:9130")
            .header("X-Okapi-Token", token)
            .header("X-Okapi-Permissions-Required", required)
            .header("X-Okapi-Module-Permissions", "{}")
            .body(Body::Empty)
            .expect("a test that runs");
        let Ok(response) = self.filter.call(request).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(
            response.headers()[headers::TOKEN],
            token,
            "an answer to somebody else"
        );
        let permissions = response.headers()[headers::PERMISSIONS]
            .to_str()
            .expect("a test that runs")
            .to_owned();
        (permissions, self.asked.load(Ordering::Relaxed) == before)
    }

    fn bytes(&self) -> u64 {
        self.filter.cache().size().bytes
    }
}

/// A token of a caller without a user, unlike all others.
fn token(number: usize) -> String {
    let claims = format!(r#"{{"sub":"caller{number}","tenant":"diku","type":"module"}}"#);
    format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.c2lnbmVk",
        URL_SAFE_NO_PAD.encode(claims)
    )
}

/// All orders of these words.
fn orders(words: &[&str]) -> Vec<Vec<String>> {
    if words.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let mut others = words.to_vec();
        others.remove(at);
        for mut order in orders(&others) {
            order.push((*word).to_owned());
            all.push(order);
        }
    }
    all
}

#[tokio::test]
async fn lists_of_the_same_words_and_length_have_their_own_answers() {
    let crowd = Crowd::new("64MiB");
    let token = token(1);
    let lists: Vec<String> = orders(&["a.a", "a.b", "b.a", "b.b", "aa.", ".aa", "bb."])
        .iter()
        .map(|order| order.join(","))
        .collect();
    assert_eq!(lists.len(), 5_040);

    for list in &lists {
        assert!(
            !crowd.ask(&token, list).await.1,
            "{list} was never asked before"
        );
    }

    for list in &lists {
        let (permissions, hit) = crowd.ask(&token, list).await;
        assert!(hit);
        assert_eq!(permissions, format!("[\"{}\"]", list.replace(',', "\",\"")));
    }
}

/// A hash that somebody can foresee would put chosen lists into one chain, whose length each look-up pays. Two caches put the same
/// lists into different places, so nobody can choose them; and each question finds its own answer all the same.
#[tokio::test]
async fn lists_that_differ_in_one_byte_have_their_own_answers_in_every_process() {
    for _ in 0..2 {
        let crowd = Crowd::new("64MiB");
        let token = token(2);
        let list = |number: u32| {
            let bits = (0..12).map(|bit| if number >> bit & 1 == 1 { "B" } else { "A" });
            bits.collect::<Vec<_>>().join("x")
        };
        for number in 0..1 << 12 {
            assert!(!crowd.ask(&token, &list(number)).await.1);
        }
        for number in 0..1 << 12 {
            let (permissions, hit) = crowd.ask(&token, &list(number)).await;
            assert_eq!(
                (permissions, hit),
                (format!("[\"{}\"]", list(number)), true)
            );
        }
    }
}

/// One caller asks what nobody asks, thousands of times; a hundred others go on with what they always ask.
#[tokio::test]
async fn a_flood_by_one_caller_leaves_the_others_their_hits() {
    const OTHERS: usize = 100;
    const ROUNDS: usize = 100;
    const FLOOD: usize = 100;
    let crowd = Crowd::new("1MiB");
    let capacity = crowd.filter.cache().size().capacity;
    let others: Vec<String> = (0..OTHERS).map(token).collect();
    for other in &others {
        for _ in 0..3 {
            crowd.ask(other, "things.get").await;
        }
    }
    let flooder = token(OTHERS);

    let mut hits = 0_usize;
    for round in 0..ROUNDS {
        for number in 0..FLOOD {
            crowd.ask(&flooder, &format!("junk.{round}.{number}")).await;
            assert!(crowd.bytes() <= capacity, "the bound holds all the time");
        }
        for other in &others {
            hits += usize::from(crowd.ask(other, "things.get").await.1);
        }
    }

    let share = 100 * hits / (OTHERS * ROUNDS);
    assert!(share >= 95, "{share} %");
}
