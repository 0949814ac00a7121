//! okapi-auth-sidecar stands in front of FOLIO's mod-authtoken, speaks its filter endpoint exactly, answers repeats
//! from a short-lived cache of decisions and forwards everything else untouched.
//!
//! One request's life is the whole architecture: [`filter`] parses it, [`key`] says which stored answer would be its
//! own, [`cache`] looks it up; else [`upstream`] asks, [`decision`] judges whether the answer may be kept and for how
//! long, and [`invalidation`] what makes it void before that.
//!
//! | rooms | what they know of others |
//! |---|---|
//! | [`headers`], [`token`], [`key`], [`decision`], [`target`], [`wire`], [`clock`], [`body`] | values only |
//! | [`cache`], [`invalidation`], [`upstream`], [`metrics`], [`report`] | values, and what they record |
//! | [`filter`], [`admin`] | all of these |
//! | [`register`] and, below it, Okapi's own API | how Okapi is told to ask us; nothing of the filter port |
//! | [`server`], [`shutdown`], [`telemetry`], [`config`], [`local`] | how the process starts, stops and is asked |
//!
//! [`Config`] and [`Server`] are what a program needs; the rooms are public for benches and readers, and change freely.

pub mod admin;
pub mod body;
pub mod cache;
pub mod clock;
pub mod config;
pub mod decision;
pub mod filter;
pub mod headers;
pub mod invalidation;
pub mod key;
pub mod local;
pub mod metrics;
mod okapi;
pub mod register;
pub mod report;
pub mod server;
pub mod shutdown;
pub mod target;
pub mod telemetry;
mod tls;
pub mod token;
pub mod upstream;
pub mod wire;

pub use config::{Config, ConfigErrors};
pub use server::{Server, ServerError};
