//! To be written: storing.
