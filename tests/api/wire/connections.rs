//! Connections: kept and closed as asked, in step whatever comes on them; what is no HTTP gets no answer but 400.

use super::latest;
use crate::harness::{LOANS, Sidecar, loans, pair};
use crate::lifecycle::pass_on_the_runtime;
use crate::support::raw::{Connection, find};
use crate::support::standin::call::{FilterCall, handler};
use crate::support::standin::{DESK, READER};
use std::time::Duration;

#[tokio::test]
async fn connection_close_is_obeyed_and_kept_to_oneself() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    for (call, status) in [
        (loans(&token), 202),
        (loans(&token), 202),
        (loans(&token).to("/a/../b"), 202),
        (loans("h.p.s"), 401),
    ] {
        for value in [
            "close",
            "Close",
            "keep-alive, close",
            "close, X-Okapi-Token",
        ] {
            let mut connection = sidecar.connect().await;
            let call = call.clone().client_header("Connection", value);

            let answer = connection.ask(&call.request()).await.unwrap();

            assert_eq!(answer.status, status);
            assert!(answer.headers.has_word("connection", "close"), "{value}");
            assert!(connection.closed().await.unwrap(), "{value}");
        }
    }
    let seen = standin.requests();
    assert!(
        seen.iter()
            .all(|seen| !seen.request.headers.has("Connection"))
    );
    // What closes in front does not close behind.
    assert!(
        standin.calls().connections <= 2,
        "{}",
        standin.calls().connections
    );
}

#[tokio::test]
async fn a_connection_is_kept_by_default_for_many_requests() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let mut connection = sidecar.connect().await;
    for n in 0..50 {
        let call = loans(&token).desired(&[&(n % 10).to_string()]);
        for call in [call.clone(), call.client_header("Connection", "keep-alive")] {
            let answer = connection.ask(&call.request()).await.unwrap();
            assert_eq!(answer.status, 202);
            assert!(!answer.headers.has("Connection"));
        }
    }
    assert_eq!(standin.calls().total, 10);
    assert_eq!(sidecar.metric("auth_sidecar_connections").await, 1.0);
}

/// mod-authtoken would switch to HTTP/2, which neither Okapi nor we speak.
#[tokio::test]
async fn an_upgrade_is_ignored() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    for (n, upgrade) in ["h2c", "websocket", "h2c, websocket", "TLS/1.2"]
        .iter()
        .enumerate()
    {
        let call = loans(&token)
            .desired(&[&n.to_string()])
            .client_header("Upgrade", upgrade)
            .client_header("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
            .client_header("Connection", "Upgrade, HTTP2-Settings");
        for _ in 0..2 {
            let mut connection = sidecar.connect().await;
            assert_eq!(
                connection.ask(&call.request()).await.unwrap().status,
                202,
                "{upgrade}"
            );
            assert_eq!(
                connection.ask(&call.request()).await.unwrap().status,
                202,
                "{upgrade}"
            );
        }
        let passed = sidecar.ask(&call.to("/a/../b")).await;
        assert_eq!(passed.status, 202, "{upgrade}");
        for name in ["Upgrade", "HTTP2-Settings", "Connection"] {
            assert!(!latest(&standin).headers.has(name), "{name}");
        }
    }
}

#[tokio::test]
async fn requests_that_come_at_once_are_answered_in_their_order() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    assert!(!sidecar.hits(&standin, &loans(&token)).await);
    let magic = r#"["L3Rva2VuL3NpZ24=.execute"]"#;
    let expected = [
        (loans(&token).request(), 202),
        (loans(&token).required(&["no.such"]).request(), 403),
        (loans(&token).request(), 202),
        (loans(&token).desired(&["x"]).chunked().request(), 202),
        (handler("/token/sign", "diku", &token, magic, "{}"), 400),
        (FilterCall::get("/x").token("h.p.s").request(), 401),
        (FilterCall::get("/admin/health").request(), 200),
        (loans(&token).request(), 202),
    ];
    let bytes: Vec<u8> = expected
        .iter()
        .flat_map(|(request, _)| request.to_bytes())
        .collect();
    let mut connection = sidecar.connect().await;

    connection.send(&bytes).await.unwrap();

    for (request, status) in &expected {
        let answer = connection.answer(false).await.unwrap();
        assert_eq!(answer.status, *status, "{request:?}: {}", answer.text());
    }
}

/// Whoever sends ahead still waits for the first answer, and may send the rest only then.
#[tokio::test]
async fn the_beginning_of_the_next_request_holds_up_no_answer() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    assert!(!sidecar.hits(&standin, &loans(&token)).await);
    for first in [
        loans(&token),
        loans(&token).desired(&["x"]),
        loans(&token).to("/a/../b"),
    ] {
        for ahead in ["\r\n", "G", "GET /x HTTP/1.1\r\nX-Okapi-Tenant: di"] {
            let mut connection = sidecar.connect().await.patience(Duration::from_secs(5));
            let bytes = [&first.request().to_bytes(), ahead.as_bytes()].concat();

            connection.send(&bytes).await.unwrap();

            let answer = connection.answer(false).await;
            assert_eq!(
                answer.expect("an answer in time").status,
                202,
                "before {ahead:?}"
            );
        }
    }
}

#[tokio::test]
async fn packets_may_be_cut_anywhere() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let mut connection = sidecar.connect().await;
    for call in [loans(&token).chunked(), loans(&token)] {
        for part in call.request().to_bytes().chunks(7) {
            connection.send(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(connection.answer(false).await.unwrap().status, 202);
    }
    for byte in loans(&token).request().to_bytes() {
        connection.send(&[byte]).await.unwrap();
    }
    assert_eq!(connection.answer(false).await.unwrap().status, 202);
    assert_eq!(standin.calls().total, 1);
}

#[tokio::test]
async fn line_ends_without_a_carriage_return_are_read_as_such_or_refused() {
    let (standin, sidecar) = pair(&[]).await;
    let reader = standin.access_token("diku", READER);
    assert!(
        !sidecar
            .hits(&standin, &FilterCall::get("/x").token(&reader))
            .await
    );
    let request = FilterCall::get("/x")
        .token(&reader)
        .required(&[LOANS])
        .request()
        .to_bytes();
    let bare: Vec<u8> = request
        .iter()
        .copied()
        .filter(|byte| *byte != b'\r')
        .collect();
    let mut connection = sidecar.connect().await;

    connection.send(&bare).await.unwrap();

    let answer = connection.answer(false).await.unwrap();
    assert!([400, 403].contains(&answer.status), "{}", answer.status);
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_and_let_go() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let magic = r#"["L3Rva2VuL3NpZ24=.execute"]"#;
    let body = r#"{"payload":{"sub":"desk","user_id":"11111111-1111-4111-8111-111111111111"}}"#;
    let mut sign = handler("/token/sign", "diku", &token, magic, body);
    sign.headers.remove("Transfer-Encoding");
    sign.headers.push("Content-Length", body.len().to_string());
    for (mut request, status) in [
        (loans(&token).request(), 202),
        (loans(&token).request(), 202),
        (loans(&token).required(&["no.such"]).request(), 403),
        (loans("").request(), 401),
        (sign, 201),
    ] {
        request.version = "HTTP/1.0".to_owned();
        let mut connection = sidecar.connect().await;

        let answer = connection.ask(&request).await.unwrap();

        assert_eq!(answer.status, status);
        assert!(
            !answer.headers.has("Transfer-Encoding"),
            "it knows no chunks"
        );
        assert!(connection.closed().await.unwrap());
        assert_eq!(latest(&standin).version, "HTTP/1.1");
        if status == 201 {
            assert!(answer.text().starts_with('{') && answer.text().ends_with('}'));
        }
    }
    assert!(
        sidecar.hits(&standin, &loans(&token)).await,
        "one cache for all versions"
    );
    // Unless it asks to stay.
    let mut request = loans(&token)
        .client_header("Connection", "keep-alive")
        .request();
    request.version = "HTTP/1.0".to_owned();
    let mut connection = sidecar.connect().await;
    for _ in 0..2 {
        assert_eq!(connection.ask(&request).await.unwrap().status, 202);
    }
}

/// Sends these bytes, and what comes back as one answer; none if the connection is closed without one.
async fn status_of(sidecar: &Sidecar, bytes: &[u8]) -> Option<u16> {
    let mut connection = Connection::open(sidecar.addr)
        .await
        .unwrap()
        .patience(Duration::from_secs(5));
    connection.send(bytes).await.unwrap();
    match connection.answer(false).await {
        Ok(answer) => Some(answer.status),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
            None
        }
    }
}

/// A filter call with these lines among its headers.
fn with_lines(token: &str, lines: &[u8]) -> Vec<u8> {
    let bytes = loans(token).request().to_bytes();
    let line_end = find(&bytes, b"\r\n").unwrap() + 2;
    [&bytes[..line_end], lines, &bytes[line_end..]].concat()
}

#[tokio::test]
async fn what_two_readers_could_read_in_two_ways_is_400() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    for lines in [
        &b"X-Folded: a\r\n b\r\n"[..],
        b" X-First: a\r\n",
        b"X-Bare: a\rb\r\n",
        b"X-Bare: a\r\rb\r\n",
        b"X-Null: a\0b\r\n",
        b"X-Space : a\r\n",
        b"X Space: a\r\n",
        b": a\r\n",
        b"X-No-Colon\r\n",
        b"X\xe4: a\r\n",
        b"X(: a\r\n",
        b"Content-Length: 0\r\nContent-Length: 5\r\n",
        b"Content-Length: 0, 5\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 5 5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding: xchunked\r\n",
    ] {
        let status = status_of(&sidecar, &with_lines(&token, lines)).await;

        assert!(
            status.is_none_or(|status| status == 400),
            "{status:?} {:?}",
            String::from_utf8_lossy(lines)
        );
        assert_eq!(
            standin.calls().total,
            0,
            "{:?}",
            String::from_utf8_lossy(lines)
        );
    }
}

/// Okapi drops `Content-Length`; whoever sends both must not get two readings out of us.
#[tokio::test]
async fn a_length_and_chunks_together_are_never_passed_on_together() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let hidden = loans(&token)
        .required(&["no.such"])
        .to("/hidden")
        .request()
        .to_bytes();
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n".to_owned(),
        format!(
            "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
            5 + hidden.len()
        ),
        format!(
            "Transfer-Encoding: chunked\r\nContent-Length: {}\r\n",
            5 + hidden.len()
        ),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding: Chunked\r\nContent-Length: 0\r\n".to_owned(),
    ] {
        standin.forget_calls();
        let bytes = [
            &with_lines(&token, lines.as_bytes())[..],
            b"0\r\n\r\n",
            &hidden,
        ]
        .concat();

        let status = status_of(&sidecar, &bytes).await;

        sidecar.settle().await;
        assert!(
            status.is_none_or(|status| status == 400 || status == 202),
            "{status:?} {lines}"
        );
        for seen in standin.requests() {
            let headers = seen.request.headers;
            assert!(
                !(headers.has("Content-Length") && headers.has("Transfer-Encoding")),
                "{lines}"
            );
            assert!(
                seen.request.body.is_empty(),
                "nothing is hidden in a body: {lines}"
            );
        }
    }
}

/// The same end upstream: what a client puts into a body stays a body.
#[tokio::test]
async fn a_request_within_a_body_stays_there() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let hidden = loans(&token).to("/hidden").request().to_bytes();
    let mut request = loans(&token).request();
    request
        .headers
        .push("Content-Length", hidden.len().to_string());
    request.body = hidden;
    let mut connection = sidecar.connect().await;

    assert_eq!(connection.ask(&request).await.unwrap().status, 202);
    assert_eq!(
        connection
            .ask(&loans(&token).desired(&["x"]).request())
            .await
            .unwrap()
            .status,
        202
    );

    assert_eq!(standin.calls().total, 2);
    assert!(
        standin
            .requests()
            .iter()
            .all(|seen| seen.request.target != "/hidden")
    );
}

#[tokio::test]
async fn what_is_no_http_is_400_or_a_closed_connection() {
    let (standin, sidecar) = pair(&[]).await;
    for bytes in [
        &b"\r\n\r\n\r\n\r\n"[..],
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        let mut connection = sidecar.connect().await;
        connection.send(bytes).await.unwrap();
        drop(connection);
        if bytes != b"\r\n\r\n\r\n\r\n" {
            let status = status_of(&sidecar, bytes).await;
            assert!(status.is_none_or(|status| status == 400), "{status:?}");
        }
        assert_eq!(standin.calls().total, 0);
    }
    assert_eq!(
        sidecar
            .ask(&loans(&standin.access_token("diku", DESK)))
            .await
            .status,
        202
    );
}

/// A head that is larger than anything Okapi sends must not fill the memory.
#[tokio::test]
async fn an_endless_head_is_ended() {
    let (standin, sidecar) = pair(&[]).await;
    let start = b"GET /x HTTP/1.1\r\nX-Endless: ";
    let mut connection = sidecar.connect().await;
    connection.send(start).await.unwrap();
    let piece = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    while connection.send(&piece).await.is_ok() {
        sent += piece.len();
        tokio::task::yield_now().await;
        assert!(sent < 64 << 20, "it takes everything");
    }
    assert_eq!(standin.calls().total, 0);

    let many: String = (0..2_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let token = standin.access_token("diku", DESK);
    let status = status_of(&sidecar, &with_lines(&token, many.as_bytes())).await;
    assert!(status.is_none_or(|status| status == 431), "{status:?}");
}

/// Okapi keeps a connection for 60 s, so ours must not close before.
#[tokio::test]
async fn a_connection_may_rest_for_over_a_minute() {
    let (standin, sidecar) = pair(&[("CACHE_TTL", "10m")]).await;
    let token = standin.access_token("diku", DESK);
    let mut connections = Vec::new();
    for _ in 0..20 {
        let mut connection = sidecar.connect().await;
        assert_eq!(
            connection
                .ask(&loans(&token).request())
                .await
                .unwrap()
                .status,
            202
        );
        connections.push(connection);
    }

    pass_on_the_runtime(Duration::from_secs(70)).await;

    for connection in &mut connections {
        let answer = connection.ask(&loans(&token).request()).await;
        assert_eq!(answer.expect("no reset").status, 202);
    }
    pass_on_the_runtime(Duration::from_secs(80)).await;
    for connection in &mut connections {
        assert!(connection.closed().await.unwrap(), "but not for ever");
    }
}

/// The same for whoever connects and says nothing, or half of it.
#[tokio::test]
async fn a_head_must_come_within_its_time() {
    let (_standin, sidecar) = pair(&[]).await;
    let mut silent = sidecar.connect().await;
    let mut slow = sidecar.connect().await;
    slow.send(b"GET /x HTTP/1.1\r\nHost:").await.unwrap();
    sidecar.settle().await;

    pass_on_the_runtime(Duration::from_secs(80)).await;

    assert!(silent.closed().await.unwrap());
    // It may say 408 before.
    if !slow.closed().await.unwrap_or(false) {
        let answer = slow.answer(false).await;
        assert!(answer.is_err_and(|_| true) || slow.closed().await.unwrap());
    }
}

#[tokio::test]
async fn upstream_s_connections_are_used_again_and_closed_when_idle() {
    let (standin, sidecar) = pair(&[("UPSTREAM_POOL_IDLE_TIMEOUT", "5s")]).await;
    let token = standin.access_token("diku", DESK);
    for n in 0..20 {
        assert!(
            !sidecar
                .hits(&standin, &loans(&token).desired(&[&n.to_string()]))
                .await
        );
    }
    let connections = standin.calls().connections;
    assert!(connections <= 1, "one for all: {connections}");
    sidecar.settle().await;

    pass_on_the_runtime(Duration::from_secs(7)).await;
    assert!(
        !sidecar
            .hits(&standin, &loans(&token).desired(&["later"]))
            .await
    );
    assert_eq!(
        standin.calls().connections,
        connections + 1,
        "it was closed meanwhile"
    );
}

#[tokio::test]
async fn a_connection_to_upstream_grows_no_older_than_its_setting() {
    let settings = [
        ("UPSTREAM_CONNECTION_MAX_AGE", "60s"),
        ("UPSTREAM_POOL_IDLE_TIMEOUT", "50s"),
    ];
    let (standin, sidecar) = pair(&settings).await;
    let token = standin.access_token("diku", DESK);
    for n in 0..5 {
        let call = loans(&token).desired(&[&n.to_string()]);
        assert!(!sidecar.hits(&standin, &call).await);
        sidecar.settle().await;
        pass_on_the_runtime(Duration::from_secs(25)).await;
    }
    assert_eq!(standin.calls().connections, 1, "beside the first one");
}
