//! What the log of the real process shows at its most talkative: no token, no cookie, nobody's body.

use crate::harness::{ADMIN_TOKEN, LOANS, loans};
use crate::program::Program;
use crate::support::raw::{Answer, Connection, Request};
use crate::support::standin::call::{FilterCall, handler, system};
use crate::support::standin::control::Trouble;
use crate::support::standin::{ADMIN, DESK, Options, READER, Standin};
use serde_json::Value;
use std::time::Duration;

const COOKIE: &str = "cookie-of-forty-letters-cookie-of-forty-l";

/// A secret and its parts: a part of a token is as good as a hint.
fn parts(secret: &str) -> impl Iterator<Item = &str> {
    secret
        .split(['.', '"', ':', ',', '{', '}', ' '])
        .filter(|part| part.len() > 20)
}

async fn ask(connection: &mut Connection, request: &Request) -> Answer {
    connection.ask(request).await.expect("an answer")
}

#[tokio::test]
async fn no_secret_is_logged_at_any_level() {
    for format in ["json", "text"] {
        let standin = Standin::start(Options::default()).await;
        let settings = [
            ("LOG", "trace"),
            ("LOG_FORMAT", format),
            ("ADMIN_TOKEN", ADMIN_TOKEN),
            ("UPSTREAM_TIMEOUT", "200ms"),
        ];
        let program = Program::serve(&standin, &settings).await;
        standin.seen(1).await;
        let mut secrets = vec![ADMIN_TOKEN.to_owned(), COOKIE.to_owned()];
        let mut connection = Connection::open(program.filter).await.unwrap();
        let desk = standin.access_token("diku", DESK);
        let admin = standin.access_token("diku", ADMIN);
        let reader = standin.access_token("diku", READER);
        let dummy = standin.dummy_token("diku", "mod-login", &["auth.token.sign.post"]);
        let expired = standin.access_token_until("diku", DESK, 1_000);
        let call = |token: &str| {
            loans(token).client_header("Cookie", format!("folioAccessToken={COOKIE}"))
        };
        for (request, trouble) in [
            (call(&desk).module_permissions(r#"{"mod-x-1":["a"]}"#).request(), None),
            (call(&desk).module_permissions(r#"{"mod-x-1":["a"]}"#).request(), None),
            (call(&desk).to("/a/../b").request(), None),
            (call(&reader).request(), None),
            (call(&expired).request(), None),
            (call(&format!("{desk}x")).request(), None),
            (call("Basic c29tZWJvZHk6dGhlaXItcGFzc3dvcmQtaXMtbG9uZw").request(), None),
            (call(&desk).header("X-Okapi-Token", &reader).request(), None),
            (call(&desk).header("X-Okapi-Additional-Token", &admin).request(), None),
            (call(&desk).header("Authorization", format!("Bearer {admin}")).request(), None),
            (call(&desk).header("Authtoken-Refresh-Cache", "true").request(), None),
            (call(&admin).to("/users/11111111-1111-4111-8111-111111111111").request(), None),
            (FilterCall::new("PUT", "/users/11111111-1111-4111-8111-111111111111").token(&admin).request(), None),
            (FilterCall::new("DELETE", "/perms/users/11111111-1111-4111-8111-111111111111/permissions/x?indexField=userId").token(&admin).request(), None),
            (call(&desk).request(), None),
            (system("POST", "/_/tenantpermissions", "diku"), None),
            (FilterCall::get("/x").request(), None),
            (handler("/token/sign", "diku", &dummy, r#"["L3Rva2VuL3NpZ24=.execute"]"#, r#"{"payload":{"sub":"desk","user_id":"11111111-1111-4111-8111-111111111111"}}"#), None),
            (handler("/token/invalidate-all", "diku", &desk, r#"["L3Rva2VuL2ludmFsaWRhdGUtYWxs.execute"]"#, ""), None),
            (call(&desk).desired(&["1"]).request(), Some((2, Trouble::Close))),
            (call(&desk).desired(&["2"]).request(), Some((1, Trouble::Hang))),
            (call(&desk).desired(&["3"]).request(), Some((1, Trouble::Bytes { bytes: format!("nonsense {desk}\r\n\r\n").into_bytes(), close: true }))),
            (call(&desk).desired(&["4"]).request(), Some((1, Trouble::answer(401, &[("Set-Cookie", &desk)], "Invalid token")))),
            (call(&desk).desired(&["5"]).request(), Some((1, Trouble::answer(202, &[("X-Okapi-Module-Tokens", &format!("{{\"_\":\"{reader}\"}}"))], "")))),
            (call(&desk).header("X-Auth-Sidecar-Probe", &desk).request(), None),
            (call(&desk).required(&[LOANS]).module_permissions(&format!("{{\"{desk}\":[]}}")).request(), None),
        ] {
            if let Some((times, trouble)) = trouble {
                standin.script(times, trouble);
            }
            let answer = ask(&mut connection, &request).await;
            for headers in [&request.headers, &answer.headers] {
                for name in ["X-Okapi-Token", "X-Okapi-Module-Tokens", "X-Okapi-Additional-Token", "Cookie", "Set-Cookie", "Authorization"] {
                    let values = headers.all(name).map(|value| String::from_utf8_lossy(value).into_owned());
                    secrets.extend(values);
                }
            }
            secrets.push(answer.text().to_owned());
        }
        // What cannot be read must not be shown either.
        for broken in [
            format!("GET /{desk} b HTTP/1.1\r\nX-Okapi-Token: {desk}\r\n\r\n"),
            format!("GET /x HTTP/1.1\r\nX Okapi-Token: {desk}\r\n\r\n"),
        ] {
            let mut connection = Connection::open(program.filter).await.unwrap();
            connection.send(broken.as_bytes()).await.unwrap();
            let _ = connection.answer(false).await;
        }
        for (method, bearer) in [
            ("DELETE", ADMIN_TOKEN),
            ("DELETE", desk.as_str()),
            ("GET", ADMIN_TOKEN),
        ] {
            let mut request = Request::new(method, "/cache/diku");
            request.headers.push("Host", "x");
            request
                .headers
                .push("Authorization", format!("Bearer {bearer}"));
            ask(
                &mut Connection::open(program.admin).await.unwrap(),
                &request,
            )
            .await;
        }
        program.terminate().await;
        let (status, log, errors) = program.output().await;

        assert_eq!(status.code(), Some(0));
        assert!(log.lines().count() > 10, "it is talkative: {log}");
        let both = log + &errors;
        assert!(!both.contains("eyJ"), "the beginning of every token");
        for secret in secrets.iter().flat_map(|secret| parts(secret)) {
            assert!(
                !both.contains(secret),
                "a secret of {} letters",
                secret.len()
            );
        }
        for word in [
            "cookie-of-forty",
            "folioAccessToken",
            ADMIN_TOKEN,
            "UNDEFINED_USER__",
            "accessToken",
            "refreshToken",
        ] {
            assert!(!both.contains(word), "{word}");
        }
    }
}

/// Who announced what can be told afterwards, by Okapi's request id.
#[tokio::test]
async fn a_debug_line_says_which_request_announced_which_event() {
    let standin = Standin::start(Options::default()).await;
    let program = Program::serve(&standin, &[("LOG", "okapi_auth_sidecar=debug")]).await;
    let admin = standin.access_token("diku", ADMIN);
    let event = FilterCall::new("PUT", &format!("/users/{DESK}"))
        .token(&admin)
        .request();
    let mut connection = Connection::open(program.filter).await.unwrap();
    assert_eq!(ask(&mut connection, &event).await.status, 202);
    program.terminate().await;
    let (_, log, _) = program.output().await;

    let lines: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let line = lines
        .iter()
        .find(|line| line["event"] == "user_change")
        .expect("a line");
    assert_eq!(line["level"], "DEBUG");
    assert_eq!(line["tenant"], "diku");
    assert_eq!(line["user"], DESK);
    assert_eq!(
        line["request_id"].as_str(),
        event.headers.get("X-Okapi-Request-Id")
    );
}

#[tokio::test]
async fn an_ordinary_day_writes_nothing_per_request() {
    let standin = Standin::start(Options::default()).await;
    let program = Program::serve(&standin, &[]).await;
    standin.seen(1).await;
    let token = standin.access_token("diku", DESK);
    let mut connection = Connection::open(program.filter).await.unwrap();
    for n in 0..50 {
        for call in [
            loans(&token),
            loans(&token).desired(&[&n.to_string()]),
            loans("h.p.s"),
            FilterCall::get("/x"),
        ] {
            ask(&mut connection, &call.request()).await;
        }
    }
    // An outage is told, but not once for each call.
    standin.script(200, Trouble::Close);
    for n in 100..150 {
        let answer = ask(
            &mut connection,
            &loans(&token).desired(&[&n.to_string()]).request(),
        )
        .await;
        assert_eq!(answer.status, 502);
    }
    drop(connection);
    tokio::time::sleep(Duration::from_millis(20)).await;
    program.terminate().await;
    let (_, log, _) = program.output().await;

    assert!(log.lines().count() < 15, "{log}");
    assert_eq!(
        log.matches("no answer from the auth module").count(),
        1,
        "{log}"
    );
}
