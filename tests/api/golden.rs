//! To be written: golden.
