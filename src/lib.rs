//! okapi-auth-sidecar
pub mod clock;
pub mod headers;
pub mod invalidation;
pub mod key;
pub mod token;
