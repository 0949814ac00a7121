//! What the runbooks say one should see is what one sees.

use std::path::Path;

use crate::support::cli::{Cli, Ended};
use crate::support::okapi::{MODULE, SIDECAR_URL};
use crate::switch::three_pods;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file);
    std::fs::read_to_string(path).unwrap()
}

/// The block of text that follows this marker in a runbook.
fn shown(file: &str, marker: &str) -> String {
    let text = read(&format!("runbooks/{file}"));
    let marker = format!("<!-- output: {marker} -->\n```text\n");
    let (_, rest) = text
        .split_once(&marker)
        .unwrap_or_else(|| panic!("{marker:?} is not in {file}"));
    rest.split_once("```").unwrap().0.to_owned()
}

#[track_caller]
fn same(ended: &Ended, file: &str, marker: &str) {
    assert_eq!(ended.stdout, shown(file, marker), "{file}, {marker}");
}

#[tokio::test]
async fn the_switch_and_the_way_back_look_as_described() {
    let (okapi, ..) = three_pods().await;

    let dry = Cli::register(&okapi)
        .args(["--dry-run"])
        .run()
        .await
        .with_code(0);
    same(&dry, "switch-over.md", "dry run");
    let forth = Cli::register(&okapi).run().await.with_code(0);
    same(&forth, "switch-over.md", "register");
    let back = Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    same(&back, "roll-back.md", "unregister");
}

#[tokio::test]
async fn a_failed_switch_looks_as_described() {
    let (okapi, ..) = three_pods().await;
    okapi.take_down_everywhere(SIDECAR_URL);

    let failed = Cli::register(&okapi).run().await.with_code(5);

    let said = format!("{}{}", failed.stdout, failed.stderr);
    assert_eq!(said, shown("switch-over.md", "no sidecar"));
}

#[test]
fn the_example_descriptors_are_what_okapi_takes() {
    let entry: serde_json::Value =
        serde_json::from_str(&read("okapi/descriptor-url.json")).unwrap();
    assert_eq!(
        entry,
        serde_json::json!({
            "srvcId": MODULE, "instId": format!("{MODULE}-auth-sidecar"), "url": SIDECAR_URL,
        })
    );

    let launched: serde_json::Value =
        serde_json::from_str(&read("okapi/descriptor-exec.json")).unwrap();
    let descriptor = &launched["descriptor"];
    let exec = descriptor["exec"].as_str().unwrap();
    assert!(
        exec.ends_with(" serve --listen 127.0.0.1:%p"),
        "Okapi replaces %p here alone: {exec}"
    );
    assert!(launched["nodeId"].is_string() && launched.get("url").is_none());
    for setting in descriptor["env"].as_array().unwrap() {
        let name = setting["name"].as_str().unwrap();
        assert!(name.starts_with("AUTH_SIDECAR_"), "{name}");
        assert!(!setting["value"].as_str().unwrap().contains("%p"));
    }
}
