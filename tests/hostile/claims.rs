//! Tokens that claim what they are not. No claim is a proof: a forged token finds only what was answered to itself.

use crate::harness::{loans, pair};
use crate::support::standin::call::FilterCall;
use crate::support::standin::{ADMIN, DESK, READER};

fn parts(token: &str) -> [String; 3] {
    let parts: Vec<_> = token.split('.').map(str::to_owned).collect();
    parts.try_into().expect("three parts")
}

/// As many ways to make something of tokens that were seen.
fn forged(desk: &str, admin: &str) -> Vec<String> {
    let ([head, payload, signature], [_, other, other_signature]) = (parts(desk), parts(admin));
    let none = "eyJhbGciOiJub25lIn0";
    let mut last = signature.clone();
    let end = last.pop().expect("a signature");
    vec![
        format!("{head}.{other}.{signature}"),
        format!("{head}.{payload}.{other_signature}"),
        format!("{none}.{payload}."),
        format!("{none}.{payload}.{signature}"),
        format!("{head}.{payload}.{signature}."),
        format!("{head}.{payload}"),
        format!("{head}.{payload}.{signature}.{payload}"),
        format!("{head}.{payload}={signature}"),
        format!(
            "{head}.{payload}.{last}{}",
            if end == 'A' { 'B' } else { 'A' }
        ),
        format!("{}.{payload}.{signature}", head.to_lowercase()),
        format!("{}{desk}", &desk[..1]),
        desk.repeat(2),
        "a.b.c".to_owned(),
        "...".to_owned(),
    ]
}

#[tokio::test]
async fn a_forged_token_finds_nothing_and_leaves_nothing() {
    let (standin, sidecar) = pair(&[]).await;
    let desk = standin.access_token("diku", DESK);
    let admin = standin.access_token("diku", ADMIN);
    let call = loans(&desk);
    assert!(!sidecar.hits(&standin, &call).await);
    assert!(sidecar.hits(&standin, &call).await);

    for token in forged(&desk, &admin) {
        for _ in 0..2 {
            let before = standin.calls().total;
            let answer = sidecar.ask(&loans(&token)).await;
            assert!(answer.status >= 400, "{}", answer.status);
            assert_eq!(standin.calls().total, before + 1, "asked, and never kept");
        }
    }

    assert!(
        sidecar.hits(&standin, &call).await,
        "nobody else is touched"
    );
    assert!((sidecar.metric("auth_sidecar_cache_entries").await - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn another_users_id_beside_the_own_token_finds_nothing() {
    let (standin, sidecar) = pair(&[]).await;
    let reader = standin.access_token("diku", READER);
    let desk = standin.access_token("diku", DESK);
    assert!(!sidecar.hits(&standin, &loans(&desk).user_id(DESK)).await);

    let answer = sidecar.ask(&loans(&reader).user_id(DESK)).await;

    assert_ne!(answer.status, 202);
    assert!(sidecar.hits(&standin, &loans(&desk).user_id(DESK)).await);
}

#[tokio::test]
async fn a_forged_logout_or_refresh_drops_nobodys_decisions() {
    let (standin, sidecar) = pair(&[]).await;
    let desk = standin.access_token("diku", DESK);
    assert!(!sidecar.hits(&standin, &loans(&desk)).await);
    let [head, payload, _] = parts(&desk);
    let forged = format!("{head}.{payload}.AAAA");

    for call in [
        FilterCall::new("POST", "/token/invalidate").token(&forged),
        FilterCall::new("POST", "/token/invalidate-all").token(&forged),
        loans(&forged).header("Authtoken-Refresh-Cache", "true"),
        FilterCall::new("PUT", &format!("/users/{DESK}")).token(&forged),
    ] {
        assert!(sidecar.ask(&call).await.status >= 400);
    }

    assert!(sidecar.hits(&standin, &loans(&desk)).await);
}
