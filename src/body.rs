//! The one body type of both directions: nothing, some bytes, or a stream passed on frame by frame.

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A message's body.
#[derive(Debug, Default)]
pub enum Body {
    /// None at all.
    #[default]
    Empty,
    /// These bytes.
    Full(Bytes),
    /// What still comes from the other side, after a frame that was read already.
    Stream {
        /// Read ahead.
        first: Option<Frame<Bytes>>,
        /// The rest.
        rest: Incoming,
    },
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Full(bytes)
        }
    }
}

impl From<Incoming> for Body {
    fn from(rest: Incoming) -> Self {
        Self::Stream { first: None, rest }
    }
}

/// What a look at the beginning of a body shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// There is something in it.
    Data,
    /// It ended without.
    End,
    /// It broke off.
    Broken,
}

impl Body {
    /// Waits for the beginning of a stream, which stays part of the body. Not for a body whose length is known.
    pub async fn beginning(&mut self) -> Beginning {
        loop {
            match self.frame().await {
                Some(Ok(frame)) if frame.data_ref().is_some_and(|data| !data.is_empty()) => {
                    self.put_back(frame);
                    return Beginning::Data;
                }
                // An empty chunk cannot be, trailers of an empty body say nothing.
                Some(Ok(_)) => {}
                Some(Err(_)) => return Beginning::Broken,
                None => return Beginning::End,
            }
        }
    }

    fn put_back(&mut self, frame: Frame<Bytes>) {
        match self {
            Self::Stream { first, .. } => *first = Some(frame),
            Self::Empty | Self::Full(_) => {
                *self = Self::Full(frame.into_data().unwrap_or_default());
            }
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                *self = Self::Empty;
                Poll::Ready(Some(Ok(frame)))
            }
            Self::Stream { first, rest } => match first.take() {
                Some(frame) => Poll::Ready(Some(Ok(frame))),
                None => Pin::new(rest).poll_frame(context),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(_) => false,
            Self::Stream { first, rest } => first.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream { first: None, rest } => rest.size_hint(),
            // The frame in front is part of a chunked body: its length is not known.
            Self::Stream { first: Some(_), .. } => SizeHint::default(),
        }
    }
}
