//! To be written: eligibility.
