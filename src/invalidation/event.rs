//! Which requests announce that somebody's permissions change.
//!
//! Every request of the platform passes the auth module before it runs, with its method and path, so the announcement
//! is the request's own head. Exact shapes only: a look-alike (`/users/expire/timer`, `/users/configurations/entry/x`)
//! that counted as an event would let a timer empty the cache. No body is ever read.

use crate::key::RequestLine;

/// What a request announces, by what mod-users, mod-permissions and Okapi do when it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// `PUT` or `DELETE /users/{id}`: deactivated, changed, gone.
    UserChange,
    /// `DELETE /users`: any number of users.
    UsersDelete,
    /// `DELETE /perms/users/{id}/permissions/{name}`.
    PermissionRevoke,
    /// `PUT` or `DELETE /perms/users/{id}`, by mod-permissions' own id.
    PermissionUserChange,
    /// `POST /perms/users/{id}/permissions?indexField=userId`.
    PermissionGrant,
    /// `/perms/permissions`, `/perms/purge-deprecated`, `/_/tenantpermissions`.
    PermissionSetChange,
    /// `POST` or `DELETE /user-tenants`: who belongs to which tenant of a consortium.
    UserTenantsChange,
    /// `POST` or `DELETE /_/tenant`: a module is enabled, upgraded or disabled.
    TenantInit,
    /// `POST /token/invalidate` or `/token/invalidate-all`, answered 204.
    Logout,
    /// `Authtoken-Refresh-Cache: true` from outside.
    RefreshHeader,
    /// The signing key changed: good tokens became `Invalid token`.
    SigningKey,
    /// The auth module said that the user is not active or does not exist.
    UserInactive,
}

impl Event {
    /// Every event, for metrics that are there from the start.
    pub const ALL: [Self; 12] = [
        Self::UserChange,
        Self::UsersDelete,
        Self::PermissionRevoke,
        Self::PermissionUserChange,
        Self::PermissionGrant,
        Self::PermissionSetChange,
        Self::UserTenantsChange,
        Self::TenantInit,
        Self::Logout,
        Self::RefreshHeader,
        Self::SigningKey,
        Self::UserInactive,
    ];

    /// The event as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserChange => "user_change",
            Self::UsersDelete => "users_delete",
            Self::PermissionRevoke => "permission_revoke",
            Self::PermissionUserChange => "permission_user_change",
            Self::PermissionGrant => "permission_grant",
            Self::PermissionSetChange => "permission_set_change",
            Self::UserTenantsChange => "user_tenants_change",
            Self::TenantInit => "tenant_init",
            Self::Logout => "logout",
            Self::RefreshHeader => "refresh_header",
            Self::SigningKey => "signing_key",
            Self::UserInactive => "user_inactive",
        }
    }
}

/// Whom an event concerns, within the tenant of the request that announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One user of the tenant; the id is a UUID in lower case.
    User(String),
    /// The user whose token the request carries.
    TokenUser,
    /// Everybody in the tenant.
    Tenant,
}

/// An event and whom it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What happens.
    pub event: Event,
    /// To whom.
    pub scope: Scope,
    /// The status that says it may happen: 202 from the filter, 204 from the auth module's own logout.
    pub confirmed_by: u16,
}

/// Reads the announcement in a request's method and target, if there is one.
pub fn announced(line: RequestLine<'_>) -> Option<Announcement> {
    // Nearly all requests are GET, and none of those is an event.
    let method = match line.method {
        "POST" => Verb::Post,
        "PUT" => Verb::Put,
        "DELETE" => Verb::Delete,
        _ => return None,
    };
    let (path, query) = line.split();
    let mut segments = [""; 6];
    let mut count = 0;
    for segment in path.strip_prefix('/')?.split('/') {
        *segments.get_mut(count)? = segment;
        count += 1;
    }
    let (event, scope) = event(method, &segments[..count], index_field(query))?;
    let confirmed_by = if event == Event::Logout { 204 } else { 202 };
    Some(Announcement {
        event,
        scope,
        confirmed_by,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Post,
    Put,
    Delete,
}

fn event(method: Verb, path: &[&str], index: IndexField) -> Option<(Event, Scope)> {
    match (method, path) {
        (Verb::Put | Verb::Delete, ["users", id]) => {
            Some((Event::UserChange, Scope::User(uuid(id)?)))
        }
        (Verb::Delete, ["users"]) => Some((Event::UsersDelete, Scope::Tenant)),
        (Verb::Delete, ["perms", "users", id, "permissions", name]) if !name.is_empty() => {
            let user = uuid(id)?;
            let scope = match index {
                IndexField::UserId => Scope::User(user),
                IndexField::Other => Scope::Tenant,
            };
            Some((Event::PermissionRevoke, scope))
        }
        (Verb::Post, ["perms", "users", id, "permissions"]) => match index {
            IndexField::UserId => Some((Event::PermissionGrant, Scope::User(uuid(id)?))),
            IndexField::Other => None,
        },
        (Verb::Put | Verb::Delete, ["perms", "users", id]) => {
            uuid(id).map(|_| (Event::PermissionUserChange, Scope::Tenant))
        }
        (_, ["perms", "permissions"])
        | (Verb::Post, ["perms", "purge-deprecated"] | ["_", "tenantpermissions"]) => {
            Some((Event::PermissionSetChange, Scope::Tenant))
        }
        (_, ["perms", "permissions", id]) if !id.is_empty() => {
            Some((Event::PermissionSetChange, Scope::Tenant))
        }
        (Verb::Post | Verb::Delete, ["user-tenants"]) => {
            Some((Event::UserTenantsChange, Scope::Tenant))
        }
        (Verb::Post | Verb::Delete, ["_", "tenant"]) => Some((Event::TenantInit, Scope::Tenant)),
        (Verb::Post | Verb::Delete, ["_", "tenant", id]) if !id.is_empty() => {
            Some((Event::TenantInit, Scope::Tenant))
        }
        (Verb::Post, ["token", "invalidate" | "invalidate-all"]) => {
            Some((Event::Logout, Scope::TokenUser))
        }
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IndexField {
    UserId,
    Other,
}

/// Whether the query says, without contradiction, that ids are user ids and not mod-permissions' own.
fn index_field(query: Option<&str>) -> IndexField {
    let mut values = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.strip_prefix("indexField="));
    match (values.next(), values.next()) {
        (Some("userId"), None) => IndexField::UserId,
        _ => IndexField::Other,
    }
}

/// A UUID in lower case, or nothing.
pub fn uuid(text: &str) -> Option<String> {
    let well_formed = text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    well_formed.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "22222222-2222-4222-8222-22222222abCD";

    fn found(method: &str, target: &str) -> Option<(Event, Scope)> {
        let target = &target.replace("{id}", ID);
        announced(RequestLine { method, target }).map(|found| (found.event, found.scope))
    }

    fn user() -> Scope {
        Scope::User(ID.to_lowercase())
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn every_event_of_the_table_is_known_by_its_exact_shape() {
        let cases = [
            ("PUT", "/users/{id}", Event::UserChange, user()),
            ("DELETE", "/users/{id}", Event::UserChange, user()),
            (
                "DELETE",
                "/users?query=username==x*",
                Event::UsersDelete,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/perms/users/{id}/permissions/a.b?indexField=userId",
                Event::PermissionRevoke,
                user(),
            ),
            (
                "DELETE",
                "/perms/users/{id}/permissions/a%20b?x=1&indexField=userId&y",
                Event::PermissionRevoke,
                user(),
            ),
            (
                "DELETE",
                "/perms/users/{id}/permissions/a",
                Event::PermissionRevoke,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/perms/users/{id}/permissions/a?indexField=id",
                Event::PermissionRevoke,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/perms/users/{id}/permissions/a?indexField=userId&indexField=id",
                Event::PermissionRevoke,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/perms/users/{id}/permissions/a?xindexField=userId",
                Event::PermissionRevoke,
                Scope::Tenant,
            ),
            (
                "PUT",
                "/perms/users/{id}",
                Event::PermissionUserChange,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/perms/users/{id}?indexField=userId",
                Event::PermissionUserChange,
                Scope::Tenant,
            ),
            (
                "POST",
                "/perms/users/{id}/permissions?indexField=userId",
                Event::PermissionGrant,
                user(),
            ),
            (
                "POST",
                "/perms/permissions",
                Event::PermissionSetChange,
                Scope::Tenant,
            ),
            (
                "PUT",
                "/perms/permissions/{id}",
                Event::PermissionSetChange,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/perms/permissions/{id}",
                Event::PermissionSetChange,
                Scope::Tenant,
            ),
            (
                "POST",
                "/perms/purge-deprecated",
                Event::PermissionSetChange,
                Scope::Tenant,
            ),
            (
                "POST",
                "/_/tenantpermissions",
                Event::PermissionSetChange,
                Scope::Tenant,
            ),
            (
                "POST",
                "/user-tenants",
                Event::UserTenantsChange,
                Scope::Tenant,
            ),
            (
                "DELETE",
                "/user-tenants?query=x",
                Event::UserTenantsChange,
                Scope::Tenant,
            ),
            ("POST", "/_/tenant", Event::TenantInit, Scope::Tenant),
            ("DELETE", "/_/tenant/{id}", Event::TenantInit, Scope::Tenant),
            ("POST", "/token/invalidate", Event::Logout, Scope::TokenUser),
            (
                "POST",
                "/token/invalidate-all",
                Event::Logout,
                Scope::TokenUser,
            ),
        ];
        for (method, target, event, scope) in cases {
            assert_eq!(
                found(method, target),
                Some((event, scope)),
                "{method} {target}"
            );
        }
    }

    #[test]
    fn look_alikes_are_no_events() {
        for (method, target) in [
            ("GET", "/users/{id}"),
            ("HEAD", "/users/{id}"),
            ("PATCH", "/users/{id}"),
            ("POST", "/users"),
            ("PUT", "/users"),
            ("PUT", "/users/"),
            ("PUT", "/users/{id}/"),
            ("PUT", "//users/{id}"),
            ("PUT", "/users/{id}/x"),
            ("PUT", "/users/profile-picture"),
            ("POST", "/users/expire/timer"),
            ("POST", "/users/outbox/process"),
            ("PUT", "/users/configurations/entry/{id}"),
            ("PUT", "/users/22222222-2222-4222-8222-22222222222"),
            ("PUT", "/users/g2222222-2222-4222-8222-222222222222"),
            ("POST", "/perms/users"),
            ("POST", "/perms/users/{id}/permissions"),
            ("PUT", "/perms/users/me"),
            ("DELETE", "/perms/users/{id}/permissions/"),
            ("DELETE", "/perms/users/{id}/permissions/a/b"),
            ("GET", "/perms/permissions"),
            ("PUT", "/perms/permissions/a/b"),
            ("GET", "/_/tenant/{id}"),
            ("POST", "/_/tenants"),
            ("POST", "/token"),
            ("POST", "/token/sign"),
            ("POST", "/token/refresh"),
            ("DELETE", "/token/invalidate"),
            ("PUT", "/user-tenants"),
            ("PUT", "/x/users/{id}"),
        ] {
            assert_eq!(found(method, target), None, "{method} {target}");
        }
    }

    #[test]
    fn only_a_logout_is_confirmed_by_204() {
        let status = |method: &str, target: &str| {
            announced(RequestLine { method, target }).map(|found| found.confirmed_by)
        };

        assert_eq!(status("POST", "/token/invalidate"), Some(204));
        assert_eq!(status("DELETE", "/users"), Some(202));
    }
}
