//! Tokens: HS256 signing and checking, and the claims in the order in which mod-authtoken writes them.
//!
//! The key is the setting's bytes, cut or zero-padded to 32. Only `HS256` is known; encrypted refresh tokens are not made here
//! (see `chance.rs`).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::json::{Object, quoted};

/// Order of the claims of a token that mod-authtoken signs, whatever order they came in.
const ORDER: [&str; 9] = [
    "dummy",
    "sub",
    "type",
    "exp",
    "extra_permissions",
    "user_id",
    "iat",
    "tenant",
    "module",
];

/// `{"alg":"HS256"}`, the header of every token.
const HEADER: &str = "eyJhbGciOiJIUzI1NiJ9";

/// The signing key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// From the setting `jwt.signing.key`.
    pub fn from_setting(setting: &str) -> Self {
        let mut key = [0; 32];
        for (to, from) in key.iter_mut().zip(setting.bytes()) {
            *to = from;
        }
        Self(key)
    }

    /// A token with these claims, in mod-authtoken's order.
    pub fn sign(&self, claims: &Claims) -> String {
        self.sign_payload(&claims.to_json())
    }

    /// A token with exactly this payload: for odd tokens, as somebody who has the key could make them.
    pub fn sign_payload(&self, payload: &str) -> String {
        self.sign_parts(HEADER, payload)
    }

    /// The same with another header, given in base64url. The signature is HS256 all the same.
    pub fn sign_parts(&self, header: &str, payload: &str) -> String {
        let mut token = String::with_capacity(header.len() + payload.len() * 2);
        token.push_str(header);
        token.push('.');
        BASE64URL.encode_string(payload, &mut token);
        let signature = self.mac(&token).finalize().into_bytes();
        token.push('.');
        BASE64URL.encode_string(signature, &mut token);
        token
    }

    /// The payload of a three-part token whose header says `HS256` and whose signature is ours.
    pub fn payload(&self, token: &str) -> Option<Vec<u8>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if header != HEADER {
            let header = BASE64URL.decode(header).ok()?;
            let header: Value = serde_json::from_slice(&header).ok()?;
            if header["alg"] != "HS256" {
                return None;
            }
        }
        let signature = BASE64URL.decode(signature).ok()?;
        self.mac(signed).verify_slice(&signature).ok()?;
        BASE64URL.decode(payload).ok()
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes any key");
        mac.update(signed.as_bytes());
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

/// What a token says.
#[derive(Clone, Debug, Default)]
pub struct Claims(Object);

impl Claims {
    /// No claims yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// From a payload; `None` if it is not a JSON object.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        Object::parse(std::str::from_utf8(payload).ok()?).map(Self)
    }

    /// An access token's claims, as a login makes them. Times in seconds since 1970.
    pub fn access(tenant: &str, username: &str, user_id: &str, issued: i64, expires: i64) -> Self {
        Self::of("access", tenant, username)
            .with("exp", expires)
            .with("user_id", user_id)
            .with("iat", issued)
    }

    /// The old kind of access token: never expires.
    pub fn legacy_access(tenant: &str, username: &str, user_id: &str, issued: i64) -> Self {
        Self::of("legacy-access", tenant, username)
            .with("user_id", user_id)
            .with("iat", issued)
    }

    /// A module's token: nothing in it changes from call to call, so equal questions give equal tokens for ever.
    pub fn module(
        tenant: &str,
        username: &str,
        user_id: Option<&str>,
        module: &str,
        permissions: Value,
    ) -> Self {
        let claims = Self::of("module", tenant, username)
            .with("extra_permissions", permissions)
            .with("module", module);
        match user_id {
            Some(user_id) => claims.with("user_id", user_id),
            None => claims,
        }
    }

    /// A token without a user, as mod-authtoken makes it for token-less requests and for its own look-ups.
    pub fn dummy(tenant: &str, subject: &str) -> Self {
        Self::of("dummy", tenant, subject).with("dummy", true)
    }

    fn of(kind: &str, tenant: &str, subject: &str) -> Self {
        Self::new()
            .with("sub", subject)
            .with("type", kind)
            .with("tenant", tenant)
    }

    /// The same with one more claim, or with another value of it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.set(name, value.into());
        self
    }

    /// A claim.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A claim that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Whether `dummy` is `true`.
    pub fn is_dummy(&self) -> bool {
        self.get("dummy") == Some(&Value::Bool(true))
    }

    /// The texts of `extra_permissions`.
    pub fn extra_permissions(&self) -> Vec<String> {
        self.get("extra_permissions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|permission| permission.as_str().map(str::to_owned))
            .collect()
    }

    /// As mod-authtoken writes them: known claims in its order, others after them.
    fn to_json(&self) -> String {
        let place = |name: &str| ORDER.iter().position(|known| *known == name);
        let mut members: Vec<_> = self.0.0.iter().collect();
        members.sort_by_key(|(name, _)| place(name).unwrap_or(ORDER.len()));
        let mut json = String::from("{");
        for (index, (name, value)) in members.into_iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push_str(&quoted(name));
            json.push(':');
            json.push_str(&value.to_string());
        }
        json.push('}');
        json
    }
}
