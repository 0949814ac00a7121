//! mod-authtoken's questions to mod-users and mod-permissions, and where they go.
//!
//! The real module asks Okapi at `X-Okapi-Url`, and Okapi asks its auth module about each of these requests: they come back as
//! filter calls with a dummy token whose subject is `_AUTHZ_MODULE_`.

use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

use super::super::raw::{Connection, Request};
use super::Module;
use super::filter::Call;
use super::modules::{Answer, Question, form_encoded};
use super::token::Claims;

/// Where look-ups go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LookUps {
    /// Nowhere: the world is asked directly.
    #[default]
    World,
    /// To this base URL (`http://host:port`), whatever `X-Okapi-Url` says.
    Gateway(String),
    /// To the request's `X-Okapi-Url`, as the real module does.
    OkapiUrl,
}

/// The subject of a look-up's token.
pub const SUBJECT: &str = "_AUTHZ_MODULE_";

/// The real module waits for ever; so long a wait fails a test all the same.
const PATIENCE: Duration = Duration::from_mins(5);

const USER_PERMISSIONS: [&str; 1] = ["users.item.get"];
const USER_TENANTS_PERMISSIONS: [&str; 1] = ["user-tenants.collection.get"];
const PERMISSIONS_PERMISSIONS: [&str; 3] = [
    "perms.permissions.collection.get",
    "perms.permissions.item.get",
    "perms.users.get",
];

/// Asks whether a user is active.
pub async fn user(module: &Module, call: &Call<'_>, user: &str) -> Result<Answer> {
    ask(module, call, &format!("/users/{user}"), &USER_PERMISSIONS).await
}

/// Asks whether the tenant is in a consortium.
pub async fn user_tenants(module: &Module, call: &Call<'_>) -> Result<Answer> {
    ask(
        module,
        call,
        "/user-tenants?limit=1",
        &USER_TENANTS_PERMISSIONS,
    )
    .await
}

/// Asks for a user's permissions.
pub async fn user_permissions(module: &Module, call: &Call<'_>, user: &str) -> Result<Answer> {
    let target = format!("/perms/users/{user}/permissions?expanded=true&indexField=userId");
    ask(module, call, &target, &PERMISSIONS_PERMISSIONS).await
}

/// Asks for the parts of permission sets.
pub async fn permission_sets(module: &Module, call: &Call<'_>, names: &[String]) -> Result<Answer> {
    let terms: Vec<_> = names
        .iter()
        .map(|name| format!("permissionName==\"{name}\""))
        .collect();
    let cql = form_encoded(&format!("({})", terms.join(" or ")));
    let target = format!("/perms/permissions?expanded=true&query={cql}");
    ask(module, call, &target, &PERMISSIONS_PERMISSIONS).await
}

async fn ask(
    module: &Module,
    call: &Call<'_>,
    target: &str,
    permissions: &[&str],
) -> Result<Answer> {
    match &module.look_ups {
        LookUps::World => Ok(module.ask_world(call.tenant, target)),
        LookUps::Gateway(url) => ask_okapi(module, call, url, target, permissions).await,
        LookUps::OkapiUrl => ask_okapi(module, call, call.url, target, permissions).await,
    }
}

async fn ask_okapi(
    module: &Module,
    call: &Call<'_>,
    url: &str,
    target: &str,
    permissions: &[&str],
) -> Result<Answer> {
    let authority = url
        .strip_prefix("http://")
        .ok_or(ErrorKind::InvalidInput)?
        .trim_end_matches('/');
    let address = tokio::net::lookup_host(authority)
        .await?
        .next()
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "no such host"))?;
    let claims = Claims::dummy(call.tenant, SUBJECT).with("extra_permissions", permissions);
    let mut request = Request::new("GET", target);
    request
        .headers
        .push("user-agent", "Vert.x-WebClient/4.5.13");
    if let Some(request_id) = call.request_id {
        request.headers.push("X-Okapi-Request-Id", request_id);
    }
    request
        .headers
        .push("X-Okapi-Token", module.key().sign(&claims));
    request.headers.push("X-Okapi-Tenant", call.tenant);
    request.headers.push("Content-Type", "application/json");
    request.headers.push("Accept", "application/json");
    request.headers.push("host", authority);
    let answer = Connection::open(address)
        .await?
        .patience(PATIENCE)
        .ask(&request)
        .await?;
    Ok(Answer {
        status: answer.status,
        body: String::from_utf8_lossy(&answer.body).into_owned(),
    })
}

impl Module {
    /// Asks mod-users or mod-permissions as if they stood right here.
    pub fn ask_world(&self, tenant: &str, target: &str) -> Answer {
        match Question::parse(target) {
            Some(question) => {
                let now = self.clock.now();
                let world = self.world();
                self.modules()
                    .answer(&world, tenant, &question, now, self.settings.set_memory)
            }
            None => Answer {
                status: 404,
                body: "no such route".to_owned(),
            },
        }
    }
}
