//! What is kept of an answer comes back equal, and only what proves itself to another reader is kept.
//!
//! Input: `user exp kind` as the token claims them, the request's headers; a blank line; `status`, the answer's headers;
//! a blank line; its body.
#![no_main]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use okapi_auth_sidecar::clock::Now;
use okapi_auth_sidecar::decision::{
    Answer, Asker, Decision, Freshness, Kept, LifePolicy, Share, prove,
};
use okapi_auth_sidecar::invalidation::Asked;
use okapi_auth_sidecar::key::Question;
use okapi_auth_sidecar::token::{Claims, Kind};
use okapi_auth_sidecar_fuzz::{All, HOP_BY_HOP, Members, NamesOnly, fields, head, parts, values};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

const STORED: Now = Now {
    mono: 1_000,
    wall: 1_700_000_000_000,
};
const TTL: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Unshared(Arc<AtomicU64>);

impl Share for Unshared {
    fn share(&self, value: &HeaderValue) -> (Arc<Kept>, u32) {
        (Arc::new(Kept::new(value, &self.0)), 0)
    }
}

fn claims(line: &[u8]) -> Claims {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    Claims {
        user: words
            .next()
            .filter(|user| !user.is_empty())
            .map(str::to_owned),
        exp: words.next().and_then(|exp| exp.parse().ok()),
        kind: match words.next() {
            None => Kind::Ordinary,
            Some("dummy") => Kind::Dummy,
            Some(_) => Kind::OneShot,
        },
    }
}

/// Looks whether a proven answer is one, by the words of the design's invariant 5.
fn look(request: &[(String, Vec<u8>)], claims: &Claims, answer: &Answer) {
    assert_eq!(answer.status, 202);
    assert!(answer.body.is_empty());
    assert_ne!(claims.kind, Kind::OneShot);
    let one = |name: &str| {
        let all: Vec<_> = answer
            .headers
            .get_all(name)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        assert!(all.len() <= 1, "{name} twice");
        all.first().copied()
    };
    assert_eq!(one("set-cookie"), None);
    let asked = |name: &str| values(request, name).first().copied();
    let token = asked("x-okapi-token").expect("a token");

    let tokens: Members<All> =
        serde_json::from_slice(one("x-okapi-module-tokens").expect("module tokens"))
            .expect("an object");
    assert_eq!(
        tokens.all("_"),
        [&Value::from(std::str::from_utf8(token).expect("a text"))]
    );
    assert!(tokens.0.iter().all(|(_, token)| token.is_string()));
    let modules: Members<NamesOnly> =
        serde_json::from_slice(asked("x-okapi-module-permissions").expect("modules"))
            .expect("an object");
    let others: Vec<_> = tokens
        .names()
        .into_iter()
        .filter(|name| *name != "_")
        .collect();
    assert_eq!(others, modules.names());

    let permissions: Vec<Value> =
        serde_json::from_slice(one("x-okapi-permissions").expect("permissions")).expect("an array");
    assert!(permissions.iter().all(Value::is_string));

    let user = asked("x-okapi-user-id").or(claims.user.as_deref().map(str::as_bytes));
    assert_eq!(one("x-okapi-user-id"), user);
}

/// The answer's headers that are to come back.
fn expected(answer: &Answer) -> HeaderMap {
    let mut expected = answer.headers.clone();
    for name in HOP_BY_HOP.iter().chain(&["content-length", "date"]) {
        expected.remove(*name);
    }
    expected
}

fn check_life(decision: &Decision, claims: &Claims, policy: &LifePolicy) {
    let at = |millis: u64| {
        let now = Now {
            mono: STORED.mono + millis,
            wall: STORED.wall + millis,
        };
        decision.freshness(now, policy)
    };
    let ttl = u64::try_from(TTL.as_millis()).expect("a minute");
    assert_eq!(at(0), Freshness::Fresh);
    assert_eq!(at(ttl), Freshness::Gone);
    if let Some(exp) = claims.exp {
        let left = exp.saturating_mul(1_000).saturating_sub(STORED.wall);
        assert!(left > 0, "an expired token");
        if left <= ttl {
            assert_eq!(at(left), Freshness::Gone);
        }
    }
}

/// The headers of an answer as they went over the wire.
fn written(wire: &[u8]) -> HeaderMap {
    let bytes = wire.strip_prefix(b"before").expect("it is appended");
    let bytes = bytes.strip_suffix(b"Content-Length: 0\r\n\r\n");
    let mut lines = bytes.expect("an empty body").split(|byte| *byte == b'\n');
    assert_eq!(lines.next(), Some(&b"HTTP/1.1 202 Accepted\r"[..]));
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let line = line.strip_suffix(b"\r").expect("a whole line");
        let colon = line.iter().position(|byte| *byte == b':').expect("a field");
        let name = HeaderName::from_bytes(&line[..colon]).expect("a name");
        let value = line[colon..].strip_prefix(b": ").expect("a value");
        headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
    }
    headers
}

fuzz_target!(|input: &[u8]| {
    let [first, second, body] = parts(input);
    let (Some((claimed, asked)), Some((status, answered))) =
        (first.split_first(), second.split_first())
    else {
        return;
    };
    let status = std::str::from_utf8(status)
        .ok()
        .and_then(|status| status.parse::<u16>().ok());
    let Some(status) = status.and_then(|status| StatusCode::from_u16(status).ok()) else {
        return;
    };
    let request = fields(asked);
    let (Some(headers), Some(answered)) = (head(&request), head(&fields(answered))) else {
        return;
    };
    let claims = claims(claimed);
    let answer = Answer {
        status,
        headers: answered,
        body: Bytes::from(body.join(&b'\n')),
    };

    let question = Question::of(&headers);
    let Ok(proven) = prove(&question, Some(&claims), &answer) else {
        return;
    };
    look(&request, &claims, &answer);
    assert!(
        prove(&question, None, &answer).is_err(),
        "without claims nothing is proven"
    );

    let policy = LifePolicy {
        ttl: TTL,
        jitter: 0.0,
        skew: Duration::ZERO,
        refresh_ahead: 1.0,
        stale_if_error: Duration::ZERO,
    };
    let asked = Asked { tick: 3, at: 1 };
    let shared = Unshared::default();
    let kept = Decision::keep(proven, &claims, asked, STORED, &policy, 0.5, &shared);
    let alive = claims
        .exp
        .is_none_or(|exp| exp.saturating_mul(1_000) > STORED.wall);
    assert_eq!(kept.is_ok(), alive);
    let Ok(decision) = kept else { return };
    check_life(&decision, &claims, &policy);
    assert_eq!(decision.asked(), 3);

    let asker = Asker::of(&question);
    // More than once: what is given must stay.
    for _ in 0..2 {
        assert_eq!(decision.answer(asker), expected(&answer));
    }
    let mut wire = b"before".to_vec();
    decision.write_answer(asker, &mut wire);
    assert_eq!(written(&wire), expected(&answer));
});
