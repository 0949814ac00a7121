//! To be written: expiry.
