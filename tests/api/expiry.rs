//! How long a decision lives: its ttl by either clock, the token's `exp` by the wall clock, and not a moment longer.

use crate::asking::{Pair, unsigned, unsigned_for};
use crate::harness::loans;
use crate::support::playback::Playback;
use crate::support::raw::{Answer, Connection};
use crate::support::standin::call::FilterCall;
use crate::support::standin::token::Claims;
use crate::support::standin::{DESK, MUELLER, Standin};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: i64 = 3_600_000;
/// No background refresh: what is seen is the decision itself.
const PLAIN: [(&str, &str); 1] = [("CACHE_REFRESH_AHEAD", "1")];

/// Lets time pass for both.
fn pass(pair: &Pair<Standin>, seconds: u32) {
    pair.sidecar.advance(SECOND * seconds);
    pair.upstream.clock().advance(SECOND * seconds);
}

#[tokio::test]
async fn a_token_is_refused_as_soon_as_it_expires_whatever_is_left_of_the_ttl() {
    let pair = Pair::start(&PLAIN).await;
    let now = pair.upstream.clock().wall();
    let call = loans(&pair.upstream.access_token_until("diku", DESK, now + 30));
    let first = pair.miss(&call).await;

    pass(&pair, 15);
    pair.hit(&call, &first).await;
    pass(&pair, 16);

    let refused = pair.forwarded(&call).await;
    assert_eq!((refused.status, refused.text()), (401, "Invalid token"));
}

#[tokio::test]
async fn a_skew_is_taken_off_the_expiry() {
    let pair = Pair::start(&[("EXPIRY_SKEW", "20s"), ("CACHE_REFRESH_AHEAD", "1")]).await;
    let now = pair.upstream.clock().wall();
    let call = loans(&pair.upstream.access_token_until("diku", DESK, now + 40));
    let first = pair.miss(&call).await;

    pass(&pair, 10);
    pair.hit(&call, &first).await;
    pass(&pair, 11);

    // Good by the module's clock, and by ours, but not kept any more.
    let answer = pair.forwarded(&call).await;
    assert_eq!(answer.status, 202);
}

#[tokio::test]
async fn an_expired_token_that_upstream_still_takes_is_not_stored() {
    let pair = Pair::start(&[]).await;
    let now = pair.upstream.clock().wall();
    let call = loans(&pair.upstream.access_token_until("diku", DESK, now - 60));
    // The module's clock is behind.
    pair.upstream
        .clock()
        .set_wall(Duration::from_secs((now - 120).unsigned_abs()));

    let answer = pair.forwarded(&call).await;

    assert_eq!(answer.status, 202);
    let series = r#"auth_sidecar_not_stored_total{reason="expired"}"#;
    assert!((pair.sidecar.metric(series).await - 2.0).abs() < 0.5);
}

#[tokio::test]
async fn a_module_token_lives_for_the_ttl_and_hits_do_not_extend_it() {
    let pair = Pair::start(&PLAIN).await;
    let call = loans(&pair.upstream.module_token("diku", DESK, "mod-x-1", &[]));
    let first = pair.miss(&call).await;

    for _ in 0..5 {
        pass(&pair, 11);
        pair.hit(&call, &first).await;
    }
    pass(&pair, 6);

    pair.miss(&call).await;
}

#[tokio::test]
async fn the_ttl_is_the_settings() {
    let pair = Pair::start(&[("CACHE_TTL", "200s"), ("CACHE_REFRESH_AHEAD", "1")]).await;
    let call = loans(&pair.upstream.module_token("diku", DESK, "mod-x-1", &[]));
    let first = pair.miss(&call).await;

    pass(&pair, 195);
    pair.hit(&call, &first).await;
    pass(&pair, 6);

    pair.miss(&call).await;
}

#[tokio::test]
async fn a_decision_that_ends_while_a_body_is_awaited_answers_no_more() {
    let pair = Pair::start(&[("CACHE_TTL", "400ms"), ("CACHE_REFRESH_AHEAD", "1")]).await;
    let call = loans(&pair.upstream.module_token("diku", DESK, "mod-x-1", &[]));
    let mut chunked = call.request();
    chunked.headers.push("Transfer-Encoding", "chunked");
    let bytes = chunked.to_bytes();
    let (head, last_chunk) = bytes.split_at(bytes.len() - b"0\r\n\r\n".len());
    let mut connection = pair.sidecar.connect().await;
    pair.miss(&call).await;
    let asked = pair.upstream.calls().total;

    // The head comes while the decision is good, the body's end after it. A slow machine makes it later still.
    connection.send(head).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(500)).await;
    connection.send(last_chunk).await.expect("sent");
    let answer = connection.answer(false).await.expect("an answer");

    assert_eq!(answer.status, 202);
    assert_eq!(pair.upstream.calls().total, asked + 1);
}

#[tokio::test]
async fn jitter_only_shortens_a_life() {
    let pair = Pair::start(&[
        ("CACHE_TTL", "100s"),
        ("CACHE_TTL_JITTER", "0.5"),
        ("CACHE_REFRESH_AHEAD", "1"),
    ])
    .await;
    let token = pair.upstream.module_token("diku", DESK, "mod-x-1", &[]);
    let calls: Vec<_> = (0..40)
        .map(|number| loans(&token).desired(&[&format!("p{number}")]))
        .collect();
    for call in &calls {
        pair.miss(call).await;
    }
    let alive = async || {
        let mut alive = 0;
        for call in &calls {
            alive += u64::from(pair.asked(&call.request()).await.1 == 0);
        }
        alive
    };

    pass(&pair, 45);
    assert_eq!(alive().await, 40);
    pass(&pair, 30);
    let after = alive().await;
    assert!((1..40).contains(&after), "{after} of 40");
    // None is left once the whole ttl is over, of those that were stored at first.
    pass(&pair, 101);
    assert_eq!(alive().await, 0);
}

#[tokio::test]
async fn a_token_whose_payload_cannot_be_read_is_not_stored() {
    let pair = Pair::yes(&[]).await;

    for token in ["junk", "a.b.c", &unsigned("{"), &unsigned(r#"{"exp":"1"}"#)] {
        let answer = pair.forwarded(&loans(token)).await;
        assert_eq!(answer.status, 202);
    }
}

#[tokio::test]
async fn a_name_with_umlauts_does_not_hide_the_expiry() {
    let pair = Pair::start(&PLAIN).await;
    let now = pair.upstream.clock().wall();
    let claims = Claims::access("diku", "müller ÿþ?>ÿ", MUELLER, now, now + 30);
    let token = pair.upstream.world(|world| world.key().sign(&claims));
    let payload = token.split('.').nth(1).expect("a payload");
    assert!(payload.contains('_') || payload.contains('-'));
    let call = loans(&token);
    let first = pair.miss(&call).await;

    pass(&pair, 15);
    pair.hit(&call, &first).await;
    pass(&pair, 16);

    assert_eq!(pair.miss(&call).await.status, 401);
}

#[tokio::test]
async fn a_ttl_of_zero_stores_nothing() {
    let pair = Pair::start(&[("CACHE_TTL", "0s")]).await;
    let call = loans(&pair.upstream.access_token("diku", DESK));

    for _ in 0..3 {
        assert_eq!(pair.miss(&call).await.status, 202);
    }

    assert!(pair.sidecar.metric("auth_sidecar_cache_entries").await < 0.5);
    assert!(pair.sidecar.metric("auth_sidecar_cache_callers").await < 0.5);
}

/// A decision just stored for a token that does not expire, with a ttl of 60 s.
async fn stored() -> (Pair<Playback>, FilterCall, Answer) {
    let pair = Pair::yes(&PLAIN).await;
    let call = loans(&unsigned_for("u-1"));
    let first = pair.miss(&call).await;
    pair.hit(&call, &first).await;
    (pair, call, first)
}

#[tokio::test]
async fn no_decision_outlives_its_ttl_by_either_clock() {
    // Milliseconds that the monotonic and the wall clock move, and whether the decision is still good.
    for (mono, wall, good) in [
        (40_000, 40_000, true),
        (61_000, 61_000, false),
        // A wall clock that was set forward, by much or by little.
        (0, HOUR, false),
        (1_000, 61_000, false),
        (1_000, 50_000, true),
        // A machine that was suspended: its monotonic clock stood still.
        (0, 61_000, false),
        // A wall clock that was set back says nothing about how old a decision is.
        (1_000, -HOUR, false),
        (61_000, -HOUR, false),
        (61_000, 1_000, false),
        (61_000, -1_000, false),
    ] {
        let (pair, call, first) = stored().await;
        pair.sidecar.clock.shift(mono, wall);
        if good {
            pair.hit(&call, &first).await;
        } else {
            pair.miss(&call).await;
        }
    }
}

#[tokio::test]
async fn a_clock_set_back_and_forth_revives_nothing_beyond_its_life() {
    let (pair, call, first) = stored().await;

    pair.sidecar.clock.shift(10_000, -HOUR);
    pair.sidecar.clock.shift(10_000, HOUR);
    // Nobody asked meanwhile, so nothing was forgotten; 20 s are over by one clock and none by the other.
    pair.hit(&call, &first).await;
    pair.sidecar.clock.shift(41_000, 0);
    pair.miss(&call).await;
}

#[tokio::test]
async fn what_is_stored_under_a_wrong_clock_lives_no_longer_than_its_ttl() {
    let pair = Pair::yes(&PLAIN).await;
    let call = loans(&unsigned_for("u-1"));
    pair.sidecar.clock.shift(0, 5 * HOUR);
    let first = pair.miss(&call).await;
    pair.hit(&call, &first).await;

    // The clock is put right: the decision seems to come from the future.
    pair.sidecar.clock.shift(0, -5 * HOUR);

    let first = pair.miss(&call).await;
    pair.hit(&call, &first).await;
    pair.sidecar.clock.shift(61_000, 0);
    pair.miss(&call).await;
}

#[tokio::test]
async fn an_expiry_holds_by_the_wall_clock_alone() {
    let pair = Pair::start(&PLAIN).await;
    let now = pair.upstream.clock().wall();
    let call = loans(&pair.upstream.access_token_until("diku", DESK, now + 30));
    let first = pair.miss(&call).await;

    // The monotonic clock says one second, the wall clock thirty-one.
    pair.sidecar.clock.shift(1_000, 10_000);
    pair.hit(&call, &first).await;
    pair.sidecar.clock.shift(0, 21_000);

    pair.miss(&call).await;
}

#[tokio::test]
async fn a_flood_of_garbage_tokens_evicts_no_decision() {
    let pair = Pair::start(&[("CACHE_MAX_BYTES", "1MiB"), ("CACHE_TTL", "10m")]).await;
    let token = pair.upstream.module_token("diku", DESK, "mod-x-1", &[]);
    let calls: Vec<_> = (0..20)
        .map(|number| loans(&token).desired(&[&format!("p{number}")]))
        .collect();
    let mut answers = Vec::new();
    for call in &calls {
        answers.push(pair.miss(call).await);
    }
    let callers = pair.sidecar.metric("auth_sidecar_cache_callers").await;

    // Three times as much as the whole cache holds.
    let mut connection = Connection::open(pair.sidecar.addr)
        .await
        .expect("a connection");
    let padding = "x".repeat(2_000);
    for number in 0..1_500 {
        let garbage = loans(&format!("{number}.{padding}.s"));
        let answer = connection.ask(&garbage.request()).await.expect("an answer");
        assert_eq!(answer.status, 401);
    }

    for (call, answer) in calls.iter().zip(&answers) {
        pair.hit(call, answer).await;
    }
    let now = pair.sidecar.metric("auth_sidecar_cache_callers").await;
    assert!((now - callers).abs() < 0.5, "{now} callers");
}
