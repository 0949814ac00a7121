//! To be written: admin.
