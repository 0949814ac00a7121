//! To be written: properties.
