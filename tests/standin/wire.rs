//! Bytes: limits, framing, connections, and the raw client that looks at them.

use crate::support::raw::{self, Connection, Request};
use crate::support::standin::call::FilterCall;
use crate::support::standin::{DESK, GONE, Standin};
use crate::{ask, ask_request, loans, standin};

/// A plain request whose line has this many bytes, line end not counted.
fn line_of(length: usize) -> Request {
    let mut request = FilterCall::get("/x").request();
    let rest = "GET /x? HTTP/1.1".len();
    request.target = format!("/x?{}", "a".repeat(length - rest));
    request
}

/// A plain request whose header fields count this many bytes.
fn head_of(size: usize) -> Request {
    let mut request = FilterCall::get("/x").request();
    request.headers.push("X-Fill", "");
    let fill = size - request.headers.size();
    request.headers.set("X-Fill", "b".repeat(fill));
    assert_eq!(request.headers.size(), size);
    request
}

async fn connection(standin: &Standin) -> Connection {
    Connection::open(standin.addr())
        .await
        .expect("a connection")
}

#[tokio::test]
async fn a_request_line_over_4096_bytes_is_refused_in_http_1_0() {
    let standin = standin().await;
    assert_eq!(ask_request(&standin, &line_of(4096)).await.status, 202);

    let mut connection = connection(&standin).await;
    let answer = connection.ask(&line_of(4097)).await.expect("an answer");

    assert_eq!(answer.start_line, "HTTP/1.0 414 Request-URI Too Long");
    assert_eq!(answer.headers.names(), ["content-length"]);
    assert!(connection.closed().await.expect("an end"));
    assert_eq!(standin.calls().unreadable, 1);
}

#[tokio::test]
async fn a_head_over_8192_bytes_is_refused() {
    let standin = standin().await;
    assert_eq!(ask_request(&standin, &head_of(8192)).await.status, 202);

    let mut connection = connection(&standin).await;
    let answer = connection.ask(&head_of(8193)).await.expect("an answer");

    assert_eq!(
        answer.start_line,
        "HTTP/1.1 431 Request Header Fields Too Large"
    );
    assert_eq!(answer.headers.names(), ["content-length"]);
    assert!(connection.closed().await.expect("an end"));
    assert_eq!(ask_request(&standin, &head_of(100_000)).await.status, 431);
}

#[tokio::test]
async fn three_hundred_header_fields_are_fine() {
    let standin = standin().await;
    let mut call = FilterCall::get("/x");
    for number in 0..300 {
        call = call.client_header(&format!("X-{number}"), "");
    }

    assert_eq!(ask(&standin, &call).await.status, 202);
}

#[tokio::test]
async fn head_has_neither_body_nor_framing() {
    let standin = standin().await;
    let mut connection = connection(&standin).await;

    for (user, status) in [(DESK, 202), (GONE, 401)] {
        let mut request = loans(&standin.access_token("diku", user)).request();
        request.method = "HEAD".to_owned();
        let answer = connection.ask(&request).await.expect("an answer");
        assert_eq!(answer.status, status);
        assert!(!answer.headers.has("content-length"));
        assert!(!answer.headers.has("transfer-encoding"));
    }
    let answer = connection.ask(&FilterCall::get("/x").request()).await;
    assert_eq!(answer.expect("the connection goes on").status, 202);
}

#[tokio::test]
async fn expect_is_answered_before_the_body() {
    let standin = standin().await;
    let mut connection = connection(&standin).await;
    let mut request = loans(&standin.access_token("diku", DESK))
        .client_header("Expect", "100-continue")
        .client_header("Content-Length", "4")
        .request();
    request.method = "POST".to_owned();

    connection.send(&request.to_bytes()).await.expect("sent");
    connection.send(b"body").await.expect("sent");
    let answer = connection.answer(false).await.expect("an answer");

    assert_eq!(answer.interim, ["HTTP/1.1 100 Continue"]);
    assert_eq!(answer.status, 202);
    let unknown = loans(&standin.access_token("diku", DESK)).client_header("Expect", "wonders");
    let answer = connection.ask(&unknown.request()).await.expect("an answer");
    assert_eq!((answer.status, answer.interim.len()), (202, 0));
}

#[tokio::test]
async fn close_closes() {
    let standin = standin().await;
    let mut connection = connection(&standin).await;
    let call = FilterCall::get("/x").client_header("Connection", "keep-alive, Close");

    let answer = connection.ask(&call.request()).await.expect("an answer");

    assert_eq!(answer.headers.names().last(), Some(&"connection"));
    assert!(connection.closed().await.expect("an end"));
}

#[tokio::test]
async fn http_1_0_is_answered_in_kind_and_closed() {
    let standin = standin().await;
    let mut request = FilterCall::get("/x").request();
    request.version = "HTTP/1.0".to_owned();

    let answer = ask_request(&standin, &request).await;

    assert_eq!(answer.start_line, "HTTP/1.0 202 Accepted");
    assert!(!answer.headers.has("transfer-encoding"));
}

#[tokio::test]
async fn an_upgrade_to_http_2_is_accepted() {
    let standin = standin().await;
    let call = FilterCall::get("/x")
        .client_header("Upgrade", "h2c")
        .client_header("Connection", "Upgrade, HTTP2-Settings")
        .client_header("HTTP2-Settings", "AAMAAABkAAQAAP__");

    assert_eq!(ask(&standin, &call).await.status, 101);
    assert_eq!(
        ask(&standin, &call.without("HTTP2-Settings")).await.status,
        202
    );
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let standin = standin().await;

    for bytes in [
        &b"nonsense\r\n\r\n"[..],
        b"GET /x HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /x HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"GET /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
    ] {
        let mut connection = connection(&standin).await;
        connection.send(bytes).await.expect("sent");
        let answer = connection.answer(false).await.expect("an answer");
        assert_eq!(answer.status, 400);
        assert!(connection.closed().await.expect("an end"));
    }
}

#[tokio::test]
async fn two_requests_in_one_packet_are_two_requests() {
    let standin = standin().await;
    let mut connection = connection(&standin).await;
    let mut bytes = FilterCall::get("/1").chunked().request().to_bytes();
    bytes.extend(FilterCall::get("/2").request().to_bytes());

    connection.send(&bytes).await.expect("sent");

    for _ in 0..2 {
        assert_eq!(
            connection.answer(false).await.expect("an answer").status,
            202
        );
    }
    let targets: Vec<_> = standin
        .requests()
        .into_iter()
        .map(|seen| seen.request.target)
        .collect();
    assert_eq!(targets, ["/1", "/2"]);
}

#[tokio::test]
async fn the_raw_client_reads_every_framing() {
    let standin = standin().await;
    for (bytes, body) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"[..], "body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\nT: 1\r\n\r\n", "body"),
        (b"HTTP/1.1 200 OK\r\n\r\nbody", "body"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", ""),
    ] {
        let trouble = crate::support::standin::control::Trouble::Bytes {
            bytes: bytes.to_vec(),
            close: true,
        };
        standin.script(1, trouble);
        let answer = raw::ask(standin.addr(), &FilterCall::get("/x").request()).await;
        assert_eq!(answer.expect("an answer").text(), body);
    }
}
