//! The admin port, a listener of its own that no filter call can reach.
//!
//! | endpoint | answer |
//! |---|---|
//! | `GET /health/live`, `GET /admin/health` | 200 while the event loop answers |
//! | `GET /health/ready` | 200, or 503 while stopping or if upstream's address leads back here |
//! | `GET /metrics` | Prometheus' text format |
//! | `GET /cache` | entries, bytes, age of the oldest, entries per tenant, as JSON |
//! | `DELETE /cache`, `/cache/{tenant}`, `/cache/{tenant}/{user}` | 204, and nothing of it is answered from the cache again |
//! | `GET /requests` | what the latest and the costliest requests cost in auth calls, as JSON, or as a table for `Accept: text/plain` |
//!
//! `/cache` and `/requests` need the bearer token of `ADMIN_TOKEN` or `ADMIN_TOKEN_FILE` and are refused when there is none. Readiness
//! never depends on the auth module: all Okapi pods would become unready with it, at the same moment.

use crate::config::Secret;
use crate::filter::Filter;
use crate::invalidation::Reach;
use crate::metrics::Purge;
use axum::extract::{Path, Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use subtle::ConstantTimeEq;

/// What the endpoints look at.
#[derive(Clone, Debug)]
pub struct Admin {
    filter: Arc<Filter>,
    token: Option<Secret>,
    draining: Arc<AtomicBool>,
}

impl Admin {
    /// `draining` turns true when the process is told to stop.
    pub fn new(filter: Arc<Filter>, token: Option<Secret>, draining: Arc<AtomicBool>) -> Self {
        Self {
            filter,
            token,
            draining,
        }
    }

    /// The port's routes.
    pub fn router(self) -> Router {
        let guarded = Router::new()
            .route("/cache", get(show_cache).delete(purge_all))
            .route("/requests", get(show_requests))
            .route("/cache/{tenant}", delete(purge_tenant))
            .route("/cache/{tenant}/{user}", delete(purge_user))
            .route_layer(middleware::from_fn_with_state(self.clone(), require_token));
        Router::new()
            .route("/health/live", get(live))
            .route("/admin/health", get(live))
            .route("/health/ready", get(ready))
            .route("/metrics", get(metrics))
            .merge(guarded)
            .with_state(self)
    }

    /// Why nothing should be sent here, if so.
    fn unready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::SeqCst) {
            Some("stopping")
        } else if self.filter.looped() {
            Some("AUTH_SIDECAR_UPSTREAM_URL leads back to this process")
        } else {
            None
        }
    }
}

async fn live() -> &'static str {
    "OK"
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    match admin.unready() {
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
        None => (StatusCode::OK, "OK"),
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    admin.filter.metrics().ready(admin.unready().is_none());
    let text = admin.filter.metrics().render(&admin.filter.levels());
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
}

/// Lets through who brings the bearer token; the others learn what is missing (RFC 9110, 11.6.1; RFC 6750, 3).
async fn require_token(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let Some(token) = &admin.token else {
        let text = "Nobody may look at or purge the cache: set AUTH_SIDECAR_ADMIN_TOKEN or AUTH_SIDECAR_ADMIN_TOKEN_FILE";
        return (StatusCode::FORBIDDEN, text).into_response();
    };
    match credentials(request.headers()) {
        Credentials::Bearer(given) if bool::from(given.ct_eq(token.as_bytes())) => {
            next.run(request).await
        }
        Credentials::Bearer(_) => refuse(
            StatusCode::UNAUTHORIZED,
            r#"Bearer realm="auth-sidecar", error="invalid_token""#,
            "The bearer token is not the one of AUTH_SIDECAR_ADMIN_TOKEN",
        ),
        Credentials::None => refuse(
            StatusCode::UNAUTHORIZED,
            r#"Bearer realm="auth-sidecar""#,
            "A bearer token is needed: Authorization: Bearer <the value of AUTH_SIDECAR_ADMIN_TOKEN>",
        ),
        Credentials::Several => refuse(
            StatusCode::BAD_REQUEST,
            r#"Bearer realm="auth-sidecar", error="invalid_request""#,
            "Authorization may be given once",
        ),
    }
}

enum Credentials<'a> {
    None,
    Bearer(&'a [u8]),
    Several,
}

fn credentials(headers: &HeaderMap) -> Credentials<'_> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let several = headers.contains_key(AUTHORIZATION);
        return if several {
            Credentials::Several
        } else {
            Credentials::None
        };
    };
    let value = value.as_bytes();
    match value.iter().position(|byte| *byte == b' ') {
        Some(space) if value[..space].eq_ignore_ascii_case(b"Bearer") => {
            Credentials::Bearer(value[space..].trim_ascii_start())
        }
        Some(_) | None => Credentials::None,
    }
}

fn refuse(status: StatusCode, challenge: &'static str, text: &'static str) -> Response {
    let challenge = HeaderValue::from_static(challenge);
    (status, [(WWW_AUTHENTICATE, challenge)], text).into_response()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CacheReport {
    /// Decisions that may still answer.
    entries: u64,
    /// Decisions that are void or past their life and not swept yet.
    void_entries: u64,
    bytes: u64,
    capacity_bytes: u64,
    callers: u64,
    demands: u64,
    oldest_age_seconds: Option<f64>,
    tenants: BTreeMap<String, u64>,
}

async fn show_cache(State(admin): State<Admin>) -> Response {
    // Looking at every entry takes its time, which nobody's request may wait for.
    match tokio::task::spawn_blocking(move || report(&admin.filter)).await {
        Ok(report) => Json(report).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn report(filter: &Filter) -> CacheReport {
    let now = filter.now();
    let size = filter.cache().size();
    let mut report = CacheReport {
        entries: 0,
        void_entries: 0,
        bytes: size.bytes,
        capacity_bytes: size.capacity,
        callers: size.callers,
        demands: size.demands,
        oldest_age_seconds: None,
        tenants: BTreeMap::new(),
    };
    let mut oldest = None;
    filter.cache().for_each(|caller, decision| {
        let Some(caller) = caller.filter(|caller| filter.is_live(caller, decision, now)) else {
            report.void_entries += 1;
            return;
        };
        report.entries += 1;
        let age = now.mono.saturating_sub(decision.stored().mono);
        oldest = oldest.max(Some(age));
        let tenant = String::from_utf8_lossy(&caller.tenant).into_owned();
        *report.tenants.entry(tenant).or_default() += 1;
    });
    report.oldest_age_seconds =
        oldest.map(|millis: u64| std::time::Duration::from_millis(millis).as_secs_f64());
    report
}

async fn show_requests(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let Some(report) = admin.filter.report() else {
        let text = "No request is remembered: set AUTH_SIDECAR_REQUEST_REPORT to how many";
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    let listing = report.listing();
    let wants_table = headers
        .get(ACCEPT)
        .is_some_and(|accept| accept.as_bytes().starts_with(b"text/plain"));
    if wants_table {
        listing.table().into_response()
    } else {
        Json(listing).into_response()
    }
}

async fn purge_all(State(admin): State<Admin>) -> StatusCode {
    purge(&admin, Purge::All, Reach::All)
}

async fn purge_tenant(State(admin): State<Admin>, Path(tenant): Path<String>) -> StatusCode {
    purge(&admin, Purge::Tenant, Reach::Tenant(tenant.as_bytes()))
}

async fn purge_user(
    State(admin): State<Admin>,
    Path((tenant, user)): Path<(String, String)>,
) -> StatusCode {
    purge(
        &admin,
        Purge::User,
        Reach::User(tenant.as_bytes(), &user.to_lowercase()),
    )
}

fn purge(admin: &Admin, scope: Purge, reach: Reach<'_>) -> StatusCode {
    admin.filter.revocations().revoke(reach);
    admin.filter.metrics().purged(scope);
    let (tenant, user) = match reach {
        Reach::All => (None, None),
        Reach::Tenant(tenant) => (Some(String::from_utf8_lossy(tenant)), None),
        Reach::User(tenant, user) => (Some(String::from_utf8_lossy(tenant)), Some(user)),
    };
    tracing::info!(
        scope = scope.as_str(),
        tenant = tenant.as_deref(),
        user,
        "purged"
    );
    StatusCode::NO_CONTENT
}
