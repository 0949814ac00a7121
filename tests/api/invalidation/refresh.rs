//! The refresh header: ours upstream, paced and early where one auth module stands behind the address, and the one that
//! comes from outside.

use super::{
    Stage, VICTIM, change_of_record, change_of_set, change_of_victim, revocation_of_victim, token,
};
use crate::harness::LOANS;
use crate::support::standin::call::FilterCall;
use crate::support::standin::control::Trouble;
use crate::support::standin::world::User;
use crate::support::standin::{DESK, MUELLER};
use std::time::Duration;

const REFRESH: &str = "Authtoken-Refresh-Cache";
const SENT: &str = "auth_sidecar_upstream_refreshes_total{result=\"sent\"}";
const SUPPRESSED: &str = "auth_sidecar_upstream_refreshes_total{result=\"suppressed\"}";
/// What is asked in the very millisecond in which a refresh was answered is still held.
const MOMENT: Duration = Duration::from_millis(2);
const ONE: [(&str, &str); 1] = [("REVOCATION_UPSTREAM_REFRESH", "one")];

/// Asks once a second; the seconds at which the call went up with the refresh header.
async fn refreshed_at(stage: &Stage, call: &FilterCall, seconds: u64) -> Vec<u64> {
    let mut refreshed = Vec::new();
    for second in 0..seconds {
        stage.standin.forget_calls();
        assert_eq!(stage.sidecar.ask(call).await.status, 202);
        if stage.refreshes_seen() > 0 {
            refreshed.push(second);
        }
        stage.pass_secs(1);
    }
    refreshed
}

#[tokio::test]
async fn a_revoked_permission_is_followed_by_a_refresh_each_second_then_each_ten() {
    for (method, target) in [
        ("DELETE", revocation_of_victim()),
        ("PUT", change_of_record()),
    ] {
        let stage = Stage::new(&[]).await;
        stage.event(method, &target).await;

        let at = refreshed_at(&stage, &stage.victim, 80).await;

        assert_eq!(at, [0, 1, 2, 3, 4, 5, 15, 25, 35, 45, 55], "{target}");
        assert_eq!(stage.sidecar.metric(SENT).await, 11.0);
        assert_eq!(
            stage.sidecar.metric(SUPPRESSED).await,
            0.0,
            "what is not due is not suppressed"
        );
    }
}

#[tokio::test]
async fn a_changed_set_is_followed_by_two_late_refreshes() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_set()).await;

    let at = refreshed_at(&stage, &stage.victim, 100).await;

    assert_eq!(at, [36, 38]);
}

#[tokio::test]
async fn a_user_event_needs_no_refresh() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.event("DELETE", "/users?query=x").await;

    assert_eq!(refreshed_at(&stage, &stage.victim, 70).await, [0; 0]);
}

#[tokio::test]
async fn switched_off_no_refresh_is_sent() {
    let stage = Stage::new(&[("REVOCATION_UPSTREAM_REFRESH", "off")]).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.event("PUT", &change_of_set()).await;

    assert_eq!(refreshed_at(&stage, &stage.victim, 100).await, [0; 0]);
    let held = stage.sidecar.sum("auth_sidecar_held_answers_total{").await;
    assert_eq!(held, 95.0, "the hold lasts all the same");
}

#[tokio::test]
async fn only_calls_of_the_event_s_scope_carry_the_refresh() {
    let stage = Stage::new(&[]).await;
    stage.event("DELETE", &revocation_of_victim()).await;

    assert_eq!(refreshed_at(&stage, &stage.other, 3).await, [0; 0]);
    assert_eq!(refreshed_at(&stage, &stage.abroad, 3).await, [0; 0]);
    assert_eq!(refreshed_at(&stage, &stage.victim, 1).await, [0]);
}

/// mod-authtoken does nothing for a dummy, so the header would be spent for nothing.
#[tokio::test]
async fn a_dummy_s_call_carries_no_refresh() {
    let stage = Stage::new(&[]).await;
    stage.event("PUT", &change_of_record()).await;

    for subject in ["mod-login", "_AUTHZ_MODULE_", "UNDEFINED_USER__1"] {
        let dummy = stage.standin.dummy_token("diku", subject, &[LOANS]);
        let call = FilterCall::get("/loans").token(&dummy);
        assert_eq!(refreshed_at(&stage, &call, 1).await, [0; 0], "{subject}");
    }
    let module = stage.standin.module_token("diku", VICTIM, "mod-x", &[]);
    let call = FilterCall::get("/loans").token(&module);
    assert_eq!(
        refreshed_at(&stage, &call, 1).await,
        [0],
        "a module's token is none"
    );
}

/// Its size is what the stand-in judges: it refuses 8193 bytes.
#[tokio::test]
async fn the_refresh_never_makes_a_head_too_large() {
    let stage = Stage::new(&[]).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    let before = stage.standin.addr().to_string().len();
    let refresh = REFRESH.len() + "true".len() + 2;
    let ours = stage.victim.request().headers.size() + before - "127.0.0.1:8071".len();
    let room = 8192 - ours - refresh - "X-Padding".len() - 2;

    let full = stage
        .victim
        .clone()
        .client_header("X-Padding", "x".repeat(room));
    assert_eq!(refreshed_at(&stage, &full, 1).await, [0]);
    let upstream = &stage.standin.requests()[0].request;
    assert_eq!(upstream.headers.size(), 8192);

    stage.pass_secs(1);
    let fuller = stage
        .victim
        .clone()
        .client_header("X-Padding", "x".repeat(room + 1));
    assert_eq!(refreshed_at(&stage, &fuller, 1).await, [0; 0]);
    assert_eq!(stage.sidecar.metric(SUPPRESSED).await, 1.0);
}

/// One header empties the auth module's memory of all tenants.
#[tokio::test]
async fn the_process_sends_two_refreshes_a_second_and_the_oldest_hold_goes_first() {
    let stage = Stage::new(&[]).await;
    let users: Vec<_> = (0..5)
        .map(|n| format!("aaaaaaaa-0000-4000-8000-{n:012}"))
        .collect();
    let mut calls = Vec::new();
    for user in &users {
        let record = User {
            username: "someone".to_owned(),
            active: Some(true),
            permissions: Vec::new(),
        };
        stage
            .standin
            .world(|world| world.add_user("diku", user, record));
        let target = format!("/perms/users/{user}/permissions/a?indexField=userId");
        stage.event("DELETE", &target).await;
        calls.push(FilterCall::get("/x").token(&token(&stage.standin, "diku", user)));
    }

    // The youngest asks first in each round: it has to let older ones, who asked shortly before, go first.
    let mut sent = Vec::new();
    for round in 0..40 {
        for (n, call) in calls.iter().enumerate().rev() {
            if refreshes_once(&stage, call).await {
                sent.push((round * 300, n));
            }
        }
        stage.pass(Duration::from_millis(300));
    }

    assert_eq!(
        sent[..2],
        [(0, 4), (0, 3)],
        "whoever comes first, while nobody waits"
    );
    let again = sent[2..]
        .iter()
        .position(|(_, n)| *n == 4)
        .expect("served in the end")
        + 2;
    for n in 0..4 {
        let earlier = sent[2..again].iter().any(|(_, who)| *who == n);
        assert!(earlier, "{n} before the youngest: {sent:?}");
    }
    for n in 0..5 {
        let served = sent.iter().any(|(at, who)| *at >= 5_000 && *who == n);
        assert!(served, "each in the end: {n} of {sent:?}");
    }
    for (at, _) in &sent {
        let within = sent
            .iter()
            .filter(|(other, _)| (*at..at + 1_000).contains(other));
        assert!(within.count() <= 2, "{sent:?}");
    }
    assert_eq!(
        stage.sidecar.metric(SENT).await,
        f64::from(u32::try_from(sent.len()).unwrap())
    );
    assert!(stage.sidecar.metric(SUPPRESSED).await > 0.0);
}

async fn refreshes_once(stage: &Stage, call: &FilterCall) -> bool {
    stage.standin.forget_calls();
    assert_eq!(stage.sidecar.ask(call).await.status, 202);
    stage.refreshes_seen() > 0
}

#[tokio::test]
async fn with_one_auth_module_a_refresh_after_the_write_ends_a_permission_hold() {
    let stage = Stage::new(&ONE).await;
    stage.event("DELETE", &revocation_of_victim()).await;

    // Those of the first five seconds may have come before the write was done.
    for second in 0..5 {
        assert!(!stage.hits(&stage.victim).await, "second {second}");
        stage.pass_secs(1);
    }
    // The one at five seconds is itself still held, what comes after it is not.
    assert!(!stage.hits(&stage.victim).await);
    assert_eq!(stage.held("permission").await, 6.0);
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await, "asked anew");
    assert!(stage.hits(&stage.victim).await, "and stored");
}

#[tokio::test]
async fn with_several_auth_modules_no_refresh_ends_a_hold() {
    let stage = Stage::new(&[]).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.pass_secs(10);

    for _ in 0..3 {
        assert!(!stage.hits(&stage.victim).await);
        stage.pass(MOMENT);
    }
}

#[tokio::test]
async fn a_refresh_that_is_not_answered_202_ends_no_hold() {
    let stage = Stage::new(&ONE).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.pass_secs(6);

    let refused = stage.victim.clone().required(&["no.such"]);
    assert_eq!(stage.sidecar.ask(&refused).await.status, 403);
    assert_eq!(stage.sidecar.metric(SENT).await, 1.0);
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await);
    assert!(!stage.hits(&stage.victim).await, "held");
    stage.standin.script(1, Trouble::answer(500, &[], ""));
    stage.pass_secs(10);
    assert_eq!(stage.sidecar.ask(&stage.victim).await.status, 500);
    assert_eq!(stage.sidecar.metric(SENT).await, 2.0);
    assert!(!stage.hits(&stage.victim).await, "held");

    stage.pass_secs(10);
    assert!(!stage.hits(&stage.victim).await);
    assert_eq!(stage.sidecar.metric(SENT).await, 3.0);
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await);
    assert!(stage.hits(&stage.victim).await, "this one ended it");
}

#[tokio::test]
async fn a_later_event_needs_a_refresh_of_its_own() {
    let stage = Stage::new(&ONE).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.pass_secs(4);
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.pass_secs(2);

    assert!(
        !stage.hits(&stage.victim).await,
        "carries a refresh, too early for the second event"
    );
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await, "held");
    assert!(!stage.hits(&stage.victim).await, "held");
    stage.pass_secs(3);
    assert!(!stage.hits(&stage.victim).await);
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await);
    assert!(stage.hits(&stage.victim).await);
}

#[tokio::test]
async fn a_refresh_from_outside_ends_no_hold() {
    let stage = Stage::new(&ONE).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.pass_secs(6);

    // Another user's, so that none of ours is on it.
    let outside = stage.other.clone().header(REFRESH, "true");
    assert_eq!(stage.sidecar.ask(&outside).await.status, 202);

    assert!(!stage.hits(&stage.victim).await, "carries ours");
    assert_eq!(stage.held("permission").await, 1.0);
}

#[tokio::test]
async fn no_refresh_ends_a_user_s_hold_early() {
    let stage = Stage::new(&ONE).await;
    stage.event("PUT", &change_of_victim()).await;
    stage.event("DELETE", &revocation_of_victim()).await;
    stage.pass_secs(6);
    assert!(!stage.hits(&stage.victim).await);
    assert_eq!(stage.sidecar.metric(SENT).await, 1.0);

    stage.pass(MOMENT);
    for _ in 0..3 {
        assert!(!stage.hits(&stage.victim).await);
    }
    assert_eq!(stage.held("user").await, 4.0);
    stage.pass_secs(60);
    assert!(!stage.hits(&stage.victim).await);
    assert!(stage.hits(&stage.victim).await);
}

#[tokio::test]
async fn with_one_auth_module_the_second_late_refresh_ends_a_set_hold() {
    let stage = Stage::new(&ONE).await;
    stage.event("PUT", &change_of_set()).await;
    stage.pass_secs(36);

    assert!(!stage.hits(&stage.victim).await, "the first");
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await, "held");
    stage.pass_secs(1);
    assert!(!stage.hits(&stage.victim).await, "held");
    assert_eq!(stage.sidecar.metric(SENT).await, 1.0);
    stage.pass_secs(2);
    assert!(!stage.hits(&stage.victim).await, "the second");
    assert_eq!(stage.sidecar.metric(SENT).await, 2.0);
    stage.pass(MOMENT);
    assert!(!stage.hits(&stage.victim).await);
    assert!(stage.hits(&stage.victim).await);
    assert_eq!(stage.held("set").await, 4.0);
}

/// Somebody always sends it: test suites send it on every request.
#[tokio::test]
async fn a_refresh_from_outside_voids_its_user_at_once_and_its_tenant_every_ten_seconds() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let refreshing = stage.other.clone().header(REFRESH, "true");

    stage.standin.forget_calls();
    assert!(!stage.hits(&refreshing).await);
    assert_eq!(stage.refreshes_seen(), 1, "it goes up");
    assert!(!stage.hits(&stage.other).await);
    assert!(!stage.hits(&stage.victim).await);
    assert!(stage.hits(&stage.abroad).await);
    assert!(stage.hits(&stage.other).await, "there is no hold");

    assert!(stage.hits(&stage.victim).await);
    stage.pass_secs(8);
    assert!(!stage.hits(&refreshing).await);
    assert!(stage.hits(&stage.victim).await, "not the tenant again");
    assert!(!stage.hits(&stage.other).await, "but the user");

    stage.pass_secs(3);
    assert!(!stage.hits(&refreshing).await);
    assert!(
        !stage.hits(&stage.victim).await,
        "ten seconds later the tenant again"
    );
    assert_eq!(stage.revoked("refresh_header", "tenant").await, 2.0);
    assert_eq!(stage.revoked("refresh_header", "user").await, 1.0);
}

#[tokio::test]
async fn one_tenant_s_refresh_does_not_spend_the_other_s() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;

    assert!(
        !stage
            .hits(&stage.other.clone().header(REFRESH, "true"))
            .await
    );
    assert!(stage.hits(&stage.abroad).await);
    let desk = token(&stage.standin, "college", DESK);
    let refreshing = FilterCall::get("/x")
        .tenant("college")
        .token(&desk)
        .header(REFRESH, "true");
    assert!(!stage.hits(&refreshing).await);

    assert!(!stage.hits(&stage.abroad).await);
}

#[tokio::test]
async fn a_refresh_from_outside_that_moves_nothing_upstream_voids_nothing() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;
    let dummy = stage.standin.dummy_token("diku", "mod-login", &[]);
    let look_up = stage.standin.dummy_token("diku", "_AUTHZ_MODULE_", &[]);
    let expired = stage.standin.access_token_until("diku", MUELLER, 1_000);
    let refresh = |call: FilterCall| call.header(REFRESH, "true");
    for (call, status) in [
        (FilterCall::get("/x"), 202),
        (FilterCall::get("/x").token(""), 401),
        (FilterCall::get("/x").token("h.p.s"), 401),
        (FilterCall::get("/x").token(&expired), 401),
        (FilterCall::get("/x").token(&dummy), 202),
        (FilterCall::get("/x").token(&look_up), 202),
        (stage.other.clone().required(&["no.such"]), 403),
        (stage.other.clone().to("/tokenizer"), 401),
        (stage.other.clone().to("/_/tenantx"), 202),
    ] {
        let answer = stage.sidecar.ask(&refresh(call.clone())).await;

        assert_eq!(answer.status, status, "{call:?}: {}", answer.text());
        assert_eq!(stage.revocations().await, 0.0, "{call:?}");
    }
    for call in [&stage.victim, &stage.abroad, &stage.other] {
        assert!(stage.hits(call).await);
    }
}

#[tokio::test]
async fn any_other_value_of_the_refresh_header_is_nothing_special() {
    let stage = Stage::new(&[]).await;
    stage.warm().await;

    for value in ["TRUE", "True", "1", "false", "", "true,true", "yes"] {
        let call = stage.victim.clone().header(REFRESH, value);
        assert!(stage.hits(&call).await, "{value}");
    }
    assert_eq!(stage.revocations().await, 0.0);
}
