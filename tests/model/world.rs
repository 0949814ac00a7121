//! One seed's world: the sidecar's own filter between random requests and the model's auth module, and the judge of what it does.
//!
//! One thread, and no time but the world's: whatever happens happens in an order that the seed gives again (but for what is
//! evicted from full tables, which hash with seeds of their own).

use crate::bytes::bytes;
use crate::dice::Dice;
use crate::law::{Asked, Bound, Case, FOR_EVER, Latest, Law, Traffic};
use crate::module::{
    Arrival, Caller, Event, Key, Manners, Module, NUMBER, Platform, Verdict, locked,
};
use crate::plan::{Millis, Plan, SET_MEMORY};
use crate::requests::{Draft, Memory, Purpose, Reach};
use crate::token::{Token, WALL_START};
use crate::truth::{Change, Loss, TENANTS, USERS};
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use okapi_auth_sidecar::body::Body;
use okapi_auth_sidecar::clock::Clock;
use okapi_auth_sidecar::filter::{Answering, Filter};
use okapi_auth_sidecar::invalidation;
use okapi_auth_sidecar::metrics::Metrics;
use okapi_auth_sidecar::wire::{self, Beginning};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What a run has seen: a model that meets nothing proves nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    pub(crate) requests: u64,
    pub(crate) let_in: u64,
    pub(crate) refused: u64,
    pub(crate) trouble: u64,
    pub(crate) hits: u64,
    /// Of these, without the HTTP library.
    pub(crate) at_once: u64,
    pub(crate) joined: u64,
    pub(crate) stale: u64,
    /// Times that the signing key must have been seen to change.
    pub(crate) flushes: u64,
    pub(crate) bypassed: u64,
    pub(crate) questions: u64,
    pub(crate) refreshes: u64,
    pub(crate) writes: u64,
    /// Requests that had to be refused, by what decided it.
    pub(crate) too_late: BTreeMap<Bound, u64>,
    /// Requests that might still be let in although the truth said no.
    pub(crate) tolerated: u64,
}

/// The step of the latest revocation that the sidecar has seen, by scope.
#[derive(Debug, Default)]
struct Barriers {
    all: u64,
    tenants: [u64; TENANTS],
    users: [[u64; USERS]; TENANTS],
}

impl Barriers {
    fn of(&self, tenant: usize, user: Option<usize>) -> u64 {
        let user = user.map_or(0, |user| self.users[tenant][user]);
        self.all.max(self.tenants[tenant]).max(user)
    }

    fn raise(&mut self, reach: Reach, step: u64) {
        match reach {
            Reach::User(tenant, user) => self.users[tenant][user] = step,
            Reach::Tenant(tenant) => self.tenants[tenant] = step,
        }
    }
}

/// A request that has begun.
#[derive(Debug)]
struct Begun {
    draft: Draft,
    key: Key,
    at: Millis,
    step: u64,
    barrier: u64,
    /// The latest no to the same key that was here when it began.
    refused: Option<u64>,
    task: Option<JoinHandle<()>>,
}

/// A decision that was seen to be kept.
#[derive(Clone, Copy, Debug)]
struct Alive {
    whom: (usize, Option<usize>),
    /// By the sidecar's monotonic clock.
    until: Millis,
    asked: u64,
}

type Finished = Arc<Mutex<Vec<(u64, Response<Body>)>>>;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) platform: Arc<Mutex<Platform>>,
    pub(crate) filter: Arc<Filter<Module>>,
    pub(crate) counts: Counts,
    clock: Clock,
    process: u32,
    begun: BTreeMap<u64, Begun>,
    finished: Finished,
    barriers: Barriers,
    refused: HashMap<Key, u64>,
    /// Callers of whom a decision was seen.
    alive: HashMap<Caller, Alive>,
    last_invalid: Option<Millis>,
    flushed: [Option<Millis>; TENANTS],
    traffic: Traffic,
    /// Requests that will come, where it matters most.
    appointments: BTreeMap<(Millis, u64), Draft>,
    /// Each user's latest token.
    pub(crate) latest_tokens: [[usize; USERS]; TENANTS],
    /// A request that may come again.
    pub(crate) earlier: Option<Draft>,
    diary: VecDeque<String>,
    /// Something may be waiting for its turn.
    unsettled: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(seed, &mut dice);
        let platform = Platform::new(plan.clone(), Dice::new(dice.next()));
        let platform = Arc::new(Mutex::new(platform));
        let (filter, clock) = sidecar(&plan, &platform, 0, WALL_START);
        Self {
            plan,
            dice,
            platform,
            filter,
            counts: Counts::default(),
            clock,
            process: 0,
            begun: BTreeMap::new(),
            finished: Finished::default(),
            barriers: Barriers::default(),
            refused: HashMap::new(),
            alive: HashMap::new(),
            last_invalid: None,
            flushed: [None; TENANTS],
            traffic: Traffic::default(),
            appointments: BTreeMap::new(),
            latest_tokens: [[0; USERS]; TENANTS],
            earlier: None,
            diary: VecDeque::new(),
            unsettled: false,
        }
    }

    pub(crate) fn now(&self) -> Millis {
        locked(&self.platform).now
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.diary.len() == 120 {
            self.diary.pop_front();
        }
        let (now, step) = {
            let platform = locked(&self.platform);
            (platform.now, platform.step)
        };
        self.diary
            .push_back(format!("{now:>9} {step:>7} {}", what()));
    }

    /// Lets time pass, and everything happen that is due.
    pub(crate) async fn pass(&mut self, time: Millis) {
        self.settle().await;
        let end = self.now() + time;
        loop {
            let next = locked(&self.platform).next_at();
            let appointed = self.appointments.first_key_value().map(|(key, _)| key.0);
            let Some(next) = next
                .into_iter()
                .chain(appointed)
                .min()
                .filter(|at| *at <= end)
            else {
                break;
            };
            self.move_clocks(next);
            if appointed == Some(next) {
                let (_, draft) = self.appointments.pop_first().expect("it is there");
                self.begin(draft);
            } else {
                self.happen(next);
            }
            self.settle().await;
        }
        self.move_clocks(end);
    }

    /// Several things at the same time may find the sidecar still busy with the first.
    fn happen(&mut self, now: Millis) {
        loop {
            locked(&self.platform).happen();
            self.unsettled = true;
            let more = locked(&self.platform).next_at() == Some(now);
            if !more || self.dice.per_mille(700) {
                break;
            }
        }
    }

    fn move_clocks(&mut self, to: Millis) {
        let mut platform = locked(&self.platform);
        let by = i64::try_from(to - platform.now).expect("not that far");
        platform.now = to;
        self.clock.shift(by, by);
    }

    /// The machine sleeps, the world goes on: only the wall clock notices.
    pub(crate) async fn suspend(&mut self, time: Millis) {
        self.settle().await;
        if !self.begun.is_empty() || locked(&self.platform).busy() {
            return;
        }
        self.note(|| format!("the sidecar's machine sleeps for {time}"));
        let end = self.now() + time;
        while locked(&self.platform).next_at().is_some_and(|at| at <= end) {
            locked(&self.platform).happen();
        }
        locked(&self.platform).now = end;
        self.appointments = self.appointments.split_off(&(end, 0));
        let time = i64::try_from(time).expect("not that far");
        self.clock.shift(0, time);
    }

    /// Somebody sets the sidecar's wall clock.
    pub(crate) fn step_wall(&mut self, by: i64) {
        self.note(|| format!("the sidecar's wall clock is set by {by}"));
        self.clock.shift(0, by);
    }

    /// Lets the sidecar do what it can, and judges what it did.
    pub(crate) async fn settle(&mut self) {
        if !self.unsettled {
            return;
        }
        self.unsettled = false;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.judge_arrivals();
        let finished = std::mem::take(&mut *locked(&self.finished));
        for (step, response) in finished {
            if let Some(begun) = self.begun.remove(&step) {
                self.finish(begun, &response, false);
            }
        }
        if let Some(offence) = locked(&self.platform).offence.take() {
            self.fail(&offence);
        }
    }

    /// Sends a request.
    pub(crate) fn begin(&mut self, draft: Draft) {
        self.counts.requests += 1;
        let (request, step, key) = {
            let mut platform = locked(&self.platform);
            let token = draft.token.map(|token| &platform.tokens[token].text);
            let user_id = draft
                .user_header
                .map(|user| platform.truth.user(draft.tenant, user).id.as_str());
            let request = draft.request(token, user_id);
            let key = Key::of(
                request.method(),
                request.uri(),
                request.headers(),
                &self.plan,
            );
            (request, platform.step(), key)
        };
        let user = self.effective_user(&draft);
        let begun = Begun {
            at: self.now(),
            step,
            barrier: self.barriers.of(draft.tenant, user),
            refused: self.refused.get(&key).copied(),
            task: None,
            key,
            draft,
        };
        self.note(|| format!("request {step}: {:?}", begun.draft));
        // Even a hit may have begun something in the background.
        self.unsettled = true;
        if self.dice.per_mille(500)
            && let Some(response) = self.at_once(&request)
        {
            self.counts.at_once += 1;
            return self.finish(begun, &response, true);
        }
        match self.filter.call(request) {
            Answering::Now(Some(response)) => self.finish(begun, &response, true),
            Answering::Now(None) => unreachable!("an answer that was not taken yet"),
            later @ Answering::Later(_) => {
                let finished = self.finished.clone();
                let task = tokio::spawn(async move {
                    let Ok(response) = later.await;
                    locked(&finished).push((step, response));
                });
                let task = Some(task);
                self.begun.insert(step, Begun { task, ..begun });
            }
        }
    }

    /// The answer to the request as it would come in from a socket, if it is one that is given without the HTTP library.
    fn at_once(&self, request: &Request<Body>) -> Option<Response<Body>> {
        let bytes = bytes(request);
        let mut answer = Vec::new();
        let answered = wire::with_head(&bytes, |beginning| match beginning {
            Beginning::Whole(head) if head.simple && request.body().is_end_stream() => self
                .filter
                .answer_at_once(&head, Instant::now(), &mut answer),
            _ => false,
        });
        if !answered {
            assert!(answer.is_empty(), "half an answer");
            return None;
        }
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Response::new(&mut fields);
        let length = head.parse(&answer).expect("an answer");
        assert!(length.is_complete() && length.unwrap() == answer.len());
        let mut response = Response::builder().status(head.code.expect("a status"));
        for field in head.headers.iter() {
            if !field.name.eq_ignore_ascii_case("content-length") {
                response = response.header(field.name, field.value);
            }
        }
        Some(response.body(Body::Empty).expect("an answer"))
    }

    /// Some client that waits goes away.
    pub(crate) fn cancel_one(&mut self) {
        let place = self.dice.index(self.begun.len().max(1));
        let Some(&step) = self.begun.keys().nth(place) else {
            return;
        };
        if let Some(begun) = self.begun.remove(&step) {
            self.note(|| format!("request {step} is given up"));
            self.note_asked(&begun, false);
            if let Some(task) = begun.task {
                task.abort();
            }
        }
    }

    /// Another process takes the sidecar's place: it knows nothing.
    pub(crate) fn restart_sidecar(&mut self) {
        self.process += 1;
        self.note(|| "the sidecar is started anew".to_owned());
        let wall = self.clock.now().wall;
        (self.filter, self.clock) = sidecar(&self.plan, &self.platform, self.process, wall);
        for begun in std::mem::take(&mut self.begun).into_values() {
            if let Some(task) = begun.task {
                task.abort();
            }
        }
        self.barriers = Barriers::default();
        self.refused.clear();
        self.alive.clear();
        self.last_invalid = None;
        self.flushed = [None; TENANTS];
        self.traffic.forget();
        locked(&self.platform).forget_pace();
    }

    /// What the admin port does.
    pub(crate) fn purge(&mut self, reach: Option<Reach>) {
        let step = locked(&self.platform).step();
        self.note(|| format!("purge {reach:?}"));
        let id = |tenant, user| locked(&self.platform).truth.user(tenant, user).id.clone();
        let tenants: [&[u8]; TENANTS] = [b"t0", b"t1"];
        let revocations = self.filter.revocations();
        match reach {
            None => {
                revocations.revoke(invalidation::Reach::All);
                self.barriers.all = step;
            }
            Some(Reach::Tenant(tenant)) => {
                revocations.revoke(invalidation::Reach::Tenant(tenants[tenant]));
            }
            Some(Reach::User(tenant, user)) => {
                let id = id(tenant, user);
                revocations.revoke(invalidation::Reach::User(tenants[tenant], &id));
            }
        }
        if let Some(reach) = reach {
            self.barriers.raise(reach, step);
        }
    }

    /// The end: whatever is on its way arrives.
    pub(crate) async fn end(&mut self) {
        self.settle().await;
        self.appointments.clear();
        while locked(&self.platform).next_at().is_some() {
            self.pass(1_000).await;
            self.settle().await;
        }
        if !self.begun.is_empty() {
            self.fail("some requests were never answered");
        }
        if self.filter.levels().in_flight != 0 {
            self.fail("some flights never landed");
        }
        let platform = locked(&self.platform);
        self.counts.questions += platform.questions.len() as u64;
    }

    /// The user whose decision it would be: the header's, else the token's.
    fn effective_user(&self, draft: &Draft) -> Option<usize> {
        let platform = locked(&self.platform);
        let named = draft.token.and_then(|token| {
            let token = &platform.tokens[token];
            token.effective_user(None)
        });
        draft.user_header.or(named)
    }

    /// What arrived at the sidecar says something about more than one request.
    fn judge_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut locked(&self.platform).arrivals);
        for number in arrivals {
            let (manners, arrival, verdict, process) = {
                let platform = locked(&self.platform);
                let question = &platform.questions[number];
                let arrival = question.arrived.expect("it arrived");
                (
                    question.manners,
                    arrival,
                    question.verdict,
                    question.process,
                )
            };
            if process != self.process {
                continue;
            }
            self.note(|| format!("answer {number}: {verdict:?}"));
            if manners == Manners::Asked && verdict.is_no() {
                self.judge_refusal(number, arrival);
            } else if verdict == Verdict::InvalidToken(401) && self.is_far(number, arrival) {
                self.saw_invalid(arrival.clock.mono);
            }
        }
    }

    /// Whether or not the sidecar took it for a change of the key: what was alive may not be any more.
    fn saw_invalid(&mut self, mono: Millis) {
        self.last_invalid = Some(mono);
        self.alive.clear();
    }

    /// Whether the token of a question is far from its end, as the sidecar sees it.
    fn is_far(&self, number: usize, Arrival { clock, .. }: Arrival) -> bool {
        let platform = locked(&self.platform);
        let token = platform.questions[number].token;
        let expires = token.and_then(|token| platform.tokens[token].expires());
        expires.is_none_or(|expires| expires > clock.wall / 1_000 + 60)
    }

    /// A no ends a yes to the same question; some say more than that.
    fn judge_refusal(&mut self, number: usize, Arrival { step, clock }: Arrival) {
        let (key, verdict, whom) = {
            let platform = locked(&self.platform);
            let question = &platform.questions[number];
            (
                question.key.clone(),
                question.verdict,
                question.user.map(|user| (question.tenant, user)),
            )
        };
        match (verdict, whom) {
            (Verdict::Inactive | Verdict::Deleted, Some((tenant, user))) => {
                self.barriers.raise(Reach::User(tenant, user), step);
            }
            (Verdict::InvalidToken(401), _) if self.is_far(number, Arrival { step, clock }) => {
                let alive = self.alive.get(&key.caller()).is_some_and(|alive| {
                    let (tenant, user) = alive.whom;
                    clock.mono < alive.until && alive.asked > self.barriers.of(tenant, user)
                });
                let rested = self
                    .last_invalid
                    .is_none_or(|last| clock.mono >= last + 60_000);
                if self.plan.listen && !self.plan.crowd && alive && rested {
                    self.note(|| "the signing key is seen to have changed".to_owned());
                    self.barriers.all = step;
                    self.counts.flushes += 1;
                }
                self.saw_invalid(clock.mono);
            }
            _ => {}
        }
        self.refused.insert(key, step);
    }

    fn finish(&mut self, begun: Begun, response: &Response<Body>, hit: bool) {
        let status = response.status().as_u16();
        let number: Option<usize> = response
            .headers()
            .get(NUMBER)
            .and_then(|number| number.to_str().ok()?.parse().ok());
        self.note(|| format!("request {} ends: {status}, answer {number:?}", begun.step));
        self.counts.hits += u64::from(hit);
        self.counts.bypassed += u64::from(begun.draft.bypass());
        if !hit {
            self.note_asked(&begun, status == 202);
        }
        match number {
            None if matches!(status, 502..=504) => self.counts.trouble += 1,
            None => self.fail_at(&begun, None, "an answer that nobody gave"),
            Some(number) if !self.same_key(&begun, number) => {
                self.fail_at(&begun, Some(number), "the answer to another question");
            }
            Some(number) if response.status().is_success() => {
                self.counts.let_in += 1;
                self.judge_yes(&begun, number, hit);
            }
            Some(_) => {
                self.counts.refused += 1;
                self.count_refusal(&begun);
            }
        }
        self.follow_up(&begun, status, number);
    }

    fn same_key(&self, begun: &Begun, number: usize) -> bool {
        locked(&self.platform).questions[number].key == begun.key
    }

    /// Let in: by an answer that may still count, and not too late.
    fn judge_yes(&mut self, begun: &Begun, number: usize, hit: bool) {
        let now = self.clock.now();
        let (verdict, asked, arrived, expires, process) = {
            let platform = locked(&self.platform);
            let question = &platform.questions[number];
            let token = question.token.map(|token| &platform.tokens[token]);
            (
                question.verdict,
                question.asked,
                question.arrived,
                token.and_then(Token::expires),
                question.process,
            )
        };
        if process != self.process {
            self.fail_at(
                begun,
                Some(number),
                "an answer that another process asked for",
            );
        }
        let own = asked > begun.step;
        let kept = arrived.filter(|arrival| arrival.step < begun.step);
        self.counts.joined += u64::from(!own && kept.is_none());
        if !verdict.is_yes() && !matches!(verdict, Verdict::Own(_)) {
            self.fail_at(begun, Some(number), "a yes that was none");
        }
        if !own && (begun.draft.bypass() || verdict != Verdict::Yes) {
            self.fail_at(begun, Some(number), "a yes that was not for sharing");
        }
        if !own && asked < begun.barrier {
            self.fail_at(
                begun,
                Some(number),
                "a yes asked before a revocation that was seen before",
            );
        }
        if !own && begun.refused.is_some_and(|refused| asked < refused) {
            self.fail_at(
                begun,
                Some(number),
                "a yes asked before a no to the same question came",
            );
        }
        if let Some(arrival) = kept {
            let age = now.mono - arrival.clock.mono;
            let wall_age = now.wall.saturating_sub(arrival.clock.wall);
            let stale = if hit { 0 } else { self.plan.stale };
            self.counts.stale += u64::from(!hit);
            if age >= self.plan.ttl + stale || wall_age >= self.plan.ttl + stale {
                self.fail_at(begun, Some(number), "a yes past its life");
            }
            let skew = if hit { self.plan.skew } else { 0 };
            if expires.is_some_and(|expires| now.wall + skew >= expires * 1_000) {
                self.fail_at(begun, Some(number), "a yes past the token's end");
            }
            if hit {
                let alive = Alive {
                    whom: (begun.draft.tenant, self.effective_user(&begun.draft)),
                    until: arrival.clock.mono + self.plan.ttl,
                    asked,
                };
                self.alive.insert(begun.key.caller(), alive);
            }
        }
        if !begun.draft.own_route() {
            let latest = self.latest(begun);
            if begun.at > latest.0 {
                self.fail_at(begun, Some(number), &format!("too late: {latest:?}"));
            }
            self.counts.tolerated += u64::from(latest.0 != FOR_EVER);
        }
    }

    /// How late a request like this one may begin and be let in.
    fn latest(&self, begun: &Begun) -> Latest {
        let platform = locked(&self.platform);
        let draft = &begun.draft;
        let Some(token) = draft.token.map(|token| &platform.tokens[token]) else {
            let never = draft.demand.required != 0;
            return Latest(if never { 0 } else { Millis::MAX }, Bound::Never);
        };
        let wrong_user = match draft.user_header {
            Some(user) => !token.is_dummy() && !token.leaves_user_open() && user != token.user,
            None => token.leaves_user_open(),
        };
        if token.tenant != draft.tenant || wrong_user {
            return Latest(0, Bound::Never);
        }
        let law = Law {
            plan: &self.plan,
            truth: &platform.truth,
            traffic: &self.traffic,
        };
        let case = Case {
            began: begun.at,
            process: self.process,
            bypass: draft.bypass(),
            required: draft.demand.required,
            user: token.effective_user(draft.user_header),
        };
        law.latest(&case, token)
    }

    fn count_refusal(&mut self, begun: &Begun) {
        if begun.draft.own_route() {
            return;
        }
        let Latest(latest, bound) = self.latest(begun);
        if begun.at > latest {
            *self.counts.too_late.entry(bound).or_default() += 1;
        }
    }

    fn note_asked(&mut self, begun: &Begun, yes: bool) {
        let dummy = begun
            .draft
            .token
            .is_none_or(|token| locked(&self.platform).tokens[token].is_dummy());
        if begun.draft.bypass() || dummy {
            return;
        }
        let ended = self.now();
        let asked = Asked {
            began: begun.at,
            ended,
            yes,
        };
        self.traffic.asked(begun.draft.tenant, asked);
        let wasted: Vec<Millis> = {
            let mut platform = locked(&self.platform);
            let sent = std::mem::take(&mut platform.refreshes);
            self.counts.refreshes += sent.len() as u64;
            sent.iter()
                .filter(|sent| !sent.effective && sent.process == self.process)
                .map(|sent| sent.at)
                .collect()
        };
        for at in wasted {
            self.traffic.wasted(at);
        }
    }

    /// What a request that was let through does, here and there.
    fn follow_up(&mut self, begun: &Begun, status: u16, number: Option<usize>) {
        let step = locked(&self.platform).step();
        let tenant = begun.draft.tenant;
        match &begun.draft.purpose {
            Purpose::Read => {}
            Purpose::Announce {
                reach,
                memory,
                changes,
            } if status == 202 => {
                if self.plan.listen {
                    self.barriers.raise(*reach, step);
                    self.note_hold(*reach, *memory);
                }
                self.write(changes, self.plan.listen);
            }
            Purpose::Unnoticed(changes) if status == 202 => self.write(changes, false),
            Purpose::Logout if status == 204 => {
                // Of the token's own user, whatever the header says.
                let user = begun.draft.token.and_then(|token| {
                    let platform = locked(&self.platform);
                    platform.tokens[token].effective_user(None)
                });
                if let Some(user) = user
                    && self.plan.listen
                {
                    self.barriers.raise(Reach::User(tenant, user), step);
                }
            }
            Purpose::RefreshFromOutside => self.after_refresh(begun, status, number, step),
            Purpose::Announce { .. } | Purpose::Unnoticed(_) | Purpose::Logout => {}
        }
    }

    fn after_refresh(&mut self, begun: &Begun, status: u16, number: Option<usize>, step: u64) {
        let tenant = begun.draft.tenant;
        if let Some(number) = number
            && status != 202
        {
            let verdict = locked(&self.platform).questions[number].verdict;
            if verdict.is_no() {
                let clock = self.clock.now();
                self.judge_refusal(number, Arrival { step, clock });
            }
        }
        let Some(user) = self.effective_user(&begun.draft) else {
            return;
        };
        if status == 202 && self.plan.listen {
            self.barriers.raise(Reach::User(tenant, user), step);
            let now = self.clock.now().mono;
            if self.flushed[tenant].is_none_or(|at| now >= at + 10_000) {
                self.flushed[tenant] = Some(now);
                self.barriers.raise(Reach::Tenant(tenant), step);
            }
        }
    }

    fn note_hold(&mut self, reach: Reach, memory: Memory) {
        let scope = match reach {
            Reach::User(tenant, user) => (tenant, Some(user)),
            Reach::Tenant(tenant) => (tenant, None),
        };
        let now = self.now();
        let remembered = self.plan.hold + self.plan.permission_memory;
        match memory {
            Memory::None | Memory::User => {}
            Memory::Permission => {
                self.traffic
                    .held((scope.0, scope.1, false), now, now + remembered);
            }
            Memory::Set => {
                let until = now + remembered + SET_MEMORY;
                self.traffic.held((scope.0, scope.1, true), now, until);
            }
        }
    }

    /// The write itself: most take a moment, some as long as they may, a few longer.
    pub(crate) fn write(&mut self, changes: &[Change], announced: bool) {
        let hold = self.plan.hold;
        let takes = match self.dice.below(8) {
            0 => self.dice.below(3 * hold),
            1 | 2 => self.dice.below(hold),
            3 => 0,
            _ => self.dice.below(200),
        };
        let now = self.now();
        let loss = Loss {
            announced: announced.then_some((now, self.process)),
            ended: now + takes,
        };
        for change in changes {
            self.counts.writes += 1;
            let at = now + self.dice.between(takes / 2, takes);
            locked(&self.platform).schedule(at, Event::Written(change.clone(), loss));
            if self.dice.per_mille(500) {
                self.aim(change, now, at);
            }
        }
    }

    /// The moments that matter of a change: just before it, when it is forgotten below, and after the hold.
    fn aim(&mut self, change: &Change, announced: Millis, changed: Millis) {
        let plan = self.plan.clone();
        let memory = match change {
            Change::Activity(..) => plan.user_memory,
            Change::Assigned(..) => plan.permission_memory,
            Change::Part(..) => SET_MEMORY + plan.permission_memory,
            Change::Key => return,
        };
        let Some(draft) = self.draft_about(change) else {
            return;
        };
        let held = announced + plan.hold + memory;
        let moments = [
            changed.saturating_sub(1 + self.dice.below(plan.look_up + 1)),
            changed + memory - self.dice.below(2 * plan.look_up),
            held - 1 - self.dice.below(200),
            held + self.dice.below(1_500),
            held + self.dice.below(plan.ttl),
        ];
        for (place, at) in moments.into_iter().enumerate() {
            if at > self.now() && self.dice.per_mille(800) {
                let key = (at, self.counts.writes * 8 + place as u64);
                self.appointments.insert(key, draft.clone());
            }
        }
    }

    fn fail_at(&self, begun: &Begun, number: Option<usize>, what: &str) {
        let whom = self.effective_user(&begun.draft);
        let platform = locked(&self.platform);
        let question = number.map(|number| &platform.questions[number]);
        let token = begun.draft.token.map(|token| &platform.tokens[token]);
        let what = format!("{what}\n{begun:?}\n{question:?}\n{token:?}\nuser {whom:?}");
        self.fail(&what);
    }

    pub(crate) fn fail(&self, what: &str) {
        let diary: Vec<&str> = self.diary.iter().map(String::as_str).collect();
        panic!(
            "{what}\n\nplan: {:#?}\n\nlately (time, step, what):\n{}",
            self.plan,
            diary.join("\n")
        );
    }
}

/// A filter of its own, with empty tables and its own clock.
fn sidecar(
    plan: &Plan,
    platform: &Arc<Mutex<Platform>>,
    process: u32,
    wall: u64,
) -> (Arc<Filter<Module>>, Clock) {
    let clock = Clock::movable();
    let set = i64::try_from(wall).expect("fits") - i64::try_from(clock.now().wall).expect("fits");
    clock.shift(0, set);
    let module = Module {
        platform: platform.clone(),
        process,
        clock: clock.clone(),
        host: HeaderValue::from_static("mod-authtoken:8081"),
    };
    let config = plan.config();
    let metrics = Arc::new(Metrics::new(2));
    let (give_up, over) = watch::channel(false);
    // Nobody will ever say so.
    drop(give_up);
    let filter = Filter::new(&config, module, metrics, clock.clone(), over);
    (Arc::new(filter), clock)
}
