//! To be written: key.
