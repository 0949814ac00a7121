//! What these tests stand on: an Okapi, auth modules and sidecars on loopback, and the binary under test.

pub(crate) mod auth;
pub(crate) mod cli;
pub(crate) mod okapi;
