//! Input that means harm: bytes made to be read in two ways, tokens that claim what they are not, lists built to collide,
//! floods. `PROPTEST_CASES=100000 cargo test --release --test hostile parsers` looks at the parsers for longer.

#[allow(
    dead_code,
    clippy::needless_borrows_for_generic_args,
    reason = "the harness serves another binary first"
)]
#[path = "../api/harness.rs"]
mod harness;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, reason = "the upstream serves another binary first")]
#[path = "../api/upstream.rs"]
mod upstream;

mod claims;
mod crowd;
mod glance;
mod parsers;
mod purge;
mod recorder;
mod smuggling;
#[allow(
    clippy::float_cmp,
    reason = "counters and gauges are whole numbers that Prometheus' format makes floats of"
)]
#[allow(clippy::unwrap_used, reason = "what helps the tests is a test as well")]
mod turns;
