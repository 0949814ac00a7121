//! What a check-out and a check-in ask the auth module: the recorded calls, with other people's tokens.
//!
//! The check-out is the recorded one, call by call. No check-in was recorded; this one is made of the recorded calls that
//! a check-in makes too and of two of its own, 20 inner calls as FOLIO's circulation module makes them.

use crate::support::golden;
use crate::support::raw::Request;
use crate::support::standin::world::{User, World};
use crate::support::standin::{DESK5, Standin};

use super::Outcome;

/// The tenant of everybody here.
pub(crate) const TENANT: &str = "diku";

/// The module that works for the librarian, as the recorded calls name it.
pub(crate) const MODULE: &str = "mod-circulation-24.4.0";

/// Inner calls of the recorded check-out that a check-in makes as well, by the beginning of their targets.
const IN_COMMON: [(&str, &str); 18] = [
    ("GET", "/item-storage/items?"),
    ("GET", "/holdings-storage/"),
    ("GET", "/instance-storage/"),
    ("GET", "/locations/"),
    ("GET", "/location-units/institutions/"),
    ("GET", "/location-units/campuses/"),
    ("GET", "/location-units/libraries/"),
    ("GET", "/service-points/"),
    ("GET", "/material-types/"),
    ("GET", "/loan-types/"),
    ("GET", "/loan-storage/loans?query=itemId"),
    ("GET", "/users?"),
    ("GET", "/groups/"),
    ("GET", "/request-storage/"),
    ("GET", "/loan-policy-storage/"),
    ("GET", "/overdue-fines-policies/"),
    ("GET", "/calendar/"),
    ("PUT", "/item-storage/items/"),
];

/// What a check-in does that a check-out does not: method, target, permission.
const OF_A_CHECK_IN: [(&str, &str, &str); 2] = [
    (
        "PUT",
        "/loan-storage/loans/8b2a7a4c-3a43-4c1b-9b3e-0d6f0f6b1f01",
        "circulation-storage.loans.item.put",
    ),
    (
        "POST",
        "/check-in-storage/check-ins",
        "check-in-storage.check-ins.post",
    ),
];

/// A request of a client and the requests that its module makes for it: each is one filter call.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// The client's own.
    pub(crate) first: Request,
    /// The module's, one after the other.
    pub(crate) inner: Vec<Request>,
}

impl Work {
    /// The recorded check-out: 32 inner calls.
    pub(crate) fn check_out() -> Outcome<Self> {
        let mut calls = golden::exchanges("check-out")
            .into_iter()
            .filter(|exchange| exchange.scenario == "check-out warm")
            .map(|exchange| exchange.request);
        let first = calls.next().ok_or("no check-out was recorded")?;
        Ok(Self {
            first,
            inner: calls.collect(),
        })
    }

    /// A check-in made in the same way: 20 inner calls.
    pub(crate) fn check_in() -> Outcome<Self> {
        let Self { mut first, inner } = Self::check_out()?;
        "/circulation/check-in-by-barcode?testId=ci_1".clone_into(&mut first.target);
        let permissions =
            format!(r#"{{"{MODULE}":["SYS#{MODULE}#/circulation/check-in-by-barcode#[POST]"]}}"#);
        let headers = &mut first.headers;
        headers.set(
            "X-Okapi-Permissions-Required",
            "circulation.check-in-by-barcode.post",
        );
        headers.remove("X-Okapi-Permissions-Desired");
        headers.set("X-Okapi-Module-Permissions", permissions);
        let mut own = Vec::new();
        for (method, target) in IN_COMMON {
            let call = inner
                .iter()
                .find(|call| call.method == method && call.target.starts_with(target));
            own.push(call.ok_or("a call is missing in the recording")?.clone());
        }
        for (method, target, permission) in OF_A_CHECK_IN {
            // A recorded write, so that all headers are there.
            let mut call = inner
                .iter()
                .find(|call| call.method == "POST")
                .ok_or("no write was recorded")?
                .clone();
            method.clone_into(&mut call.method);
            target.clone_into(&mut call.target);
            call.headers.set("X-Okapi-request-method", method);
            call.headers.set("X-Okapi-Permissions-Required", permission);
            own.push(call);
        }
        Ok(Self { first, inner: own })
    }

    /// How many filter calls it is.
    pub(crate) fn calls(&self) -> usize {
        1 + self.inner.len()
    }
}

/// Somebody at a desk.
#[derive(Clone)]
pub(crate) struct Librarian {
    id: String,
    token: String,
    logins: i64,
}

impl std::fmt::Debug for Librarian {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Librarian")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Librarian {
    /// Logs in as the user of this number, who must be in the stand-in's world.
    pub(crate) fn new(standin: &Standin, number: usize) -> Self {
        let mut librarian = Self {
            id: id(number),
            token: String::new(),
            logins: 0,
        };
        librarian.log_in(standin);
        librarian
    }

    /// Logs in once more: another token, whatever the time.
    pub(crate) fn log_in(&mut self, standin: &Standin) {
        self.logins += 1;
        let expires = standin.clock().wall() + 3_600 + self.logins;
        self.token = standin.access_token_until(TENANT, &self.id, expires);
    }

    /// The user's id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The access token of the latest login.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }
}

/// The recorded world with so many more librarians of the same permissions.
pub(crate) fn world(librarians: usize) -> Outcome<World> {
    let mut world = World::recorded();
    let model = world
        .user(TENANT, DESK5)
        .ok_or("the recorded librarian is missing")?
        .clone();
    for number in 0..librarians {
        let user = User {
            username: format!("desk-{number:02}"),
            ..model.clone()
        };
        world.add_user(TENANT, &id(number), user);
    }
    Ok(world)
}

fn id(number: usize) -> String {
    format!("dddddddd-dddd-4ddd-8ddd-{number:012}")
}
