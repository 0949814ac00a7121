//! mod-authtoken, as many as the plan says, with what each remembers, and mod-permissions below with what it does.
//!
//! A question goes through the stages of the real module's `FilterApi`, `UserService` and `ModulePermissionsSource`; each look-up
//! reads the truth at one moment and is remembered at a later one. All times come from the platform's queue of events.

use crate::dice::Dice;
use crate::plan::{Millis, Plan, SET_MEMORY, TOKEN_SET_MEMORY};
use crate::token::{Token, WALL_START};
use crate::truth::{Activity, Change, Loss, Mask, NAMES, PERMISSIONS, SETS, TENANTS, Truth};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, request};
use okapi_auth_sidecar::body::Body;
use okapi_auth_sidecar::clock::{Clock, Now};
use okapi_auth_sidecar::decision::Answer;
use okapi_auth_sidecar::headers;
use okapi_auth_sidecar::upstream::{AuthModule, Head, Manner, UpstreamError};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Tells each answer from all others; a kept decision tells it again.
pub(crate) const NUMBER: HeaderName = HeaderName::from_static("x-model-answer");

/// All that a filter's answer may depend on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    fields: [Option<HeaderValue>; 7],
    /// With `CACHE_KEY_SCOPE=request` alone.
    line: Option<(Method, Uri)>,
}

impl Key {
    pub(crate) fn of(method: &Method, target: &Uri, headers: &HeaderMap, plan: &Plan) -> Self {
        let fields = [
            headers::TENANT,
            headers::URL,
            headers::TOKEN,
            headers::USER_ID,
            headers::PERMISSIONS_REQUIRED,
            headers::PERMISSIONS_DESIRED,
            headers::MODULE_PERMISSIONS,
        ];
        Self {
            fields: fields.map(|name| headers.get(name).cloned()),
            line: (plan.key_scope == "request").then(|| (method.clone(), target.clone())),
        }
    }

    pub(crate) fn caller(&self) -> Caller {
        std::array::from_fn(|field| self.fields[field].clone())
    }
}

/// Who asks: the part of the key that a caller's record is made of.
pub(crate) type Caller = [Option<HeaderValue>; 4];

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Why a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    /// By the filter itself, for whoever joins.
    Asked,
    /// Passed through for one request.
    Relayed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not known yet.
    Open,
    Yes,
    /// A yes that does not prove itself.
    OddYes,
    /// An own route's status.
    Own(u16),
    InvalidToken(u16),
    Inactive,
    Deleted,
    Missing,
    /// 500, or nothing at all.
    Broken,
    Nothing,
}

impl Verdict {
    pub(crate) fn is_yes(self) -> bool {
        matches!(self, Self::Yes | Self::OddYes)
    }

    /// Whether it says of the question that it is answered no.
    pub(crate) fn is_no(self) -> bool {
        matches!(
            self,
            Self::InvalidToken(_) | Self::Inactive | Self::Deleted | Self::Missing
        )
    }
}

/// When an answer was back at the sidecar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) step: u64,
    /// By the sidecar's clocks.
    pub(crate) clock: Now,
}

/// One question that came to mod-authtoken.
pub(crate) struct Question {
    pub(crate) key: Key,
    pub(crate) token: Option<usize>,
    pub(crate) tenant: usize,
    /// The effective user, once the token is found to be good.
    pub(crate) user: Option<usize>,
    required: Mask,
    modules: bool,
    pub(crate) manners: Manners,
    pub(crate) process: u32,
    replica: usize,
    /// The auth module will not answer properly: this instead.
    trouble: Option<Verdict>,
    held: Mask,
    pub(crate) asked: u64,
    pub(crate) asked_at: Millis,
    pub(crate) verdict: Verdict,
    pub(crate) arrived: Option<Arrival>,
    reply: Option<oneshot::Sender<Option<Answer>>>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("manners", &self.manners)
            .field("process", &self.process)
            .field("replica", &self.replica)
            .field("asked", &self.asked)
            .field("asked_at", &self.asked_at)
            .field("verdict", &self.verdict)
            .field("arrived", &self.arrived)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Memory {
    active: HashMap<(usize, usize), (bool, Millis)>,
    permissions: HashMap<(usize, usize), (Mask, Millis)>,
    /// Of what tokens hold, by tenant and set.
    sets: HashMap<(usize, usize), (Mask, Millis)>,
}

#[derive(Clone, Copy, Debug)]
struct KnownSets {
    sets: [Mask; SETS],
    since: Millis,
    renewing: bool,
}

/// What happens at some time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    UserRead(usize),
    UserKnown(usize, Activity),
    PermissionsRead(usize),
    PermissionsKnown(usize, Mask),
    SetRead(usize),
    SetKnown(usize, Mask),
    Deliver(usize),
    SetsRenewed(usize),
    Written(Change, Loss),
}

/// A refresh header that the sidecar sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Millis,
    pub(crate) process: u32,
    /// Whether mod-authtoken took notice.
    pub(crate) effective: bool,
}

/// Everything behind the sidecar.
#[derive(Debug)]
pub(crate) struct Platform {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) now: Millis,
    /// Numbers whatever happens, in order.
    pub(crate) step: u64,
    pub(crate) truth: Truth,
    pub(crate) tokens: Vec<Token>,
    token_by_text: HashMap<HeaderValue, usize>,
    replicas: Vec<Memory>,
    permissions: [Option<KnownSets>; TENANTS],
    pub(crate) questions: Vec<Question>,
    queue: BTreeMap<(Millis, u64), Event>,
    queued: u64,
    on_their_way: usize,
    /// Until when every second question goes wrong.
    pub(crate) trouble_until: Millis,
    pub(crate) refreshes: VecDeque<Sent>,
    recent_refreshes: VecDeque<Millis>,
    /// What arrived at the sidecar and is not judged yet.
    pub(crate) arrivals: Vec<usize>,
    /// What the sidecar did that it must not do.
    pub(crate) offence: Option<String>,
}

impl Platform {
    pub(crate) fn new(plan: Plan, dice: Dice) -> Self {
        Self {
            replicas: (0..plan.replicas).map(|_| Memory::default()).collect(),
            plan,
            dice,
            now: 0,
            step: 1,
            truth: Truth::new(),
            tokens: Vec::new(),
            token_by_text: HashMap::new(),
            permissions: [None; TENANTS],
            questions: Vec::new(),
            queue: BTreeMap::new(),
            queued: 0,
            on_their_way: 0,
            trouble_until: 0,
            refreshes: VecDeque::new(),
            recent_refreshes: VecDeque::new(),
            arrivals: Vec::new(),
            offence: None,
        }
    }

    pub(crate) fn step(&mut self) -> u64 {
        self.step += 1;
        self.step
    }

    pub(crate) fn add_token(&mut self, token: Token) -> usize {
        self.token_by_text
            .insert(token.text.clone(), self.tokens.len());
        self.tokens.push(token);
        self.tokens.len() - 1
    }

    /// Whether mod-authtoken would refuse this token.
    pub(crate) fn is_dead(&self, token: usize) -> bool {
        let token = &self.tokens[token];
        let wall = (WALL_START + self.now) / 1_000;
        token.key != self.truth.key || token.expires().is_some_and(|expires| wall > expires)
    }

    pub(crate) fn schedule(&mut self, at: Millis, event: Event) {
        self.queued += 1;
        self.queue.insert((at, self.queued), event);
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Millis> {
        self.queue.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Whether some question is on its way.
    pub(crate) fn busy(&self) -> bool {
        self.on_their_way != 0
    }

    /// Lets the next thing happen.
    pub(crate) fn happen(&mut self) {
        let Some(((at, _), event)) = self.queue.pop_first() else {
            return;
        };
        self.now = at;
        match event {
            Event::UserRead(number) => self.read_user(number),
            Event::UserKnown(number, activity) => self.know_user(number, activity),
            Event::PermissionsRead(number) => self.read_permissions(number),
            Event::PermissionsKnown(number, mask) => self.know_permissions(number, mask),
            Event::SetRead(number) => self.read_set(number),
            Event::SetKnown(number, mask) => self.know_set(number, mask),
            Event::Deliver(number) => self.deliver(number),
            Event::SetsRenewed(tenant) => {
                let sets = self.truth.sets(tenant);
                self.permissions[tenant] = Some(KnownSets {
                    sets,
                    since: self.now,
                    renewing: false,
                });
            }
            Event::Written(change, loss) => {
                let restart = matches!(change, Change::Key);
                self.truth.apply(&change, loss);
                if restart {
                    (0..self.replicas.len()).for_each(|replica| self.restart(replica));
                }
            }
        }
    }

    /// One mod-authtoken starts anew: it remembers nothing, and its questions are lost.
    pub(crate) fn restart(&mut self, replica: usize) {
        self.replicas[replica] = Memory::default();
        for question in &mut self.questions {
            if question.replica == replica && question.reply.take().is_some() {
                question.verdict = Verdict::Nothing;
                self.on_their_way -= 1;
            }
        }
    }

    pub(crate) fn replicas(&self) -> usize {
        self.replicas.len()
    }

    fn depart(
        &mut self,
        process: u32,
        line: (&Method, &Uri),
        headers: &HeaderMap,
        manners: Manners,
        clock: Now,
    ) -> (usize, oneshot::Receiver<Option<Answer>>) {
        let (reply, receiver) = oneshot::channel();
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let token = headers
            .get(headers::TOKEN)
            .map(|text| self.token_by_text[text]);
        let number = self.questions.len();
        let trouble = (self.now < self.trouble_until && self.dice.per_mille(500)).then(|| {
            self.dice
                .pick(&[Verdict::Broken, Verdict::Nothing, Verdict::Nothing])
        });
        let asked = self.step();
        let question = Question {
            key: Key::of(line.0, line.1, headers, &self.plan),
            token,
            tenant: text(headers::TENANT).map_or(0, |tenant| usize::from(tenant == "t1")),
            user: None,
            required: mask(text(headers::PERMISSIONS_REQUIRED)),
            modules: text(headers::MODULE_PERMISSIONS) != Some("{}"),
            manners,
            process,
            replica: self.dice.index(self.replicas.len()),
            trouble,
            held: 0,
            asked,
            asked_at: self.now,
            verdict: Verdict::Open,
            arrived: None,
            reply: Some(reply),
        };
        let user_id = text(headers::USER_ID).map(str::to_owned);
        self.questions.push(question);
        self.on_their_way += 1;
        let refresh = headers.contains_key(headers::REFRESH_CACHE);
        // Half of what is never answered was never read either.
        let lost = trouble == Some(Verdict::Nothing) && self.dice.per_mille(500);
        let effective = if lost {
            self.finish(number, Verdict::Nothing);
            false
        } else {
            self.validate(number, line.1, user_id.as_deref(), refresh)
        };
        if refresh && manners == Manners::Asked {
            self.note_refresh(process, token, effective, clock);
        }
        (number, receiver)
    }

    fn note_refresh(&mut self, process: u32, token: Option<usize>, effective: bool, clock: Now) {
        let at = self.now;
        self.refreshes.push_back(Sent {
            at,
            process,
            effective,
        });
        if self.refreshes.len() > 2_000 {
            self.refreshes.pop_front();
        }
        let recent = &mut self.recent_refreshes;
        recent.retain(|earlier| *earlier <= clock.mono && clock.mono < earlier + 1_000);
        recent.push_back(clock.mono);
        let too_many = recent.len() > 2;
        let dummy = token.is_none_or(|token| self.tokens[token].is_dummy());
        if too_many || dummy || self.plan.refresh == super::UpstreamRefresh::Off {
            self.offence = Some(format!(
                "a refresh header went up that must not: dummy {dummy}, over two a second {too_many}"
            ));
        }
    }

    /// The process of the sidecar that counted its refreshes is gone.
    pub(crate) fn forget_pace(&mut self) {
        self.recent_refreshes.clear();
    }

    /// The first stage; tells whether a refresh header was taken notice of.
    fn validate(
        &mut self,
        number: usize,
        target: &Uri,
        user_id: Option<&str>,
        refresh: bool,
    ) -> bool {
        let own = match target.path() {
            "/token/sign" => Some(201),
            "/token/invalidate" => Some(204),
            path if path.starts_with("/_/tenant") => Some(202),
            _ => None,
        };
        let question = &self.questions[number];
        let Some(token) = question.token.map(|token| &self.tokens[token]) else {
            let verdict = match (own, question.required) {
                (Some(status), _) => Verdict::Own(status),
                (None, 0) => Verdict::Yes,
                (None, _) => Verdict::Missing,
            };
            self.finish(number, verdict);
            return false;
        };
        let refused = if question.token.is_some_and(|token| self.is_dead(token)) {
            Some(401)
        } else {
            let id = &self.truth.user(token.tenant, token.user).id;
            let other_user = !token.is_dummy()
                && !token.leaves_user_open()
                && user_id.is_some_and(|given| given != id);
            (token.tenant != question.tenant || other_user).then_some(403)
        };
        if let Some(status) = refused {
            self.finish(number, Verdict::InvalidToken(status));
            return false;
        }
        if let Some(status) = own {
            self.finish(number, Verdict::Own(status));
            return false;
        }
        let header = user_id.and_then(|id| self.truth.user_by_id(question.tenant, id));
        let (dummy, user, given) = (
            token.is_dummy(),
            token.effective_user(header),
            token.given(),
        );
        self.questions[number].held = given;
        self.questions[number].user = user;
        if refresh && !dummy {
            let memory = &mut self.replicas[self.questions[number].replica];
            memory.permissions.clear();
            memory.sets.clear();
        }
        if user.is_none() {
            // A dummy has what its token gives. Without a user the real module asks for one named `null`.
            if dummy {
                self.decide(number);
            } else {
                self.finish(number, Verdict::Missing);
            }
            return !dummy;
        }
        let memory = self.memory(number).active.get(&self.whom(number));
        match memory {
            Some(&(active, since)) if self.now - since <= self.plan.user_memory => {
                let activity = if active {
                    Activity::Active
                } else {
                    Activity::Inactive
                };
                self.go_on(number, activity);
            }
            Some(_) | None => self.look_up(Event::UserRead(number)),
        }
        true
    }

    fn whom(&self, number: usize) -> (usize, usize) {
        let question = &self.questions[number];
        (question.tenant, question.user.expect("a user's question"))
    }

    fn memory(&self, number: usize) -> &Memory {
        &self.replicas[self.questions[number].replica]
    }

    fn memory_mut(&mut self, number: usize) -> &mut Memory {
        &mut self.replicas[self.questions[number].replica]
    }

    /// What is read now is remembered, and what is asked now is read, a look-up's time later.
    fn look_up(&mut self, event: Event) {
        let longest = self.plan.look_up;
        let takes = match self.dice.below(4) {
            0 => self.dice.below(longest + 1),
            _ => self.dice.below(longest / 8 + 1),
        };
        self.schedule(self.now + takes, event);
    }

    fn open(&self, number: usize) -> bool {
        self.questions[number].reply.is_some()
    }

    fn read_user(&mut self, number: usize) {
        let (tenant, user) = self.whom(number);
        let activity = self.truth.user(tenant, user).activity();
        self.look_up(Event::UserKnown(number, activity));
    }

    fn know_user(&mut self, number: usize, activity: Activity) {
        if !self.open(number) {
            return;
        }
        let (whom, now) = (self.whom(number), self.now);
        // Who does not exist is not remembered.
        if activity != Activity::Deleted {
            let active = activity == Activity::Active;
            self.memory_mut(number).active.insert(whom, (active, now));
        }
        self.go_on(number, activity);
    }

    fn go_on(&mut self, number: usize, activity: Activity) {
        match activity {
            Activity::Active => {}
            Activity::Inactive => return self.finish(number, Verdict::Inactive),
            Activity::Deleted => return self.finish(number, Verdict::Deleted),
        }
        match self.memory(number).permissions.get(&self.whom(number)) {
            Some(&(mask, since)) if self.now - since < self.plan.permission_memory => {
                self.add_permissions(number, mask);
            }
            Some(_) | None => self.look_up(Event::PermissionsRead(number)),
        }
    }

    fn read_permissions(&mut self, number: usize) {
        let (tenant, user) = self.whom(number);
        let sets = self.sets_told(tenant);
        let mask = self.truth.user(tenant, user).expanded(sets);
        self.look_up(Event::PermissionsKnown(number, mask));
    }

    /// A tenant's sets as mod-permissions tells them: an over-aged memory answers until it is renewed.
    fn sets_told(&mut self, tenant: usize) -> [Mask; SETS] {
        let now = self.now;
        let known = match self.permissions[tenant] {
            None => KnownSets {
                sets: self.truth.sets(tenant),
                since: now,
                renewing: false,
            },
            Some(known) if !known.renewing && now - known.since > SET_MEMORY => {
                let takes = self.dice.below(self.plan.look_up + 1);
                self.schedule(now + takes, Event::SetsRenewed(tenant));
                KnownSets {
                    renewing: true,
                    ..known
                }
            }
            Some(known) => known,
        };
        self.permissions[tenant] = Some(known);
        self.truth.told(tenant, known.sets, now);
        known.sets
    }

    fn know_permissions(&mut self, number: usize, mask: Mask) {
        if !self.open(number) {
            return;
        }
        let (whom, now) = (self.whom(number), self.now);
        self.memory_mut(number)
            .permissions
            .insert(whom, (mask, now));
        self.add_permissions(number, mask);
    }

    fn add_permissions(&mut self, number: usize, mask: Mask) {
        self.questions[number].held |= mask;
        let Some(set) = self.token_set(number) else {
            return self.decide(number);
        };
        let tenant = self.questions[number].tenant;
        match self.memory(number).sets.get(&(tenant, set)) {
            Some(&(mask, since)) if self.now - since < TOKEN_SET_MEMORY => {
                self.questions[number].held |= mask;
                self.decide(number);
            }
            Some(_) | None => self.look_up(Event::SetRead(number)),
        }
    }

    fn token_set(&self, number: usize) -> Option<usize> {
        self.questions[number]
            .token
            .and_then(|token| self.tokens[token].set())
    }

    fn read_set(&mut self, number: usize) {
        let sets = self.sets_told(self.questions[number].tenant);
        let set = self.token_set(number).expect("a token with a set");
        self.look_up(Event::SetKnown(number, sets[set]));
    }

    fn know_set(&mut self, number: usize, mask: Mask) {
        if !self.open(number) {
            return;
        }
        let set = self.token_set(number).expect("a token with a set");
        let (tenant, now) = (self.questions[number].tenant, self.now);
        self.memory_mut(number)
            .sets
            .insert((tenant, set), (mask, now));
        self.questions[number].held |= mask;
        self.decide(number);
    }

    fn decide(&mut self, number: usize) {
        let question = &self.questions[number];
        let verdict = if question.required & !question.held != 0 {
            Verdict::Missing
        } else if self.dice.per_mille(15) {
            Verdict::OddYes
        } else {
            Verdict::Yes
        };
        self.finish(number, verdict);
    }

    fn finish(&mut self, number: usize, verdict: Verdict) {
        let trouble = self.questions[number].trouble;
        self.questions[number].verdict = trouble.unwrap_or(verdict);
        let longest = self.plan.way;
        let takes = match self.dice.below(8) {
            0 => self.dice.below(longest + 1),
            1 | 2 => self.dice.below(longest / 8 + 1),
            _ => self.dice.below(longest / 64 + 4).min(longest),
        };
        self.schedule(self.now + takes, Event::Deliver(number));
    }

    fn deliver(&mut self, number: usize) {
        let answer = self.answer(number);
        if let Some(reply) = self.questions[number].reply.take() {
            self.on_their_way -= 1;
            // Who asked may be gone.
            let _ = reply.send(answer);
        }
    }

    fn answer(&mut self, number: usize) -> Option<Answer> {
        let question = &self.questions[number];
        let user = question
            .user
            .map(|user| &self.truth.user(question.tenant, user).id);
        let (status, text) = match question.verdict {
            Verdict::Open | Verdict::Nothing => return None,
            Verdict::Yes | Verdict::OddYes => (202, String::new()),
            Verdict::Own(status) => (status, String::new()),
            Verdict::InvalidToken(status) => (status, "Invalid token".to_owned()),
            Verdict::Inactive => (
                401,
                format!("Invalid token: user with id {} is not active", user?),
            ),
            Verdict::Deleted => (
                401,
                format!("Invalid token: User with id {} does not exist", user?),
            ),
            Verdict::Missing => (403, "Access requires permission".to_owned()),
            Verdict::Broken => (500, "look-up failed".to_owned()),
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(NUMBER, HeaderValue::from(number));
        if status == 202
            && let Some(token) = question.token
        {
            let token = &self.tokens[token].text;
            self.say_yes(&mut headers, question, token);
        }
        let odd = question.verdict == Verdict::OddYes;
        let mut answer = Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers,
            body: Bytes::from(text),
        };
        if odd {
            self.make_odd(&mut answer);
        }
        Some(answer)
    }

    fn say_yes(&self, headers: &mut HeaderMap, question: &Question, token: &HeaderValue) {
        let value = |text: String| HeaderValue::try_from(text).expect("a header value");
        let told: Vec<String> = (0..PERMISSIONS)
            .filter(|permission| question.required & 1 << permission != 0)
            .map(|permission| format!("\"{}\"", NAMES[permission]))
            .collect();
        headers.insert(headers::PERMISSIONS, value(format!("[{}]", told.join(","))));
        let own = token.to_str().expect("base64");
        let module = if question.modules {
            r#""mod-notes-1":"a.b.c","#
        } else {
            ""
        };
        headers.insert(
            headers::MODULE_TOKENS,
            value(format!(r#"{{{module}"_":"{own}"}}"#)),
        );
        headers.insert(headers::TOKEN, token.clone());
        if let Some(user) = question.user {
            let id = self.truth.user(question.tenant, user).id.clone();
            headers.insert(headers::USER_ID, value(id));
        }
    }

    fn make_odd(&mut self, answer: &mut Answer) {
        match self.dice.below(5) {
            0 => answer.status = StatusCode::OK,
            1 => answer.body = Bytes::from_static(b"yes"),
            2 => {
                answer
                    .headers
                    .insert(SET_COOKIE, HeaderValue::from_static("a=b"));
            }
            3 => {
                answer.headers.remove(headers::PERMISSIONS);
            }
            _ => {
                answer.headers.insert(
                    headers::MODULE_TOKENS,
                    HeaderValue::from_static(r#"{"_":"e30.e30.e30"}"#),
                );
            }
        }
    }

    fn arrive(&mut self, number: usize, clock: Now) {
        let step = self.step();
        self.questions[number].arrived = Some(Arrival { step, clock });
        self.arrivals.push(number);
    }
}

fn mask(list: Option<&str>) -> Mask {
    list.into_iter()
        .flat_map(|list| list.split(','))
        .map(|name| {
            let place = NAMES.iter().position(|known| *known == name);
            1 << place.expect("a permission of this world")
        })
        .sum()
}

/// The platform as one process of the sidecar sees it.
pub(crate) struct Module {
    pub(crate) platform: Arc<Mutex<Platform>>,
    pub(crate) process: u32,
    pub(crate) clock: Clock,
    pub(crate) host: HeaderValue,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({})", self.process)
    }
}

impl Module {
    async fn answer(
        &self,
        line: (&Method, &Uri),
        headers: &HeaderMap,
        manners: Manners,
    ) -> Result<Answer, UpstreamError> {
        let now = self.clock.now();
        let (number, reply) =
            locked(&self.platform).depart(self.process, line, headers, manners, now);
        let answer = reply.await.ok().flatten();
        locked(&self.platform).arrive(number, self.clock.now());
        answer.ok_or(UpstreamError::Timeout)
    }
}

impl AuthModule for Module {
    fn host(&self) -> &HeaderValue {
        &self.host
    }

    async fn ask(&self, head: &Head) -> Result<Answer, UpstreamError> {
        let line = (&head.method, &head.target);
        self.answer(line, &head.headers, Manners::Asked).await
    }

    async fn relay(
        &self,
        parts: &request::Parts,
        _: Body,
        _: Manner,
    ) -> Result<Response<Body>, UpstreamError> {
        let line = (&parts.method, &parts.uri);
        let answer = self.answer(line, &parts.headers, Manners::Relayed).await?;
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a world lives in one thread")
}
