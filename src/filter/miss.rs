//! Asking the auth module: shared by equal questions, judged once, stored if nothing speaks against it.
//!
//! The call runs in a task of its own with a deadline of its own, so no caller's disconnect cancels it; who waits
//! waits for the task. No lock is held meanwhile: the auth module, asked by us, asks Okapi, which asks us.

use super::{Filter, Found, reply};
use crate::body::Body;
use crate::cache::flight::{Boarding, Lead, Wish};
use crate::cache::{CallerParts, Records};
use crate::clock::Now;
use crate::decision::{Answer, Decision, Freshness, NotStored, Proven, prove};
use crate::headers::REFRESH_CACHE;
use crate::invalidation::{Asked, NotNow, Refresh, Subject};
use crate::key::{FilterRequest, MAX_HEAD, Question, RequestLine};
use crate::metrics::{FailureCause, Outcome};
use crate::report::Call;
use crate::token::Claims;
use crate::upstream::{AuthModule, Head};
use http::{HeaderValue, Method, Response, StatusCode, Uri, request};
use std::sync::Arc;
use tokio::time::Instant;

/// In a hold, questions older than this are not joined, in milliseconds.
const HELD_JOIN: u64 = 1_000;

/// What a flight brought back.
#[derive(Clone, Debug)]
pub(super) struct Landed {
    answer: Result<Arc<Answer>, FailureCause>,
    /// Whether those who joined may have it too.
    shared: bool,
}

/// How a question that was no hit at first was answered.
enum Told {
    /// By a call, one's own or one that was joined.
    Landed(Outcome, Landed),
    /// From the cache after all.
    Hit(Found),
}

/// All a flight needs to know, owned.
struct Errand {
    caller: Box<[u8]>,
    demand: Box<[u8]>,
    head: Head,
    claims: Option<Claims>,
    user: Option<Box<str>>,
    refresh: Option<Refresh>,
}

impl Errand {
    fn records(&self) -> Records<'_> {
        Records {
            caller: &self.caller,
            demand: &self.demand,
        }
    }

    fn key(&self) -> Vec<u8> {
        [&*self.caller, &*self.demand].concat()
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            tenant: Question::of(&self.head.headers).tenant(),
            user: self.user.as_deref(),
        }
    }
}

impl<U: AuthModule> Filter<U> {
    /// Answers a filter call for which nothing is stored.
    pub(super) async fn miss(
        self: &Arc<Self>,
        parts: &request::Parts,
        parsed: &FilterRequest<'_>,
        began: Instant,
    ) -> Response<Body> {
        let told = tokio::select! {
            told = self.ask(parts, parsed) => told,
            () = self.must_give_up() => {
                self.metrics.upstream_failed(FailureCause::Drained);
                Told::Landed(Outcome::Miss, failed(FailureCause::Drained))
            }
        };
        let (outcome, landed) = match told {
            Told::Landed(outcome, landed) => (outcome, landed),
            Told::Hit(found) => {
                self.let_in(&parts.method, &parts.uri, parsed, began);
                return self.answer_hit(&found, &parsed.question, began);
            }
        };
        let (outcome, response) = match &landed.answer {
            Ok(answer) => (outcome, reply::answer(answer)),
            Err(cause) => match self.stale(parts, parsed, *cause) {
                Some(response) => (Outcome::Stale, response),
                None => (outcome, reply::failure(*cause)),
            },
        };
        self.listen_to(&parts.method, &parts.uri, parsed, response.status());
        let took = began.elapsed();
        let tenant = self.metrics.known_tenant(parsed.question.tenant());
        self.metrics.answered(outcome, tenant, took);
        self.note(|| Call {
            line: RequestLine::of(&parts.method, &parts.uri),
            id: parsed.request_id(),
            outcome,
            began,
            took,
        });
        response
    }

    async fn ask(self: &Arc<Self>, parts: &request::Parts, parsed: &FilterRequest<'_>) -> Told {
        // The tick is read before anything else: what is revoked from here on voids this question.
        let asked = self.revocations.asked(self.clock.now().mono);
        let errand = self.errand(&parts.method, &parts.uri, parsed, asked);
        let wish = self.wish(&errand, asked);
        // Nothing else is done with it here: a refresh ahead would take the lock that is held meanwhile.
        let stored = || {
            let line = RequestLine::of(&parts.method, &parts.uri);
            let found = self.find(line, &parsed.question, self.clock.now());
            found.filter(|found| match found.freshness {
                Freshness::Fresh | Freshness::Late => true,
                Freshness::Stale | Freshness::Gone => false,
            })
        };
        match self.flights.board(&errand.key(), wish, asked, stored) {
            Boarding::Join(waiting) => match waiting.outcome().await {
                Some(landed) if landed.shared => Told::Landed(Outcome::Collapsed, landed),
                Some(_) => Told::Landed(Outcome::Miss, self.ask_alone(errand).await),
                None => Told::Landed(Outcome::Miss, failed(FailureCause::Closed)),
            },
            Boarding::Stored(found) => Told::Hit(found),
            Boarding::Lead(lead) => {
                let waiting = lead.waiting();
                tokio::spawn(self.clone().fly(lead, errand, Outcome::Miss));
                let landed = waiting.outcome().await;
                Told::Landed(
                    Outcome::Miss,
                    landed.unwrap_or_else(|| failed(FailureCause::Closed)),
                )
            }
        }
    }

    fn errand(
        &self,
        method: &Method,
        target: &Uri,
        parsed: &FilterRequest<'_>,
        asked: Asked,
    ) -> Errand {
        let (mut caller, mut demand) = (Vec::new(), Vec::new());
        parsed.question.write_caller(&mut caller);
        let line = RequestLine::of(method, target);
        parsed
            .question
            .write_demand(&mut demand, self.key_scope, line);
        let claims = match self.cache.caller(&caller) {
            Some(known) => Some(known.claims.clone()),
            None => parsed
                .question
                .token()
                .and_then(|token| token.claims().ok()),
        };
        let user = parsed.question.user(claims.as_ref());
        let refresh = self.refresh(parsed, claims.as_ref(), user.as_deref(), asked);
        let mut head = Head::new(method, target, parsed.headers, self.upstream.host());
        if refresh.is_some() {
            head.headers
                .insert(REFRESH_CACHE, HeaderValue::from_static("true"));
        }
        Errand {
            caller: caller.into_boxed_slice(),
            demand: demand.into_boxed_slice(),
            head,
            claims,
            user,
            refresh,
        }
    }

    /// Leave to carry the refresh header, if a hold of this caller wants one.
    fn refresh(
        &self,
        parsed: &FilterRequest<'_>,
        claims: Option<&Claims>,
        user: Option<&str>,
        asked: Asked,
    ) -> Option<Refresh> {
        if !self.listen || claims.is_none_or(|claims| claims.kind.is_dummy()) {
            return None;
        }
        let subject = Self::subject(parsed, user);
        self.revocations.held(subject, asked.at)?;
        if parsed.head + REFRESH_CACHE.as_str().len() + "true".len() + 2 > MAX_HEAD {
            self.metrics.refresh_suppressed();
            return None;
        }
        let Ok(refresh) = self.revocations.refresh(subject, asked.at) else {
            self.metrics.refresh_suppressed();
            return None;
        };
        if refresh.is_some() {
            self.metrics.refresh_sent();
        }
        refresh
    }

    fn wish(&self, errand: &Errand, asked: Asked) -> Wish {
        Wish {
            head: errand.head.method == Method::HEAD,
            not_before: self.revocations.latest(errand.subject()),
            held: self.revocations.held(errand.subject(), asked.at).is_some(),
            young_from: asked.at.saturating_sub(HELD_JOIN),
            refresh: errand.refresh.is_some(),
        }
    }

    /// Makes the call that others may have joined, judges the answer and stores it if it may be.
    async fn fly(self: Arc<Self>, lead: Lead<Landed>, errand: Errand, outcome: Outcome) {
        let answer = self.upstream.ask(&errand.head).await;
        if outcome == Outcome::Refreshed {
            self.metrics.refreshed();
        }
        let answer = match answer {
            Ok(answer) => Arc::new(answer),
            Err(error) => {
                self.note_failure(&error);
                lead.land(|_| failed(error.cause()));
                return;
            }
        };
        let proven = self.judge(&errand, &answer);
        let asked = lead.asked();
        let now = self.clock.now();
        lead.land(|refused| {
            let shared = proven.is_ok() || !answer.status.is_success();
            let proven = if refused {
                proven.and(Err(NotStored::Refused))
            } else {
                proven
            };
            if let Err(reason) = proven.and_then(|proven| self.store(&errand, proven, asked, now)) {
                self.metrics.not_stored(reason);
            }
            Landed {
                answer: Ok(answer),
                shared,
            }
        });
    }

    /// Asks for one caller alone: nothing is stored.
    async fn ask_alone(&self, errand: Errand) -> Landed {
        let answer = match self.upstream.ask(&errand.head).await {
            Ok(answer) => answer,
            Err(error) => {
                self.note_failure(&error);
                return failed(error.cause());
            }
        };
        // What it proves is of no use, what it refuses is.
        let _ = self.judge(&errand, &answer);
        Landed {
            answer: Ok(Arc::new(answer)),
            shared: false,
        }
    }

    /// What the answer means: does it prove itself, is it a no, has it emptied the auth module's memory?
    fn judge(&self, errand: &Errand, answer: &Answer) -> Result<Proven, NotStored> {
        if let Some(refresh) = &errand.refresh
            && answer.status == StatusCode::ACCEPTED
        {
            self.revocations.refreshed(refresh, self.clock.now().mono);
        }
        if answer.status != StatusCode::ACCEPTED && !answer.status.is_server_error() {
            self.judge_token(
                errand.records(),
                errand.subject(),
                answer.status,
                &answer.body,
            );
            self.forget(errand.records());
        }
        prove(
            &Question::of(&errand.head.headers),
            errand.claims.as_ref(),
            answer,
        )
    }

    fn store(
        &self,
        errand: &Errand,
        proven: Proven,
        asked: Asked,
        now: Now,
    ) -> Result<(), NotStored> {
        let claims = errand.claims.as_ref().ok_or(NotStored::Token)?;
        let random = jitter(&errand.head);
        let decision = Decision::keep(proven, claims, asked, now, &self.life, random, &self.cache)?;
        let subject = errand.subject();
        let scopes = self.revocations.scopes(subject);
        self.revocations
            .storable(&scopes, asked)
            .map_err(|reason| match reason {
                NotNow::Revoked => NotStored::Revoked,
                NotNow::Held(kind) => {
                    self.metrics.held(kind);
                    NotStored::Hold
                }
            })?;
        let tenant = self.metrics.tenant_label(subject.tenant);
        self.cache
            .store(errand.records(), decision, || CallerParts {
                tenant: subject.tenant.into(),
                user: errand.user.clone(),
                claims: claims.clone(),
                scopes,
                label: tenant,
            });
        self.metrics.stored();
        Ok(())
    }

    /// Asks again in the background for a decision late in its life, once.
    pub(super) fn refresh_ahead(
        self: &Arc<Self>,
        method: &Method,
        target: &Uri,
        parsed: &FilterRequest<'_>,
        found: &Found,
        now: Now,
    ) {
        if !found.decision.claim_refresh() {
            return;
        }
        let asked = self.revocations.asked(now.mono);
        let errand = self.errand(method, target, parsed, asked);
        let wish = self.wish(&errand, asked);
        if let Some(lead) = self.flights.lead_if_alone(&errand.key(), wish, asked) {
            tokio::spawn(self.clone().fly(lead, errand, Outcome::Refreshed));
        }
    }

    /// A decision past its life that may answer because upstream is down.
    fn stale(
        &self,
        parts: &request::Parts,
        parsed: &FilterRequest<'_>,
        cause: FailureCause,
    ) -> Option<Response<Body>> {
        if cause == FailureCause::Drained || self.life.stale_if_error.is_zero() {
            return None;
        }
        let line = RequestLine::of(&parts.method, &parts.uri);
        let found = self.find(line, &parsed.question, self.clock.now())?;
        match found.freshness {
            Freshness::Gone => None,
            Freshness::Stale | Freshness::Fresh | Freshness::Late => {
                Some(reply::hit(&found.decision, &parsed.question))
            }
        }
    }
}

fn failed(cause: FailureCause) -> Landed {
    Landed {
        answer: Err(cause),
        shared: true,
    }
}

/// A number in `0.0..1.0` that differs from decision to decision: the request id is new for each call.
fn jitter(head: &Head) -> f64 {
    use std::sync::LazyLock;
    static SEED: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
    let id = head
        .headers
        .get(crate::headers::REQUEST_ID)
        .map(HeaderValue::as_bytes);
    let bits = u32::try_from(SEED.hash_one((id, Instant::now())) >> 32).unwrap_or_default();
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
