//! A secured system: our own calls pass the auth module, by way of the entries that they change.

use crate::support::auth::Auth;
use crate::support::cli::Cli;
use crate::support::okapi::{DIRECT_URL, Fault, LoginRoutes, MODULE, OURS, Okapi, SIDECAR_URL};
use crate::switch::{pairs, three_pods};

const TOKEN: &str = "aaa.bbb.ccc";

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("user", "okapi_admin\n"),
            ("password", "s3cret-pass\n"),
            ("wrong", "nope\n"),
            ("token", TOKEN),
        ] {
            std::fs::write(folder.path().join(name), value).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

async fn secured() -> (Okapi, Auth, Vec<Auth>) {
    let (okapi, direct, sidecars) = three_pods().await;
    okapi.secure();
    for auth in sidecars.iter().chain([&direct]) {
        auth.accept(TOKEN);
    }
    okapi.world().next_tokens = vec![TOKEN.to_owned(), "ddd.eee.fff".to_owned()];
    (okapi, direct, sidecars)
}

#[tokio::test]
async fn a_user_from_files_logs_in_once() {
    for routes in [LoginRoutes::Both, LoginRoutes::OldOnly] {
        let (okapi, ..) = secured().await;
        okapi.world().login_routes = routes;
        let files = Files::new();

        let ended = Cli::register(&okapi)
            .args([
                "--username-file",
                &files.path("user"),
                "--password-file",
                &files.path("password"),
            ])
            .run()
            .await
            .with_code(0);

        assert_eq!(okapi.world().logins, 1);
        assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
        assert!(
            !ended.all().contains(TOKEN) && !ended.all().contains("s3cret"),
            "{}",
            ended.all()
        );
    }
}

#[tokio::test]
async fn a_token_will_do_from_a_file_or_the_environment() {
    let (okapi, ..) = secured().await;
    let files = Files::new();

    let file = ["--okapi-token-file", &files.path("token")];
    Cli::register(&okapi).args(file).run().await.with_code(0);
    let ended = Cli::unregister(&okapi)
        .args(["--restore"])
        .env("AUTH_SIDECAR_OKAPI_TOKEN", TOKEN)
        .run()
        .await
        .with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
    assert!(!ended.all().contains(TOKEN));
}

#[tokio::test]
async fn without_a_token_the_permissions_that_are_needed_are_named() {
    let (okapi, ..) = secured().await;

    let ended = Cli::register(&okapi).run().await.with_code(4);

    ended.saying(&["Token missing", "okapi.discovery.post", "supertenant"]);
    assert!(okapi.world().changes.is_empty());
}

#[tokio::test]
async fn a_wrong_password_is_told_without_showing_it() {
    let (okapi, ..) = secured().await;
    let files = Files::new();

    let ended = Cli::register(&okapi)
        .args([
            "--username",
            "okapi_admin",
            "--password-file",
            &files.path("wrong"),
        ])
        .run()
        .await
        .with_code(4);

    assert!(!ended.all().contains("nope"), "{}", ended.all());
    ended.saying(&[
        "okapi_admin",
        "supertenant",
        "422",
        "Password does not match",
    ]);
    assert!(okapi.world().changes.is_empty());
}

#[tokio::test]
async fn a_token_that_runs_out_on_the_way_is_renewed() {
    let (okapi, direct, sidecars) = secured().await;
    let files = Files::new();
    // Logged in before the sidecars came; the rollout took longer than the token lives.
    okapi.take_down(0, SIDECAR_URL);
    let running = Cli::register(&okapi)
        .args([
            "--username-file",
            &files.path("user"),
            "--password-file",
            &files.path("password"),
            "--wait",
            "50s",
        ])
        .start();
    while !okapi
        .world()
        .requests
        .iter()
        .any(|r| r.contains("/_/discovery/health/"))
    {
        tokio::task::yield_now().await;
    }
    for auth in sidecars.iter().chain([&direct]) {
        auth.expire(TOKEN);
        auth.accept("ddd.eee.fff");
    }
    okapi.bring_up();

    crate::support::cli::ended(running).await.with_code(0);

    assert_eq!(okapi.world().logins, 2);
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
}

#[tokio::test]
async fn a_broken_sidecar_cannot_lock_the_repair_out() {
    // From the moment the sidecar's entry is in use, part of our own calls die; after the last removal, all that Okapi's own
    // token cache does not know.
    for number in 2..5 {
        let (okapi, ..) = secured().await;
        okapi
            .world()
            .faults
            .insert(number, Fault::Down(SIDECAR_URL.to_owned()));

        Cli::register(&okapi)
            .env("AUTH_SIDECAR_OKAPI_TOKEN", TOKEN)
            .run()
            .await
            .with_code(5);

        assert_eq!(
            okapi.entries_of(MODULE),
            pairs(&[(MODULE, DIRECT_URL)]),
            "change {number}"
        );
        assert!(okapi.world().fewest >= 1);
    }
}

#[tokio::test]
async fn a_dead_sidecar_beside_a_direct_entry_is_removed_through_the_noise() {
    let (okapi, ..) = secured().await;
    okapi.add(MODULE, OURS, SIDECAR_URL);
    okapi.take_down_everywhere(SIDECAR_URL);

    Cli::unregister(&okapi)
        .env("AUTH_SIDECAR_OKAPI_TOKEN", TOKEN)
        .run()
        .await
        .with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));
}
