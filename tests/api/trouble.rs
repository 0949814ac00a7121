//! To be written: trouble.
