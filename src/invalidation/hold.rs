//! How long the layers below may still remember what a write changed.
//!
//! Pure values over the monotonic clock. What was asked before a hold's end is delivered, never stored: mod-authtoken
//! (and mod-permissions below it) may have answered from before the write.

use crate::clock::MonoMillis;

/// How mod-authtoken stands behind its address (`AUTH_SIDECAR_REVOCATION_UPSTREAM_REFRESH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamRefresh {
    /// A single process: one refresh empties all there is, so a hold may end early.
    One,
    /// Several processes: a refresh empties one of them, so a hold lasts.
    Many,
    /// Never send the refresh header.
    Off,
}

/// How long the layers below remember, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// How long a write may take after its announcement (`REVOCATION_HOLD`).
    pub write: u64,
    /// mod-authtoken's memory of a user being active (`UPSTREAM_USER_CACHE`).
    pub user: u64,
    /// mod-authtoken's memory of permissions (`UPSTREAM_PERMISSION_CACHE`).
    pub permission: u64,
    /// Whether and how the refresh header is sent.
    pub refresh: UpstreamRefresh,
}

/// mod-permissions' memory of permission sets, in milliseconds (its `PermissionsCache`).
const SET_MEMORY: u64 = 30_000;
/// After it, mod-permissions serves the old set once more while it renews: the first refresh comes a second later.
const FIRST_SET_REFRESH: u64 = SET_MEMORY + 1_000;
/// Time for that renewal, between the first refresh's answer and the second.
const SECOND_SET_REFRESH: u64 = 2_000;
/// Between two refreshes of one hold, until one was sent after the write must have been done.
const FAST_PACE: u64 = 1_000;
/// Afterwards.
const SLOW_PACE: u64 = 10_000;

/// Whose memory a hold waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// mod-authtoken's memory that the user is active; nothing can make it forget.
    User,
    /// mod-authtoken's memory of the user's permissions; the refresh header empties it.
    Permission,
    /// mod-permissions' memory of permission sets, below mod-authtoken's.
    Set,
}

impl Kind {
    /// Every kind, for metrics and tables.
    pub const ALL: [Self; 3] = [Self::User, Self::Permission, Self::Set];

    /// The kind as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Permission => "permission",
            Self::Set => "set",
        }
    }
}

/// A refresh that emptied mod-authtoken's memory: when it was sent and when its 202 came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// When the call left.
    pub sent: MonoMillis,
    /// When its answer was here.
    pub answered: MonoMillis,
}

/// One hold of one scope.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// The tick of the latest event: older holds have smaller ones.
    pub tick: u64,
    since: MonoMillis,
    until: MonoMillis,
    last_sent: Option<MonoMillis>,
    first_set_refresh: Option<Cleared>,
    second_set_refresh: Option<Cleared>,
}

impl Hold {
    /// The hold that an event at `now` begins, or renews if `old` still runs.
    pub fn begin(
        kind: Kind,
        tick: u64,
        now: MonoMillis,
        memory: &Memory,
        old: Option<Self>,
    ) -> Self {
        let length = match kind {
            Kind::User => memory.write + memory.user,
            Kind::Permission => memory.write + memory.permission,
            Kind::Set => memory.write + SET_MEMORY + memory.permission,
        };
        Self {
            tick,
            since: now,
            until: now + length,
            last_sent: old.and_then(|hold| hold.last_sent),
            first_set_refresh: None,
            second_set_refresh: None,
        }
    }

    /// Both holds in one, where a scope's row is lost and a wider scope takes its hold over: the later one counts.
    #[must_use]
    pub fn widen(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.until > self.until => other,
            Some(_) | None => self,
        }
    }

    /// The latest time at which it can still run.
    pub fn until(&self) -> MonoMillis {
        self.until
    }

    /// Whether a question asked at `at` was asked before this hold's end.
    pub fn covers(
        &self,
        kind: Kind,
        at: MonoMillis,
        memory: &Memory,
        cleared: Option<Cleared>,
    ) -> bool {
        at < self.until && !self.ended_early(kind, at, memory, cleared)
    }

    fn ended_early(
        &self,
        kind: Kind,
        at: MonoMillis,
        memory: &Memory,
        cleared: Option<Cleared>,
    ) -> bool {
        if memory.refresh != UpstreamRefresh::One {
            return false;
        }
        let end = match kind {
            Kind::User => None,
            Kind::Permission => cleared.filter(|cleared| cleared.sent >= self.since + memory.write),
            Kind::Set => self.second_set_refresh,
        };
        // Not in the same millisecond: what was asked in it may have been answered before the memory was emptied.
        end.is_some_and(|end| at > end.answered)
    }

    /// Whether a call of this scope should carry the refresh header now.
    pub fn wants_refresh(
        &self,
        kind: Kind,
        now: MonoMillis,
        memory: &Memory,
        cleared: Option<Cleared>,
    ) -> bool {
        if memory.refresh == UpstreamRefresh::Off || !self.covers(kind, now, memory, cleared) {
            return false;
        }
        match kind {
            Kind::User => false,
            Kind::Permission => {
                let written = self.since + memory.write;
                let pace = match self.last_sent {
                    Some(sent) if sent >= written => SLOW_PACE,
                    Some(_) | None => FAST_PACE,
                };
                self.last_sent.is_none_or(|sent| now >= sent + pace)
            }
            Kind::Set => {
                let rested = self.last_sent.is_none_or(|sent| now >= sent + SLOW_PACE);
                match (self.first_set_refresh, self.second_set_refresh) {
                    (None, _) => now >= self.since + memory.write + FIRST_SET_REFRESH && rested,
                    (Some(first), None) => {
                        now >= first.answered + SECOND_SET_REFRESH
                            && (rested || self.last_sent.is_none_or(|sent| sent <= first.sent))
                    }
                    (Some(_), Some(_)) => false,
                }
            }
        }
    }

    /// Notes that a call with the refresh header left.
    pub fn sent(&mut self, now: MonoMillis) {
        self.last_sent = Some(now);
    }

    /// Notes that such a call was answered 202.
    pub fn refreshed(&mut self, kind: Kind, cleared: Cleared, memory: &Memory) {
        if kind != Kind::Set || cleared.sent < self.since + memory.write + FIRST_SET_REFRESH {
            return;
        }
        match self.first_set_refresh {
            None => self.first_set_refresh = Some(cleared),
            Some(first) if cleared.sent >= first.answered + SECOND_SET_REFRESH => {
                self.second_set_refresh.get_or_insert(cleared);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(refresh: UpstreamRefresh) -> Memory {
        Memory {
            write: 5_000,
            user: 60_000,
            permission: 60_000,
            refresh,
        }
    }

    fn cleared(sent: u64) -> Cleared {
        Cleared {
            sent,
            answered: sent + 10,
        }
    }

    #[test]
    fn a_hold_lasts_for_the_write_and_every_memory_below() {
        let memory = memory(UpstreamRefresh::Many);
        let until = |kind| Hold::begin(kind, 1, 1_000, &memory, None).until();

        assert_eq!(until(Kind::User), 66_000);
        assert_eq!(until(Kind::Permission), 66_000);
        assert_eq!(until(Kind::Set), 96_000);
    }

    #[test]
    fn with_one_auth_module_a_permission_hold_ends_with_a_late_enough_refresh() {
        let memory = memory(UpstreamRefresh::One);
        let hold = Hold::begin(Kind::Permission, 1, 0, &memory, None);

        assert!(hold.covers(Kind::Permission, 6_000, &memory, Some(cleared(4_999))));
        assert!(hold.covers(Kind::Permission, 5_010, &memory, Some(cleared(5_000))));
        assert!(!hold.covers(Kind::Permission, 5_011, &memory, Some(cleared(5_000))));
    }

    #[test]
    fn with_several_auth_modules_no_refresh_ends_a_hold() {
        let memory = memory(UpstreamRefresh::Many);
        let hold = Hold::begin(Kind::Permission, 1, 0, &memory, None);

        assert!(hold.covers(Kind::Permission, 64_999, &memory, Some(cleared(5_000))));
        assert!(!hold.covers(Kind::Permission, 65_000, &memory, None));
    }

    #[test]
    fn nothing_ends_a_user_hold_early() {
        let memory = memory(UpstreamRefresh::One);
        let hold = Hold::begin(Kind::User, 1, 0, &memory, None);

        assert!(hold.covers(Kind::User, 64_999, &memory, Some(cleared(6_000))));
        assert!(!hold.wants_refresh(Kind::User, 6_000, &memory, None));
    }

    #[test]
    fn permission_refreshes_go_out_each_second_until_the_write_is_done_then_every_ten() {
        let memory = memory(UpstreamRefresh::Many);
        let mut hold = Hold::begin(Kind::Permission, 1, 0, &memory, None);
        let mut sent = Vec::new();
        for now in (0..40_000).step_by(100) {
            if hold.wants_refresh(Kind::Permission, now, &memory, None) {
                hold.sent(now);
                sent.push(now);
            }
        }

        assert_eq!(
            sent,
            [0, 1_000, 2_000, 3_000, 4_000, 5_000, 15_000, 25_000, 35_000]
        );
    }

    #[test]
    fn a_set_hold_is_refreshed_late_and_twice() {
        let memory = memory(UpstreamRefresh::One);
        let mut hold = Hold::begin(Kind::Set, 1, 0, &memory, None);
        let mut sent = Vec::new();
        for now in (0..90_000).step_by(100) {
            if hold.wants_refresh(Kind::Set, now, &memory, None) {
                hold.sent(now);
                hold.refreshed(Kind::Set, cleared(now), &memory);
                sent.push(now);
            }
        }

        assert_eq!(sent, [36_000, 38_100]);
        assert!(hold.covers(Kind::Set, 38_110, &memory, None));
        assert!(!hold.covers(Kind::Set, 38_111, &memory, None));
    }

    #[test]
    fn a_refused_set_refresh_is_tried_again_later() {
        let memory = memory(UpstreamRefresh::One);
        let mut hold = Hold::begin(Kind::Set, 1, 0, &memory, None);

        hold.sent(36_000);

        assert!(!hold.wants_refresh(Kind::Set, 45_999, &memory, None));
        assert!(hold.wants_refresh(Kind::Set, 46_000, &memory, None));
    }

    #[test]
    fn switched_off_no_refresh_is_wanted() {
        let memory = memory(UpstreamRefresh::Off);
        let hold = Hold::begin(Kind::Permission, 1, 0, &memory, None);

        assert!(!hold.wants_refresh(Kind::Permission, 0, &memory, None));
    }
}
