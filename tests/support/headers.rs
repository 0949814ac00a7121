//! Header fields as they stand on the wire: in order, with their case, duplicates kept, values as bytes.
//!
//! `http::HeaderMap` lower-cases names and groups duplicates, so it can neither prove what the wire showed nor send odd things.

use std::borrow::Cow;
use std::fmt;

/// Names whose values are secrets (tokens, cookies) and never shown, not even in a failed assertion.
const SECRET: [&str; 7] = [
    "x-okapi-token",
    "x-okapi-module-tokens",
    "x-okapi-additional-token",
    "cookie",
    "set-cookie",
    "authorization",
    "proxy-authorization",
];

/// An ordered list of header fields.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a field; a field of the same name stays.
    pub fn push(&mut self, name: impl Into<String>, value: impl AsRef<[u8]>) {
        self.0.push((name.into(), value.as_ref().to_vec()));
    }

    /// Gives the first field of this name another value, in place, and drops its duplicates; appends it if there was none.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let Some(at) = self
            .0
            .iter()
            .position(|(known, _)| known.eq_ignore_ascii_case(name))
        else {
            return self.push(name, value);
        };
        self.0[at].1 = value.as_ref().to_vec();
        let mut index = 0;
        self.0.retain(|(known, _)| {
            index += 1;
            index - 1 <= at || !known.eq_ignore_ascii_case(name)
        });
    }

    /// Drops all fields of this name.
    pub fn remove(&mut self, name: &str) {
        self.0
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    /// The first field's value as text; `None` if there is none or it is not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.bytes(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The first field's value as Netty reads it: a byte is a character, whatever it was meant to be.
    pub fn latin(&self, name: &str) -> Option<Cow<'_, str>> {
        self.bytes(name)
            .map(|value| match std::str::from_utf8(value) {
                Ok(text) if text.is_ascii() => Cow::Borrowed(text),
                _ => value.iter().copied().map(char::from).collect(),
            })
    }

    /// The first field's value.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        self.bytes(name).is_some()
    }

    /// Whether the comma-separated value of a field of this name holds this word, in any case.
    pub fn has_word(&self, name: &str, word: &str) -> bool {
        self.all(name).any(|value| {
            value
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        })
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The names in wire order and case.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes as Vert.x counts them against its limit of 8192: names, values and two for each field.
    pub fn size(&self) -> usize {
        self.0
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2)
            .sum()
    }

    /// Appends the fields as they go over the wire, without the empty line at the end.
    pub fn write_to(&self, wire: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            wire.extend_from_slice(name.as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value);
            wire.extend_from_slice(b"\r\n");
        }
    }
}

impl<N: Into<String>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in fields {
            headers.push(name, value);
        }
        headers
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = formatter.debug_map();
        for (name, value) in self.iter() {
            if SECRET
                .iter()
                .any(|secret| secret.eq_ignore_ascii_case(name))
            {
                map.entry(&name, &format_args!("<{} bytes>", value.len()));
            } else {
                map.entry(&name, &String::from_utf8_lossy(value));
            }
        }
        map.finish()
    }
}
