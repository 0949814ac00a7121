//! An Okapi behind https, and one that sends elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::cli::Cli;
use crate::support::okapi::{MODULE, OURS, SIDECAR_URL};
use crate::switch::{pairs, three_pods};

/// Takes TLS off in front of `target`; returns its port and its certificate in PEM form.
async fn https_in_front_of(target: SocketAddr) -> (u16, String) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inside = TcpStream::connect(target).await.unwrap();
                let _ = copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    (port, signed.cert.pem())
}

#[tokio::test]
async fn the_operators_certificate_is_trusted_and_no_other() {
    let (okapi, ..) = three_pods().await;
    let (port, pem) = https_in_front_of(okapi.addr).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let url = format!("https://localhost:{port}");
    let known = [
        "--okapi-url",
        &url,
        "--okapi-ca-file",
        file.path().to_str().unwrap(),
    ];

    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(other.path(), stranger.cert.pem()).unwrap();
    let unknown = [
        "--okapi-url",
        &url,
        "--okapi-ca-file",
        other.path().to_str().unwrap(),
    ];

    Cli::register(&okapi)
        .args(unknown)
        .run()
        .await
        .with_code(4)
        .saying(&["certificate"]);
    Cli::register(&okapi).args(known).run().await.with_code(0);

    assert_eq!(okapi.entries_of(MODULE), pairs(&[(OURS, SIDECAR_URL)]));
}

#[tokio::test]
async fn a_ca_file_that_is_none_is_named() {
    let (okapi, ..) = three_pods().await;
    let url = [
        "--okapi-url",
        "https://localhost:9",
        "--okapi-ca-file",
        "/nowhere/ca.pem",
    ];

    Cli::register(&okapi)
        .args(url)
        .run()
        .await
        .with_code(2)
        .saying(&["/nowhere/ca.pem"]);
}

#[tokio::test]
async fn a_redirect_is_an_error_and_not_followed() {
    let (okapi, ..) = three_pods().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}", listener.local_addr().unwrap());
    let target = okapi.url();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: {target}/_/discovery/modules\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });

    let ended = Cli::register(&okapi)
        .args(["--okapi-url", &elsewhere])
        .run()
        .await
        .with_code(4);

    ended.saying(&["302"]);
    assert!(
        okapi.world().requests.is_empty(),
        "no token may go anywhere else"
    );
}
