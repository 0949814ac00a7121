//! Tokens of the model's world: readable for the sidecar, known by heart to the auth module.

use crate::plan::Millis;
use crate::truth::{Mask, Truth};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use http::HeaderValue;
use std::fmt;

/// What the wall clock shows at the world's start, in milliseconds since 1970.
pub(crate) const WALL_START: u64 = 1_800_000_000_000;

/// What a token is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A person's, good until this second since 1970.
    Access { expires: u64 },
    /// The old kind, good for ever.
    Legacy,
    /// A module's that works for a user; it may hold a permission set, and leave the user to a header.
    Module {
        set: Option<usize>,
        names_user: bool,
    },
    /// Nobody's, with permissions of its own.
    Dummy { given: Mask },
}

#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) text: HeaderValue,
    pub(crate) tenant: usize,
    /// Whom it speaks for; of a dummy, nobody.
    pub(crate) user: usize,
    pub(crate) kind: Kind,
    /// Which signing key it is signed with.
    pub(crate) key: u32,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text: _,
            tenant,
            user,
            kind,
            key,
        } = self;
        write!(
            f,
            "token of user {user} in tenant {tenant}, {kind:?}, key {key}"
        )
    }
}

impl Token {
    pub(crate) fn mint(
        truth: &Truth,
        tenant: usize,
        user: usize,
        kind: Kind,
        number: usize,
    ) -> Self {
        let id = &truth.user(tenant, user).id;
        let claims = match kind {
            Kind::Access { expires } => {
                format!(r#""type":"access","user_id":"{id}","exp":{expires}"#)
            }
            Kind::Legacy => format!(r#""type":"legacy-access","user_id":"{id}""#),
            Kind::Module {
                names_user: true, ..
            } => format!(r#""type":"module","user_id":"{id}""#),
            Kind::Module {
                names_user: false, ..
            } => r#""type":"module""#.to_owned(),
            Kind::Dummy { .. } => r#""type":"dummy","dummy":true"#.to_owned(),
        };
        let payload = format!(r#"{{"sub":"model","tenant":"t{tenant}","iat":{number},{claims}}}"#);
        let text = format!(
            "eyJhbGciOiJIUzI1NiJ9.{}.{}",
            BASE64URL.encode(payload),
            BASE64URL.encode(format!("key {}", truth.key))
        );
        Self {
            text: HeaderValue::try_from(text).expect("base64 makes a header value"),
            tenant,
            user,
            kind,
            key: truth.key,
        }
    }

    pub(crate) fn is_dummy(&self) -> bool {
        matches!(self.kind, Kind::Dummy { .. })
    }

    /// Whether the request must name the user, since the token does not.
    pub(crate) fn leaves_user_open(&self) -> bool {
        matches!(
            self.kind,
            Kind::Module {
                names_user: false,
                ..
            }
        )
    }

    /// Whom a request with this token and this user in its header is about.
    pub(crate) fn effective_user(&self, header: Option<usize>) -> Option<usize> {
        if self.is_dummy() {
            None
        } else if self.leaves_user_open() {
            header
        } else {
            Some(self.user)
        }
    }

    pub(crate) fn expires(&self) -> Option<u64> {
        match self.kind {
            Kind::Access { expires } => Some(expires),
            Kind::Legacy | Kind::Module { .. } | Kind::Dummy { .. } => None,
        }
    }

    /// The permission set in it.
    pub(crate) fn set(&self) -> Option<usize> {
        match self.kind {
            Kind::Module { set, .. } => set,
            Kind::Access { .. } | Kind::Legacy | Kind::Dummy { .. } => None,
        }
    }

    /// The permissions in it.
    pub(crate) fn given(&self) -> Mask {
        match self.kind {
            Kind::Dummy { given } => given,
            Kind::Access { .. } | Kind::Legacy | Kind::Module { .. } => 0,
        }
    }

    /// The first moment at which mod-authtoken refuses it for its age: the second of `exp` itself is still good.
    pub(crate) fn expired_from(&self) -> Option<Millis> {
        self.expires()
            .map(|expires| ((expires + 1) * 1_000).saturating_sub(WALL_START))
    }
}
