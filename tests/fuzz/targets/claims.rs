//! What a token claims, beside a reader of its own base64 and JSON.
//!
//! Input: a token as it is if it begins with `!`, else the payload of one.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use okapi_auth_sidecar::token::{Kind, Token};
use okapi_auth_sidecar_fuzz::{Members, Wanted};
use serde_json::Value;

const READ: [&str; 5] = ["sub", "user_id", "exp", "dummy", "type"];

struct Read;
impl Wanted for Read {
    fn wanted(name: &str) -> bool {
        READ.contains(&name)
    }
}

/// User, expiry and kind; none where there is any doubt.
fn expected(token: &[u8]) -> Option<(Option<String>, Option<u64>, Kind)> {
    let parts: Vec<_> = token.split(|byte| *byte == b'.').collect();
    let [_, payload, _] = parts[..] else {
        return None;
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let members: Members<Read> = serde_json::from_slice(&payload).ok()?;
    if READ.iter().any(|name| members.all(name).len() > 1) {
        return None;
    }
    let one = |name: &str| members.all(name).first().copied();
    // A null is as good as nothing, but for `exp`.
    let text = |name: &str| match one(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some(Some(text.clone())),
        Some(_) => None,
    };
    let (sub, user, kind) = (text("sub")?, text("user_id")?, text("type")?);
    let exp = match one("exp") {
        None => None,
        Some(exp) => Some(exp.as_u64()?),
    };
    let dummy = match one("dummy") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(dummy)) => *dummy,
        Some(_) => return None,
    };
    let sub = sub.unwrap_or_default();
    let kind = if sub.starts_with("UNDEFINED_USER__") {
        Kind::OneShot
    } else if dummy
        || sub.starts_with("_AUTHZ_MODULE_")
        || kind.is_some_and(|kind| kind.starts_with("dummy"))
    {
        Kind::Dummy
    } else {
        Kind::Ordinary
    };
    Some((user.filter(|user| !user.is_empty()), exp, kind))
}

fuzz_target!(|input: &[u8]| {
    let token = match input.split_first() {
        Some((b'!', token)) => token.to_vec(),
        _ => format!(
            "eyJhbGciOiJIUzI1NiJ9.{}.c2ln",
            URL_SAFE_NO_PAD.encode(input)
        )
        .into_bytes(),
    };

    let found = Token::new(&token).claims().ok();

    assert_eq!(
        found.map(|found| (found.user, found.exp, found.kind)),
        expected(&token)
    );
});
