//! To be written: lifecycle.
