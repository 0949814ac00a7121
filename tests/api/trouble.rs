//! The auth module is gone, slow, or talks nonsense: 502 or 504, never a refusal of ours and never a yes; what is stored
//! goes on; and what may be asked twice is asked twice, once.

use crate::harness::{ADMIN_TOKEN, Sidecar, loans, pair};
use crate::support::raw::{Answer, Connection, Request};
use crate::support::standin::call::{FilterCall, handler, system};
use crate::support::standin::control::Trouble;
use crate::support::standin::{DESK, DESK5, Options, Standin};
use crate::upstream::{Peer, Upstream, nobody};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

const STORED: &str = "auth_sidecar_stored_total";
const RETRIED: &str = "auth_sidecar_upstream_retries_total{cause=\"pooled\"}";

fn failures(cause: &str) -> String {
    format!("auth_sidecar_upstream_failures_total{{cause=\"{cause}\"}}")
}

/// A token that can be read; upstreams of this file check nothing.
const TOKEN: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJkZXNrIiwidXNlcl9pZCI6InUtMSIsInRlbmFudCI6ImRpa3UifQ.c2ln";

/// The answer that mod-authtoken gives to [`TOKEN`].
fn yes() -> String {
    format!(
        "HTTP/1.1 202 Accepted\r\nX-Okapi-Permissions: []\r\nX-Okapi-Module-Tokens: {{\"_\":\"{TOKEN}\"}}\r\n\
         X-Okapi-Token: {TOKEN}\r\nX-Okapi-User-Id: u-1\r\ncontent-length: 0\r\n\r\n"
    )
}

/// Calls of every way through the sidecar: a miss, two pass-throughs without a body and one with a body.
fn every_way() -> [Request; 4] {
    [
        loans(TOKEN).request(),
        FilterCall::get("/x").request(),
        FilterCall::get("/a/../b").token(TOKEN).request(),
        handler("/token/sign", "diku", TOKEN, "[]", "{}"),
    ]
}

#[tokio::test]
async fn the_usual_answer_of_these_upstreams_is_a_yes() {
    let upstream = Upstream::start(|mut peer: Peer| async move { peer.send(yes()).await }).await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;

    assert_eq!(sidecar.ask(&loans(TOKEN)).await.status, 202);

    assert_eq!(sidecar.metric(STORED).await, 1.0);
}

#[tokio::test]
async fn a_refused_connection_is_502() {
    let sidecar = Sidecar::start(&format!("http://{}", nobody().await), &[]).await;

    for request in every_way() {
        let answer = sidecar.send(&request).await;
        assert_eq!(
            (answer.status, answer.text()),
            (502, "The auth module cannot be reached")
        );
    }
    assert_eq!(sidecar.metric(STORED).await, 0.0);
    assert!(sidecar.metric(&failures("connect")).await >= 4.0);
}

/// A listener whose queue is full takes no connection and refuses none.
#[tokio::test]
async fn a_connection_that_is_never_made_is_504() {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queue.push(stream);
        assert!(queue.len() < 100, "it takes everybody");
    }
    let settings = [("UPSTREAM_CONNECT_TIMEOUT", "200ms")];
    let sidecar = Sidecar::start(&format!("http://{address}"), &settings).await;

    for request in every_way() {
        assert_eq!(sidecar.send(&request).await.status, 504);
    }
    assert!(sidecar.metric(&failures("connect_timeout")).await >= 4.0);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_504_and_holds_up_nobody_else() {
    let settings = [
        ("UPSTREAM_TIMEOUT", "1s"),
        ("UPSTREAM_PASSTHROUGH_TIMEOUT", "1500ms"),
    ];
    let (standin, sidecar) = pair(&settings).await;
    let slow = standin.access_token("diku", DESK);
    let quick = loans(&standin.access_token("diku", DESK5));
    standin.script(4, Trouble::Hang);
    let began = Instant::now();
    let mut waiting = Vec::new();
    for request in [
        loans(&slow).request(),
        FilterCall::get("/x").request(),
        loans(&slow).to("/a/../b").request(),
        handler("/token/sign", "diku", &slow, "[]", "{}"),
    ] {
        let mut connection = sidecar.connect().await;
        connection.send(&request.to_bytes()).await.unwrap();
        waiting.push(connection);
    }
    standin.seen(4).await;

    assert!(!sidecar.hits(&standin, &quick).await);
    assert!(sidecar.hits(&standin, &quick).await);
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "nobody had to wait: {:?}",
        began.elapsed()
    );

    for (n, connection) in waiting.iter_mut().enumerate() {
        let answer = connection.answer(false).await.unwrap();
        assert_eq!(
            (answer.status, answer.text()),
            (504, "The auth module did not answer in time")
        );
        let least = if n == 3 { 1_500 } else { 1_000 };
        assert!(began.elapsed() >= Duration::from_millis(least));
    }
    assert_eq!(sidecar.metric(&failures("timeout")).await, 4.0);
}

/// The whole answer counts, its body too.
#[tokio::test]
async fn an_answer_that_does_not_end_is_504() {
    let upstream = Upstream::start(|mut peer: Peer| async move {
        let head = yes().replace("content-length: 0", "content-length: 10");
        peer.send(head).await?;
        peer.send("abc").await?;
        peer.gone().await;
        Ok(())
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[("UPSTREAM_TIMEOUT", "200ms")]).await;

    assert_eq!(sidecar.ask(&loans(TOKEN)).await.status, 504);

    assert_eq!(sidecar.metric(STORED).await, 0.0);
}

/// A head that comes byte by byte, for ever.
#[tokio::test]
async fn a_head_that_does_not_end_is_504() {
    let upstream = Upstream::start(|mut peer: Peer| async move {
        peer.send("HTTP/1.1 202 Accepted\r\nX-Okapi-Token: ")
            .await?;
        loop {
            peer.send("x").await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let settings = [
        ("UPSTREAM_TIMEOUT", "200ms"),
        ("UPSTREAM_PASSTHROUGH_TIMEOUT", "200ms"),
    ];
    let sidecar = Sidecar::start(&upstream.url(), &settings).await;

    for request in every_way() {
        assert_eq!(sidecar.send(&request).await.status, 504);
    }
}

/// What is sent instead of an answer before the connection closes.
fn nonsense() -> Vec<(&'static str, String)> {
    let head = yes();
    let open = head
        .trim_end_matches("content-length: 0\r\n\r\n")
        .to_owned();
    vec![
        ("nothing", String::new()),
        ("a word", "nonsense\r\n\r\n".to_owned()),
        ("another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned()),
        ("an answer of HTTP/2", "HTTP/2 202\r\n\r\n".to_owned()),
        ("no status", "HTTP/1.1 \r\n\r\n".to_owned()),
        (
            "a status of letters",
            "HTTP/1.1 two Accepted\r\n\r\n".to_owned(),
        ),
        ("half a status line", "HTTP/1.1 202 Acc".to_owned()),
        ("half a head", head[..head.len() / 2].to_owned()),
        ("a head without its empty line", open.clone()),
        (
            "a line without a colon",
            format!("{open}X-Okapi-Foo\r\n\r\n"),
        ),
        ("a folded line", format!("{open}X-Foo: a\r\n b\r\n\r\n")),
        (
            "a control character in a value",
            format!("{open}X-Foo: a\u{1}b\r\n\r\n"),
        ),
        (
            "a space in a name",
            format!("{open}X Foo: a\r\ncontent-length: 0\r\n\r\n"),
        ),
        (
            "a length of letters",
            format!("{open}content-length: ten\r\n\r\n"),
        ),
        (
            "a negative length",
            format!("{open}content-length: -1\r\n\r\n"),
        ),
        (
            "two lengths",
            format!("{open}content-length: 0\r\ncontent-length: 3\r\n\r\nabc"),
        ),
        (
            "an endless head",
            format!("{open}X-Foo: {}\r\n\r\n", "x".repeat(100_000)),
        ),
        (
            "two thousand fields",
            format!("{open}{}\r\n", "X: y\r\n".repeat(2_000)),
        ),
    ]
}

#[tokio::test]
async fn nonsense_is_502_on_every_way() {
    for (what, bytes) in nonsense() {
        let answer = Arc::new(bytes);
        let upstream = Upstream::start(move |mut peer: Peer| {
            let answer = answer.clone();
            async move { peer.send(answer.as_bytes()).await }
        })
        .await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;
        for (n, request) in every_way().iter().enumerate() {
            let answer = sidecar.send(request).await;

            assert_eq!(answer.status, 502, "{what}, way {n}: {}", answer.text());
            assert!(
                answer.text().starts_with("The auth module"),
                "{what}: {}",
                answer.text()
            );
            assert!(!answer.headers.has("X-Okapi-Token"), "{what}");
        }
        // On a fresh connection nothing is repeated.
        assert_eq!(upstream.connections(), 4, "{what}");
        assert_eq!(sidecar.metric(STORED).await, 0.0, "{what}");
        let counted = sidecar.sum("auth_sidecar_upstream_failures_total{").await;
        assert!(counted >= 4.0, "{what}");
    }
}

/// The head is right, the body is not what it says.
#[tokio::test]
async fn a_broken_body_is_502_for_a_miss() {
    let head = yes();
    let open = head
        .trim_end_matches("content-length: 0\r\n\r\n")
        .to_owned();
    for (what, bytes) in [
        (
            "shorter than its length",
            format!("{open}content-length: 10\r\n\r\nabc"),
        ),
        (
            "half a chunk",
            format!("{open}transfer-encoding: chunked\r\n\r\n5\r\nab"),
        ),
        (
            "no last chunk",
            format!("{open}transfer-encoding: chunked\r\n\r\n2\r\nab\r\n"),
        ),
        (
            "a chunk without a size",
            format!("{open}transfer-encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"),
        ),
        (
            "over a mebibyte",
            format!(
                "{open}content-length: 1048577\r\n\r\n{}",
                "x".repeat(1_048_577)
            ),
        ),
    ] {
        let answer = Arc::new(bytes);
        let upstream = Upstream::start(move |mut peer: Peer| {
            let answer = answer.clone();
            async move { peer.send(answer.as_bytes()).await }
        })
        .await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;

        let answer = sidecar.ask(&loans(TOKEN)).await;

        assert_eq!(answer.status, 502, "{what}");
        assert_eq!(upstream.connections(), 1, "{what}: its answer had begun");
        assert_eq!(sidecar.metric(STORED).await, 0.0, "{what}");
    }
}

/// The head has left when the body breaks: all that can be done is to break off as well, so that nobody takes it for whole.
#[tokio::test]
async fn a_broken_body_is_a_broken_body_where_it_is_streamed() {
    for framing in [
        "content-length: 1000\r\n\r\nabc",
        "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let answer = format!("HTTP/1.1 201 Created\r\n{framing}");
        let upstream = Upstream::start(move |mut peer: Peer| {
            let answer = answer.clone();
            async move { peer.send(answer).await }
        })
        .await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;
        let mut connection = sidecar.connect().await;
        let sign = handler("/token/sign", "diku", TOKEN, "[]", "{}");

        let answer = connection.ask(&sign).await;

        let error = answer.expect_err("no whole answer");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{framing}");
    }
}

/// Its sentence is read on its way through, to see whom it concerns.
#[tokio::test]
async fn a_refusal_that_breaks_off_is_502() {
    let upstream = Upstream::start(|mut peer: Peer| async move {
        peer.send("HTTP/1.1 401 Unauthorized\r\ncontent-length: 13\r\n\r\nInvalid")
            .await
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;

    let past = loans(TOKEN).header("Authtoken-Refresh-Cache", "true");
    assert_eq!(sidecar.ask(&past).await.status, 502);
}

#[tokio::test]
async fn interim_answers_are_no_answers() {
    let upstream = Upstream::start(|mut peer: Peer| async move {
        peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
            .await?;
        peer.send(yes()).await?;
        peer.gone().await;
        Ok(())
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;

    let answer = sidecar.ask(&loans(TOKEN)).await;

    assert_eq!(answer.status, 202);
    assert!(!answer.headers.has("Link"));
}

/// Nobody asked for another protocol, so there is no other protocol.
#[tokio::test]
async fn a_switch_of_protocols_is_no_yes() {
    let upstream = Upstream::start(|mut peer: Peer| async move {
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        )
        .await?;
        peer.gone().await;
        Ok(())
    })
    .await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;

    for request in every_way() {
        let answer = sidecar.send(&request).await;
        assert_eq!(answer.status, 502, "{}", answer.start_line);
    }
    assert_eq!(sidecar.metric(STORED).await, 0.0);
}

/// An upstream that answers the first request of each connection and leaves at the second, without a word.
async fn leaves_at_the_second(all: bool) -> (Upstream, Arc<AtomicU64>) {
    let asked = Arc::<AtomicU64>::default();
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer: Peer| {
        let count = count.clone();
        async move {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            if all && !first {
                return Ok(());
            }
            peer.send(yes()).await?;
            peer.next_head().await?;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    })
    .await;
    (upstream, asked)
}

#[tokio::test]
async fn a_call_whose_pooled_connection_dies_is_asked_once_more_on_a_fresh_one() {
    for second in [
        loans(TOKEN).desired(&["x"]).request(),
        FilterCall::get("/x").request(),
        loans(TOKEN).to("/a/../b").request(),
        loans(TOKEN).desired(&["x"]).chunked().request(),
    ] {
        let (upstream, asked) = leaves_at_the_second(false).await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;
        assert_eq!(sidecar.ask(&loans(TOKEN)).await.status, 202);

        let answer = sidecar.send(&second).await;

        assert_eq!(answer.status, 202, "{second:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 3, "{second:?}");
        assert_eq!(upstream.connections(), 2);
        assert_eq!(sidecar.metric(RETRIED).await, 1.0);
        assert_eq!(
            sidecar.sum("auth_sidecar_upstream_failures_total{").await,
            0.0
        );
    }
}

#[tokio::test]
async fn it_is_asked_no_third_time() {
    let (upstream, asked) = leaves_at_the_second(true).await;
    let sidecar = Sidecar::start(&upstream.url(), &[]).await;
    assert_eq!(sidecar.ask(&loans(TOKEN)).await.status, 202);

    assert_eq!(sidecar.ask(&loans(TOKEN).desired(&["x"])).await.status, 502);

    assert_eq!(
        asked.load(Ordering::SeqCst),
        3,
        "one that was answered, one and one more"
    );
    assert_eq!(sidecar.metric(&failures("closed")).await, 1.0);
}

/// What has a body, or changes something, never goes on a connection that may have died meanwhile, and never twice.
#[tokio::test]
async fn a_call_that_is_no_bodyless_filter_call_is_asked_once_on_a_fresh_connection() {
    let mut with_body = loans(TOKEN).request();
    with_body.headers.push("Content-Length", "3");
    with_body.body = b"abc".to_vec();
    for request in [
        handler("/token/sign", "diku", TOKEN, "[]", "{}"),
        handler("/token/invalidate-all", "diku", TOKEN, "[]", ""),
        handler("/_/tenant", "diku", TOKEN, "[]", "{}"),
        with_body,
    ] {
        let (upstream, asked) = leaves_at_the_second(true).await;
        let sidecar = Sidecar::start(&upstream.url(), &[]).await;
        assert_eq!(
            sidecar.ask(&loans(TOKEN)).await.status,
            202,
            "there is a pooled one now"
        );

        let answer = sidecar.send(&request).await;

        assert_eq!(answer.status, 502, "{request:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "{request:?}");
        assert_eq!(upstream.connections(), 2);
        assert_eq!(sidecar.metric(RETRIED).await, 0.0);
    }
}

#[tokio::test]
async fn connections_that_upstream_closes_while_they_rest_cost_nobody_an_answer() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    for n in 0..100 {
        let call = loans(&token).desired(&[&format!("d-{n}")]);
        assert!(!sidecar.hits(&standin, &call).await);
        standin.drop_connections();
    }
    assert_eq!(
        sidecar.sum("auth_sidecar_upstream_failures_total{").await,
        0.0
    );
}

#[tokio::test]
async fn a_tenant_call_waits_for_a_module_that_is_still_starting() {
    let address = nobody().await;
    let sidecar = Sidecar::start(&format!("http://{address}"), &[]).await;
    let magic = r#"["L18vdGVuYW50.execute"]"#;
    let world = crate::support::standin::world::World::recorded();
    let token = world.dummy_token("diku", "init", &[]);
    let mut waiting = Vec::new();
    for request in [
        system("POST", "/_/tenant", "diku"),
        system("POST", "/_/tenantpermissions", "diku"),
        handler("/_/tenant", "diku", &token, magic, r#"{"module_to":"m-1"}"#),
    ] {
        let mut connection = sidecar.connect().await;
        connection.send(&request.to_bytes()).await.unwrap();
        waiting.push(connection);
    }
    assert_eq!(
        sidecar.ask(&loans(TOKEN)).await.status,
        502,
        "others do not wait"
    );
    sidecar
        .until(
            "auth_sidecar_upstream_retries_total{cause=\"connect\"}",
            3.0,
        )
        .await;

    let _standin = Standin::start(Options {
        listen: address,
        ..Options::default()
    })
    .await;

    let mut statuses = Vec::new();
    for connection in &mut waiting {
        statuses.push(connection.answer(false).await.unwrap().status);
    }
    assert_eq!(statuses, [202, 202, 201]);
}

#[tokio::test]
async fn a_tenant_call_waits_no_longer_than_its_setting() {
    let settings = [("UPSTREAM_CONNECT_RETRY", "600ms")];
    let sidecar = Sidecar::start(&format!("http://{}", nobody().await), &settings).await;
    let began = Instant::now();

    assert_eq!(
        sidecar
            .send(&system("POST", "/_/tenant", "diku"))
            .await
            .status,
        502
    );

    assert!(
        (300..3_000).contains(&began.elapsed().as_millis()),
        "{:?}",
        began.elapsed()
    );
}

/// Asks again and again until told to stop; the times and statuses of those that were not let in.
async fn customers(
    address: SocketAddr,
    number: usize,
    token: String,
    stop: Arc<AtomicBool>,
) -> Vec<(Instant, Instant, u16)> {
    let mut failures = Vec::new();
    let mut asked = 0;
    let mut connection = Connection::open(address).await.unwrap();
    while !stop.load(Ordering::SeqCst) {
        asked += 1;
        // Nearly all are misses: each asks for something new.
        let call = loans(&token).desired(&[&format!("{number}-{asked}")]);
        let began = Instant::now();
        let answer = connection
            .ask(&call.request())
            .await
            .expect("an answer, whatever it is");
        if answer.status != 202 {
            failures.push((began, Instant::now(), answer.status));
        }
    }
    assert!(asked > 3, "{asked}");
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_costs_no_call_but_those_of_the_outage() {
    let address = nobody().await;
    let options = || Options {
        listen: address,
        ..Options::default()
    };
    let standin = Standin::start(options()).await;
    let sidecar = Sidecar::start(&standin.url(), &[]).await;
    standin.seen(1).await;
    let token = standin.access_token("diku", DESK);
    let kept = loans(&token);
    assert!(!sidecar.hits(&standin, &kept).await);
    let stop = Arc::<AtomicBool>::default();
    let customers: Vec<_> = (0..8)
        .map(|n| tokio::spawn(customers(sidecar.addr, n, token.clone(), stop.clone())))
        .collect();
    standin.seen(200).await;

    let down = Instant::now();
    drop(standin);
    let mut outage = 0;
    while outage < 20 {
        assert_eq!(
            sidecar.ask(&kept).await.status,
            202,
            "what is stored goes on"
        );
        outage += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let standin = Standin::start(options()).await;
    let up = Instant::now();
    standin.seen(200).await;
    stop.store(true, Ordering::SeqCst);

    let mut seen = 0;
    for customer in customers {
        for (began, ended, status) in customer.await.expect("no panic") {
            assert!(
                began < up && ended > down,
                "{status}, {:?} after it was up",
                began - up
            );
            assert_eq!(status, 502);
            seen += 1;
        }
    }
    assert!(seen > 0, "there was an outage");
}

/// The `X-Okapi-*` fields, in an order that does not depend on who wrote them.
fn in_order(answer: &Answer) -> Vec<(&str, &[u8])> {
    let mut fields = answer.okapi_headers();
    fields.sort_unstable();
    fields
}

/// Life 10 s, and a minute more while upstream is down.
const STALE: [(&str, &str); 3] = [
    ("CACHE_TTL", "10s"),
    ("CACHE_STALE_IF_ERROR", "60s"),
    ("UPSTREAM_TIMEOUT", "100ms"),
];
const STALES: &str = "auth_sidecar_requests_total{outcome=\"stale\",reason=\"none\"}";

/// A decision of the desk's, 15 s old, and an upstream that answers no user's call any more.
async fn stale(settings: &[(&str, &str)]) -> (Standin, Sidecar, FilterCall) {
    let (standin, sidecar) = pair(settings).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);
    sidecar.advance(Duration::from_secs(15));
    let of_a_user = |request: &Request| request.headers.has("X-Okapi-Token");
    standin.script_when(1_000, of_a_user, Trouble::Close);
    (standin, sidecar, call)
}

#[tokio::test]
async fn without_the_setting_a_decision_s_life_is_its_end() {
    let (_standin, sidecar, call) = stale(&[("CACHE_TTL", "10s")]).await;

    assert_eq!(sidecar.ask(&call).await.status, 502);
    assert_eq!(sidecar.metric(STALES).await, 0.0);
}

#[tokio::test]
async fn while_upstream_is_down_a_stale_decision_answers_within_its_limit() {
    for trouble in [
        Trouble::Close,
        Trouble::Hang,
        Trouble::Bytes {
            bytes: b"x\r\n\r\n".to_vec(),
            close: true,
        },
    ] {
        let (standin, sidecar) = pair(&STALE).await;
        let call = loans(&standin.access_token("diku", DESK));
        let first = sidecar.ask(&call).await;
        sidecar.advance(Duration::from_secs(15));
        standin.script(1_000, trouble);

        let answer = sidecar.ask(&call).await;

        assert_eq!(answer.status, 202);
        assert_eq!(in_order(&answer), in_order(&first));
        assert_eq!(sidecar.metric(STALES).await, 1.0, "and is counted");
        sidecar.advance(Duration::from_secs(50));
        assert_eq!(sidecar.ask(&call).await.status, 202);
        sidecar.advance(Duration::from_secs(7));
        assert!(sidecar.ask(&call).await.status >= 502, "past its limit");
    }
}

/// Somebody says something: then that is the answer.
#[tokio::test]
async fn a_stale_decision_answers_for_nobody_who_answers() {
    for status in [500, 503, 403, 401, 200] {
        let (standin, sidecar) = pair(&STALE).await;
        let call = loans(&standin.access_token("diku", DESK));
        assert!(!sidecar.hits(&standin, &call).await);
        sidecar.advance(Duration::from_secs(15));
        standin.script(1, Trouble::answer(status, &[], "x"));

        assert_eq!(sidecar.ask(&call).await.status, status);
    }
}

#[tokio::test]
async fn a_stale_decision_never_answers_past_the_token_s_expiry() {
    let (standin, sidecar) = pair(&STALE).await;
    let now = standin.clock().wall();
    let call = loans(&standin.access_token_until("diku", DESK, now + 30));
    assert!(!sidecar.hits(&standin, &call).await);
    standin.script(1_000, Trouble::Close);

    sidecar.advance(Duration::from_secs(20));
    assert_eq!(sidecar.ask(&call).await.status, 202);
    sidecar.advance(Duration::from_secs(12));
    assert_eq!(sidecar.ask(&call).await.status, 502);
}

#[tokio::test]
async fn a_stale_decision_never_answers_after_a_revocation() {
    let settings = [STALE[0], STALE[1], STALE[2], ("ADMIN_TOKEN", ADMIN_TOKEN)];
    for how in ["event", "purge"] {
        let (standin, sidecar, call) = stale(&settings).await;
        let other = loans(&standin.access_token("college", DESK)).tenant("college");
        assert_eq!(sidecar.ask(&call).await.status, 202, "stale");

        if how == "event" {
            let event = system("POST", "/_/tenantpermissions", "diku");
            assert_eq!(sidecar.send(&event).await.status, 202);
        } else {
            let purged = sidecar
                .admin("DELETE", "/cache/diku", Some(ADMIN_TOKEN))
                .await;
            assert_eq!(purged.status, 204);
        }

        assert_eq!(sidecar.ask(&call).await.status, 502, "{how}");
        assert_eq!(sidecar.ask(&other).await.status, 502, "never asked before");
    }
}

#[tokio::test]
async fn a_stale_decision_never_answers_after_a_refusal() {
    let (standin, sidecar) = pair(&STALE).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);
    sidecar.advance(Duration::from_secs(15));
    standin.script(1, Trouble::answer(403, &[], "no"));
    assert_eq!(sidecar.ask(&call).await.status, 403);

    standin.script(1_000, Trouble::Close);
    assert_eq!(sidecar.ask(&call).await.status, 502);
}

/// It was let in, so it announces what it announces.
#[tokio::test]
async fn a_stale_yes_is_an_event_like_any_other() {
    let settings = [STALE[0], STALE[1], STALE[2]];
    let (standin, sidecar) = pair(&settings).await;
    let admin = standin.access_token("diku", crate::support::standin::ADMIN);
    let victim = loans(&standin.access_token("diku", DESK));
    let event = FilterCall::new("PUT", &format!("/users/{DESK}")).token(&admin);
    // The same question as the event's.
    let plain = FilterCall::get("/x").token(&admin);
    assert!(!sidecar.hits(&standin, &plain).await);
    assert!(!sidecar.hits(&standin, &victim).await);
    sidecar.advance(Duration::from_secs(15));
    standin.script(1_000, Trouble::Close);
    assert_eq!(sidecar.ask(&victim).await.status, 202, "stale");

    assert_eq!(sidecar.ask(&event).await.status, 202, "stale");

    assert_eq!(sidecar.ask(&victim).await.status, 502);
}
