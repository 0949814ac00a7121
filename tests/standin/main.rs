//! Proves the stand-in for mod-authtoken by the recorded exchanges, and tries what they do not show.

#[path = "../support/mod.rs"]
mod support;

mod replay;
