//! What a test says of a request: it was a miss, a hit, or it is forwarded every time; judged by what upstream saw.

use crate::harness::{ADMIN_TOKEN, Sidecar, pair};
use crate::rule;
use crate::support::headers::Headers;
use crate::support::playback::{Playback, Reply};
use crate::support::raw::{Answer, Request};
use crate::support::standin::Standin;
use crate::support::standin::call::FilterCall;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;

/// An upstream that counts its requests.
pub(crate) trait Counting {
    /// How many have come in.
    fn count(&self) -> u64;
}

impl Counting for Standin {
    fn count(&self) -> u64 {
        self.calls().total
    }
}

impl Counting for Playback {
    fn count(&self) -> u64 {
        self.calls() as u64
    }
}

/// An upstream and a sidecar in front of it.
pub(crate) struct Pair<U> {
    pub(crate) upstream: U,
    pub(crate) sidecar: Sidecar,
}

impl Pair<Standin> {
    /// The stand-in, its clock stopped.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let (upstream, sidecar) = pair(settings).await;
        Self { upstream, sidecar }
    }
}

impl Pair<Playback> {
    /// An upstream that proves every yes, until the test tells it otherwise.
    pub(crate) async fn yes(settings: &[(&str, &str)]) -> Self {
        let upstream = Playback::start().await;
        let with_purge = [settings, &[("ADMIN_TOKEN", ADMIN_TOKEN)]].concat();
        let sidecar = Sidecar::start(&upstream.url(), &with_purge).await;
        // The probe at the start is not part of any test.
        upstream.seen(1).await;
        upstream.answer_with(|request| Reply::new(202, &yes(request), b""));
        upstream.forget_calls();
        Self { upstream, sidecar }
    }
}

impl<U: Counting> Pair<U> {
    /// Asks, and tells how many requests reached upstream meanwhile.
    pub(crate) async fn asked(&self, request: &Request) -> (Answer, u64) {
        let before = self.upstream.count();
        let answer = self.sidecar.send(request).await;
        (answer, self.upstream.count() - before)
    }

    /// Upstream is asked, once.
    pub(crate) async fn miss(&self, call: &FilterCall) -> Answer {
        self.miss_request(&call.request()).await
    }

    /// Upstream is not asked, and the answer is this one again.
    pub(crate) async fn hit(&self, call: &FilterCall, first: &Answer) {
        self.hit_request(&call.request(), first).await;
    }

    /// Upstream is asked, and asked again when the same comes again.
    pub(crate) async fn forwarded(&self, call: &FilterCall) -> Answer {
        self.miss(call).await;
        self.miss(call).await
    }

    /// As [`Self::miss`].
    pub(crate) async fn miss_request(&self, request: &Request) -> Answer {
        let (answer, asked) = self.asked(request).await;
        assert_eq!(asked, 1, "upstream was asked so often for {request:?}");
        answer
    }

    /// As [`Self::hit`].
    pub(crate) async fn hit_request(&self, request: &Request, first: &Answer) {
        let (answer, asked) = self.asked(request).await;
        assert_eq!(asked, 0, "upstream was asked so often for {request:?}");
        assert_same(&answer, first);
    }
}

/// The same answer: status, `X-Okapi-*` headers, `Content-Type` and body.
pub(crate) fn assert_same(answer: &Answer, first: &Answer) {
    assert_eq!(answer.status, first.status);
    let told = |answer: &Answer| {
        let mut told: Vec<_> = answer
            .okapi_headers()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        told.sort();
        told
    };
    assert!(told(answer) == told(first), "{answer:?}\nis not\n{first:?}");
    let kind = |answer: &Answer| answer.headers.get("Content-Type").map(str::to_owned);
    assert_eq!(kind(answer), kind(first));
    assert!(answer.body == first.body);
}

/// The headers of a 202 that proves itself for this request, in mod-authtoken's order.
pub(crate) fn yes(request: &Request) -> Headers {
    let token = request.headers.get("X-Okapi-Token").unwrap_or_default();
    let claims = rule::claims(token);
    let claimed = claims
        .as_ref()
        .and_then(|claims| claims.get("user_id")?.as_str())
        .map(str::as_bytes);
    let user = request.headers.bytes("X-Okapi-User-Id").or(claimed);
    let modules = request
        .headers
        .get("X-Okapi-Module-Permissions")
        .and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok());
    let mut tokens = serde_json::Map::new();
    for module in modules.iter().filter_map(|json| json.as_object()).flatten() {
        let made = format!("h.{}.s", BASE64URL.encode(module.0));
        tokens.insert(module.0.clone(), made.into());
    }
    tokens.insert("_".to_owned(), token.into());
    let mut headers = Headers::new();
    headers.push("transfer-encoding", "chunked");
    headers.push("Content-Type", "text/plain");
    headers.push("X-Okapi-Permissions", "[]");
    headers.push("X-Okapi-Token", token);
    if let Some(user) = user {
        headers.push("X-Okapi-User-Id", user);
    }
    headers.push(
        "X-Okapi-Module-Tokens",
        serde_json::Value::Object(tokens).to_string(),
    );
    headers
}

/// A token with this payload for an upstream that checks no signature.
pub(crate) fn unsigned(payload: &str) -> String {
    format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.c2lnbmVk",
        BASE64URL.encode(payload)
    )
}

/// A user's token for such an upstream; it does not expire.
pub(crate) fn unsigned_for(user: &str) -> String {
    unsigned(&format!(
        r#"{{"sub":"somebody","type":"module","user_id":"{user}","tenant":"diku"}}"#
    ))
}
