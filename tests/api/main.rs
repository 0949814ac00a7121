//! The sidecar from outside: between a raw client and the stand-in auth module, through the real `Server`.

#![allow(
    clippy::float_cmp,
    reason = "counters and gauges are whole numbers that Prometheus' format makes floats of"
)]
#![allow(clippy::unwrap_used, reason = "what helps the tests is a test as well")]

#[path = "../support/mod.rs"]
mod support;

mod harness;
mod program;
mod upstream;

mod admin;
mod asking;
mod check_outs;
mod concurrency;
mod eligibility;
mod expiry;
mod golden;
mod invalidation;
mod key;
mod lifecycle;
mod properties;
mod rule;
mod storing;
mod target;
mod trouble;
mod wire;
mod wire_rules;
