//! Is the token good? Who made it, what it is, whom it speaks for, in which tenant, and until when (mod-authtoken's `Token`).

use serde_json::Value;

use super::filter::Call;
use super::token::Claims;
use super::{Module, lookups};

/// Body of every refusal of a token, whatever the reason.
const INVALID: &str = "Invalid token";
/// Body when the check ended in an exception.
const UNEXPECTED: &str = "Unexpected exception during token validation";

/// A refused token: status and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

/// Checks a token and gives its claims, with the `type` that it may have left out.
pub async fn validate(module: &Module, call: &Call<'_>, token: &str) -> Result<Claims, Refusal> {
    let mut claims = read(module, token)?;
    if claims.get("type").is_none() {
        let kind = if claims.is_dummy() {
            "dummy"
        } else {
            "legacy-access"
        };
        claims = claims.with("type", kind);
    }
    let (expires, crosses) = match claims.text("type") {
        Some("access" | "dummy-expiring") => (true, true),
        Some("legacy-access" | "module" | "dummy") => (false, true),
        Some("api") => (false, false),
        // A refresh token without its encryption: the check wants a token store that is not there.
        Some("refresh") => return Err(Refusal(500, UNEXPECTED)),
        _ => return Err(Refusal(400, INVALID)),
    };
    if claims.text("sub").is_none() || claims.text("tenant").is_none() {
        return Err(Refusal(500, INVALID));
    }
    if let (Some(header), Some(claim)) = (call.user_id, claims.text("user_id"))
        && header != claim
    {
        return Err(Refusal(403, INVALID));
    }
    if claims.text("tenant") != Some(call.tenant) {
        let allowed = crosses && module.world().allows_cross_tenant();
        if !allowed || !in_consortium(module, call).await? {
            return Err(Refusal(403, INVALID));
        }
    }
    if expires {
        check_expiry(module, &claims)?;
    }
    Ok(claims)
}

fn read(module: &Module, token: &str) -> Result<Claims, Refusal> {
    // Java's split drops empty parts at the end, so `a.b.c.` counts three here and fails as a token then.
    let parts = token.trim_end_matches('.').split('.').count();
    match parts {
        5 if module.own().knows_refresh_token(token) => Err(Refusal(500, UNEXPECTED)),
        3 => {
            let payload = module.key().payload(token).ok_or(Refusal(401, INVALID))?;
            Claims::parse(&payload).ok_or(Refusal(500, INVALID))
        }
        _ => Err(Refusal(401, INVALID)),
    }
}

/// A float is cut, a text or nothing at all is an exception; the second of `exp` itself is still good.
fn check_expiry(module: &Module, claims: &Claims) -> Result<(), Refusal> {
    #[expect(clippy::cast_possible_truncation, reason = "cut, as Java does")]
    let cut = |value: &Value| {
        value
            .as_i64()
            .or_else(|| value.as_f64().map(|float| float as i64))
    };
    let expiry = claims
        .get("exp")
        .and_then(cut)
        .ok_or(Refusal(500, UNEXPECTED))?;
    if module.clock.wall() > expiry {
        return Err(Refusal(401, INVALID));
    }
    Ok(())
}

async fn in_consortium(module: &Module, call: &Call<'_>) -> Result<bool, Refusal> {
    let known = module.memory().consortium(call.tenant, module.clock.now());
    if let Some(member) = known {
        return Ok(member);
    }
    let answer = lookups::user_tenants(module, call)
        .await
        .map_err(|_| Refusal(500, UNEXPECTED))?;
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let members = body["userTenants"]
        .as_array()
        .filter(|_| answer.status == 200)
        .ok_or(Refusal(500, UNEXPECTED))?;
    let member = !members.is_empty();
    module.memory().set_consortium(call.tenant, member);
    Ok(member)
}
