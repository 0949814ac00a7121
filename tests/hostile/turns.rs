//! Answers on one connection: each request gets its own, in its turn, whichever way it is answered, and nobody gets
//! another's.

use crate::harness::{LOANS, Sidecar, loans, pair};
use crate::support::raw::{Connection, Request, find};
use crate::support::standin::call::{FilterCall, handler};
use crate::support::standin::{DESK, READER};
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

/// All that comes until the other side closes.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut read))
        .await
        .expect("it closes")
        .unwrap();
    String::from_utf8_lossy(&read).into_owned()
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

    let text = until_closed(&mut stream).await;
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

/// Who asks and does not listen fills no memory, and gets all answers once he does.
#[tokio::test]
async fn who_does_not_read_is_not_read() {
    let (standin, sidecar) = pair(&[]).await;
    let callers = [DESK, READER].map(|user| standin.access_token("diku", user));
    let calls = callers
        .each_ref()
        .map(|token| FilterCall::get("/x").token(token).desired(&["x"]));
    for call in &calls {
        assert!(!sidecar.hits(&standin, call).await);
    }
    // The first caller once, the second twice, and once by way of the library: any answer that is missing or out of its
    // turn shows.
    let order = [0, 1, 1];
    let kept = calls[1].clone().client_header("Connection", "keep-alive");
    let round: Vec<u8> = [&calls[0], &kept, &calls[1]]
        .iter()
        .flat_map(|call| call.request().to_bytes())
        .collect();
    let stream = TcpStream::connect(sidecar.addr).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    let mut sent = 0;
    while let Ok(some) = timeout(
        Duration::from_millis(500),
        to.write(&round[sent % round.len()..]),
    )
    .await
    {
        sent += some.unwrap();
        assert!(sent < 64 << 20, "it takes everything");
    }
    let rest = round[sent % round.len()..].to_vec();
    let rounds = (sent + rest.len()) / round.len();
    let writing = tokio::spawn(async move { to.write_all(&rest).await.map(|()| to) });

    let (mut read, mut seen) = (Vec::new(), 0);
    while seen < rounds * order.len() {
        let some = timeout(Duration::from_secs(10), from.read_buf(&mut read)).await;
        assert_ne!(some.expect("in time").unwrap(), 0);
        let mut at = 0;
        while let Some(end) = find(&read[at..], b"\r\n\r\n") {
            let head = &read[at..at + end];
            let token = callers[order[seen % order.len()]].as_bytes();
            assert!(head.starts_with(b"HTTP/1.1 202 Accepted\r\n"));
            assert!(find(head, token).is_some(), "answer {seen} is another's");
            at += end + 4;
            seen += 1;
        }
        read.drain(..at);
    }
    assert!(read.is_empty());
    assert!(seen > 1_000);
    writing.await.unwrap().unwrap();
}

/// What came behind it would be read as the rest of it.
#[tokio::test]
async fn nothing_follows_an_answer_that_broke_off() {
    let token = token("u1");
    let yes = format!(
        "HTTP/1.1 202 Accepted\r\nContent-Type: text/plain\r\nX-Okapi-Permissions: []\r\nX-Okapi-User-Id: u1\r\nX-Okapi-Module-Tokens: {{\"_\":\"{token}\"}}\r\nX-Okapi-Token: {token}\r\nContent-Length: 0\r\n\r\n"
    );
    let upstream = Upstream::start(move |mut peer: Peer| {
        let yes = yes.clone();
        async move {
            loop {
                if peer.head.starts_with("GET /x ") {
                    peer.send(&yes).await?;
                } else {
                    let framing = if peer.head.starts_with("GET /token/length ") {
                        "Content-Length: 100\r\n\r\nonly"
                    } else {
                        "Transfer-Encoding: chunked\r\n\r\n64\r\nonly"
                    };
                    peer.send(format!("HTTP/1.1 200 OK\r\n{framing}")).await?;
                    // Time for its beginning to be passed on.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    return Ok(());
                }
                peer.head = peer.next_head().await?;
            }
        }
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;
    let hit = FilterCall::get("/x").token(&token).request().to_bytes();
    for target in ["/token/length", "/token/chunks"] {
        let mut stream = TcpStream::connect(sidecar.addr).await.unwrap();
        let broken = FilterCall::get(target).token(&token).request().to_bytes();
        stream
            .write_all(&[&hit[..], &broken, &hit, &hit].concat())
            .await
            .unwrap();

        let text = until_closed(&mut stream).await;
        assert_eq!(text.matches("HTTP/1.1 202").count(), 1, "{text}");
        assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
        assert!(text.trim_end().ends_with("only"), "{text}");
    }
}

/// Who takes nothing of his answers for too long is let go, however they are made.
#[tokio::test]
async fn who_never_reads_is_let_go() {
    let upstream = Upstream::start(|mut peer: Peer| async move {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
            .await?;
        peer.send(vec![b'x'; 64 << 20]).await
    })
    .await;
    let long = Sidecar::start(&upstream.url(), &[]).await;
    let (standin, hits) = pair(&[("CACHE_TTL", "10m")]).await;
    let hit = loans(&standin.access_token("diku", DESK));
    assert!(!hits.hits(&standin, &hit).await);
    let passed = handler("/token/sign", "diku", "h.p.s", "[]", "{}");
    for (sidecar, bytes) in [
        (&long, passed.to_bytes()),
        (&hits, hit.request().to_bytes().repeat(40_000)),
    ] {
        let (_from, mut to) = TcpStream::connect(sidecar.addr).await.unwrap().into_split();
        let writing = timeout(Duration::from_secs(3), to.write_all(&bytes)).await;
        assert_eq!(writing.is_ok(), bytes.len() < 10_000, "it takes everything");
        tokio::time::sleep(Duration::from_millis(300)).await;
        sidecar.settle().await;
        assert_eq!(sidecar.metric("auth_sidecar_connections").await, 1.0);

        for _ in 0..2 {
            pass(76).await;
            sidecar.settle().await;
        }

        assert_eq!(sidecar.metric("auth_sidecar_connections").await, 0.0);
    }
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
    // A body's time begins when its head is there.
    let bytes = passed.to_bytes();
    let mut connection = sidecar.connect().await;
    for piece in [&bytes[..40], &bytes[40..begun], &bytes[begun..]] {
        sidecar.settle().await;
        pass(40).await;
        connection.send(piece).await.unwrap();
    }
    assert_eq!(connection.answer(false).await.unwrap().status, 401);
    // A byte now and then gives a head no more of it.
    let mut connection = sidecar.connect().await;
    connection.send(b"GET /x HTTP/1.1\r\n").await.unwrap();
    for _ in 0..2 {
        sidecar.settle().await;
        pass(40).await;
        let _ = connection.send(b"a").await;
    }
    assert!(connection.closed().await.unwrap());
}

/// A small generator of its own: what it makes depends on its seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap()
    }
}

/// What an answer must show to be this request's own.
struct Expected {
    status: u16,
    /// In the body of a refusal, or in the token of a yes.
    own: Option<String>,
    to_head: bool,
}

/// One request of any kind, unlike all others where it is refused.
fn any(dice: &mut Dice, n: usize, tokens: &[String; 2]) -> (Vec<u8>, Expected) {
    let token = &tokens[dice.below(2)];
    let yes = FilterCall::get("/x").token(token).desired(&["x"]);
    let name = format!("no.such.{n}");
    let no = |method: &str| {
        FilterCall::new(method, "/y")
            .token(token)
            .required(&[&name])
    };
    let mut expected = Expected {
        status: 403,
        own: Some(name.clone()),
        to_head: false,
    };
    let with_body = |call: FilterCall, body: &str| {
        let mut request = call.request();
        request.body = body.as_bytes().to_vec();
        request
    };
    let hidden = String::from_utf8(yes.request().to_bytes()).unwrap();
    let request: Request = match dice.below(13) {
        0..=3 => {
            expected.status = 202;
            expected.own = Some(token.clone());
            yes.request()
        }
        4 => {
            expected.status = 202;
            expected.own = Some(token.clone());
            yes.client_header("Connection", "keep-alive").request()
        }
        5 => {
            expected.status = 202;
            expected.own = Some(token.clone());
            yes.desired(&[&name]).request()
        }
        6 => no("GET").request(),
        7 => {
            let length = hidden.len().to_string();
            with_body(no("POST").client_header("Content-Length", length), &hidden)
        }
        8 => with_body(no("PUT").chunked(), &hidden),
        9 => {
            let head = no("POST").chunked().client_header("TE", "trailers");
            let mut bytes = head.request().to_bytes();
            bytes.truncate(bytes.len() - "0\r\n\r\n".len());
            let (one, two) = hidden.split_at(dice.below(hidden.len() - 2) + 1);
            for part in [one, two] {
                bytes.extend_from_slice(
                    format!("{:X};a=\"b\"\r\n{part}\r\n", part.len()).as_bytes(),
                );
            }
            bytes.extend_from_slice(b"0;c\r\nX-Trailer: GET / HTTP/1.1\r\n\r\n");
            return (bytes, expected);
        }
        10 => {
            expected.to_head = true;
            expected.own = None;
            no("HEAD").request()
        }
        11 => {
            expected.to_head = true;
            expected.status = 202;
            expected.own = Some(token.clone());
            let mut request = yes.request();
            "HEAD".clone_into(&mut request.method);
            request
        }
        _ => {
            // A change is announced, of somebody who asks nothing here.
            expected.status = 202;
            expected.own = Some(token.clone());
            let user = "/users/00000000-0000-4000-8000-00000000ffff";
            yes.to(user).request().with_method("PUT")
        }
    };
    (request.to_bytes(), expected)
}

trait WithMethod {
    fn with_method(self, method: &str) -> Self;
}

impl WithMethod for Request {
    fn with_method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }
}

/// Sends these bytes in pieces, with time to be read between some of them.
async fn send_cut(connection: &mut Connection, bytes: &[u8], dice: &mut Dice) {
    let mut at = 0;
    let longest = [bytes.len(), 16, 700, 4_000][dice.below(4)];
    while at < bytes.len() {
        let piece = (dice.below(longest) + 1).min(bytes.len() - at);
        let piece = if longest == bytes.len() {
            bytes.len()
        } else {
            piece
        };
        connection.send(&bytes[at..at + piece]).await.unwrap();
        at += piece;
        for _ in 0..dice.below(4) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn whatever_comes_in_whatever_pieces_each_request_gets_its_own_answer() {
    let (standin, sidecar) = pair(&[]).await;
    let tokens = [DESK, READER].map(|user| standin.access_token("diku", user));
    let mut n = 0;
    for seed in 1..=150 {
        let mut dice = Dice(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let mut connection = sidecar.connect().await;
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..=dice.below(12) {
            n += 1;
            let (request, answer) = any(&mut dice, n, &tokens);
            bytes.extend_from_slice(&request);
            expected.push(answer);
        }
        send_cut(&mut connection, &bytes, &mut dice).await;

        for (at, expected) in expected.iter().enumerate() {
            let answer = connection.answer(expected.to_head).await;
            let answer = answer.unwrap_or_else(|error| panic!("seed {seed}, {at}: {error}"));
            assert_eq!(answer.status, expected.status, "seed {seed}, {at}");
            let shown = match answer.headers.get("x-okapi-token") {
                Some(token) if answer.status == 202 => token,
                _ => answer.text(),
            };
            if let Some(own) = &expected.own {
                let own_name = shown.ends_with(own.as_str()) || shown.contains(&format!("{own} "));
                assert!(own_name, "seed {seed}, {at}: {}", answer.text());
            }
        }
    }
}

/// A token without a signature that anybody looks at.
fn token(user: &str) -> String {
    use base64::Engine;
    let claims =
        format!(r#"{{"sub":"{user}","user_id":"{user}","tenant":"diku","type":"access"}}"#);
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims);
    format!("eyJhbGciOiJIUzI1NiJ9.{claims}.c2lnbmVk")
}

/// One answer, byte for byte.
async fn bytes_back(stream: &mut TcpStream, request: &Request) -> String {
    stream.write_all(&request.to_bytes()).await.unwrap();
    let mut read = Vec::new();
    while find(&read, b"\r\n\r\n").is_none() {
        let some = timeout(Duration::from_secs(10), stream.read_buf(&mut read)).await;
        assert_ne!(some.expect("in time").unwrap(), 0);
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn a_hit_is_the_same_bytes_with_and_without_the_library() {
    let own = token("u1");
    let other = token("u2");
    let answers = [
        format!(
            "Content-Type: text/plain\r\nX-Okapi-Module-Tokens: {{\"_\":\"{own}\"}}\r\nX-Okapi-Token: {own}"
        ),
        format!(
            "Content-Type: text/plain\r\nX-Okapi-Module-Tokens: {{\"m-1\":\"a.b.c\",\"_\":\"{own}\"}}\r\nX-Okapi-Token: {own}"
        ),
        format!(
            "Content-Type: text/plain\r\nX-Okapi-Module-Tokens: {{\"_\":\"{own}\",\"m-1\":\"a.b.c\"}}\r\nX-Okapi-Token: {own}"
        ),
        format!(
            "Content-Type: text/plain\r\nX-Okapi-Module-Tokens: {{ \"_\" : \"{own}\" }}\r\nX-Okapi-Token: {own}"
        ),
        format!(
            "Content-Type: application/json; charset=utf-8\r\nX-Okapi-Module-Tokens: {{\"_\":\"{own}\"}}\r\nX-Okapi-Token: {own}"
        ),
        format!("X-Okapi-Module-Tokens: {{\"_\":\"{own}\"}}\r\nX-Okapi-Token: {own}"),
        format!(
            "Content-Type: text/plain\r\nX-Okapi-Module-Tokens: {{\"_\":\"{own}\"}}\r\nX-Okapi-Token: {other}"
        ),
        format!("Content-Type: text/plain\r\nX-Okapi-Module-Tokens: {{\"_\":\"{own}\"}}"),
        format!(
            "x-ODD--name-9a: \u{e4}\tb\r\nEmpty:\r\nCache-Control: no-store\r\nX-Okapi-Module-Tokens: {{\"_\":\"{own}\"}}\r\nX-Okapi-Token: {own}\r\nx-okapi-trace: GET x : 202 1us\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT"
        ),
    ];
    let count = answers.len();
    let upstream = Upstream::start(move |mut peer: Peer| {
        let answers = answers.clone();
        async move {
            loop {
                let field = |name: &str| {
                    let start = format!("{name}: ");
                    let line = peer.head.lines().find(|line| {
                        line.get(..start.len()).is_some_and(|s| s.eq_ignore_ascii_case(&start))
                    });
                    line.map(|line| line[start.len()..].to_owned())
                };
                let n: usize = field("x-okapi-permissions-desired").unwrap().parse().unwrap();
                let user = field("x-okapi-user-id").unwrap_or("u1".to_owned());
                let answer = format!(
                    "HTTP/1.1 202 Accepted\r\n{}\r\nX-Okapi-Permissions: [\"a\"]\r\nX-Okapi-User-Id: {user}\r\nContent-Length: 0\r\n\r\n",
                    answers[n]
                );
                peer.send(answer).await?;
                peer.head = peer.next_head().await?;
            }
        }
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;
    let hits = "auth_sidecar_requests_total{outcome=\"hit\",reason=\"none\"}";
    let mut stream = TcpStream::connect(sidecar.addr).await.unwrap();
    let mut expected = 0.0;
    for n in 0..count {
        for user in [None, Some("u1"), Some("U9")] {
            let modules = if n == 1 || n == 2 {
                r#"{"m-1":["p"]}"#
            } else {
                "{}"
            };
            let mut call = FilterCall::get("/x")
                .token(&own)
                .desired(&[&n.to_string()])
                .module_permissions(modules);
            if let Some(user) = user {
                call = call.user_id(user);
            }
            let first = bytes_back(&mut stream, &call.request()).await;
            assert!(first.starts_with("HTTP/1.1 202 Accepted\r\n"), "{first}");

            let quick = bytes_back(&mut stream, &call.request()).await;
            let kept = call.client_header("Connection", "keep-alive");
            let through = bytes_back(&mut stream, &kept.request()).await;

            assert_eq!(quick, through, "{n} {user:?}");
            expected += 2.0;
            assert_eq!(sidecar.metric(hits).await, expected, "{n} {user:?}");
        }
    }
}
