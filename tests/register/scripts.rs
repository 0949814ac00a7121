//! The shell scripts for people without our image: the same order, the same names, the same ends.

use std::path::Path;
use std::sync::Arc;

use crate::support::auth::Auth;
use crate::support::cli::{Cli, ended, send_signal};
use crate::support::okapi::{DIRECT_URL, Fault, Hold, MODULE, OURS, Okapi, SIDECAR_URL};
use crate::switch::pairs;

const TOKEN: &str = "aaa.bbb.ccc";

/// The scripts cannot be tried without their tools; that must not look like a success that nobody notices.
fn tools_are_here() -> bool {
    let missing: Vec<&str> = ["bash", "curl", "jq", "awk"]
        .into_iter()
        .filter(|tool| {
            let found = std::process::Command::new(tool).arg("--version").output();
            found.is_err()
        })
        .collect();
    if missing.is_empty() {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "the scripts in deploy/okapi cannot be tried: {missing:?} missing"
    );
    eprintln!("SKIPPED: the scripts in deploy/okapi were not tried, for want of {missing:?}");
    false
}

fn script(name: &str, okapi: &Okapi) -> Cli {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/okapi")
        .join(name);
    let mut command = tokio::process::Command::new("bash");
    command.arg(path);
    // A process is started for each call, so a few must do.
    Cli::of(command)
        .env("AUTH_SIDECAR_OKAPI_URL", &okapi.url())
        .env("AUTH_SIDECAR_REGISTER_TENANT", "diku")
        .env("AUTH_SIDECAR_REGISTER_SAMPLES", "3")
}

fn register(okapi: &Okapi) -> Cli {
    script("register.sh", okapi)
}

fn unregister(okapi: &Okapi) -> Cli {
    script("unregister.sh", okapi)
}

async fn one_pod() -> (Okapi, Auth, Auth) {
    let direct = Auth::start().await;
    let sidecar = Auth::start().await;
    let okapi = Okapi::start(direct.addr, &[sidecar.addr]).await;
    (okapi, direct, sidecar)
}

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

#[tokio::test]
async fn there_and_back_again_and_each_of_it_twice() {
    if !tools_are_here() {
        return;
    }
    let (okapi, ..) = one_pod().await;

    register(&okapi)
        .args(["--dry-run"])
        .run()
        .await
        .with_code(0)
        .saying(&["plan add"]);
    assert!(okapi.world().changes.is_empty());
    register(&okapi).run().await.with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    let changes = okapi.world().changes.len();
    register(&okapi).run().await.with_code(0);
    assert_eq!(
        okapi.world().changes.len(),
        changes,
        "the second time nothing is changed"
    );

    unregister(&okapi)
        .run()
        .await
        .with_code(3)
        .saying(&["--restore"]);
    unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    assert!(okapi.entries_of("parked-mod-authtoken-2.17.0").is_empty());
    let changes = okapi.world().changes.len();
    unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.world().changes.len(), changes);
    all_well(&okapi);
}

#[tokio::test]
async fn scripts_and_binary_undo_each_others_work() {
    if !tools_are_here() {
        return;
    }
    let (okapi, ..) = one_pod().await;

    register(&okapi).run().await.with_code(0);
    Cli::register(&okapi)
        .args(["--output", "json"])
        .run()
        .await
        .with_code(0)
        .saying(&["unchanged"]);
    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));

    Cli::register(&okapi).run().await.with_code(0);
    unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    all_well(&okapi);
}

#[tokio::test]
async fn refusals_change_nothing() {
    if !tools_are_here() {
        return;
    }
    let (okapi, ..) = one_pod().await;
    let unknown = ["--module-id", "mod-authtoken-2.71.0"];

    register(&okapi)
        .args(unknown)
        .run()
        .await
        .with_code(3)
        .saying(&["mod-authtoken-2.17.0"]);
    register(&okapi)
        .args(["--tenant", "supertenant"])
        .run()
        .await
        .with_code(3);
    register(&okapi)
        .args(["--url", "127.0.0.1:8071"])
        .run()
        .await
        .with_code(2);
    register(&okapi)
        .args(["--nonsense", "x"])
        .run()
        .await
        .with_code(2);
    register(&okapi)
        .args(["--probe-path", "/nowhere"])
        .run()
        .await
        .with_code(3)
        .saying(&["--probe-path"]);
    okapi.add(MODULE, "kube_10.1.2.3:8081", "http://10.1.2.3:8081");
    register(&okapi)
        .run()
        .await
        .with_code(3)
        .saying(&["kube_10.1.2.3:8081", "Kubernetes"]);

    assert!(okapi.world().changes.is_empty());
}

#[tokio::test]
async fn a_sidecar_that_dies_after_any_step_leaves_the_direct_entry() {
    if !tools_are_here() {
        return;
    }
    for number in [0, 2, 4] {
        let (okapi, ..) = one_pod().await;
        okapi
            .world()
            .faults
            .insert(number, Fault::Down(SIDECAR_URL.to_owned()));

        register(&okapi).run().await.with_code(5);

        all_well(&okapi);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(MODULE, DIRECT_URL)]),
            "change {number}"
        );
        assert!(okapi.entries_of("parked-mod-authtoken-2.17.0").is_empty());
    }
}

#[tokio::test]
async fn a_change_that_fails_once_is_made_again() {
    if !tools_are_here() {
        return;
    }
    for (number, fault) in [(2, Fault::NoAnswer), (4, Fault::Error)] {
        let (okapi, ..) = one_pod().await;
        okapi.world().faults.insert(number, fault);

        register(&okapi).run().await.with_code(0);

        all_well(&okapi);
        assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
    }
}

#[tokio::test]
async fn a_signal_puts_everything_back_and_a_kill_is_made_good_by_the_next_run() {
    if !tools_are_here() {
        return;
    }
    for (number, signal) in [(2, "TERM"), (4, "TERM"), (4, "KILL")] {
        let (okapi, ..) = one_pod().await;
        let hold = Arc::new(Hold::default());
        okapi
            .world()
            .faults
            .insert(number, Fault::Hold(hold.clone()));

        let running = register(&okapi).start();
        hold.reached.notified().await;
        send_signal(&running, signal).await;
        hold.release.notify_one();
        let ended = ended(running).await;

        all_well(&okapi);
        if signal == "KILL" {
            register(&okapi).run().await.with_code(0);
            unregister(&okapi)
                .args(["--restore"])
                .run()
                .await
                .with_code(0);
        } else {
            ended.with_code(7).saying(&["interrupted by SIGTERM"]);
        }
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(MODULE, DIRECT_URL)]),
            "change {number}"
        );
    }
}

#[tokio::test]
async fn another_url_is_exchanged_with_a_bridge_and_a_failure_ends_where_it_began() {
    if !tools_are_here() {
        return;
    }
    let (okapi, _, sidecar) = one_pod().await;
    register(&okapi).run().await.with_code(0);
    okapi.resolve("http://other:8071", sidecar.addr);
    let other = ["--url", "http://other:8071/"];

    for number in [3, 5] {
        okapi.world().changes.clear();
        okapi.world().faults = [(number, Fault::Down("http://other:8071".to_owned()))].into();
        register(&okapi).args(other).run().await.with_code(5);
        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(OURS, SIDECAR_URL)]),
            "change {number}"
        );
        all_well(&okapi);
        okapi.bring_up();
    }
    okapi.world().faults.clear();
    register(&okapi).args(other).run().await.with_code(0);

    assert_eq!(
        okapi.entries_of(MODULE),
        pairs(&[(OURS, "http://other:8071")])
    );
    all_well(&okapi);
}

#[tokio::test]
async fn a_dead_sidecar_is_replaced_by_an_address_given_by_hand() {
    if !tools_are_here() {
        return;
    }
    let (okapi, ..) = one_pod().await;
    okapi.world().entries.clear();
    okapi.add(MODULE, OURS, SIDECAR_URL);
    okapi.take_down_everywhere(SIDECAR_URL);

    unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(3)
        .saying(&["--direct-url"]);
    unregister(&okapi)
        .args(["--direct-url", DIRECT_URL])
        .run()
        .await
        .with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    all_well(&okapi);
}

#[tokio::test]
async fn on_a_secured_system_a_user_logs_in_and_no_secret_is_shown() {
    if !tools_are_here() {
        return;
    }
    let (okapi, direct, sidecar) = one_pod().await;
    okapi.secure();
    for auth in [&direct, &sidecar] {
        auth.accept(TOKEN);
    }
    okapi.world().next_tokens = vec![TOKEN.to_owned(); 2];
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "s3cret-pass\n").unwrap();
    let user = [
        "--username",
        "okapi_admin",
        "--password-file",
        password.to_str().unwrap(),
    ];

    let nobody = register(&okapi).run().await.with_code(4);
    nobody.saying(&["Token missing", "give a token or a user"]);
    let ended = register(&okapi).args(user).run().await.with_code(0);
    assert!(
        !ended.all().contains(TOKEN) && !ended.all().contains("s3cret"),
        "{}",
        ended.all()
    );
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));

    let back = unregister(&okapi)
        .args(["--restore"])
        .env("AUTH_SIDECAR_OKAPI_TOKEN", TOKEN);
    back.run().await.with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));

    // Dead and beside a direct entry: part of our own calls die on their way.
    okapi.add(MODULE, OURS, SIDECAR_URL);
    okapi.take_down_everywhere(SIDECAR_URL);
    let noise = unregister(&okapi).env("AUTH_SIDECAR_OKAPI_TOKEN", TOKEN);
    noise.run().await.with_code(0);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
}
