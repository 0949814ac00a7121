//! The load: connections that ask, one request after the other, for whoever comes next; each answer is judged at once.

use crate::people::{Grant, Person, QUESTIONS};
use crate::stage::Stage;
use crate::support::raw::{Answer, Connection};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Connections that are open all the time.
pub(crate) const CONNECTIONS: u32 = 16;
/// Requests before a connection is closed and opened anew.
const REQUESTS_EACH: u64 = 500;
/// Between two requests of a connection.
const PAUSE: Duration = Duration::from_millis(10);
/// Longer than `UPSTREAM_TIMEOUT`: after that there must be an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Numbers that look random and are the same in every run.
#[derive(Debug)]
pub(crate) struct Lots(u64);

impl Lots {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// One of `0..below`.
    pub(crate) fn draw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let high = usize::try_from(self.0 >> 33).unwrap_or_default();
        high % below
    }
}

pub(crate) fn start(stage: &Arc<Stage>, sidecar: SocketAddr) -> Vec<JoinHandle<()>> {
    let numbers = 0..u64::from(CONNECTIONS);
    numbers
        .map(|number| tokio::spawn(work(stage.clone(), sidecar, Lots::new(number + 1))))
        .collect()
}

async fn work(stage: Arc<Stage>, sidecar: SocketAddr, mut lots: Lots) {
    while !stage.resting() {
        let connection = match Connection::open(sidecar).await {
            Ok(connection) => connection.patience(PATIENCE),
            Err(error) => {
                stage.violation(format!("no connection to the filter port: {error}"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        ask_on(&stage, connection, &mut lots).await;
    }
}

async fn ask_on(stage: &Stage, mut connection: Connection, lots: &mut Lots) {
    for _ in 0..REQUESTS_EACH {
        if stage.resting() {
            return;
        }
        let (place, question) = (lots.draw(stage.places()), lots.draw(QUESTIONS));
        let before = stage.person(place).clone();
        if before.expired(Instant::now()) && lots.draw(4) > 0 {
            // A token that has ended is tried for a while, then its owner logs in again.
            let life = 20 + i64::try_from(lots.draw(40)).unwrap_or_default();
            stage
                .with(|standin| stage.person(place).log_in(standin, life))
                .await;
            continue;
        }
        let sent = Instant::now();
        let hit = before.expects_hit(question, sent);
        stage.sent.fetch_add(1, Ordering::Relaxed);
        let answer = connection.ask(&before.call(question).request()).await;
        let answered = Instant::now();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                stage.violation(format!("a request got no answer: {error}"));
                return;
            }
        };
        stage.count(answer.status);
        if hit {
            stage.expected_hits.fetch_add(1, Ordering::Relaxed);
        }
        let after = {
            let mut person = stage.person(place);
            if person.token == before.token {
                person.answered(question, answer.status, hit, answered);
            }
            person.clone()
        };
        let asked = Asked {
            before,
            after,
            question,
            sent,
            answered,
        };
        if let Some(what) = asked.wrong(stage, &answer) {
            stage.violation(what);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A request with what was true when it was sent and when its answer came.
struct Asked {
    before: Person,
    after: Person,
    question: usize,
    sent: Instant,
    answered: Instant,
}

impl Asked {
    fn wrong(&self, stage: &Stage, answer: &Answer) -> Option<String> {
        match answer.status {
            202 => self.wrong_yes(stage, answer),
            401 if self.may_be_unknown() => None,
            403 if self.may_be_forbidden() => None,
            502 if stage.was_away(self.sent, self.answered) => None,
            status => Some(format!(
                "an answer that nothing explains: {status} {}",
                answer.text()
            )),
        }
    }

    fn wrong_yes(&self, stage: &Stage, answer: &Answer) -> Option<String> {
        if answer.headers.get("X-Okapi-Token") != Some(&self.before.token)
            || answer.headers.get("X-Okapi-User-Id") != Some(&self.before.id)
        {
            return Some("a grant that is somebody else's".to_owned());
        }
        let took = self.answered - self.sent;
        match self.before.granted(&self.after, self.question, self.sent) {
            Grant::Fine => None,
            Grant::BeyondLimit(what) => {
                stage.beyond_limit(format!("{what}, answered in {took:.3?}"));
                None
            }
            Grant::Wrong(what) => Some(format!("{what}, answered in {took:.3?}")),
        }
    }

    /// Whoever has taken the place meanwhile: what became of the one before is not known.
    fn replaced(&self) -> bool {
        self.before.id != self.after.id
    }

    fn may_be_unknown(&self) -> bool {
        self.replaced() || self.either(|person| person.may_be_unknown(self.sent, self.answered))
    }

    fn may_be_forbidden(&self) -> bool {
        self.replaced() || self.either(|person| person.may_be_forbidden(self.question, self.sent))
    }

    fn either(&self, may: impl Fn(&Person) -> bool) -> bool {
        may(&self.before) || may(&self.after)
    }
}
