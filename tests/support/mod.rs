//! What the tests, the demo and the benchmarks share: a stand-in for mod-authtoken, the recorded exchanges, a raw HTTP/1.1 client.
//!
//! Each binary that needs it includes this folder with `mod support;` (or `#[path = ...]`), so nothing here may use the
//! sidecar's own crate: what judges the sidecar must not be built from it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every binary that includes this folder uses another part of it"
)]

pub mod golden;
pub mod headers;
pub mod playback;
pub mod raw;
pub mod standin;
