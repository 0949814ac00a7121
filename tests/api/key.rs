//! When two requests are the same question: only if every input of the answer is equal to the byte.
//!
//! The permissions and users are the recorded world's, so a wrongly shared decision shows as a wrong answer and not only
//! as a missing call.

use crate::asking::{Pair, assert_same, unsigned, unsigned_for};
use crate::harness::{LOANS, loans};
use crate::support::raw::Answer;
use crate::support::standin::call::FilterCall;
use crate::support::standin::token::Claims;
use crate::support::standin::{DESK, READER, Standin};

const CHECK_IN: &str = "circulation.check-in-by-barcode.post";
const USERS: &str = "users.item.get";

async fn with_desk() -> (Pair<Standin>, String) {
    let pair = Pair::start(&[]).await;
    let token = pair.upstream.access_token("diku", DESK);
    (pair, token)
}

fn told<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name)
}

/// Each is a question of its own; then each has its own answer, side by side.
async fn all_different(pair: &Pair<Standin>, calls: &[FilterCall]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for call in calls {
        answers.push(pair.miss(call).await);
    }
    for (call, answer) in calls.iter().zip(&answers) {
        if answer.status == 202 {
            pair.hit(call, answer).await;
        } else {
            assert_eq!(pair.miss(call).await.status, answer.status);
        }
    }
    answers
}

#[tokio::test]
async fn one_token_on_two_tenants_has_two_decisions() {
    let (pair, token) = with_desk().await;
    pair.upstream.world(|world| {
        world.set_cross_tenant(true);
        world.set_consortium("college", true);
        // The same user may do more there.
        world.grant("college", DESK, "college.only");
    });
    let call = FilterCall::get("/x").token(&token).desired(&["*"]);

    let answers = all_different(&pair, &[call.clone(), call.tenant("college")]).await;

    assert_eq!((answers[0].status, answers[1].status), (202, 202));
    let permissions = |n: usize| told(&answers[n], "X-Okapi-Permissions").expect("a list");
    assert!(!permissions(0).contains("college.only"));
    assert!(permissions(1).contains("college.only"));
}

#[tokio::test]
async fn a_tenant_that_is_not_the_tokens_is_refused_every_time() {
    let (pair, token) = with_desk().await;
    let call = loans(&token);
    let first = pair.miss(&call).await;

    let answer = pair.forwarded(&call.clone().tenant("college")).await;

    assert_eq!((answer.status, answer.text()), (403, "Invalid token"));
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn a_user_id_that_is_absent_equal_empty_or_other_makes_four_questions() {
    let (pair, token) = with_desk().await;
    let call = loans(&token);

    let answers = all_different(
        &pair,
        &[
            call.clone(),
            call.clone().user_id(DESK),
            call.clone().user_id(""),
            call.user_id(READER),
        ],
    )
    .await;

    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    // The other one is refused although the same token has a decision.
    assert_eq!(statuses, [202, 202, 403, 403]);
}

#[tokio::test]
async fn a_dummy_token_is_answered_with_the_user_that_the_header_names() {
    let pair = Pair::start(&[]).await;
    let token = pair.upstream.dummy_token("diku", "somebody", &[LOANS]);

    let answers = all_different(
        &pair,
        &[loans(&token).user_id("1"), loans(&token).user_id("2")],
    )
    .await;

    assert_eq!(told(&answers[0], "X-Okapi-User-Id"), Some("1"));
    assert_eq!(told(&answers[1], "X-Okapi-User-Id"), Some("2"));
}

#[tokio::test]
async fn two_tokens_of_one_user_are_two_questions() {
    let (pair, token) = with_desk().await;
    let module = pair.upstream.module_token("diku", DESK, "mod-x-1", &[]);
    let now = pair.upstream.clock().wall();
    let later = pair.upstream.access_token_until("diku", DESK, now + 601);

    let calls = [loans(&token), loans(&module), loans(&later)];
    let answers = all_different(&pair, &calls).await;

    for (call, answer) in calls.iter().zip(&answers) {
        let request = call.request();
        let token = request.headers.get("X-Okapi-Token");
        assert!(told(answer, "X-Okapi-Token") == token);
    }
}

#[tokio::test]
async fn a_permission_that_was_not_asked_for_is_not_granted() {
    let pair = Pair::start(&[]).await;
    let token = pair.upstream.access_token("diku", READER);
    let may = FilterCall::get("/x").token(&token).required(&[USERS]);
    let first = pair.miss(&may).await;

    let answer = pair.forwarded(&loans(&token)).await;

    assert_eq!((first.status, answer.status), (202, 403));
    pair.hit(&may, &first).await;
}

#[tokio::test]
async fn required_absent_and_present_but_empty_are_two_questions() {
    let (pair, token) = with_desk().await;
    let call = FilterCall::get("/x").token(&token);

    let answers = all_different(&pair, &[call.clone(), call.required(&[""])]).await;

    assert_eq!((answers[0].status, answers[1].status), (202, 403));
}

#[tokio::test]
async fn each_desired_list_has_its_own_answer() {
    let (pair, token) = with_desk().await;
    let call = FilterCall::get("/x").token(&token);

    let answers = all_different(
        &pair,
        &[
            call.clone(),
            call.clone().desired(&["users.item.*"]),
            call.clone().desired(&["users.item"]),
            call.clone().desired(&["loans"]),
            call.desired(&[""]),
        ],
    )
    .await;

    let permissions: Vec<_> = answers
        .iter()
        .map(|answer| told(answer, "X-Okapi-Permissions").expect("a list"))
        .collect();
    assert_eq!(permissions[0], "[]");
    assert!(permissions[1].contains(USERS) && !permissions[1].contains(LOANS));
    assert!(permissions[3].contains(LOANS) && !permissions[3].contains(USERS));
    // An empty entry matches every permission.
    assert!(permissions[4].contains(LOANS) && permissions[4].contains(USERS));
}

#[tokio::test]
async fn the_order_of_required_permissions_does_not_change_the_answer() {
    let (pair, token) = with_desk().await;
    let call = FilterCall::get("/x").token(&token);
    let first = pair.miss(&call.clone().required(&[LOANS, USERS])).await;

    let (answer, asked) = pair.asked(&call.required(&[USERS, LOANS]).request()).await;

    assert!(asked <= 1);
    assert_same(&answer, &first);
}

#[tokio::test]
async fn a_list_with_a_space_asks_for_another_permission() {
    let (pair, token) = with_desk().await;
    let call = FilterCall::get("/x").token(&token);
    let list = |between: &str| {
        let joined = format!("{LOANS}{between}{USERS}");
        call.clone().required(&[joined.as_str()])
    };
    let first = pair.miss(&list(",")).await;

    for between in [", ", " ,", ",,"] {
        assert_eq!(pair.forwarded(&list(between)).await.status, 403);
    }

    assert_eq!(first.status, 202);
    pair.hit(&list(","), &first).await;
}

#[tokio::test]
async fn a_hit_for_a_module_holds_a_token_for_that_module() {
    let (pair, token) = with_desk().await;
    let call = loans(&token);
    let lists = [
        "{}",
        r#"{"m-1":["p"]}"#,
        r#"{"m-2":["p"]}"#,
        r#"{"m-1":["p","q"]}"#,
        r#"{"m-1":["p"],"m-2":["p"]}"#,
        r#"{"m-2":["p"],"m-1":["p"]}"#,
        r#"{"m-1":[]}"#,
    ];
    let calls = lists.map(|list| call.clone().module_permissions(list));

    let answers = all_different(&pair, &calls).await;

    for (list, answer) in lists.iter().zip(&answers) {
        let value = told(answer, "X-Okapi-Module-Tokens").expect("module tokens");
        let tokens: serde_json::Value = serde_json::from_str(value).expect("JSON");
        let asked: serde_json::Value = serde_json::from_str(list).expect("JSON");
        for (module, permissions) in asked.as_object().expect("an object") {
            let token = tokens[module].as_str().expect("a token for the module");
            let payload = pair.upstream.world(|world| world.key().payload(token));
            let claims = Claims::parse(&payload.expect("a genuine token")).expect("claims");
            assert_eq!(claims.text("module"), Some(module.as_str()));
            assert_eq!(claims.get("extra_permissions"), Some(permissions));
        }
    }
}

#[tokio::test]
async fn an_upgraded_module_asks_anew_on_the_same_path() {
    let (pair, token) = with_desk().await;
    let call = |version: &str| {
        let list = format!(r#"{{"mod-x-{version}":["SYS#mod-x-{version}#/x#[GET]"]}}"#);
        loans(&token).module_permissions(&list)
    };
    let old = pair.miss(&call("1.0.0")).await;

    let new = pair.miss(&call("1.0.1")).await;

    assert!(told(&new, "X-Okapi-Module-Tokens") != told(&old, "X-Okapi-Module-Tokens"));
    pair.hit(&call("1.0.1"), &new).await;
}

#[tokio::test]
async fn extra_permissions_and_an_additional_token_are_forwarded_every_time() {
    let (pair, token) = with_desk().await;
    let call = loans(&token);
    let first = pair.miss(&call).await;

    for (name, value) in [
        ("X-Okapi-Extra-Permissions", "a,b"),
        ("X-Okapi-Extra-Permissions", r#"["a","b"]"#),
        ("X-Okapi-Extra-Permissions", ""),
        ("X-Okapi-Additional-Token", "h.p.s"),
        ("X-Okapi-Additional-Token", ""),
    ] {
        pair.forwarded(&call.clone().header(name, value)).await;
        // Not stored either: what was stored is still there, and unchanged.
        pair.hit(&call, &first).await;
    }

    let pair = Pair::yes(&[]).await;
    let call = loans(&unsigned_for("u-1"));
    for name in ["X-Okapi-Extra-Permissions", "X-Okapi-Additional-Token"] {
        pair.forwarded(&call.clone().header(name, "a")).await;
    }
    pair.miss(&call).await;
}

#[tokio::test]
async fn a_key_header_given_twice_is_forwarded_with_both() {
    let (pair, token) = with_desk().await;
    let call = loans(&token).user_id(DESK).desired(&["users.*"]);
    let first = pair.miss(&call).await;
    let request = call.request();

    for name in [
        "X-Okapi-Tenant",
        "X-Okapi-Url",
        "X-Okapi-Token",
        "X-Okapi-User-Id",
        "X-Okapi-Permissions-Required",
        "X-Okapi-Permissions-Desired",
        "X-Okapi-Module-Permissions",
    ] {
        let same = request.headers.get(name).expect("a value").to_owned();
        for other in ["other", &same, ""] {
            pair.upstream.forget_calls();
            pair.forwarded(&call.clone().header(name, other)).await;
            for seen in pair.upstream.requests() {
                let values: Vec<_> = seen.request.headers.all(name).collect();
                assert!(values == [same.as_bytes(), other.as_bytes()], "{name}");
            }
        }
    }
    pair.hit(&call, &first).await;
}

#[tokio::test]
async fn values_that_would_run_together_are_different_questions() {
    let pair = Pair::yes(&[]).await;
    let call = || FilterCall::get("/x").token(&unsigned_for("u-1"));
    let token = unsigned_for("u-1");
    let calls = [
        call().required(&["ab"]).desired(&["c"]),
        call().required(&["a"]).desired(&["bc"]),
        call().required(&["abc"]).desired(&[""]),
        call().required(&[""]).desired(&["abc"]),
        call().required(&["abc"]),
        call().desired(&["abc"]),
        call().required(&["abc{}"]).desired(&[""]),
        call().required(&["a,b"]),
        call().required(&["a,"]).desired(&["b"]),
        call().tenant("dikuhttp://x").url(""),
        call().tenant("diku").url("http://x"),
        call().tenant("").url("dikuhttp://x"),
        call().tenant("diku").url(&format!("http://x{token}")),
        call().user_id("1").required(&["2"]),
        call().user_id("12"),
        call().user_id("").required(&["12"]),
        call().user_id("12").required(&[""]),
    ];

    let mut answers = Vec::new();
    for call in &calls {
        answers.push(pair.miss(call).await);
    }
    for (call, answer) in calls.iter().zip(&answers) {
        pair.hit(call, answer).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_compared_as_bytes() {
    let pair = Pair::yes(&[]).await;
    let token = unsigned_for("u-1");
    let call = |user: &[u8], permission: &[u8]| {
        FilterCall::get("/x")
            .token(&token)
            .header("X-Okapi-User-Id", user)
            .header("X-Okapi-Permissions-Required", permission)
    };
    // 0xe9 and 0xea are no UTF-8: whoever makes text of them has the same text twice.
    let calls = [
        call(b"\xe9", b"p"),
        call(b"\xea", b"p"),
        call(b"u", b"\xe9"),
        call(b"u", b"\xea"),
        call("\u{e9}".as_bytes(), b"p"),
    ];

    let mut answers = Vec::new();
    for call in &calls {
        answers.push(pair.miss(call).await);
        let heard = pair.upstream.heard().pop().expect("a request");
        let sent = call.request();
        for name in ["X-Okapi-User-Id", "X-Okapi-Permissions-Required"] {
            assert!(heard.headers.bytes(name) == sent.headers.bytes(name));
        }
    }

    for (call, answer) in calls.iter().zip(&answers) {
        assert_eq!(answer.status, 202);
        pair.hit(call, answer).await;
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_in_a_token_are_forwarded() {
    let pair = Pair::yes(&[]).await;
    let token = [unsigned(r#"{"sub":"x"}"#).as_bytes(), b"\xe9"].concat();
    let call = FilterCall::get("/x").header("X-Okapi-Token", &token);

    let answer = pair.forwarded(&call).await;

    assert_eq!(answer.status, 202);
    let heard = pair.upstream.heard().pop().expect("a request");
    assert!(heard.headers.bytes("X-Okapi-Token") == Some(&token));
}

#[tokio::test]
async fn with_the_scope_of_a_request_method_and_target_are_part_of_the_question() {
    let pair = Pair::start(&[("CACHE_KEY_SCOPE", "request")]).await;
    let token = pair.upstream.access_token("diku", DESK);
    let call = |method: &str, target: &str| {
        FilterCall::new(method, target)
            .token(&token)
            .required(&[LOANS, CHECK_IN])
    };

    all_different(
        &pair,
        &[
            call("GET", "/x"),
            call("PUT", "/x"),
            call("GET", "/y"),
            call("GET", "/x?limit=1"),
            call("GET", "/x?"),
        ],
    )
    .await;
}
