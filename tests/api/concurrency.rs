//! To be written: concurrency.
