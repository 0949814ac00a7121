//! What a token says of its user, tenant, kind and expiry.
//!
//! Nothing here is a proof: no signature is checked. The auth module checks it, and the key of a decision holds the
//! whole token, so a forged token can only ever find an answer that the auth module gave to the same forged token.
//! What a claim may do is shorten a decision's life and name the scope whose revocation voids it.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;

/// A token as it came, which shows nothing of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token<'a>(&'a [u8]);

impl<'a> Token<'a> {
    /// Takes the header's bytes as they are; any bytes will do.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes, for keys and comparisons, never for logs.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Reads the claims that matter, without checking the signature.
    ///
    /// # Errors
    /// [`Undecodable`] if the token is not a three-part JWT whose payload is base64url of a JSON object in which the claims
    /// read here are of the right types, UTF-8, and each there at most once; an `exp` that is not an unsigned integer is
    /// one of these. Other members are skipped, whatever their texts and numbers are.
    pub fn claims(self) -> Result<Claims, Undecodable> {
        // The crate takes the last three of any number of parts; the auth module wants three in all.
        if self.0.split(|byte| *byte == b'.').count() != 3 {
            return Err(Undecodable);
        }
        let Payload(raw) =
            jsonwebtoken::dangerous::insecure_decode_claims(self.0).map_err(|_| Undecodable)?;
        let kind = raw.kind();
        Ok(Claims {
            user: raw.user_id.filter(|id| !id.is_empty()),
            exp: raw.exp,
            kind,
        })
    }
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The token's payload cannot be read, so nothing may be kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token's payload cannot be read")]
pub struct Undecodable;

/// What one token claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `user_id`, exactly as claimed; none for tokens without a user.
    pub user: Option<String>,
    /// `exp`, seconds since the Unix epoch; none for module and legacy tokens.
    pub exp: Option<u64>,
    /// What the auth module will take it for.
    pub kind: Kind,
}

/// Kinds of token that this service treats differently (mod-authtoken `TokenType`, `sub` prefixes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A person's or a module's token.
    Ordinary,
    /// Permissions come from the token alone, the refresh header does nothing for it: claim `dummy`, type `dummy` or
    /// `dummy-expiring`, or `sub` of the auth module's own look-ups (`_AUTHZ_MODULE_`).
    Dummy,
    /// Minted for one token-less request (`sub` starting with `UNDEFINED_USER__`): nobody will ever send it again.
    OneShot,
}

impl Kind {
    /// Whether the auth module takes it for a dummy, for which `Authtoken-Refresh-Cache` has no effect.
    pub fn is_dummy(self) -> bool {
        match self {
            Self::Ordinary => false,
            Self::Dummy | Self::OneShot => true,
        }
    }
}

/// The claims of a JSON object. A derived reader alone would take an array for a struct.
struct Payload(RawClaims);

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = RawClaims;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                RawClaims::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(Object).map(Self)
    }
}

/// `serde` refuses a claim given twice, and a float or text for `exp`.
#[derive(Deserialize)]
struct RawClaims {
    #[serde(default)]
    sub: Option<String>,
    #[serde(default)]
    user_id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    exp: Option<u64>,
    #[serde(default)]
    dummy: Option<bool>,
    #[serde(default, rename = "type")]
    token_type: Option<String>,
}

impl RawClaims {
    fn kind(&self) -> Kind {
        let sub = self.sub.as_deref().unwrap_or_default();
        let token_type = self.token_type.as_deref().unwrap_or_default();
        if sub.starts_with("UNDEFINED_USER__") {
            Kind::OneShot
        } else if self.dummy == Some(true)
            || sub.starts_with("_AUTHZ_MODULE_")
            || token_type.starts_with("dummy")
        {
            Kind::Dummy
        } else {
            Kind::Ordinary
        }
    }
}

/// `"exp": null` is not an absent `exp`: the auth module answers 500 to it, so there is doubt.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    u64::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn token(claims: impl AsRef<[u8]>) -> String {
        format!(
            "eyJhbGciOiJIUzI1NiJ9.{}.c2lnbmF0dXJl",
            URL_SAFE_NO_PAD.encode(claims)
        )
    }

    fn claims(payload: impl AsRef<[u8]>) -> Result<Claims, Undecodable> {
        Token::new(token(payload).as_bytes()).claims()
    }

    #[test]
    fn an_access_token_tells_user_and_expiry() {
        let found = claims(
            r#"{"sub":"desk","type":"access","exp":2111400947,"user_id":"u-1","iat":1,"tenant":"diku"}"#,
        );

        assert_eq!(
            found,
            Ok(Claims {
                user: Some("u-1".into()),
                exp: Some(2_111_400_947),
                kind: Kind::Ordinary
            })
        );
    }

    #[test]
    fn a_name_with_umlauts_is_no_hindrance() {
        let found = claims(
            r#"{"sub":"müller ÿþ?>","type":"access","exp":5,"user_id":"ü","tenant":"diku"}"#,
        );

        assert_eq!(
            found.map(|claims| (claims.user, claims.exp)),
            Ok((Some("ü".into()), Some(5)))
        );
    }

    #[test]
    fn each_kind_of_token_is_known_by_its_claims() {
        let cases = [
            (r#"{"sub":"x","type":"module"}"#, Kind::Ordinary),
            (r#"{"sub":"x"}"#, Kind::Ordinary),
            (r#"{"sub":"x","dummy":false}"#, Kind::Ordinary),
            (r#"{"sub":"x","dummy":true}"#, Kind::Dummy),
            (r#"{"sub":"x","type":"dummy-expiring"}"#, Kind::Dummy),
            (r#"{"sub":"_AUTHZ_MODULE_","type":"module"}"#, Kind::Dummy),
            (
                r#"{"sub":"UNDEFINED_USER__1234","dummy":true}"#,
                Kind::OneShot,
            ),
        ];

        for (text, kind) in cases {
            assert_eq!(claims(text).map(|claims| claims.kind), Ok(kind), "{text}");
        }
    }

    #[test]
    fn doubt_about_a_claim_makes_the_token_undecodable() {
        for text in [
            r#"{"exp":"12"}"#,
            r#"{"exp":1.5}"#,
            r#"{"exp":-1}"#,
            r#"{"exp":null}"#,
            r#"{"exp":1,"exp":2}"#,
            r#"{"user_id":7}"#,
            r#"{"dummy":"true"}"#,
            r#"["sub"]"#,
            "[]",
            "null",
            "{",
        ] {
            assert_eq!(claims(text), Err(Undecodable), "{text}");
        }
        for raw in [&b""[..], b"a.b", b"a.b.c", b"\xff\xfe.\x80.x", b"a.b.c.d.e"] {
            assert_eq!(Token::new(raw).claims(), Err(Undecodable));
        }
    }

    #[test]
    fn a_member_that_is_not_read_is_no_hindrance_and_one_that_is_must_be_a_text() {
        let found = claims(b"{\"name\":\"\xff\",\"n\":1e999,\"exp\":5}");
        assert_eq!(found.map(|claims| claims.exp), Ok(Some(5)));

        for payload in [&b"{\"user_id\":\"\xff\"}"[..], b"{\"\xff\":1}"] {
            assert_eq!(claims(payload), Err(Undecodable));
        }
    }

    #[test]
    fn debug_shows_nothing_of_a_token() {
        let text = token(r#"{"sub":"desk"}"#);

        assert_eq!(format!("{:?}", Token::new(text.as_bytes())), "Token(…)");
    }
}
