//! The filter: who may do what. Checks in mod-authtoken's order, answers in its words (its `FilterApi`, `Token`, `Api`).
//!
//! Not a second opinion on what would be right: where the real module is odd (a list with a space after the comma asks for a
//! permission with a space, an unknown `SYS#` set has no parts), so is this.

use std::sync::Arc;

use serde_json::Value;

use super::super::raw::Request;
use super::json::{self, Object};
use super::memory::Names;
use super::token::Claims;
use super::wire::Reply;
use super::{Module, lookups, own, path};

/// Body of every refusal of a token, whatever the reason.
const INVALID: &str = "Invalid token";
/// Body when checking a token ended in an exception.
const UNEXPECTED: &str = "Unexpected exception during token validation";
/// Starts the subject of a token that was made for a token-less request.
pub const UNDEFINED_USER: &str = "UNDEFINED_USER__";
/// Starts the name of a permission set that stands for one route of one module.
const SYSTEM_SET: &str = "SYS#";

/// What a filter call says in its headers; of duplicates the first counts.
#[derive(Debug)]
pub struct Call<'a> {
    /// `X-Okapi-Tenant`.
    pub tenant: &'a str,
    /// `X-Okapi-Url`.
    pub url: &'a str,
    /// `X-Okapi-Request-Id`, handed on to look-ups.
    pub request_id: Option<&'a str>,
    user_id: Option<&'a str>,
}

/// A refused token: status and text.
struct Refusal(u16, &'static str);

/// Answers a request. `None`: the real module would never answer.
pub async fn answer(module: &Module, request: &Request) -> Option<Reply> {
    let path = path::raw(&request.target);
    if let Some(reply) = before_the_filter(request, path) {
        return Some(reply);
    }
    let header = |name| request.headers.get(name);
    let Some(tenant) = header("X-Okapi-Tenant") else {
        return Some(Reply::text(400, "Missing header: X-Okapi-Tenant"));
    };
    let Some(url) = header("X-Okapi-Url") else {
        return Some(Reply::text(400, "Missing header: X-Okapi-Url"));
    };
    let call = Call {
        tenant,
        url,
        request_id: header("X-Okapi-Request-Id"),
        user_id: header("X-Okapi-User-Id"),
    };
    let given = header("X-Okapi-Token");
    let token = match given {
        Some(token) => token.to_owned(),
        None => {
            let subject = module.chance().subject();
            module.key().sign(&Claims::dummy(tenant, &subject))
        }
    };
    let claims = match validate(module, &call, &token).await {
        Ok(claims) => claims,
        Err(Refusal(status, text)) => return Some(Reply::text(status, text)),
    };
    authorize(module, request, path, &call, token, given.is_none(), claims).await
}

/// What the router answers before the filter sees anything.
fn before_the_filter(request: &Request, path: &str) -> Option<Reply> {
    // `OPTIONS *`, and by the same rule every target that is no path.
    if !path.starts_with('/') {
        return Some(Reply::router(404));
    }
    let Some(normalised) = path::normalised(path) else {
        return Some(Reply::router(400));
    };
    if request.method == "GET" && normalised == "/admin/health" {
        return Some(Reply::plain(200, "OK").with("content-type", "text/plain"));
    }
    // Form bodies are decoded while reading, and an empty one is no form.
    let has_body = !request.body.is_empty() || request.headers.has("transfer-encoding");
    let is_form = request.headers.get("content-type").is_some_and(|value| {
        let value = value.trim_start().to_ascii_lowercase();
        value.starts_with("application/x-www-form-urlencoded")
            || value.starts_with("multipart/form-data")
    });
    (has_body && is_form).then(|| Reply::router(500))
}

/// Checks a token: who made it, what it is, whom it speaks for, where, and until when.
async fn validate(module: &Module, call: &Call<'_>, token: &str) -> Result<Claims, Refusal> {
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
        // A float is cut, a text or nothing at all is an exception; the second of `exp` itself is still good.
        let expiry = claims
            .get("exp")
            .and_then(seconds)
            .ok_or(Refusal(500, UNEXPECTED))?;
        if module.clock.wall() > expiry {
            return Err(Refusal(401, INVALID));
        }
    }
    Ok(claims)
}

fn read(module: &Module, token: &str) -> Result<Claims, Refusal> {
    // Java's split drops empty parts at the end, so `a.b.c..` counts three here and fails as a JWT then.
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

fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "cut, as Java does")]
    value
        .as_i64()
        .or_else(|| value.as_f64().map(|float| float as i64))
}

async fn in_consortium(module: &Module, call: &Call<'_>) -> Result<bool, Refusal> {
    let now = module.clock.now();
    if let Some(member) = module.memory().consortium(call.tenant, now) {
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

/// The filter proper, once the token is good.
async fn authorize(
    module: &Module,
    request: &Request,
    path: &str,
    call: &Call<'_>,
    token: String,
    token_less: bool,
    mut claims: Claims,
) -> Option<Reply> {
    let subject = claims.text("sub").unwrap_or_default().to_owned();
    let user_id: Option<String> = call
        .user_id
        .or_else(|| claims.text("user_id"))
        .map(str::to_owned);

    let mut extra = claims.extra_permissions();
    if let Some(header) = request.headers.get("X-Okapi-Extra-Permissions") {
        extra.extend(split(header).map(str::to_owned));
        // Into the claim's own list, if there is one: hence they show in the answer's token.
        if claims.get("extra_permissions").is_some() {
            claims = claims.with("extra_permissions", extra.clone());
        }
    }
    // No failure handler in the real module: a failed look-up leaves the request unanswered.
    let (system, asked) = expand_system(module, call, &extra).await?;

    let Some(tokens) = module_tokens(module, request, call, &subject, user_id.as_deref(), &token)
    else {
        // An exception after a look-up is lost; before one, the router catches it.
        return (!asked).then(|| Reply::router(500));
    };
    let tokens = json::object(&tokens);

    if let Some(route) = own::route(path) {
        let permissions = request.headers.get("X-Okapi-Permissions");
        if permissions.is_some_and(|permissions| route.has_magic(permissions)) {
            return Some(own::handle(
                module,
                request,
                path,
                call.tenant,
                &token,
                &claims,
            ));
        }
        return Some(route.authorize(&system, token, tokens));
    }

    let dummy = claims.is_dummy() || subject.starts_with(UNDEFINED_USER);
    if request.headers.get("Authtoken-Refresh-Cache") == Some("true") && !dummy {
        module.memory().forget_permissions();
    }
    let held = match held(module, call, user_id.as_deref(), &extra, &system, dummy).await {
        Ok(held) => held,
        Err(Trouble::Refused(text)) => {
            return Some(Reply::text(401, format!("Invalid token: {text}")));
        }
        Err(Trouble::Failed(cause)) => {
            let user = user_id.as_deref().unwrap_or("null");
            let text = format!("Unable to retrieve permissions for user with id '{user}': {cause}");
            return Some(refusal(400, tokens, text));
        }
    };
    let required: Vec<_> = list(request, "X-Okapi-Permissions-Required").collect();
    for permission in &required {
        if held.iter().chain(&extra).any(|known| known == permission) {
            continue;
        }
        if token_less {
            let text = format!("Token missing, access requires permission: {permission}");
            return Some(Reply::text(400, text));
        }
        let user = user_id.as_deref().unwrap_or("null");
        let text =
            format!("Access for user '{subject}' ({user}) requires permission: {permission}");
        return Some(refusal(403, tokens, text));
    }
    let desired: Vec<_> = list(request, "X-Okapi-Permissions-Desired").collect();
    let told: Vec<_> = held
        .iter()
        .filter(|name| {
            required.contains(&name.as_str()) || desired.iter().any(|glob| finds(glob, name))
        })
        .collect();

    let reply = Reply::chunked(202)
        .with("Content-Type", "text/plain")
        .with("X-Okapi-Permissions", json::array(&told))
        .with("X-Okapi-Module-Tokens", tokens)
        .with("X-Okapi-Token", module.key().sign(&claims));
    Some(match user_id {
        Some(user_id) => reply.with("X-Okapi-User-Id", user_id),
        None => reply,
    })
}

/// A refusal with the module tokens, so that filters after this one still get theirs.
fn refusal(status: u16, tokens: String, text: String) -> Reply {
    Reply::plain(status, text)
        .with("X-Okapi-Module-Tokens", tokens)
        .with("Content-Type", "text/plain")
}

/// A token for each module of the request, and the request's own. `None` if the header is not an object of arrays.
fn module_tokens(
    module: &Module,
    request: &Request,
    call: &Call<'_>,
    subject: &str,
    user_id: Option<&str>,
    token: &str,
) -> Option<Vec<(String, String)>> {
    let mut tokens = Vec::new();
    if let Some(header) = request.headers.get("X-Okapi-Module-Permissions") {
        for (name, permissions) in Object::parse(header)?.0 {
            if !permissions.is_array() {
                return None;
            }
            let claims = Claims::module(call.tenant, subject, user_id, &name, permissions);
            let minted = module.key().sign(&claims);
            tokens.push((name, minted));
        }
    }
    tokens.push(("_".to_owned(), token.to_owned()));
    Some(tokens)
}

/// The permissions with `SYS#` sets replaced by their parts, and whether that took a look-up. `None`: one failed.
async fn expand_system(
    module: &Module,
    call: &Call<'_>,
    permissions: &[String],
) -> Option<(Vec<String>, bool)> {
    let mut expanded = Vec::new();
    let mut unknown = Vec::new();
    for name in permissions {
        if !name.starts_with(SYSTEM_SET) {
            expanded.push(name.clone());
            continue;
        }
        let known = module.memory().system(name, module.clock.now());
        match known {
            Some(parts) => expanded.extend_from_slice(&parts),
            None => unknown.push(name),
        }
    }
    for name in &unknown {
        let name = std::slice::from_ref(*name);
        let names = sets(module, call, name).await.ok()?;
        let parts: Names = names[1..].into();
        module
            .memory()
            .set_system(&name[0], Arc::clone(&parts), module.clock.now());
        expanded.extend_from_slice(&parts);
    }
    Some((expanded, !unknown.is_empty()))
}

/// Why the permissions are not to be had.
enum Trouble {
    /// 401: mod-users says no.
    Refused(String),
    /// 400: a module could not be asked or made no sense.
    Failed(String),
}

/// All permissions that count for this call, each once: the user's, the token's, the parts of the token's `SYS#` sets.
async fn held(
    module: &Module,
    call: &Call<'_>,
    user_id: Option<&str>,
    extra: &[String],
    system: &[String],
    dummy: bool,
) -> Result<Vec<String>, Trouble> {
    let own: Vec<String> = extra
        .iter()
        .filter(|name| !name.starts_with(SYSTEM_SET))
        .cloned()
        .collect();
    let mut held = Vec::new();
    if dummy {
        merge(&mut held, &own);
    } else {
        if let Some(id) = user_id.filter(|id| !id.trim().is_empty()) {
            check_active(module, call, id).await?;
        }
        let user_id = user_id.unwrap_or("null");
        let (users, tokens) = tokio::join!(
            user_permissions(module, call, user_id),
            token_permissions(module, call, &own)
        );
        merge(&mut held, &users?);
        merge(&mut held, &tokens?);
    }
    merge(&mut held, system);
    Ok(held)
}

async fn check_active(module: &Module, call: &Call<'_>, id: &str) -> Result<(), Trouble> {
    let known = module.memory().active(call.tenant, id, module.clock.now());
    let active = match known {
        Some(active) => active,
        None => {
            let answer = lookups::user(module, call, id)
                .await
                .map_err(|error| Trouble::Failed(error.to_string()))?;
            let refused = |text: String| Err(Trouble::Refused(text));
            match answer.status {
                200 => {}
                404 => return refused(format!("User with id {id} does not exist")),
                status => {
                    return refused(format!(
                        "Unexpected user response code {status} for user id {id}"
                    ));
                }
            }
            let Some(user) = Object::parse(&answer.body) else {
                return refused(format!("Invalid user response: {}", answer.body));
            };
            let active = user.get("active") == Some(&Value::Bool(true));
            module
                .memory()
                .set_active(call.tenant, id, active, module.clock.now());
            active
        }
    };
    if active {
        Ok(())
    } else {
        Err(Trouble::Refused(format!("user with id {id} is not active")))
    }
}

async fn user_permissions(
    module: &Module,
    call: &Call<'_>,
    user_id: &str,
) -> Result<Names, Trouble> {
    let now = module.clock.now();
    let known = module.memory().permissions(call.tenant, user_id, now);
    if let Some(names) = known {
        return Ok(names);
    }
    let answer = lookups::user_permissions(module, call, user_id)
        .await
        .map_err(|error| Trouble::Failed(error.to_string()))?;
    match answer.status {
        200 => {}
        404 => return Err(Trouble::Failed(format!("User does not exist: {user_id}"))),
        status => {
            return Err(Trouble::Failed(format!(
                "Unable to retrieve permissions (code {status}): {}",
                answer.body
            )));
        }
    }
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let names: Names = body["permissionNames"]
        .as_array()
        .ok_or_else(|| Trouble::Failed("Got malformed/empty permissions object".to_owned()))?
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    module
        .memory()
        .set_permissions(call.tenant, user_id, Arc::clone(&names), module.clock.now());
    Ok(names)
}

async fn token_permissions(
    module: &Module,
    call: &Call<'_>,
    own: &[String],
) -> Result<Names, Trouble> {
    if own.is_empty() {
        return Ok(Arc::default());
    }
    let known = module.memory().sets(call.tenant, own, module.clock.now());
    if let Some(names) = known {
        return Ok(names);
    }
    let names: Names = sets(module, call, own).await?.into();
    module
        .memory()
        .set_sets(call.tenant, own, Arc::clone(&names), module.clock.now());
    Ok(names)
}

/// The names themselves, then their parts, each once.
async fn sets(module: &Module, call: &Call<'_>, names: &[String]) -> Result<Vec<String>, Trouble> {
    let answer = lookups::permission_sets(module, call, names)
        .await
        .map_err(|error| Trouble::Failed(error.to_string()))?;
    if answer.status != 200 {
        return Err(Trouble::Failed(format!(
            "Expected 200, got result {} : {}",
            answer.status, answer.body
        )));
    }
    let body: Value = serde_json::from_str(&answer.body)
        .map_err(|error| Trouble::Failed(format!("Failed to decode: {error}")))?;
    let mut expanded = Vec::new();
    merge(&mut expanded, names);
    for set in body["permissions"].as_array().into_iter().flatten() {
        let name = set["permissionName"].as_str().map(str::to_owned);
        merge(&mut expanded, name.as_slice());
        for part in set["subPermissions"].as_array().into_iter().flatten() {
            let name = part
                .as_str()
                .or_else(|| part["permissionName"].as_str())
                .map(str::to_owned);
            merge(&mut expanded, name.as_slice());
        }
    }
    Ok(expanded)
}

fn merge(into: &mut Vec<String>, names: &[String]) {
    for name in names {
        if !into.contains(name) {
            into.push(name.clone());
        }
    }
}

fn list<'a>(request: &'a Request, name: &str) -> impl Iterator<Item = &'a str> {
    request.headers.get(name).into_iter().flat_map(split)
}

/// Java's `split(",")`: nothing trimmed, empty parts at the end dropped, but an empty text is one empty part.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let kept = if list.is_empty() {
        Some("")
    } else {
        Some(list.trim_end_matches(',')).filter(|kept| !kept.is_empty())
    };
    kept.into_iter().flat_map(|kept| kept.split(','))
}

/// Whether a desired permission matches: `*` stands for anything, and the rest may stand anywhere in the name.
fn finds(glob: &str, name: &str) -> bool {
    let mut rest = name;
    glob.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}
