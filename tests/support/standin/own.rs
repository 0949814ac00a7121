//! mod-authtoken's own routes: signing, refreshing and invalidating tokens, and the tenant interface.
//!
//! Each is called twice: first as a filter call, which is answered with the route's magic permission, then as a handler call
//! that carries it. Refresh tokens are kept in memory, where the real module has them in a database.

use std::collections::HashMap;

use serde_json::Value;

use super::super::raw::Request;
use super::json::{Object, array, object, quoted};
use super::token::Claims;
use super::wire::Reply;
use super::{Module, path};

/// An own route, found by plain string prefix: `/tokenizer` belongs to `/token`.
#[derive(Debug)]
pub struct Route {
    prefix: &'static str,
    /// What the token itself must hold.
    needs: &'static [&'static str],
    /// What the handler call must carry: base64 of the prefix.
    magic: &'static str,
}

/// In the order in which they are tried.
const ROUTES: [Route; 7] = [
    Route {
        prefix: "/token/sign",
        needs: &["auth.token.sign.post"],
        magic: "L3Rva2VuL3NpZ24=.execute",
    },
    Route {
        prefix: "/token/refresh",
        needs: &["auth.token.refresh.post"],
        magic: "L3Rva2VuL3JlZnJlc2g=.execute",
    },
    Route {
        prefix: "/token/invalidate-all",
        needs: &[],
        magic: "L3Rva2VuL2ludmFsaWRhdGUtYWxs.execute",
    },
    Route {
        prefix: "/token/invalidate",
        needs: &[],
        magic: "L3Rva2VuL2ludmFsaWRhdGU=.execute",
    },
    Route {
        prefix: "/_/tenant",
        needs: &[],
        magic: "L18vdGVuYW50.execute",
    },
    Route {
        prefix: "/refreshtoken",
        needs: &["auth.refreshtoken.post"],
        magic: "L3JlZnJlc2h0b2tlbg==.execute",
    },
    Route {
        prefix: "/token",
        needs: &["auth.token.post"],
        magic: "L3Rva2Vu.execute",
    },
];

/// The own route that a raw path belongs to.
pub fn route(path: &str) -> Option<&'static Route> {
    ROUTES.iter().find(|route| path.starts_with(route.prefix))
}

impl Route {
    /// Whether an `X-Okapi-Permissions` value holds the magic permission.
    pub fn has_magic(&self, permissions: &str) -> bool {
        let permissions: Value = serde_json::from_str(permissions).unwrap_or_default();
        permissions
            .as_array()
            .is_some_and(|list| list.iter().any(|permission| permission == self.magic))
    }

    /// Answers the filter call. `held`: the token's own permissions with the parts of its `SYS#` sets.
    pub fn authorize(&self, held: &[String], token: String, tokens: String) -> Reply {
        let missing = |need: &&str| !held.iter().any(|permission| permission == need);
        if self.needs.iter().any(missing) {
            return Reply::chunked(401).body(format!(
                "Missing required module-level permissions for endpoint '{}': {}",
                self.prefix,
                self.needs.join(", ")
            ));
        }
        Reply::chunked(202)
            .with("X-Okapi-Permissions", array(&[self.magic]))
            .with("X-Okapi-Token", token)
            .with("X-Okapi-Module-Tokens", tokens)
    }
}

/// What the own routes keep.
#[derive(Debug, Default)]
pub struct Own {
    refresh_tokens: HashMap<String, RefreshToken>,
    jobs: HashMap<String, Job>,
}

#[derive(Debug)]
struct RefreshToken {
    tenant: String,
    username: String,
    user_id: String,
    /// Seconds since 1970.
    expires: i64,
    used: bool,
}

#[derive(Debug)]
struct Job {
    tenant: String,
    attributes: Value,
}

impl Own {
    /// Whether this token was given out here as a refresh token.
    pub fn knows_refresh_token(&self, token: &str) -> bool {
        self.refresh_tokens.contains_key(token)
    }

    fn revoke_all(&mut self, tenant: &str, user_id: &str) {
        for token in self.refresh_tokens.values_mut() {
            if token.tenant == tenant && token.user_id == user_id {
                token.used = true;
            }
        }
    }
}

/// Runs a handler: the request has shown the magic permission of its path's route. `claims` are those of the request's token.
pub fn handle(module: &Module, request: &Request, tenant: &str, claims: &Claims) -> Reply {
    let path = path::raw(&request.target);
    let handler = match path {
        "/token" => legacy_sign,
        "/token/sign" => sign,
        "/token/refresh" => refresh,
        "/refreshtoken" => sign_refresh_token,
        "/token/invalidate" => invalidate,
        "/token/invalidate-all" => {
            return match request.method.as_str() {
                "POST" => invalidate_all(module, tenant, claims),
                _ => Reply::router(405),
            };
        }
        _ if path == "/_/tenant" || path.starts_with("/_/tenant/") => {
            return tenant_interface(module, request, tenant);
        }
        _ => return Reply::router(404),
    };
    if request.method != "POST" {
        return Reply::router(405);
    }
    match serde_json::from_slice::<Value>(&request.body) {
        Ok(body) => handler(module, tenant, &body).unwrap_or_else(|| Reply::router(400)),
        Err(_) => Reply::router(400),
    }
}

/// `POST /token/sign`: a login's access and refresh token, or an expiring dummy. `None`: not what the API describes.
fn sign(module: &Module, tenant: &str, body: &Value) -> Option<Reply> {
    let payload = &body["payload"];
    let username = payload["sub"].as_str()?;
    if payload["dummy"] == true {
        let expires = module.clock.wall() + module.settings.access_token_life;
        let mut claims = Claims::dummy(tenant, username)
            .with("type", "dummy-expiring")
            .with("exp", expires);
        if payload["extra_permissions"].is_array() {
            claims = claims.with("extra_permissions", payload["extra_permissions"].clone());
        }
        return Some(one_token("token", &module.key().sign(&claims)));
    }
    let user_id = payload["user_id"].as_str()?;
    Some(both_tokens(module, tenant, username, user_id))
}

/// `POST /token`: the deprecated login.
fn legacy_sign(module: &Module, tenant: &str, body: &Value) -> Option<Reply> {
    let payload = &body["payload"];
    let username = payload["sub"].as_str()?;
    if !module.world().allows_legacy_login(tenant) {
        return Some(Reply::text(404, "Tenant not a legacy tenant"));
    }
    let claims = if payload["dummy"] == true {
        let claims = Claims::dummy(tenant, username);
        match payload["extra_permissions"].as_array() {
            Some(permissions) => claims.with("extra_permissions", permissions.clone()),
            None => claims,
        }
    } else {
        let user_id = payload["user_id"].as_str()?;
        Claims::legacy_access(tenant, username, user_id, module.clock.wall())
    };
    Some(one_token("token", &module.key().sign(&claims)))
}

/// `POST /refreshtoken`: a refresh token alone.
fn sign_refresh_token(module: &Module, tenant: &str, body: &Value) -> Option<Reply> {
    let username = body["sub"].as_str()?;
    let user_id = body["userId"].as_str()?;
    let (token, _) = new_refresh_token(module, tenant, username, user_id);
    Some(one_token("refreshToken", &token))
}

/// `POST /token/refresh`: works once for each refresh token; a second try revokes all of the user's.
fn refresh(module: &Module, tenant: &str, body: &Value) -> Option<Reply> {
    let token = body["refreshToken"].as_str()?;
    let now = module.clock.wall();
    let (username, user_id) = {
        let mut own = module.own();
        let Some(known) = own.refresh_tokens.get_mut(token) else {
            return Some(Reply::text(401, "Invalid token"));
        };
        if known.tenant != tenant {
            return Some(Reply::text(403, "Invalid token"));
        }
        let names = (known.username.clone(), known.user_id.clone());
        let reused = std::mem::replace(&mut known.used, true);
        let expired = now > known.expires;
        if reused {
            own.revoke_all(tenant, &names.1);
        }
        if reused || expired {
            return Some(Reply::text(401, "Invalid token"));
        }
        names
    };
    Some(both_tokens(module, tenant, &username, &user_id))
}

/// `POST /token/invalidate`: a logout. The access token works on until it expires.
fn invalidate(module: &Module, _tenant: &str, body: &Value) -> Option<Reply> {
    let token = body["refreshToken"].as_str()?;
    Some(match module.own().refresh_tokens.get_mut(token) {
        Some(known) => {
            known.used = true;
            Reply::empty(204)
        }
        None => Reply::text(500, "Cannot handle token logout:Invalid token"),
    })
}

/// `POST /token/invalidate-all`: a logout everywhere, of the user of the request's own token.
fn invalidate_all(module: &Module, tenant: &str, claims: &Claims) -> Reply {
    match (claims.text("type"), claims.text("user_id")) {
        (Some("access"), Some(user_id)) => {
            module.own().revoke_all(tenant, user_id);
            Reply::empty(204)
        }
        _ => Reply::text(500, "Cannot handle token logout all: not an access token"),
    }
}

fn both_tokens(module: &Module, tenant: &str, username: &str, user_id: &str) -> Reply {
    let now = module.clock.wall();
    let expires = now + module.settings.access_token_life;
    let access = Claims::access(tenant, username, user_id, now, expires);
    let (refresh, refresh_expires) = new_refresh_token(module, tenant, username, user_id);
    let body = format!(
        r#"{{"accessToken":{},"refreshToken":{},"accessTokenExpiration":"{}","refreshTokenExpiration":"{}","tenantId":{}}}"#,
        quoted(&module.key().sign(&access)),
        quoted(&refresh),
        iso_8601(expires),
        iso_8601(refresh_expires),
        quoted(tenant),
    );
    Reply::json(201, body)
}

fn new_refresh_token(
    module: &Module,
    tenant: &str,
    username: &str,
    user_id: &str,
) -> (String, i64) {
    let expires = module.clock.wall() + module.settings.refresh_token_life;
    let token = module.chance().refresh_token();
    module.own().refresh_tokens.insert(
        token.clone(),
        RefreshToken {
            tenant: tenant.to_owned(),
            username: username.to_owned(),
            user_id: user_id.to_owned(),
            expires,
            used: false,
        },
    );
    (token, expires)
}

fn one_token(name: &str, token: &str) -> Reply {
    Reply::json(201, object(&[(name, token)]))
}

/// `POST /_/tenant`, `GET` and `DELETE /_/tenant/{id}`. A job is done by the time it is asked for.
fn tenant_interface(module: &Module, request: &Request, tenant: &str) -> Reply {
    let id = path::raw(&request.target)
        .strip_prefix("/_/tenant/")
        .filter(|id| !id.is_empty() && !id.contains('/'));
    match (request.method.as_str(), id) {
        ("POST", None) => start_job(module, request, tenant),
        ("GET", Some(id)) => match module.own().jobs.get(id) {
            Some(job) if job.tenant == tenant => {
                let body = format!(
                    r#"{{"id":{},"tenant":{},"complete":true,"tenantAttributes":{}}}"#,
                    quoted(id),
                    quoted(tenant),
                    as_stored(&job.attributes)
                );
                Reply::plain(200, body).with("content-type", "application/json")
            }
            _ => no_job(id),
        },
        ("DELETE", Some(id)) => match module.own().jobs.remove(id) {
            Some(_) => Reply::empty(204),
            None => no_job(id),
        },
        _ => Reply::router(405),
    }
}

fn start_job(module: &Module, request: &Request, tenant: &str) -> Reply {
    let Ok(body) = std::str::from_utf8(&request.body) else {
        return Reply::router(400);
    };
    let (Some(ordered), Ok(attributes)) =
        (Object::parse(body), serde_json::from_str::<Value>(body))
    else {
        return Reply::router(400);
    };
    if attributes["purge"] == true {
        return Reply::empty(204);
    }
    let id = module.chance().job();
    let given: Vec<_> = ordered
        .0
        .iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    let body = format!(
        r#"{{"id":{},"complete":false,"tenant":{},"tenantAttributes":{{{}}}}}"#,
        quoted(&id),
        quoted(tenant),
        given.join(",")
    );
    let location = format!("/_/tenant/{id}");
    module.own().jobs.insert(
        id,
        Job {
            tenant: tenant.to_owned(),
            attributes,
        },
    );
    Reply::plain(201, body)
        .with("location", location)
        .with("content-type", "application/json")
}

fn no_job(id: &str) -> Reply {
    Reply::plain(404, format!("Job not found {id}")).with("content-type", "text/plain")
}

/// An object as the database gives it back: shorter names first.
fn as_stored(object: &Value) -> String {
    let mut members: Vec<_> = object.as_object().into_iter().flatten().collect();
    members.sort_by_key(|(name, _)| (name.len(), name.as_str()));
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Seconds since 1970 as `2036-11-27T12:15:47Z`.
fn iso_8601(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The year begins in March here, so that leap days come last; 146,097 days are 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}
