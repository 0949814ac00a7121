//! Every recorded exchange through the sidecar: nobody can tell that it stands there, and upstream cannot either.

use crate::harness::{ADMIN_TOKEN, Sidecar};
use crate::rule;
use crate::support::golden::{self, Exchange};
use crate::support::playback::Playback;
use crate::support::raw::Answer;
use crate::wire_rules::{answer_differs, request_differs};
use std::collections::HashSet;

/// As many as were recorded, and how they split: if fewer are tried, something was lost on the way.
const EXCHANGES: usize = 372;
const HITS: usize = 248;
const NO_HITS: usize = 124;
/// Hits when each file passes once, in order.
const HITS_IN_ORDER: usize = 120;

/// A sidecar whose cache a test can empty, in front of an upstream that plays recordings.
pub(crate) async fn played() -> (Playback, Sidecar) {
    let playback = Playback::start().await;
    let settings = [("REVOCATION_LISTEN", "false"), ("ADMIN_TOKEN", ADMIN_TOKEN)];
    let sidecar = Sidecar::start(&playback.url(), &settings).await;
    // The probe at the start is not part of any test.
    playback.seen(1).await;
    playback.forget_calls();
    (playback, sidecar)
}

fn name(exchange: &Exchange) -> String {
    format!(
        "{}.ndjson, line {}, {}",
        exchange.file,
        exchange.index + 1,
        exchange.scenario
    )
}

/// Asks as recorded while upstream says what was recorded; tells whether upstream was asked, and what is wrong.
async fn pass(
    playback: &Playback,
    sidecar: &Sidecar,
    exchange: &Exchange,
    wrong: &mut Vec<String>,
) -> (Answer, bool) {
    playback.play(&exchange.answer);
    playback.forget_calls();
    let answer = sidecar.send(&exchange.request).await;
    let heard = playback.heard();
    let mut note = |what: Option<String>| {
        wrong.extend(what.map(|what| format!("{}: {what}", name(exchange))));
    };
    note(answer_differs(&exchange.answer, &answer, &exchange.request));
    let upstream = playback.addr().to_string();
    note((heard.len() > 1).then(|| format!("{} calls", heard.len())));
    for heard in &heard {
        note(
            request_differs(&exchange.request, heard, &upstream).map(|what| format!("up: {what}")),
        );
    }
    (answer, !heard.is_empty())
}

#[tokio::test]
async fn every_recorded_exchange_passes_twice_as_if_nobody_stood_between() {
    let (playback, sidecar) = played().await;
    let (mut exchanges, mut hits, mut no_hits) = (0, 0, 0);
    let mut wrong = Vec::new();

    for exchange in golden::all() {
        let purged = sidecar.admin("DELETE", "/cache", Some(ADMIN_TOKEN)).await;
        assert_eq!(purged.status, 204);
        let (_, asked) = pass(&playback, &sidecar, &exchange, &mut wrong).await;
        assert!(asked, "{}: answered out of nothing", name(&exchange));
        let (_, asked) = pass(&playback, &sidecar, &exchange, &mut wrong).await;

        exchanges += 1;
        let hit = rule::may_be_answered(&exchange.request)
            && rule::may_be_kept(&exchange.request, &exchange.answer);
        if hit {
            hits += 1;
        } else {
            no_hits += 1;
        }
        if asked == hit {
            let what = if hit { "no hit" } else { "a hit" };
            wrong.push(format!("{}: {what} the second time", name(&exchange)));
        }
    }
    eprintln!("{exchanges} recorded exchanges: {hits} hits the second time, {no_hits} asked again");

    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(exchanges >= EXCHANGES && hits >= HITS && no_hits >= NO_HITS);
}

#[tokio::test]
async fn every_recorded_file_in_its_order_passes_as_if_nobody_stood_between() {
    let mut wrong = Vec::new();
    let mut hits = 0;

    for file in ["tenant", "login", "check-out", "filter", "events"] {
        let (playback, sidecar) = played().await;
        let mut kept = HashSet::new();
        for exchange in golden::exchanges(file) {
            let key = rule::key(&exchange.request);
            let answerable = rule::may_be_answered(&exchange.request);
            let hit = answerable && kept.contains(&key);
            let (_, asked) = pass(&playback, &sidecar, &exchange, &mut wrong).await;
            if asked == hit {
                let what = if hit { "no hit" } else { "a hit" };
                wrong.push(format!("{}: {what}", name(&exchange)));
            }
            if answerable && rule::may_be_kept(&exchange.request, &exchange.answer) {
                kept.insert(key);
            }
            hits += usize::from(hit);
        }
    }
    eprintln!("{hits} recorded exchanges were hits in their order");

    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(hits >= HITS_IN_ORDER);
}
