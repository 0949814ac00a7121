//! The world that the stand-in answers about: tenants, users, their permissions, permission sets, the signing key.
//!
//! This is the truth, changed at once by the methods below. What mod-permissions and mod-authtoken still remember from before
//! is in `modules.rs` and `memory.rs`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::super::golden;
use super::token::{Claims, Key};

/// Permission sets of a tenant: a name's parts. A name that is not here has none.
pub type Sets = HashMap<String, Vec<String>>;

/// One kind of look-up that mod-authtoken makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookUp {
    /// `GET /users/{id}`: is the user active?
    User,
    /// `GET /user-tenants?limit=1`: is the tenant in a consortium?
    UserTenants,
    /// `GET /perms/users/{id}/permissions?expanded=true&indexField=userId`.
    UserPermissions,
    /// `GET /perms/permissions?expanded=true&query=...`: the parts of permission sets.
    PermissionSets,
}

/// A user of a tenant.
#[derive(Clone, Debug)]
pub struct User {
    /// Login name.
    pub username: String,
    /// `None`: the record has no `active` field, which counts as not active.
    pub active: Option<bool>,
    /// Assigned permissions, in mod-permissions' order; parts of sets are added when asked.
    pub permissions: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    users: HashMap<String, User>,
    sets: Arc<Sets>,
    consortium: bool,
}

/// Everything there is to know.
#[derive(Clone, Debug)]
pub struct World {
    key: Key,
    tenants: HashMap<String, Tenant>,
    /// mod-authtoken's setting `allow.cross.tenant.requests`.
    cross_tenant: bool,
    /// Look-ups that fail, with the status they fail with.
    failing: HashMap<LookUp, u16>,
    /// Tenants without the deprecated non-expiring logins.
    no_legacy: HashSet<String>,
}

impl World {
    /// A world without tenants.
    pub fn empty(signing_key: &str) -> Self {
        Self {
            key: Key::from_setting(signing_key),
            tenants: HashMap::new(),
            cross_tenant: false,
            failing: HashMap::new(),
            no_legacy: HashSet::new(),
        }
    }

    /// The world of the recordings: tenants `diku` and `college`.
    pub fn recorded() -> Self {
        let json: Value = serde_json::from_str(golden::WORLD).expect("world.json is JSON");
        let mut world = Self::empty(json["signing_key"].as_str().expect("a signing key"));
        for (tenant, state) in json["tenants"].as_object().expect("tenants") {
            for (id, user) in state["users"].as_object().expect("users") {
                let user = User {
                    username: user["username"].as_str().expect("a name").to_owned(),
                    active: user["active"].as_bool(),
                    permissions: texts(&user["permissions"]),
                };
                world.add_user(tenant, id, user);
            }
            for (name, parts) in state["permissions"].as_object().expect("permission sets") {
                if !parts.is_null() {
                    world.change_set(tenant, name, &texts(parts));
                }
            }
        }
        world
    }

    /// Adds a tenant without users, if it is new.
    pub fn add_tenant(&mut self, tenant: &str) {
        self.tenants.entry(tenant.to_owned()).or_default();
    }

    /// Adds a user or replaces it; adds the tenant if it is new.
    pub fn add_user(&mut self, tenant: &str, id: &str, user: User) {
        let tenant = self.tenants.entry(tenant.to_owned()).or_default();
        tenant.users.insert(id.to_owned(), user);
    }

    /// Deletes a user; the permission record goes with it.
    pub fn delete_user(&mut self, tenant: &str, id: &str) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.users.remove(id);
        }
    }

    /// Activates or deactivates a user.
    pub fn set_active(&mut self, tenant: &str, id: &str, active: bool) {
        self.user_mut(tenant, id).active = Some(active);
    }

    /// Gives a user a permission, after those there are.
    pub fn grant(&mut self, tenant: &str, id: &str, permission: &str) {
        let permissions = &mut self.user_mut(tenant, id).permissions;
        if !permissions.iter().any(|known| known == permission) {
            permissions.push(permission.to_owned());
        }
    }

    /// Takes a permission from a user.
    pub fn revoke(&mut self, tenant: &str, id: &str, permission: &str) {
        self.user_mut(tenant, id)
            .permissions
            .retain(|known| known != permission);
    }

    /// Gives a permission set these parts (and creates it).
    pub fn change_set<T: AsRef<str>>(&mut self, tenant: &str, set: &str, parts: &[T]) {
        let tenant = self.tenants.entry(tenant.to_owned()).or_default();
        let parts = parts.iter().map(|part| part.as_ref().to_owned()).collect();
        Arc::make_mut(&mut tenant.sets).insert(set.to_owned(), parts);
    }

    /// Deletes a permission set: its name stays with those who have it, without parts.
    pub fn delete_set(&mut self, tenant: &str, set: &str) {
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            Arc::make_mut(&mut tenant.sets).remove(set);
        }
    }

    /// Makes a tenant a member of a consortium (`/user-tenants` is not empty), or takes it out.
    pub fn set_consortium(&mut self, tenant: &str, member: bool) {
        self.tenants
            .entry(tenant.to_owned())
            .or_default()
            .consortium = member;
    }

    /// Switches `allow.cross.tenant.requests`; mod-authtoken reads it on every request.
    pub fn set_cross_tenant(&mut self, allowed: bool) {
        self.cross_tenant = allowed;
    }

    /// Whether the deprecated `POST /token` works for a tenant (404 otherwise); it does by default.
    pub fn set_legacy_login(&mut self, tenant: &str, allowed: bool) {
        if allowed {
            self.no_legacy.remove(tenant);
        } else {
            self.no_legacy.insert(tenant.to_owned());
        }
    }

    /// Lets one kind of look-up fail with this status from now on; `None` heals it.
    pub fn fail(&mut self, look_up: LookUp, status: Option<u16>) {
        match status {
            Some(status) => self.failing.insert(look_up, status),
            None => self.failing.remove(&look_up),
        };
    }

    /// A user.
    pub fn user(&self, tenant: &str, id: &str) -> Option<&User> {
        self.tenants.get(tenant)?.users.get(id)
    }

    /// The signing key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Another signing key. Tests use `Standin::restart_with_key`, which forgets what a restart forgets.
    pub fn set_key(&mut self, setting: &str) {
        self.key = Key::from_setting(setting);
    }

    /// A login's access token for a user of this world, issued now, good until `expires` (seconds since 1970, inclusive).
    pub fn access_token(&self, tenant: &str, id: &str, issued: i64, expires: i64) -> String {
        let username = &self
            .user(tenant, id)
            .expect("a user of this world")
            .username;
        self.key
            .sign(&Claims::access(tenant, username, id, issued, expires))
    }

    /// The token a module gets that works for a user, with the module's own permissions.
    pub fn module_token(
        &self,
        tenant: &str,
        id: &str,
        module: &str,
        permissions: &[&str],
    ) -> String {
        let username = &self
            .user(tenant, id)
            .expect("a user of this world")
            .username;
        let claims = Claims::module(tenant, username, Some(id), module, permissions.into());
        self.key.sign(&claims)
    }

    /// A token without a user, with permissions of its own.
    pub fn dummy_token(&self, tenant: &str, subject: &str, permissions: &[&str]) -> String {
        let mut claims = Claims::dummy(tenant, subject);
        if !permissions.is_empty() {
            claims = claims.with("extra_permissions", permissions);
        }
        self.key.sign(&claims)
    }

    pub(super) fn allows_cross_tenant(&self) -> bool {
        self.cross_tenant
    }

    pub(super) fn allows_legacy_login(&self, tenant: &str) -> bool {
        !self.no_legacy.contains(tenant)
    }

    pub(super) fn is_consortium(&self, tenant: &str) -> bool {
        self.tenants
            .get(tenant)
            .is_some_and(|tenant| tenant.consortium)
    }

    pub(super) fn sets(&self, tenant: &str) -> Arc<Sets> {
        self.tenants
            .get(tenant)
            .map(|tenant| Arc::clone(&tenant.sets))
            .unwrap_or_default()
    }

    pub(super) fn failure(&self, look_up: LookUp) -> Option<u16> {
        self.failing.get(&look_up).copied()
    }

    fn user_mut(&mut self, tenant: &str, id: &str) -> &mut User {
        self.tenants
            .get_mut(tenant)
            .and_then(|tenant| tenant.users.get_mut(id))
            .expect("a user of this world")
    }
}

fn texts(json: &Value) -> Vec<String> {
    json.as_array()
        .expect("a list of names")
        .iter()
        .map(|name| name.as_str().expect("a name").to_owned())
        .collect()
}
