//! Notices a request target with a fragment, which the HTTP library would cut off without a word.
//!
//! `#` has no place in a request target (RFC 9112, 3.2); asked about less than what came, the auth module might say yes
//! to something else: `/admin/health#/../users` would become its health route. The bytes are looked at as they come
//! in, since nobody sees them later. What is found too often (a body line that looks like a request line) is refused,
//! never let in.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether a target with a fragment came in on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct FragmentSeen(Arc<AtomicBool>);

impl FragmentSeen {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
            self.seen.0.store(true, Ordering::Relaxed);
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
