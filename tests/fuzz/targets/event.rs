//! Which requests announce a change, beside a reader that was written from the design's table (section 3) alone.
//!
//! Input: a target, which is tried with every method.
#![no_main]

use http::{Method, Uri};
use libfuzzer_sys::fuzz_target;
use okapi_auth_sidecar::invalidation::event::{Announcement, Event, Scope, announced};
use okapi_auth_sidecar::key::RequestLine;

/// The table's rows, tried from top to bottom.
fn expected(method: &str, path: &str, query: Option<&str>) -> Option<Announcement> {
    let (put, post, delete) = (method == "PUT", method == "POST", method == "DELETE");
    let by_user = {
        let values: Vec<_> = query
            .unwrap_or("")
            .split('&')
            .filter(|pair| pair.starts_with("indexField="))
            .collect();
        values == ["indexField=userId"]
    };
    let under = |folder: &str| {
        path.strip_prefix(folder)
            .filter(|name| !name.is_empty() && !name.contains('/'))
    };
    let found = |event, scope| {
        Some(Announcement {
            event,
            scope,
            confirmed_by: if event == Event::Logout { 204 } else { 202 },
        })
    };
    let user = |id: &str| Scope::User(id.to_lowercase());

    if let Some(id) = under("/users/").filter(|id| is_uuid(id)) {
        return (put || delete).then(|| found(Event::UserChange, user(id)))?;
    }
    if path == "/users" {
        return delete.then(|| found(Event::UsersDelete, Scope::Tenant))?;
    }
    if let Some(rest) = path.strip_prefix("/perms/users/") {
        let (id, rest) = rest
            .split_once('/')
            .map_or((rest, None), |(id, rest)| (id, Some(rest)));
        if !is_uuid(id) {
            return None;
        }
        return match rest {
            None => (put || delete).then(|| found(Event::PermissionUserChange, Scope::Tenant))?,
            Some("permissions") => {
                (post && by_user).then(|| found(Event::PermissionGrant, user(id)))?
            }
            Some(rest) => {
                let name = rest.strip_prefix("permissions/")?;
                let scope = if by_user { user(id) } else { Scope::Tenant };
                let one = !name.is_empty() && !name.contains('/');
                (delete && one).then(|| found(Event::PermissionRevoke, scope))?
            }
        };
    }
    if path == "/perms/permissions" || under("/perms/permissions/").is_some() {
        return (post || put || delete)
            .then(|| found(Event::PermissionSetChange, Scope::Tenant))?;
    }
    if path == "/perms/purge-deprecated" || path == "/_/tenantpermissions" {
        return post.then(|| found(Event::PermissionSetChange, Scope::Tenant))?;
    }
    if path == "/user-tenants" {
        return (post || delete).then(|| found(Event::UserTenantsChange, Scope::Tenant))?;
    }
    if path == "/_/tenant" || under("/_/tenant/").is_some() {
        return (post || delete).then(|| found(Event::TenantInit, Scope::Tenant))?;
    }
    if path == "/token/invalidate" || path == "/token/invalidate-all" {
        return post.then(|| found(Event::Logout, Scope::TokenUser))?;
    }
    None
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    let lengths: Vec<_> = groups.iter().map(|group| group.len()).collect();
    lengths == [8, 4, 4, 4, 12]
        && groups.iter().all(|group| {
            group
                .chars()
                .all(|char| "0123456789abcdefABCDEF".contains(char))
        })
}

const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "put", "X",
];

fuzz_target!(|input: &[u8]| {
    let Ok(target) = Uri::try_from(input) else {
        return;
    };
    for name in METHODS {
        let method = Method::from_bytes(name.as_bytes()).expect("a method");

        let expected = expected(name, target.path(), target.query());

        assert_eq!(
            announced(RequestLine::of(&method, &target)),
            expected,
            "{name}"
        );
    }
});
