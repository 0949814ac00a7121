//! A known no ends a yes, and says now and then more than its own question: this user is gone, the signing key changed.

use super::{Stage, VICTIM, token};
use crate::harness::{LOANS, loans};
use crate::support::standin::call::{FilterCall, handler};
use crate::support::standin::control::Trouble;
use crate::support::standin::{MUELLER, READER};
use std::time::Duration;

const REFRESH: &str = "Authtoken-Refresh-Cache";
const KEY: &str = "another signing key of thirty-two bytes";

/// The same question, asked past the cache: what its answer says is known from then on.
fn past_the_cache(call: &FilterCall) -> FilterCall {
    call.clone().header(REFRESH, "true")
}

#[tokio::test]
async fn a_refusal_ends_the_decision_of_its_question_whoever_asked() {
    let stage = Stage::new(&[]).await;
    let plain = FilterCall::get("/x").token(&token(&stage.standin, "diku", VICTIM));
    stage.warm().await;
    stage.hits(&plain).await;
    stage
        .standin
        .world(|world| world.revoke("diku", VICTIM, LOANS));

    let refused = stage.sidecar.ask(&past_the_cache(&stage.victim)).await;
    assert_eq!(refused.status, 403);

    let again = stage.sidecar.ask(&stage.victim).await;
    assert_eq!(again, refused, "as refused as before");
    assert!(
        stage.hits(&plain).await,
        "another question of the same caller"
    );
    assert!(stage.hits(&stage.abroad).await);
    assert_eq!(stage.revocations().await, 0.0);
    let evicted = "auth_sidecar_evictions_total{cause=\"refused\"}";
    assert_eq!(stage.sidecar.metric(evicted).await, 1.0);
}

#[tokio::test]
async fn any_answer_below_500_but_202_ends_the_decision() {
    for status in [200, 204, 301, 400, 401, 403, 404, 429] {
        let stage = Stage::new(&[]).await;
        stage.warm().await;
        stage.standin.script(1, Trouble::answer(status, &[], ""));

        let answer = stage.sidecar.ask(&past_the_cache(&stage.victim)).await;

        assert_eq!(answer.status, status);
        assert!(!stage.hits(&stage.victim).await, "{status}");
    }
}

#[tokio::test]
async fn trouble_leaves_the_decision_to_its_life() {
    for trouble in [
        Trouble::answer(500, &[], ""),
        Trouble::answer(503, &[], "Invalid token"),
        Trouble::Close,
        Trouble::Bytes {
            bytes: b"nonsense\r\n\r\n".to_vec(),
            close: true,
        },
    ] {
        let stage = Stage::new(&[]).await;
        stage.warm().await;
        stage.standin.script(2, trouble.clone());

        let answer = stage.sidecar.ask(&past_the_cache(&stage.victim)).await;

        assert!(answer.status >= 500, "{}", answer.status);
        assert!(stage.hits(&stage.victim).await, "{trouble:?}");
    }
}

/// What is passed through for a reason that changes the question says nothing of it.
#[tokio::test]
async fn a_refusal_of_another_question_ends_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    for call in [
        stage.victim.clone().required(&["no.such"]),
        stage
            .victim
            .clone()
            .header("X-Okapi-Permissions-Required", "no.such"),
        stage.victim.clone().to("/token/sign"),
        stage.victim.clone().tenant("college"),
        stage.victim.clone().user_id(MUELLER),
        stage.victim.clone().to("/x%zz"),
    ] {
        stage.sidecar.ask(&call).await;

        assert!(stage.hits(&stage.victim).await, "{call:?}");
    }
}

/// Makes the auth module forget, as an hour would, and nothing else.
fn upstream_forgets(stage: &Stage) {
    stage.standin.clock().advance(Duration::from_mins(2));
}

#[tokio::test]
async fn the_word_that_a_user_is_gone_voids_all_of_the_user_s_decisions() {
    for listen in ["true", "false"] {
        for deleted in [false, true] {
            let stage = Stage::new(&[("REVOCATION_LISTEN", listen)]).await;
            let another = loans(&stage.standin.module_token("diku", VICTIM, "mod-x", &[]));
            stage.warm().await;
            stage.hits(&another).await;
            assert!(stage.hits(&another).await);
            stage.standin.world(|world| {
                if deleted {
                    world.delete_user("diku", VICTIM);
                } else {
                    world.set_active("diku", VICTIM, false);
                }
            });
            upstream_forgets(&stage);

            let question = stage.victim.clone().required(&["some.other"]);
            let refused = stage.sidecar.ask(&question).await;
            assert_eq!(refused.status, 401, "{}", refused.text());

            assert_eq!(stage.revoked("user_inactive", "user").await, 1.0);
            for call in [&stage.victim, &another] {
                assert_eq!(stage.sidecar.ask(call).await.status, 401);
            }
            assert!(stage.hits(&stage.other).await);
            assert!(
                stage.hits(&stage.abroad).await,
                "the user of that name elsewhere"
            );
        }
    }
}

/// Only the sentence itself, and only about the user who asked: anything else is this question's no alone.
#[tokio::test]
async fn words_that_only_look_like_it_void_nobody() {
    let active = "is not active";
    for (status, body) in [
        (
            401,
            format!("Invalid token: user with id {MUELLER} {active}"),
        ),
        (
            401,
            format!("Invalid token: user with id {VICTIM} {active} "),
        ),
        (
            401,
            format!("invalid token: user with id {VICTIM} {active}"),
        ),
        (
            401,
            format!("x Invalid token: user with id {VICTIM} {active}"),
        ),
        (
            401,
            format!("Invalid token: Unexpected user response code 500 for user id {VICTIM}"),
        ),
        (
            403,
            format!("Invalid token: user with id {VICTIM} {active}"),
        ),
        (
            400,
            format!("Invalid token: user with id {VICTIM} {active}"),
        ),
        (
            500,
            format!("Invalid token: user with id {VICTIM} {active}"),
        ),
        (401, "Invalid token: ".to_owned()),
    ] {
        let stage = Stage::new(&[]).await;
        stage.warm().await;
        stage.standin.script(1, Trouble::answer(status, &[], &body));

        let question = stage.victim.clone().required(&["some.other"]);
        assert_eq!(stage.sidecar.ask(&question).await.status, status);

        assert_eq!(stage.revocations().await, 0.0, "{status} {body}");
        for call in [&stage.victim, &stage.other] {
            assert!(stage.hits(call).await, "{status} {body}");
        }
    }
}

#[tokio::test]
async fn a_good_token_that_became_invalid_drops_everything() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    stage.standin.restart_with_key(KEY);

    let question = stage.victim.clone().required(&["some.other"]);
    let refused = stage.sidecar.ask(&question).await;
    assert_eq!((refused.status, refused.text()), (401, "Invalid token"));

    for call in [&stage.other, &stage.abroad, &stage.victim] {
        assert_eq!(stage.sidecar.ask(call).await.status, 401);
    }
    assert_eq!(stage.revoked("signing_key", "all").await, 1.0);
    assert_eq!(stage.revocations().await, 1.0);
}

#[tokio::test]
async fn tokens_without_expiry_tell_of_a_new_key_as_well() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let module = loans(&stage.standin.module_token("diku", VICTIM, "mod-x", &[]));
    stage.hits(&module).await;
    stage.standin.restart_with_key(KEY);

    let question = module.required(&["some.other"]);
    assert_eq!(stage.sidecar.ask(&question).await.status, 401);

    assert_eq!(stage.revoked("signing_key", "all").await, 1.0);
}

#[tokio::test]
async fn everything_is_dropped_at_most_once_a_minute() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let asks_invalid = |call: &FilterCall| call.clone().required(&["some.other"]);
    let invalid = || Trouble::answer(401, &[("Content-Type", "text/plain")], "Invalid token");

    stage.standin.script(1, invalid());
    assert_eq!(
        stage.sidecar.ask(&asks_invalid(&stage.victim)).await.status,
        401
    );
    assert_eq!(stage.revocations().await, 1.0);
    assert!(!stage.hits(&stage.other).await);
    assert!(!stage.hits(&stage.victim).await);
    stage.pass_secs(55);
    stage.standin.script(1, invalid());
    assert_eq!(
        stage.sidecar.ask(&asks_invalid(&stage.victim)).await.status,
        401
    );
    assert_eq!(stage.revocations().await, 1.0, "not again");
    assert!(stage.hits(&stage.other).await);

    stage.pass_secs(6);
    stage.standin.script(1, invalid());
    assert_eq!(
        stage.sidecar.ask(&asks_invalid(&stage.victim)).await.status,
        401
    );
    assert_eq!(stage.revocations().await, 2.0);
    assert!(!stage.hits(&stage.other).await);
}

/// Any end user can bring any of these.
#[tokio::test]
async fn tokens_that_end_or_never_were_good_drop_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let now = stage.standin.clock().wall();
    // Good for half a minute and a minute: their decisions are live when the auth module's clock, ahead, ends them.
    let near: Vec<_> = [30, 55]
        .map(|life| loans(&stage.standin.access_token_until("diku", VICTIM, now + life)))
        .into();
    for call in &near {
        stage.hits(call).await;
        assert!(stage.hits(call).await, "live");
    }
    stage.standin.clock().advance(Duration::from_secs(59));

    let invalid = |answer: &crate::support::raw::Answer| {
        assert_eq!((answer.status, answer.text()), (401, "Invalid token"));
    };
    for call in &near {
        invalid(&stage.sidecar.ask(&past_the_cache(call)).await);
        invalid(
            &stage
                .sidecar
                .ask(&call.clone().required(&["some.other"]))
                .await,
        );
        invalid(&stage.sidecar.ask(&call.clone().to("/a/../b")).await);
    }
    let expired = stage
        .standin
        .access_token_until("diku", VICTIM, now - 1_000);
    let mut forged = token(&stage.standin, "diku", VICTIM);
    forged.push('x');
    for token in [expired.as_str(), "h.p.s", "garbage", "a.b.c.d.e", &forged] {
        invalid(&stage.sidecar.ask(&loans(token)).await);
        invalid(&stage.sidecar.ask(&past_the_cache(&loans(token))).await);
        invalid(&stage.sidecar.ask(&loans(token).to("/a//b")).await);
    }

    assert_eq!(stage.revocations().await, 0.0);
    for call in [&stage.victim, &stage.abroad, &stage.other] {
        assert!(stage.hits(call).await);
    }
}

/// There the body's token is the invalid one, or the prefix decides.
#[tokio::test]
async fn an_invalid_token_on_an_own_route_drops_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let victim = token(&stage.standin, "diku", VICTIM);
    let magic = r#"["L3Rva2VuL3JlZnJlc2g=.execute"]"#;
    let body = r#"{"refreshToken":"used before"}"#;

    let refused = stage
        .sidecar
        .send(&handler("/token/refresh", "diku", &victim, magic, body))
        .await;
    assert_eq!((refused.status, refused.text()), (401, "Invalid token"));
    for target in ["/token/sign", "/tokenizer", "/refreshtoken", "/_/tenant"] {
        stage
            .standin
            .script(1, Trouble::answer(401, &[], "Invalid token"));
        assert_eq!(
            stage
                .sidecar
                .ask(&stage.victim.clone().to(target))
                .await
                .status,
            401
        );
    }

    assert_eq!(stage.revocations().await, 0.0);
    assert!(stage.hits(&stage.victim).await);
}

#[tokio::test]
async fn an_invalid_token_of_somebody_without_live_decisions_drops_nothing() {
    let stage = Stage::new(&[("CACHE_TTL", "30s")]).await;
    let reader = FilterCall::get("/x").token(&token(&stage.standin, "diku", READER));
    stage.hits(&reader).await;
    stage.pass_secs(31);
    stage.warm().await;

    for body in [
        "Invalid token",
        "Invalid token: x",
        "invalid token",
        "Invalid token\n",
    ] {
        stage.standin.script(1, Trouble::answer(401, &[], body));
        assert_eq!(stage.sidecar.ask(&reader).await.status, 401);
        assert!(stage.hits(&stage.other).await, "no decision is live");
    }
    // With a live one every other body is just a no.
    stage.hits(&reader).await;
    assert!(stage.hits(&reader).await);
    for (status, body) in [
        (401, "Invalid token: x"),
        (401, "Invalid token\n"),
        (401, ""),
        (403, "Invalid token"),
        (500, "Invalid token"),
    ] {
        stage.standin.script(1, Trouble::answer(status, &[], body));
        let question = reader.clone().required(&["some.other"]);
        assert_eq!(stage.sidecar.ask(&question).await.status, status);
        assert!(stage.hits(&stage.other).await, "{status} {body}");
        assert!(stage.hits(&reader).await, "{status} {body}");
    }
    assert_eq!(stage.revocations().await, 0.0);
}

#[tokio::test]
async fn with_listening_off_a_new_key_ends_its_questions_one_by_one() {
    let stage = Stage::new(&[("REVOCATION_LISTEN", "false")]).await;
    stage.warm().await;
    stage.standin.restart_with_key(KEY);

    assert_eq!(
        stage
            .sidecar
            .ask(&past_the_cache(&stage.victim))
            .await
            .status,
        401
    );

    assert_eq!(stage.sidecar.ask(&stage.victim).await.status, 401);
    assert!(stage.hits(&stage.other).await, "left to its life");
    assert_eq!(stage.revocations().await, 0.0);
}
