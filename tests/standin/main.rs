//! Proves the stand-in for mod-authtoken: by the recorded exchanges first, then by what the contract says and they do not show.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod control;
mod look_ups;
mod memories;
mod own_routes;
mod replay;
mod tokens;
mod wire;

use support::raw::{self, Answer, Request};
use support::standin::call::FilterCall;
use support::standin::{Options, Standin};

/// A permission that the librarian at the desk has and the reader has not.
const LOANS: &str = "circulation.loans.collection.get";

/// A stand-in of the recorded world whose clock stands still until a test moves it.
async fn standin() -> Standin {
    let standin = Standin::start(Options::default()).await;
    standin.clock().stop();
    standin
}

/// A filter call for a token that requires `LOANS`.
fn loans(token: &str) -> FilterCall {
    FilterCall::get("/circulation/loans?limit=1")
        .token(token)
        .required(&[LOANS])
}

async fn ask(standin: &Standin, call: &FilterCall) -> Answer {
    ask_request(standin, &call.request()).await
}

async fn ask_request(standin: &Standin, request: &Request) -> Answer {
    raw::ask(standin.addr(), request).await.expect("an answer")
}
