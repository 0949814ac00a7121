//! Which requests may be answered from the cache at all; everything else goes up alone, every time.
//!
//! Most tests store the decision of the very same key first: what is forwarded then is so for its own reason, not for
//! want of a decision.

use crate::asking::{Pair, assert_same, unsigned_for};
use crate::harness::{LOANS, loans};
use crate::rule;
use crate::support::raw::{self, Answer};
use crate::support::standin::call::FilterCall;
use crate::support::standin::control::Trouble;
use crate::support::standin::{DESK, READER, Standin};

/// Reached by no route of a stand-in, and different from its port: upstream must not see it.
const HOST: &str = "127.0.0.1:8071";

fn desk(pair: &Pair<Standin>) -> String {
    pair.upstream.access_token("diku", DESK)
}

fn targets(pair: &Pair<Standin>) -> Vec<String> {
    let seen = pair.upstream.requests();
    seen.into_iter().map(|seen| seen.request.target).collect()
}

#[tokio::test]
async fn the_same_question_is_asked_once() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));

    let first = pair.miss(&call).await;

    assert_eq!(first.status, 202);
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn one_decision_serves_every_ordinary_path_method_and_query() {
    let pair = Pair::start(&[]).await;
    let token = desk(&pair);
    let first = pair.miss(&loans(&token)).await;

    for (method, target) in [
        ("GET", "/loans"),
        ("POST", "/circulation/loans"),
        ("PUT", "/circulation/loans/1"),
        ("PATCH", "/x"),
        ("DELETE", "/x?limit=1"),
        ("OPTIONS", "/x"),
        ("GET", "/"),
        ("GET", "/?"),
        ("GET", "/x?path=%2F..%5C//"),
        ("GET", "/a.b/c;d=e/~f"),
    ] {
        let call = FilterCall::new(method, target)
            .token(&token)
            .required(&[LOANS]);
        pair.hit(&call, &first).await;
    }
}

#[tokio::test]
async fn what_differs_with_every_request_is_no_part_of_the_question() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;

    // Each call has a request id and a timestamp of its own.
    for (name, value) in [
        ("X-Okapi-request-ip", "10.9.8.7"),
        ("X-Okapi-request-method", "PUT"),
        ("X-Okapi-Match-Path-Pattern", "/other"),
        ("User-Agent", "curl/8"),
        ("Accept", "*/*"),
    ] {
        pair.hit(&call.clone().without(name), &first).await;
        // Other values, and of `X-Okapi-request-ip` two of them.
        pair.hit(&call.clone().header(name, value), &first).await;
    }
    for (name, value) in [
        ("Cookie", "folioAccessToken=abc"),
        ("Authorization", "Basic abc"),
        ("Origin", "https://folio.example"),
        ("X-Okapi-Permissions", r#"["everything"]"#),
        ("X-Okapi-Module-Id", "mod-x-1"),
        ("Traceparent", "00-1-2-01"),
    ] {
        pair.hit(&call.clone().client_header(name, value), &first)
            .await;
    }
}

#[tokio::test]
async fn a_request_without_module_permissions_is_no_filter_call() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair)).without("X-Okapi-Module-Permissions");
    pair.miss(&loans(&desk(&pair))).await;

    let answer = pair.forwarded(&call).await;

    assert_eq!(answer.status, 202);
    pair.forwarded(&call.clone().header("X-Okapi-Filter", "auth"))
        .await;
}

#[tokio::test]
async fn module_permissions_without_a_filter_header_are_the_normal_case() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    assert!(!call.request().headers.has("X-Okapi-Filter"));

    let first = pair.miss(&call).await;

    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn only_the_auth_phase_is_answered_from_the_cache() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;
    let phase = |phase: &str| call.clone().header("X-Okapi-Filter", phase);

    for auth in ["auth", "auth /*", "auth "] {
        pair.hit(&phase(auth), &first).await;
    }
    for other in ["authx", "auth/", "Auth", "AUTH /*", "pre /*", "post /*", ""] {
        pair.forwarded(&phase(other)).await;
    }
    pair.forwarded(&phase("auth").header("X-Okapi-Filter", "auth"))
        .await;
    pair.forwarded(&phase("auth").header("X-Okapi-Filter", "pre"))
        .await;
}

/// The subject that a token-less request got.
fn subject(answer: &Answer) -> String {
    let token = answer.headers.get("X-Okapi-Token").expect("a token");
    let claims = rule::claims(token).expect("a readable token");
    claims["sub"].as_str().expect("a subject").to_owned()
}

#[tokio::test]
async fn every_request_without_a_token_gets_a_dummy_of_its_own() {
    let pair = Pair::start(&[]).await;
    let call = FilterCall::get("/echo");

    let one = pair.miss(&call).await;
    let other = pair.miss(&call).await;

    assert_eq!((one.status, other.status), (202, 202));
    assert!(subject(&one).starts_with("UNDEFINED_USER__"));
    assert_ne!(subject(&one), subject(&other));
    for answer in [&one, &other] {
        let token = answer.headers.get("X-Okapi-Token").expect("a token");
        let genuine = pair.upstream.world(|world| world.key().payload(token));
        assert!(genuine.is_some(), "not the token that upstream signed");
    }
}

#[tokio::test]
async fn an_empty_token_is_forwarded_and_nothing_is_stored() {
    let pair = Pair::start(&[]).await;
    let empty = loans("");
    assert_eq!(pair.forwarded(&empty).await.status, 401);

    // Not even where upstream would prove its yes.
    let pair = Pair::yes(&[]).await;
    let answer = pair.forwarded(&empty).await;
    assert_eq!(answer.status, 202);
}

#[tokio::test]
async fn a_missing_token_is_upstreams_to_refuse_in_its_own_words() {
    let pair = Pair::start(&[]).await;
    let call = FilterCall::get("/circulation/loans").required(&[LOANS]);

    let answer = pair.forwarded(&call).await;

    assert_eq!(answer.status, 400);
    let text = format!("Token missing, access requires permission: {LOANS}");
    assert_eq!(answer.text(), text);
    assert_eq!(answer.headers.names(), ["Content-Type", "Content-Length"]);
}

#[tokio::test]
async fn what_begins_like_an_own_route_is_forwarded_every_time() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;

    for target in [
        "/token",
        "/token/sign",
        "/tokenizer",
        "/tokens/1",
        "/token?x=1",
        "/refreshtoken/x",
        "/refreshtokens",
        "/_/tenant",
        "/_/tenant/123",
        "/_/tenantpermissions",
    ] {
        let own = call.clone().to(target);
        let answer = pair.forwarded(&own).await;
        let asked_directly = raw::ask(pair.upstream.addr(), &own.request()).await;
        assert_same(&answer, &asked_directly.expect("an answer"));
    }
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn a_yes_on_an_own_route_is_not_kept_however_well_it_proves_itself() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));

    for target in ["/token", "/refreshtoken", "/_/tenant", "/_/tenantx"] {
        pair.forwarded(&call.clone().to(target)).await;
    }

    pair.miss(&call).await;
}

#[tokio::test]
async fn an_own_route_further_inside_a_path_is_ordinary() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;

    for target in [
        "/x/token",
        "/x/_/tenant",
        "/_/proxy",
        "/_/",
        "/toke",
        "/x?/token",
    ] {
        pair.hit(&call.clone().to(target), &first).await;
    }
}

/// Targets that a router might read in another way than we do, with the methods that may carry them.
const ODD: [(&str, &str); 17] = [
    ("GET", "/%74oken"),
    ("GET", "/%5f/tenant"),
    ("GET", "//token"),
    ("GET", "/x//y"),
    ("GET", "/x/../y"),
    ("GET", "/x/./y"),
    ("GET", "/.x"),
    ("GET", "/x/.."),
    ("GET", "/x\\y"),
    ("GET", "/foo/..\\_\\tenant"),
    ("GET", "/x/%2e%2e/_/tenant"),
    ("GET", "/x%zz"),
    ("GET", "/x%"),
    ("GET", "//"),
    ("OPTIONS", "*"),
    ("GET", "http://authtoken/x"),
    ("GET", "http://authtoken/_/tenant"),
];

#[tokio::test]
async fn a_path_that_is_not_plain_is_forwarded_alone_and_byte_for_byte() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;

    for (method, target) in ODD {
        let odd = FilterCall::new(method, target)
            .token(&desk(&pair))
            .required(&[LOANS]);
        pair.upstream.forget_calls();
        let answer = pair.forwarded(&odd).await;
        assert_eq!(targets(&pair), [target, target]);
        let asked_directly = raw::ask(pair.upstream.addr(), &odd.request()).await;
        assert_same(&answer, &asked_directly.expect("an answer"));

        let gate = pair.upstream.hold();
        let (one, other) = (odd.request(), odd.request());
        let both = tokio::join!(pair.sidecar.send(&one), pair.sidecar.send(&other), async {
            gate.arrived(2).await;
            gate.release();
        });
        assert_same(&both.0, &both.1);
    }
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn a_yes_for_a_path_that_is_not_plain_is_not_kept() {
    let pair = Pair::yes(&[]).await;
    let token = unsigned_for("u-1");

    for (method, target) in ODD {
        let odd = FilterCall::new(method, target).token(&token);
        pair.forwarded(&odd).await;
    }

    pair.miss(&FilterCall::get("/x").token(&token)).await;
}

#[tokio::test]
async fn what_does_not_begin_with_a_slash_is_never_answered_from_the_cache() {
    let pair = Pair::yes(&[]).await;
    let call = FilterCall::get("/x").token(&unsigned_for("u-1"));
    pair.miss(&call).await;

    for target in ["x", "authtoken:80", "?x", "http://authtoken"] {
        pair.upstream.forget_calls();
        let answer = pair.sidecar.send(&call.clone().to(target).request()).await;
        // Either upstream said so, or it is no request at all.
        assert!(
            pair.upstream.calls() == 1 || answer.status == 400,
            "{target}: {answer:?}"
        );
    }
}

/// Spellings of the health route, which says 200 to anybody.
const HEALTH: [&str; 9] = [
    "/admin/health",
    "/admin/health/",
    "/admin/health?x=1",
    "//admin/health",
    "/admin//health",
    "/%61dmin/health",
    "/x/../admin/health",
    "/x/%2e%2e/admin/health",
    "http://authtoken/admin/health",
];

#[tokio::test]
async fn the_health_route_is_upstreams_in_every_spelling() {
    let pair = Pair::start(&[]).await;
    let junk = loans("junk");

    for target in HEALTH {
        let answer = pair.forwarded(&junk.clone().to(target)).await;
        assert_eq!((answer.status, answer.text()), (200, "OK"), "{target}");
        // Nothing was stored that an ordinary path could find.
        assert_eq!(pair.miss(&junk).await.status, 401);
    }
    let other_method = FilterCall::new("POST", "/admin/health").token("junk");
    assert_eq!(pair.forwarded(&other_method).await.status, 401);
}

#[tokio::test]
async fn the_health_route_is_upstreams_even_when_its_yes_would_prove_itself() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));

    for target in HEALTH {
        pair.forwarded(&call.clone().to(target)).await;
    }

    let first = pair.miss(&call).await;
    for target in HEALTH {
        pair.forwarded(&call.clone().to(target)).await;
    }
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn a_health_answer_is_shared_with_no_ordinary_call_of_the_same_key() {
    let pair = Pair::start(&[]).await;
    let junk = loans("junk");

    for target in HEALTH {
        for health_first in [true, false] {
            let (health, ordinary) = (junk.clone().to(target).request(), junk.request());
            let gate = pair.upstream.hold();
            let (one, other) = if health_first {
                (&health, &ordinary)
            } else {
                (&ordinary, &health)
            };
            let (one, other, ()) = tokio::join!(
                pair.sidecar.send(one),
                async {
                    gate.arrived(1).await;
                    pair.sidecar.send(other).await
                },
                async {
                    gate.arrived(2).await;
                    gate.release();
                }
            );
            let (health, ordinary) = if health_first {
                (one, other)
            } else {
                (other, one)
            };
            assert_eq!((health.status, ordinary.status), (200, 401), "{target}");
        }
    }
}

#[tokio::test]
async fn the_filter_port_has_no_page_of_its_own() {
    let pair = Pair::start(&[]).await;

    for target in [
        "/metrics",
        "/stats",
        "/",
        "/favicon.ico",
        "/health",
        "/health/live",
        "/health/ready",
        "/cache",
        "/requests",
    ] {
        let call = FilterCall::get(target)
            .token("bad")
            .header("X-Okapi-Filter", "auth");
        let answer = pair.forwarded(&call).await;
        assert_eq!((answer.status, answer.text()), (401, "Invalid token"));
        let preflight = FilterCall::new("OPTIONS", target).token("bad");
        assert_eq!(pair.forwarded(&preflight).await.status, 401, "{target}");
    }
    let own = pair.sidecar.admin("GET", "/health/live", None).await;
    assert_eq!(own.status, 200);
}

#[tokio::test]
async fn a_missing_tenant_or_url_is_upstreams_to_refuse() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));

    for name in ["X-Okapi-Tenant", "X-Okapi-Url"] {
        let answer = pair.forwarded(&call.clone().without(name)).await;
        let text = format!("Missing header: {name}");
        assert_eq!((answer.status, answer.text()), (400, text.as_str()));
    }
}

#[tokio::test]
async fn what_connection_names_goes_up_all_the_same_and_stays_in_the_key() {
    let pair = Pair::start(&[]).await;
    let reader = pair.upstream.access_token("diku", READER);

    for name in [
        "X-Okapi-Permissions-Required",
        "X-Okapi-Permissions-Desired",
        "X-Okapi-Module-Permissions",
        "X-Okapi-Token",
        "X-Okapi-Tenant",
        "X-Okapi-User-Id",
        "X-Okapi-Url",
    ] {
        let call = loans(&reader).user_id(READER).desired(&["users.*"]);
        let named = call
            .clone()
            .client_header("Connection", format!("keep-alive, {name}"));
        pair.upstream.forget_calls();
        let answer = pair.forwarded(&named).await;
        assert_eq!(answer.status, 403, "{name}");
        for seen in pair.upstream.requests() {
            let sent = named.request();
            assert_eq!(
                seen.request.headers.get(name),
                sent.headers.get(name),
                "{name}"
            );
            assert!(!seen.request.headers.has("Connection"));
        }
    }
}

#[tokio::test]
async fn a_refused_caller_is_refused_whatever_connection_names() {
    let pair = Pair::start(&[]).await;
    let reader = pair.upstream.access_token("diku", READER);
    // What the reader may do without the permission is known.
    let allowed = FilterCall::get("/x").token(&reader);
    assert_eq!(pair.miss(&allowed).await.status, 202);

    let named = loans(&reader).client_header("Connection", "X-Okapi-Permissions-Required");

    assert_eq!(pair.miss(&named).await.status, 403);
}

#[tokio::test]
async fn a_body_or_a_form_is_forwarded_every_time() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;
    let with_body = |framing: (&str, &str)| {
        let mut request = call.clone().client_header(framing.0, framing.1).request();
        request.body = b"{}".to_vec();
        request
    };

    for framing in [("Content-Length", "2"), ("Transfer-Encoding", "chunked")] {
        for _ in 0..2 {
            pair.miss_request(&with_body(framing)).await;
            let seen = pair.upstream.requests().pop().expect("a request");
            assert_eq!(seen.request.body, b"{}");
        }
    }
    for form in [
        "application/x-www-form-urlencoded",
        "Application/X-WWW-Form-Urlencoded; charset=UTF-8",
        "multipart/form-data; boundary=x",
    ] {
        pair.forwarded(&call.clone().client_header("Content-Type", form))
            .await;
    }
    pair.hit(&call, &first).await;
    // An empty body is none, however it is framed.
    pair.hit(&call.clone().chunked(), &first).await;
    pair.hit(&call.client_header("Content-Length", "0"), &first)
        .await;
}

#[tokio::test]
async fn what_upstream_finds_too_long_is_its_to_refuse_whatever_is_stored() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    let first = pair.miss(&call).await;
    let line = |length: usize| {
        let fill = length - "GET /x? HTTP/1.1".len();
        call.clone().to(&format!("/x?{}", "y".repeat(fill)))
    };
    let head = |size: usize| {
        let mut request = call.request();
        request.headers.set("host", HOST);
        let fill = size - request.headers.size() - "Accept-Language".len() - 2;
        call.clone()
            .client_header("Accept-Language", "y".repeat(fill))
    };

    pair.hit(&line(4096), &first).await;
    assert_eq!(pair.forwarded(&line(4097)).await.status, 414);
    // The host that goes up is as long as the one that came, or longer by the digits of a port.
    pair.hit(&head(8190), &first).await;
    assert_eq!(pair.forwarded(&head(8193)).await.status, 431);
    pair.hit(&call, &first).await;
}

/// A call for each reason to forward, named as in the metrics; a body is tried elsewhere.
fn every_reason(call: &FilterCall) -> Vec<(&'static str, FilterCall)> {
    vec![
        (
            "no_module_permissions",
            call.clone().without("X-Okapi-Module-Permissions"),
        ),
        ("filter_phase", call.clone().header("X-Okapi-Filter", "pre")),
        ("no_token", FilterCall::get("/x")),
        ("own_route", call.clone().to("/token")),
        ("path", call.clone().to("/x/../y")),
        ("health", call.clone().to("/admin/health")),
        ("line_too_long", call.clone().to(&"/x".repeat(2100))),
        (
            "head_too_large",
            call.clone().header("Accept", "y".repeat(9000)),
        ),
        (
            "duplicate_header",
            call.clone().header("X-Okapi-Token", "x"),
        ),
        (
            "extra_permissions",
            call.clone().header("X-Okapi-Extra-Permissions", "a"),
        ),
        (
            "additional_token",
            call.clone().header("X-Okapi-Additional-Token", "a"),
        ),
        (
            "refresh_header",
            call.clone().header("Authtoken-Refresh-Cache", "true"),
        ),
        (
            "content_type",
            call.clone().header("Content-Type", "multipart/mixed"),
        ),
    ]
}

#[tokio::test]
async fn each_reason_to_forward_is_counted() {
    let pair = Pair::start(&[]).await;
    let series = |reason: &str| {
        format!(r#"auth_sidecar_requests_total{{outcome="bypass",reason="{reason}"}}"#)
    };

    for (reason, call) in every_reason(&loans(&desk(&pair))) {
        assert!(pair.sidecar.metric(&series(reason)).await.abs() < 0.5);
        pair.miss(&call).await;
        let counted = pair.sidecar.metric(&series(reason)).await;
        assert!((counted - 1.0).abs() < 0.5, "{reason}: {counted}");
    }
}

#[tokio::test]
async fn what_is_forwarded_is_asked_alone_even_where_the_same_is_on_its_way() {
    let pair = Pair::start(&[]).await;

    for (reason, call) in every_reason(&loans(&desk(&pair))) {
        if matches!(reason, "line_too_long" | "head_too_large") {
            // Upstream refuses these before a test could hold them.
            continue;
        }
        let gate = pair.upstream.hold();
        let (one, other) = (call.request(), call.request());
        let (one, other, ()) =
            tokio::join!(pair.sidecar.send(&one), pair.sidecar.send(&other), async {
                gate.arrived(2).await;
                gate.release();
            });
        assert_eq!(one.status, other.status, "{reason}");
        if reason == "no_token" {
            assert_ne!(subject(&one), subject(&other));
        }
    }
}

#[tokio::test]
async fn a_trouble_on_a_forwarded_path_invents_no_yes() {
    let pair = Pair::start(&[]).await;
    let call = loans(&desk(&pair));
    pair.miss(&call).await;
    pair.upstream.script(2, Trouble::Close);

    let answer = pair.sidecar.ask(&call.clone().to("/x/../y")).await;

    assert_eq!(answer.status, 502);
}
