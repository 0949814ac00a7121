//! mod-users and mod-permissions, as far as mod-authtoken asks them.
//!
//! They tell what the world says at that moment, with one exception: mod-permissions remembers a tenant's permission sets for
//! 30 s and then gives the old ones once more while it renews them. Who has been assigned what is never remembered here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::world::{LookUp, Sets, World};

/// A module's answer: status and JSON or text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: String,
}

/// A look-up, read from its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// `GET /users/{id}`.
    User(String),
    /// `GET /user-tenants?limit=1`.
    UserTenants,
    /// `GET /perms/users/{id}/permissions?expanded=true&indexField=userId`.
    UserPermissions(String),
    /// `GET /perms/permissions?expanded=true&query=...`, percent-decoded CQL.
    PermissionSets(String),
}

impl Question {
    /// Reads a target; `None` if it is not one of the four.
    pub fn parse(target: &str) -> Option<Self> {
        if target == "/user-tenants?limit=1" {
            return Some(Self::UserTenants);
        }
        if let Some(cql) = target.strip_prefix("/perms/permissions?expanded=true&query=") {
            return Some(Self::PermissionSets(form_decoded(cql)));
        }
        if let Some(rest) = target.strip_prefix("/perms/users/") {
            let id = rest.strip_suffix("/permissions?expanded=true&indexField=userId")?;
            return Some(Self::UserPermissions(id.to_owned()));
        }
        let id = target.strip_prefix("/users/")?;
        (!id.contains(['/', '?'])).then(|| Self::User(id.to_owned()))
    }

    fn kind(&self) -> LookUp {
        match self {
            Self::User(_) => LookUp::User,
            Self::UserTenants => LookUp::UserTenants,
            Self::UserPermissions(_) => LookUp::UserPermissions,
            Self::PermissionSets(_) => LookUp::PermissionSets,
        }
    }
}

/// What mod-permissions remembers.
#[derive(Debug, Default)]
pub struct Modules {
    sets: HashMap<String, (Arc<Sets>, Duration)>,
}

impl Modules {
    /// Answers a look-up. `now` is the clock's time, `memory` how long mod-permissions trusts its sets.
    pub fn answer(
        &mut self,
        world: &World,
        tenant: &str,
        question: &Question,
        now: Duration,
        memory: Duration,
    ) -> Answer {
        if let Some(status) = world.failure(question.kind()) {
            return answer(status, "look-up failed");
        }
        match question {
            Question::User(id) => match world.user(tenant, id) {
                Some(user) => {
                    let mut body = json!({"id": id, "username": user.username});
                    if let Some(active) = user.active {
                        body["active"] = active.into();
                    }
                    answer(200, &body.to_string())
                }
                None => answer(404, "Not found"),
            },
            Question::UserTenants => {
                let members: &[_] = if world.is_consortium(tenant) {
                    &[json!({"tenantId": tenant})]
                } else {
                    &[]
                };
                let body = json!({"userTenants": members, "totalRecords": members.len()});
                answer(200, &body.to_string())
            }
            Question::UserPermissions(id) => match world.user(tenant, id) {
                Some(user) => {
                    let sets = self.sets(world, tenant, now, memory);
                    let names = expanded(&user.permissions, &sets);
                    let body = json!({"permissionNames": names, "totalRecords": names.len()});
                    answer(200, &body.to_string())
                }
                None => answer(404, "User not found"),
            },
            Question::PermissionSets(cql) => match names(cql) {
                Some(names) => {
                    let sets = self.sets(world, tenant, now, memory);
                    let found: Vec<_> = names
                        .iter()
                        .filter_map(|name| Some((name, sets.get(*name)?)))
                        .map(|(name, parts)| json!({"permissionName": name, "subPermissions": parts}))
                        .collect();
                    let body = json!({"permissions": found, "totalRecords": found.len()});
                    answer(200, &body.to_string())
                }
                None => answer(400, "CQL parse error"),
            },
        }
    }

    /// A tenant's sets as mod-permissions knows them; an over-aged memory answers once more and is renewed.
    fn sets(&mut self, world: &World, tenant: &str, now: Duration, memory: Duration) -> Arc<Sets> {
        let fresh = world.sets(tenant);
        match self.sets.get_mut(tenant) {
            None => {
                self.sets
                    .insert(tenant.to_owned(), (Arc::clone(&fresh), now));
                fresh
            }
            Some((known, since)) if now.saturating_sub(*since) > memory => {
                *since = now;
                std::mem::replace(known, fresh)
            }
            Some((known, _)) => Arc::clone(known),
        }
    }
}

/// The names, then the parts of those that are sets (and their parts), each once.
fn expanded(assigned: &[String], sets: &Sets) -> Vec<String> {
    let mut names: Vec<String> = assigned.to_vec();
    let mut next = 0;
    while let Some(name) = names.get(next) {
        for part in sets.get(name).cloned().unwrap_or_default() {
            if !names.contains(&part) {
                names.push(part);
            }
        }
        next += 1;
    }
    names
}

/// The names in `(permissionName=="a" or permissionName=="b")`; `None` for anything else, as a CQL parser would refuse it.
fn names(cql: &str) -> Option<Vec<&str>> {
    let inner = cql.strip_prefix('(')?.strip_suffix(')')?;
    inner
        .split(" or ")
        .map(|term| {
            let name = term.strip_prefix("permissionName==\"")?.strip_suffix('"')?;
            (!name.contains('"')).then_some(name)
        })
        .collect()
}

/// Undoes Java's `URLEncoder`: `+` is a space, `%xx` a byte.
fn form_decoded(encoded: &str) -> String {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let escaped = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (escaped, first) {
            (Some(byte), _) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (None, b'+') => bytes.push(b' '),
            (None, other) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Java's `URLEncoder`: letters, digits and `-_.*` stay, a space becomes `+`, all else `%XX`.
pub fn form_encoded(text: &str) -> String {
    const HEX: [u8; 16] = *b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            _ => {
                encoded.push('%');
                encoded.push(char::from(HEX[usize::from(byte >> 4)]));
                encoded.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
    encoded
}

fn answer(status: u16, body: &str) -> Answer {
    Answer {
        status,
        body: body.to_owned(),
    }
}
