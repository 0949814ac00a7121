//! What makes a stored decision void before its life is over, and what must not.
//!
//! | file | what |
//! |---|---|
//! | `events.rs` | the requests that announce a change, their look-alikes, and who may announce |
//! | `holds.rs` | how long nothing is stored after an event |
//! | `refresh.rs` | the refresh header, ours and the one from outside |
//! | `refusals.rs` | what a refusal says: this question, this user, the signing key |
//! | `lag.rs` | how late a revocation shows, as a user sees it |

mod events;
mod holds;
mod lag;
mod refresh;
mod refusals;

use crate::harness::{LOANS, Sidecar, loans, still_pair};
use crate::support::standin::call::FilterCall;
use crate::support::standin::world::User;
use crate::support::standin::{ADMIN, MUELLER, Standin};
use std::time::Duration;

/// The user that things happen to, in both tenants. Has letters in its id, unlike those of the recorded world.
pub(super) const VICTIM: &str = "abcdefab-cdef-4abc-8def-abcdefabcdef";
/// A record id of mod-permissions' own, which is nobody's user id.
const RECORD: &str = "2dd52558-5eb9-4440-8c60-c7684b074e68";

/// Long enough that no decision ends by itself in these tests.
const LONG: [(&str, &str); 2] = [("CACHE_TTL", "10m"), ("CACHE_REFRESH_AHEAD", "1")];

/// A sidecar before a stand-in, and those who ask. All clocks stand still until the test lets time pass.
struct Stage {
    standin: Standin,
    sidecar: Sidecar,
    /// Asks as [`VICTIM`].
    victim: FilterCall,
    /// The victim in the other tenant.
    abroad: FilterCall,
    /// Another user of the victim's tenant.
    other: FilterCall,
    /// The token of who changes things.
    admin: String,
}

impl Stage {
    async fn new(settings: &[(&str, &str)]) -> Self {
        let settings: Vec<_> = LONG.iter().chain(settings).copied().collect();
        let (standin, sidecar) = still_pair(&settings).await;
        for tenant in ["diku", "college"] {
            let user = User {
                username: "victim".to_owned(),
                active: Some(true),
                permissions: vec![LOANS.to_owned()],
            };
            standin.world(|world| world.add_user(tenant, VICTIM, user));
        }
        Self {
            victim: loans(&token(&standin, "diku", VICTIM)),
            abroad: loans(&token(&standin, "college", VICTIM)).tenant("college"),
            other: loans(&token(&standin, "diku", MUELLER)),
            admin: token(&standin, "diku", ADMIN),
            standin,
            sidecar,
        }
    }

    /// A request by the administrator that needs no permission, so that nothing but its shape matters.
    fn by_admin(&self, method: &str, target: &str) -> FilterCall {
        FilterCall::new(method, target).token(&self.admin)
    }

    /// Stores a decision for the victim in both tenants and for the other user.
    async fn warm(&self) {
        for call in [&self.victim, &self.abroad, &self.other] {
            self.hits(call).await;
            assert!(self.hits(call).await, "stored");
        }
    }

    async fn hits(&self, call: &FilterCall) -> bool {
        self.sidecar.hits(&self.standin, call).await
    }

    /// An event of the administrator, which must be let in.
    async fn event(&self, method: &str, target: &str) {
        let answer = self.sidecar.ask(&self.by_admin(method, target)).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// Lets time pass for everybody.
    fn pass(&self, time: Duration) {
        self.sidecar.advance(time);
        self.standin.clock().advance(time);
    }

    fn pass_secs(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    async fn held(&self, kind: &str) -> f64 {
        let series = format!("auth_sidecar_held_answers_total{{kind=\"{kind}\"}}");
        self.sidecar.metric(&series).await
    }

    async fn revocations(&self) -> f64 {
        self.sidecar.sum("auth_sidecar_revocations_total{").await
    }

    async fn revoked(&self, event: &str, scope: &str) -> f64 {
        let labels = format!("event=\"{event}\",scope=\"{scope}\"");
        let series = format!("auth_sidecar_revocations_total{{{labels}}}");
        self.sidecar.metric(&series).await
    }

    /// How many requests with the refresh header the stand-in has seen since its log was emptied.
    fn refreshes_seen(&self) -> usize {
        let seen = self.standin.requests();
        let with = seen
            .iter()
            .filter(|seen| seen.request.headers.has("authtoken-refresh-cache"));
        with.count()
    }
}

/// An access token that outlives every test.
fn token(standin: &Standin, tenant: &str, user: &str) -> String {
    let later = standin.clock().wall() + 86_400;
    standin.access_token_until(tenant, user, later)
}

/// `PUT /users/{the victim}`.
fn change_of_victim() -> String {
    format!("/users/{VICTIM}")
}

/// `DELETE`: takes a permission from the victim, by its user id.
fn revocation_of_victim() -> String {
    format!("/perms/users/{VICTIM}/permissions/{LOANS}?indexField=userId")
}

/// `PUT`: changes a permission user by mod-permissions' own id, so nobody knows whose.
fn change_of_record() -> String {
    format!("/perms/users/{RECORD}")
}

/// `PUT`: changes a permission set.
fn change_of_set() -> String {
    format!("/perms/permissions/{RECORD}")
}
