//! One connection at the filter port.
//!
//! A plain hit is answered straight from the bytes that came in; every other request goes through the HTTP library
//! ([`super::exchange`]), one at a time, and the connection comes back when its answer has left. The trap: an answer
//! must never overtake another, so nothing is read here while one is due, and a connection whose requests have no
//! clear end never comes back.

use super::exchange::{self, Message};
use crate::filter::Filter;
use crate::wire::{self, Beginning};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// A connection may rest so long between requests: longer than Okapi's client keeps one (60 s), or Okapi would now and
/// then write into a closing connection. Also the time a request may take to arrive.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// Bytes that are read at once; a filter call has about one kilobyte.
const READ: usize = 16 * 1024;
/// The longest head that is waited for: from here on the HTTP library says what is wrong with it.
const LONGEST_HEAD: usize = 8 * 1024 + 100 * 4 * 1024;
/// Room for answers that a thread keeps for the next connection.
const KEPT: usize = 64 * 1024;

/// Serves a connection until it ends. To be spawned as a task of its own.
pub(super) async fn serve(stream: TcpStream, filter: Arc<Filter>, stop: watch::Receiver<bool>) {
    let mut link = Link::new(stream, stop);
    loop {
        let next = std::future::poll_fn(|context| link.poll_hits(context, &filter)).await;
        let Next::Exchange(message) = next else {
            return;
        };
        // On the heap: most connections have none at most times.
        let exchange = Box::pin(exchange::run(link, message, filter.clone()));
        match exchange.await {
            Some(back) => link = back,
            None => return,
        }
    }
}

/// How it goes on.
enum Next {
    /// With this request, whose bytes are the first that are held.
    Exchange(Message),
    /// Not at all.
    Closed,
}

/// A connection with what was read and is not yet answered.
pub(super) struct Link {
    stream: TcpStream,
    /// Bytes that were read and belong to no answer yet.
    held: Vec<u8>,
    /// Whether there may be a whole head among them.
    unseen: bool,
    alarm: Alarm,
    /// Bytes of answers that could not be written yet.
    unsent: Vec<u8>,
    /// What is to be done when they have left.
    next: Option<Message>,
}

/// Room for what a thread reads and answers at the moment, whichever connection it is.
struct Room {
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static ROOM: RefCell<Room> = const {
        RefCell::new(Room { input: Vec::new(), output: Vec::new() })
    };
}

/// What the bytes at hand begin with.
enum Seen {
    /// A request of so many bytes, answered.
    Answered(usize),
    /// A request for the HTTP library.
    Other(Message),
    /// Part of a head.
    Partial,
}

impl Link {
    fn new(stream: TcpStream, stop: watch::Receiver<bool>) -> Self {
        Self::again(stream, Vec::new(), Alarm::new(stop))
    }

    /// A connection that was lent for a request, with what came in behind it.
    pub(super) fn again(stream: TcpStream, held: Vec<u8>, alarm: Alarm) -> Self {
        Self {
            stream,
            unseen: !held.is_empty(),
            held,
            alarm,
            unsent: Vec::new(),
            next: None,
        }
    }

    /// To be lent for a request, when nothing is left to be sent.
    pub(super) fn into_parts(self) -> (TcpStream, Vec<u8>, Alarm) {
        (self.stream, self.held, self.alarm)
    }

    /// Answers hits for as long as nothing else comes.
    fn poll_hits(&mut self, context: &mut Context<'_>, filter: &Filter) -> Poll<Next> {
        loop {
            match self.poll_send(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Next::Closed),
                Poll::Pending => return self.alarm.poll(context).map(|()| Next::Closed),
            }
            if let Some(message) = self.next.take() {
                return Poll::Ready(Next::Exchange(message));
            }
            match ROOM.with_borrow_mut(|room| self.poll_round(context, filter, room)) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(Next::Closed),
                Poll::Pending if self.held.is_empty() && self.alarm.stopping() => {
                    return Poll::Ready(Next::Closed);
                }
                Poll::Pending => return self.alarm.poll(context).map(|()| Next::Closed),
            }
        }
    }

    /// Sends what an earlier write left.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, &self.unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.drain(..sent);
            self.alarm.moved(Instant::now());
            if self.unsent.is_empty() {
                self.unsent.shrink_to(READ);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, answers what it can and writes once. Tells whether the connection goes on.
    fn poll_round(
        &mut self,
        context: &mut Context<'_>,
        filter: &Filter,
        room: &mut Room,
    ) -> Poll<io::Result<bool>> {
        let Room { input, output } = room;
        // A round that broke off may have left another connection's answers there.
        output.clear();
        let before = self.held.len();
        if !self.unseen {
            input.resize(READ, 0);
            let mut buffer = ReadBuf::new(input);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let new = buffer.filled();
            if new.is_empty() {
                return Poll::Ready(Ok(false));
            }
            if before == 0 {
                // A head's time begins with its first byte; more of them give it no more time.
                let began = Instant::now();
                self.alarm.moved(began);
                let done = self.look(filter, new, began, output);
                self.held.extend_from_slice(&new[done..]);
            } else {
                self.held.extend_from_slice(new);
            }
        }
        if self.unseen
            || before > 0 && (may_end_a_head(&self.held, before) || self.held.len() > LONGEST_HEAD)
        {
            self.unseen = false;
            let mut held = std::mem::take(&mut self.held);
            let done = self.look(filter, &held, Instant::now(), output);
            held.drain(..done);
            self.held = held;
            if self.held.is_empty() {
                self.held.shrink_to(READ);
            }
        }
        if !output.is_empty() {
            let sent = match Pin::new(&mut self.stream).poll_write(context, output) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => 0,
            };
            self.unsent.extend_from_slice(&output[sent..]);
            output.clear();
        }
        output.shrink_to(KEPT);
        Poll::Ready(Ok(true))
    }

    /// Answers the hits that these bytes begin with, and tells how many bytes those were.
    fn look(
        &mut self,
        filter: &Filter,
        bytes: &[u8],
        began: Instant,
        output: &mut Vec<u8>,
    ) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let seen = wire::with_head(rest, |beginning| match beginning {
                Beginning::Whole(head)
                    if head.simple
                        && !self.alarm.stopping()
                        && filter.answer_at_once(&head, began, output) =>
                {
                    Seen::Answered(head.length)
                }
                Beginning::Whole(head) => Seen::Other(Message {
                    head: head.length,
                    framing: head.framing,
                }),
                Beginning::Partial if rest.len() < LONGEST_HEAD => Seen::Partial,
                Beginning::Partial | Beginning::Broken => Seen::Other(Message {
                    head: rest.len(),
                    framing: wire::Framing::Unclear,
                }),
            });
            match seen {
                Seen::Answered(length) => {
                    at += length;
                    self.alarm.moved(began);
                }
                Seen::Other(message) => {
                    self.next = Some(message);
                    break;
                }
                Seen::Partial => break,
            }
        }
        at
    }
}

/// Whether a head may end in what came in from `new` on: a head that comes byte by byte is not read again each time.
fn may_end_a_head(bytes: &[u8], new: usize) -> bool {
    let from = new.saturating_sub(2);
    memchr::memchr_iter(b'\n', &bytes[from..]).any(|at| {
        let behind = &bytes[from + at + 1..];
        behind.starts_with(b"\n") || behind.starts_with(b"\r\n")
    })
}

/// Wakes a connection's task when it has rested for too long, and when the server stops.
///
/// Both wake-ups are asked for once, since a task's waker stays the same: to ask again with every request would cost as
/// much as the look-up of a decision.
pub(super) struct Alarm {
    moved: Instant,
    rest: Pin<Box<Sleep>>,
    stop: watch::Receiver<bool>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    set: bool,
}

impl Alarm {
    fn new(stop: watch::Receiver<bool>) -> Self {
        let moved = Instant::now();
        let mut told = stop.clone();
        Self {
            moved,
            rest: Box::pin(tokio::time::sleep_until(moved + IDLE_TIMEOUT)),
            stop,
            stopped: Box::pin(unconstrained(async move {
                // An error means that the server is gone, which is a reason to stop as well.
                let _ = told.wait_for(|stop| *stop).await;
            })),
            set: false,
        }
    }

    /// Something came or went at this moment.
    pub(super) fn moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// Whether the server stops: no request is waited for any more.
    pub(super) fn stopping(&self) -> bool {
        // Changed at most once, from false to true.
        self.stop.has_changed().unwrap_or(true)
    }

    /// Ready when nothing has moved for too long.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.set {
            self.set = true;
            if self.stopped.as_mut().poll(context).is_ready() {
                // Since `stopping` was last asked, which is now to be asked again.
                context.waker().wake_by_ref();
            }
        } else if !self.rest.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            // A connection that has used up its budget would be told to come again, and not be woken later.
            ready!(Pin::new(&mut unconstrained(self.rest.as_mut())).poll(context));
            let due = self.moved + IDLE_TIMEOUT;
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            self.rest.as_mut().reset(due);
        }
    }
}
