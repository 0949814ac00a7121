//! The stand-in's own questions to mod-users and mod-permissions, through an Okapi that asks the stand-in about each.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::support::golden;
use crate::support::raw::{self, Answer, Request};
use crate::support::standin::control::{Class, Trouble};
use crate::support::standin::lookups::LookUps;
use crate::support::standin::okapi::Okapi;
use crate::support::standin::{ADMIN, DESK, Options, READER, Standin};
use crate::{LOANS, ask, loans};

/// A platform without a sidecar: Okapi asks the stand-in, the stand-in looks up through Okapi.
async fn platform() -> (Okapi, Standin) {
    let okapi = Okapi::start().await;
    let standin = Standin::start(Options {
        look_ups: LookUps::Gateway(okapi.url()),
        ..Options::default()
    })
    .await;
    okapi.connect(standin.addr(), &standin);
    (okapi, standin)
}

async fn client(okapi: SocketAddr, method: &str, target: &str, token: &str, body: &str) -> Answer {
    let mut request = Request::new(method, target);
    request.headers.push("X-Okapi-Tenant", "diku");
    request.headers.push("X-Okapi-Token", token);
    request
        .headers
        .push("Content-Length", body.len().to_string());
    request.body = body.as_bytes().to_vec();
    raw::ask(okapi, &request).await.expect("an answer")
}

#[tokio::test]
async fn look_ups_come_back_as_the_recorded_filter_calls() {
    let (okapi, standin) = platform().await;
    let recorded: Vec<_> = golden::exchanges("filter")
        .into_iter()
        .filter(|exchange| exchange.scenario == "token: umlaut user")
        .take(2)
        .collect();
    let token = standin.access_token("diku", crate::support::standin::MUELLER);

    let answer = client(okapi.addr(), "GET", "/circulation/loans", &token, "").await;

    assert_eq!(answer.status, 200);
    let calls = standin.calls();
    assert_eq!((calls.filter, calls.look_ups), (1, 2));
    let seen = standin.requests();
    for (exchange, seen) in recorded.iter().zip(&seen[1..]) {
        assert_eq!(seen.class, Class::LookUp);
        assert_eq!(seen.request.target, exchange.request.target);
        let (recorded, got) = (&exchange.request.headers, &seen.request.headers);
        assert_eq!(got.names(), recorded.names());
        for name in [
            "X-Okapi-Tenant",
            "X-Okapi-Token",
            "X-Okapi-Permissions-Required",
            "X-Okapi-Permissions-Desired",
            "X-Okapi-Module-Permissions",
            "Content-Type",
        ] {
            assert_eq!(got.get(name), recorded.get(name), "{name}");
        }
    }
    let id = seen[0]
        .request
        .headers
        .get("X-Okapi-Request-Id")
        .expect("an id");
    let inner = seen[1]
        .request
        .headers
        .get("X-Okapi-Request-Id")
        .expect("an id");
    assert!(inner.starts_with(&format!("{id};")) && inner.ends_with("/users"));
}

#[tokio::test]
async fn the_header_names_the_okapi_to_ask() {
    let okapi = Okapi::start().await;
    let standin = Standin::start(Options {
        look_ups: LookUps::OkapiUrl,
        ..Options::default()
    })
    .await;
    okapi.connect(standin.addr(), &standin);
    let call = loans(&standin.access_token("diku", DESK));

    assert_eq!(
        ask(&standin, &call.clone().url(&okapi.url())).await.status,
        202
    );
    standin.restart();
    let answer = ask(&standin, &call.url("http://127.0.0.1:1")).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text()
            .starts_with("Unable to retrieve permissions for user with id")
    );
}

#[tokio::test]
async fn another_tenant_is_looked_up_too() {
    let (okapi, standin) = platform().await;
    standin.world(|world| {
        world.set_cross_tenant(true);
        world.set_consortium("college", true);
    });
    let call = loans(&standin.access_token("diku", DESK)).tenant("college");

    assert_eq!(ask(&standin, &call).await.status, 202);

    let targets: Vec<_> = standin
        .requests()
        .into_iter()
        .map(|seen| seen.request.target)
        .collect();
    assert_eq!(targets[1], "/user-tenants?limit=1");
    assert_eq!(standin.calls().look_ups, 3);
    drop(okapi);
}

#[tokio::test]
async fn many_first_touches_at_once_do_not_starve_each_other() {
    let (okapi, standin) = platform().await;
    let token = standin.access_token("diku", DESK);
    let address = okapi.addr();

    let gate = standin.hold_when(|request| request.target.starts_with("/users/"));
    let mut clients = JoinSet::new();
    for _ in 0..100 {
        let token = token.clone();
        clients
            .spawn(async move { client(address, "GET", "/circulation/loans", &token, "").await });
    }
    // No single-flight: each asks for itself, and each question waits while the call it is for does.
    gate.arrived(100).await;
    gate.release();
    let answers = clients.join_all().await;

    assert!(answers.iter().all(|answer| answer.status == 200));
    let calls = standin.calls();
    assert_eq!(calls.filter, 100);
    assert!((101..=200).contains(&calls.look_ups), "{calls:?}");
}

#[tokio::test]
async fn a_write_through_okapi_changes_the_world_once_it_is_allowed() {
    let (okapi, standin) = platform().await;
    let admin = standin.access_token("diku", ADMIN);
    let reader = standin.access_token("diku", READER);
    let permission = format!("/perms/users/{READER}/permissions");
    let grant = format!(r#"{{"permissionName":"{LOANS}"}}"#);
    let assigned = |standin: &Standin| {
        standin.world(|world| {
            let reader = world.user("diku", READER).expect("the reader");
            reader.permissions.iter().any(|name| name == LOANS)
        })
    };

    let target = format!("{permission}?indexField=userId");
    assert_eq!(
        client(okapi.addr(), "POST", &target, &reader, &grant)
            .await
            .status,
        403
    );
    assert!(!assigned(&standin));
    assert_eq!(
        client(okapi.addr(), "POST", &target, &admin, &grant)
            .await
            .status,
        204
    );
    assert!(assigned(&standin));
    let target = format!("{permission}/{LOANS}?indexField=userId");
    assert_eq!(
        client(okapi.addr(), "DELETE", &target, &admin, "")
            .await
            .status,
        204
    );
    assert!(!assigned(&standin));

    let target = format!("/users/{READER}");
    let answer = client(okapi.addr(), "PUT", &target, &admin, r#"{"active":false}"#).await;
    assert_eq!(answer.status, 204);
    standin.clock().advance(Duration::from_secs(61));
    let answer = client(okapi.addr(), "GET", &format!("/users/{DESK}"), &reader, "").await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn okapi_hands_on_what_its_auth_module_says() {
    let (okapi, standin) = platform().await;
    let token = standin.access_token("diku", DESK);
    standin.script(1, Trouble::answer(418, &[], "short and stout"));

    let answer = client(okapi.addr(), "GET", "/circulation/loans", &token, "").await;

    assert_eq!((answer.status, answer.text()), (418, "short and stout"));
    let answer = client(okapi.addr(), "GET", "/no/such/route", &token, "").await;
    assert_eq!(answer.status, 404);
}
