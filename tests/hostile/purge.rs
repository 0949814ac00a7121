//! Guessing the purge token.

use crate::harness::{ADMIN_TOKEN, pair};

#[tokio::test]
async fn nothing_but_the_whole_token_purges() {
    let (_standin, sidecar) = pair(&[("ADMIN_TOKEN", ADMIN_TOKEN)]).await;
    let guesses = [
        String::new(),
        ADMIN_TOKEN[..15].to_owned(),
        format!("{ADMIN_TOKEN}0"),
        format!("{ADMIN_TOKEN} {ADMIN_TOKEN}"),
        ADMIN_TOKEN.to_uppercase(),
        format!("0{}", &ADMIN_TOKEN[1..15]),
        "x".repeat(4_000),
    ];

    for guess in guesses {
        let answer = sidecar.admin("DELETE", "/cache", Some(&guess)).await;
        assert_eq!(answer.status, 401, "a guess of {} bytes", guess.len());
        assert!(!answer.text().contains(ADMIN_TOKEN));
    }
    assert!(sidecar.sum("auth_sidecar_purges_total{").await < 0.5);
    let answer = sidecar.admin("DELETE", "/cache", Some(ADMIN_TOKEN)).await;
    assert_eq!(answer.status, 204);
}

/// A comparison's time cannot be asserted where others use the machine; what is compared with can be read.
#[test]
fn the_token_is_compared_in_constant_time_and_in_one_place() {
    let source = include_str!("../../src/admin.rs");

    assert_eq!(source.matches("ct_eq(").count(), 1);
    let uses: Vec<_> = source
        .lines()
        .filter(|line| line.contains("token.as_bytes()"))
        .collect();
    assert_eq!(uses.len(), 1, "{uses:?}");
    assert!(uses[0].contains("ct_eq(token.as_bytes())"));
    assert!(!source.contains("reveal()"));
}
