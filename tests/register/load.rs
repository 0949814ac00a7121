//! The switch, forth and back, while users work: not one of their requests may fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::support::auth::Auth;
use crate::support::cli::Cli;
use crate::support::okapi::{DIRECT_URL, MODULE, OURS, Okapi, SIDECAR_URL};
use crate::switch::{pairs, three_pods};

const USERS: usize = 4;
/// Each user stops here, whatever happens.
const REQUESTS_PER_USER: usize = 20_000;

struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    users: JoinSet<Vec<String>>,
}

impl Load {
    fn start(okapi: &Okapi) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicUsize::new(0));
        let mut users = JoinSet::new();
        for _ in 0..USERS {
            users.spawn(work(okapi.url(), stop.clone(), sent.clone()));
        }
        Self { stop, sent, users }
    }

    /// Waits until so many more requests were sent.
    async fn go_on_for(&self, requests: usize) {
        let until = self.sent.load(Ordering::SeqCst) + requests;
        while self.sent.load(Ordering::SeqCst) < until {
            tokio::task::yield_now().await;
        }
    }

    /// How many requests there were, and those that failed.
    async fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::SeqCst);
        let failed = self.users.join_all().await.concat();
        (self.sent.load(Ordering::SeqCst), failed)
    }
}

async fn work(okapi: String, stop: Arc<AtomicBool>, sent: Arc<AtomicUsize>) -> Vec<String> {
    // A connection a request: each request meets another pod.
    let client = reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .tls_backend_preconfigured(no_tls())
        .build()
        .unwrap();
    let mut failed = Vec::new();
    for _ in 0..REQUESTS_PER_USER {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let request = client
            .get(format!("{okapi}/users"))
            .header("X-Okapi-Tenant", "diku");
        match request.send().await {
            Ok(answer) if answer.status() == 200 => {}
            Ok(answer) => failed.push(answer.text().await.unwrap()),
            Err(error) => failed.push(error.to_string()),
        }
        sent.fetch_add(1, Ordering::SeqCst);
    }
    failed
}

fn no_tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_okapi_is_switched_over_and_back() {
    let (okapi, direct, sidecars) = three_pods().await;
    let load = Load::start(&okapi);
    load.go_on_for(200).await;

    Cli::register(&okapi).run().await.with_code(0);
    load.go_on_for(200).await;
    let by_direct = direct.filter_calls();
    load.go_on_for(200).await;
    assert_eq!(
        direct.filter_calls(),
        by_direct,
        "all go by the sidecar now"
    );
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));

    Cli::unregister(&okapi)
        .args(["--restore"])
        .run()
        .await
        .with_code(0);
    load.go_on_for(200).await;
    let by_sidecar: usize = sidecars.iter().map(Auth::filter_calls).sum();
    load.go_on_for(200).await;
    let now: usize = sidecars.iter().map(Auth::filter_calls).sum();
    assert_eq!(now, by_sidecar, "none goes by a sidecar any more");
    assert_eq!(okapi.entries_of(MODULE), pairs(&[(MODULE, DIRECT_URL)]));

    let (sent, failed) = load.stop().await;
    assert!(
        failed.is_empty(),
        "{} of {sent} failed: {:?}",
        failed.len(),
        failed.first()
    );
    assert!(
        sent < USERS * REQUESTS_PER_USER,
        "the load must have lasted to the end"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_when_a_pod_has_no_sidecar_yet() {
    let (okapi, ..) = three_pods().await;
    okapi.take_down(2, SIDECAR_URL);
    let load = Load::start(&okapi);

    Cli::register(&okapi).run().await.with_code(5);
    load.go_on_for(100).await;

    let (sent, failed) = load.stop().await;
    assert!(
        failed.is_empty(),
        "{} of {sent} failed: {:?}",
        failed.len(),
        failed.first()
    );
}
