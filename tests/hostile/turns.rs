//! Answers on one connection: each request gets its own, in its turn, whichever way it is answered, and nobody gets
//! another's.

use crate::harness::{LOANS, Sidecar, loans, pair};
use crate::support::raw::{Request, find};
use crate::support::standin::DESK;
use crate::support::standin::call::{FilterCall, handler};
use crate::upstream::{Peer, Upstream, nobody};
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Moves the runtime's clock, with which all timers go.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// What a vanished client did not take must not go to the next one that the same thread serves.
#[tokio::test]
async fn the_answers_of_a_client_that_has_gone_go_to_nobody() {
    let (standin, sidecar) = pair(&[]).await;
    let hit = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &hit).await);
    let bytes = hit.request().to_bytes();
    for _ in 0..20 {
        let gone = TcpStream::connect(sidecar.addr).await.unwrap();
        gone.set_zero_linger().unwrap();
        sidecar.settle().await;
        // Both before the sidecar, which has this thread as well, can look: it reads and cannot write any more.
        let mut gone = gone.into_std().unwrap();
        gone.write_all(&bytes.repeat(3)).unwrap();
        drop(gone);
        sidecar.settle().await;

        let mut next = sidecar.connect().await;
        let refused = hit.clone().required(&[LOANS, "no.such"]).request();
        assert_eq!(next.ask(&refused).await.unwrap().status, 403);
    }
}

/// The library reads no further once nobody wants the request's body, and still has some of the answer then.
#[tokio::test]
async fn an_answer_that_comes_before_its_request_has_ended_is_whole() {
    const LENGTH: usize = 8 << 20;
    let upstream = Upstream::start(|mut peer: Peer| async move {
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
        peer.send(format!("{head}: {LENGTH}\r\n\r\n")).await?;
        peer.send(vec![b'x'; LENGTH]).await
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut stream = socket.connect(sidecar.addr).await.unwrap();
    let head = "POST /token/sign HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf";
    stream.write_all(head.as_bytes()).await.unwrap();

    let mut read = Vec::new();
    let slowly = async {
        let mut some = vec![0; 8 * 1024];
        loop {
            let length = stream.read(&mut some).await.unwrap_or(0);
            if length == 0 {
                break;
            }
            read.extend_from_slice(&some[..length]);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(30), slowly)
        .await
        .expect("it closes");

    let body = read.len() - (find(&read, b"\r\n\r\n").unwrap() + 4);
    assert_eq!(body, LENGTH);
}

/// Nobody was told that the connection ends, so the next request may be on its way already.
#[tokio::test]
async fn a_small_body_that_nobody_read_ends_no_connection() {
    let upstream = format!("http://{}", nobody().await);
    let sidecar = Sidecar::start(&upstream, &[]).await;
    let mut connection = sidecar.connect().await;
    let chunked = handler("/token/sign", "diku", "h.p.s", "[]", "{\"payload\":{}}");
    let mut counted = chunked.clone();
    counted.headers.remove("transfer-encoding");
    counted.headers.push("Content-Length", "14");
    let empty = FilterCall::get("/x").chunked().request();
    for request in [counted, empty, chunked] {
        for _ in 0..3 {
            let answer = connection.ask(&request).await.expect("it goes on");
            assert_eq!(answer.status, 502);
            if answer.headers.has_word("connection", "close") {
                connection = sidecar.connect().await;
            }
        }
    }
}

/// Waits until nobody is let in any more.
async fn closed(sidecar: &Sidecar) {
    while TcpStream::connect(sidecar.addr).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn what_was_begun_before_a_stop_is_answered_and_the_last_answer_says_that_it_is() {
    let (standin, mut sidecar) = pair(&[("SHUTDOWN_TIMEOUT", "20s")]).await;
    let hit = loans(&standin.access_token("diku", DESK));
    let miss = |n: u32| hit.clone().required(&[&format!("no.such.{n}")]);
    assert!(!sidecar.hits(&standin, &hit).await);
    let passed = handler("/token/sign", "diku", "h.p.s", "[]", "{}");
    let sequences = [
        vec![(hit.request(), 202)],
        vec![(miss(1).request(), 403)],
        vec![(passed.clone(), 401)],
        vec![(hit.request(), 202), (hit.request(), 202)],
        vec![
            (hit.request(), 202),
            (miss(2).request(), 403),
            (passed, 401),
            (hit.request(), 202),
            (miss(3).request(), 403),
        ],
    ];
    let mut connections = Vec::new();
    for sequence in &sequences {
        let mut connection = sidecar.connect().await;
        let bytes: Vec<u8> = sequence
            .iter()
            .flat_map(|(one, _)| one.to_bytes())
            .collect();
        connection.send(&bytes[..40]).await.unwrap();
        connections.push((connection, bytes[40..].to_vec()));
    }
    sidecar.settle().await;

    sidecar.signal();
    closed(&sidecar).await;
    for ((connection, rest), sequence) in connections.iter_mut().zip(&sequences) {
        connection.send(rest).await.unwrap();
        for (n, (_, status)) in sequence.iter().enumerate() {
            let answer = connection.answer(false).await.expect("each is answered");
            assert_eq!(answer.status, *status);
            assert_eq!(
                answer.headers.has_word("connection", "close"),
                n + 1 == sequence.len(),
                "{n} of {sequence:?}"
            );
        }
        assert!(connection.closed().await.unwrap());
    }
    sidecar.stop().await;
}

#[tokio::test]
async fn what_came_in_behind_a_request_is_answered_although_it_stops() {
    let (standin, mut sidecar) = pair(&[("SHUTDOWN_TIMEOUT", "20s")]).await;
    let hit = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &hit).await);
    let gate = standin.hold();
    let miss = hit.clone().required(&["no.such"]);
    let mut connection = sidecar.connect().await;
    for call in [&miss, &hit, &hit] {
        connection.send(&call.request().to_bytes()).await.unwrap();
    }
    gate.arrived(1).await;
    sidecar.settle().await;

    sidecar.signal();
    closed(&sidecar).await;
    gate.release();

    for (status, last) in [(403, false), (202, false), (202, true)] {
        let answer = connection.answer(false).await.expect("each is answered");
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers.has_word("connection", "close"), last);
    }
    assert!(connection.closed().await.unwrap());
    sidecar.stop().await;
}

#[tokio::test]
async fn who_says_that_all_was_said_gets_the_answers() {
    let (standin, sidecar) = pair(&[]).await;
    let hit = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &hit).await);
    let gate = standin.hold();
    let mut stream = TcpStream::connect(sidecar.addr).await.unwrap();
    for call in [&hit, &hit.clone().required(&["no.such"]), &hit] {
        stream.write_all(&call.request().to_bytes()).await.unwrap();
    }
    stream.shutdown().await.unwrap();
    gate.arrived(1).await;
    sidecar.settle().await;
    gate.release();

    let mut read = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut read))
        .await
        .expect("it closes")
        .unwrap();
    let text = String::from_utf8_lossy(&read);
    let statuses: Vec<&str> = text
        .match_indices("HTTP/1.1 ")
        .map(|(at, _)| &text[at + 9..at + 12])
        .collect();
    assert_eq!(statuses, ["202", "403", "202"]);
}

/// Waits until the other side closes.
async fn ends(stream: &mut TcpStream) {
    let mut nothing = [0];
    let read = timeout(Duration::from_secs(10), stream.read(&mut nothing)).await;
    assert_eq!(read.expect("it closes").unwrap(), 0);
}

/// A client that keeps the sidecar busy from its first poll on must not make it miss what it waits for beside.
#[tokio::test]
async fn a_connection_that_was_busy_from_the_start_rests_and_stops_like_any_other() {
    const MANY: usize = 200;
    let (standin, mut sidecar) = pair(&[("SHUTDOWN_TIMEOUT", "20s"), ("CACHE_TTL", "10m")]).await;
    let token = standin.access_token("diku", DESK);
    // A hit for the library, as short as can be.
    let mut hit = Request::new("GET", "/x");
    for (name, value) in [
        ("Connection", "keep-alive"),
        ("X-Okapi-Tenant", "diku"),
        ("X-Okapi-Url", "http://o"),
        ("X-Okapi-Token", &token),
        ("X-Okapi-Module-Permissions", "{}"),
    ] {
        hit.headers.push(name, value);
    }
    assert_eq!(sidecar.send(&hit).await.status, 202);
    let mut connections = Vec::new();
    for _ in 0..2 {
        // All of them before the sidecar, which has this thread as well, can look.
        let mut stream = std::net::TcpStream::connect(sidecar.addr).unwrap();
        stream.write_all(&hit.to_bytes().repeat(MANY)).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut stream = TcpStream::from_std(stream).unwrap();
        let (mut read, mut seen) = (Vec::new(), 0);
        while seen < MANY {
            let some = timeout(Duration::from_secs(10), stream.read_buf(&mut read)).await;
            assert_ne!(some.expect("in time").unwrap(), 0);
            while let Some(end) = find(&read, b"\r\n\r\n") {
                read.drain(..end + 4);
                seen += 1;
            }
        }
        connections.push(stream);
        if connections.len() == 1 {
            pass(76).await;
            ends(&mut connections[0]).await;
        }
    }

    sidecar.signal();
    ends(&mut connections[1]).await;
}

#[tokio::test]
async fn hits_alone_keep_a_connection_and_silence_ends_it() {
    let (standin, sidecar) = pair(&[("CACHE_TTL", "10m")]).await;
    let hit = loans(&standin.access_token("diku", DESK)).request();
    let mut connection = sidecar.connect().await;
    for _ in 0..6 {
        assert_eq!(connection.ask(&hit).await.expect("open").status, 202);
        pass(50).await;
        sidecar.settle().await;
    }
    assert_eq!(standin.calls().total, 1);
    assert_eq!(connection.ask(&hit).await.expect("open").status, 202);

    pass(74).await;
    sidecar.settle().await;
    assert_eq!(sidecar.metric("auth_sidecar_connections").await, 1.0);
    pass(2).await;
    assert!(connection.closed().await.unwrap());
}

/// A request has its own time, however long its connection has rested before.
#[tokio::test]
async fn a_request_that_comes_late_may_take_its_time_and_no_more() {
    let (standin, sidecar) = pair(&[("CACHE_TTL", "10m")]).await;
    let token = standin.access_token("diku", DESK);
    let hit = loans(&token).request();
    let passed = handler("/token/sign", "diku", "h.p.s", "[]", "{\"payload\":{}}");
    let begun = passed.to_bytes().len() - "e\r\n{\"payload\":{}}\r\n0\r\n\r\n".len();
    for (request, begun, status) in [
        (&hit, 40, 202),
        (&passed, 40, 401),
        (&passed, begun, 401),
        (&passed, begun + 5, 401),
    ] {
        let bytes = request.to_bytes();
        for (more, whole) in [(70, true), (76, false)] {
            let mut connection = sidecar.connect().await;
            assert_eq!(connection.ask(&hit).await.unwrap().status, 202);
            pass(70).await;
            sidecar.settle().await;
            connection.send(&bytes[..begun]).await.unwrap();
            sidecar.settle().await;
            pass(more).await;
            sidecar.settle().await;

            if whole {
                connection.send(&bytes[begun..]).await.unwrap();
                let answer = connection.answer(false).await.expect("in its time");
                assert_eq!(answer.status, status, "{begun}");
            } else {
                assert!(connection.closed().await.unwrap(), "{begun}");
            }
        }
    }
    // Nor does a byte now and then give a head more of it.
    let mut connection = sidecar.connect().await;
    connection.send(b"GET /x HTTP/1.1\r\n").await.unwrap();
    for _ in 0..2 {
        sidecar.settle().await;
        pass(40).await;
        let _ = connection.send(b"a").await;
    }
    assert!(connection.closed().await.unwrap());
}
