//! More decisions than the cache may hold.

use crate::support::raw::Connection;
use crate::support::standin::DESK;
use crate::{loans, pair};

const BOUND: f64 = 1_048_576.0;
const QUESTIONS: usize = 8_000;

#[tokio::test]
async fn a_flood_of_decisions_never_passes_the_bound() {
    let (standin, process) = pair(&[("CACHE_MAX_BYTES", "1MiB"), ("CACHE_TTL", "10m")], None).await;
    let token = standin.access_token("diku", DESK);
    let mut connection = Connection::open(process.addr).await.unwrap();
    assert_eq!(
        connection
            .ask(&loans(&token, 0).request())
            .await
            .unwrap()
            .status,
        202
    );
    let before = process.resident();

    for number in 1..=QUESTIONS {
        let answer = connection
            .ask(&loans(&token, number).request())
            .await
            .unwrap();
        assert_eq!(answer.status, 202);
        if number % 500 == 0 {
            let metrics = process.metrics().await;
            let bytes = metrics.value("auth_sidecar_cache_bytes");
            assert!(bytes <= BOUND, "{bytes} bytes after {number} questions");
            assert!(metrics.value("auth_sidecar_cache_capacity_bytes") <= BOUND);
        }
    }

    let metrics = process.metrics().await;
    let evicted = metrics.value(r#"auth_sidecar_evictions_total{cause="capacity"}"#);
    let entries = metrics.value("auth_sidecar_cache_entries");
    assert!(
        evicted > 0.0 && entries > 500.0,
        "{evicted} evicted, {entries} left: room is made, and used"
    );
    assert!(
        process.resident() < before + 8 * 1024,
        "{} KiB, {before} before",
        process.resident()
    );
    // Who is evicted is asked again.
    assert_eq!(
        connection
            .ask(&loans(&token, 0).request())
            .await
            .unwrap()
            .status,
        202
    );
}
