//! What tests do to the stand-in and see of it.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::raw::{self, Connection};
use crate::support::standin::call::{self, FilterCall};
use crate::support::standin::control::{Class, Trouble};
use crate::support::standin::{DESK, Options, Standin};
use crate::{LOANS, ask, ask_request, loans, standin};

#[tokio::test]
async fn calls_are_counted_by_class_and_logged_in_order() {
    let standin = standin().await;
    let token = standin.access_token("diku", DESK);
    let look_up = standin.dummy_token("diku", "_AUTHZ_MODULE_", &["users.item.get"]);
    let users = format!("/users/{DESK}");

    let mut connection = Connection::open(standin.addr())
        .await
        .expect("a connection");
    for call in [
        loans(&token),
        FilterCall::get(&users).token(&token),
        FilterCall::get(&users).token(&look_up),
        FilterCall::get("/admin/health"),
        FilterCall::new("POST", "/token/sign").token(&token),
    ] {
        connection.ask(&call.request()).await.expect("an answer");
    }
    ask_request(&standin, &call::system("POST", "/_/tenant", "diku")).await;

    let calls = standin.calls();
    assert_eq!((calls.total, calls.connections), (6, 2));
    assert_eq!((calls.filter, calls.look_ups), (2, 1));
    assert_eq!((calls.own, calls.health), (2, 1));
    let seen = standin.requests();
    let classes: Vec<_> = seen.iter().map(|seen| seen.class).collect();
    let expected = [
        Class::Filter,
        Class::Filter,
        Class::LookUp,
        Class::Health,
        Class::Own,
        Class::Own,
    ];
    assert_eq!(classes, expected);
    assert_eq!(
        (seen[0].connection, seen[4].connection, seen[5].connection),
        (1, 1, 2)
    );
    assert_eq!(
        seen[0].request.headers.get("X-Okapi-Permissions-Required"),
        Some(LOANS)
    );
    standin.forget_calls();
    assert_eq!((standin.calls().total, standin.requests().len()), (0, 0));
}

#[tokio::test]
async fn the_log_keeps_the_latest() {
    let standin = Standin::start(Options {
        log: 2,
        ..Options::default()
    })
    .await;

    for target in ["/1", "/2", "/3"] {
        ask(&standin, &FilterCall::get(target)).await;
    }

    let targets: Vec<_> = standin
        .requests()
        .into_iter()
        .map(|seen| seen.request.target)
        .collect();
    assert_eq!(targets, ["/2", "/3"]);
}

#[tokio::test]
async fn a_held_answer_was_made_before_it_was_held() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));
    let gate = standin.hold_when(|request| request.target.starts_with("/circulation"));
    let address = standin.addr();
    let asked = |request| tokio::spawn(async move { raw::ask(address, &request).await });

    let first = asked(call.request());
    gate.arrived(1).await;
    let second = asked(call.request());
    gate.arrived(2).await;
    standin.world(|world| world.set_active("diku", DESK, false));
    standin.clock().advance(Duration::from_secs(61));
    assert_eq!(ask(&standin, &FilterCall::get("/x")).await.status, 202);
    assert!(!first.is_finished() && !second.is_finished());
    gate.release_one();
    let answer = first.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status, 202);
    assert_eq!(gate.waiting(), 1);
    drop(gate);

    let answer = second.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status, 202);
    assert_eq!(ask(&standin, &call).await.status, 401);
}

#[tokio::test]
async fn trouble_replaces_the_next_answers_of_its_kind() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));
    let other = FilterCall::get("/other");
    let odd = Trouble::answer(202, &[("x-OKAPI-odd", "1"), ("Set-Cookie", "a=b")], "body");
    standin.script_when(2, |request| request.target != "/other", odd);

    assert_eq!(ask(&standin, &other).await.text(), "");
    for _ in 0..2 {
        let answer = ask(&standin, &call).await;
        assert_eq!((answer.status, answer.text()), (202, "body"));
        assert_eq!(
            answer.headers.names(),
            ["x-OKAPI-odd", "Set-Cookie", "content-length"]
        );
    }
    assert_eq!(ask(&standin, &call).await.text(), "");
}

#[tokio::test]
async fn an_answer_can_be_cut_dropped_or_missing() {
    let standin = standin().await;
    let request = FilterCall::get("/x").request();
    let kind = async |patience| {
        let mut connection = Connection::open(standin.addr())
            .await
            .expect("a connection")
            .patience(patience);
        let answer = connection.ask(&request).await;
        answer.expect_err("no whole answer").kind()
    };

    standin.script(1, Trouble::Close);
    assert_eq!(kind(raw::PATIENCE).await, ErrorKind::UnexpectedEof);
    let bytes = b"HTTP/1.1 202 Accepted\r\ncontent-length: 5\r\n\r\nhalf".to_vec();
    standin.script(1, Trouble::Bytes { bytes, close: true });
    assert_eq!(kind(raw::PATIENCE).await, ErrorKind::UnexpectedEof);
    standin.script(1, Trouble::Hang);
    assert_eq!(kind(Duration::from_millis(300)).await, ErrorKind::TimedOut);
    assert_eq!(ask_request(&standin, &request).await.status, 202);
}

#[tokio::test]
async fn answers_take_as_long_as_they_are_told_to() {
    let standin = Standin::start(Options {
        delay: Duration::from_millis(30),
        network: Duration::from_millis(20),
        ..Options::default()
    })
    .await;
    let took = async || {
        let before = Instant::now();
        ask(&standin, &FilterCall::get("/x")).await;
        before.elapsed()
    };

    assert!(took().await >= Duration::from_millis(50));
    standin.set_delay(Duration::from_millis(100));
    assert!(took().await >= Duration::from_millis(100));
}

#[tokio::test]
async fn connections_can_be_dropped_while_the_port_stays_open() {
    let standin = standin().await;
    let request = FilterCall::get("/x").request();
    let mut idle = Connection::open(standin.addr())
        .await
        .expect("a connection");
    idle.ask(&request).await.expect("an answer");

    standin.drop_connections();

    assert!(idle.closed().await.expect("an end"));
    assert_eq!(ask_request(&standin, &request).await.status, 202);
}

#[tokio::test]
async fn a_dropped_standin_is_gone_and_can_come_back() {
    let standin = standin().await;
    let address = standin.addr();
    let mut idle = Connection::open(address).await.expect("a connection");
    idle.ask(&FilterCall::get("/x").request())
        .await
        .expect("an answer");
    drop(standin);

    assert!(idle.closed().await.expect("an end"));
    let refused = async || Connection::open(address).await.is_err();
    while !refused().await {
        tokio::task::yield_now().await;
    }
    let again = Standin::start(Options {
        listen: address,
        ..Options::default()
    })
    .await;
    assert_eq!(ask(&again, &FilterCall::get("/x")).await.status, 202);
}

#[tokio::test]
async fn a_test_can_wait_for_calls() {
    let standin = standin().await;
    let address = standin.addr();
    let late = tokio::spawn(async move {
        for _ in 0..3 {
            raw::ask(address, &FilterCall::get("/x").request())
                .await
                .expect("an answer");
        }
    });

    standin.seen(3).await;

    assert_eq!(standin.calls().total, 3);
    late.await.expect("no panic");
}

#[tokio::test]
async fn requests_look_like_recorded_ones() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK))
        .user_id(DESK)
        .desired(&["users.*"]);
    let request = call.request();

    assert_eq!(request.headers.len(), 16);
    assert_ne!(
        request.headers.get("X-Okapi-Request-Id"),
        call.request().headers.get("X-Okapi-Request-Id")
    );
    let answer = ask_request(&standin, &request).await;
    assert_eq!(answer.status, 202);
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let standin = standin().await;
    let token = standin.access_token("diku", DESK);
    let request = loans(&token)
        .client_header("Cookie", "folioAccessToken=abc")
        .request();

    let answer = ask_request(&standin, &request).await;

    for shown in [
        format!("{request:?}"),
        format!("{answer:?}"),
        format!("{:?}", standin.requests()),
        format!("{:?}", standin.world(|world| world.clone())),
    ] {
        assert!(
            !shown.contains(&token) && !shown.contains("folioAccessToken=abc"),
            "{shown}"
        );
    }
}
