//! `register` and `unregister`, run as an operator or a Job would run them, against an Okapi stand-in with the real one's
//! semantics. No test sleeps to be sure; all traffic stays on loopback.
#![allow(
    clippy::unwrap_used,
    reason = "tests and their harness may fail loudly"
)]

mod failures;
mod load;
mod refusals;
mod runbooks;
mod scripts;
mod secured;
mod support;
mod switch;
mod tls;
