//! The header names this service knows, and which of them never travel.
//!
//! Names only: no values, no logic of one request. The trap: what a client's `Connection` header *names* is not
//! hop-by-hop here. End users' headers reach us through Okapi unfiltered, and dropping `X-Okapi-Permissions-Required`
//! because somebody named it there would ask the auth module a question without the permission.

use http::header::HeaderName;

/// `X-Okapi-Tenant` (Okapi `XOkapiHeaders.TENANT`).
pub const TENANT: HeaderName = HeaderName::from_static("x-okapi-tenant");
/// `X-Okapi-Url` (`XOkapiHeaders.URL`): where the auth module asks its look-ups.
pub const URL: HeaderName = HeaderName::from_static("x-okapi-url");
/// `X-Okapi-Token` (`XOkapiHeaders.TOKEN`).
pub const TOKEN: HeaderName = HeaderName::from_static("x-okapi-token");
/// `X-Okapi-User-Id` (`XOkapiHeaders.USER_ID`).
pub const USER_ID: HeaderName = HeaderName::from_static("x-okapi-user-id");
/// `X-Okapi-Permissions-Required` (`XOkapiHeaders.PERMISSIONS_REQUIRED`).
pub const PERMISSIONS_REQUIRED: HeaderName =
    HeaderName::from_static("x-okapi-permissions-required");
/// `X-Okapi-Permissions-Desired` (`XOkapiHeaders.PERMISSIONS_DESIRED`).
pub const PERMISSIONS_DESIRED: HeaderName = HeaderName::from_static("x-okapi-permissions-desired");
/// `X-Okapi-Module-Permissions` (`XOkapiHeaders.MODULE_PERMISSIONS`): present on every filter call, `{}` when empty.
pub const MODULE_PERMISSIONS: HeaderName = HeaderName::from_static("x-okapi-module-permissions");
/// `X-Okapi-Extra-Permissions` (`XOkapiHeaders.EXTRA_PERMISSIONS`): redirect routes only.
pub const EXTRA_PERMISSIONS: HeaderName = HeaderName::from_static("x-okapi-extra-permissions");
/// `X-Okapi-Additional-Token` (`XOkapiHeaders.ADDITIONAL_TOKEN`): read by other auth modules.
pub const ADDITIONAL_TOKEN: HeaderName = HeaderName::from_static("x-okapi-additional-token");
/// `X-Okapi-Filter` (`XOkapiHeaders.FILTER`): absent on pipeline calls, `auth` on system calls.
pub const FILTER: HeaderName = HeaderName::from_static("x-okapi-filter");
/// `X-Okapi-Permissions` (`XOkapiHeaders.PERMISSIONS`): in answers, the permissions found among those asked for.
pub const PERMISSIONS: HeaderName = HeaderName::from_static("x-okapi-permissions");
/// `X-Okapi-Module-Tokens` (`XOkapiHeaders.MODULE_TOKENS`): in answers, one token per module and `_`, the caller's own.
pub const MODULE_TOKENS: HeaderName = HeaderName::from_static("x-okapi-module-tokens");
/// `X-Okapi-Request-Id` (`XOkapiHeaders.REQUEST_ID`).
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-okapi-request-id");
/// `Authtoken-Refresh-Cache` (mod-authtoken `FilterApi`): exactly `true` empties the module's permission memory.
pub const REFRESH_CACHE: HeaderName = HeaderName::from_static("authtoken-refresh-cache");
/// Our own question "is this upstream address myself?", sent once at start and never on behalf of a request.
pub const PROBE: HeaderName = HeaderName::from_static("x-auth-sidecar-probe");

/// Whether a request header stays on its own connection: the fixed list of design invariant 9, and `Host`, which
/// becomes upstream's. `Content-Length` is framing and re-made from the body. `name` in lower case.
pub fn stays_here(name: &str) -> bool {
    // A look at the first letter spares most names ten comparisons.
    match name.as_bytes().first() {
        Some(b'x' | b'a') => false,
        Some(_) | None => hop_by_hop(name) || matches!(name, "host" | "expect" | "content-length"),
    }
}

/// Whether an answer's header belongs to the connection it came on. `name` in lower case.
pub fn hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "transfer-encoding"
            | "te"
            | "trailer"
            | "upgrade"
            | "keep-alive"
            | "proxy-connection"
            | "http2-settings"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_names_that_stay_is_exactly_the_fixed_one() {
        let stays = [
            "connection",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "http2-settings",
            "expect",
            "host",
            "content-length",
        ];
        let travels = [
            "x-okapi-token",
            "x-okapi-permissions-required",
            "accept",
            "cookie",
            "proxy-authorization",
            "content-type",
            "authtoken-refresh-cache",
            "if-none-match",
            "range",
            "content-encoding",
        ];

        for name in stays {
            assert!(stays_here(name), "{name}");
        }
        for name in travels {
            assert!(!stays_here(name), "{name}");
        }
    }
}
