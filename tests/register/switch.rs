//! What the two commands do when nothing goes wrong.

use serde_json::json;

use crate::support::auth::Auth;
use crate::support::cli::Cli;
use crate::support::okapi::{DIRECT_URL, MODULE, OURS, Okapi, SIDECAR_URL};

pub(crate) fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = entries
        .iter()
        .map(|(i, u)| ((*i).to_owned(), (*u).to_owned()))
        .collect();
    pairs.sort();
    pairs
}

/// Three pods, each with its own sidecar.
pub(crate) async fn three_pods() -> (Okapi, Auth, Vec<Auth>) {
    let direct = Auth::start().await;
    let mut sidecars = Vec::new();
    for _ in 0..3 {
        sidecars.push(Auth::start().await);
    }
    let addresses: Vec<_> = sidecars.iter().map(|s| s.addr).collect();
    let okapi = Okapi::start(direct.addr, &addresses).await;
    (okapi, direct, sidecars)
}

const PARKED: &str = "parked-mod-authtoken-2.17.0";

#[tokio::test]
async fn it_ends_with_the_sidecar_alone_and_a_record_of_what_was() {
    let (okapi, _direct, sidecars) = three_pods().await;

    let ended = Cli::register(&okapi)
        .args(["--output", "json"])
        .run()
        .await
        .with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    assert_eq!(okapi.entries_of(PARKED), pairs(&[(PARKED, DIRECT_URL)]));
    for sidecar in sidecars {
        assert!(sidecar.filter_calls() > 0, "every pod's sidecar was tried");
    }
    let report = ended.json();
    assert_eq!(report["result"], "done");
    assert_eq!(report["exit_code"], 0);
    assert_eq!(report["module_id"], MODULE);
    assert_eq!(
        report["entries_before"],
        json!([{"srvcId": MODULE, "instId": MODULE, "url": DIRECT_URL}])
    );
    let steps: Vec<&str> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["step"].as_str().unwrap())
        .collect();
    assert_eq!(
        steps,
        [
            "park", "await", "forget", "add", "call", "health", "park", "remove", "call"
        ]
    );
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let (okapi, ..) = three_pods().await;
    Cli::register(&okapi).run().await.with_code(0);
    let changes = okapi.world().changes.len();

    let ended = Cli::register(&okapi)
        .args(["--output", "json"])
        .run()
        .await
        .with_code(0);

    assert_eq!(ended.json()["result"], "unchanged");
    assert_eq!(okapi.world().changes.len(), changes);
}

#[tokio::test]
async fn restoring_needs_nothing_but_okapi() {
    let (okapi, ..) = three_pods().await;
    let before = okapi.entries_of(MODULE);
    Cli::register(&okapi).run().await.with_code(0);

    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);

    assert_eq!(okapi.entries_of(MODULE), before);
    assert!(okapi.entries_of(PARKED).is_empty());
    assert_eq!(okapi.world().fewest, 1, "there was an entry all the time");
    let ended = Cli::unregister(&okapi)
        .args(["--restore", "--output", "json"])
        .run()
        .await;
    assert_eq!(ended.with_code(0).json()["result"], "unchanged");
}

#[tokio::test]
async fn several_direct_entries_are_all_kept_and_all_come_back() {
    let (okapi, direct, _) = three_pods().await;
    okapi.add(MODULE, "second", "http://mod-authtoken-2:8081/");
    okapi.resolve("http://mod-authtoken-2:8081/", direct.addr);
    let before = okapi.entries_of(MODULE);

    Cli::register(&okapi).run().await.with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);

    assert_eq!(
        okapi.entries_of(MODULE),
        before,
        "the slash at the end included"
    );
}

#[tokio::test]
async fn a_dry_run_says_it_all_and_does_nothing() {
    let (okapi, ..) = three_pods().await;

    let ended = Cli::register(&okapi)
        .args(["--dry-run"])
        .run()
        .await
        .with_code(0);

    ended.saying(&[
        "plan add mod-authtoken-2.17.0-auth-sidecar -> http://127.0.0.1:8071",
        "plan remove mod-authtoken-2.17.0 -> http://mod-authtoken",
        "dry run: 5 changes would be made",
    ]);
    assert!(okapi.world().changes.is_empty());
}

#[tokio::test]
async fn another_url_is_exchanged_without_a_moment_with_no_entry() {
    let (okapi, _, sidecars) = three_pods().await;
    Cli::register(&okapi).run().await.with_code(0);
    okapi.resolve("http://auth-sidecar:8071", sidecars[0].addr);

    let other = ["--url", "http://auth-sidecar:8071/"];
    Cli::register(&okapi).args(other).run().await.with_code(0);

    assert_eq!(
        okapi.entries_of(MODULE),
        pairs(&[(OURS, "http://auth-sidecar:8071")])
    );
    assert_eq!(okapi.world().fewest, 1);
    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
}

#[tokio::test]
async fn the_first_entry_of_a_new_system_can_be_ours() {
    let (okapi, ..) = three_pods().await;
    okapi.world().entries.clear();

    Cli::register(&okapi).run().await.with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    Cli::unregister(&okapi)
        .args(["--direct-url", DIRECT_URL])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
}

#[tokio::test]
async fn it_waits_for_the_last_pod_outside_the_rotation() {
    let (okapi, ..) = three_pods().await;
    okapi.take_down(2, SIDECAR_URL);

    let running = Cli::register(&okapi).args(["--wait", "50s"]).start();
    while okapi
        .world()
        .requests
        .iter()
        .filter(|r| r.contains("/_/discovery/health/"))
        .count()
        < 50
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        okapi.entries_of(MODULE),
        pairs(&[(MODULE, DIRECT_URL)]),
        "nobody is sent to the sidecar yet"
    );
    okapi.bring_up();
    crate::support::cli::ended(running).await.with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
}

#[tokio::test]
async fn a_second_run_waits_for_the_rollout_of_a_new_sidecar() {
    let (okapi, ..) = three_pods().await;
    Cli::register(&okapi).run().await.with_code(0);
    okapi.take_down_everywhere(SIDECAR_URL);

    let running = Cli::register(&okapi)
        .args(["--wait", "50s", "--output", "json"])
        .start();
    let before = okapi.world().requests.len();
    while okapi.world().requests.len() < before + 10 {
        tokio::task::yield_now().await;
    }
    okapi.bring_up();
    let ended = crate::support::cli::ended(running).await.with_code(0);

    assert_eq!(ended.json()["result"], "unchanged");
}

#[tokio::test]
async fn with_trace_headers_it_tells_how_many_calls_went_by_the_sidecar() {
    let (okapi, ..) = three_pods().await;
    okapi.world().trace = true;

    Cli::register(&okapi)
        .run()
        .await
        .with_code(0)
        .saying(&["of them by that way"]);
}

#[tokio::test]
async fn without_a_list_of_nodes_a_number_of_pods_is_assumed() {
    let (okapi, ..) = three_pods().await;
    okapi.world().tells_nodes = false;

    let ended = Cli::register(&okapi).run().await.with_code(0);

    ended.saying(&["3 are assumed", "--okapi-pods", "37 good answers in a row"]);
    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    let ended = Cli::register(&okapi)
        .args(["--okapi-pods", "6"])
        .run()
        .await
        .with_code(0);
    ended.saying(&["86 good answers in a row"]);
}

#[tokio::test]
async fn an_old_okapi_that_checks_ids_is_served_without_rehearsal_and_record() {
    let (okapi, ..) = three_pods().await;
    okapi.world().checks_service_ids = true;

    Cli::register(&okapi)
        .run()
        .await
        .with_code(3)
        .saying(&["--no-parking"]);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));

    Cli::register(&okapi)
        .args(["--no-parking"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
}

#[tokio::test]
async fn settings_come_from_the_environment_as_well() {
    let (okapi, ..) = three_pods().await;

    let command = tokio::process::Command::new(env!("CARGO_BIN_EXE_okapi-auth-sidecar"));
    let ended = Cli::of(command)
        .args(["register"])
        .env("AUTH_SIDECAR_OKAPI_URL", &okapi.url())
        .env("AUTH_SIDECAR_REGISTER_TENANT", "diku")
        .env("AUTH_SIDECAR_REGISTER_MODULE_ID", "auto")
        .env("AUTH_SIDECAR_REGISTER_INSTANCE_ID", "")
        .env("AUTH_SIDECAR_REGISTER_SAMPLE_INTERVAL", "1ms")
        .env("AUTH_SIDECAR_REGISTER_OUTPUT", "json")
        .env("AUTH_SIDECAR_OKAPI_TOKEN", "")
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9")
        .run()
        .await
        .with_code(0);

    assert_eq!(ended.json()["entries_after"][0]["instId"], OURS);
}
