//! SIGTERM in the middle of load.

use crate::support::raw::Connection;
use crate::support::standin::DESK;
use crate::{loans, pair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A request that was written so long before the signal has been read.
const READ: Duration = Duration::from_millis(100);

#[tokio::test]
async fn whoever_waits_for_the_auth_module_gets_its_answer() {
    let (standin, mut process) = pair(&[("SHUTDOWN_TIMEOUT", "20s")], None).await;
    let token = standin.access_token("diku", DESK);
    let gate = standin.hold_when(|request| request.target.starts_with("/circulation"));
    let mut waiting = Vec::new();
    for number in 0..32 {
        let mut connection = Connection::open(process.addr).await.unwrap();
        connection
            .send(&loans(&token, number).request().to_bytes())
            .await
            .unwrap();
        waiting.push(connection);
    }
    gate.arrived(32).await;

    process.signal();
    // It stops accepting, and waits.
    while Connection::open(process.addr).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gate.release();

    for mut connection in waiting {
        assert_eq!(connection.answer(false).await.unwrap().status, 202);
    }
    let status = process.ended().await.expect("it ends");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn whoever_waits_too_long_is_told_503_and_the_process_ends() {
    let (standin, mut process) = pair(&[("SHUTDOWN_TIMEOUT", "1s")], None).await;
    let token = standin.access_token("diku", DESK);
    let gate = standin.hold_when(|request| request.target.starts_with("/circulation"));
    let mut connection = Connection::open(process.addr).await.unwrap();
    connection
        .send(&loans(&token, 1).request().to_bytes())
        .await
        .unwrap();
    gate.arrived(1).await;

    let began = Instant::now();
    process.signal();

    assert_eq!(connection.answer(false).await.unwrap().status, 503);
    assert_eq!(process.ended().await.expect("it ends").code(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
}

/// Hits and misses in a closed loop on sixteen connections. Okapi learns from the closing connection; what it had sent
/// before the signal has its answer.
#[tokio::test]
async fn nothing_that_was_read_before_the_signal_is_left_unanswered() {
    let (standin, mut process) = pair(&[], None).await;
    standin.set_delay(Duration::from_millis(20));
    let token = standin.access_token("diku", DESK);
    let stopping = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for client in 0..16_usize {
        let (token, stopping, addr) = (token.clone(), stopping.clone(), process.addr);
        clients.push(tokio::spawn(async move {
            let mut connection = Connection::open(addr).await.unwrap();
            let mut answered = 0_usize;
            loop {
                // Every fourth is a question of its own.
                let number = if answered % 4 == 3 {
                    1_000 * client + answered
                } else {
                    0
                };
                let sent = Instant::now();
                match connection.ask(&loans(&token, number).request()).await {
                    Ok(answer) => {
                        assert_eq!(answer.status, 202);
                        answered += 1;
                        if answer.headers.has_word("connection", "close") {
                            return (answered, None);
                        }
                    }
                    Err(error) => {
                        assert!(
                            stopping.load(Ordering::SeqCst),
                            "before the signal: {error}"
                        );
                        return (answered, Some(sent));
                    }
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;

    stopping.store(true, Ordering::SeqCst);
    let signalled = Instant::now();
    process.signal();

    for client in clients {
        let (answered, lost) = client.await.unwrap();
        assert!(answered > 4, "the load runs");
        if let Some(sent) = lost {
            assert!(
                sent + READ > signalled,
                "a request that was read got no answer"
            );
        }
    }
    assert_eq!(process.ended().await.expect("it ends").code(), Some(0));
}
