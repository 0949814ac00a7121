//! The answers that are put together here: a decision's, upstream's, and the few of our own.
//!
//! The trap: a 2xx means "authorised" to Okapi, so none is ever invented, and no header of our own may be in an answer:
//! Okapi copies every `X-` header to the modules.

use crate::body::Body;
use crate::decision::{Answer, Asker, Decision};
use crate::key::Question;
use crate::metrics::FailureCause;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

/// A kept decision, for who asks this.
pub(super) fn hit(decision: &Decision, question: &Question<'_>) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::ACCEPTED;
    *response.headers_mut() = decision.answer(Asker::of(question));
    response
}

/// What the auth module said.
pub(super) fn answer(answer: &Answer) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body.clone()));
    *response.status_mut() = answer.status;
    response.headers_mut().clone_from(&answer.headers);
    response
}

/// No answer: which status, and what a person at the other end of Okapi reads.
pub(super) fn failure(cause: FailureCause) -> Response<Body> {
    let (status, text) = match cause {
        FailureCause::Connect => (StatusCode::BAD_GATEWAY, "The auth module cannot be reached"),
        FailureCause::Closed => (
            StatusCode::BAD_GATEWAY,
            "The auth module closed the connection without an answer",
        ),
        FailureCause::Protocol | FailureCause::TooLarge => (
            StatusCode::BAD_GATEWAY,
            "The auth module's answer cannot be understood",
        ),
        FailureCause::ConnectTimeout | FailureCause::Timeout => (
            StatusCode::GATEWAY_TIMEOUT,
            "The auth module did not answer in time",
        ),
        FailureCause::Drained => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The auth sidecar is stopping",
        ),
    };
    let mut response = text_response(status, text);
    if cause == FailureCause::Drained {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// 400: the request target has a fragment (RFC 9112, 3.2 knows none).
pub(super) fn bad_target() -> Response<Body> {
    bad_request("A request target has no fragment (#)")
}

/// 400: the body broke off before it began, or its first chunk is none (RFC 9112, 7.1).
pub(super) fn bad_body() -> Response<Body> {
    bad_request("The body is broken")
}

fn bad_request(text: &'static str) -> Response<Body> {
    let mut response = text_response(StatusCode::BAD_REQUEST, text);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// 508: a probe came in where only Okapi's calls should.
pub(super) fn loop_detected() -> Response<Body> {
    text_response(
        StatusCode::LOOP_DETECTED,
        "This is the filter port of an auth sidecar, not an auth module",
    )
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::Full(bytes::Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_502_503_or_504_and_never_a_refusal_or_a_yes() {
        let cases = [
            (FailureCause::Connect, 502),
            (FailureCause::ConnectTimeout, 504),
            (FailureCause::Timeout, 504),
            (FailureCause::Closed, 502),
            (FailureCause::Protocol, 502),
            (FailureCause::TooLarge, 502),
            (FailureCause::Drained, 503),
        ];
        for (cause, status) in cases {
            assert_eq!(failure(cause).status(), status);
        }
        assert_eq!(loop_detected().status(), 508);
    }
}
