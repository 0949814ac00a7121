//! Which tokens are good, and whom they speak for.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::json;

use crate::support::standin::token::Claims;
use crate::support::standin::{DESK, Standin};
use crate::{LOANS, ask, loans, standin};

/// A token with the claims of the desk's access token, changed.
fn token(standin: &Standin, change: impl FnOnce(Claims) -> Claims) -> String {
    let now = standin.clock().wall();
    let claims = change(Claims::access("diku", "desk", DESK, now, now + 600));
    standin.world(|world| world.key().sign(&claims))
}

async fn status_of_token(standin: &Standin, token: &str) -> (u16, String) {
    let answer = ask(standin, &loans(token)).await;
    (answer.status, answer.text().to_owned())
}

#[tokio::test]
async fn a_token_is_judged_by_its_claims() {
    let standin = standin().await;
    let now = standin.clock().wall();
    let good = (202, String::new());
    let invalid = |status| (status, "Invalid token".to_owned());
    let unexpected = (
        500,
        "Unexpected exception during token validation".to_owned(),
    );

    for (what, token, expected) in [
        (
            "now",
            token(&standin, |claims| claims.with("exp", now + 1)),
            &good,
        ),
        (
            "over",
            token(&standin, |claims| claims.with("exp", now - 2)),
            &invalid(401),
        ),
        (
            "text",
            token(&standin, |claims| claims.with("exp", "9999999999")),
            &unexpected,
        ),
        (
            "float",
            token(&standin, |claims| claims.with("exp", 9_999_999_999.5)),
            &good,
        ),
        (
            "type",
            token(&standin, |claims| claims.with("type", "x")),
            &invalid(400),
        ),
        (
            "refresh",
            token(&standin, |claims| claims.with("type", "refresh")),
            &unexpected,
        ),
        (
            "no name",
            token(&standin, |claims| claims.with("sub", json!(null))),
            &invalid(500),
        ),
        (
            "tenant",
            token(&standin, |claims| claims.with("tenant", "college")),
            &invalid(403),
        ),
        ("twice", twice(&standin), &invalid(401)),
        (
            "no json",
            standin.world(|world| world.key().sign_payload("x")),
            &invalid(500),
        ),
        ("two parts", "a.b".to_owned(), &invalid(401)),
        ("four parts", "a.b.c.d".to_owned(), &invalid(401)),
        ("five parts", "a.b.c.d.e".to_owned(), &invalid(401)),
        ("empty", String::new(), &invalid(401)),
    ] {
        let answer = status_of_token(&standin, &token).await;
        assert_eq!(&answer, expected, "{what}");
    }
}

/// Of duplicate members the last counts.
fn twice(standin: &Standin) -> String {
    let payload = format!(
        r#"{{"sub":"desk","type":"access","exp":9999999999,"exp":1,"user_id":"{DESK}","tenant":"diku"}}"#
    );
    standin.world(|world| world.key().sign_payload(&payload))
}

#[tokio::test]
async fn only_hs256_is_a_signature() {
    let standin = standin().await;
    let payload =
        format!(r#"{{"sub":"desk","type":"legacy-access","user_id":"{DESK}","tenant":"diku"}}"#);

    for (header, status) in [
        (r#"{"alg":"HS256"}"#, 202),
        (r#"{"typ":"JWT","alg":"HS256"}"#, 202),
        (r#"{"alg":"HS512"}"#, 401),
        (r#"{"alg":"none"}"#, 401),
        ("{}", 401),
        ("x", 401),
    ] {
        let header = BASE64URL.encode(header);
        let token = standin.world(|world| world.key().sign_parts(&header, &payload));
        assert_eq!(status_of_token(&standin, &token).await.0, status);
    }
}

#[tokio::test]
async fn an_access_token_works_during_the_second_it_expires() {
    let standin = standin().await;
    let now = standin.clock().wall();
    let token = standin.access_token_until("diku", DESK, now + 60);

    standin.clock().set_wall(seconds(now + 60));
    assert_eq!(status_of_token(&standin, &token).await.0, 202);
    standin.clock().set_wall(seconds(now + 61));
    assert_eq!(status_of_token(&standin, &token).await.0, 401);
}

fn seconds(since_1970: i64) -> Duration {
    Duration::from_secs(since_1970.unsigned_abs())
}

#[tokio::test]
async fn a_token_without_type_gets_one() {
    let standin = standin().await;
    let payload = format!(r#"{{"sub":"desk","user_id":"{DESK}","tenant":"diku"}}"#);
    let token = standin.world(|world| world.key().sign_payload(&payload));
    let claims = Claims::legacy_access("diku", "desk", DESK, 0);
    let dated = standin.world(|world| world.key().sign(&claims));

    let answer = ask(&standin, &loans(&token)).await;

    assert_eq!(answer.status, 202);
    let given = answer.headers.get("X-Okapi-Token").expect("a token");
    assert_ne!(given, token);
    assert_ne!(given, dated);
    let again = ask(&standin, &loans(given)).await;
    assert_eq!(again.headers.get("X-Okapi-Token"), Some(given));
}

#[tokio::test]
async fn a_user_less_dummy_speaks_for_whom_the_header_names() {
    let standin = standin().await;
    let call =
        loans(&standin.dummy_token("diku", "UNDEFINED_USER__x", &[LOANS])).user_id("no-such");

    let answer = ask(&standin, &call).await;

    assert_eq!(answer.status, 202);
    assert_eq!(answer.headers.get("X-Okapi-User-Id"), Some("no-such"));
}

#[tokio::test]
async fn a_token_without_a_user_asks_for_the_user_null() {
    let standin = standin().await;
    let claims = Claims::module("diku", "somebody", None, "mod-x-1", json!([LOANS]));
    let token = standin.world(|world| world.key().sign(&claims));

    let answer = ask(&standin, &loans(&token)).await;

    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.text(),
        "Unable to retrieve permissions for user with id 'null': User does not exist: null"
    );
    assert!(answer.headers.has("X-Okapi-Module-Tokens"));
}
