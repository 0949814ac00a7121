//! Holds: what was asked before their end is delivered and never stored.

use super::{Stage, change_of_record, change_of_set, change_of_victim, revocation_of_victim};
use crate::support::standin::call::FilterCall;
use std::time::Duration;

/// Asks as the victim and tells whether the answer was stored.
async fn stores(stage: &Stage, call: &FilterCall) -> bool {
    let before = stage.sidecar.metric("auth_sidecar_stored_total").await;
    assert!(!stage.hits(call).await, "nothing was stored before");
    stage.sidecar.metric("auth_sidecar_stored_total").await > before
}

/// Passes the time in steps, asking after each, until an answer is stored; how many seconds that took.
async fn seconds_until_stored(stage: &Stage, call: &FilterCall) -> u64 {
    for second in 0..200 {
        if stores(stage, call).await {
            return second;
        }
        stage.pass_secs(1);
    }
    panic!("never stored");
}

#[tokio::test]
async fn each_kind_of_hold_lasts_as_long_as_the_memories_below() {
    for (method, target, kind, length) in [
        ("PUT", change_of_victim(), "user", 65),
        ("DELETE", revocation_of_victim(), "permission", 65),
        ("PUT", change_of_record(), "permission", 65),
        ("PUT", change_of_set(), "set", 95),
    ] {
        let stage = Stage::new(&[]).await;
        stage.event(method, &target).await;

        let lasted = seconds_until_stored(&stage, &stage.victim).await;

        assert_eq!(lasted, length, "{kind}");
        assert_eq!(
            stage.held(kind).await,
            f64::from(u32::try_from(lasted).unwrap())
        );
        assert!(stage.hits(&stage.victim).await);
    }
}

#[tokio::test]
async fn holds_follow_the_settings() {
    let settings = [
        ("REVOCATION_HOLD", "2s"),
        ("UPSTREAM_USER_CACHE", "5s"),
        ("UPSTREAM_PERMISSION_CACHE", "20s"),
    ];
    for (method, target, length) in [
        ("PUT", change_of_victim(), 7),
        ("DELETE", revocation_of_victim(), 22),
        ("PUT", change_of_set(), 52),
    ] {
        let stage = Stage::new(&settings).await;
        stage.event(method, &target).await;

        let lasted = seconds_until_stored(&stage, &stage.victim).await;

        assert_eq!(lasted, length, "{target}");
    }
}

#[tokio::test]
async fn a_user_s_hold_is_nobody_else_s() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_victim()).await;

    assert!(stores(&stage, &stage.other).await);
    assert!(stores(&stage, &stage.abroad).await);
    assert!(!stores(&stage, &stage.victim).await);
}

#[tokio::test]
async fn a_tenant_s_hold_reaches_its_users_and_those_without_one() {
    let stage = Stage::new(&[]).await;
    let dummy = stage.standin.dummy_token("diku", "mod-x", &[]);
    stage.event("PUT", &change_of_record()).await;

    assert!(!stores(&stage, &stage.victim).await);
    assert!(!stores(&stage, &stage.other).await);
    assert!(!stores(&stage, &FilterCall::get("/x").token(&dummy)).await);
    assert!(stores(&stage, &stage.abroad).await);
}

#[tokio::test]
async fn a_hold_counts_from_the_latest_event() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.pass_secs(40);
    stage.event("PUT", &change_of_victim()).await;

    let lasted = seconds_until_stored(&stage, &stage.victim).await;

    assert_eq!(lasted, 65);
}

#[tokio::test]
async fn kinds_of_hold_are_kept_apart() {
    // The later event's hold is over early, the earlier one's is not.
    let settings = [
        ("UPSTREAM_PERMISSION_CACHE", "1s"),
        ("REVOCATION_UPSTREAM_REFRESH", "off"),
    ];
    let stage = Stage::new(&settings).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.pass_secs(10);
    stage.event("DELETE", &revocation_of_victim()).await;

    let lasted = seconds_until_stored(&stage, &stage.victim).await;

    assert_eq!(lasted, 55);
    // The earlier event's hold is over, the later one's is not.
    let stage = Stage::new(&[("UPSTREAM_USER_CACHE", "1s")]).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.pass_secs(3);
    stage.event("DELETE", &revocation_of_victim()).await;

    let lasted = seconds_until_stored(&stage, &stage.victim).await;

    assert_eq!(lasted, 65);
    assert!(stage.held("user").await >= 1.0 && stage.held("permission").await >= 60.0);
}

#[tokio::test]
async fn holds_of_a_user_and_of_its_tenant_overlap() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.pass_secs(30);
    stage.event("PUT", &change_of_record()).await;
    stage.pass_secs(40);

    // The user's own is over after 65 s, the tenant's 30 s later.
    let lasted = seconds_until_stored(&stage, &stage.victim).await;

    assert_eq!(lasted, 25);
}

#[tokio::test]
async fn a_grant_and_a_new_member_of_the_consortium_begin_no_hold() {
    let stage = Stage::new(&[]).await;
    let grant = format!(
        "/perms/users/{}/permissions?indexField=userId",
        super::VICTIM
    );
    stage.event("POST", &grant).await;
    stage.event("POST", "/user-tenants").await;

    assert!(stores(&stage, &stage.victim).await);
}

#[tokio::test]
async fn what_was_asked_before_a_hold_s_end_is_not_stored_however_late_its_answer_comes() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.pass_secs(64);
    let gate = stage.standin.hold();
    let mut early = stage.sidecar.connect().await;
    early
        .send(&stage.victim.request().to_bytes())
        .await
        .unwrap();
    gate.arrived(1).await;

    stage.pass_secs(10);
    gate.release();

    assert_eq!(early.answer(false).await.unwrap().status, 202);
    assert_eq!(stage.held("user").await, 1.0);
    assert!(
        stores(&stage, &stage.victim).await,
        "and what is asked after it is stored"
    );
}

#[tokio::test]
async fn a_hold_runs_on_the_monotonic_clock() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_victim()).await;
    let hours = 5 * 3_600_000;

    stage.sidecar.clock.shift(0, hours);
    assert!(!stores(&stage, &stage.victim).await);
    stage.sidecar.clock.shift(0, -2 * hours);
    assert!(!stores(&stage, &stage.victim).await);

    stage.sidecar.clock.shift(66_000, hours);
    assert!(stores(&stage, &stage.victim).await);
}

/// One mebibyte of cache has room for the rows of 256 users.
#[tokio::test]
async fn a_hold_whose_row_is_lost_becomes_its_tenant_s() {
    let stage = Stage::new(&[("CACHE_MAX_BYTES", "1MiB")]).await;
    stage.event("PUT", &change_of_victim()).await;
    assert!(
        stores(&stage, &stage.other).await,
        "so far it is the user's alone"
    );

    let mut connection = stage.sidecar.connect().await;
    for n in 0..300 {
        let target = format!("/users/00000000-0000-4000-8000-{n:012}");
        let event = stage.by_admin("PUT", &target).request();
        assert_eq!(connection.ask(&event).await.unwrap().status, 202);
    }

    assert!(!stores(&stage, &stage.victim).await, "it is not lost");
    assert!(
        !stores(&stage, &stage.other).await,
        "and reaches the tenant"
    );
    assert!(stores(&stage, &stage.abroad).await, "but not everybody");
    stage.pass_secs(70);
    assert!(stores(&stage, &stage.victim).await);
}

#[tokio::test]
async fn a_revocation_whose_row_is_lost_revives_no_decision() {
    let stage = Stage::new(&[("CACHE_MAX_BYTES", "1MiB")]).await;
    stage.warm().await;
    stage
        .event(
            "POST",
            &format!(
                "/perms/users/{}/permissions?indexField=userId",
                super::VICTIM
            ),
        )
        .await;

    let mut connection = stage.sidecar.connect().await;
    for n in 0..300 {
        let target =
            format!("/perms/users/00000000-0000-4000-8000-{n:012}/permissions?indexField=userId");
        let event = stage.by_admin("POST", &target).request();
        assert_eq!(connection.ask(&event).await.unwrap().status, 202);
    }

    assert!(!stage.hits(&stage.victim).await);
}

/// The event finds a background call on its way: what it brings is from before.
#[tokio::test]
async fn a_refresh_ahead_that_an_event_overtakes_stores_nothing() {
    let (standin, sidecar) = crate::harness::pair(&[("CACHE_TTL", "100s")]).await;
    let desk = crate::harness::loans(&super::token(
        &standin,
        "diku",
        crate::support::standin::DESK,
    ));
    sidecar.hits(&standin, &desk).await;
    sidecar.advance(Duration::from_secs(90));
    let gate = standin.hold_when(|request| request.target.starts_with("/circulation"));
    assert_eq!(sidecar.ask(&desk).await.status, 202);
    gate.arrived(1).await;

    let admin = super::token(&standin, "diku", crate::support::standin::ADMIN);
    let target = format!("/users/{}", crate::support::standin::DESK);
    let event = FilterCall::new("PUT", &target).token(&admin);
    assert_eq!(sidecar.ask(&event).await.status, 202);
    gate.release();
    sidecar
        .until("auth_sidecar_not_stored_total{reason=\"revoked\"}", 1.0)
        .await;

    assert!(!sidecar.hits(&standin, &desk).await);
}
