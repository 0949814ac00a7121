//! One person: token, what was taken away and when, and the model of what the sidecar should know.
//!
//! The model: a question is a hit if its last 202 is younger than the ttl and nothing revoked it since; a hit after
//! the refresh-ahead share of the ttl begins a new life. A revocation empties the person's questions, and nothing is
//! kept for as long as the hold lasts. No jitter; evictions are not in it, since what people ask fits in.

use crate::stage::{HOLD, LATE, PERMISSION_MEMORY, TENANTS, TTL, USER_MEMORY, user};
use crate::support::standin::Standin;
use crate::support::standin::call::FilterCall;
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// What people may do, each asked for by itself.
pub(crate) const PERMISSIONS: [&str; 6] = [
    "soak.loans.get",
    "soak.items.get",
    "soak.items.put",
    "soak.users.get",
    "soak.holdings.get",
    "soak.locations.get",
];
/// Questions of one person: each permission for a module without and for one with permissions of its own.
pub(crate) const QUESTIONS: usize = PERMISSIONS.len() * 2;

/// A permission taken away is gone after this: a refresh is sent when the write's time is over at the latest, and there
/// are two seconds more for a machine that is busy.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);
/// A busy machine's patience, where a bound is the auth module's own.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// Something that a person has, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Right {
    Held,
    /// A write is under way that takes it away or gives it back: until it has ended either answer is right.
    Changing,
    /// Taken away.
    Gone(Written),
    /// Given back at this time; the auth module may still remember otherwise.
    Back(Instant),
}

/// A write that took something away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Written {
    /// When it ended.
    pub(crate) ended: Instant,
    /// How long it took, counted from before its announcement was sent.
    pub(crate) took: Duration,
}

impl Written {
    /// Whether it took longer than the sidecar was told, and so lost the bound.
    pub(crate) fn late(&self) -> bool {
        self.took > HOLD
    }
}

/// What is to be said of a 202.
#[derive(Debug, PartialEq)]
pub(crate) enum Grant {
    Fine,
    /// Later than the bound, after a write that had lost it, and within the ttl, which is never lost.
    BeyondLimit(String),
    Wrong(String),
}

impl Grant {
    fn or_worse(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Wrong(_), _) | (Self::BeyondLimit(_), Self::Fine | Self::BeyondLimit(_)) => self,
            (Self::BeyondLimit(_), Self::Wrong(_)) | (Self::Fine, _) => other,
        }
    }
}

/// Until when something that was taken away may still be used, from the end of the write.
#[derive(Clone, Copy)]
struct Bounds {
    what: &'static str,
    /// What is promised.
    usual: Duration,
    /// What is left of the promise after a write longer than `REVOCATION_HOLD`: the auth module's memory and the ttl.
    lost: Duration,
}

const SWITCHED_OFF: Bounds = Bounds {
    what: "to a user who was switched off",
    usual: USER_MEMORY.saturating_add(SLACK),
    lost: USER_MEMORY.saturating_add(TTL).saturating_add(SLACK),
};
const TAKEN_AWAY: Bounds = Bounds {
    what: "with a permission that was taken away",
    usual: REVOKED_WITHIN,
    lost: PERMISSION_MEMORY.saturating_add(TTL).saturating_add(SLACK),
};

impl Right {
    /// What a 202 is to a request sent at this time. `then` is the same right when the answer was here: what was
    /// given back while the request was on its way may have been found given back.
    fn granted(self, then: Self, sent: Instant, bounds: Bounds) -> Grant {
        let Self::Gone(written) = self else {
            return Grant::Fine;
        };
        let after = sent.saturating_duration_since(written.ended);
        if then != self || after <= bounds.usual {
            return Grant::Fine;
        }
        let said = format!(
            "a grant {}, sent {after:.3?} after the end of a write that took {:.3?}",
            bounds.what, written.took
        );
        if written.late() && after <= bounds.lost {
            Grant::BeyondLimit(said)
        } else {
            Grant::Wrong(said)
        }
    }

    fn may_be_refused(self, sent: Instant, memory: Duration) -> bool {
        match self {
            Self::Held => false,
            Self::Changing | Self::Gone(_) => true,
            Self::Back(since) => sent < since + memory + SLACK,
        }
    }
}

/// One of those who work.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) id: String,
    pub(crate) tenant: &'static str,
    pub(crate) token: String,
    /// Second since 1970 until whose end the token is good.
    pub(crate) expires: i64,
    pub(crate) active: Right,
    pub(crate) rights: [Right; PERMISSIONS.len()],
    /// When the last 202 of each question was given.
    known: HashMap<usize, Instant>,
    held_until: Instant,
    wall_base: i64,
    mono_base: Instant,
}

impl Person {
    /// The `generation`th person in this place, with a login.
    pub(crate) fn new(standin: &Standin, place: usize, generation: u64) -> Self {
        let tenant = TENANTS[place % TENANTS.len()];
        let id = format!("{place:08x}-{:04x}-4000-8000-{generation:012x}", place % 7);
        standin.world(|world| world.add_user(tenant, &id, user(&format!("p{place}-{generation}"))));
        let now = Instant::now();
        let mut person = Self {
            id,
            tenant,
            token: String::new(),
            expires: 0,
            active: Right::Held,
            rights: [Right::Held; PERMISSIONS.len()],
            known: HashMap::new(),
            held_until: now,
            wall_base: standin.clock().wall(),
            mono_base: now,
        };
        // Not all at once: from 20 s to a minute.
        let life = 20 + (place * 7 + 13) % 40;
        person.log_in(standin, i64::try_from(life).unwrap_or(20));
        person
    }

    /// A new token, good for so many seconds.
    pub(crate) fn log_in(&mut self, standin: &Standin, life: i64) {
        self.wall_base = standin.clock().wall();
        self.mono_base = Instant::now();
        self.expires = self.wall_base + life;
        self.token = standin.access_token_until(self.tenant, &self.id, self.expires);
        self.known.clear();
    }

    fn wall(&self, at: Instant) -> i64 {
        let passed = at.saturating_duration_since(self.mono_base).as_secs();
        self.wall_base + i64::try_from(passed).unwrap_or(i64::MAX)
    }

    /// Whether the token has ended for certain; a second may be cut off at either end.
    pub(crate) fn expired(&self, at: Instant) -> bool {
        self.wall(at) > self.expires + 1
    }

    /// Whether the sidecar still takes the token for good; by the machine's clock, to the millisecond.
    fn lives(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        u64::try_from(self.expires).is_ok_and(|expires| now < expires)
    }

    fn nearly_expired(&self, at: Instant) -> bool {
        self.wall(at) + 2 > self.expires
    }

    pub(crate) fn call(&self, question: usize) -> FilterCall {
        let permission = PERMISSIONS[question % PERMISSIONS.len()];
        let call = FilterCall::get("/soak/things?limit=1")
            .tenant(self.tenant)
            .token(&self.token)
            .required(&[permission]);
        if question < PERMISSIONS.len() {
            call
        } else {
            call.module_permissions(r#"{"mod-soak-1.0.0":["soak.storage.get"]}"#)
        }
    }

    fn right(&self, question: usize) -> Right {
        self.rights[question % PERMISSIONS.len()]
    }

    /// What a 202 is to a request sent at this time; `then` is who was in this place when the answer was here.
    pub(crate) fn granted(&self, then: &Self, question: usize, sent: Instant) -> Grant {
        if self.expired(sent) {
            return Grant::Wrong("a grant with a token that had ended".to_owned());
        }
        let replaced = then.id != self.id;
        if replaced {
            return Grant::Fine;
        }
        let active = self.active.granted(then.active, sent, SWITCHED_OFF);
        let (right, then) = (self.right(question), then.right(question));
        active.or_worse(right.granted(then, sent, TAKEN_AWAY))
    }

    /// Whether a 401 is due, or was.
    pub(crate) fn may_be_unknown(&self, sent: Instant, answered: Instant) -> bool {
        self.nearly_expired(answered) || self.active.may_be_refused(sent, USER_MEMORY)
    }

    /// Whether a 403 is due, or was.
    pub(crate) fn may_be_forbidden(&self, question: usize, sent: Instant) -> bool {
        self.right(question).may_be_refused(sent, PERMISSION_MEMORY)
    }

    /// Whether the model has a hit.
    pub(crate) fn expects_hit(&self, question: usize, sent: Instant) -> bool {
        let known = self.known.get(&question);
        known.is_some_and(|known| sent < *known + TTL) && self.lives()
    }

    /// What the sidecar now knows.
    pub(crate) fn answered(&mut self, question: usize, status: u16, hit: bool, now: Instant) {
        if status != 202 {
            if (400..500).contains(&status) {
                self.known.remove(&question);
            }
            return;
        }
        let late = hit
            && self
                .known
                .get(&question)
                .is_some_and(|known| now >= *known + LATE);
        if (!hit || late) && now >= self.held_until {
            self.known.insert(question, now);
        }
    }

    /// An operator's purge: nothing is known, and everything may be kept again.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// A revocation whose hold lasts this long after `HOLD`.
    pub(crate) fn revoke(&mut self, memory: Duration) {
        self.known.clear();
        self.held_until = self.held_until.max(Instant::now() + HOLD + memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(3);
    const SLOW: Duration = Duration::from_secs(3);

    fn gone(took: Duration) -> (Right, Instant) {
        let ended = Instant::now();
        (Right::Gone(Written { ended, took }), ended)
    }

    fn granted(took: Duration, after: u64) -> Grant {
        let (right, ended) = gone(took);
        right.granted(right, ended + Duration::from_secs(after), SWITCHED_OFF)
    }

    #[tokio::test]
    async fn a_grant_within_the_bound_is_fine_and_after_it_wrong() {
        assert_eq!(granted(QUICK, 7), Grant::Fine);
        assert!(matches!(granted(QUICK, 8), Grant::Wrong(_)));
    }

    #[tokio::test]
    async fn a_write_longer_than_the_hold_loses_the_bound_and_not_the_ttl() {
        assert_eq!(granted(SLOW, 7), Grant::Fine);
        assert!(matches!(granted(SLOW, 8), Grant::BeyondLimit(_)));
        assert!(matches!(granted(SLOW, 27), Grant::BeyondLimit(_)));
        assert!(matches!(granted(SLOW, 28), Grant::Wrong(_)));
    }

    /// Sent while the user was off, and found on again: the grant is right, however late the request was sent.
    #[tokio::test]
    async fn what_is_given_back_while_a_request_is_on_its_way_may_be_granted() {
        let (right, ended) = gone(QUICK);
        let sent = ended + Duration::from_secs(8);

        for then in [Right::Changing, Right::Back(sent), Right::Held] {
            assert_eq!(right.granted(then, sent, SWITCHED_OFF), Grant::Fine);
        }
        assert!(matches!(
            right.granted(right, sent, SWITCHED_OFF),
            Grant::Wrong(_)
        ));
    }

    #[test]
    fn the_worse_of_two_findings_counts() {
        let wrong = || Grant::Wrong("w".to_owned());
        let beyond = || Grant::BeyondLimit("b".to_owned());

        for (one, other, worse) in [
            (Grant::Fine, Grant::Fine, Grant::Fine),
            (Grant::Fine, beyond(), beyond()),
            (beyond(), Grant::Fine, beyond()),
            (beyond(), wrong(), wrong()),
            (wrong(), beyond(), wrong()),
        ] {
            assert_eq!(one.or_worse(other), worse);
        }
    }
}
