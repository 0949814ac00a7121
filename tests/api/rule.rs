//! The contract's rule on what a cache may answer the second time, put down from its text (sections 0, 3.4 and 3.5).
//!
//! Nothing of the sidecar's own code is used: two that read the same text must come to the same result.

use crate::support::raw::{Answer, Request};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Map, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the answer depends on, in the order of section 3.4.
const KEY: [&str; 7] = [
    "X-Okapi-Tenant",
    "X-Okapi-Url",
    "X-Okapi-Token",
    "X-Okapi-User-Id",
    "X-Okapi-Permissions-Required",
    "X-Okapi-Permissions-Desired",
    "X-Okapi-Module-Permissions",
];

/// Whether the request may be answered from a cache at all (rules 2, 3, 4; sections 1.2, 2.5, 3.1).
pub(crate) fn may_be_answered(request: &Request) -> bool {
    let headers = &request.headers;
    let count = |name: &str| headers.all(name).count();
    let filter_call = count("X-Okapi-Module-Permissions") == 1
        && match headers.all("X-Okapi-Filter").collect::<Vec<_>>()[..] {
            [] => true,
            [phase] => phase == b"auth" || phase.starts_with(b"auth "),
            _ => false,
        };
    let has_token = headers
        .bytes("X-Okapi-Token")
        .is_some_and(|token| !token.is_empty());
    let unambiguous = KEY.iter().all(|name| count(name) <= 1);
    let unusual = headers.has("X-Okapi-Extra-Permissions")
        || headers.has("X-Okapi-Additional-Token")
        || headers.get("Authtoken-Refresh-Cache") == Some("true");
    let line = format!("{} {} {}", request.method, request.target, request.version);
    let form = headers.get("Content-Type").is_some_and(|kind| {
        let kind = kind.to_ascii_lowercase();
        kind.starts_with("multipart/") || kind.starts_with("application/x-www-form-urlencoded")
    });
    filter_call
        && has_token
        && unambiguous
        && !unusual
        && ordinary(&request.target)
        && line.len() <= 4096
        && headers.size() <= 8192
        && request.body.is_empty()
        && !form
}

/// Whether the path is neither an own route, nor health, nor anything a router might read in another way.
fn ordinary(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let own = ["/token", "/refreshtoken", "/_/tenant"]
        .iter()
        .any(|prefix| path.starts_with(prefix));
    let odd = ["%", "\\", "//", "/."].iter().any(|odd| path.contains(odd));
    let health = path == "/admin/health" || path == "/admin/health/";
    path.starts_with('/') && !own && !odd && !health
}

/// Whether the answer may be kept for this request (rule 5, section 3.5).
pub(crate) fn may_be_kept(request: &Request, answer: &Answer) -> bool {
    answer.status == 202
        && answer.body.is_empty()
        && !answer.headers.has("Set-Cookie")
        && tokens_fit(request, answer).unwrap_or(false)
        && token_fits(request, answer).unwrap_or(false)
        && answer
            .headers
            .get("X-Okapi-Permissions")
            .is_some_and(|list| serde_json::from_str::<Vec<String>>(list).is_ok())
}

/// The module tokens: `_` is the request's token, the others are for the modules asked for.
fn tokens_fit(request: &Request, answer: &Answer) -> Option<bool> {
    let mut tokens = object(answer.headers.get("X-Okapi-Module-Tokens")?)?;
    let own = tokens.remove("_")?;
    let asked = object(request.headers.get("X-Okapi-Module-Permissions")?)?;
    let same_modules =
        tokens.len() == asked.len() && tokens.keys().all(|module| asked.contains_key(module));
    Some(own == request.headers.get("X-Okapi-Token")? && same_modules)
}

/// The token's claims: not one-shot, not expired, and of the user that the answer names.
fn token_fits(request: &Request, answer: &Answer) -> Option<bool> {
    let claims = claims(request.headers.get("X-Okapi-Token")?)?;
    let one_shot = claims
        .get("sub")
        .and_then(Value::as_str)
        .is_some_and(|subject| subject.starts_with("UNDEFINED_USER__"));
    let expires = match claims.get("exp") {
        None => u64::MAX,
        Some(expires) => expires.as_u64()?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let user = request.headers.get("X-Okapi-User-Id").or_else(|| {
        claims
            .get("user_id")
            .and_then(Value::as_str)
            .filter(|user| !user.is_empty())
    });
    Some(!one_shot && expires > now && answer.headers.get("X-Okapi-User-Id") == user)
}

/// The inputs of the answer: equal only if all of them are, absent and empty kept apart.
pub(crate) fn key(request: &Request) -> Vec<Option<Vec<u8>>> {
    KEY.iter()
        .map(|name| request.headers.bytes(name).map(<[u8]>::to_vec))
        .collect()
}

/// A token's claims, if it is three parts and the middle one can be read.
pub(crate) fn claims(token: &str) -> Option<Map<String, Value>> {
    let [_, payload, _] = token.split('.').collect::<Vec<_>>()[..] else {
        return None;
    };
    let payload = BASE64URL.decode(payload).ok()?;
    object(std::str::from_utf8(&payload).ok()?)
}

fn object(json: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(json).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}
