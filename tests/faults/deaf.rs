//! An auth module's port that never accepts.

use crate::support::raw::{self, Request};
use crate::support::standin::call::FilterCall;
use crate::{Process, binary};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

/// A listener with room for so many connections that nobody accepts.
fn deaf(backlog: u32) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a test that runs");
    socket
        .bind("127.0.0.1:0".parse().expect("a test that runs"))
        .expect("a test that runs");
    socket.listen(backlog).expect("a test that runs")
}

/// Accepts from now on, and refuses whatever is asked.
fn wake(listener: TcpListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while raw::find(&bytes, b"\r\n\r\n").is_none() {
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let no =
                    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                // Who gave up meanwhile does not hear it.
                let _ = stream.write_all(no).await;
            });
        }
    });
}

fn call() -> Request {
    FilterCall::get("/things").token("a.b.c").request()
}

/// Asks, and says how long the answer took.
async fn asked(process: &Process) -> (u16, Duration) {
    let began = Instant::now();
    let answer = raw::ask(process.addr, &call()).await.expect("an answer");
    (answer.status, began.elapsed())
}

async fn recovers(process: &Process) {
    let began = Instant::now();
    while asked(process).await.0 != 403 {
        assert!(began.elapsed() < Duration::from_secs(10), "no recovery");
    }
}

#[tokio::test]
async fn a_port_that_never_accepts_is_504_in_time() {
    let listener = deaf(128);
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let settings = [
        ("UPSTREAM_TIMEOUT", "1s"),
        ("UPSTREAM_CONNECT_TIMEOUT", "1s"),
    ];
    let process = Process::start(binary(), &upstream, &settings, None).await;

    let (status, took) = asked(&process).await;

    assert_eq!(status, 504);
    assert!(
        took >= Duration::from_millis(900) && took < Duration::from_secs(5),
        "{took:?}"
    );
    wake(listener);
    recovers(&process).await;
}

#[tokio::test]
async fn a_port_whose_queue_is_full_is_504_in_time() {
    let listener = deaf(1);
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(connected) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        queue.push(connected.unwrap());
        assert!(queue.len() < 50, "the queue is never full");
    }
    let settings = [
        ("UPSTREAM_TIMEOUT", "5s"),
        ("UPSTREAM_CONNECT_TIMEOUT", "1s"),
    ];
    let process = Process::start(binary(), &format!("http://{address}"), &settings, None).await;

    let (status, took) = asked(&process).await;

    assert_eq!(status, 504);
    assert!(
        took >= Duration::from_millis(900) && took < Duration::from_secs(4),
        "{took:?}"
    );
    let metrics = process.metrics().await;
    let failures = r#"auth_sidecar_upstream_failures_total{cause="connect_timeout"}"#;
    assert!(metrics.value(failures) >= 1.0);
    wake(listener);
    recovers(&process).await;
}
