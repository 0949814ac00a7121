//! What is left when something fails half way: at least one entry that works, whatever failed and wherever.

use std::sync::Arc;

use crate::support::auth::Auth;
use crate::support::cli::{Cli, ended, send_signal};
use crate::support::okapi::{DIRECT_URL, Fault, Hold, MODULE, OURS, Okapi, SIDECAR_URL};
use crate::switch::{pairs, three_pods};

/// Changes of a register run: park, forget (the rehearsal), add, park, remove.
const REGISTER_CHANGES: usize = 5;
/// Changes of an unregister run: add, remove, forget.
const UNREGISTER_CHANGES: usize = 3;

#[track_caller]
fn all_well(okapi: &Okapi) {
    assert!(
        okapi.has_a_working_entry(),
        "{:?}",
        okapi.entries_of(MODULE)
    );
    assert!(
        okapi.world().fewest >= 1,
        "there was a moment with no entry"
    );
}

async fn registered() -> (Okapi, Auth, Vec<Auth>) {
    let all = three_pods().await;
    Cli::register(&all.0).run().await.with_code(0);
    all.0.world().changes.clear();
    all
}

#[tokio::test]
async fn a_change_that_fails_once_is_made_again() {
    for number in 0..REGISTER_CHANGES {
        for fault in [Fault::Error, Fault::NoAnswer] {
            let (okapi, ..) = three_pods().await;
            okapi.world().faults.insert(number, fault);

            Cli::register(&okapi).run().await.with_code(0);

            all_well(&okapi);
            assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
        }
    }
}

#[tokio::test]
async fn a_sidecar_that_dies_after_any_step_leaves_the_direct_entry() {
    for number in 0..REGISTER_CHANGES {
        let (okapi, ..) = three_pods().await;
        okapi
            .world()
            .faults
            .insert(number, Fault::Down(SIDECAR_URL.to_owned()));

        let ended = Cli::register(&okapi)
            .args(["--output", "json"])
            .run()
            .await
            .with_code(5);

        all_well(&okapi);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(MODULE, DIRECT_URL)]),
            "step {number}"
        );
        assert_eq!(
            ended.json()["entries_after"],
            ended.json()["entries_before"]
        );
        let parked = okapi.entries_of("parked-mod-authtoken-2.17.0");
        assert!(parked.is_empty(), "{parked:?}");
    }
}

#[tokio::test]
async fn a_direct_entry_that_dies_after_any_step_leaves_the_sidecar() {
    for number in 0..UNREGISTER_CHANGES - 1 {
        let (okapi, ..) = registered().await;
        okapi
            .world()
            .faults
            .insert(number, Fault::Down(DIRECT_URL.to_owned()));

        Cli::unregister(&okapi)
            .args(["--restore"])
            .run()
            .await
            .with_code(5);

        all_well(&okapi);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(OURS, SIDECAR_URL)]),
            "step {number}"
        );
    }
}

#[tokio::test]
async fn a_sidecar_without_an_upstream_is_taken_out_again() {
    let (okapi, _, sidecars) = three_pods().await;
    sidecars[1].fail_with(502);

    let ended = Cli::register(&okapi).run().await.with_code(5);

    ended.saying(&["real call", "502", "upstream does not answer"]);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    all_well(&okapi);
}

#[tokio::test]
async fn a_pod_without_a_sidecar_is_found_before_anybody_is_sent_there() {
    let (okapi, _, sidecars) = three_pods().await;
    okapi.take_down(1, SIDECAR_URL);

    let ended = Cli::register(&okapi).run().await.with_code(5);

    ended.saying(&["does not reach", "Connection refused"]);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    let calls: usize = sidecars.iter().map(Auth::filter_calls).sum();
    assert_eq!(calls, 0, "no request of a tenant went to a sidecar");
}

#[tokio::test]
async fn a_broken_sidecar_that_is_alone_is_left_to_the_operator() {
    let (okapi, ..) = registered().await;
    okapi.take_down_everywhere(SIDECAR_URL);

    let ended = Cli::register(&okapi).run().await.with_code(5);

    ended.saying(&["proxyClient failure"]);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    all_well(&okapi);
}

#[tokio::test]
async fn a_broken_sidecar_beside_a_direct_entry_is_taken_out() {
    let (okapi, ..) = three_pods().await;
    okapi.add(MODULE, OURS, SIDECAR_URL);
    okapi.take_down_everywhere(SIDECAR_URL);

    Cli::register(&okapi)
        .run()
        .await
        .with_code(5)
        .saying(&["was taken out"]);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
}

#[tokio::test]
async fn a_good_sidecar_is_not_taken_out_for_a_broken_direct_entry() {
    let (okapi, ..) = three_pods().await;
    okapi.add(MODULE, OURS, SIDECAR_URL);
    okapi.take_down_everywhere(DIRECT_URL);

    Cli::register(&okapi).run().await.with_code(5);

    assert_eq!(
        okapi.entries_of(MODULE),
        pairs(&[(MODULE, DIRECT_URL), (OURS, SIDECAR_URL)])
    );
}

#[tokio::test]
async fn a_sidecar_that_never_answers_is_taken_out_again() {
    let (okapi, _, sidecars) = three_pods().await;
    sidecars[0].hang();

    let quick = ["--timeout", "1s", "--okapi-pods", "3"];
    let ended = Cli::register(&okapi).args(quick).run().await.with_code(5);

    ended.saying(&["real call", "no answer"]);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
}

#[tokio::test]
async fn a_failed_move_to_another_url_ends_where_it_began() {
    for number in 0..6 {
        let (okapi, _, sidecars) = registered().await;
        okapi.resolve("http://other:8071", sidecars[0].addr);
        let fault = Fault::Down("http://other:8071".to_owned());
        okapi.world().faults.insert(number, fault);

        let ended = Cli::register(&okapi)
            .args(["--url", "http://other:8071"])
            .run()
            .await;

        all_well(&okapi);
        ended.with_code(5);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(OURS, SIDECAR_URL)]),
            "step {number}"
        );
    }
}

#[tokio::test]
async fn a_signal_after_any_change_puts_everything_back() {
    for number in 0..REGISTER_CHANGES {
        for signal in ["TERM", "INT"] {
            let (okapi, ..) = three_pods().await;
            let hold = Arc::new(Hold::default());
            okapi
                .world()
                .faults
                .insert(number, Fault::Hold(hold.clone()));

            let running = Cli::register(&okapi).start();
            hold.reached.notified().await;
            send_signal(&running, signal).await;
            hold.release.notify_one();
            let ended = ended(running).await.with_code(7);

            all_well(&okapi);
            ended.saying(&["interrupted by SIG", signal]);
            assert_eq!(
                okapi.entries_of(MODULE),
                pairs(&[(MODULE, DIRECT_URL)]),
                "change {number}"
            );
        }
    }
}

#[tokio::test]
async fn a_run_that_was_killed_is_finished_by_the_next_one() {
    for number in 0..REGISTER_CHANGES {
        let (okapi, ..) = three_pods().await;
        let hold = Arc::new(Hold::default());
        okapi
            .world()
            .faults
            .insert(number, Fault::Hold(hold.clone()));

        let mut running = Cli::register(&okapi).start();
        hold.reached.notified().await;
        running.kill().await.unwrap();
        all_well(&okapi);

        let killed_at = okapi.entries_of(MODULE);
        Cli::register(&okapi).run().await.with_code(0);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(OURS, SIDECAR_URL)]),
            "{killed_at:?}"
        );
        Cli::unregister(&okapi)
            .args(["--restore"])
            .run()
            .await
            .with_code(0);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(MODULE, DIRECT_URL)]),
            "{killed_at:?}"
        );
        all_well(&okapi);
    }
}

#[tokio::test]
async fn an_unregister_run_that_was_killed_is_finished_by_the_next_one() {
    for number in 0..UNREGISTER_CHANGES {
        let (okapi, ..) = registered().await;
        let hold = Arc::new(Hold::default());
        okapi
            .world()
            .faults
            .insert(number, Fault::Hold(hold.clone()));

        let mut running = Cli::unregister(&okapi).args(["--restore"]).start();
        hold.reached.notified().await;
        running.kill().await.unwrap();
        all_well(&okapi);

        Cli::unregister(&okapi)
            .args(["--restore"])
            .run()
            .await
            .with_code(0);
        assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
        all_well(&okapi);
    }
}

#[tokio::test]
async fn when_it_cannot_be_put_back_a_person_is_told_what_to_do() {
    let (okapi, ..) = three_pods().await;
    // The sidecar dies once the direct entry is gone, and Okapi makes no change any more.
    let last = REGISTER_CHANGES - 1;
    okapi
        .world()
        .faults
        .insert(last, Fault::Down(SIDECAR_URL.to_owned()));
    okapi.world().faults.insert(last + 1, Fault::ErrorForEver);

    let ended = Cli::register(&okapi)
        .args(["--put-back-for", "1s"])
        .run()
        .await
        .with_code(6);

    ended.saying(&[
        "could not be put back",
        "POST what is missing",
        r#""url":"http://mod-authtoken""#,
    ]);
}
