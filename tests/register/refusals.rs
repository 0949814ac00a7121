//! What is refused before anything is changed, and in which words.

use serde_json::json;

use crate::support::cli::Cli;
use crate::support::okapi::{DIRECT_URL, MODULE, OURS, Okapi, SIDECAR_URL};
use crate::switch::{pairs, three_pods};

#[track_caller]
fn untouched(okapi: &Okapi) {
    assert!(
        okapi.world().changes.is_empty(),
        "{:?}",
        okapi.world().changes
    );
}

#[tokio::test]
async fn a_module_id_that_okapi_does_not_know() {
    let (okapi, ..) = three_pods().await;

    let ended = Cli::register(&okapi)
        .args(["--module-id", "mod-authtoken-2.71.0"])
        .run()
        .await
        .with_code(3);

    ended.saying(&[
        "mod-authtoken-2.71.0",
        "it knows mod-authtoken-2.16.0, mod-authtoken-2.17.0",
    ]);
    untouched(&okapi);
}

#[tokio::test]
async fn a_choice_between_two_running_versions() {
    let (okapi, ..) = three_pods().await;
    okapi.add("mod-authtoken-2.16.0", "mod-authtoken-2.16.0", "http://old");

    let ended = Cli::register(&okapi)
        .args(["--tenant", ""])
        .run()
        .await
        .with_code(3);

    ended.saying(&[
        "mod-authtoken-2.16.0 (1 entry)",
        "mod-authtoken-2.17.0 (1 entry)",
        "--module-id",
    ]);
    untouched(&okapi);
}

#[tokio::test]
async fn a_tenant_without_the_module_as_a_call_for_it_would_prove_nothing() {
    let (okapi, ..) = three_pods().await;

    let ended = Cli::register(&okapi)
        .args(["--tenant", "supertenant"])
        .run()
        .await
        .with_code(3);
    ended.saying(&["mod-authtoken", "supertenant", "--tenant"]);
    let ended = Cli::register(&okapi)
        .args(["--tenant", "supertenant", "--module-id", MODULE])
        .run()
        .await
        .with_code(3);

    ended.saying(&[MODULE, "supertenant"]);
    untouched(&okapi);
}

#[tokio::test]
async fn entries_of_okapis_own_kubernetes_discovery() {
    let (okapi, ..) = three_pods().await;
    let kube =
        json!({"srvcId": MODULE, "instId": "kube_10.1.2.3:8081", "url": "http://10.1.2.3:8081"});
    okapi.world().kubernetes.push(kube);

    let ended = Cli::register(&okapi).run().await.with_code(3);

    ended.saying(&[
        "kube_10.1.2.3:8081",
        "Kubernetes",
        "app.kubernetes.io/version",
    ]);
    untouched(&okapi);
}

#[tokio::test]
async fn an_instance_that_okapi_launched_itself() {
    let (okapi, ..) = three_pods().await;
    okapi.world().entries = vec![json!({
        "srvcId": MODULE, "instId": "a1b2c3", "nodeId": "node1", "url": DIRECT_URL,
        "descriptor": {"exec": "java -jar mod-authtoken.jar"},
    })];

    let ended = Cli::register(&okapi).run().await.with_code(3);

    ended.saying(&["a1b2c3", "stop the process"]);
    untouched(&okapi);
}

#[tokio::test]
async fn an_instance_id_that_another_module_has() {
    let (okapi, ..) = three_pods().await;
    okapi.add("mod-authtoken-2.16.0", "sidecar", SIDECAR_URL);

    let ended = Cli::register(&okapi)
        .args(["--instance-id", "sidecar"])
        .run()
        .await
        .with_code(3);

    ended.saying(&["sidecar", "mod-authtoken-2.16.0", "--instance-id"]);
    untouched(&okapi);
}

#[tokio::test]
async fn a_switch_while_requests_fail_anyway() {
    let (okapi, ..) = three_pods().await;
    okapi.take_down_everywhere(DIRECT_URL);

    let ended = Cli::register(&okapi).run().await.with_code(3);

    ended.saying(&[
        "fails already",
        "proxyClient failure",
        "/_/proxy/health",
        "diku",
    ]);
    untouched(&okapi);
}

#[tokio::test]
async fn a_probe_path_that_no_module_of_the_tenant_has() {
    let (okapi, ..) = three_pods().await;

    let ended = Cli::register(&okapi)
        .args(["--probe-path", "/nowhere"])
        .run()
        .await
        .with_code(3);

    ended.saying(&["/nowhere", "--probe-path"]);
    untouched(&okapi);
}

#[tokio::test]
async fn to_remove_the_last_entry() {
    let (okapi, ..) = three_pods().await;
    okapi.world().entries.clear();
    okapi.add(MODULE, OURS, SIDECAR_URL);

    Cli::unregister(&okapi)
        .run()
        .await
        .with_code(3)
        .saying(&["--restore"]);
    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(3)
        .saying(&["--direct-url"]);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    untouched(&okapi);
}

#[tokio::test]
async fn command_lines_that_make_no_sense_are_told_so_without_their_secrets() {
    let (okapi, ..) = three_pods().await;

    let lines: [&[&str]; 6] = [
        &["--url", "127.0.0.1:8071"],
        &["--url", "http://127.0.0.1:8071/auth"],
        &["--wait", "5"],
        &["--url", "http://user:hunter2@127.0.0.1:8071"],
        &["--username", "admin"],
        &["--okapi-token-file", "/nowhere/token"],
    ];
    for line in lines {
        let ended = Cli::register(&okapi)
            .args(line.iter().copied())
            .run()
            .await
            .with_code(2);
        assert!(!ended.all().contains("hunter2"), "{}", ended.all());
        assert!(
            ended.all().contains(line[1]) || ended.all().contains(line[0]),
            "{}",
            ended.all()
        );
    }
    untouched(&okapi);
}

#[tokio::test]
async fn an_address_where_no_okapi_is() {
    let (okapi, direct, _) = three_pods().await;

    let nobody = Cli::register(&okapi)
        .args([
            "--okapi-url",
            &format!("http://{}", direct.addr),
            "--module-id",
            MODULE,
        ])
        .run()
        .await;

    nobody
        .with_code(4)
        .saying(&["/_/proxy/modules/mod-authtoken-2.17.0", "400"]);
}
