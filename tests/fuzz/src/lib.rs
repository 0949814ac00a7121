//! How a fuzzer's bytes become requests and answers: as text, so that a dictionary and a person can read them.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// Headers that belong to a connection and never travel (the design's fixed list, invariant 9).
pub const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// The parts between blank lines; missing ones are empty.
pub fn parts<const N: usize>(input: &[u8]) -> [Vec<&[u8]>; N] {
    let mut parts = [const { Vec::new() }; N];
    let mut at = 0;
    for line in input.split(|byte| *byte == b'\n') {
        if line.is_empty() && at + 1 < N {
            at += 1;
        } else {
            parts[at].push(line);
        }
    }
    parts
}

/// The headers of `name:value` lines in order, names in lower case; lines that are none are skipped.
pub fn fields(lines: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
    let field = |line: &&[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((name.as_str().to_owned(), value.as_bytes().to_vec()))
    };
    lines.iter().filter_map(field).collect()
}

/// The same as the service gets them. `None` beyond what the HTTP library takes of one request.
pub fn head(fields: &[(String, Vec<u8>)]) -> Option<HeaderMap> {
    let mut head = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        head.try_append(name, HeaderValue::from_bytes(value).ok()?)
            .ok()?;
    }
    Some(head)
}

/// All values of a header.
pub fn values<'a>(fields: &'a [(String, Vec<u8>)], name: &str) -> Vec<&'a [u8]> {
    let of_name = fields.iter().filter(|(other, _)| other == name);
    of_name.map(|(_, value)| value.as_slice()).collect()
}

/// Which members of an object are read. The others' values are skipped, as the service skips them.
pub trait Wanted {
    /// Whether the member of this name is.
    fn wanted(name: &str) -> bool;
}

/// All members are read.
#[derive(Debug)]
pub struct All;
impl Wanted for All {
    fn wanted(_: &str) -> bool {
        true
    }
}

/// No member is read: only names count.
#[derive(Debug)]
pub struct NamesOnly;
impl Wanted for NamesOnly {
    fn wanted(_: &str) -> bool {
        false
    }
}

/// A JSON object as its members, repeated ones included.
#[derive(Debug)]
pub struct Members<W>(pub Vec<(String, Value)>, PhantomData<W>);

impl<W> Members<W> {
    /// The names in order of the alphabet.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The values of all members of this name.
    pub fn all(&self, name: &str) -> Vec<&Value> {
        let of_name = self.0.iter().filter(|(other, _)| other == name);
        of_name.map(|(_, value)| value).collect()
    }
}

impl<'de, W: Wanted> Deserialize<'de> for Members<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<W>(PhantomData<W>);
        impl<'de, W: Wanted> Visitor<'de> for Object<W> {
            type Value = Members<W>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<W>, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value = if W::wanted(&name) {
                        map.next_value()?
                    } else {
                        map.next_value::<IgnoredAny>()?;
                        Value::Null
                    };
                    members.push((name, value));
                }
                Ok(Members(members, PhantomData))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}
