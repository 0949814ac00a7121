//! The filter: who may do what. Checks in mod-authtoken's order, answers in its words (its `FilterApi` and `Api`).
//!
//! Not a second opinion on what would be right: where the real module is odd (a list with a space after the comma asks for a
//! permission that begins with one, an unknown `SYS#` set has no parts), so is this.

use std::borrow::Cow;

use super::super::raw::Request;
use super::json::{self, Object};
use super::permissions::{Extra, Trouble};
use super::token::Claims;
use super::validate::{Refusal, validate};
use super::wire::Reply;
use super::{Module, own, path, permissions};

/// Starts the subject of a token that was made for a token-less request.
const UNDEFINED_USER: &str = "UNDEFINED_USER__";

/// What a filter call says in its headers; of duplicates the first counts.
#[derive(Debug)]
pub struct Call<'a> {
    /// `X-Okapi-Tenant`.
    pub tenant: &'a str,
    /// `X-Okapi-Url`.
    pub url: &'a str,
    /// `X-Okapi-Request-Id`, handed on to look-ups.
    pub request_id: Option<&'a str>,
    /// `X-Okapi-User-Id`; absent and empty are not the same.
    pub user_id: Option<&'a str>,
}

/// Whom a good token speaks for.
struct Caller {
    /// The request's token, or the one made for it.
    token: String,
    /// Whether the request had none.
    token_less: bool,
    claims: Claims,
    subject: String,
    /// The header's, else the token's.
    user_id: Option<String>,
}

impl Caller {
    fn is_dummy(&self) -> bool {
        self.claims.is_dummy() || self.subject.starts_with(UNDEFINED_USER)
    }

    fn user(&self) -> &str {
        self.user_id.as_deref().unwrap_or("null")
    }
}

/// Answers a request. `None`: the real module would never answer.
pub async fn answer(module: &Module, request: &Request) -> Option<Reply> {
    let path = path::raw(&request.target);
    if let Some(reply) = before_the_filter(request, path) {
        return Some(reply);
    }
    let header = |name| request.headers.latin(name);
    let Some(tenant) = header("X-Okapi-Tenant") else {
        return Some(Reply::text(400, "Missing header: X-Okapi-Tenant"));
    };
    let Some(url) = header("X-Okapi-Url") else {
        return Some(Reply::text(400, "Missing header: X-Okapi-Url"));
    };
    let (request_id, user_id) = (header("X-Okapi-Request-Id"), header("X-Okapi-User-Id"));
    let call = Call {
        tenant: &tenant,
        url: &url,
        request_id: request_id.as_deref(),
        user_id: user_id.as_deref(),
    };
    let given = header("X-Okapi-Token");
    let token_less = given.is_none();
    let token = given.map_or_else(
        || {
            let subject = module.chance().subject();
            module.key().sign(&Claims::dummy(&tenant, &subject))
        },
        Cow::into_owned,
    );
    let claims = match validate(module, &call, &token).await {
        Ok(claims) => claims,
        Err(Refusal(status, text)) => return Some(Reply::text(status, text)),
    };
    let caller = Caller {
        token,
        token_less,
        subject: claims.text("sub").unwrap_or_default().to_owned(),
        user_id: call
            .user_id
            .or_else(|| claims.text("user_id"))
            .map(str::to_owned),
        claims,
    };
    authorize(module, request, &call, caller).await
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
    // Form bodies are decoded while they are read, and an empty one is no form.
    let has_body = !request.body.is_empty() || request.headers.has("transfer-encoding");
    let is_form = request.headers.get("content-type").is_some_and(|value| {
        let value = value.trim_start().to_ascii_lowercase();
        value.starts_with("application/x-www-form-urlencoded")
            || value.starts_with("multipart/form-data")
    });
    (has_body && is_form).then(|| Reply::router(500))
}

/// The filter proper, once the token is good.
async fn authorize(
    module: &Module,
    request: &Request,
    call: &Call<'_>,
    mut caller: Caller,
) -> Option<Reply> {
    let mut given = caller.claims.extra_permissions();
    if let Some(header) = request.headers.latin("X-Okapi-Extra-Permissions") {
        given.extend(split(&header).map(str::to_owned));
        // Into the claim's own list, if there is one: hence they show in the answer's token.
        if caller.claims.get("extra_permissions").is_some() {
            caller.claims = caller.claims.with("extra_permissions", given.clone());
        }
    }
    // No failure handler in the real module: a failed look-up leaves the request unanswered.
    let (expanded, asked) = permissions::expand_system(module, call, &given).await?;
    let Some(tokens) = module_tokens(module, request, call, &caller) else {
        // An exception after a look-up is lost; before one, the router catches it.
        return (!asked).then(|| Reply::router(500));
    };

    let path = path::raw(&request.target);
    if let Some(route) = own::route(path) {
        let permissions = request.headers.latin("X-Okapi-Permissions");
        if permissions.is_some_and(|permissions| route.has_magic(&permissions)) {
            return Some(own::handle(module, request, call.tenant, &caller.claims));
        }
        return Some(route.authorize(&expanded, caller.token, tokens));
    }

    if request.headers.get("Authtoken-Refresh-Cache") == Some("true") && !caller.is_dummy() {
        module.memory().forget_permissions();
    }
    let extra = Extra {
        given: &given,
        expanded: &expanded,
    };
    let user_id = caller.user_id.as_deref();
    match permissions::held(module, call, user_id, extra, caller.is_dummy()).await {
        Ok(held) => Some(decide(module, request, caller, &given, &held, tokens)),
        Err(Trouble::Refused(text)) => Some(Reply::text(401, format!("Invalid token: {text}"))),
        Err(Trouble::Failed(cause)) => {
            let user = caller.user();
            let text = format!("Unable to retrieve permissions for user with id '{user}': {cause}");
            Some(refusal(400, tokens, text))
        }
    }
}

/// The answer, once all permissions are known. What is required may also stand in the token as it is (`given`).
fn decide(
    module: &Module,
    request: &Request,
    caller: Caller,
    given: &[String],
    held: &[String],
    tokens: String,
) -> Reply {
    let required = request.headers.latin("X-Okapi-Permissions-Required");
    let required: Vec<_> = required.iter().flat_map(|list| split(list)).collect();
    let has = |permission: &str| held.iter().chain(given).any(|known| known == permission);
    if let Some(missing) = required.iter().find(|permission| !has(permission)) {
        if caller.token_less {
            let text = format!("Token missing, access requires permission: {missing}");
            return Reply::text(400, text);
        }
        let (subject, user) = (&caller.subject, caller.user());
        let text = format!("Access for user '{subject}' ({user}) requires permission: {missing}");
        return refusal(403, tokens, text);
    }
    let desired = request.headers.latin("X-Okapi-Permissions-Desired");
    let desired: Vec<_> = desired.iter().flat_map(|list| split(list)).collect();
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
        .with("X-Okapi-Token", module.key().sign(&caller.claims));
    match caller.user_id {
        Some(user_id) => reply.with("X-Okapi-User-Id", user_id),
        None => reply,
    }
}

/// A refusal with the module tokens, so that filters after this one still get theirs.
fn refusal(status: u16, tokens: String, text: String) -> Reply {
    Reply::plain(status, text)
        .with("X-Okapi-Module-Tokens", tokens)
        .with("Content-Type", "text/plain")
}

/// A token for each module of the request, and the request's own, as JSON. `None` if the header is not an object of arrays.
fn module_tokens(
    module: &Module,
    request: &Request,
    call: &Call<'_>,
    caller: &Caller,
) -> Option<String> {
    let mut tokens = Vec::new();
    if let Some(header) = request.headers.latin("X-Okapi-Module-Permissions") {
        for (name, permissions) in Object::parse(&header)?.0 {
            if !permissions.is_array() {
                return None;
            }
            let user_id = caller.user_id.as_deref();
            let claims = Claims::module(call.tenant, &caller.subject, user_id, &name, permissions);
            let minted = module.key().sign(&claims);
            tokens.push((name, minted));
        }
    }
    tokens.push(("_".to_owned(), caller.token.clone()));
    Some(json::object(&tokens))
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
