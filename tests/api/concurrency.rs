//! Many at once: equal questions share one call, nobody waits for somebody who is gone, and a call that the auth module's
//! own look-ups depend on never waits for them.

use crate::harness::{LOANS, Sidecar, loans, pair};
use crate::support::raw::{Answer, Connection};
use crate::support::standin::call::FilterCall;
use crate::support::standin::control::{Gate, Trouble};
use crate::support::standin::lookups::LookUps;
use crate::support::standin::okapi::Okapi;
use crate::support::standin::world::User;
use crate::support::standin::{ADMIN, DESK, DESK5, Options, Standin};
use std::time::Duration;
use tokio::time::Instant;

const COLLAPSED: &str = "auth_sidecar_requests_total{outcome=\"collapsed\",reason=\"none\"}";
const MISSES: &str = "auth_sidecar_requests_total{outcome=\"miss\",reason=\"none\"}";
const HITS: &str = "auth_sidecar_requests_total{outcome=\"hit\",reason=\"none\"}";
const REFRESHED: &str = "auth_sidecar_requests_total{outcome=\"refreshed\",reason=\"none\"}";
const STORED: &str = "auth_sidecar_stored_total";

/// Callers who have sent the same request, each on a connection of its own, and wait.
struct Crowd(Vec<Connection>);

impl Crowd {
    /// Returns once the sidecar has read all of them.
    async fn ask(sidecar: &Sidecar, call: &FilterCall, callers: usize) -> Self {
        let mut connections = Vec::new();
        for _ in 0..callers {
            connections.push(sidecar.connect().await);
        }
        for connection in &mut connections {
            let request = call.request().to_bytes();
            connection.send(&request).await.expect("it listens");
        }
        sidecar.settle().await;
        Self(connections)
    }

    async fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for connection in &mut self.0 {
            answers.push(connection.answer(false).await.expect("an answer"));
        }
        answers
    }
}

/// Holds what the stand-in says to this token.
fn hold(standin: &Standin, token: &str) -> Gate {
    let token = token.to_owned();
    standin.hold_when(move |request| request.headers.get("X-Okapi-Token") == Some(&token))
}

#[tokio::test]
async fn a_hundred_equal_misses_cost_one_call() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK));
    let gate = standin.hold();

    let mut crowd = Crowd::ask(&sidecar, &call, 100).await;
    gate.release();
    let answers = crowd.answers().await;

    assert_eq!(answers.len(), 100);
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 202 && *answer == answers[0])
    );
    assert_eq!(standin.calls().total, 1);
    assert_eq!(sidecar.metric(COLLAPSED).await, 99.0);
    assert_eq!(sidecar.metric(MISSES).await, 1.0);
    assert_eq!(sidecar.metric(STORED).await, 1.0);
}

/// Nothing holds the answers here: some callers come while it is asked, some as it is stored, some after.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_two_callers_on_a_cold_key_cost_one_call_whenever_they_come() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    for round in 0..200 {
        let call = loans(&token).desired(&[&format!("round-{round}")]);
        let callers: Vec<_> = (0..32)
            .map(|_| {
                let (address, request) = (sidecar.addr, call.request());
                tokio::spawn(async move {
                    let mut connection = Connection::open(address).await.expect("a connection");
                    connection.ask(&request).await.expect("an answer").status
                })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.expect("no panic"), 202);
        }
        assert_eq!(standin.calls().total, round + 1, "one call for each round");
    }
    let outcomes = [HITS, COLLAPSED, MISSES];
    let mut counts = Vec::new();
    for outcome in outcomes {
        counts.push(sidecar.metric(outcome).await);
    }
    assert_eq!(counts.iter().sum::<f64>(), 32.0 * 200.0, "{counts:?}");
}

#[tokio::test]
async fn different_questions_share_nothing() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let call = loans(&token);
    let gate = standin.hold();

    let mut crowds = Vec::new();
    for other in [
        call.clone(),
        call.clone().tenant("college"),
        call.clone().user_id(DESK),
        call.clone().required(&["users.item.get"]),
        call.clone().desired(&["x"]),
        call.clone().module_permissions(r#"{"mod-x":[]}"#),
        call.clone().url("http://okapi-2:9130"),
        loans(&standin.access_token("diku", DESK5)),
    ] {
        crowds.push(Crowd::ask(&sidecar, &other, 2).await);
    }
    gate.arrived(8).await;
    gate.release();

    for crowd in &mut crowds {
        let answers = crowd.answers().await;
        assert_eq!(answers[0], answers[1]);
    }
    assert_eq!(standin.calls().total, 8);
}

#[tokio::test]
async fn head_and_get_do_not_share_a_call() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let gate = standin.hold();
    let mut get = Crowd::ask(&sidecar, &loans(&token), 3).await;
    let head = FilterCall::new("HEAD", "/x")
        .token(&token)
        .required(&[LOANS]);
    let mut heads = Crowd::ask(&sidecar, &head, 3).await;

    gate.arrived(2).await;
    gate.release();

    for connection in &mut heads.0 {
        let answer = connection.answer(true).await.expect("an answer");
        assert_eq!((answer.status, answer.body.len()), (202, 0));
    }
    assert!(
        get.answers()
            .await
            .iter()
            .all(|answer| answer.status == 202)
    );
    assert_eq!(standin.calls().total, 2);
}

/// A refused HEAD has no body, and whoever asked with GET needs one.
#[tokio::test]
async fn the_refusal_of_a_head_is_not_that_of_a_get() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK)).required(&["no.such"]);
    let head = FilterCall::new("HEAD", "/x")
        .token(&standin.access_token("diku", DESK))
        .required(&["no.such"]);
    let gate = standin.hold();
    let mut heads = Crowd::ask(&sidecar, &head, 1).await;
    let mut gets = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(2).await;
    gate.release();

    let refused = heads.0[0].answer(true).await.expect("an answer");
    assert_eq!((refused.status, refused.body.len()), (403, 0));
    let refused = &gets.answers().await[0];
    assert!(
        refused.text().starts_with("Access for user"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn the_leader_s_leaving_keeps_nobody_waiting() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK));
    let gate = standin.hold();
    let leader = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(1).await;
    let mut followers = Crowd::ask(&sidecar, &call, 20).await;

    drop(leader);
    sidecar.settle().await;
    gate.release();

    assert!(
        followers
            .answers()
            .await
            .iter()
            .all(|answer| answer.status == 202)
    );
    assert_eq!(standin.calls().total, 1);
}

#[tokio::test]
async fn a_call_whose_only_caller_left_is_finished_and_stored() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK));
    let gate = standin.hold();
    let caller = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(1).await;

    drop(caller);
    sidecar.settle().await;
    gate.release();
    sidecar.until(STORED, 1.0).await;

    assert!(sidecar.hits(&standin, &call).await);
}

#[tokio::test]
async fn a_shared_refusal_is_everyone_s_at_once() {
    for (status, body) in [
        (400, "no"),
        (401, "Invalid token"),
        (403, "no"),
        (404, ""),
        (302, ""),
        (500, "broken"),
        (503, ""),
    ] {
        let (standin, sidecar) = pair(&[]).await;
        let call = loans(&standin.access_token("diku", DESK));
        let gate = standin.hold();
        standin.script(1, Trouble::answer(status, &[("X-Okapi-Trace", "x")], body));

        let mut crowd = Crowd::ask(&sidecar, &call, 32).await;
        gate.release();
        for answer in crowd.answers().await {
            assert_eq!((answer.status, answer.text()), (status, body));
            assert!(answer.headers.has("X-Okapi-Trace"));
        }

        assert_eq!(standin.calls().total, 1, "{status}");
        assert_eq!(sidecar.metric(STORED).await, 0.0);
        assert!(!sidecar.hits(&standin, &call).await, "asked anew");
    }
}

#[tokio::test]
async fn a_shared_call_without_an_answer_is_everyone_s_trouble_at_once() {
    // A closed connection is tried once more on a fresh one.
    for (trouble, times, status) in [(Trouble::Hang, 1, 504), (Trouble::Close, 2, 502)] {
        let (standin, sidecar) = pair(&[("UPSTREAM_TIMEOUT", "300ms")]).await;
        let call = loans(&standin.access_token("diku", DESK));
        let gate = standin.hold();
        standin.script(times, trouble);

        let began = Instant::now();
        let mut crowd = Crowd::ask(&sidecar, &call, 32).await;
        gate.release();
        let answers = crowd.answers().await;

        assert!(
            answers.iter().all(|answer| answer.status == status),
            "{status}"
        );
        assert_eq!(standin.calls().total, times as u64);
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "one after the other"
        );
        assert!(!sidecar.hits(&standin, &call).await, "asked anew");
        assert!(sidecar.hits(&standin, &call).await);
    }
}

/// A 2xx that does not prove itself may be about anything; the health route says 200 to anybody.
#[tokio::test]
async fn a_yes_that_proves_nothing_is_only_for_who_asked() {
    let other = r#"{"_":"another token"}"#;
    for (status, headers) in [
        (200, vec![]),
        (204, vec![]),
        (202, vec![]),
        (
            202,
            vec![
                ("X-Okapi-Permissions", "[]"),
                ("X-Okapi-Module-Tokens", other),
            ],
        ),
        (
            202,
            vec![
                ("X-Okapi-Permissions", "[]"),
                ("X-Okapi-Module-Tokens", "{"),
            ],
        ),
    ] {
        let (standin, sidecar) = pair(&[]).await;
        let call = loans(&standin.access_token("diku", DESK));
        let gate = standin.hold();
        let mut odd = headers.clone();
        odd.push(("X-Odd", "odd"));
        standin.script(1, Trouble::answer(status, &odd, ""));

        let mut crowd = Crowd::ask(&sidecar, &call, 32).await;
        gate.release();
        let answers = crowd.answers().await;

        let odd = answers
            .iter()
            .filter(|answer| answer.headers.has("X-Odd"))
            .count();
        assert_eq!(odd, 1, "{status} {headers:?}");
        let proper = answers
            .iter()
            .filter(|answer| answer.status == 202 && answer.headers.has("X-Okapi-User-Id"));
        assert_eq!(proper.count(), 31);
        assert_eq!(standin.calls().total, 32, "the others ask for themselves");
    }
}

#[tokio::test]
async fn who_asks_after_a_revocation_does_not_join_a_call_from_before_it() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let call = loans(&token);
    let gate = hold(&standin, &token);
    let mut before = Crowd::ask(&sidecar, &call, 2).await;
    gate.arrived(1).await;

    let admin = standin.access_token("diku", ADMIN);
    let grant = format!("/perms/users/{DESK}/permissions?indexField=userId");
    let event = FilterCall::new("POST", &grant).token(&admin);
    assert_eq!(sidecar.ask(&event).await.status, 202);
    let mut after = Crowd::ask(&sidecar, &call, 2).await;
    gate.arrived(2).await;

    // The old call comes back: delivered, not stored, and those who came later still wait.
    gate.release_one();
    assert!(
        before
            .answers()
            .await
            .iter()
            .all(|answer| answer.status == 202)
    );
    assert_eq!(
        sidecar
            .metric("auth_sidecar_not_stored_total{reason=\"revoked\"}")
            .await,
        1.0
    );
    let mut latest = Crowd::ask(&sidecar, &call, 1).await;
    assert_eq!(gate.waiting(), 1, "it joins the new call");
    gate.release();
    assert!(
        after
            .answers()
            .await
            .iter()
            .all(|answer| answer.status == 202)
    );
    assert_eq!(latest.answers().await[0].status, 202);
    assert!(
        sidecar.hits(&standin, &call).await,
        "what was asked after it is stored"
    );
    assert_eq!(standin.calls().total, 3, "two calls and the event");
}

#[tokio::test]
async fn a_revocation_of_somebody_else_parts_nobody() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let call = loans(&token);
    let gate = hold(&standin, &token);
    let mut before = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(1).await;

    let admin = standin.access_token("diku", ADMIN);
    let event = FilterCall::new("PUT", &format!("/users/{DESK5}")).token(&admin);
    assert_eq!(sidecar.ask(&event).await.status, 202);
    let mut after = Crowd::ask(&sidecar, &call, 1).await;
    gate.release();

    assert_eq!(before.answers().await, after.answers().await);
    assert!(sidecar.hits(&standin, &call).await);
    assert_eq!(standin.calls().total, 2);
}

#[tokio::test]
async fn a_purge_parts_those_who_come_after_it_too() {
    let admin = crate::harness::ADMIN_TOKEN;
    let (standin, sidecar) = pair(&[("ADMIN_TOKEN", admin)]).await;
    let token = standin.access_token("diku", DESK);
    let call = loans(&token);
    let gate = hold(&standin, &token);
    let mut before = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(1).await;

    assert_eq!(
        sidecar.admin("DELETE", "/cache", Some(admin)).await.status,
        204
    );
    let mut after = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(2).await;
    gate.release();

    assert_eq!(before.answers().await, after.answers().await);
    assert_eq!(sidecar.metric(STORED).await, 1.0);
}

#[tokio::test]
async fn during_a_hold_nobody_joins_a_question_over_a_second_old() {
    for (event, joins) in [(true, false), (false, true)] {
        let (standin, sidecar) = pair(&[]).await;
        let token = standin.access_token("diku", DESK);
        let call = loans(&token);
        if event {
            let admin = standin.access_token("diku", ADMIN);
            let event = FilterCall::new("PUT", &format!("/users/{DESK}")).token(&admin);
            assert_eq!(sidecar.ask(&event).await.status, 202);
        }
        standin.forget_calls();
        let gate = hold(&standin, &token);
        let mut old = Crowd::ask(&sidecar, &call, 2).await;
        gate.arrived(1).await;

        sidecar.advance(Duration::from_millis(1_500));
        let mut new = Crowd::ask(&sidecar, &call, 2).await;

        if joins {
            assert_eq!(gate.waiting(), 1);
        } else {
            gate.arrived(2).await;
        }
        gate.release();
        for answer in old.answers().await.into_iter().chain(new.answers().await) {
            assert_eq!(answer.status, 202);
        }
        assert_eq!(standin.calls().total, if joins { 1 } else { 2 });
    }
}

#[tokio::test]
async fn who_needs_the_refresh_does_not_join_a_call_without_it() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let call = loans(&token);
    let admin = standin.access_token("diku", ADMIN);
    let target = format!("/perms/users/{DESK}/permissions/x?indexField=userId");
    let event = FilterCall::new("DELETE", &target).token(&admin);
    assert_eq!(sidecar.ask(&event).await.status, 202);
    assert_eq!(
        sidecar.ask(&call).await.status,
        202,
        "takes this second's refresh"
    );
    standin.forget_calls();
    let gate = hold(&standin, &token);

    sidecar.advance(Duration::from_millis(500));
    let mut without = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(1).await;
    sidecar.advance(Duration::from_millis(600));
    let mut with = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(2).await;
    gate.release();

    assert_eq!(without.answers().await[0].status, 202);
    assert_eq!(with.answers().await[0].status, 202);
    let seen = standin.requests();
    let refreshing = seen
        .iter()
        .map(|seen| seen.request.headers.has("authtoken-refresh-cache"));
    assert_eq!(refreshing.collect::<Vec<_>>(), [false, true]);
}

/// A no that comes in while a yes is on its way: the yes is from before.
#[tokio::test]
async fn a_refusal_lets_no_call_on_its_way_store_its_yes() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let call = loans(&token);
    let gate = standin.hold_when(|request| !request.headers.has("authtoken-refresh-cache"));
    let mut before = Crowd::ask(&sidecar, &call, 1).await;
    gate.arrived(1).await;

    // The same question past the cache is refused now.
    standin.script_when(
        1,
        |request| request.headers.has("authtoken-refresh-cache"),
        Trouble::answer(403, &[], "no"),
    );
    let past = call.clone().header("Authtoken-Refresh-Cache", "true");
    assert_eq!(sidecar.ask(&past).await.status, 403);
    gate.release();

    assert_eq!(before.answers().await[0].status, 202);
    assert_eq!(
        sidecar
            .metric("auth_sidecar_not_stored_total{reason=\"refused\"}")
            .await,
        1.0
    );
    assert!(!sidecar.hits(&standin, &call).await);
}

/// The stand-in asks about each user through an Okapi, and that asks the sidecar about each of these look-ups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_misses_that_come_back_as_look_ups_end_without_waiting_for_each_other() {
    // Four sockets and more for each of them.
    rlimit::increase_nofile_limit(u64::MAX).expect("a limit that can be raised");
    let okapi = Okapi::start().await;
    let standin = Standin::start(Options {
        look_ups: LookUps::Gateway(okapi.url()),
        ..Options::default()
    })
    .await;
    let sidecar = Sidecar::start(&standin.url(), &[]).await;
    standin.seen(1).await;
    standin.forget_calls();
    okapi.connect(sidecar.addr, &standin);
    let mut calls = Vec::new();
    for n in 0..500 {
        let id = format!("bbbbbbbb-0000-4000-8000-{n:012}");
        let user = User {
            username: format!("user-{n}"),
            active: Some(true),
            permissions: vec![LOANS.to_owned()],
        };
        standin.world(|world| world.add_user("diku", &id, user));
        calls.push((loans(&standin.access_token("diku", &id)).request(), id));
    }

    let asked: Vec<_> = calls
        .into_iter()
        .map(|(request, id)| {
            let address = sidecar.addr;
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await.expect("a connection");
                (
                    connection.ask(&request).await.expect("an answer"),
                    request,
                    id,
                )
            })
        })
        .collect();

    for asked in asked {
        let (answer, request, id) = asked.await.expect("no panic");
        assert_eq!(answer.status, 202, "{}", answer.text());
        assert_eq!(answer.headers.get("X-Okapi-User-Id"), Some(id.as_str()));
        let (sent, back) = (
            request.headers.get("X-Okapi-Token"),
            answer.headers.get("X-Okapi-Token"),
        );
        assert!(sent == back, "somebody else's answer");
    }
    let calls = standin.calls();
    assert_eq!(calls.filter, 500);
    assert_eq!(
        calls.look_ups, 2,
        "one for each kind of look-up, whoever it is about"
    );
}

#[tokio::test]
async fn late_in_its_life_a_hit_renews_the_decision_behind_the_caller_s_back() {
    let (standin, sidecar) = pair(&[("CACHE_TTL", "100s")]).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);
    sidecar.advance(Duration::from_secs(70));
    assert!(sidecar.hits(&standin, &call).await);
    assert_eq!(
        standin.calls().total,
        1,
        "early in its life nothing is asked"
    );

    sidecar.advance(Duration::from_secs(15));
    let gate = standin.hold();
    for _ in 0..10 {
        assert_eq!(sidecar.ask(&call).await.status, 202, "nobody waits for it");
    }
    gate.arrived(1).await;
    assert_eq!(standin.calls().total, 2, "once");
    gate.release();
    sidecar.until(STORED, 2.0).await;

    // Past the first one's end, well within the second one's life.
    sidecar.advance(Duration::from_mins(1));
    assert!(sidecar.hits(&standin, &call).await);
    assert_eq!(sidecar.metric(REFRESHED).await, 1.0);
    assert_eq!(sidecar.metric(HITS).await, 12.0);
    sidecar.advance(Duration::from_secs(50));
    assert!(!sidecar.hits(&standin, &call).await, "and that ends too");
}

#[tokio::test]
async fn a_renewal_that_is_refused_ends_the_decision() {
    for (status, body) in [(403, "no"), (401, "x"), (400, ""), (200, ""), (302, "")] {
        let (standin, sidecar) = pair(&[("CACHE_TTL", "100s")]).await;
        let call = loans(&standin.access_token("diku", DESK));
        assert!(!sidecar.hits(&standin, &call).await);
        sidecar.advance(Duration::from_secs(85));
        standin.script(1, Trouble::answer(status, &[], body));

        assert_eq!(sidecar.ask(&call).await.status, 202);
        sidecar
            .until("auth_sidecar_evictions_total{cause=\"refused\"}", 1.0)
            .await;

        assert!(!sidecar.hits(&standin, &call).await, "{status}");
    }
}

#[tokio::test]
async fn a_renewal_that_says_the_user_is_gone_ends_all_of_its_decisions() {
    let (standin, sidecar) = pair(&[("CACHE_TTL", "100s")]).await;
    let token = standin.access_token("diku", DESK);
    let young = FilterCall::get("/x").token(&token);
    assert!(!sidecar.hits(&standin, &loans(&token)).await);
    sidecar.advance(Duration::from_secs(85));
    assert!(!sidecar.hits(&standin, &young).await);
    standin.world(|world| world.set_active("diku", DESK, false));
    standin.clock().advance(Duration::from_mins(2));

    assert_eq!(
        sidecar.ask(&loans(&token)).await.status,
        202,
        "the last one"
    );
    let gone = "auth_sidecar_revocations_total{event=\"user_inactive\",scope=\"user\"}";
    sidecar.until(gone, 1.0).await;

    assert_eq!(sidecar.ask(&young).await.status, 401);
    assert_eq!(sidecar.ask(&loans(&token)).await.status, 401);
}

#[tokio::test]
async fn a_renewal_without_an_answer_leaves_the_decision_its_life() {
    for (trouble, times, cause) in [
        (Trouble::Close, 2, "closed"),
        (Trouble::Hang, 1, "timeout"),
        (Trouble::answer(503, &[], ""), 1, ""),
    ] {
        let settings = [("CACHE_TTL", "100s"), ("UPSTREAM_TIMEOUT", "100ms")];
        let (standin, sidecar) = pair(&settings).await;
        let call = loans(&standin.access_token("diku", DESK));
        assert!(!sidecar.hits(&standin, &call).await);
        sidecar.advance(Duration::from_secs(85));
        standin.script(times, trouble);

        assert_eq!(sidecar.ask(&call).await.status, 202);
        if cause.is_empty() {
            sidecar
                .until("auth_sidecar_upstream_answers_total{status=\"5xx\"}", 1.0)
                .await;
        } else {
            let failed = format!("auth_sidecar_upstream_failures_total{{cause=\"{cause}\"}}");
            sidecar.until(&failed, 1.0).await;
        }

        assert!(sidecar.hits(&standin, &call).await);
        sidecar.advance(Duration::from_secs(20));
        standin.script(1, Trouble::answer(503, &[], ""));
        assert_eq!(
            sidecar.ask(&call).await.status,
            503,
            "but no more than that"
        );
    }
}

#[tokio::test]
async fn switched_off_nothing_is_renewed() {
    let settings = [("CACHE_TTL", "100s"), ("CACHE_REFRESH_AHEAD", "1")];
    let (standin, sidecar) = pair(&settings).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);

    sidecar.advance(Duration::from_secs(98));
    assert!(sidecar.hits(&standin, &call).await);
    sidecar.settle().await;

    assert_eq!(standin.calls().total, 1);
    assert_eq!(sidecar.metric(REFRESHED).await, 0.0);
}
