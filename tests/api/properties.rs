//! What must hold whatever comes in whatever order: nobody is let in by an answer that is not their own, not alive, refused
//! or revoked.
//!
//! Upstream numbers its answers (`X-Okapi-Permissions: ["n17"]`), so every yes that the sidecar gives can be traced to the
//! one that upstream gave: to which question, when, and what has happened since.

use crate::asking::{Pair, unsigned, yes};
use crate::harness::ADMIN_TOKEN;
use crate::rule;
use crate::support::headers::Headers;
use crate::support::playback::{Playback, Reply};
use crate::support::raw::{self, Answer, Connection, Request};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const TTL: i64 = 60_000;
/// Upstream remembers a user for 60 s, a write takes up to 5 s: so long nothing asked for a changed user is kept.
const USER_HOLD: i64 = 65_000;

fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}

/// One thread for all: with one request at a time, more would only wait for each other.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// One user with one token.
#[derive(Clone, Debug)]
struct Person {
    tenant: &'static str,
    user: String,
    /// Seconds since 1970 until which the token is good.
    expires: Option<i64>,
}

impl Person {
    /// Persons 0 and 1 are one user with two tokens, 2 has the same id in another tenant.
    fn new(number: usize) -> Self {
        let (tenant, user, expires) = match number {
            0 => ("diku", 1, None),
            1 => ("diku", 1, Some(now() + 90)),
            2 => ("college", 1, None),
            3 => ("diku", 2, Some(now() + 40)),
            _ => ("diku", 3, None),
        };
        Self {
            tenant,
            user: format!("{user}1111111-1111-4111-8111-111111111111"),
            expires,
        }
    }

    fn token(&self) -> String {
        let exp = self
            .expires
            .map(|expires| format!(r#""exp":{expires},"#))
            .unwrap_or_default();
        unsigned(&format!(
            r#"{{"sub":"person","type":"access",{exp}"user_id":"{}","tenant":"{}"}}"#,
            self.user, self.tenant
        ))
    }
}

const PERSONS: usize = 5;

fn now() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a clock after 1970");
    i64::try_from(since.as_secs()).expect("a clock of this age")
}

/// What is asked: three different questions.
const DEMANDS: [(Option<&str>, &str); 3] = [
    (None, "{}"),
    (Some("a"), "{}"),
    (Some("a"), r#"{"m-1":["p"]}"#),
];

fn request(method: &str, target: &str, person: &Person, demand: usize) -> Request {
    let (required, modules) = DEMANDS[demand];
    let mut request = Request::new(method, target);
    let headers = &mut request.headers;
    headers.push("X-Okapi-Tenant", person.tenant);
    headers.push("X-Okapi-Url", "http://okapi:9130");
    headers.push("X-Okapi-Token", person.token());
    if let Some(required) = required {
        headers.push("X-Okapi-Permissions-Required", required);
    }
    headers.push("X-Okapi-Module-Permissions", modules);
    headers.push("Host", "sidecar");
    request
}

/// How a question comes in.
#[derive(Clone, Copy, Debug)]
enum Form {
    Plain,
    Head,
    Chunked,
    /// Forwarded; the same question all the same.
    Refresh,
    Body,
    /// Forwarded; what is said to these is said of no other path.
    Own,
    Odd,
    Health,
}

impl Form {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Head,
        Self::Chunked,
        Self::Refresh,
        Self::Body,
        Self::Own,
        Self::Odd,
        Self::Health,
    ];

    fn request(self, person: &Person, demand: usize) -> Request {
        let get = |target| request("GET", target, person, demand);
        match self {
            Self::Plain => get("/x?limit=1"),
            Self::Head => request("HEAD", "/y", person, demand),
            Self::Chunked => {
                let mut request = request("POST", "/x", person, demand);
                request.headers.push("Transfer-Encoding", "chunked");
                request
            }
            Self::Refresh => {
                let mut request = get("/x");
                request.headers.push("Authtoken-Refresh-Cache", "true");
                request
            }
            Self::Body => {
                let mut request = get("/x");
                request.headers.push("Content-Length", "2");
                request.body = b"{}".to_vec();
                request
            }
            Self::Own => get("/token"),
            Self::Odd => get("/foo/..\\_\\tenant"),
            Self::Health => get("/admin/health"),
        }
    }

    fn cacheable(self) -> bool {
        match self {
            Self::Plain | Self::Head | Self::Chunked => true,
            Self::Refresh | Self::Body | Self::Own | Self::Odd | Self::Health => false,
        }
    }

    /// Whether a no to it is a no to the question as such.
    fn asks_the_same(self) -> bool {
        match self {
            Self::Plain | Self::Head | Self::Chunked | Self::Refresh | Self::Body => true,
            Self::Own | Self::Odd | Self::Health => false,
        }
    }
}

/// What upstream says for the time being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Yes,
    InvalidToken,
    Inactive,
    Forbidden,
    Trouble,
    Silent,
    Ok,
    /// A 202 that is somebody else's.
    Unproven,
}

impl Mood {
    /// Half of them a yes: without one there is nothing to find.
    const CHOICES: [Self; 14] = [
        Self::Yes,
        Self::Yes,
        Self::Yes,
        Self::Yes,
        Self::Yes,
        Self::Yes,
        Self::Yes,
        Self::InvalidToken,
        Self::Inactive,
        Self::Forbidden,
        Self::Trouble,
        Self::Silent,
        Self::Ok,
        Self::Unproven,
    ];

    /// Whether it ends what was allowed before.
    fn is_a_no(self) -> bool {
        match self {
            Self::InvalidToken | Self::Inactive | Self::Forbidden | Self::Ok => true,
            Self::Yes | Self::Trouble | Self::Silent | Self::Unproven => false,
        }
    }

    fn reply(self, request: &Request, number: usize) -> Reply {
        let mut headers = yes(request);
        headers.set("X-Okapi-Permissions", format!(r#"["n{number}"]"#));
        if request.method == "HEAD" {
            headers.remove("transfer-encoding");
        }
        let text = |status, text: &str| Reply::new(status, &Headers::new(), text.as_bytes());
        match self {
            Self::Yes => numbered(202, &headers, request),
            Self::Ok => numbered(200, &headers, request),
            Self::Unproven => {
                headers.set("X-Okapi-Module-Tokens", r#"{"_":"somebody.elses.token"}"#);
                numbered(202, &headers, request)
            }
            Self::InvalidToken => text(401, if_not_head(request, "Invalid token")),
            Self::Inactive => {
                let user = headers.get("X-Okapi-User-Id").unwrap_or_default();
                let sentence = format!("Invalid token: user with id {user} is not active");
                text(401, if_not_head(request, &sentence))
            }
            Self::Forbidden => text(403, if_not_head(request, "no")),
            Self::Trouble => text(500, if_not_head(request, "trouble")),
            Self::Silent => Reply::nothing(),
        }
    }
}

fn if_not_head<'a>(request: &Request, text: &'a str) -> &'a str {
    if request.method == "HEAD" { "" } else { text }
}

fn numbered(status: u16, headers: &Headers, request: &Request) -> Reply {
    let mut reply = Reply::new(status, headers, b"");
    if request.method == "HEAD" {
        // Neither body nor framing, as the module does it.
        let mut bytes = format!("HTTP/1.1 {status} Said So\r\n").into_bytes();
        headers.write_to(&mut bytes);
        bytes.extend_from_slice(b"\r\n");
        reply.bytes = bytes;
    }
    reply
}

/// The number of the answer that upstream gave.
fn number(answer: &Answer) -> Option<usize> {
    let list = answer.headers.get("X-Okapi-Permissions")?;
    list.strip_prefix(r#"["n"#)?
        .strip_suffix(r#""]"#)?
        .parse()
        .ok()
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, usize, Form),
    Mood(Mood),
    /// Milliseconds that the monotonic and the wall clock move.
    Clock(i64, i64),
    PurgeAll,
    PurgeTenant(&'static str),
    PurgeUser(usize),
    /// A change of this person, announced by another.
    ChangeUser(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let person = 0..PERSONS;
    let ask = (person.clone(), 0..DEMANDS.len(), select(Form::ALL.to_vec()))
        .prop_map(|(person, demand, form)| Step::Ask(person, demand, form));
    // Repeats are what a cache answers.
    let usual = (person.clone(), 0..DEMANDS.len())
        .prop_map(|(person, demand)| Step::Ask(person, demand, Form::Plain));
    let forward = select(vec![500, 5_000, 20_000, 30_000, 61_000, 70_000]).prop_map(|by| (by, by));
    let apart = (
        select(vec![0, 1_000, 30_000, 61_000]),
        select(vec![
            -3_600_000, -30_000, -1_000, 0, 30_000, 61_000, 3_600_000,
        ]),
    );
    prop_oneof![
        40 => usual,
        15 => ask,
        5 => select(Mood::CHOICES.to_vec()).prop_map(Step::Mood),
        4 => forward.prop_map(|(mono, wall)| Step::Clock(mono, wall)),
        2 => apart.prop_map(|(mono, wall)| Step::Clock(mono, wall)),
        1 => Just(Step::PurgeAll),
        1 => select(vec!["diku", "college"]).prop_map(Step::PurgeTenant),
        1 => person.clone().prop_map(Step::PurgeUser),
        1 => person.prop_map(Step::ChangeUser),
    ]
}

/// One answer that upstream gave.
#[derive(Clone, Debug)]
struct Given {
    key: Vec<Option<Vec<u8>>>,
    token: Vec<u8>,
    mood: Mood,
}

/// When and to whom it was given, and whether it still counts.
#[derive(Clone, Debug)]
struct Fate {
    tenant: &'static str,
    user: String,
    mono: i64,
    wall: i64,
    expires: Option<i64>,
    cacheable: bool,
    void: Option<&'static str>,
}

/// The sidecar, its upstream, and what must be remembered of both.
struct Model {
    pair: Pair<Playback>,
    okapi: Connection,
    persons: Vec<Person>,
    mood: Arc<Mutex<Mood>>,
    given: Arc<Mutex<Vec<Given>>>,
    fates: Vec<Fate>,
    /// By tenant and user: until when, by the monotonic clock, nothing asked is kept.
    holds: Vec<(&'static str, String, i64)>,
    hits: Arc<AtomicUsize>,
}

impl Model {
    async fn new(hits: Arc<AtomicUsize>) -> Self {
        let pair = Pair::yes(&[("CACHE_REFRESH_AHEAD", "1")]).await;
        let mood = Arc::new(Mutex::new(Mood::Yes));
        let given = Arc::<Mutex<Vec<Given>>>::default();
        let (says, takes) = (Arc::clone(&mood), Arc::clone(&given));
        pair.upstream.answer_with(move |request| {
            let mood = *says.lock().expect("no panic");
            let mut given = takes.lock().expect("no panic");
            given.push(Given {
                key: rule::key(request),
                token: request
                    .headers
                    .bytes("X-Okapi-Token")
                    .unwrap_or_default()
                    .to_vec(),
                mood,
            });
            mood.reply(request, given.len() - 1)
        });
        let okapi = pair.sidecar.connect().await;
        Self {
            pair,
            okapi,
            persons: (0..PERSONS).map(Person::new).collect(),
            mood,
            given,
            fates: Vec::new(),
            holds: Vec::new(),
            hits,
        }
    }

    fn clocks(&self) -> (i64, i64) {
        let now = self.pair.sidecar.clock.now();
        let signed = |millis| i64::try_from(millis).expect("a clock of this age");
        (signed(now.mono), signed(now.wall))
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Ask(person, demand, form) => {
                let person = self.persons[person].clone();
                let request = form.request(&person, demand);
                self.ask(&person, &request, form).await.map(|_| ())
            }
            Step::Mood(mood) => {
                *self.mood.lock().expect("no panic") = mood;
                Ok(())
            }
            Step::Clock(mono, wall) => {
                self.pair.sidecar.clock.shift(mono, wall);
                Ok(())
            }
            Step::PurgeAll => {
                self.purge("/cache").await?;
                self.make_void("purged", |_| true);
                Ok(())
            }
            Step::PurgeTenant(tenant) => {
                self.purge(&format!("/cache/{tenant}")).await?;
                self.make_void("purged", |fate| fate.tenant == tenant);
                Ok(())
            }
            Step::PurgeUser(person) => {
                let person = self.persons[person].clone();
                self.purge(&format!("/cache/{}/{}", person.tenant, person.user))
                    .await?;
                self.make_void("purged", |fate| fate.is_of(&person));
                Ok(())
            }
            Step::ChangeUser(person) => self.change(person).await,
        }
    }

    async fn purge(&self, path: &str) -> Result<(), TestCaseError> {
        let answer = self
            .pair
            .sidecar
            .admin("DELETE", path, Some(ADMIN_TOKEN))
            .await;
        prop_assert_eq!(answer.status, 204);
        Ok(())
    }

    /// Somebody of the same tenant changes this user.
    async fn change(&mut self, person: usize) -> Result<(), TestCaseError> {
        let person = self.persons[person].clone();
        let target = format!("/users/{}", person.user.to_uppercase());
        let admin = self
            .persons
            .iter()
            .rev()
            .find(|other| other.tenant == person.tenant)
            .expect("somebody of the tenant")
            .clone();
        let request = request("PUT", &target, &admin, 0);
        let answer = self.ask(&admin, &request, Form::Plain).await?;
        if answer.status == 202 {
            self.make_void("changed", |fate| fate.is_of(&person));
            let until = self.clocks().0 + USER_HOLD;
            self.holds.push((person.tenant, person.user, until));
        }
        Ok(())
    }

    fn make_void(&mut self, why: &'static str, which: impl Fn(&Fate) -> bool) {
        for fate in self.fates.iter_mut().filter(|fate| which(fate)) {
            fate.void.get_or_insert(why);
        }
    }

    async fn ask(
        &mut self,
        person: &Person,
        request: &Request,
        form: Form,
    ) -> Result<Answer, TestCaseError> {
        let before = self.given().len();
        let answer = self.okapi.ask(request).await.expect("an answer");
        let given = self.given();
        let (mono, wall) = self.clocks();
        // Whatever upstream was asked, it was asked now, and for this person.
        for _ in before..given.len() {
            let held = self.holds.iter().any(|(tenant, user, until)| {
                *tenant == person.tenant && *user == person.user && mono < *until
            });
            self.fates.push(Fate {
                tenant: person.tenant,
                user: person.user.clone(),
                mono,
                wall,
                expires: person.expires,
                cacheable: form.cacheable(),
                void: held.then_some("asked during a hold"),
            });
        }
        self.judge(&answer, request, before, &given)?;
        if let Some(last) = given[before..].last() {
            self.learn(last, person, form, &answer);
        }
        Ok(answer)
    }

    fn given(&self) -> Vec<Given> {
        self.given.lock().expect("no panic").clone()
    }

    /// Whether this answer may be given to this request.
    fn judge(
        &self,
        answer: &Answer,
        request: &Request,
        before: usize,
        given: &[Given],
    ) -> Result<(), TestCaseError> {
        let asked = given.len() - before;
        if answer.status >= 300 {
            prop_assert!(asked > 0, "a refusal out of nothing: {}", answer.status);
            return Ok(());
        }
        let Some(number) = number(answer) else {
            return Err(TestCaseError::fail("a yes that upstream never gave"));
        };
        let source = &given[number];
        prop_assert!(source.key == rule::key(request), "another key's answer");
        if number >= before {
            let status = if source.mood == Mood::Ok { 200 } else { 202 };
            prop_assert_eq!(answer.status, status);
            return Ok(());
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        prop_assert_eq!(asked, 0, "asked, and answered with an older answer");
        prop_assert_eq!(source.mood, Mood::Yes, "an unproven answer was kept");
        prop_assert!(is_for(answer, &source.token), "another token's answer");
        let fate = &self.fates[number];
        prop_assert_eq!(fate.void, None, "answer {} is void", number);
        prop_assert!(fate.cacheable, "kept from a forwarded request");
        let (mono, wall) = self.clocks();
        // Both clocks run on while this is judged, by less than a second.
        prop_assert!(mono - fate.mono < TTL + 1_000, "too old");
        prop_assert!(wall - fate.wall < TTL + 1_000, "too old by the wall clock");
        prop_assert!(wall >= fate.wall - 1_000, "from the future");
        let expires = fate.expires.unwrap_or(i64::MAX / 2_000);
        prop_assert!(wall < expires * 1_000 + 1_000, "expired");
        Ok(())
    }

    /// What upstream's latest word does to what it said before.
    fn learn(&mut self, last: &Given, person: &Person, form: Form, answer: &Answer) {
        if form.asks_the_same() && last.mood.is_a_no() {
            let given = self.given();
            for (fate, given) in self.fates.iter_mut().zip(&given) {
                if given.key == last.key {
                    fate.void.get_or_insert("refused");
                }
            }
        }
        let names_the_user = !matches!(form, Form::Head | Form::Own | Form::Health);
        if last.mood == Mood::Inactive && names_the_user {
            self.make_void("inactive", |fate| fate.is_of(person));
        }
        if matches!(form, Form::Refresh) && answer.status == 202 {
            self.make_void("refreshed", |fate| fate.is_of(person));
        }
    }
}

impl Fate {
    fn is_of(&self, person: &Person) -> bool {
        self.tenant == person.tenant && self.user == person.user
    }
}

/// Whether the answer is for this token: `_` of its module tokens is.
fn is_for(answer: &Answer, token: &[u8]) -> bool {
    answer
        .headers
        .get("X-Okapi-Module-Tokens")
        .and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok())
        .is_some_and(|tokens| {
            tokens["_"]
                .as_str()
                .is_some_and(|own| own.as_bytes() == token)
        })
}

#[test]
fn a_yes_from_the_cache_is_one_that_upstream_gave_to_the_same_key_and_still_stands_by() {
    let runtime = runtime();
    let hits = Arc::<AtomicUsize>::default();
    let cases = 100;

    proptest!(config(cases), |(steps in vec(step(), 40..120))| {
        runtime.block_on(async {
            let mut model = Model::new(Arc::clone(&hits)).await;
            for step in &steps {
                model.step(step).await?;
            }
            Ok::<_, TestCaseError>(())
        })?;
    });

    let hits = hits.load(Ordering::Relaxed);
    eprintln!("{hits} answers came from the cache");
    assert!(hits > 300, "too few answers from the cache to say anything");
}

/// One value of each input of the answer, short ones that run into each other; `None` is absent.
fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
    let values: [&[u8]; 8] = [b"", b"a", b"b", b"ab", b"a,b", b"b,a", b"\xe9", b"\xea"];
    prop_oneof![
        1 => Just(None),
        8 => select(values.to_vec()).prop_map(|value| Some(value.to_vec())),
    ]
}

/// What module permissions may be: JSON that means the same in other bytes is another value.
fn modules() -> impl Strategy<Value = &'static str> {
    select(vec![
        "{}",
        "{ }",
        r#"{"m":[]}"#,
        r#"{"m":["p"]}"#,
        r#"{"m": ["p"]}"#,
    ])
}

const PAIRS: u32 = 600;

type Inputs = ([Option<Vec<u8>>; 5], &'static str, &'static str);

fn inputs() -> impl Strategy<Value = Inputs> {
    let fields = proptest::array::uniform5(field());
    (fields, modules(), select(vec!["one", "two"]))
}

/// The second set of inputs is the first with some of them changed, so that equal ones come up often.
fn two_inputs() -> impl Strategy<Value = (Inputs, Inputs)> {
    let changes = vec(proptest::bool::weighted(0.2), 7);
    (inputs(), inputs(), changes).prop_map(|(one, other, change)| {
        let mut two = one.clone();
        for (at, changes) in change.into_iter().enumerate() {
            match at {
                _ if !changes => {}
                5 => two.1 = other.1,
                6 => two.2 = other.2,
                _ => two.0[at].clone_from(&other.0[at]),
            }
        }
        (one, two)
    })
}

fn keyed(inputs: &Inputs, case: usize) -> Request {
    let (fields, modules, subject) = inputs;
    let names = [
        "X-Okapi-Tenant",
        "X-Okapi-Url",
        "X-Okapi-User-Id",
        "X-Okapi-Permissions-Required",
        "X-Okapi-Permissions-Desired",
    ];
    let mut request = Request::new("GET", "/x");
    for (name, value) in names.iter().zip(fields) {
        if let Some(value) = value {
            request.headers.push(*name, value);
        }
    }
    let token = unsigned(&format!(r#"{{"sub":"{subject}","case":{case}}}"#));
    request.headers.push("X-Okapi-Token", token);
    request.headers.push("X-Okapi-Module-Permissions", *modules);
    request.headers.push("Host", "sidecar");
    request
}

#[test]
fn two_requests_share_a_decision_only_if_every_input_is_equal() {
    let runtime = runtime();
    let pair = runtime.block_on(Pair::yes(&[]));
    let okapi = tokio::sync::Mutex::new(runtime.block_on(pair.sidecar.connect()));
    let (case, shared) = (AtomicUsize::new(0), AtomicUsize::new(0));

    proptest!(config(PAIRS), |((one, two) in two_inputs())| {
        // A token of its own for each case: what was stored before is nobody's.
        let case = case.fetch_add(1, Ordering::Relaxed);
        let (first, second) = (keyed(&one, case), keyed(&two, case));
        runtime.block_on(async {
            let mut okapi = okapi.lock().await;
            pair.upstream.forget_calls();
            let answer = okapi.ask(&first).await.expect("an answer");
            prop_assert_eq!((answer.status, pair.upstream.calls()), (202, 1));
            let answer = okapi.ask(&second).await.expect("an answer");
            prop_assert_eq!(answer.status, 202);
            prop_assert_eq!(pair.upstream.calls() == 1, one == two);
            let token = second.headers.bytes("X-Okapi-Token").unwrap_or_default();
            prop_assert!(is_for(&answer, token));
            Ok(())
        })?;
        shared.fetch_add(usize::from(one == two), Ordering::Relaxed);
    });

    let shared = shared.into_inner();
    eprintln!("{shared} of {PAIRS} pairs were equal");
    assert!(shared > 50);
    drop(pair);
}

/// What one of many at once does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Ask(usize, usize),
    Purge(usize),
}

#[test]
fn users_at_once_never_share_an_answer_and_nobody_gets_one_from_before_a_purge() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let act = prop_oneof![
        20 => (0..PERSONS, 0..DEMANDS.len()).prop_map(|(person, demand)| Act::Ask(person, demand)),
        1 => (0..PERSONS).prop_map(Act::Purge),
    ];

    proptest!(config(12), |(acts in vec(act, 200..400))| {
        runtime.block_on(at_once(acts))?;
    });
}

/// Sixteen clients at a time. The number of an answer is its place in the order of all arrivals and purges.
async fn at_once(acts: Vec<Act>) -> Result<(), TestCaseError> {
    let pair = Pair::yes(&[]).await;
    let order = Arc::<AtomicUsize>::default();
    let numbers = Arc::clone(&order);
    pair.upstream.answer_with(move |request| {
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        Mood::Yes.reply(request, number)
    });
    // The order's number before the latest purge of each person that is over.
    let purged: Arc<Mutex<[usize; PERSONS]>> = Arc::default();
    let acts = Arc::new(Mutex::new(acts));
    let (address, admin) = (pair.sidecar.addr, pair.sidecar.admin);
    let persons: Arc<Vec<_>> = Arc::new((0..PERSONS).map(Person::new).collect());
    let mut clients = JoinSet::<Result<(), TestCaseError>>::new();
    for _ in 0..16 {
        let (acts, order) = (Arc::clone(&acts), Arc::clone(&order));
        let (purged, persons) = (Arc::clone(&purged), Arc::clone(&persons));
        clients.spawn(async move {
            loop {
                let Some(act) = acts.lock().expect("no panic").pop() else {
                    return Ok(());
                };
                match act {
                    Act::Ask(person, demand) => {
                        let not_before = purged.lock().expect("no panic")[person];
                        let request = request("GET", "/x", &persons[person], demand);
                        let answer = raw::ask(address, &request).await.expect("an answer");
                        check(&answer, &request, not_before)?;
                    }
                    Act::Purge(person) => {
                        let number = order.fetch_add(1, Ordering::SeqCst);
                        purge(admin, &persons[person]).await?;
                        for (other, latest) in
                            purged.lock().expect("no panic").iter_mut().enumerate()
                        {
                            let (one, other) = (&persons[person], &persons[other]);
                            if (one.tenant, &one.user) == (other.tenant, &other.user) {
                                *latest = number.max(*latest);
                            }
                        }
                    }
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no panic")?;
    }
    Ok(())
}

fn check(answer: &Answer, request: &Request, not_before: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(answer.status, 202);
    let token = request.headers.bytes("X-Okapi-Token").unwrap_or_default();
    prop_assert!(is_for(answer, token), "another user's answer");
    let own = yes(request);
    for name in ["X-Okapi-User-Id", "X-Okapi-Token"] {
        prop_assert!(answer.headers.bytes(name) == own.bytes(name), "{}", name);
    }
    let number = number(answer).unwrap_or_default();
    prop_assert!(number >= not_before, "an answer from before a purge");
    Ok(())
}

async fn purge(admin: std::net::SocketAddr, person: &Person) -> Result<(), TestCaseError> {
    let path = format!("/cache/{}/{}", person.tenant, person.user);
    let mut request = Request::new("DELETE", path);
    request.headers.push("Host", "sidecar");
    request
        .headers
        .push("Authorization", format!("Bearer {ADMIN_TOKEN}"));
    let answer = tokio::time::timeout(Duration::from_secs(20), raw::ask(admin, &request)).await;
    let answer = answer.expect("in time").expect("an answer");
    prop_assert_eq!(answer.status, 204);
    Ok(())
}
