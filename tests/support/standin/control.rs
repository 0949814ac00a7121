//! What a test does to the stand-in, and sees of it: counts, the log of requests, slow, held, broken and missing answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::super::headers::Headers;
use super::super::raw::Request;
use super::lookups::SUBJECT;
use super::modules::Question;
use super::wire::reason;
use super::{own, path};

/// Waiting longer than this for something to happen fails the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a request is to the stand-in, by its path (and, for look-ups, its token).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A filter call, or anything else that is none of the others.
    Filter,
    /// A filter call for one of mod-authtoken's own look-ups.
    LookUp,
    /// On the prefix of an own route: filter call and handler call alike.
    Own,
    /// The health route, as written in full.
    Health,
}

impl Class {
    fn of(request: &Request) -> Self {
        let path = path::raw(&request.target);
        if own::route(path).is_some() {
            return Self::Own;
        }
        if path == "/admin/health" {
            return Self::Health;
        }
        let is_look_up = request.method == "GET"
            && Question::parse(&request.target).is_some()
            && request
                .headers
                .get("X-Okapi-Token")
                .is_some_and(says_look_up);
        if is_look_up {
            Self::LookUp
        } else {
            Self::Filter
        }
    }
}

fn says_look_up(token: &str) -> bool {
    token
        .split('.')
        .nth(1)
        .and_then(|payload| BASE64URL.decode(payload).ok())
        .and_then(|payload| serde_json::from_slice::<serde_json::Value>(&payload).ok())
        .is_some_and(|claims| claims["sub"] == SUBJECT)
}

/// How many requests have come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// All of them, those that could not be read included.
    pub total: u64,
    /// `Class::Filter`.
    pub filter: u64,
    /// `Class::LookUp`.
    pub look_ups: u64,
    /// `Class::Own`.
    pub own: u64,
    /// `Class::Health`.
    pub health: u64,
    /// Too long, too large or malformed.
    pub unreadable: u64,
    /// Connections accepted.
    pub connections: u64,
}

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Time on the stand-in's clock.
    pub at: Duration,
    /// Which connection it came on, counted from 1.
    pub connection: u64,
    /// What it was taken for.
    pub class: Class,
    /// The request.
    pub request: Request,
}

/// What happens to a request instead of being answered properly.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// These bytes are sent instead, then the connection goes on (or ends, if `close`).
    Bytes {
        /// A whole answer, or part of one.
        bytes: Vec<u8>,
        /// Whether the connection closes after them.
        close: bool,
    },
    /// The connection closes without an answer.
    Close,
    /// Nothing is ever answered, until the client goes.
    Hang,
}

impl Trouble {
    /// An answer with this status, these headers in this order and case, and this body, with its length unless the headers
    /// say how it is framed.
    pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers: Headers = headers.iter().copied().collect();
        let mut bytes = format!("HTTP/1.1 {status} {}\r\n", reason(status)).into_bytes();
        headers.write_to(&mut bytes);
        let framed = headers.has("content-length") || headers.has("transfer-encoding");
        if !framed && status != 204 && status != 304 {
            bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.as_bytes());
        Self::Bytes {
            bytes,
            close: false,
        }
    }
}

type Predicate = Box<dyn Fn(&Request) -> bool + Send>;

struct Script {
    left: usize,
    applies: Predicate,
    trouble: Trouble,
}

struct Held {
    applies: Predicate,
    state: Arc<GateState>,
}

#[derive(Debug)]
struct GateState {
    passes: Semaphore,
    waiting: watch::Sender<usize>,
}

/// Answers held back until released: made at once, from the world of that moment, but not sent. Dropping it releases them.
#[derive(Debug)]
pub struct Gate(Arc<GateState>);

impl Gate {
    /// How many answers are held right now.
    pub fn waiting(&self) -> usize {
        *self.0.waiting.borrow()
    }

    /// Waits until that many answers are held; fails the test if they do not come.
    pub async fn arrived(&self, count: usize) {
        let mut waiting = self.0.waiting.subscribe();
        timeout(PATIENCE, waiting.wait_for(|waiting| *waiting >= count))
            .await
            .expect("as many requests as the test waits for")
            .expect("the gate is there");
    }

    /// Lets one answer go; others stay held.
    pub fn release_one(&self) {
        self.0.passes.add_permits(1);
    }

    /// Lets all answers go, later ones too.
    pub fn release(&self) {
        self.0.passes.close();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.release();
    }
}

/// The control room.
pub struct Control {
    inner: Mutex<Inner>,
    total: watch::Sender<u64>,
    log_capacity: usize,
}

#[derive(Default)]
struct Inner {
    next_connection: u64,
    calls: Calls,
    log: VecDeque<Seen>,
    scripts: Vec<Script>,
    held: Vec<Held>,
    delay: Duration,
}

/// What is to be done with one request.
pub struct Orders {
    /// Instead of a proper answer.
    pub trouble: Option<Trouble>,
    /// How long the answer takes.
    pub delay: Duration,
    held: Vec<Arc<GateState>>,
}

impl Orders {
    /// Waits at every gate that holds this request.
    pub async fn pass_gates(&self) {
        for gate in &self.held {
            gate.waiting.send_modify(|waiting| *waiting += 1);
            if let Ok(pass) = gate.passes.acquire().await {
                pass.forget();
            }
            gate.waiting.send_modify(|waiting| *waiting -= 1);
        }
    }
}

impl Control {
    /// `log_capacity`: how many requests the log keeps.
    pub fn new(log_capacity: usize, delay: Duration) -> Self {
        Self {
            inner: Mutex::new(Inner {
                delay,
                ..Inner::default()
            }),
            total: watch::Sender::new(0),
            log_capacity,
        }
    }

    /// Takes down a request that came in and says what is to be done with it.
    pub fn receive(&self, request: &Request, connection: u64, at: Duration) -> Orders {
        let class = Class::of(request);
        let mut inner = self.inner();
        inner.calls.total += 1;
        match class {
            Class::Filter => inner.calls.filter += 1,
            Class::LookUp => inner.calls.look_ups += 1,
            Class::Own => inner.calls.own += 1,
            Class::Health => inner.calls.health += 1,
        }
        if self.log_capacity > 0 {
            if inner.log.len() == self.log_capacity {
                inner.log.pop_front();
            }
            inner.log.push_back(Seen {
                at,
                connection,
                class,
                request: request.clone(),
            });
        }
        let trouble = inner
            .scripts
            .iter_mut()
            .find(|script| script.left > 0 && (script.applies)(request))
            .map(|script| {
                script.left -= 1;
                script.trouble.clone()
            });
        inner.scripts.retain(|script| script.left > 0);
        inner.held.retain(|held| !held.state.passes.is_closed());
        let held = inner
            .held
            .iter()
            .filter(|held| (held.applies)(request))
            .map(|held| Arc::clone(&held.state))
            .collect();
        let orders = Orders {
            trouble,
            delay: inner.delay,
            held,
        };
        let total = inner.calls.total;
        drop(inner);
        self.total.send_replace(total);
        orders
    }

    /// Takes down a request that could not be read.
    pub fn receive_unreadable(&self) {
        let mut inner = self.inner();
        inner.calls.total += 1;
        inner.calls.unreadable += 1;
        let total = inner.calls.total;
        drop(inner);
        self.total.send_replace(total);
    }

    /// Counts a connection; its number, which no other has, whatever is forgotten.
    pub fn connected(&self) -> u64 {
        let mut inner = self.inner();
        inner.calls.connections += 1;
        inner.next_connection += 1;
        inner.next_connection
    }

    /// The counts so far.
    pub fn calls(&self) -> Calls {
        self.inner().calls
    }

    /// The log so far, oldest first.
    pub fn log(&self) -> Vec<Seen> {
        self.inner().log.iter().cloned().collect()
    }

    /// Waits until that many requests have come in, and fails the test if they do not.
    pub async fn seen(&self, count: u64) {
        let mut total = self.total.subscribe();
        timeout(PATIENCE, total.wait_for(|total| *total >= count))
            .await
            .expect("as many requests as the test waits for")
            .expect("the stand-in is there");
    }

    /// Empties the log and zeroes the counts.
    pub fn forget(&self) {
        let mut inner = self.inner();
        inner.calls = Calls::default();
        inner.log.clear();
        drop(inner);
        self.total.send_replace(0);
    }

    /// Sets how long every answer takes from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.inner().delay = delay;
    }

    /// Puts trouble before the next requests that this applies to.
    pub fn script(&self, times: usize, applies: Predicate, trouble: Trouble) {
        self.inner().scripts.push(Script {
            left: times,
            applies,
            trouble,
        });
    }

    /// Holds the answers to requests that this applies to.
    pub fn hold(&self, applies: Predicate) -> Gate {
        let state = Arc::new(GateState {
            passes: Semaphore::new(0),
            waiting: watch::Sender::new(0),
        });
        self.inner().held.push(Held {
            applies,
            state: Arc::clone(&state),
        });
        Gate(state)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Control").finish_non_exhaustive()
    }
}
