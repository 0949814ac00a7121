//! What is answered from a socket's bytes is what the HTTP library's types would be answered, and bodies end where they end.
//!
//! Input: a byte, a body; a zero byte; what a connection brings.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use okapi_auth_sidecar::key::{FilterRequest, KeyScope, Question, RequestLine, at_a_glance};
use okapi_auth_sidecar::wire::{Beginning, Framing, Head, Rest, with_head};

const HOST: HeaderValue = HeaderValue::from_static("mod-authtoken:8081");

fn records(question: &Question<'_>, line: RequestLine<'_>) -> [Vec<u8>; 2] {
    let mut records = [Vec::new(), Vec::new()];
    question.write_caller(&mut records[0]);
    question.write_demand(&mut records[1], KeyScope::Request, line);
    records
}

fn check(head: &Head<'_, '_>) {
    let Some(question) = at_a_glance(head, &HOST) else {
        return;
    };
    let method = Method::from_bytes(head.method.as_bytes()).expect("the library's method");
    let target = Uri::try_from(head.target).expect("the library's target");
    let mut fields = HeaderMap::new();
    for field in head.fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).expect("the library's name");
        let value = HeaderValue::from_bytes(field.value).expect("the library's value");
        fields.append(name, value);
    }
    let parsed = FilterRequest::parse(&method, &target, &fields, &HOST);
    assert_eq!(parsed.bypass, None);
    assert!(parsed.probe.is_none() && !parsed.refresh_header);
    let line = RequestLine::of_head(head);
    assert_eq!(
        records(&question, line),
        records(&parsed.question, RequestLine::of(&method, &target))
    );
    if head.simple {
        for name in [
            "content-length",
            "transfer-encoding",
            "connection",
            "expect",
            "upgrade",
        ] {
            assert!(!fields.contains_key(name), "{name}");
        }
    }
}

/// Taken at once or byte by byte, it is the same body.
fn cut(body: &[u8], framing: Framing) {
    let mut whole = Rest::of(framing);
    let taken = whole.take(body);
    let mut rest = Rest::of(framing);
    let mut sum = 0;
    for byte in body {
        sum += rest.take(std::slice::from_ref(byte));
    }
    assert_eq!((taken, whole), (sum, rest));
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, input)) = input.split_first() else {
        return;
    };
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (body, bytes) = input.split_at(end);
    cut(body, Framing::Chunked);
    cut(body, Framing::Length(first.into()));
    with_head(bytes.strip_prefix(b"\0").unwrap_or(bytes), |beginning| {
        if let Beginning::Whole(head) = beginning {
            check(&head);
        }
    });
});
