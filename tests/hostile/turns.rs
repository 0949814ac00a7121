//! Answers on one connection: each request gets its own, in its turn, whichever way it is answered, and nobody gets
//! another's.

use crate::harness::{LOANS, loans, pair};
use crate::support::standin::DESK;
use std::io::Write;
use tokio::net::TcpStream;

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
