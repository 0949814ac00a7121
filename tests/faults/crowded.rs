//! More connections than there are file descriptors, and as many as one process can be asked to bear.

use crate::support::raw::{Connection, Request};
use crate::support::standin::DESK;
use crate::{loans, pair};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

const OPEN_FILES: u32 = 48;

/// The process stands still, as one that gets no processor for a while: nobody is accepted meanwhile.
#[tokio::test]
async fn a_gateway_that_opens_all_its_connections_at_once_need_not_try_twice() {
    const BURST: usize = 600;
    let (standin, process) = pair(&[], None).await;
    let call = loans(&standin.access_token("diku", DESK), 1).request();
    process.kill("-STOP");

    let mut burst = Vec::with_capacity(BURST);
    for _ in 0..BURST {
        let connected = timeout(Duration::from_millis(700), Connection::open(process.addr)).await;
        burst.push(connected.ok().and_then(Result::ok));
    }
    process.kill("-CONT");

    let late = burst
        .iter()
        .filter(|connection| connection.is_none())
        .count();
    assert_eq!(late, 0, "so many had no room in the queue");
    for connection in burst.iter_mut().flatten() {
        assert_eq!(connection.ask(&call).await.unwrap().status, 202);
    }
}

#[tokio::test]
async fn without_file_descriptors_who_is_connected_is_served_and_the_rest_waits() {
    let settings = [("UPSTREAM_POOL_IDLE_TIMEOUT", "100ms")];
    let (standin, process) = pair(&settings, Some(OPEN_FILES)).await;
    let token = standin.access_token("diku", DESK);
    let request = |number| loans(&token, number).request();
    let mut first = Connection::open(process.addr).await.unwrap();
    assert_eq!(first.ask(&request(1)).await.unwrap().status, 202);
    assert!(
        process
            .comes_to(
                "auth_sidecar_upstream_connections",
                0.0,
                Duration::from_secs(10)
            )
            .await
    );

    let mut crowd = Vec::new();
    for _ in 0..80 {
        crowd.push(Connection::open(process.addr).await.unwrap());
    }
    // The admin port is out of descriptors as well, so nobody can be asked whether it is full: hits tell.
    let full = Instant::now();
    while process.open_files() < OPEN_FILES as usize {
        assert!(full.elapsed() < Duration::from_secs(10), "it never fills");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..20 {
        assert_eq!(
            first.ask(&request(1)).await.unwrap().status,
            202,
            "a hit needs no descriptor"
        );
    }
    let began = Instant::now();
    assert_eq!(
        first.ask(&request(2)).await.unwrap().status,
        502,
        "a miss needs one"
    );
    assert!(began.elapsed() < Duration::from_secs(5));

    // Those that wait in the queue are served when others go, without help.
    let mut last = crowd.pop().unwrap();
    last.send(&request(1).to_bytes()).await.unwrap();
    drop(crowd);
    assert_eq!(last.answer(false).await.unwrap().status, 202);
    assert_eq!(first.ask(&request(2)).await.unwrap().status, 202);
    let mut new = Connection::open(process.addr).await.unwrap();
    assert_eq!(new.ask(&request(1)).await.unwrap().status, 202);
    assert!(
        process
            .comes_to("auth_sidecar_connections", 3.0, Duration::from_secs(10))
            .await
    );
}

#[tokio::test]
async fn ten_thousand_slow_and_idle_connections_keep_nobody_waiting() {
    const CROWD: u32 = 10_000;
    let limit = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    if limit < u64::from(CROWD) + 500 {
        eprintln!("NOT RUN: 10,000 connections: the hard limit of open files is {limit}");
        return;
    }
    let (standin, process) = pair(&[], None).await;
    let token = standin.access_token("diku", DESK);
    let call: Request = loans(&token, 1).request();
    let mut connection = Connection::open(process.addr).await.unwrap();
    assert_eq!(connection.ask(&call).await.unwrap().status, 202);
    let (before, files) = (process.resident(), process.open_files());

    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let mut stream = TcpStream::connect(process.addr).await.unwrap();
        if number % 2 == 0 {
            stream
                .write_all(b"GET /slow HTTP/1.1\r\nX-Okapi-Tok")
                .await
                .unwrap();
        }
        crowd.push(stream);
        if number % 250 == 249 {
            // Quicker than it accepts would only fill the queue, and the kernel's timers would be the test.
            let so_far = f64::from(number + 2);
            assert!(
                process
                    .comes_to("auth_sidecar_connections", so_far, Duration::from_secs(30))
                    .await
            );
        }
    }
    assert!(
        process
            .comes_to(
                "auth_sidecar_connections",
                f64::from(CROWD + 1),
                Duration::from_secs(30)
            )
            .await
    );
    for _ in 0..200 {
        let began = Instant::now();
        assert_eq!(connection.ask(&call).await.unwrap().status, 202);
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    }
    let mut new = Connection::open(process.addr).await.unwrap();
    assert_eq!(
        new.ask(&loans(&token, 2).request()).await.unwrap().status,
        202
    );
    let each = process.resident().saturating_sub(before) * 1024 / u64::from(CROWD);
    assert!(each < 24 * 1024, "{each} bytes each");

    drop(crowd);
    assert!(
        process
            .comes_to("auth_sidecar_connections", 2.0, Duration::from_secs(30))
            .await
    );
    // The two that are left, and the admin port's that counts.
    assert!(process.open_files() <= files + 4);
    assert_eq!(new.ask(&call).await.unwrap().status, 202);
}
