//! okapi-auth-sidecar
pub mod body;
pub mod cache;
pub mod clock;
pub mod config;
pub mod decision;
pub mod headers;
pub mod invalidation;
pub mod key;
pub mod metrics;
pub mod token;

/// Variables with our prefix that belong to `register` and `unregister`.
pub const REGISTER_VARIABLES: [&str; 0] = [];
