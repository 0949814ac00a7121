//! JSON objects whose order counts: the order of `X-Okapi-Module-Permissions` decides the order of the module tokens.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// An object's members in order. Of two with one name the last one's value counts, in the first one's place, as in Java.
#[derive(Clone, Debug, Default)]
pub struct Object(pub Vec<(String, Value)>);

impl Object {
    /// Reads an object; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Sets a member, in its place or at the end.
    pub fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// A member's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut object = Object::default();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            object.set(&name, value);
        }
        Ok(object)
    }
}

/// A list of texts as a JSON array without spaces, as mod-authtoken writes `X-Okapi-Permissions`.
pub fn array<T: AsRef<str>>(texts: &[T]) -> String {
    let mut json = String::from("[");
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(&quoted(text.as_ref()));
    }
    json.push(']');
    json
}

/// Names and texts as a JSON object without spaces, in this order, as mod-authtoken writes `X-Okapi-Module-Tokens`.
pub fn object<N: AsRef<str>, T: AsRef<str>>(members: &[(N, T)]) -> String {
    let mut json = String::from("{");
    for (index, (name, text)) in members.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(&quoted(name.as_ref()));
        json.push(':');
        json.push_str(&quoted(text.as_ref()));
    }
    json.push('}');
    json
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
