//! To be written: wire.
