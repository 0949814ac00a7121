//! okapi-auth-sidecar
