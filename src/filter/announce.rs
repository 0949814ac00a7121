//! What an answer means for what is stored: announced changes, refusals, a changed signing key.
//!
//! Told before the answer leaves, so before the write it announces can begin. Judged by the answer: a request that is
//! not let in changes nothing, here or there.

use super::Filter;
use crate::cache::{Eviction, Records};
use crate::invalidation::event::{self, Announcement, Event, Scope};
use crate::invalidation::{Reach, Subject};
use crate::key::{Bypass, FilterRequest, RequestLine, own_route};
use crate::token::Claims;
use crate::upstream::AuthModule;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, request};

/// `exp` must be so many seconds away for an `Invalid token` to mean that the signing key changed: clocks differ.
const CLOCK_DOUBT: u64 = 60;
/// The body of every refusal of a token as such (mod-authtoken `FilterApi`).
const INVALID_TOKEN: &[u8] = b"Invalid token";

impl<U: AuthModule> Filter<U> {
    /// Looks whether an answered request announces a change, and makes void what it concerns.
    pub(super) fn listen_to(
        &self,
        method: &Method,
        target: &Uri,
        parsed: &FilterRequest<'_>,
        status: StatusCode,
    ) {
        if !self.listen {
            return;
        }
        if let Some(announcement) = event::announced(RequestLine::of(method, target))
            && announcement.confirmed_by == status.as_u16()
        {
            for tenant in tenants(parsed) {
                self.announce_in(tenant, &announcement, parsed);
            }
        }
        if parsed.refresh_header && status == StatusCode::ACCEPTED && !own_route(target.path()) {
            self.refreshed_from_outside(parsed);
        }
    }

    fn announce_in(&self, tenant: &[u8], announcement: &Announcement, parsed: &FilterRequest<'_>) {
        match &announcement.scope {
            Scope::Tenant => self.announce(announcement.event, Reach::Tenant(tenant), parsed),
            Scope::User(user) => {
                self.announce(announcement.event, Reach::User(tenant, user), parsed);
            }
            Scope::TokenUser => {
                let claims = parsed
                    .question
                    .token()
                    .and_then(|token| token.claims().ok());
                if let Some(user) = claims.and_then(|claims| claims.user) {
                    let user = user.to_lowercase();
                    self.announce(announcement.event, Reach::User(tenant, &user), parsed);
                }
            }
        }
    }

    /// mod-authtoken has just emptied its permission memory for all tenants, unless the token is a dummy or missing.
    fn refreshed_from_outside(&self, parsed: &FilterRequest<'_>) {
        let Some(token) = parsed.question.token() else {
            return;
        };
        let claims = token.claims().ok();
        if claims.as_ref().is_some_and(|claims| claims.kind.is_dummy()) {
            return;
        }
        let user = parsed.question.user(claims.as_ref());
        let subject = Self::subject(parsed, user.as_deref());
        if let Some(reach) = self
            .revocations
            .refreshed_outside(subject, self.clock.now().mono)
        {
            self.metrics.revoked(Event::RefreshHeader, reach.as_str());
            log(Event::RefreshHeader, reach, Some(parsed.headers));
        }
    }

    fn announce(&self, event: Event, reach: Reach<'_>, parsed: &FilterRequest<'_>) {
        self.revocations
            .announce(event, reach, self.clock.now().mono);
        self.metrics.revoked(event, reach.as_str());
        log(event, reach, Some(parsed.headers));
    }

    /// A request that was passed through was answered with neither yes nor trouble.
    pub(super) fn refused(
        &self,
        parts: &request::Parts,
        reason: Bypass,
        status: StatusCode,
        body: &[u8],
    ) {
        let parsed = self.parse(&parts.method, &parts.uri, &parts.headers);
        let (mut caller, mut demand) = (Vec::new(), Vec::new());
        parsed.question.write_caller(&mut caller);
        let line = RequestLine::of(&parts.method, &parts.uri);
        parsed
            .question
            .write_demand(&mut demand, self.key_scope, line);
        let records = Records {
            caller: &caller,
            demand: &demand,
        };
        let claims = parsed
            .question
            .token()
            .and_then(|token| token.claims().ok());
        let user = parsed.question.user(claims.as_ref());
        let subject = Self::subject(&parsed, user.as_deref());
        self.judge_token(records, subject, status, body);
        if reason.asks_the_same() {
            self.forget(records);
        }
    }

    /// A known no ends a yes: removes the key's decision and lets no call on its way store one.
    pub(super) fn forget(&self, records: Records<'_>) {
        let key = [records.caller, records.demand].concat();
        self.flights.refuse(&key, || {
            if self.cache.remove(records) {
                self.metrics.evicted(Eviction::Refused, 1);
            }
        });
    }

    /// Reads what a refusal says of the caller beyond this one question. To be called before [`Self::forget`].
    pub(super) fn judge_token(
        &self,
        records: Records<'_>,
        subject: Subject<'_>,
        status: StatusCode,
        body: &[u8],
    ) {
        if status != StatusCode::UNAUTHORIZED {
            return;
        }
        if body == INVALID_TOKEN {
            self.suspect_signing_key(records);
        } else if let Some(user) = subject.user
            && is_gone(body, user)
        {
            let reach = Reach::User(subject.tenant, user);
            self.revocations.revoke(reach);
            self.metrics.revoked(Event::UserInactive, reach.as_str());
            log(Event::UserInactive, reach, None);
        }
    }

    /// `Invalid token` for a token that was good until now and is not about to expire: the signing key changed, and
    /// every module token in the cache is poison.
    fn suspect_signing_key(&self, records: Records<'_>) {
        if !self.listen {
            return;
        }
        let now = self.clock.now();
        let Some(caller) = self.cache.caller(records.caller) else {
            return;
        };
        let far = |claims: &Claims| {
            claims
                .exp
                .is_none_or(|exp| exp > (now.wall / 1_000).saturating_add(CLOCK_DOUBT))
        };
        if caller.has_live_decision(&self.revocations, now.mono)
            && far(&caller.claims)
            && self.revocations.signing_key_changed(now.mono)
        {
            self.metrics.revoked(Event::SigningKey, Reach::All.as_str());
            tracing::warn!(
                "a good token became an invalid one: mod-authtoken's signing key changed; everything is dropped"
            );
        }
    }
}

/// Every tenant that the request names: Okapi's `/_/invoke/tenant/{id}` adds one to the client's, and which of the two the
/// module at the end takes is not ours to know. None counts as the empty one.
fn tenants<'a>(parsed: &FilterRequest<'a>) -> impl Iterator<Item = &'a [u8]> {
    let named = parsed.headers.get_all(crate::headers::TENANT).iter();
    let none = (!parsed.headers.contains_key(crate::headers::TENANT)).then_some(&b""[..]);
    named.map(HeaderValue::as_bytes).chain(none)
}

/// Whether the refusal says that this very user is not active or not there (mod-authtoken `UserService`).
fn is_gone(body: &[u8], user: &str) -> bool {
    let Ok(text) = std::str::from_utf8(body) else {
        return false;
    };
    let id = text
        .strip_prefix("Invalid token: user with id ")
        .and_then(|rest| rest.strip_suffix(" is not active"))
        .or_else(|| {
            text.strip_prefix("Invalid token: User with id ")
                .and_then(|rest| rest.strip_suffix(" does not exist"))
        });
    id.is_some_and(|id| id.to_lowercase() == user)
}

fn log(event: Event, reach: Reach<'_>, headers: Option<&HeaderMap>) {
    let (tenant, user) = match reach {
        Reach::All => ("", ""),
        Reach::Tenant(tenant) => (std::str::from_utf8(tenant).unwrap_or("?"), ""),
        Reach::User(tenant, user) => (std::str::from_utf8(tenant).unwrap_or("?"), user),
    };
    let request_id = headers
        .and_then(|headers| headers.get(crate::headers::REQUEST_ID))
        .and_then(|id| id.to_str().ok());
    tracing::debug!(
        event = event.as_str(),
        scope = reach.as_str(),
        tenant,
        user,
        request_id,
        "revoked"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_sentence_about_this_user_says_that_it_is_gone() {
        for (body, gone) in [
            ("Invalid token: user with id U-1 is not active", true),
            ("Invalid token: User with id u-1 does not exist", true),
            ("Invalid token: user with id u-2 is not active", false),
            ("Invalid token: user with id u-1 is not active.", false),
            ("invalid token: user with id u-1 is not active", false),
            ("Invalid token: User with id u-1 is not active", false),
            ("Invalid token", false),
            ("", false),
        ] {
            assert_eq!(is_gone(body.as_bytes(), "u-1"), gone, "{body}");
        }
    }
}
