//! One request by way of the HTTP library: its head and body go in, its answer comes out, the connection comes back.
//!
//! The library sees exactly one request: bytes behind it are held back for the next. The connection comes back when the
//! library has read all of the request, which is when it asks for more, and when the answer's last byte has left, which
//! is when it flushes after it has dropped the answer's body. In every other case (somebody wants it closed, the
//! request's end is unclear, something broke) the library keeps it and ends it.

use super::connection::Link;
use crate::body::Body;
use crate::filter::{Answering, Filter};
use crate::target::{Line, hold};
use crate::wire::{Framing, MOST_FIELDS, Rest};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Bytes of later requests that are held meanwhile; beyond them the sender has to wait.
const MOST_AHEAD: usize = 64 * 1024;

/// A request at the beginning of what a connection holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Bytes of its head.
    pub(super) head: usize,
    /// How its end is found.
    pub(super) framing: Framing,
}

/// Has a request answered. Gives the connection back if it goes on.
pub(super) async fn run(link: Link, message: Message, filter: Arc<Filter>) -> Option<Link> {
    let (stream, mut bytes, mut alarm) = link.into_parts();
    let behind = bytes.split_off(message.head);
    let (head, refused) = with_stand_ins(bytes);
    let rest = Rest::of(message.framing);
    let mut body = rest;
    let followed = body.take(&behind) < behind.len();
    let turn = Arc::new(Turn::new(rest, followed));
    let stage = Stage {
        stream,
        head,
        given: 0,
        rest,
        behind,
        turn: turn.clone(),
    };
    let asked = turn.clone();
    let service = service_fn(move |request: Request<Incoming>| Turned {
        answering: if refused {
            Answering::bad_target()
        } else {
            filter.call(request.map(Body::from))
        },
        turn: asked.clone(),
    });
    // Whoever sends more on it must know that nobody will answer.
    let mut last = turn.is_last() || alarm.stopping() && !followed;
    let mut connection = server(last).serve_connection(TokioIo::new(stage), service);
    alarm.moved(Instant::now());
    let ended = std::future::poll_fn(|context| {
        loop {
            // Not without its shutdown: what it still holds of the answer leaves with that.
            if let Poll::Ready(ended) = Pin::new(&mut connection).poll(context) {
                return Poll::Ready(End::Closing(ended));
            }
            if turn.is_over() && !last {
                return Poll::Ready(End::Over);
            }
            if turn.moved.swap(false, Ordering::Relaxed) {
                alarm.moved(Instant::now());
            }
            if alarm.poll(context).is_ready() {
                if turn.waits_for_the_peer() {
                    return Poll::Ready(End::Rested);
                }
                // It is the auth module that lets it wait, and that has time limits of its own.
                alarm.moved(Instant::now());
                continue;
            }
            if last || !(turn.is_last() || alarm.stopping() && !turn.is_followed()) {
                return Poll::Pending;
            }
            last = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
    })
    .await;
    match ended {
        End::Over => {
            let stage = connection.into_parts().io.into_inner();
            alarm.moved(Instant::now());
            Some(Link::again(stage.stream, stage.behind, alarm))
        }
        End::Rested | End::Closing(Ok(())) => None,
        End::Closing(Err(error)) => {
            tracing::debug!(%error, "a connection ended badly");
            None
        }
    }
}

/// How an exchange ended.
enum End {
    /// The answer has left and the connection goes on.
    Over,
    /// The other side neither sends nor takes anything.
    Rested,
    /// The library is done with the connection.
    Closing(hyper::Result<()>),
}

fn server(last: bool) -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        // Time is kept by the connection's own alarm.
        .header_read_timeout(None)
        .keep_alive(!last)
        .max_headers(MOST_FIELDS)
        .title_case_headers(true)
        .auto_date_header(false)
        // Answers are copied into one buffer and written once.
        .writev(false);
    server
}

/// The head with a target that the library holds, and whether it is to be refused.
fn with_stand_ins(mut head: Vec<u8>) -> (Vec<u8>, bool) {
    // Empty lines in front of it are none of it (RFC 9112, 2.2).
    let start = head.iter().position(|byte| !b"\r\n".contains(byte));
    let start = start.unwrap_or(0);
    let Some(length) = memchr::memchr(b'\n', &head[start..]) else {
        return (head, false);
    };
    let line = &head[start..start + length];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match hold(line) {
        Line::AsItIs => (head, false),
        Line::Refused => (head, true),
        Line::Held(stand_ins) => {
            let end = start + line.len();
            head.splice(start..end, stand_ins);
            (head, false)
        }
    }
}

/// Whose turn it is: told by the library's two ends, the stream below it and the service above.
#[derive(Debug)]
struct Turn {
    /// The answer's body was dropped: all of it is in the library's hands.
    answered: AtomicBool,
    /// It was flushed since.
    flushed: AtomicBool,
    /// The library has all of the request, and asked for more.
    read: AtomicBool,
    /// The library waits for more of the request to come.
    starved: AtomicBool,
    /// Nobody knows where the request ends.
    unclear: AtomicBool,
    /// Something has come behind the request.
    followed: AtomicBool,
    /// Some of the answer could not be written.
    blocked: AtomicBool,
    /// Something was read or written since this was last asked.
    moved: AtomicBool,
}

impl Turn {
    fn new(rest: Rest, followed: bool) -> Self {
        Self {
            answered: AtomicBool::new(false),
            flushed: AtomicBool::new(false),
            read: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            unclear: AtomicBool::new(rest == Rest::Unclear),
            followed: AtomicBool::new(followed),
            blocked: AtomicBool::new(false),
            moved: AtomicBool::new(false),
        }
    }

    fn answer_has_left(&self) -> bool {
        self.answered.load(Ordering::Relaxed) && self.flushed.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.answer_has_left() && self.read.load(Ordering::Relaxed)
    }

    /// Whether this request is the connection's last.
    fn is_last(&self) -> bool {
        self.unclear.load(Ordering::Relaxed)
    }

    fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Relaxed)
    }

    fn waits_for_the_peer(&self) -> bool {
        self.answer_has_left()
            || self.starved.load(Ordering::Relaxed)
            || self.blocked.load(Ordering::Relaxed)
    }
}

/// A connection as the library sees it: one request long.
struct Stage {
    stream: TcpStream,
    head: Vec<u8>,
    /// Bytes of the head that the library has.
    given: usize,
    /// What is still to come of the body.
    rest: Rest,
    /// What came in and the library does not have: the body's bytes until it is whole, later requests' from then on.
    behind: Vec<u8>,
    turn: Arc<Turn>,
}

impl Stage {
    /// So many of these bytes belong to the request.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let taken = self.rest.take(bytes);
        if self.rest == Rest::Unclear {
            self.turn.unclear.store(true, Ordering::Relaxed);
        }
        if taken < bytes.len() {
            self.turn.followed.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Holds later requests back, and notices if the other side goes away.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.turn.read.store(true, Ordering::Relaxed);
        let mut room = [0; 2 * 1024];
        while self.behind.len() < MOST_AHEAD {
            let mut buffer = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                if self.behind.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                // Who sent more than this has perhaps only said all that there is to say.
                break;
            }
            self.behind.extend_from_slice(buffer.filled());
            self.turn.followed.store(true, Ordering::Relaxed);
        }
        Poll::Pending
    }
}

impl AsyncRead for Stage {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stage = &mut *self;
        if stage.given < stage.head.len() {
            let rest = &stage.head[stage.given..];
            let fits = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..fits]);
            stage.given += fits;
            return Poll::Ready(Ok(()));
        }
        if stage.rest == Rest::Nothing {
            return stage.poll_next(context);
        }
        if !stage.behind.is_empty() {
            let mut behind = std::mem::take(&mut stage.behind);
            let fits = behind.len().min(buffer.remaining());
            let taken = stage.take(&behind[..fits]);
            buffer.put_slice(&behind[..taken]);
            behind.drain(..taken);
            stage.behind = behind;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut stage.stream).poll_read(context, buffer);
        stage
            .turn
            .starved
            .store(read.is_pending(), Ordering::Relaxed);
        ready!(read)?;
        stage.turn.moved.store(true, Ordering::Relaxed);
        let new = &buffer.filled()[before..];
        let taken = stage.take(new);
        stage.behind.extend_from_slice(&new[taken..]);
        buffer.set_filled(before + taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stage {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.turn.flushed.store(false, Ordering::Relaxed);
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.turn
            .blocked
            .store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.turn.moved.store(true, Ordering::Relaxed);
        }
        written
    }

    /// The library calls this when it has no byte left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        let answered = self.turn.answered.load(Ordering::Relaxed);
        self.turn.flushed.store(answered, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// An answer on its way, whose body tells when the library has all of it.
struct Turned {
    answering: Answering,
    turn: Arc<Turn>,
}

impl Future for Turned {
    type Output = Result<Response<Watched>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(Pin::new(&mut self.answering).poll(context));
        let turn = self.turn.clone();
        Poll::Ready(Ok(response.map(|body| Watched { body, turn })))
    }
}

/// A body that tells when it is dropped.
struct Watched {
    body: Body,
    turn: Arc<Turn>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.turn.answered.store(true, Ordering::Relaxed);
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
