//! One event in one set-up: who asks when, and when the write shows.
//!
//! One session asks all the time. Twelve more of the same user begin five seconds apart and come back about a minute later:
//! they find what a cache kept longest. The write takes a second, during which everybody goes on.

use std::time::Duration;

use super::cases::{Announced, Case, Company, NEIGHBOURS, Sign};
use super::stage::{SetUp, Stage};
use crate::common::Outcome;
use crate::support::raw::Request;
use crate::support::standin::call::FilterCall;

/// How long a write takes after its announcement.
const WRITE: Duration = Duration::from_secs(1);
/// Sessions that come back now and then.
const RETURNING: u32 = 12;
/// How far apart they begin.
const APART: Duration = Duration::from_secs(5);
/// When they come back, at the next sample: just before a decision that was stored at their first visit would end.
const BACK_AFTER: Duration = Duration::from_millis(58_900);
/// Somebody in company asks this often.
const COMPANY: Duration = Duration::from_secs(2);
/// After the last sign of the old state the trial goes on so long: a returning session's round.
const PATIENCE: Duration = Duration::from_secs(62);
/// For so long after the write the early step is used.
const EARLY: Duration = Duration::from_secs(10);
/// No trial takes longer than that.
const LONGEST: Duration = Duration::from_hours(24);

/// How close together the samples lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// Before the write and in the first ten seconds after it.
    pub(crate) early: Duration,
    /// Afterwards.
    pub(crate) late: Duration,
}

/// What came out, counted from the end of the write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    /// When the session that asks all the time saw the write first.
    pub(crate) first: Duration,
    /// When any session last saw the state before the write; `None`: nobody did.
    pub(crate) last: Option<Duration>,
    /// How far back the sample before `first` lies: the truth is not earlier than that.
    pub(crate) step: Duration,
}

/// A session and when it asks next.
struct Session {
    question: FilterCall,
    next: Duration,
}

/// The sessions and what they have seen.
struct Trial<'a> {
    case: &'a Case,
    stage: Stage,
    steady: FilterCall,
    returning: Vec<Session>,
    company: Session,
    /// How often somebody in company has asked.
    others: usize,
    written: Option<Duration>,
    sampled: Duration,
    first: Option<(Duration, Duration)>,
    last: Option<Duration>,
}

/// Since when people are at work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Since {
    /// For so long when the write is announced.
    Before(Duration),
    /// Since a moment before the write's end: what they are told then is remembered longest.
    JustNow,
}

/// Runs an event once.
pub(crate) async fn run(case: &Case, set_up: SetUp, since: Since, steps: Steps) -> Outcome<Lag> {
    let stage = Stage::build(set_up, case).await?;
    let began = stage.now();
    let pace = case.pace;
    let returning = (0..RETURNING)
        .zip(1..)
        .map(|(place, session)| Session {
            question: case.question(stage.module(), session),
            next: began + APART * place * pace,
        })
        .collect();
    let steady = case.question(stage.module(), 0);
    let mut trial = Trial {
        case,
        returning,
        company: Session {
            question: steady.clone(),
            next: began,
        },
        steady,
        others: 0,
        written: None,
        sampled: began,
        first: None,
        last: None,
        stage,
    };
    let (early, late) = (steps.early * pace, steps.late * pace);
    match since {
        Since::Before(lead) => {
            trial.work_until(began + lead * pace, early).await?;
            trial.write(Some(early)).await?;
        }
        Since::JustNow => trial.write(None).await?,
    }
    let written = trial.stage.now();
    trial.written = Some(written);
    loop {
        let since = trial.stage.now().saturating_sub(written);
        trial.sample().await?;
        let latest = trial.last.unwrap_or_default();
        if trial.first.is_some() && since > latest + PATIENCE * pace {
            break;
        }
        if since > LONGEST {
            return Err(format!("{}: the write never shows", case.name).into());
        }
        let step = if since < EARLY * pace { early } else { late };
        trial.stage.pass(step).await?;
    }
    let (first, step) = trial.first.ok_or("the write never shows")?;
    Ok(Lag {
        first,
        last: trial.last,
        step,
    })
}

impl Trial<'_> {
    /// Everybody works on until then.
    async fn work_until(&mut self, end: Duration, step: Duration) -> Outcome<()> {
        while self.stage.now() < end {
            self.sample().await?;
            let left = end.saturating_sub(self.stage.now());
            self.stage
                .pass(step.min(left.max(Duration::from_millis(1))))
                .await?;
        }
        Ok(())
    }

    /// Announcement, a second in which everybody works on or (without a step) only its end sees them, and then the change.
    async fn write(&mut self, step: Option<Duration>) -> Outcome<()> {
        if self.case.announced == Announced::NewKey {
            self.sample().await?;
            self.stage.change_key();
            return Ok(());
        }
        if self.case.written_before {
            self.sample().await?;
            self.stage.change(self.case.change);
            return self.announce().await;
        }
        self.announce().await?;
        let end = self.stage.now() + WRITE;
        if let Some(step) = step {
            self.work_until(end, step.min(WRITE / 4)).await?;
        } else {
            self.stage.pass(WRITE).await?;
        }
        self.sample().await?;
        self.stage.change(self.case.change);
        Ok(())
    }

    async fn announce(&mut self) -> Outcome<()> {
        let Some((request, passes)) = self.case.announcement(self.stage.module()) else {
            return Ok(());
        };
        let answer = self.stage.ask(&request).await?;
        if answer.status != passes {
            let (name, status, text) = (self.case.name, answer.status, answer.text());
            return Err(format!("{name}: the announcement was answered {status} {text}").into());
        }
        Ok(())
    }

    /// Whoever is due asks, now.
    async fn sample(&mut self) -> Outcome<()> {
        let now = self.stage.now();
        self.keep_company(now).await?;
        let old = self.is_old(&self.steady.request()).await?;
        if let Some(written) = self.written
            && !old
            && self.first.is_none()
        {
            let step = now.saturating_sub(self.sampled);
            self.first = Some((now.saturating_sub(written), step));
        }
        self.sampled = now;
        self.note(now, old);
        for index in 0..self.returning.len() {
            let session = &mut self.returning[index];
            if session.next > now {
                continue;
            }
            session.next = now + BACK_AFTER * self.case.pace;
            let request = session.question.request();
            let old = self.is_old(&request).await?;
            self.note(now, old);
        }
        Ok(())
    }

    fn note(&mut self, now: Duration, old: bool) {
        if let Some(written) = self.written
            && old
        {
            self.last = Some(now.saturating_sub(written));
        }
    }

    async fn keep_company(&mut self, now: Duration) -> Outcome<()> {
        if now < self.company.next {
            return Ok(());
        }
        self.company.next = now + COMPANY * self.case.pace;
        self.others += 1;
        match self.case.company {
            Company::Quiet => {}
            Company::Busy => {
                let number = self.others % NEIGHBOURS;
                let call = Case::question_of_a_neighbour(self.stage.module(), number);
                self.stage.ask(&call.request()).await?;
            }
            Company::Versatile => {
                let new = format!("something.else.{}", self.others);
                let call = self.company.question.clone().desired(&[&new]);
                let old = self.is_old(&call.request()).await?;
                self.note(now, old);
            }
        }
        Ok(())
    }

    /// Whether the answer is still as before the write.
    async fn is_old(&mut self, request: &Request) -> Outcome<bool> {
        let answer = self.stage.ask(request).await?;
        Ok(match self.case.sign {
            Sign::Refused => answer.status == 202,
            Sign::LetIn => answer.status != 202,
        })
    }
}
