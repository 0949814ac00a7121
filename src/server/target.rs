//! Notices a request target with a fragment, which the HTTP library would cut off without a word.
//!
//! `#` has no place in a request target (RFC 9112, 3.2); asked about less than what came, the auth module might say yes
//! to something else: `/admin/health#/../users` would become its health route. The bytes are looked at as they come
//! in, since nobody sees them later. The trap: a body's bytes come the same way, and what looks like a request line in
//! one must not be held against the next request on the connection, which is somebody else's.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether a target with a fragment came in on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct FragmentSeen(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    fragment: AtomicBool,
    /// Whether the request at hand has a body.
    body: AtomicBool,
}

impl FragmentSeen {
    /// To be asked once for each request, as soon as its head is there. `body` is whether one follows.
    ///
    /// Okapi sends the next request when it has this one's answer: what comes in before the answer leaves is this
    /// one's body, and is forgotten then. After a request without body nothing is, so that a next request which does
    /// not wait is looked at all the same.
    pub(super) fn at_head(&self, body: bool) -> bool {
        self.0.body.store(body, Ordering::Relaxed);
        self.0.fragment.load(Ordering::Relaxed)
    }

    /// Whether what came in so far was a body's, and is to be forgotten.
    fn answering_a_body(&self) -> bool {
        self.0.body.load(Ordering::Relaxed)
    }
}

/// A stream whose incoming bytes are looked at.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    lines: Lines,
    seen: FragmentSeen,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, seen: FragmentSeen) -> Self {
        Self {
            stream,
            lines: Lines::default(),
            seen,
        }
    }

    /// Some of an answer leaves.
    fn answering(&mut self) {
        if self.seen.answering_a_body() {
            self.lines = Lines::default();
            self.seen.0.fragment.store(false, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let new = &buffer.filled()[before..];
        if !new.is_empty() && self.lines.show_fragment(new) {
            self.seen.0.fragment.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.answering();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.answering();
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Lines of which one may be cut by the end of what was read.
#[derive(Debug, Default)]
struct Lines {
    /// The last bytes of a line that has a `#` in it and is not at its end.
    cut: Option<Vec<u8>>,
}

/// So many of them tell whether it is a request line.
const TAIL: usize = b" HTTP/1.1\r".len();

impl Lines {
    /// Whether these bytes end a request line with a `#` in it.
    fn show_fragment(&mut self, mut bytes: &[u8]) -> bool {
        if let Some(mut line) = self.cut.take() {
            let end = memchr::memchr(b'\n', bytes);
            let (rest, after) = bytes.split_at(end.unwrap_or(bytes.len()));
            line.extend_from_slice(&rest[rest.len().saturating_sub(TAIL)..]);
            if end.is_none() {
                self.keep(&line);
                return false;
            }
            if is_request_line(&line) {
                return true;
            }
            bytes = after;
        }
        while let Some(hash) = memchr::memchr(b'#', bytes) {
            let from = &bytes[hash..];
            let Some(end) = memchr::memchr(b'\n', from) else {
                self.keep(from);
                return false;
            };
            if is_request_line(&from[..end]) {
                return true;
            }
            bytes = &from[end..];
        }
        false
    }

    fn keep(&mut self, line: &[u8]) {
        self.cut = Some(line[line.len().saturating_sub(TAIL)..].to_vec());
    }
}

/// Header lines hold `#` as well (names of permission sets), but do not end like this.
fn is_request_line(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn shown(parts: &[&[u8]]) -> bool {
        let mut lines = Lines::default();
        parts.iter().any(|part| lines.show_fragment(part))
    }

    const CLEAN: &[u8] = b"GET /x?a=1 HTTP/1.1\r\nX-Okapi-Module-Permissions: {\"m\":[\"SYS#m#/x#[GET]\"]}\r\nA: b\r\n\r\n";
    const DIRTY: &[u8] = b"A: SYS#x\r\n\r\nGET /admin/health#/../x HTTP/1.1\r\nA: b\r\n\r\n";

    #[test]
    fn a_fragment_in_a_request_line_is_seen_and_one_elsewhere_is_none() {
        assert!(!shown(&[CLEAN]));
        assert!(shown(&[DIRTY]));
        assert!(shown(&[b"GET /# HTTP/1.0\n"]));
        assert!(!shown(&[b"{\"a\":\"#\"}"]));
    }

    const BODY: &[u8] =
        b"POST /token HTTP/1.1\r\nContent-Length: 20\r\n\r\nx# HTTP/1.1\n{\"a\":\"#\"}";

    /// What each head is told when these requests come one after the other, each after the answer before it.
    async fn told(requests: &[(&[u8], bool)]) -> Vec<bool> {
        let (mut client, server) = tokio::io::duplex(1_024);
        let seen = FragmentSeen::default();
        let mut server = Watched::new(server, seen.clone());
        let mut told = Vec::new();
        for (bytes, body) in requests {
            client.write_all(bytes).await.unwrap();
            let mut buffer = vec![0; bytes.len()];
            server.read_exact(&mut buffer).await.unwrap();
            told.push(seen.at_head(*body));
            server.write_all(b"answer").await.unwrap();
        }
        told
    }

    #[tokio::test]
    async fn a_body_is_not_held_against_the_next_request() {
        let told = told(&[(BODY, true), (CLEAN, false), (DIRTY, false)]).await;

        assert_eq!(told[1..], [false, true]);
    }

    #[tokio::test]
    async fn what_follows_a_request_without_body_is_never_forgotten() {
        let two = [CLEAN, DIRTY].concat();

        assert_eq!(told(&[(&two, false), (CLEAN, false)]).await, [true, true]);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_bytes_are_cut(cuts in prop::collection::vec(0usize..90, 0..6)) {
            for (bytes, dirty) in [(CLEAN, false), (DIRTY, true)] {
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).collect();
                cuts.sort_unstable();
                let mut parts = Vec::new();
                let mut from = 0;
                for cut in cuts {
                    parts.push(&bytes[from..cut]);
                    from = cut;
                }
                parts.push(&bytes[from..]);

                prop_assert_eq!(shown(&parts), dirty);
            }
        }
    }
}
