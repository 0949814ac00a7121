//! Librarians at their desks, all at once, each with a gateway's connection of their own, and what they measure.
//!
//! The gateway does what Okapi does between a client and its modules: a filter call before each request, its answer's
//! tokens and headers in the next. What the modules do besides is a fixed time for each call.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

use super::Outcome;
use super::desk::{Librarian, MODULE, Work};
use crate::support::headers::Headers;
use crate::support::raw::{Answer, Connection, Request};

/// Numbers the requests, so that no two carry the same id.
static NUMBER: AtomicU32 = AtomicU32::new(1);

/// A pause between two pieces of work, so that librarians do not march in step.
const PAUSE: Duration = Duration::from_millis(2);

/// What was measured of one kind of work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// So many times it was done.
    pub(crate) times: u32,
    /// Filter calls of all of them.
    pub(crate) calls: u32,
    /// From the client's request to its answer, all of them together.
    pub(crate) total: Duration,
    /// What of that was spent on filter calls.
    pub(crate) auth: Duration,
}

impl Figures {
    /// Both together.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            calls: self.calls + other.calls,
            total: self.total + other.total,
            auth: self.auth + other.auth,
        }
    }

    /// Mean of the whole, for one piece of work.
    pub(crate) fn mean_total(&self) -> Duration {
        self.total / self.times.max(1)
    }

    /// Mean time spent on filter calls, for one piece of work.
    pub(crate) fn mean_auth(&self) -> Duration {
        self.auth / self.times.max(1)
    }

    /// Mean number of filter calls.
    pub(crate) fn mean_calls(&self) -> f64 {
        f64::from(self.calls) / f64::from(self.times.max(1))
    }

    /// Share of the time that was spent on filter calls, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.auth.as_secs_f64() / self.total.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// How long librarians go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Long {
    /// Each does each kind of work so many times.
    Times(u32),
    /// Each begins anew until so much time has passed.
    Over(Duration),
}

/// A shift at the desks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    /// Where the gateway asks before each call.
    pub(crate) auth: SocketAddr,
    /// What a module takes for each call besides its auth.
    pub(crate) module_time: Duration,
    /// How long it is.
    pub(crate) long: Long,
}

impl Shift {
    /// Lets all librarians do `work`, each in a thread of its own. The figures come in the order of `work`.
    pub(crate) fn work(self, librarians: &[Librarian], work: &[&Work]) -> Outcome<Vec<Figures>> {
        let all = std::thread::scope(|scope| {
            let desks: Vec<_> = (0..)
                .zip(librarians)
                .map(|(place, librarian)| {
                    scope.spawn(move || {
                        // Spread over the time of one call.
                        std::thread::sleep(self.module_time * place / 20);
                        self.at_one_desk(librarian, work)
                    })
                })
                .collect();
            desks
                .into_iter()
                .map(|desk| desk.join().map_err(|_| "a desk broke down")?)
                .collect::<Outcome<Vec<_>>>()
        })?;
        let none = vec![Figures::default(); work.len()];
        Ok(all.into_iter().fold(none, |sum, one| {
            sum.into_iter().zip(one).map(|(a, b)| a.and(b)).collect()
        }))
    }

    fn at_one_desk(self, librarian: &Librarian, work: &[&Work]) -> Outcome<Vec<Figures>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut gateway = Gateway {
            connection: runtime.block_on(Connection::open(self.auth))?,
            runtime,
            module_time: self.module_time,
        };
        let mut figures = vec![Figures::default(); work.len()];
        let began = Instant::now();
        let mut rounds = 0;
        while self.long.goes_on(rounds, began) {
            for (sum, work) in figures.iter_mut().zip(work) {
                *sum = sum.and(gateway.carry_out(work, librarian)?);
                if !self.module_time.is_zero() {
                    std::thread::sleep(PAUSE);
                }
            }
            rounds += 1;
        }
        Ok(figures)
    }
}

impl Long {
    fn goes_on(self, rounds: u32, began: Instant) -> bool {
        match self {
            Self::Times(times) => rounds < times,
            Self::Over(time) => began.elapsed() < time,
        }
    }
}

/// One librarian's way through the gateway.
struct Gateway {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
    module_time: Duration,
}

impl Gateway {
    fn carry_out(&mut self, work: &Work, librarian: &Librarian) -> Outcome<Figures> {
        let root = format!("{:06}/circulation", number());
        let began = Instant::now();
        let mut figures = Figures {
            times: 1,
            ..Figures::default()
        };
        let answer = self.ask(&work.first, &root, librarian.token(), None, &mut figures)?;
        let token = module_token(&answer)?;
        let permissions = answer.headers.bytes("X-Okapi-Permissions");
        let user = answer.headers.bytes("X-Okapi-User-Id");
        let told: Vec<_> = [
            ("X-Okapi-Permissions", permissions),
            ("X-Okapi-User-Id", user),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let told: Headers = told.into_iter().collect();
        for call in &work.inner {
            let segment = call.target.split(['/', '?']).nth(1).unwrap_or_default();
            let id = format!("{root};{:06}/{segment}", number());
            self.ask(call, &id, &token, Some(&told), &mut figures)?;
        }
        figures.total = began.elapsed();
        Ok(figures)
    }

    /// The filter call, timed, and after it the module's own work.
    fn ask(
        &mut self,
        call: &Request,
        id: &str,
        token: &str,
        told: Option<&Headers>,
        figures: &mut Figures,
    ) -> Outcome<Answer> {
        let mut call = call.clone();
        let headers = &mut call.headers;
        headers.set("X-Okapi-Request-Id", id);
        headers.set(
            "X-Okapi-request-timestamp",
            format!("179604{:07}", number()),
        );
        headers.set("X-Okapi-Token", token);
        for (name, value) in told.into_iter().flat_map(Headers::iter) {
            headers.set(name, value);
        }
        let began = Instant::now();
        let answer = self.runtime.block_on(self.connection.ask(&call))?;
        figures.auth += began.elapsed();
        figures.calls += 1;
        if answer.status != 202 {
            let (status, text) = (answer.status, answer.text());
            return Err(format!("{} {}: {status} {text}", call.method, call.target).into());
        }
        std::thread::sleep(self.module_time);
        Ok(answer)
    }
}

/// The token that the module of the request is to use.
fn module_token(answer: &Answer) -> Outcome<String> {
    let tokens = answer
        .headers
        .get("X-Okapi-Module-Tokens")
        .ok_or("an answer without module tokens")?;
    let tokens: BTreeMap<String, String> = serde_json::from_str(tokens)?;
    Ok(tokens
        .get(MODULE)
        .ok_or("an answer without the module's token")?
        .clone())
}

fn number() -> u32 {
    NUMBER.fetch_add(1, Ordering::Relaxed) % 1_000_000
}
