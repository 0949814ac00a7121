//! A value that must never be seen: a token or a password. `Debug` shows nothing and there is no `Display`.

/// A token or a password. Cloning is allowed, showing is not.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Takes the value as it is.
    pub(crate) fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that puts it into a request.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it can be a token: visible ASCII without a blank.
    pub(crate) fn is_one_word(&self) -> bool {
        !self.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// Whether there is nothing in it: an environment variable that is set, but empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_it() {
        let secret = Secret::new("hunter2");

        let shown = format!("{secret:?} {:?}", Some(&secret));

        assert_eq!(shown, "Secret(..) Some(Secret(..))");
    }
}
