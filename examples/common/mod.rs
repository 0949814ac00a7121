//! What the examples share: a whole small platform in this process, people who work with it, and tables.
//!
//! | file | what |
//! |---|---|
//! | `part.rs` | a part of the platform on a thread of its own, so that its CPU time can be told from the others' |
//! | `network.rs` | a network of a known length between two parts |
//! | `sidecar.rs` | the sidecar, started as a program starts it |
//! | `platform.rs` | stand-in auth module, small Okapi, network and sidecar, put together |
//! | `desk.rs` | what a check-out and a check-in ask the auth module |
//! | `load.rs` | librarians at their desks, all at once, and what they measure |
//! | `office.rs` | a day's work without a sidecar, with a cold and with a warm one |
//! | `original.rs` | the published figures that ours are set beside |
//! | `table.rs` | columns that line up |
//!
//! It includes nothing of the sidecar but its public door, and everything printed was measured in the run that prints it.
#![allow(
    dead_code,
    reason = "every example that includes this folder uses another part of it"
)]

pub(crate) mod desk;
pub(crate) mod load;
pub(crate) mod network;
pub(crate) mod office;
pub(crate) mod original;
pub(crate) mod part;
pub(crate) mod platform;
pub(crate) mod sidecar;
pub(crate) mod table;

/// What goes wrong in an example ends it with a sentence.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
