//! From the first probe to the last answer: loops, TLS towards upstream, housekeeping, draining, signals.

use crate::harness::{Sidecar, loans, pair};
use crate::program::{self, Program};
use crate::support::raw::{self, Connection, Request};
use crate::support::standin::call::FilterCall;
use crate::support::standin::{DESK, Options, Standin};
use crate::upstream::nobody;
use okapi_auth_sidecar::{Server, ServerError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Waits until the admin port says so.
async fn ready_is(sidecar: &Sidecar, status: u16) {
    for _ in 0..2_000 {
        if sidecar.admin("GET", "/health/ready", None).await.status == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never {status}");
}

/// A request whose answer does not come before the gate opens.
async fn under_way(sidecar: &Sidecar, call: &FilterCall) -> Connection {
    let mut connection = sidecar.connect().await;
    connection
        .send(&call.request().to_bytes())
        .await
        .expect("it listens");
    connection
}

#[tokio::test]
async fn while_it_drains_it_is_not_ready_and_serves_as_before() {
    let (standin, mut sidecar) = pair(&[("DRAIN_DELAY", "60s")]).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);
    let mut kept = sidecar.connect().await;
    assert_eq!(kept.ask(&call.request()).await.unwrap().status, 202);
    assert_eq!(sidecar.metric("auth_sidecar_draining").await, 0.0);
    assert_eq!(sidecar.metric("auth_sidecar_ready").await, 1.0);

    sidecar.signal();
    ready_is(&sidecar, 503).await;

    assert_eq!(
        sidecar.admin("GET", "/health/live", None).await.status,
        200,
        "it lives"
    );
    assert_eq!(sidecar.metric("auth_sidecar_draining").await, 1.0);
    assert_eq!(sidecar.metric("auth_sidecar_ready").await, 0.0);
    assert!(sidecar.hits(&standin, &call).await, "on new connections");
    assert_eq!(
        kept.ask(&call.request()).await.unwrap().status,
        202,
        "and old ones"
    );
    assert!(
        !sidecar.hits(&standin, &call.desired(&["x"])).await,
        "misses too"
    );
}

#[tokio::test]
async fn what_is_under_way_is_finished_and_nothing_new_is_taken() {
    let (standin, mut sidecar) =
        pair(&[("DRAIN_DELAY", "100ms"), ("SHUTDOWN_TIMEOUT", "20s")]).await;
    let address = sidecar.addr;
    let token = standin.access_token("diku", DESK);
    let mut idle = sidecar.connect().await;
    assert_eq!(
        idle.ask(&loans(&token).request()).await.unwrap().status,
        202
    );
    let gate = standin.hold();
    let mut miss = under_way(&sidecar, &loans(&token).desired(&["x"])).await;
    let mut passed = under_way(&sidecar, &loans("")).await;
    gate.arrived(2).await;

    sidecar.signal();
    assert!(idle.closed().await.unwrap(), "nothing is due on it");
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    gate.release();

    assert_eq!(miss.answer(false).await.unwrap().status, 202);
    assert_eq!(passed.answer(false).await.unwrap().status, 401);
    assert!(miss.closed().await.unwrap() && passed.closed().await.unwrap());
    sidecar.stop().await;
}

#[tokio::test]
async fn whoever_waits_longer_than_the_shutdown_timeout_is_told_503() {
    let (standin, mut sidecar) = pair(&[("SHUTDOWN_TIMEOUT", "200ms")]).await;
    let token = standin.access_token("diku", DESK);
    let gate = standin.hold();
    let mut leader = under_way(&sidecar, &loans(&token)).await;
    gate.arrived(1).await;
    let mut follower = under_way(&sidecar, &loans(&token)).await;
    let mut passed = under_way(&sidecar, &loans("")).await;
    gate.arrived(2).await;
    sidecar.settle().await;
    let began = Instant::now();

    sidecar.signal();

    for connection in [&mut leader, &mut follower, &mut passed] {
        let answer = connection.answer(false).await.unwrap();
        assert_eq!(
            (answer.status, answer.text()),
            (503, "The auth sidecar is stopping")
        );
        assert!(answer.headers.has_word("connection", "close"));
    }
    sidecar.stop().await;
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Somebody who connects and does not finish a sentence must not keep the process from stopping.
#[tokio::test]
async fn half_a_request_keeps_no_process_from_stopping() {
    let (_standin, sidecar) = pair(&[("SHUTDOWN_TIMEOUT", "200ms")]).await;
    let mut filter = sidecar.connect().await;
    let mut admin = Connection::open(sidecar.admin).await.unwrap();
    let _silent = Connection::open(sidecar.admin).await.unwrap();
    for connection in [&mut filter, &mut admin] {
        connection
            .send(b"GET /health/live HTTP/1.1\r\nHost:")
            .await
            .unwrap();
    }
    sidecar.settle().await;
    let began = Instant::now();

    tokio::time::timeout(Duration::from_secs(15), sidecar.stop())
        .await
        .expect("it stops");

    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_signal_ends_the_process_in_order_with_exit_code_0() {
    let standin = Standin::start(Options::default()).await;
    let program = Program::serve(&standin, &[("SHUTDOWN_TIMEOUT", "20s")]).await;
    standin.seen(1).await;
    let gate = standin.hold();
    let mut waiting = Connection::open(program.filter).await.unwrap();
    let call = loans(&standin.access_token("diku", DESK));
    waiting.send(&call.request().to_bytes()).await.unwrap();
    gate.arrived(1).await;

    program.terminate().await;
    while TcpStream::connect(program.filter).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    gate.release();

    assert_eq!(waiting.answer(false).await.unwrap().status, 202);
    let (status, log, errors) = program.output().await;
    assert_eq!(status.code(), Some(0), "{errors}");
    assert!(log.contains("every answer that was due has left"), "{log}");
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() {
    let standin = Standin::start(Options::default()).await;
    let settings = [("DRAIN_DELAY", "10m"), ("SHUTDOWN_TIMEOUT", "10m")];
    let mut program = Program::serve(&standin, &settings).await;

    program.terminate().await;
    while ready(program.admin).await == 200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(ready(program.admin).await, 503);
    program.terminate().await;

    assert_eq!(program.ended().await.code(), Some(1));
}

async fn ready(admin: SocketAddr) -> u16 {
    let mut request = Request::new("GET", "/health/ready");
    request.headers.push("Host", "sidecar");
    raw::ask(admin, &request).await.expect("an answer").status
}

#[tokio::test]
async fn a_taken_port_is_told_by_the_name_of_its_setting() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (setting, name) in [
        ("LISTEN", "AUTH_SIDECAR_LISTEN"),
        ("ADMIN_LISTEN", "AUTH_SIDECAR_ADMIN_LISTEN"),
    ] {
        let url = format!("http://{}", nobody().await);
        let mut settings = vec![
            ("UPSTREAM_URL", url.as_str()),
            ("LISTEN", "127.0.0.1:0"),
            ("ADMIN_LISTEN", "127.0.0.1:0"),
        ];
        settings.push((setting, &address));

        let output = program::run(&[], &settings).await;

        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            errors.contains(&format!("{name}: {address} cannot be bound")),
            "{errors}"
        );
    }
}

#[tokio::test]
async fn upstream_need_not_be_there_at_the_start() {
    let address = nobody().await;
    let sidecar = Sidecar::start(&format!("http://{address}"), &[]).await;
    assert_eq!(
        sidecar.admin("GET", "/health/ready", None).await.status,
        200
    );
    assert_eq!(sidecar.ask(&loans("h.p.s")).await.status, 502);

    let standin = Standin::start(Options {
        listen: address,
        ..Options::default()
    })
    .await;

    let call = loans(&standin.access_token("diku", DESK));
    assert_eq!(sidecar.ask(&call).await.status, 202);
}

/// The stand-in's filter answers to the probe as mod-authtoken does.
#[tokio::test]
async fn the_probe_goes_up_once_and_on_no_request() {
    let standin = Standin::start(Options::default()).await;
    let sidecar = Sidecar::start(&standin.url(), &[]).await;
    standin.seen(1).await;
    let probe = &standin.requests()[0].request;
    assert_eq!(
        (probe.method.as_str(), probe.target.as_str()),
        ("GET", "/admin/health")
    );
    assert!(probe.headers.has("X-Auth-Sidecar-Probe"));

    let token = standin.access_token("diku", DESK);
    sidecar.ask(&loans(&token)).await;
    sidecar.ask(&loans("")).await;
    sidecar.ask(&loans(&token).to("/admin/health")).await;

    let probes = standin.requests();
    let probes = probes
        .iter()
        .filter(|seen| seen.request.headers.has("X-Auth-Sidecar-Probe"));
    assert_eq!(probes.count(), 1);
}

#[tokio::test]
async fn a_sidecar_whose_upstream_is_itself_is_never_ready() {
    let address = nobody().await;
    let listen = address.to_string();
    // By another name, or the settings would be refused as they stand.
    let url = format!("http://localhost:{}", address.port());
    let sidecar = Sidecar::start(&url, &[("LISTEN", &listen)]).await;

    ready_is(&sidecar, 503).await;

    let answer = sidecar.admin("GET", "/health/ready", None).await;
    assert!(
        answer.text().contains("AUTH_SIDECAR_UPSTREAM_URL"),
        "{}",
        answer.text()
    );
    assert_eq!(sidecar.admin("GET", "/health/live", None).await.status, 200);
    assert_eq!(sidecar.metric("auth_sidecar_ready").await, 0.0);
    assert_eq!(
        sidecar
            .metric("auth_sidecar_loops_detected_total{probe=\"own\"}")
            .await,
        1.0
    );
    assert_eq!(
        sidecar
            .metric("auth_sidecar_loops_detected_total{probe=\"foreign\"}")
            .await,
        0.0
    );
}

#[tokio::test]
async fn two_sidecars_that_point_at_each_other_are_never_ready() {
    let (one, two) = (nobody().await, nobody().await);
    let (listen_one, listen_two) = (one.to_string(), two.to_string());
    let first = Sidecar::start(&format!("http://{two}"), &[("LISTEN", &listen_one)]).await;
    let second = Sidecar::start(&format!("http://{one}"), &[("LISTEN", &listen_two)]).await;

    // The second one's probe reaches the first, which does not take it for its own.
    first
        .until("auth_sidecar_loops_detected_total{probe=\"foreign\"}", 1.0)
        .await;

    let answer = second.ask(&loans("h.p.s")).await;
    assert!(answer.status >= 400, "{}", answer.status);
}

#[tokio::test]
async fn a_foreign_probe_is_refused_and_changes_nothing() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);

    let mut probe = Request::new("GET", "/admin/health");
    probe.headers.push("Host", "sidecar");
    probe
        .headers
        .push("X-Auth-Sidecar-Probe", "0123456789abcdef");
    let answer = sidecar.send(&probe).await;

    assert_eq!(answer.status, 508);
    assert_eq!(standin.calls().total, 1, "nothing is asked for it");
    let foreign = "auth_sidecar_loops_detected_total{probe=\"foreign\"}";
    assert_eq!(sidecar.metric(foreign).await, 1.0);
    let ready = sidecar.admin("GET", "/health/ready", None).await;
    assert_eq!(ready.status, 200);
    assert!(sidecar.hits(&standin, &call).await);
}

/// An end user can send any header through Okapi, and must not be able to raise an alarm with it.
#[tokio::test]
async fn a_probe_header_on_a_filter_call_is_a_header_like_any_other() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", DESK);
    let probe = |call: FilterCall| call.client_header("X-Auth-Sidecar-Probe", "0123456789abcdef");

    assert!(!sidecar.hits(&standin, &probe(loans(&token))).await);
    assert!(sidecar.hits(&standin, &probe(loans(&token))).await);
    let health = sidecar.ask(&probe(FilterCall::get("/admin/health"))).await;

    assert_eq!(health.status, 200, "the auth module's");
    assert_eq!(sidecar.sum("auth_sidecar_loops_detected_total{").await, 0.0);
}

#[tokio::test]
async fn a_sidecar_before_a_sidecar_is_told_in_the_log_of_both() {
    let standin = Standin::start(Options::default()).await;
    let inner = Sidecar::start(&standin.url(), &[]).await;
    let outer = Sidecar::start(&format!("http://{}", inner.addr), &[]).await;

    inner
        .until("auth_sidecar_loops_detected_total{probe=\"foreign\"}", 1.0)
        .await;

    // No loop: calls end at the auth module, so it serves, though the inner one has nothing to do.
    assert_eq!(
        outer
            .ask(&loans(&standin.access_token("diku", DESK)))
            .await
            .status,
        202
    );
    assert_eq!(outer.admin("GET", "/health/ready", None).await.status, 200);
}

/// A certificate authority and a certificate for `localhost` by it.
struct Tls {
    anchor: String,
    acceptor: TlsAcceptor,
}

fn tls() -> Tls {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let anchor = authority.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &Issuer::new(authority, authority_key))
        .unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    Tls {
        anchor: anchor.pem(),
        acceptor: TlsAcceptor::from(Arc::new(config)),
    }
}

/// Takes the TLS off and passes on.
async fn terminate_tls(acceptor: TlsAcceptor, to: SocketAddr) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust us goes away here.
                if let Ok(mut inside) = acceptor.accept(stream).await
                    && let Ok(mut outside) = TcpStream::connect(to).await
                {
                    let _ = copy_bidirectional(&mut inside, &mut outside).await;
                }
            });
        }
    });
    (port, task)
}

#[tokio::test]
async fn an_https_upstream_is_trusted_by_the_anchor_of_the_settings() {
    let standin = Standin::start(Options::default()).await;
    let tls = tls();
    let (port, task) = terminate_tls(tls.acceptor, standin.addr()).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(tls.anchor.as_bytes()).unwrap();
    let url = format!("https://localhost:{port}");

    let anchor = file.path().to_str().unwrap();
    let sidecar = Sidecar::start(&url, &[("UPSTREAM_CA_FILE", anchor)]).await;
    standin.seen(1).await;
    let call = loans(&standin.access_token("diku", DESK));

    assert!(!sidecar.hits(&standin, &call).await);
    assert!(sidecar.hits(&standin, &call).await);
    let host = standin.requests()[1]
        .request
        .headers
        .get("host")
        .map(str::to_owned);
    assert_eq!(host, Some(format!("localhost:{port}")));
    task.abort();
}

#[tokio::test]
async fn an_https_upstream_of_an_unknown_authority_is_never_asked() {
    let standin = Standin::start(Options::default()).await;
    let (trusted, other) = (tls(), tls());
    let (port, task) = terminate_tls(other.acceptor, standin.addr()).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(trusted.anchor.as_bytes()).unwrap();
    let anchor = file.path().to_str().unwrap();
    // The right authority for another name is no better.
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("https://{host}:{port}");
        let sidecar = Sidecar::start(&url, &[("UPSTREAM_CA_FILE", anchor)]).await;

        let answer = sidecar
            .ask(&loans(&standin.access_token("diku", DESK)))
            .await;

        assert_eq!(answer.status, 502, "{}", answer.text());
        assert!(
            sidecar
                .metric("auth_sidecar_upstream_failures_total{cause=\"connect\"}")
                .await
                >= 1.0
        );
    }
    assert_eq!(standin.calls().total, 0);
    task.abort();
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_trusted() {
    let standin = Standin::start(Options::default()).await;
    let tls = tls();
    let (port, task) = terminate_tls(tls.acceptor, standin.addr()).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(tls.anchor.as_bytes()).unwrap();
    let anchor = file.path().to_str().unwrap();

    let url = format!("https://127.0.0.1:{port}");
    let sidecar = Sidecar::start(&url, &[("UPSTREAM_CA_FILE", anchor)]).await;

    assert_eq!(sidecar.ask(&loans("h.p.s")).await.status, 502);
    assert_eq!(standin.calls().total, 0);
    task.abort();
}

#[tokio::test]
async fn an_anchor_that_is_none_is_told_before_anything_is_served() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"no certificate").unwrap();
    let anchor = file.path().to_str().unwrap();
    let config = crate::harness::config("https://localhost:1", &[("UPSTREAM_CA_FILE", anchor)]);

    let error = Server::bind(config).await.expect_err("it cannot start");

    assert!(matches!(error, ServerError::Tls(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("AUTH_SIDECAR_UPSTREAM_CA_FILE"), "{text}");
}

/// The clock of the runtime is moved by hand, since the sweep comes every half minute.
#[tokio::test]
async fn the_sweep_takes_away_what_can_no_longer_answer() {
    let (standin, sidecar) = pair(&[("CACHE_TTL", "60s")]).await;
    let desk = loans(&standin.access_token("diku", DESK));
    let other = loans(&standin.access_token("diku", crate::support::standin::DESK5));
    for call in [&desk, &other] {
        assert!(!sidecar.hits(&standin, call).await);
    }
    assert_eq!(sidecar.metric("auth_sidecar_cache_entries").await, 2.0);
    let admin = standin.access_token("diku", crate::support::standin::ADMIN);
    let event = FilterCall::new("PUT", &format!("/users/{DESK}")).token(&admin);
    assert_eq!(sidecar.ask(&event).await.status, 202);

    pass_on_the_runtime(Duration::from_secs(31)).await;
    sidecar
        .until("auth_sidecar_evictions_total{cause=\"revoked\"}", 1.0)
        .await;
    assert_eq!(
        sidecar
            .metric("auth_sidecar_evictions_total{cause=\"expired\"}")
            .await,
        0.0
    );
    assert!(sidecar.hits(&standin, &other).await, "what is good stays");

    pass_on_the_runtime(Duration::from_secs(61)).await;
    sidecar
        .until("auth_sidecar_evictions_total{cause=\"expired\"}", 2.0)
        .await;
    assert_eq!(sidecar.metric("auth_sidecar_cache_entries").await, 0.0);
}

/// Moves the runtime's clock, with which all timers go.
pub(crate) async fn pass_on_the_runtime(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
