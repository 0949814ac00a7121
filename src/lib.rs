//! okapi-auth-sidecar
mod okapi;
pub mod register;
