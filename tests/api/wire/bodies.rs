//! Bodies: what has none, what is streamed, and how each is framed.

use super::{FRAMING, fields, latest};
use crate::harness::{LOANS, Sidecar, loans, pair};
use crate::support::raw::{Request, find};
use crate::support::standin::DESK;
use crate::support::standin::call::{FilterCall, handler};
use crate::support::standin::control::Trouble;
use crate::upstream::{Peer, Upstream};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

const BYPASSED: &str = "auth_sidecar_requests_total{outcome=\"bypass\",reason=\"body\"}";

#[tokio::test]
async fn an_empty_body_in_any_framing_is_no_body() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let mut n = 0;
    for method in ["GET", "POST", "PUT", "DELETE"] {
        for framing in [
            None,
            Some(("Transfer-Encoding", "chunked")),
            Some(("Content-Length", "0")),
        ] {
            n += 1;
            let mut call = FilterCall::new(method, "/x")
                .token(&token)
                .desired(&[&n.to_string()])
                .client_header("Content-Type", "application/json");
            if let Some((name, value)) = framing {
                call = call.client_header(name, value);
            }

            assert!(!sidecar.hits(&standin, &call).await, "{method} {framing:?}");
            let seen = latest(&standin);
            assert!(
                !seen.headers.has("Transfer-Encoding"),
                "{method} {framing:?}"
            );
            assert!(!seen.headers.has("Content-Length"), "{method} {framing:?}");
            assert_eq!(seen.headers.get("Content-Type"), Some("application/json"));
            assert!(sidecar.hits(&standin, &call).await, "{method} {framing:?}");
            let plain = FilterCall::get("/y")
                .token(&token)
                .desired(&[&n.to_string()]);
            assert!(
                sidecar.hits(&standin, &plain).await,
                "and so is the same without framing"
            );
        }
    }
    assert_eq!(sidecar.metric(BYPASSED).await, 0.0);
}

/// The last chunk comes later than the head.
#[tokio::test]
async fn an_empty_chunked_body_may_end_late() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK)).chunked();
    let bytes = call.request().to_bytes();
    let head = bytes.len() - "0\r\n\r\n".len();
    for expected in [1, 1] {
        let mut connection = sidecar.connect().await;
        connection.send(&bytes[..head]).await.unwrap();
        sidecar.settle().await;
        connection.send(&bytes[head..]).await.unwrap();

        assert_eq!(connection.answer(false).await.unwrap().status, 202);
        assert_eq!(standin.calls().total, expected, "a miss, then a hit");
    }
    assert_eq!(sidecar.metric(BYPASSED).await, 0.0);
}

#[tokio::test]
async fn a_filter_call_with_a_body_is_passed_through_with_it() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    assert!(!sidecar.hits(&standin, &loans(&token)).await);
    for chunked in [false, true] {
        let mut call = FilterCall::new("POST", "/circulation/loans")
            .token(&token)
            .required(&[LOANS]);
        if chunked {
            call = call.chunked();
        }
        let mut request = call.request();
        request.body = b"{\"a\":1}".to_vec();
        if !chunked {
            request.headers.push("Content-Length", "7");
        }
        for _ in 0..2 {
            let before = standin.calls().total;
            let answer = sidecar.send(&request).await;

            assert_eq!(answer.status, 202);
            assert_eq!(standin.calls().total, before + 1, "every time");
            let seen = latest(&standin);
            assert_eq!(seen.body, request.body);
            assert!(seen.headers.has("Content-Length") != seen.headers.has("Transfer-Encoding"));
        }
    }
    assert_eq!(sidecar.metric(BYPASSED).await, 4.0);
    assert!(sidecar.hits(&standin, &loans(&token)).await);
}

#[tokio::test]
async fn a_head_request_has_no_body_hit_or_miss_and_its_connection_goes_on() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let head = |required: &str| {
        FilterCall::new("HEAD", "/x")
            .token(&token)
            .required(&[required])
            .request()
    };
    let mut connection = sidecar.connect().await;
    for (request, status) in [
        (head(LOANS), 202),
        (head(LOANS), 202),
        (head("no.such"), 403),
        (loans(&token).request(), 202),
        (FilterCall::new("HEAD", "/x").request(), 202),
        (
            FilterCall::new("HEAD", "/token/sign")
                .token(&token)
                .request(),
            401,
        ),
        (
            FilterCall::new("HEAD", "/a/../b").token("h.p.s").request(),
            401,
        ),
        (
            FilterCall::new("HEAD", "/x%zz").token("h.p.s").request(),
            400,
        ),
        (loans(&token).request(), 202),
    ] {
        let answer = connection
            .ask(&request)
            .await
            .expect("the connection is in step");
        assert_eq!(
            answer.status, status,
            "{} {}",
            request.method, request.target
        );
    }
    // The GET after the two HEADs is a hit like the second of them.
    let hits = "auth_sidecar_requests_total{outcome=\"hit\",reason=\"none\"}";
    assert_eq!(sidecar.metric(hits).await, 3.0);
}

#[tokio::test]
async fn what_a_head_request_stored_serves_a_get() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let head = FilterCall::new("HEAD", "/x")
        .token(&token)
        .required(&[LOANS]);
    let mut connection = sidecar.connect().await;
    let first = connection.ask(&head.request()).await.unwrap();

    let answer = sidecar.ask(&loans(&token)).await;

    assert_eq!(standin.calls().total, 1);
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    assert_eq!(
        fields(&answer.headers, &FRAMING),
        fields(&first.headers, &FRAMING)
    );
}

/// Okapi does not wait for it, and nothing here makes it wait.
#[tokio::test]
async fn an_expectation_holds_nobody_up_and_goes_no_further() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    for (n, expectation) in ["100-continue", "100-Continue", "something else", ""]
        .iter()
        .enumerate()
    {
        let call = loans(&token)
            .desired(&[&n.to_string()])
            .client_header("Expect", expectation);

        assert!(!sidecar.hits(&standin, &call).await, "{expectation}");
        assert!(!latest(&standin).headers.has("Expect"));
        assert!(sidecar.hits(&standin, &call).await, "{expectation}");
        let passed = call.to("/a/../b");
        assert!(!sidecar.hits(&standin, &passed).await, "{expectation}");
        assert!(!latest(&standin).headers.has("Expect"));
    }
}

/// A client that does wait gets its `100 Continue`, with and without a body to come.
#[tokio::test]
async fn whoever_waits_for_100_continue_gets_it() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let magic = r#"["L3Rva2VuL3NpZ24=.execute"]"#;
    let mut sign = handler("/token/sign", "diku", &token, magic, "{\"payload\":{}}");
    sign.headers.push("Expect", "100-continue");
    let filter = loans(&token)
        .chunked()
        .client_header("Expect", "100-continue")
        .request();
    for (request, status) in [(sign, 400), (filter, 202)] {
        let bytes = request.to_bytes();
        let head = find(&bytes, b"\r\n\r\n").unwrap() + 4;
        let mut stream = TcpStream::connect(sidecar.addr).await.unwrap();
        stream.write_all(&bytes[..head]).await.unwrap();
        let mut interim = [0; 25];
        timeout(Duration::from_secs(10), stream.read_exact(&mut interim))
            .await
            .expect("in time")
            .unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(&bytes[head..]).await.unwrap();
        let mut line = [0; 12];
        timeout(Duration::from_secs(10), stream.read_exact(&mut line))
            .await
            .expect("in time")
            .unwrap();
        assert_eq!(line[9..], *status.to_string().as_bytes());
        assert_eq!(latest(&standin).body, request.body);
    }
}

/// Sends one request, chunk by chunk, as the test says.
struct Slow {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Slow {
    async fn open(sidecar: &Sidecar, request: &Request) -> Self {
        let mut stream = TcpStream::connect(sidecar.addr).await.unwrap();
        let bytes = request.to_bytes();
        let head = bytes.len() - "0\r\n\r\n".len();
        stream.write_all(&bytes[..head]).await.unwrap();
        Self {
            stream,
            seen: Vec::new(),
        }
    }

    async fn chunk(&mut self, text: &str) {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.send(chunk.as_bytes()).await;
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads until this has come, and forgets what came up to it.
    async fn sees(&mut self, text: &str) {
        loop {
            if let Some(at) = find(&self.seen, text.as_bytes()) {
                self.seen.drain(..at + text.len());
                return;
            }
            let read = self.stream.read_buf(&mut self.seen);
            let read = timeout(Duration::from_secs(10), read).await;
            assert_ne!(
                read.expect("in time").unwrap(),
                0,
                "it closed before {text}"
            );
        }
    }
}

/// Each part arrives before the next one is sent: nobody waits for the whole.
#[tokio::test]
async fn a_body_is_streamed_in_both_directions() {
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let (say, words) = mpsc::unbounded_channel::<&str>();
    let words = std::sync::Arc::new(tokio::sync::Mutex::new(words));
    let upstream = Upstream::start(move |mut peer: Peer| {
        let (arrived, words) = (arrived.clone(), words.clone());
        async move {
            arrived.send(peer.head.clone().into_bytes()).unwrap();
            let mut words = words.lock().await;
            loop {
                tokio::select! {
                    some = peer.some() => {
                        let some = some?;
                        if some.is_empty() {
                            return Ok(());
                        }
                        arrived.send(some).unwrap();
                    }
                    word = words.recv() => match word {
                        Some(word) => peer.send(word).await?,
                        None => return Ok(()),
                    },
                }
            }
        }
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;
    let mut arrival = async || {
        let some = timeout(Duration::from_secs(10), arrivals.recv()).await;
        String::from_utf8(some.expect("in time").expect("there")).unwrap()
    };
    let sign = handler("/token/sign", "diku", "h.p.s", "[]", "");

    let mut client = Slow::open(&sidecar, &sign).await;
    let head = arrival().await;
    assert!(head.starts_with("POST /token/sign HTTP/1.1\r\n"));
    assert!(
        head.to_lowercase()
            .contains("\r\ntransfer-encoding: chunked\r\n")
    );
    assert!(!head.to_lowercase().contains("\r\ncontent-length:"));
    client.chunk("{\"payload\":").await;
    assert_eq!(arrival().await, "B\r\n{\"payload\":\r\n");
    client.chunk("1").await;
    assert_eq!(arrival().await, "1\r\n1\r\n");
    // The answer begins before the request has ended.
    say.send("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    client.sees("HTTP/1.1 201 Created\r\n").await;
    say.send("5\r\nfirst\r\n").unwrap();
    client.sees("first").await;
    client.chunk("}").await;
    assert_eq!(arrival().await, "1\r\n}\r\n");
    client.send(b"0\r\n\r\n").await;
    assert_eq!(arrival().await, "0\r\n\r\n");
    say.send("6\r\nsecond\r\n0\r\n\r\n").unwrap();
    client.sees("second").await;
    client.sees("0\r\n\r\n").await;
}

/// Numbers up to this length in bytes: no part of it is like another.
fn long(bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(u64::to_be_bytes).collect()
}

#[tokio::test]
async fn eight_mebibytes_arrive_as_they_were_sent_in_both_directions() {
    const MEBIBYTES: usize = 8 << 20;
    for chunked in [true, false] {
        let upstream = Upstream::start(move |mut peer: Peer| async move {
            // Its own body comes back, in whatever pieces it came, until all of it was there.
            let head = if chunked {
                "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()
            } else {
                format!("HTTP/1.1 201 Created\r\ncontent-length: {MEBIBYTES}\r\n\r\n")
            };
            peer.send(head).await?;
            let mut left = if chunked { usize::MAX } else { MEBIBYTES };
            while left > 0 {
                let some = peer.some().await?;
                if some.is_empty() {
                    break;
                }
                left -= some.len();
                let ends = some.ends_with(b"\r\n0\r\n\r\n");
                peer.send(some).await?;
                if chunked && ends {
                    break;
                }
            }
            Ok(())
        })
        .await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;
        let mut request = handler("/token/sign", "diku", "h.p.s", "[]", "");
        request.body = long(MEBIBYTES);
        if !chunked {
            request.headers.remove("Transfer-Encoding");
            request
                .headers
                .push("Content-Length", MEBIBYTES.to_string());
        }

        let bytes = request.to_bytes();
        let stream = TcpStream::connect(sidecar.addr).await.unwrap();
        let (mut from, mut to) = stream.into_split();
        let writing = tokio::spawn(async move { to.write_all(&bytes).await.map(|()| to) });
        let mut read = Vec::new();
        let whole = async {
            while !is_whole(&read, chunked, MEBIBYTES) {
                assert_ne!(from.read_buf(&mut read).await.unwrap(), 0, "it closed");
            }
        };
        timeout(Duration::from_secs(20), whole)
            .await
            .expect("in time");

        let _still_open = writing.await.unwrap().unwrap();
        let start = find(&read, b"\r\n\r\n").unwrap() + 4;
        let body = if chunked {
            unchunked(&read[start..])
        } else {
            read[start..].to_vec()
        };
        assert_eq!(body.len(), MEBIBYTES);
        assert!(body == request.body, "another body");
    }
}

/// Whether an answer of that framing and that length has come to its end.
fn is_whole(answer: &[u8], chunked: bool, length: usize) -> bool {
    let head = &answer[..answer.len().min(1_000)];
    match find(head, b"\r\n\r\n") {
        Some(_) if chunked => answer.ends_with(b"\r\n0\r\n\r\n"),
        Some(end) => answer.len() >= end + 4 + length,
        None => false,
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = find(&bytes[..bytes.len().min(20)], b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 2 + size + 2..];
    }
}

/// Trailers are of one connection; the body they follow arrives whole.
#[tokio::test]
async fn trailers_and_chunk_extensions_do_not_disturb_a_body() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let magic = r#"["L3Rva2VuL3NpZ24=.execute"]"#;
    let bytes = handler("/token/sign", "diku", &token, magic, "").to_bytes();
    let head = &bytes[..bytes.len() - "0\r\n\r\n".len()];
    let body = b"3;a=b\r\n{\"a\r\n4\r\n\":1}\r\n0\r\nX-Trailer: x\r\n\r\n";
    let mut connection = sidecar.connect().await;

    connection.send(&[head, body].concat()).await.unwrap();

    assert_eq!(
        connection.answer(false).await.unwrap().status,
        400,
        "no login's body"
    );
    assert_eq!(latest(&standin).body, b"{\"a\":1}");
    assert_eq!(
        connection
            .ask(&loans(&token).request())
            .await
            .unwrap()
            .status,
        202
    );
}

/// The client goes away in the middle of its body: upstream must not take what it has for the whole.
#[tokio::test]
async fn a_body_that_breaks_off_breaks_off_upstream_too() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |mut peer: Peer| {
        let ended = ended.clone();
        async move {
            let mut body = Vec::new();
            loop {
                match peer.some().await {
                    Ok(some) if !some.is_empty() => body.extend(some),
                    Ok(_) | Err(_) => break,
                }
            }
            ended.send(body).unwrap();
            Ok(())
        }
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;

    let mut client = Slow::open(&sidecar, &handler("/token/sign", "diku", "h.p.s", "[]", "")).await;
    client.chunk("half").await;
    sidecar.settle().await;
    drop(client);

    let body = timeout(Duration::from_secs(10), ends.recv())
        .await
        .expect("in time")
        .unwrap();
    assert!(
        !body.ends_with(b"0\r\n\r\n"),
        "{}",
        String::from_utf8_lossy(&body)
    );
}

#[tokio::test]
async fn an_answer_without_a_length_that_ends_with_its_connection_is_whole() {
    for ask in [loans("h.p.s").request(), FilterCall::get("/x").request()] {
        let upstream = Upstream::start(|mut peer: Peer| async move {
            peer.send("HTTP/1.1 403 Forbidden\r\n\r\nuntil ").await?;
            peer.send("the end").await
        })
        .await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;

        let answer = sidecar.send(&ask).await;

        assert_eq!((answer.status, answer.text()), (403, "until the end"));
    }
}

#[tokio::test]
async fn a_204_and_a_304_have_no_body() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let mut connection = sidecar.connect().await;
    for status in [204, 304] {
        for call in [loans(&token), loans(&token).to("/a/../b")] {
            standin.script(1, Trouble::answer(status, &[], ""));
            let answer = connection.ask(&call.request()).await.unwrap();
            assert_eq!((answer.status, answer.body.len()), (status, 0));
            assert!(!answer.headers.has("Transfer-Encoding"));
        }
    }
    assert_eq!(
        connection
            .ask(&loans(&token).request())
            .await
            .unwrap()
            .status,
        202
    );
}
