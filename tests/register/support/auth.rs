//! An auth module, or a sidecar in front of one: from Okapi's side they look the same.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// What makes a request a filter call.
const MODULE_PERMISSIONS: &str = "X-Okapi-Module-Permissions";

/// A running one. It ends with the test's runtime.
#[derive(Debug, Clone)]
pub(crate) struct Auth {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    filter_calls: AtomicUsize,
    good_tokens: Mutex<HashSet<String>>,
    fails_with: Mutex<Option<u16>>,
    hangs: AtomicBool,
}

impl Auth {
    /// One that lets everybody pass who needs no permission, and who has one of the good tokens.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let serving = state.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let state = serving.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let state = state.clone();
                        async move {
                            let filter_call = request.headers().contains_key(MODULE_PERMISSIONS);
                            if filter_call && state.hangs.load(Ordering::SeqCst) {
                                std::future::pending::<()>().await;
                            }
                            Ok::<_, Infallible>(answer(&state, &request))
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { addr, state }
    }

    /// How many filter calls it has answered.
    pub(crate) fn filter_calls(&self) -> usize {
        self.state.filter_calls.load(Ordering::SeqCst)
    }

    /// From now on this token is a good one.
    pub(crate) fn accept(&self, token: &str) {
        let mut tokens = self.state.good_tokens.lock().unwrap();
        tokens.insert(token.to_owned());
    }

    /// From now on this token has run out.
    pub(crate) fn expire(&self, token: &str) {
        self.state.good_tokens.lock().unwrap().remove(token);
    }

    /// From now on filter calls are never answered.
    pub(crate) fn hang(&self) {
        self.state.hangs.store(true, Ordering::SeqCst);
    }

    /// From now on every filter call gets this status: a sidecar that does not reach its upstream.
    pub(crate) fn fail_with(&self, status: u16) {
        *self.state.fails_with.lock().unwrap() = Some(status);
    }
}

fn answer(state: &State, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    if header(MODULE_PERMISSIONS).is_none() {
        // Okapi's health check asks for the bare address.
        return text(400, "Missing header: X-Okapi-Tenant");
    }
    state.filter_calls.fetch_add(1, Ordering::SeqCst);
    if let Some(status) = *state.fails_with.lock().unwrap() {
        return text(status, "upstream does not answer");
    }
    match (
        header("X-Okapi-Token"),
        header("X-Okapi-Permissions-Required"),
    ) {
        (None, Some(permission)) => text(
            400,
            &format!("Token missing, access requires permission: {permission}"),
        ),
        (Some(token), _) if !state.good_tokens.lock().unwrap().contains(&token) => {
            text(401, "Invalid token")
        }
        (_, _) => text(202, ""),
    }
}

fn text(status: u16, body: &str) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("Content-Type", "text/plain")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap()
}
