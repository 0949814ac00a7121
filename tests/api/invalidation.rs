//! To be written: invalidation.
