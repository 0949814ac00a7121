//! Which permissions count for a call: the user's, the token's own, and the parts of `SYS#` sets
//! (mod-authtoken's `UserService`, `ModulePermissionsSource`, `DummyPermissionsSource`, `PermService`).

use std::sync::Arc;

use serde_json::Value;

use super::filter::Call;
use super::json::Object;
use super::memory::Names;
use super::{Module, lookups};

/// Starts the name of a permission set that stands for one route of one module.
const SYSTEM_SET: &str = "SYS#";

/// Why the permissions are not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// 401: mod-users says no.
    Refused(String),
    /// 400: a module could not be asked or made no sense.
    Failed(String),
}

/// A token's own permissions.
#[derive(Clone, Copy, Debug)]
pub struct Extra<'a> {
    /// As they stand in the token (and the extra-permissions header).
    pub given: &'a [String],
    /// With `SYS#` sets replaced by their parts.
    pub expanded: &'a [String],
}

/// The permissions with `SYS#` sets replaced by their parts, and whether that took a look-up. `None`: one failed.
pub async fn expand_system(
    module: &Module,
    call: &Call<'_>,
    permissions: &[String],
) -> Option<(Vec<String>, bool)> {
    let mut expanded = Vec::new();
    let mut unknown = Vec::new();
    for name in permissions {
        if !name.starts_with(SYSTEM_SET) {
            expanded.push(name.clone());
            continue;
        }
        let known = module.memory().system(name, module.clock.now());
        match known {
            Some(parts) => expanded.extend_from_slice(&parts),
            None => unknown.push(name),
        }
    }
    for name in &unknown {
        let parts: Names = parts(module, call, std::slice::from_ref(*name))
            .await
            .ok()?
            .split_off(1)
            .into();
        module
            .memory()
            .set_system(name, Arc::clone(&parts), module.clock.now());
        expanded.extend_from_slice(&parts);
    }
    Some((expanded, !unknown.is_empty()))
}

/// All permissions that count, each once. `dummy`: there is no user to ask for.
pub async fn held(
    module: &Module,
    call: &Call<'_>,
    user_id: Option<&str>,
    extra: Extra<'_>,
    dummy: bool,
) -> Result<Vec<String>, Trouble> {
    let own: Vec<String> = extra
        .given
        .iter()
        .filter(|name| !name.starts_with(SYSTEM_SET))
        .cloned()
        .collect();
    let mut held = Vec::new();
    if dummy {
        merge(&mut held, &own);
    } else {
        if let Some(id) = user_id.filter(|id| !id.trim().is_empty()) {
            check_active(module, call, id).await?;
        }
        // Without a user the real module asks for a user named `null`.
        let user_id = user_id.unwrap_or("null");
        let (users, tokens) =
            tokio::join!(of_user(module, call, user_id), of_token(module, call, &own));
        merge(&mut held, &users?);
        merge(&mut held, &tokens?);
    }
    merge(&mut held, extra.expanded);
    Ok(held)
}

async fn check_active(module: &Module, call: &Call<'_>, id: &str) -> Result<(), Trouble> {
    let known = module.memory().active(call.tenant, id, module.clock.now());
    let active = match known {
        Some(active) => active,
        None => ask_active(module, call, id).await?,
    };
    if active {
        Ok(())
    } else {
        Err(Trouble::Refused(format!("user with id {id} is not active")))
    }
}

/// Asks mod-users. A no is remembered like a yes, anything else is not.
async fn ask_active(module: &Module, call: &Call<'_>, id: &str) -> Result<bool, Trouble> {
    let answer = lookups::user(module, call, id)
        .await
        .map_err(|error| Trouble::Failed(error.to_string()))?;
    let refusal = match answer.status {
        200 => None,
        404 => Some(format!("User with id {id} does not exist")),
        status => Some(format!(
            "Unexpected user response code {status} for user id {id}"
        )),
    };
    if let Some(text) = refusal {
        return Err(Trouble::Refused(text));
    }
    let user = Object::parse(&answer.body)
        .ok_or_else(|| Trouble::Refused(format!("Invalid user response: {}", answer.body)))?;
    let active = user.get("active") == Some(&Value::Bool(true));
    module
        .memory()
        .set_active(call.tenant, id, active, module.clock.now());
    Ok(active)
}

async fn of_user(module: &Module, call: &Call<'_>, id: &str) -> Result<Names, Trouble> {
    let known = module
        .memory()
        .permissions(call.tenant, id, module.clock.now());
    if let Some(names) = known {
        return Ok(names);
    }
    let answer = lookups::user_permissions(module, call, id)
        .await
        .map_err(|error| Trouble::Failed(error.to_string()))?;
    let failure = match answer.status {
        200 => None,
        404 => Some(format!("User does not exist: {id}")),
        status => Some(format!(
            "Unable to retrieve permissions (code {status}): {}",
            answer.body
        )),
    };
    if let Some(cause) = failure {
        return Err(Trouble::Failed(cause));
    }
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let names: Names = body["permissionNames"]
        .as_array()
        .ok_or_else(|| Trouble::Failed("Got malformed/empty permissions object".to_owned()))?
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    module
        .memory()
        .set_permissions(call.tenant, id, Arc::clone(&names), module.clock.now());
    Ok(names)
}

async fn of_token(module: &Module, call: &Call<'_>, own: &[String]) -> Result<Names, Trouble> {
    if own.is_empty() {
        return Ok(Arc::default());
    }
    let known = module.memory().sets(call.tenant, own, module.clock.now());
    if let Some(names) = known {
        return Ok(names);
    }
    let names: Names = parts(module, call, own).await?.into();
    module
        .memory()
        .set_sets(call.tenant, own, Arc::clone(&names), module.clock.now());
    Ok(names)
}

/// Asks mod-permissions: the names themselves, then their parts, each once.
async fn parts(module: &Module, call: &Call<'_>, names: &[String]) -> Result<Vec<String>, Trouble> {
    let answer = lookups::permission_sets(module, call, names)
        .await
        .map_err(|error| Trouble::Failed(error.to_string()))?;
    if answer.status != 200 {
        return Err(Trouble::Failed(format!(
            "Expected 200, got result {} : {}",
            answer.status, answer.body
        )));
    }
    let body: Value = serde_json::from_str(&answer.body)
        .map_err(|error| Trouble::Failed(format!("Failed to decode: {error}")))?;
    let mut expanded = Vec::new();
    merge(&mut expanded, names);
    for set in body["permissions"].as_array().into_iter().flatten() {
        let name = set["permissionName"].as_str().map(str::to_owned);
        merge(&mut expanded, name.as_slice());
        for part in set["subPermissions"].as_array().into_iter().flatten() {
            let name = part
                .as_str()
                .or_else(|| part["permissionName"].as_str())
                .map(str::to_owned);
            merge(&mut expanded, name.as_slice());
        }
    }
    Ok(expanded)
}

fn merge(into: &mut Vec<String>, names: &[String]) {
    for name in names {
        if !into.contains(name) {
            into.push(name.clone());
        }
    }
}
