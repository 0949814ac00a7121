//! Which answers are kept: a 202 that proves itself, and nothing else; and what a no does to a yes.

use crate::asking::{Pair, assert_same, unsigned, unsigned_for, yes};
use crate::harness::{ADMIN_TOKEN, LOANS, loans};
use crate::support::headers::Headers;
use crate::support::playback::{Playback, Reply};
use crate::support::raw::{Answer, Request};
use crate::support::standin::call::FilterCall;
use crate::support::standin::control::Trouble;
use crate::support::standin::world::LookUp;
use crate::support::standin::{DESK, DESK5, READER, Standin};
use std::time::Duration;

async fn with_desk(settings: &[(&str, &str)]) -> (Pair<Standin>, FilterCall) {
    let pair = Pair::start(settings).await;
    let token = pair.upstream.access_token("diku", DESK);
    (pair, loans(&token))
}

/// How often an answer was not stored for this reason.
async fn not_stored(pair: &Pair<Playback>, reason: &str) -> f64 {
    let series = format!(r#"auth_sidecar_not_stored_total{{reason="{reason}"}}"#);
    pair.sidecar.metric(&series).await
}

/// Upstream proves its yes with these headers changed, or this status, or this body.
fn says(
    pair: &Pair<Playback>,
    status: u16,
    change: impl Fn(&Request, &mut Headers) + Send + Sync + 'static,
    body: &'static str,
) {
    pair.upstream.answer_with(move |request| {
        let mut headers = yes(request);
        change(request, &mut headers);
        Reply::new(status, &headers, body.as_bytes())
    });
}

#[tokio::test]
async fn another_2xx_than_202_is_relayed_and_never_stored() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));

    for status in [200, 201, 203, 204, 206, 226, 299] {
        says(
            &pair,
            status,
            |_, headers| headers.remove("transfer-encoding"),
            "",
        );
        let before = not_stored(&pair, "status").await;
        let answer = pair.forwarded(&call).await;
        assert_eq!(answer.status, status);
        assert!(answer.headers.has("X-Okapi-Module-Tokens"));
        let counted = not_stored(&pair, "status").await - before;
        assert!((counted - 2.0).abs() < 0.5, "{status}: {counted}");
    }
}

#[tokio::test]
async fn a_redirect_is_relayed_and_not_followed() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));
    let to_health = |_: &Request, headers: &mut Headers| headers.push("Location", "/admin/health");

    for status in [301, 302, 303, 307, 308, 304] {
        says(&pair, status, to_health, "");
        let answer = pair.forwarded(&call).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers.get("Location"), Some("/admin/health"));
    }
}

type Change = fn(&Request, &mut Headers);

/// A 202 with one thing wrong, and the reason for which it is not stored.
const UNPROVEN: [(&str, Change); 17] = [
    ("module_tokens", |_, headers| {
        headers.remove("X-Okapi-Module-Tokens");
    }),
    ("module_tokens", |_, headers| {
        headers.set("X-Okapi-Module-Tokens", r#"{"_":"h.p"#);
    }),
    ("module_tokens", |_, headers| {
        headers.set("X-Okapi-Module-Tokens", r#"{"_":"another.users.token"}"#);
    }),
    ("module_tokens", |request, headers| {
        let token = request.headers.get("X-Okapi-Token").expect("a token");
        headers.set("X-Okapi-Module-Tokens", format!(r#"["_","{token}"]"#));
    }),
    ("module_tokens", |_, headers| {
        headers.set("X-Okapi-Module-Tokens", "{}");
    }),
    ("module_tokens", |request, headers| {
        // A module that was not asked for.
        let token = request.headers.get("X-Okapi-Token").expect("a token");
        let tokens = format!(r#"{{"m-1":"h.p.s","_":"{token}"}}"#);
        headers.set("X-Okapi-Module-Tokens", tokens);
    }),
    ("module_tokens", |request, headers| {
        let token = request.headers.get("X-Okapi-Token").expect("a token");
        let tokens = format!(r#"{{"_":"another","_":"{token}"}}"#);
        headers.set("X-Okapi-Module-Tokens", tokens);
    }),
    ("permissions", |_, headers| {
        headers.remove("X-Okapi-Permissions");
    }),
    ("permissions", |_, headers| {
        headers.set("X-Okapi-Permissions", r#"["a""#);
    }),
    ("permissions", |_, headers| {
        headers.set("X-Okapi-Permissions", r#"["a",1]"#);
    }),
    ("permissions", |_, headers| {
        headers.set("X-Okapi-Permissions", r#"{"a":"b"}"#);
    }),
    ("user_id", |_, headers| headers.remove("X-Okapi-User-Id")),
    ("user_id", |_, headers| {
        headers.set("X-Okapi-User-Id", "u-2");
    }),
    ("set_cookie", |_, headers| {
        headers.push("Set-Cookie", "a=b");
    }),
    ("duplicate_header", |_, headers| {
        headers.push("X-Okapi-Permissions", "[]");
    }),
    ("duplicate_header", |request, headers| {
        let token = request.headers.get("X-Okapi-Token").expect("a token");
        headers.push("X-Okapi-Token", token);
    }),
    ("too_large", |_, headers| {
        headers.push("X-Okapi-Trace", "x".repeat(8192));
    }),
];

#[tokio::test]
async fn a_202_that_does_not_prove_itself_is_relayed_counted_and_not_stored() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));

    for (number, (reason, change)) in UNPROVEN.into_iter().enumerate() {
        says(&pair, 202, change, "");
        let before = not_stored(&pair, reason).await;
        let answer = pair.forwarded(&call).await;
        let said = {
            let request = call.request();
            let mut headers = yes(&request);
            change(&request, &mut headers);
            headers
        };
        assert_eq!(answer.status, 202);
        for name in ["X-Okapi-Module-Tokens", "X-Okapi-Permissions", "Set-Cookie"] {
            let same = answer.headers.all(name).eq(said.all(name));
            assert!(same, "case {number}: {name} is not relayed");
        }
        let counted = not_stored(&pair, reason).await - before;
        assert!((counted - 2.0).abs() < 0.5, "case {number}: {counted}");
    }

    // With nothing wrong it is.
    says(&pair, 202, |_, _| {}, "");
    let first = pair.miss(&call).await;
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn a_202_with_a_body_is_relayed_and_not_stored() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));
    says(&pair, 202, |_, _| {}, "yes");

    let answer = pair.forwarded(&call).await;

    assert_eq!((answer.status, answer.text()), (202, "yes"));
    assert!((not_stored(&pair, "body").await - 2.0).abs() < 0.5);
}

#[tokio::test]
async fn a_202_whose_tokens_are_not_those_of_the_modules_asked_is_not_stored() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1")).module_permissions(r#"{"m-1":["p"],"m-2":[]}"#);

    for tokens in [
        r#"{"m-1":"h.1.s","_":"TOKEN"}"#,
        r#"{"m-1":"h.1.s","m-2":"h.2.s","m-3":"h.3.s","_":"TOKEN"}"#,
        r#"{"m-1":"h.1.s","m-3":"h.3.s","_":"TOKEN"}"#,
        r#"{"m-1":"h.1.s","m-2":null,"_":"TOKEN"}"#,
    ] {
        let change = move |request: &Request, headers: &mut Headers| {
            let token = request.headers.get("X-Okapi-Token").expect("a token");
            headers.set("X-Okapi-Module-Tokens", tokens.replace("TOKEN", token));
        };
        says(&pair, 202, change, "");
        pair.forwarded(&call).await;
    }

    says(&pair, 202, |_, _| {}, "");
    let first = pair.miss(&call).await;
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn a_token_made_for_one_request_fills_no_room() {
    let pair = Pair::start(&[]).await;
    let one_shot = pair
        .upstream
        .dummy_token("diku", "UNDEFINED_USER__1234", &[LOANS]);
    let look_up = pair
        .upstream
        .dummy_token("diku", "_AUTHZ_MODULE_", &[LOANS]);

    pair.forwarded(&loans(&one_shot)).await;

    let first = pair.miss(&loans(&look_up)).await;
    pair.hit(&loans(&look_up), &first).await;
}

#[tokio::test]
async fn a_refusal_is_relayed_with_its_tokens_and_never_stored() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));

    for status in [
        400, 401, 403, 404, 405, 409, 413, 418, 429, 500, 501, 503, 504,
    ] {
        for with_tokens in [true, false] {
            let change = move |_: &Request, headers: &mut Headers| {
                headers.remove("transfer-encoding");
                headers.push("Retry-After", "1");
                if !with_tokens {
                    headers.remove("X-Okapi-Module-Tokens");
                }
            };
            says(&pair, status, change, "Zugriff verweigert: müller");
            let answer = pair.forwarded(&call).await;
            assert_eq!(
                (answer.status, answer.text()),
                (status, "Zugriff verweigert: müller")
            );
            let said = {
                let request = call.request();
                let mut headers = yes(&request);
                change(&request, &mut headers);
                headers
            };
            for (name, value) in said.iter() {
                assert!(answer.headers.bytes(name) == Some(value), "{name}");
            }
            assert_eq!(
                answer.headers.has("X-Okapi-Module-Tokens"),
                with_tokens,
                "{status}"
            );
        }
    }
}

#[tokio::test]
async fn a_permission_that_was_granted_works_at_once() {
    let pair = Pair::start(&[]).await;
    let call = loans(&pair.upstream.access_token("diku", READER));
    let answer = pair.forwarded(&call).await;
    assert_eq!(answer.status, 403);
    assert!(answer.headers.has("X-Okapi-Module-Tokens"));

    pair.upstream
        .world(|world| world.grant("diku", READER, LOANS));
    // What the auth module itself remembers is its own affair.
    pair.upstream.clock().advance(Duration::from_secs(61));

    let granted = pair.miss(&call).await;
    assert_eq!(granted.status, 202);
    pair.hit(&call, &granted).await;
}

#[tokio::test]
async fn an_answer_that_never_comes_is_no_yes_and_nothing_is_stored() {
    let (pair, call) = with_desk(&[]).await;
    let live = loans(&pair.upstream.access_token("diku", DESK5));
    let first = pair.miss(&live).await;
    // A pooled connection that died is asked once more on a fresh one.
    let broken = |request: &Request| request.target == "/broken";
    pair.upstream.script_when(2, broken, Trouble::Close);

    let answer = pair.sidecar.ask(&call.clone().to("/broken")).await;

    assert_eq!(answer.status, 502);
    assert!(answer.okapi_headers().is_empty());
    pair.hit(&live, &first).await;
    let found = pair.miss(&call).await;
    assert_eq!(found.status, 202);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_yes_and_nothing_is_stored() {
    let (pair, call) = with_desk(&[]).await;

    for (number, cut) in [
        "HTTP/1.1 202 Acc",
        "HTTP/1.1 202 Accepted\r\nX-Okapi-Permissions: []\r\n",
        "HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhal",
        "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
        "SPDY/3 202 Accepted\r\n\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        // Another question each. Only the first target is broken, however often it is tried.
        let call = call.clone().desired(&[&number.to_string()]);
        let broken = format!("/broken/{number}");
        let target = broken.clone();
        let bytes = cut.as_bytes().to_vec();
        pair.upstream.script_when(
            2,
            move |request| request.target == target,
            Trouble::Bytes { bytes, close: true },
        );
        let answer = pair.sidecar.ask(&call.clone().to(&broken)).await;
        assert_eq!(answer.status, 502, "{cut}");
        assert!(answer.okapi_headers().is_empty());
        assert_eq!(pair.miss(&call).await.status, 202);
    }
}

#[tokio::test]
async fn a_question_that_is_never_answered_ends_in_504_and_keeps_nobody_waiting() {
    let (pair, call) = with_desk(&[("UPSTREAM_TIMEOUT", "400ms")]).await;
    let first = pair.miss(&call).await;
    // The auth module never answers where it cannot expand a module's own permissions.
    pair.upstream
        .world(|world| world.fail(LookUp::PermissionSets, Some(403)));
    let token = pair
        .upstream
        .module_token("diku", DESK, "mod-x-1", &["SYS#mod-x-1#/y#[GET]"]);
    let unanswered = loans(&token).request();
    let asked = pair.upstream.calls().total;

    let (answer, ()) = tokio::join!(pair.sidecar.send(&unanswered), async {
        pair.upstream.seen(asked + 1).await;
        pair.hit(&call, &first).await;
        let other = loans(&pair.upstream.access_token("diku", DESK5));
        assert_eq!(pair.miss(&other).await.status, 202);
    });

    assert_eq!(answer.status, 504);
    assert!(answer.okapi_headers().is_empty());
    pair.upstream
        .world(|world| world.fail(LookUp::PermissionSets, None));
    assert_eq!(pair.miss_request(&unanswered).await.status, 202);
}

#[tokio::test]
async fn a_header_block_at_the_limit_is_relayed_and_hit_without_a_byte_more() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));
    let at_the_limit = |_: &Request, headers: &mut Headers| {
        let fill = 8192 - headers.size() - "X-Okapi-Trace".len() - 2;
        headers.push("X-Okapi-Trace", "x".repeat(fill));
        assert_eq!(headers.size(), 8192);
    };
    says(&pair, 202, at_the_limit, "");

    let first = pair.miss(&call).await;

    let (hit, asked) = pair.asked(&call.request()).await;
    assert_eq!(asked, 0);
    assert_same(&hit, &first);
    assert!(first.headers.size() <= 8192 && hit.headers.size() <= 8192);
    assert_eq!(first.headers.len(), yes(&call.request()).len() + 1);
    assert_eq!(hit.headers.len(), first.headers.len());
}

#[tokio::test]
async fn a_yes_is_given_again_with_all_that_it_said_but_its_date() {
    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1")).module_permissions(r#"{"m-\u0031":["p"]}"#);
    let odd = |request: &Request, headers: &mut Headers| {
        let token = request.headers.get("X-Okapi-Token").expect("a token");
        headers.set("X-Okapi-Token", "another.than.requested");
        // Spaces and escapes, as another JSON writer might have it.
        let tokens = format!(r#"{{ "m-1" : "h.p.s" , "\u005f" : "{token}" }}"#);
        headers.set("X-Okapi-Module-Tokens", tokens);
        headers.push("X-Okapi-Trace", "GET mod-authtoken");
        headers.push("Vary", "Accept");
        headers.push("Date", "Thu, 01 Jan 2026 00:00:00 GMT");
    };
    says(&pair, 202, odd, "");
    let first = pair.miss(&call).await;
    assert!(first.headers.has("Date"));

    let (hit, asked) = pair.asked(&call.request()).await;

    assert_eq!(asked, 0);
    assert_same(&hit, &first);
    assert_eq!(hit.headers.get("Vary"), Some("Accept"));
    assert!(!hit.headers.has("Date"));
}

/// Asks for the same key in a way that is always forwarded.
fn forced(call: &FilterCall) -> Request {
    let mut request = call.clone().client_header("Content-Length", "2").request();
    request.body = b"{}".to_vec();
    request
}

#[tokio::test]
async fn a_known_no_ends_a_yes_and_trouble_does_not() {
    let (pair, call) = with_desk(&[]).await;

    for (status, ends) in [
        (400, true),
        (401, true),
        (403, true),
        (404, true),
        (200, true),
        (302, true),
        (500, false),
        (503, false),
    ] {
        let first = pair.miss(&call).await;
        assert_eq!(first.status, 202);
        pair.hit(&call, &first).await;
        pair.upstream
            .script(1, Trouble::answer(status, &[], "as it may be"));
        let no = pair.miss_request(&forced(&call)).await;
        assert_eq!(no.status, status);
        if ends {
            assert_eq!(pair.miss(&call).await.status, 202);
        } else {
            pair.hit(&call, &first).await;
        }
        // A no of any kind: the next case begins without a decision.
        pair.upstream.script(1, Trouble::answer(403, &[], ""));
        pair.miss_request(&forced(&call)).await;
    }
}

#[tokio::test]
async fn a_no_in_the_background_ends_a_yes_and_trouble_leaves_it() {
    for (status, counted, ends) in [
        (
            403,
            r#"auth_sidecar_evictions_total{cause="refused"}"#,
            true,
        ),
        (
            500,
            r#"auth_sidecar_not_stored_total{reason="status"}"#,
            false,
        ),
    ] {
        let (pair, call) = with_desk(&[("CACHE_REFRESH_AHEAD", "0.5")]).await;
        let first = pair.miss(&call).await;
        pair.sidecar.advance(Duration::from_secs(40));
        pair.upstream
            .script(1, Trouble::answer(status, &[], "as it may be"));

        let late = pair.sidecar.ask(&call).await;

        assert_same(&late, &first);
        while pair.sidecar.metric(counted).await < 1.0 {
            tokio::task::yield_now().await;
        }
        if ends {
            pair.miss(&call).await;
        } else {
            pair.hit(&call, &first).await;
        }
    }
}

#[tokio::test]
async fn a_no_to_one_question_leaves_the_others() {
    let (pair, call) = with_desk(&[]).await;
    let other = call.clone().desired(&["users.*"]);
    let (first, second) = (pair.miss(&call).await, pair.miss(&other).await);
    pair.upstream.script(1, Trouble::answer(403, &[], "no"));

    pair.miss_request(&forced(&call)).await;

    pair.hit(&other, &second).await;
    let again = pair.miss(&call).await;
    assert_same(&again, &first);
}

#[tokio::test]
async fn a_yes_on_its_way_is_not_stored_once_the_same_question_was_refused() {
    let (pair, call) = with_desk(&[]).await;
    let request = call.request();
    let gate = pair.upstream.hold_when(|request| request.body.is_empty());

    let (yes, ()) = tokio::join!(pair.sidecar.send(&request), async {
        gate.arrived(1).await;
        pair.upstream.script_when(
            1,
            |request| !request.body.is_empty(),
            Trouble::answer(403, &[], "no"),
        );
        assert_eq!(pair.sidecar.send(&forced(&call)).await.status, 403);
        gate.release();
    });

    assert_eq!(yes.status, 202);
    pair.miss(&call).await;
}

#[tokio::test]
async fn a_yes_on_its_way_during_a_purge_is_delivered_and_not_stored() {
    let (pair, call) = with_desk(&[("ADMIN_TOKEN", ADMIN_TOKEN)]).await;
    let request = call.request();
    let gate = pair.upstream.hold();

    let (yes, ()) = tokio::join!(pair.sidecar.send(&request), async {
        gate.arrived(1).await;
        let purged = pair
            .sidecar
            .admin("DELETE", "/cache/diku", Some(ADMIN_TOKEN))
            .await;
        assert_eq!(purged.status, 204);
        gate.release();
    });

    assert_eq!(yes.status, 202);
    let series = r#"auth_sidecar_not_stored_total{reason="revoked"}"#;
    assert!((pair.sidecar.metric(series).await - 1.0).abs() < 0.5);
    let first = pair.miss(&call).await;
    pair.hit(&call, &first).await;
}

/// Two equal questions at once; what upstream says to the first.
async fn both(pair: &Pair<Standin>, call: &FilterCall, to_the_first: Trouble) -> [Answer; 2] {
    let before = pair.sidecar.metric("auth_sidecar_connections").await;
    let gate = pair.upstream.hold();
    pair.upstream.script(1, to_the_first);
    let (first, second) = (call.request(), call.request());
    let (first, second, ()) = tokio::join!(
        pair.sidecar.send(&first),
        async {
            gate.arrived(1).await;
            pair.sidecar.send(&second).await
        },
        async {
            gate.arrived(1).await;
            // Nothing tells that the second has joined; its connection is there, so it needs no more than a moment.
            while pair.sidecar.metric("auth_sidecar_connections").await < before + 2.0 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            gate.release();
        }
    );
    [first, second]
}

#[tokio::test]
async fn a_yes_that_proves_nothing_is_given_to_who_asked_and_to_nobody_else() {
    let (pair, call) = with_desk(&[]).await;

    for (number, odd) in [
        Trouble::answer(200, &[], "OK"),
        Trouble::answer(204, &[], ""),
        Trouble::answer(202, &[], ""),
    ]
    .into_iter()
    .enumerate()
    {
        // Another question each, since the second's answer is a decision.
        let call = call.clone().desired(&[&number.to_string()]);
        pair.upstream.forget_calls();
        let [first, second] = both(&pair, &call, odd).await;
        assert!(first.okapi_headers().is_empty());
        assert_eq!(second.status, 202);
        assert!(second.headers.has("X-Okapi-Module-Tokens"));
        assert_eq!(pair.upstream.calls().total, 2);
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_read_is_relayed_and_not_stored() {
    let pair = Pair::yes(&[]).await;

    for token in [
        "junk".to_owned(),
        "a.b".to_owned(),
        "a.b.c".to_owned(),
        "a.b.c.d".to_owned(),
        "a.b.c.d.e".to_owned(),
        "Basic abc".to_owned(),
        unsigned("not JSON"),
        unsigned(r#"["sub"]"#),
        unsigned(r#"{"exp":"9999999999"}"#),
        unsigned(r#"{"exp":9999999999.5}"#),
        unsigned(r#"{"exp":-1}"#),
        unsigned(r#"{"exp":null}"#),
        unsigned(r#"{"exp":9999999999,"exp":1}"#),
    ] {
        let answer = pair.forwarded(&FilterCall::get("/x").token(&token)).await;
        assert_eq!(answer.status, 202, "{token}");
    }
    assert!((not_stored(&pair, "token").await - 26.0).abs() < 0.5);
}
