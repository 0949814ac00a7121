//! Every event of the table, on hits, misses and pass-through alike, judged by the answer; and what only looks like one.

use super::{RECORD, Stage, VICTIM, token};
use crate::harness::LOANS;
use crate::support::golden;
use crate::support::raw::{Answer, Request};
use crate::support::standin::call::{FilterCall, handler, system};
use crate::support::standin::control::Trouble;
use crate::support::standin::{DESK, GONE, Options, Standin};
use serde_json::Value;

/// What one shape does.
struct Row {
    event: &'static str,
    method: &'static str,
    /// `{u}` is the victim's id, `{U}` the same in upper case, `{r}` a record's id that is no user's.
    target: &'static str,
    scope: &'static str,
    /// The kind of hold it begins.
    hold: Option<&'static str>,
}

const fn row(
    event: &'static str,
    method: &'static str,
    target: &'static str,
    scope: &'static str,
    hold: Option<&'static str>,
) -> Row {
    Row {
        event,
        method,
        target,
        scope,
        hold,
    }
}

/// The table of design 3, but for what comes on own routes.
const TABLE: [Row; 19] = [
    row("user_change", "PUT", "/users/{u}", "user", Some("user")),
    row("user_change", "DELETE", "/users/{U}", "user", Some("user")),
    row(
        "user_change",
        "PUT",
        "/users/{U}?lang=en",
        "user",
        Some("user"),
    ),
    row(
        "users_delete",
        "DELETE",
        "/users?query=username%3D%3Dx",
        "tenant",
        Some("user"),
    ),
    row(
        "permission_revoke",
        "DELETE",
        "/perms/users/{u}/permissions/a.b?indexField=userId",
        "user",
        Some("permission"),
    ),
    row(
        "permission_revoke",
        "DELETE",
        "/perms/users/{U}/permissions/a%20b?lang=en&indexField=userId",
        "user",
        Some("permission"),
    ),
    row(
        "permission_revoke",
        "DELETE",
        "/perms/users/{r}/permissions/a.b",
        "tenant",
        Some("permission"),
    ),
    row(
        "permission_revoke",
        "DELETE",
        "/perms/users/{u}/permissions/a.b?indexField=id",
        "tenant",
        Some("permission"),
    ),
    row(
        "permission_user_change",
        "PUT",
        "/perms/users/{r}",
        "tenant",
        Some("permission"),
    ),
    row(
        "permission_user_change",
        "DELETE",
        "/perms/users/{r}",
        "tenant",
        Some("permission"),
    ),
    row(
        "permission_user_change",
        "PUT",
        "/perms/users/{u}?indexField=userId",
        "tenant",
        Some("permission"),
    ),
    row(
        "permission_grant",
        "POST",
        "/perms/users/{u}/permissions?indexField=userId",
        "user",
        None,
    ),
    row(
        "permission_grant",
        "POST",
        "/perms/users/{U}/permissions?a=b&indexField=userId&c",
        "user",
        None,
    ),
    row(
        "permission_set_change",
        "POST",
        "/perms/permissions",
        "tenant",
        Some("set"),
    ),
    row(
        "permission_set_change",
        "PUT",
        "/perms/permissions/{r}",
        "tenant",
        Some("set"),
    ),
    row(
        "permission_set_change",
        "DELETE",
        "/perms/permissions/{r}",
        "tenant",
        Some("set"),
    ),
    row(
        "permission_set_change",
        "POST",
        "/perms/purge-deprecated",
        "tenant",
        Some("set"),
    ),
    row(
        "user_tenants_change",
        "POST",
        "/user-tenants",
        "tenant",
        None,
    ),
    row(
        "user_tenants_change",
        "DELETE",
        "/user-tenants?userId={u}",
        "tenant",
        None,
    ),
];

/// What comes as a system call: passed through, since it has no token.
const SYSTEM: [Row; 4] = [
    row(
        "permission_set_change",
        "POST",
        "/_/tenantpermissions",
        "tenant",
        Some("set"),
    ),
    row("tenant_init", "POST", "/_/tenant", "tenant", None),
    row("tenant_init", "DELETE", "/_/tenant/{r}", "tenant", None),
    row("tenant_init", "DELETE", "/_/tenant", "tenant", None),
];

impl Row {
    fn target(&self) -> String {
        self.target
            .replace("{u}", VICTIM)
            .replace("{U}", &VICTIM.to_uppercase())
            .replace("{r}", RECORD)
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// Checks what an event that has just been answered made void, and whether it began its hold.
async fn check(stage: &Stage, row: &Row, how: &str) {
    let name = format!("{} as a {how}", row.name());
    assert_eq!(stage.revoked(row.event, row.scope).await, 1.0, "{name}");
    assert_eq!(stage.revocations().await, 1.0, "{name}");
    assert!(stage.hits(&stage.abroad).await, "{name}: another tenant's");
    let spared = row.scope == "user";
    assert_eq!(
        stage.hits(&stage.other).await,
        spared,
        "{name}: another user's"
    );
    assert!(!stage.hits(&stage.victim).await, "{name}: the victim's");

    let held = stage.sidecar.sum("auth_sidecar_held_answers_total{").await;
    if let Some(kind) = row.hold {
        assert!(stage.held(kind).await >= 1.0, "{name}: held as {kind}");
        assert_eq!(stage.held(kind).await, held, "{name}: held as {kind} alone");
        assert!(!stage.hits(&stage.victim).await, "{name}: held");
    } else {
        assert_eq!(held, 0.0, "{name}: nothing is held");
        assert!(stage.hits(&stage.victim).await, "{name}: stored anew");
    }
}

#[tokio::test]
async fn an_event_that_is_a_hit_voids_its_scope_and_no_more() {
    for row in &TABLE {
        // Not plain, so it is never a hit; see the next but one.
        if row
            .target
            .split('?')
            .next()
            .is_some_and(|path| path.contains('%'))
        {
            continue;
        }
        let stage = Stage::new(&[]).await;
        stage.warm().await;
        // The question of another path is the same question.
        stage.event("GET", "/instances").await;
        let event = stage.by_admin(row.method, &row.target());

        assert!(stage.hits(&event).await, "{} is a hit", row.name());

        check(&stage, row, "hit").await;
    }
}

#[tokio::test]
async fn an_event_that_is_a_miss_voids_its_scope_and_no_more() {
    for row in &TABLE {
        let stage = Stage::new(&[]).await;
        stage.warm().await;

        stage.event(row.method, &row.target()).await;

        check(&stage, row, "miss").await;
    }
}

#[tokio::test]
async fn an_event_that_is_passed_through_voids_its_scope_and_no_more() {
    for row in &TABLE {
        let stage = Stage::new(&[]).await;
        stage.warm().await;
        let event = stage
            .by_admin(row.method, &row.target())
            .header("X-Okapi-Additional-Token", "x");

        assert!(!stage.hits(&event).await);

        assert_eq!(
            stage
                .sidecar
                .sum("auth_sidecar_requests_total{outcome=\"bypass\"")
                .await,
            1.0
        );
        check(&stage, row, "pass-through").await;
    }
}

#[tokio::test]
async fn the_system_calls_of_a_module_s_life_void_their_tenant() {
    for row in &SYSTEM {
        let stage = Stage::new(&[]).await;
        stage.warm().await;

        let event = system(row.method, &row.target(), "diku");
        let answer = stage.sidecar.send(&event).await;

        assert_eq!(answer.status, 202, "{}", answer.text());
        check(&stage, row, "system call").await;
    }
}

#[tokio::test]
async fn an_event_of_one_tenant_is_none_of_the_other() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;

    let event = system("POST", "/_/tenantpermissions", "college");
    assert_eq!(stage.sidecar.send(&event).await.status, 202);

    assert!(stage.hits(&stage.victim).await);
    assert!(stage.hits(&stage.other).await);
    assert!(!stage.hits(&stage.abroad).await);
}

#[tokio::test]
async fn a_user_id_in_a_header_is_the_same_user_in_any_case() {
    let stage = Stage::new(&[]).await;
    let dummy = stage.standin.dummy_token("diku", "mod-x", &[LOANS]);
    let call = FilterCall::get("/loans")
        .token(&dummy)
        .user_id(&VICTIM.to_uppercase());
    stage.hits(&call).await;
    assert!(stage.hits(&call).await, "stored");

    stage.event("PUT", &format!("/users/{VICTIM}")).await;

    assert!(!stage.hits(&call).await);
}

#[tokio::test]
async fn look_alikes_of_events_change_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    for (method, target) in [
        ("GET", "/users/{u}"),
        ("HEAD", "/users/{u}"),
        ("OPTIONS", "/users/{u}"),
        ("PATCH", "/users/{u}"),
        ("put", "/users/{u}"),
        ("POST", "/users"),
        ("PUT", "/users"),
        ("PUT", "/users/{u}/"),
        ("PUT", "/users/{u}/x"),
        ("PUT", "/x/users/{u}"),
        ("PUT", "//users/{u}"),
        ("PUT", "/users/%61bcdefab-cdef-4abc-8def-abcdefabcdef"),
        ("PUT", "/USERS/{u}"),
        ("POST", "/users/{u}"),
        ("POST", "/users/expire/timer"),
        ("POST", "/users/outbox/process"),
        ("PUT", "/users/profile-picture"),
        ("PUT", "/users/configurations/entry/{u}"),
        ("DELETE", "/users/expire/timer"),
        ("POST", "/perms/users"),
        ("POST", "/perms/users/{r}/permissions"),
        ("POST", "/perms/users/{u}/permissions?indexField=id"),
        ("GET", "/perms/users/{u}/permissions?indexField=userId"),
        ("PUT", "/perms/users/me"),
        ("GET", "/perms/permissions"),
        ("GET", "/perms/permissions/{r}"),
        ("PATCH", "/perms/permissions/{r}"),
        ("PUT", "/perms/permissions/{r}/x"),
        ("GET", "/perms/purge-deprecated"),
        ("PUT", "/user-tenants"),
        ("GET", "/user-tenants?userId={u}"),
        ("POST", "/authn/logout"),
        ("POST", "/authn/login-with-expiry"),
        ("PUT", "/authn/credentials"),
    ] {
        let target = target.replace("{u}", VICTIM).replace("{r}", RECORD);
        stage.sidecar.ask(&stage.by_admin(method, &target)).await;
        let passed = stage
            .by_admin(method, &target)
            .header("X-Okapi-Additional-Token", "x");
        stage.sidecar.ask(&passed).await;

        assert_eq!(stage.revocations().await, 0.0, "{method} {target}");
    }
    for (method, target) in [
        ("GET", "/_/tenant/{r}"),
        ("POST", "/_/tenants"),
        ("POST", "/users/expire/timer"),
        ("POST", "/token"),
        ("POST", "/token/sign"),
        ("POST", "/token/refresh"),
        ("GET", "/token/invalidate"),
        ("POST", "/token/invalidate/x"),
    ] {
        let event = system(method, &target.replace("{r}", RECORD), "diku");
        stage.sidecar.send(&event).await;

        assert_eq!(stage.revocations().await, 0.0, "{method} {target}");
    }
    for call in [&stage.victim, &stage.abroad, &stage.other] {
        assert!(stage.hits(call).await);
    }
}

/// Somebody without permission, somebody without a good token and somebody who is not active must not flush anything.
#[tokio::test]
async fn an_event_that_is_not_let_in_changes_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let standin = &stage.standin;
    let expired = standin.access_token_until("diku", DESK, standin.clock().wall() - 100);
    let foreign = token(standin, "college", DESK);
    let gone = token(standin, "diku", GONE);
    for row in &TABLE {
        let event = FilterCall::new(row.method, &row.target());
        for (call, status) in [
            (
                event.clone().token(&stage.admin).required(&["no.such"]),
                403,
            ),
            (event.clone().required(&["no.such"]), 400),
            (event.clone().token("h.p.s"), 401),
            (event.clone().token("garbage"), 401),
            (event.clone().token(&expired), 401),
            (event.clone().token(&foreign), 403),
            (event.clone().token(&gone), 401),
            (
                event.clone().token(&stage.admin).without("X-Okapi-Url"),
                400,
            ),
            (
                event.clone().token(&stage.admin).module_permissions("[]"),
                500,
            ),
        ] {
            let answer = stage.sidecar.ask(&call).await;

            assert_eq!(answer.status, status, "{}: {}", row.name(), answer.text());
        }
    }
    for (status, trouble) in [
        (200, Trouble::answer(200, &[], "OK")),
        (503, Trouble::answer(503, &[], "")),
        (302, Trouble::answer(302, &[("Location", "/x")], "")),
    ] {
        stage.standin.script(1, trouble);
        let event = stage.by_admin("PUT", &format!("/users/{VICTIM}"));
        assert_eq!(stage.sidecar.ask(&event).await.status, status);
    }

    // The 401 for somebody inactive is itself a reason, but for nobody else.
    assert_eq!(
        stage.revoked("user_inactive", "user").await,
        stage.revocations().await
    );
    for call in [&stage.victim, &stage.abroad, &stage.other] {
        assert!(stage.hits(call).await);
    }
}

/// What Okapi's auth module answers to the two calls of `/token/...`: the filter call, then the handler call.
async fn own_route(stage: &Stage, token: &str, path: &str, body: &str) -> (Answer, Answer) {
    let filter = FilterCall::new("POST", path).token(token);
    let first = stage.sidecar.ask(&filter).await;
    let permissions = first.headers.get("X-Okapi-Permissions").unwrap_or("[]");
    let second = stage
        .sidecar
        .send(&handler(path, "diku", token, permissions, body))
        .await;
    (first, second)
}

#[tokio::test]
async fn a_login_and_a_refresh_void_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let login = stage.standin.dummy_token(
        "diku",
        "mod-login",
        &[
            "auth.token.sign.post",
            "auth.token.refresh.post",
            "auth.token.post",
        ],
    );
    let payload = format!(r#"{{"payload":{{"sub":"victim","user_id":"{VICTIM}"}}}}"#);

    let (_, signed) = own_route(&stage, &login, "/token/sign", &payload).await;
    assert_eq!(signed.status, 201);
    let tokens: Value = serde_json::from_slice(&signed.body).unwrap();
    let body = format!(r#"{{"refreshToken":{}}}"#, tokens["refreshToken"]);
    let (_, refreshed) = own_route(&stage, &login, "/token/refresh", &body).await;
    assert_eq!(refreshed.status, 201);
    // Used twice: all refresh tokens of the user are revoked, its access tokens live on.
    let (_, reused) = own_route(&stage, &login, "/token/refresh", &body).await;
    assert_eq!((reused.status, reused.text()), (401, "Invalid token"));
    let (_, legacy) = own_route(&stage, &login, "/token", &payload).await;
    assert_eq!(legacy.status, 201);

    assert_eq!(stage.revocations().await, 0.0);
    for call in [&stage.victim, &stage.abroad, &stage.other] {
        assert!(stage.hits(call).await);
    }
}

#[tokio::test]
async fn a_logout_voids_the_user_of_its_token_once_it_is_done() {
    let stage = Stage::new(&[]).await;
    let victim = token(&stage.standin, "diku", VICTIM);
    let login = stage
        .standin
        .dummy_token("diku", "mod-login", &["auth.token.sign.post"]);
    let payload = format!(r#"{{"payload":{{"sub":"victim","user_id":"{VICTIM}"}}}}"#);
    let (_, signed) = own_route(&stage, &login, "/token/sign", &payload).await;
    let tokens: Value = serde_json::from_slice(&signed.body).unwrap();
    let good = format!(r#"{{"refreshToken":{}}}"#, tokens["refreshToken"]);
    stage.warm().await;

    // A refused one, in each of its forms, and the filter call alone.
    for (path, body) in [
        ("/token/invalidate", r#"{"refreshToken":"nobody's"}"#),
        ("/token/invalidate", "no JSON"),
        ("/token/invalidate-all/x", ""),
    ] {
        let (_, refused) = own_route(&stage, &victim, path, body).await;
        assert!(refused.status >= 400, "{}", refused.status);
    }
    let unsigned = handler(
        "/token/invalidate-all",
        "diku",
        &format!("{victim}x"),
        r#"["L3Rva2VuL2ludmFsaWRhdGUtYWxs.execute"]"#,
        "",
    );
    assert_eq!(stage.sidecar.send(&unsigned).await.status, 401);
    assert_eq!(stage.revocations().await, 0.0);
    assert!(stage.hits(&stage.victim).await);

    for (path, body) in [
        ("/token/invalidate", good.as_str()),
        ("/token/invalidate-all", ""),
    ] {
        let (filter, done) = own_route(&stage, &victim, path, body).await;
        assert_eq!((filter.status, done.status), (202, 204), "{path}");

        assert!(stage.hits(&stage.abroad).await, "{path}");
        assert!(stage.hits(&stage.other).await, "{path}");
        // No hold either: the access token is good until it expires, and upstream says so.
        assert!(!stage.hits(&stage.victim).await, "{path}");
        assert!(stage.hits(&stage.victim).await, "{path}");
    }
    assert_eq!(stage.revoked("logout", "user").await, 2.0);
    assert_eq!(stage.revocations().await, 2.0);
}

/// The recorded requests of one file, each with the events it counts as.
async fn replay(file: &str) -> Vec<(String, String, f64)> {
    let ten_years = 315_360_000;
    let standin = Standin::start(Options {
        access_token_life: ten_years,
        refresh_token_life: ten_years,
        ..Options::default()
    })
    .await;
    standin.clock().stop();
    let sidecar = crate::harness::Sidecar::start(&standin.url(), &[]).await;
    let mut found = Vec::new();
    let mut before = 0.0;
    for exchange in golden::exchanges(file) {
        let drawn: Value = serde_json::from_slice(&exchange.answer.body).unwrap_or_default();
        if let Some(token) = drawn["refreshToken"].as_str() {
            standin.chance(|chance| chance.next_refresh_token(token));
        }
        let answer = sidecar.send(&exchange.request).await;
        assert_eq!(
            answer.status, exchange.answer.status,
            "{}",
            exchange.scenario
        );
        let now = sidecar.sum("auth_sidecar_revocations_total{").await;
        found.push((
            exchange.scenario.clone(),
            line(&exchange.request),
            now - before,
        ));
        before = now;
    }
    found
}

fn line(request: &Request) -> String {
    let path = request.target.split('?').next().unwrap_or_default();
    format!("{} {path}", request.method)
}

#[tokio::test]
async fn of_the_recorded_administration_exactly_the_changes_are_events() {
    let no_events = [
        "create user",
        "assign permissions",
        "find permission user",
        "grant by permission user id",
        "create credentials",
        "delete credentials",
    ];
    let mut events = 0;
    for (scenario, line, found) in replay("events").await {
        let expected = f64::from(u8::from(!no_events.contains(&scenario.as_str())));
        assert_eq!(found, expected, "{scenario}: {line}");
        events += u32::from(found > 0.0);
    }

    assert_eq!(events, 18, "events of the recording");
}

#[tokio::test]
async fn of_the_recorded_logins_and_logouts_exactly_the_logouts_are_events() {
    let mut events = Vec::new();
    for (scenario, line, found) in replay("login").await {
        if found > 0.0 {
            events.push((scenario, line));
        }
    }

    assert_eq!(
        events,
        [
            ("logout".to_owned(), "POST /token/invalidate".to_owned()),
            (
                "logout-all".to_owned(),
                "POST /token/invalidate-all".to_owned()
            ),
        ]
    );
}

#[tokio::test]
async fn with_listening_off_no_event_voids_anything() {
    let stage = Stage::new(&[("REVOCATION_LISTEN", "false")]).await;
    stage.warm().await;
    for row in &TABLE {
        stage.event(row.method, &row.target()).await;
    }
    for row in &SYSTEM {
        let event = system(row.method, &row.target(), "diku");
        assert_eq!(stage.sidecar.send(&event).await.status, 202);
    }
    let victim = token(&stage.standin, "diku", VICTIM);
    let (_, done) = own_route(&stage, &victim, "/token/invalidate-all", "").await;
    assert_eq!(done.status, 204);
    let refreshing = stage
        .other
        .clone()
        .header("Authtoken-Refresh-Cache", "true");
    assert!(!stage.hits(&refreshing).await);

    for call in [&stage.victim, &stage.abroad, &stage.other] {
        assert!(stage.hits(call).await);
    }
    assert_eq!(stage.revocations().await, 0.0);
    assert_eq!(stage.refreshes_seen(), 1, "the one from outside");
}

/// A nightly import edits thousands of permission users by mod-permissions' own id.
#[tokio::test]
async fn a_storm_of_tenant_wide_events_costs_no_more_than_passing_through() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    stage.standin.forget_calls();

    for n in 0..200 {
        let import = stage.by_admin("PUT", &format!("/perms/users/{RECORD}?n={n}"));
        assert_eq!(stage.sidecar.ask(&import).await.status, 202);
        assert!(!stage.hits(&stage.victim).await);
        stage.pass(std::time::Duration::from_millis(50));
    }

    assert_eq!(
        stage.standin.calls().total,
        400,
        "one call for each request"
    );
    assert_eq!(
        stage.revoked("permission_user_change", "tenant").await,
        200.0
    );
    assert!(stage.held("permission").await >= 200.0);
    // Ten seconds of storm: at most two refreshes a second, and seen as such.
    let sent = stage
        .sidecar
        .metric("auth_sidecar_upstream_refreshes_total{result=\"sent\"}")
        .await;
    assert!((1.0..=22.0).contains(&sent), "{sent}");
    assert!(
        stage.hits(&stage.abroad).await,
        "the other tenant has its cache"
    );
}
