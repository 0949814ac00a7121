//! What is wrong with the settings, told so that it can be put right at once.

use super::PREFIX;
use std::fmt;

/// All mistakes of one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Mistake>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, mistake) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// One setting that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The variable's whole name.
    pub name: String,
    /// What was given; hidden for secrets.
    pub value: String,
    /// What would be right.
    pub right: String,
}

impl Mistake {
    pub(super) fn new(name: &str, value: &str, right: &str) -> Self {
        Self {
            name: format!("{PREFIX}{name}"),
            value: value.to_owned(),
            right: right.to_owned(),
        }
    }

    pub(super) fn unknown(name: &str, nearest: &str, file: &str) -> Self {
        let (shown, nearest) = if file.is_empty() {
            (format!("{PREFIX}{name}"), format!("{PREFIX}{nearest}"))
        } else {
            (format!("{name} in {file}"), nearest.to_lowercase())
        };
        Self {
            name: shown,
            value: String::new(),
            right: format!("a known setting; the nearest is {nearest}"),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: wanted: {}", self.name, self.right)
        } else {
            write!(
                f,
                "{}: '{}' is wrong; wanted: {}",
                self.name,
                self.value.escape_debug(),
                self.right
            )
        }
    }
}
