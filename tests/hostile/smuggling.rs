//! Requests that two readers could take for different ones. What goes up is clean or nothing, and never holds a request
//! that was somebody's body.

use crate::harness::Sidecar;
use crate::recorder::{Message, Recorder};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const KEY: &str = "X-Okapi-Tenant: diku\r\nX-Okapi-Url: http://okapi:9130\r\nX-Okapi-Token: a.b.c\r\nX-Okapi-Module-Permissions: {}\r\n";
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: sidecar\r\nX-Okapi-Tenant: diku\r\n\r\n";
/// Says on the same connection that it ends.
const LAST: &str = "GET /last HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// 400 or 431, the connection closes, nothing goes up.
    Refused,
    /// One clean request goes up.
    Passed,
    /// Not answered by the auth module, and nothing whole goes up.
    Broken,
}
use Fate::{Broken, Passed, Refused};

/// Sends these bytes and [`LAST`]; the statuses that came back until the connection closed, and what went up.
async fn send(sidecar: &Sidecar, recorder: &Recorder, bytes: &[u8]) -> (Vec<u16>, Vec<Message>) {
    let mut stream = TcpStream::connect(sidecar.addr)
        .await
        .expect("a test that runs");
    stream.write_all(bytes).await.expect("a test that runs");
    // A close with unread bytes resets the connection and takes the answer with it: first the answer, then more.
    let mut back = Vec::new();
    let read = async {
        while crate::support::raw::find(&back, b"\r\n\r\n").is_none() {
            if stream.read_buf(&mut back).await? == 0 {
                return Ok(0);
            }
        }
        // It may be closed already, which is as good.
        let _ = stream.write_all(LAST.as_bytes()).await;
        stream.read_to_end(&mut back).await
    };
    let read: Result<std::io::Result<usize>, _> = timeout(Duration::from_secs(10), read).await;
    assert!(read.is_ok(), "the connection stays open");
    let text = String::from_utf8_lossy(&back).into_owned();
    let statuses = text
        .match_indices("HTTP/1.1 ")
        .map(|(at, _)| text[at + 9..at + 12].parse());
    let statuses = statuses
        .collect::<Result<_, _>>()
        .expect("a test that runs");
    let (messages, faults) = recorder.heard();
    assert_eq!(
        faults,
        [] as [&str; 0],
        "sent {:?}",
        String::from_utf8_lossy(bytes)
    );
    (statuses, messages)
}

fn post(framing: &str, body: &str) -> Vec<u8> {
    format!("POST /users HTTP/1.1\r\nHost: sidecar\r\n{KEY}{framing}\r\n\r\n{body}").into_bytes()
}

fn get(field: &str) -> Vec<u8> {
    format!("GET /users HTTP/1.1\r\nHost: sidecar\r\n{KEY}{field}\r\n\r\n").into_bytes()
}

fn hidden_chunk() -> String {
    format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len())
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<(&'static str, Vec<u8>, Fate)> {
    let length = format!("Content-Length: {}", HIDDEN.len());
    let chunked = "Transfer-Encoding: chunked";
    vec![
        ("a body with its length", post(&length, HIDDEN), Passed),
        ("a chunked body", post(chunked, &hidden_chunk()), Passed),
        (
            "length, then chunked",
            post(&format!("Content-Length: 4\r\n{chunked}"), &hidden_chunk()),
            Passed,
        ),
        (
            "chunked, then length",
            post(&format!("{chunked}\r\nContent-Length: 4"), &hidden_chunk()),
            Passed,
        ),
        (
            "the same length twice",
            post(&format!("{length}\r\n{length}"), HIDDEN),
            Passed,
        ),
        (
            "two lengths",
            post(&format!("Content-Length: 0\r\n{length}"), HIDDEN),
            Refused,
        ),
        (
            "two lengths in one field",
            post("Content-Length: 0, 5", HIDDEN),
            Refused,
        ),
        (
            "a negative length",
            post("Content-Length: -1", HIDDEN),
            Refused,
        ),
        (
            "a length with a sign",
            post("Content-Length: +5", HIDDEN),
            Refused,
        ),
        (
            "a length in hexadecimal",
            post("Content-Length: 0x5", HIDDEN),
            Refused,
        ),
        (
            "a length that is none",
            post("Content-Length: ", HIDDEN),
            Refused,
        ),
        (
            "a length beyond 64 bits",
            post("Content-Length: 99999999999999999999", HIDDEN),
            Refused,
        ),
        (
            "a length of 64 bits",
            post("Content-Length: 18446744073709551615", HIDDEN),
            Refused,
        ),
        (
            "chunked is not last",
            post("Transfer-Encoding: chunked, identity", HIDDEN),
            Refused,
        ),
        (
            "an unknown coding",
            post("Transfer-Encoding: xchunked", HIDDEN),
            Refused,
        ),
        (
            "identity",
            post("Transfer-Encoding: identity", HIDDEN),
            Refused,
        ),
        (
            "chunked behind a vertical tab",
            post("Transfer-Encoding: \x0bchunked", &hidden_chunk()),
            Refused,
        ),
        (
            "space before the colon of a coding",
            post("Transfer-Encoding : chunked", &hidden_chunk()),
            Refused,
        ),
        (
            "space before a name",
            post(" Transfer-Encoding: chunked", &hidden_chunk()),
            Refused,
        ),
        (
            "a folded coding",
            post("Transfer-Encoding:\r\n chunked", &hidden_chunk()),
            Refused,
        ),
        (
            "chunked in HTTP/1.0",
            b"POST /users HTTP/1.0\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_vec(),
            Refused,
        ),
        (
            "an extension",
            post(
                chunked,
                &format!("{:x};a=b\r\n{HIDDEN}\r\n0;c\r\n\r\n", HIDDEN.len()),
            ),
            Passed,
        ),
        (
            "a chunk size beyond 64 bits",
            post(chunked, &format!("fffffffffffffffff\r\n{HIDDEN}")),
            Broken,
        ),
        (
            "a chunk size with a sign",
            post(chunked, &format!("+5\r\n{HIDDEN}")),
            Broken,
        ),
        (
            "a chunk size with 0x",
            post(chunked, &format!("0x5\r\n{HIDDEN}")),
            Broken,
        ),
        (
            "a chunk longer than its size",
            post(chunked, &format!("1\r\nab{HIDDEN}")),
            Broken,
        ),
        (
            "a bare LF in an extension",
            post(chunked, &format!("1;\n{HIDDEN}")),
            Broken,
        ),
        (
            "trailers that frame",
            post(
                chunked,
                "0\r\nContent-Length: 5\r\nX-Okapi-Token: x.y.z\r\n\r\n",
            ),
            Passed,
        ),
        (
            "a bare CR in a value",
            get("X-Bare: a\rX-Okapi-Tenant: other"),
            Refused,
        ),
        (
            "a bare CR before a name",
            get("X-Bare: a\r\n\rX-Okapi-Tenant: other"),
            Refused,
        ),
        (
            "a folded value",
            get("X-Folded: a\r\n X-Okapi-Tenant: other"),
            Refused,
        ),
        ("NUL in a value", get("X-Nul: a\0b"), Refused),
        ("NUL in a name", get("X-N\0ul: a"), Refused),
        ("space in a name", get("X-Okapi Tenant: a"), Refused),
        ("no colon", get("X-Okapi-Tenant"), Refused),
        ("an empty name", get(": a"), Refused),
        ("several hosts", get("Host: other"), Passed),
        ("no version", b"GET /users\r\n\r\n".to_vec(), Refused),
        (
            "another version",
            b"GET /users HTTP/9.9\r\nHost: s\r\n\r\n".to_vec(),
            Refused,
        ),
        (
            "space in the target",
            b"GET /users /hidden HTTP/1.1\r\nHost: s\r\n\r\n".to_vec(),
            Refused,
        ),
        (
            "NUL in the target",
            b"GET /us\0ers HTTP/1.1\r\nHost: s\r\n\r\n".to_vec(),
            Refused,
        ),
        (
            "tab after the method",
            b"GET\t/users HTTP/1.1\r\nHost: s\r\n\r\n".to_vec(),
            Refused,
        ),
        (
            "the preface of HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            Broken,
        ),
    ]
}

#[tokio::test]
async fn what_goes_up_is_clean_or_nothing() {
    let recorder = Recorder::start().await;
    let sidecar = Sidecar::start(&format!("http://{}", recorder.addr), &[]).await;
    // The probe at the start, which is no part of this.
    sidecar
        .until("auth_sidecar_upstream_connections", 1.0)
        .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    recorder.heard();
    let mut wrong = Vec::new();
    for (name, bytes, fate) in cases() {
        let (statuses, messages) = send(&sidecar, &recorder, &bytes).await;
        let lines: Vec<_> = messages
            .iter()
            .map(|message| message.line.as_str())
            .collect();
        let first = lines
            .iter()
            .filter(|line| !line.starts_with("GET /last "))
            .count();
        let hidden = lines.iter().any(|line| line.contains("/hidden"));
        let expected = match fate {
            // Some are 431 or a closed connection: refused all the same, and nobody is asked.
            Refused => {
                statuses.iter().all(|status| matches!(status, 400 | 431)) && messages.is_empty()
            }
            Passed => statuses.first() == Some(&403) && first == 1,
            // A body may break when its head is on its way already: upstream's refusal or ours, never a second request.
            Broken => statuses.first().is_none_or(|status| *status >= 400) && first <= 1,
        };
        if !expected || hidden {
            wrong.push(format!(
                "{name}: wanted {fate:?}, answered {statuses:?}, went up {lines:?}"
            ));
        }
    }
    assert_eq!(wrong, [] as [&str; 0]);
}

#[tokio::test]
async fn bodies_arrive_as_they_were_meant() {
    let recorder = Recorder::start().await;
    let sidecar = Sidecar::start(&format!("http://{}", recorder.addr), &[]).await;
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
    ] {
        let (_, messages) = send(&sidecar, &recorder, &post(framing, &hidden_chunk())).await;
        let request = messages
            .iter()
            .find(|message| message.line.starts_with("POST /users "))
            .unwrap();
        assert_eq!(request.body, HIDDEN.as_bytes());
        let token = request
            .fields
            .iter()
            .filter(|(name, _)| name == "x-okapi-token")
            .count();
        assert_eq!(token, 1);
    }
}

#[tokio::test]
async fn the_absolute_form_goes_up_as_it_came_and_hosts_become_one() {
    let recorder = Recorder::start().await;
    let sidecar = Sidecar::start(&format!("http://{}", recorder.addr), &[]).await;
    let request = format!("GET http://elsewhere/users HTTP/1.1\r\nHost: a\r\nHost: b\r\n{KEY}\r\n");

    let (statuses, messages) = send(&sidecar, &recorder, request.as_bytes()).await;

    assert_eq!(statuses[0], 403);
    let asked = messages
        .iter()
        .find(|message| message.line.contains("users"))
        .unwrap();
    assert_eq!(asked.line, "GET http://elsewhere/users HTTP/1.1");
    let host = recorder.addr.to_string();
    assert!(asked.fields.contains(&("host".to_owned(), host)));
}
