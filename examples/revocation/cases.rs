//! The events of the design's table and some that nobody announces: what is asked before the write, what the write changes.

use crate::common::desk::TENANT;
use crate::support::raw::Request;
use crate::support::standin::call::{self, FilterCall};
use crate::support::standin::world::{User, World};
use crate::support::standin::{ADMIN, DESK, READER, Standin};

/// What a user needs to go on working.
const LOANS: &str = "circulation.loans.collection.get";
/// A permission set that holds it.
const SET: &str = "circulation.staff";
/// The other tenant of the consortium.
const OTHER_TENANT: &str = "college";
/// When tokens end, in seconds since 1970: after every trial.
const LATER: i64 = 4_000_000_000;
/// Whoever else works in a busy tenant.
pub(crate) const NEIGHBOURS: usize = 30;

/// How the write is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// By a filter call of an administrator: method and target.
    Call(&'static str, &'static str),
    /// By a system call without token.
    System(&'static str, &'static str),
    /// By the user's own logout from everywhere.
    LogOut,
    /// By an administrator's `Authtoken-Refresh-Cache: true`.
    RefreshHeader,
    /// Not at all: the auth module restarts with another signing key.
    NewKey,
    /// Not at all, or past another node's sidecar.
    Nothing,
}

/// What shows that the write has reached the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A refusal.
    Refused,
    /// A yes.
    LetIn,
}

/// Whose token the user works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// An access token of this user.
    Access(&'static str),
    /// A module's that works for a user without the permission; the module has it through a set.
    Module,
    /// An access token of one tenant, used in another.
    Foreign,
}

/// Who else is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nobody.
    Quiet,
    /// Somebody else of the tenant asks every two seconds.
    Busy,
    /// The user asks something else every two seconds.
    Versatile,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// What happens, and how it is announced.
    pub(crate) name: &'static str,
    /// Its announcement.
    pub(crate) announced: Announced,
    /// Who else is there.
    pub(crate) company: Company,
    /// What shows it.
    pub(crate) sign: Sign,
    /// Whether the write happened unseen before the announcement, whose answer then counts as its end.
    pub(crate) written_before: bool,
    /// Whether the auth module asks anew each time: what is seen is then the sidecar's share alone.
    pub(crate) forgetful: bool,
    /// The write.
    pub(crate) change: fn(&mut World),
    /// How much slower than others it is sampled.
    pub(crate) pace: u32,
    /// The latest yes after the write's end that may be, in seconds, with `one` and with `many`; `None` where nothing is
    /// promised.
    pub(crate) promised: Option<[u32; 2]>,
    token: Token,
    /// The world before it, from the recorded one.
    prepare: fn(&mut World),
}

impl Case {
    /// An event as most of them are: a user of the desk loses something.
    const fn new(name: &'static str, announced: Announced, change: fn(&mut World)) -> Self {
        Self {
            name,
            announced,
            company: Company::Quiet,
            sign: Sign::Refused,
            written_before: false,
            forgetful: false,
            change,
            pace: 1,
            promised: None,
            token: Token::Access(DESK),
            prepare: |_| {},
        }
    }

    /// The same, with a promise.
    const fn within(self, one: u32, many: u32) -> Self {
        Self {
            promised: Some([one, many]),
            ..self
        }
    }

    /// What the sidecar keeps of an auth module that remembers nothing: the user's permission went unseen just before.
    const fn of_ours_alone(self) -> Self {
        Self {
            written_before: true,
            forgetful: true,
            ..self
        }
    }

    /// A permission set loses its part, and a user who had it loses that.
    const fn of_a_set(name: &'static str, announced: Announced, company: Company) -> Self {
        Self {
            token: Token::Access(READER),
            company,
            prepare: |world| {
                world.change_set(TENANT, SET, &[LOANS]);
                world.grant(TENANT, READER, SET);
            },
            ..Self::new(name, announced, |world| {
                world.change_set(TENANT, SET, &[""; 0]);
            })
        }
    }

    /// The world before the event.
    pub(crate) fn world(&self) -> World {
        let mut world = World::recorded();
        for number in 0..NEIGHBOURS {
            let user = User {
                username: format!("neighbour-{number:02}"),
                active: Some(true),
                permissions: vec![LOANS.to_owned()],
            };
            world.add_user(TENANT, &neighbour(number), user);
        }
        (self.prepare)(&mut world);
        world
    }

    /// What the user asks in one of several sessions, each of which began with a login of its own.
    pub(crate) fn question(&self, module: &Standin, session: usize) -> FilterCall {
        let call = FilterCall::get("/circulation/loans?limit=1").required(&[LOANS]);
        match self.token {
            Token::Access(user) => call.token(&login(module, user, session)),
            Token::Module => {
                let name = format!("mod-loans-1.0.{session}");
                call.token(&module.module_token(TENANT, READER, &name, &[SET]))
            }
            Token::Foreign => call
                .token(&login(module, DESK, session))
                .tenant(OTHER_TENANT),
        }
    }

    /// What somebody else of the tenant asks.
    pub(crate) fn question_of_a_neighbour(module: &Standin, number: usize) -> FilterCall {
        FilterCall::get("/circulation/loans?limit=1")
            .required(&[LOANS])
            .token(&login(module, &neighbour(number), 0))
    }

    /// The request that comes in before the write begins, and the status that lets it pass; `None` if there is none.
    pub(crate) fn announcement(&self, module: &Standin) -> Option<(Request, u16)> {
        let admin = || login(module, ADMIN, 0);
        match self.announced {
            Announced::Call(method, target) => {
                let call = FilterCall::new(method, target);
                let call = match self.token {
                    Token::Access(_) | Token::Module => call.token(&admin()),
                    Token::Foreign => {
                        let now = module.clock().wall();
                        let token =
                            |world: &mut World| world.access_token(OTHER_TENANT, ADMIN, now, LATER);
                        call.token(&module.world(token)).tenant(OTHER_TENANT)
                    }
                };
                Some((call.request(), 202))
            }
            Announced::System(method, path) => Some((call::system(method, path, TENANT), 202)),
            Announced::RefreshHeader => {
                let call = FilterCall::get("/users?limit=1")
                    .client_header("Authtoken-Refresh-Cache", "true")
                    .token(&admin());
                Some((call.request(), 202))
            }
            Announced::LogOut => {
                // The permission that the auth module hands out for its own route.
                let magic = r#"["L3Rva2VuL2ludmFsaWRhdGUtYWxs.execute"]"#;
                let token = login(module, DESK, 0);
                let request = call::handler("/token/invalidate-all", TENANT, &token, magic, "");
                Some((request, 204))
            }
            Announced::NewKey | Announced::Nothing => None,
        }
    }
}

const CHANGE_OF_A_SET: Announced = Announced::Call(
    "PUT",
    "/perms/permissions/62838689-8869-48f2-bb49-79c3610f5268",
);

/// The events, in the order of the rows.
pub(crate) const CASES: [Case; 19] = [
    Case::new(
        "user deactivated: PUT /users/{id}",
        Announced::Call("PUT", "/users/11111111-1111-4111-8111-111111111111"),
        deactivate,
    )
    .within(60, 60),
    Case::new(
        "user deleted: DELETE /users/{id}",
        Announced::Call("DELETE", "/users/11111111-1111-4111-8111-111111111111"),
        delete,
    )
    .within(60, 60),
    Case::new(
        "users deleted: DELETE /users?query=",
        Announced::Call("DELETE", "/users?query=username%3D%3Ddesk"),
        delete,
    )
    .within(60, 60),
    Case::new(
        "permission revoked: DELETE /perms/users/{user id}/permissions/{p}",
        Announced::Call(
            "DELETE",
            "/perms/users/11111111-1111-4111-8111-111111111111/permissions/circulation.loans.collection.get?indexField=userId",
        ),
        revoke,
    )
    .within(2, 60),
    Case::new(
        "the same by mod-permissions' own id",
        Announced::Call(
            "DELETE",
            "/perms/users/2dd52558-5eb9-4440-8c60-c7684b074e68/permissions/circulation.loans.collection.get",
        ),
        revoke,
    )
    .within(2, 60),
    Case::new(
        "permissions replaced: PUT /perms/users/{own id}",
        Announced::Call("PUT", "/perms/users/2dd52558-5eb9-4440-8c60-c7684b074e68"),
        revoke,
    )
    .within(2, 60),
    Case::of_a_set(
        "permission set changed: PUT /perms/permissions/{id}",
        CHANGE_OF_A_SET,
        Company::Quiet,
    ),
    Case::of_a_set("the same in a busy tenant", CHANGE_OF_A_SET, Company::Busy).within(40, 95),
    Case::of_a_set(
        "module upgraded: POST /_/tenantpermissions, busy tenant",
        Announced::System("POST", "/_/tenantpermissions"),
        Company::Busy,
    )
    .within(40, 95),
    Case {
        token: Token::Module,
        ..Case::of_a_set(
            "a module's set that is no SYS# set, busy tenant",
            CHANGE_OF_A_SET,
            Company::Busy,
        )
        .within(390, 390)
    },
    Case {
        prepare: revoke,
        sign: Sign::LetIn,
        ..Case::new(
            "permission granted: POST /perms/users/{user id}/permissions (first yes)",
            Announced::Call(
                "POST",
                "/perms/users/11111111-1111-4111-8111-111111111111/permissions?indexField=userId",
            ),
            |world| world.grant(TENANT, DESK, LOANS),
        )
    },
    Case {
        token: Token::Foreign,
        prepare: |world| {
            world.set_cross_tenant(true);
            world.set_consortium(OTHER_TENANT, true);
        },
        pace: 240,
        ..Case::new(
            "tenant left the consortium: DELETE /user-tenants",
            Announced::Call("DELETE", "/user-tenants?tenantId=college"),
            |world| world.set_consortium(OTHER_TENANT, false),
        )
    },
    Case::new(
        "module enabled: POST /_/tenant (our share alone)",
        Announced::System("POST", "/_/tenant"),
        revoke,
    )
    .of_ours_alone(),
    Case::new(
        "logout: POST /token/invalidate-all (our share alone)",
        Announced::LogOut,
        revoke,
    )
    .of_ours_alone(),
    Case {
        written_before: true,
        ..Case::new(
            "unseen revocation, then Authtoken-Refresh-Cache: true",
            Announced::RefreshHeader,
            revoke,
        )
    },
    Case::new(
        "new signing key, a user who always asks the same",
        Announced::NewKey,
        |_| {},
    ),
    Case {
        company: Company::Versatile,
        ..Case::new(
            "new signing key, a user who asks something new every 2 s",
            Announced::NewKey,
            |_| {},
        )
    },
    Case::new("unseen: user deactivated", Announced::Nothing, deactivate).within(120, 120),
    Case::new("unseen: permission revoked", Announced::Nothing, revoke).within(120, 120),
];

fn deactivate(world: &mut World) {
    world.set_active(TENANT, DESK, false);
}

fn delete(world: &mut World) {
    world.delete_user(TENANT, DESK);
}

fn revoke(world: &mut World) {
    world.revoke(TENANT, DESK, LOANS);
}

fn neighbour(number: usize) -> String {
    format!("eeeeeeee-eeee-4eee-8eee-{number:012}")
}

/// A token that outlives every trial; each session has another.
fn login(module: &Standin, user: &str, session: usize) -> String {
    let session = i64::try_from(session).unwrap_or_default();
    module.access_token_until(TENANT, user, LATER + session)
}
