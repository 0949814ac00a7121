//! The rule: how late after the end of a write a request may still be let in (design, section 3).
//!
//! Told from the truth alone. A path to a permission that is lost at several places ends with the first of them; a request is
//! let in as long as one path is open. The bounds are the design's, plus what it leaves out: how long a look-up and an answer are
//! on their way, and the second for which questions may be joined.

use crate::UpstreamRefresh;
use crate::plan::{Clocks, JOIN, Millis, Plan, SET_MEMORY, TOKEN_SET_MEMORY};
use crate::token::Token;
use crate::truth::{Fact, Loss, Mask, PERMISSIONS, SETS, TENANTS, Truth};
use std::collections::VecDeque;

/// A write's bound with one auth module, once refreshes go out.
const PROMPT: Millis = 2_000;
/// The same for a permission set in a busy tenant, over `REVOCATION_HOLD`.
const PROMPT_SET: Millis = 35_000;
/// Open for as long as the token lasts.
pub(crate) const FOR_EVER: Millis = Millis::MAX;

/// A request that was let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) began: Millis,
    pub(crate) process: u32,
    /// Passed through, so it carried no refresh header.
    pub(crate) bypass: bool,
    pub(crate) required: Mask,
    /// The effective user; a dummy's is nobody.
    pub(crate) user: Option<usize>,
}

/// Which of the bounds a latest moment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Bound {
    None,
    Never,
    Expired,
    SigningKey,
    User,
    Permission,
    PermissionPrompt,
    Set,
    SetPrompt,
    /// The request that announced it took another way: upstream's memory and the ttl.
    Unseen,
}

/// The latest start of a request that may be let in, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Latest(pub(crate) Millis, pub(crate) Bound);

const OPEN: Latest = Latest(FOR_EVER, Bound::None);

/// Whom a hold concerns, and whose memory it waits for (false: permissions, true: sets).
pub(crate) type HeldScope = (usize, Option<usize>, bool);

#[derive(Clone, Copy, Debug)]
struct Held {
    scope: HeldScope,
    from: Millis,
    until: Millis,
}

/// A question of a user's, its way and how it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) began: Millis,
    pub(crate) ended: Millis,
    pub(crate) yes: bool,
}

/// What is known of the holds and the traffic, to tell whether the prompt bounds apply.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    holds: VecDeque<Held>,
    asked: [VecDeque<Asked>; TENANTS],
    /// Refresh headers that went up and came to nothing.
    wasted: VecDeque<Millis>,
}

impl Traffic {
    pub(crate) fn held(&mut self, scope: HeldScope, from: Millis, until: Millis) {
        self.holds.push_back(Held { scope, from, until });
        if self.holds.len() > 200 {
            self.holds.pop_front();
        }
    }

    pub(crate) fn asked(&mut self, tenant: usize, asked: Asked) {
        let asked_here = &mut self.asked[tenant];
        asked_here.push_back(asked);
        if asked_here.len() > 20_000 {
            asked_here.pop_front();
        }
    }

    pub(crate) fn wasted(&mut self, at: Millis) {
        self.wasted.push_back(at);
        if self.wasted.len() > 1_000 {
            self.wasted.pop_front();
        }
    }

    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether every refresh that some hold wanted could be sent and was taken notice of: never more than two holds at once,
    /// each sends one a second at the most.
    fn prompt(&self, from: Millis, to: Millis) -> bool {
        let mut scopes: Vec<HeldScope> = self
            .holds
            .iter()
            .filter(|held| held.until >= from && held.from <= to)
            .map(|held| held.scope)
            .collect();
        scopes.sort_unstable();
        scopes.dedup();
        let wasted = self.wasted.iter().any(|at| (from..=to).contains(at));
        self.holds.len() < 200 && scopes.len() <= 2 && !wasted
    }

    /// Whether the tenant's users asked often enough for both refreshes of a set's hold to go out in time, and no later event
    /// made it begin anew.
    fn busy(&self, tenant: usize, announced: Millis, refresh_from: Millis) -> bool {
        let anew = |held: &Held| held.scope == (tenant, None, true) && held.from > announced;
        if self.holds.iter().any(anew) {
            return false;
        }
        let first_from = |from: Millis| {
            self.asked[tenant]
                .iter()
                .filter(|asked| asked.began >= from)
                .min_by_key(|asked| asked.began)
                .filter(|asked| asked.yes && asked.began <= from + 300)
        };
        first_from(refresh_from).is_some_and(|first| first_from(first.ended + 2_000).is_some())
    }
}

/// The law of one world at one moment.
pub(crate) struct Law<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) truth: &'a Truth,
    pub(crate) traffic: &'a Traffic,
}

impl Law<'_> {
    /// The latest start of a request with this token and these permissions required that may be let in.
    pub(crate) fn latest(&self, case: &Case, token: &Token) -> Latest {
        let mut latest = self.token(token);
        if let Some(user) = case.user {
            let active = self.truth.user(token.tenant, user).active;
            latest = latest.min(self.activity(case, active));
        }
        for permission in 0..PERMISSIONS {
            if case.required & !token.given() & 1 << permission != 0 {
                latest = latest.min(self.permission(case, token, permission));
            }
        }
        latest
    }

    fn token(&self, token: &Token) -> Latest {
        let key = self
            .truth
            .keys_ended
            .get(token.key as usize)
            .map_or(OPEN, |ended| {
                Latest(ended + self.unseen(), Bound::SigningKey)
            });
        let expired = match token.expired_from() {
            Some(from) if self.plan.clocks != Clocks::Stepped => {
                Latest(from + self.plan.longest_question(), Bound::Expired)
            }
            Some(_) | None => OPEN,
        };
        key.min(expired)
    }

    fn activity(&self, case: &Case, fact: Fact) -> Latest {
        self.fact(fact, |loss| {
            let remembered = loss.ended + self.plan.look_up + self.plan.user_memory;
            if self.seen(case, loss).is_some() {
                Latest(remembered + JOIN, Bound::User)
            } else {
                Latest(remembered + self.unseen(), Bound::Unseen)
            }
        })
    }

    /// The longest-lived path to a permission.
    fn permission(&self, case: &Case, token: &Token, permission: usize) -> Latest {
        let Some(user) = case.user else {
            return Latest(0, Bound::Never);
        };
        let user = self.truth.user(token.tenant, user);
        let mut latest = self.assigned(case, user.assigned[permission]);
        for set in 0..SETS {
            let part = self.part(case, token, set, permission);
            let has_set = self.assigned(case, user.assigned[PERMISSIONS + set]);
            latest = latest.max(has_set.min(part));
        }
        match token.set() {
            Some(set) => latest.max(self.part_in_token(token, set, permission)),
            None => latest,
        }
    }

    fn assigned(&self, case: &Case, fact: Fact) -> Latest {
        self.fact(fact, |loss| {
            let remembered = loss.ended + self.plan.look_up + self.plan.permission_memory;
            match self.seen(case, loss) {
                Some(announced) if self.prompt(case, announced) => Latest(
                    loss.ended + PROMPT + self.plan.look_up,
                    Bound::PermissionPrompt,
                ),
                Some(_) => Latest(remembered + JOIN, Bound::Permission),
                None => Latest(remembered + self.unseen(), Bound::Unseen),
            }
        })
    }

    fn part(&self, case: &Case, token: &Token, set: usize, permission: usize) -> Latest {
        let part = self.truth.tenants[token.tenant].sets[set][permission];
        let plan = self.plan;
        self.fact(part.fact, |loss| {
            let told = part
                .told_late
                .map_or(loss.ended, |told| told.max(loss.ended));
            let remembered = told + plan.look_up + plan.permission_memory;
            let whole = plan.hold + SET_MEMORY + plan.permission_memory;
            match self.seen(case, loss) {
                Some(announced)
                    if self.prompt(case, announced)
                        && plan.longest_question() <= 150
                        && self.traffic.busy(
                            token.tenant,
                            announced,
                            announced + plan.hold + SET_MEMORY + 1_000,
                        ) =>
                {
                    Latest(loss.ended + plan.hold + PROMPT_SET, Bound::SetPrompt)
                }
                // In a tenant too quiet to make mod-permissions renew its sets in time, nobody can keep the bound.
                Some(announced) if told + plan.look_up <= announced + plan.hold + SET_MEMORY => {
                    Latest(loss.ended + whole + JOIN, Bound::Set)
                }
                Some(_) | None => Latest(remembered + self.unseen(), Bound::Unseen),
            }
        })
    }

    fn part_in_token(&self, token: &Token, set: usize, permission: usize) -> Latest {
        let part = self.truth.tenants[token.tenant].sets[set][permission];
        self.fact(part.fact, |loss| {
            let told = part
                .told_late
                .map_or(loss.ended, |told| told.max(loss.ended));
            let remembered = told + self.plan.look_up + TOKEN_SET_MEMORY;
            Latest(remembered + self.unseen(), Bound::Unseen)
        })
    }

    fn fact(&self, fact: Fact, lost: impl Fn(Loss) -> Latest) -> Latest {
        match fact {
            Fact::True => OPEN,
            Fact::Never => Latest(0, Bound::Never),
            Fact::Lost(loss) => lost(loss),
        }
    }

    /// When the sidecar let the write's request through, if it was this process, and the write took no longer than it may.
    fn seen(&self, case: &Case, loss: Loss) -> Option<Millis> {
        let (announced, process) = loss.announced?;
        let in_time = loss.ended + self.plan.look_up < announced + self.plan.hold;
        (process == case.process && in_time).then_some(announced)
    }

    fn prompt(&self, case: &Case, announced: Millis) -> bool {
        self.plan.refresh == UpstreamRefresh::One
            && !case.bypass
            && !self.plan.crowd
            && self.traffic.prompt(announced, case.began)
    }

    /// What comes on top of upstream's memory if the sidecar does not know: the last question's way, then the decision's life.
    fn unseen(&self) -> Millis {
        self.plan.longest_question() + self.plan.ttl + self.plan.stale
    }
}
