//! Puts back, in the request line that leaves, the characters that the HTTP library could not hold.

use crate::target;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

/// Says that the next head on a connection has stand-ins.
#[derive(Clone, Debug, Default)]
pub(super) struct NextHead(Arc<AtomicBool>);

impl NextHead {
    pub(super) fn has_stand_ins(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection whose request lines leave as they came.
#[derive(Debug)]
pub(super) struct Restoring<S> {
    stream: S,
    next: NextHead,
    /// Bytes that were taken and are not written yet.
    pending: Vec<u8>,
}

impl<S> Restoring<S> {
    pub(super) fn new(stream: S, next: NextHead) -> Self {
        Self {
            stream,
            next,
            pending: Vec::new(),
        }
    }
}

impl<S: Write + Unpin> Restoring<S> {
    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.pending))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Read + Unpin> Read for Restoring<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for Restoring<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        if !self.next.0.swap(false, Ordering::Relaxed) {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        // hyper writes a head as a whole, so its first line is whole as well.
        let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
        let (line, rest) = bytes.split_at(end);
        self.pending = target::restore(line);
        self.pending.extend_from_slice(rest);
        // All of it is taken; what cannot be written now is written before anything else, or when it is flushed.
        match self.poll_pending(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
