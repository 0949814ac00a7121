//! A head that is answered without the HTTP library, against what the library makes of the same bytes.

use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use okapi_auth_sidecar::key::{FilterRequest, KeyScope, Question, RequestLine, at_a_glance};
use okapi_auth_sidecar::wire::{Beginning, MOST_FIELDS, with_head};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;

const HOST: HeaderValue = HeaderValue::from_static("mod-authtoken:8081");

/// What decides: who asks, what, and with which request line.
#[derive(Debug, PartialEq, Eq)]
struct Records {
    caller: Vec<u8>,
    demands: [Vec<u8>; 2],
}

fn records(question: &Question<'_>, line: RequestLine<'_>) -> Records {
    let mut caller = Vec::new();
    question.write_caller(&mut caller);
    let demands = [KeyScope::Permissions, KeyScope::Request].map(|scope| {
        let mut demand = Vec::new();
        question.write_demand(&mut demand, scope, line);
        demand
    });
    Records { caller, demands }
}

/// What is answered without the library, and how long its head is.
fn glanced(bytes: &[u8]) -> Option<(Records, usize)> {
    with_head(bytes, |beginning| match beginning {
        Beginning::Whole(head) if head.simple => {
            let question = at_a_glance(&head, &HOST)?;
            let line = RequestLine::of_head(&head);
            Some((records(&question, line), head.length))
        }
        _ => None,
    })
}

/// The requests that the library reads in these bytes, up to the first that it refuses.
fn read(runtime: &tokio::runtime::Runtime, bytes: &[u8]) -> Vec<Request<Incoming>> {
    let requests = RefCell::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| {
        requests.borrow_mut().push(request);
        std::future::ready(Ok::<_, Infallible>(Response::new(
            Empty::<bytes::Bytes>::new(),
        )))
    });
    let both = tokio::io::join(bytes, tokio::io::sink());
    let mut server = http1::Builder::new();
    server.header_read_timeout(None).max_headers(MOST_FIELDS);
    // It ends with the bytes, well or not.
    let _ = runtime.block_on(server.serve_connection(TokioIo::new(both), service));
    requests.into_inner()
}

const NAMES: [&str; 30] = [
    "X-Okapi-Tenant",
    "X-Okapi-Url",
    "X-Okapi-Token",
    "X-Okapi-User-Id",
    "X-Okapi-Permissions-Required",
    "X-Okapi-Permissions-Desired",
    "X-Okapi-Module-Permissions",
    "X-Okapi-Filter",
    "X-Okapi-Extra-Permissions",
    "X-Okapi-Additional-Token",
    "Authtoken-Refresh-Cache",
    "X-Auth-Sidecar-Probe",
    "Content-Type",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Expect",
    "Upgrade",
    "TE",
    "Trailer",
    "Keep-Alive",
    "Proxy-Connection",
    "Host",
    "Cookie",
    "X-Okapi-Request-Id",
    "X-Okapi-Tenant ",
    "X_Okapi_Tenant",
    "X-Okapi-Permissions-Required-And-More",
    "A",
    "",
];

const VALUES: [&str; 22] = [
    "",
    "{}",
    "a",
    "a,b",
    "auth",
    "auth /*",
    "authx",
    "true",
    "TRUE",
    "text/plain",
    "multipart/x",
    "Application/X-WWW-Form-Urlencoded;a",
    "0",
    "5",
    "chunked",
    "close",
    "keep-alive",
    "100-continue",
    "h2c",
    "h.p.s",
    "\u{fc}\t\u{1f600}",
    "x-okapi-token",
];

fn cased(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    (0_u8..4, any::<u64>()).prop_map(move |(how, bits)| {
        name.bytes()
            .enumerate()
            .map(|(at, byte)| match how {
                0 | 1 => byte,
                2 => byte.to_ascii_lowercase(),
                _ if bits >> (at % 64) & 1 == 1 => byte.to_ascii_uppercase(),
                _ => byte.to_ascii_lowercase(),
            })
            .collect()
    })
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        4 => select(&VALUES[..]).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
        1 => (0_usize..9_000).prop_map(|length| vec![b'y'; length]),
    ];
    let colon = select(&[": ", ":", ":  ", ":\t", " : "][..]);
    let end = select(
        &[
            "\r\n", "\r\n", "\r\n", "\r\n", " \t\r\n", "\n", "\r\n ", "\r", "\r\r\n",
        ][..],
    );
    (select(&NAMES[..]).prop_flat_map(cased), colon, value, end).prop_map(
        |(name, colon, value, end)| [&name[..], colon.as_bytes(), &value, end.as_bytes()].concat(),
    )
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let method = select(
        &[
            "GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "get", "CONNECT",
            "OPTIONS", "X",
        ][..],
    );
    let piece = prop_oneof![
        6 => select(&["/", "users", "a.b", "?", "x=1", "&", "=", "//", "/.", "..", "%41", "#", "\\", "*", "http://h", "/token", "/_/tenant", "/refreshtoken", "/admin/health", "\"", "\u{f722}", "~!$'()*+,;:@"][..]).prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
        1 => (0_usize..4_200).prop_map(|length| vec![b'z'; length]),
    ];
    let version = select(
        &[
            " HTTP/1.1\r\n",
            " HTTP/1.1\r\n",
            " HTTP/1.1\r\n",
            " HTTP/1.1\r\n",
            " HTTP/1.1\n",
            " HTTP/1.0\r\n",
            "  HTTP/1.1\r\n",
            " HTTP/1.2\r\n",
            " HTTP/1.1 \r\n",
            "\r\n",
        ][..],
    );
    let empty = select(&["", "", "", "", "\r\n", "\n", "\r\n\r\n"][..]);
    (empty, method, vec(piece, 0..4), version).prop_map(|(empty, method, pieces, version)| {
        [
            empty.as_bytes(),
            method.as_bytes(),
            b" /",
            &pieces.concat(),
            version.as_bytes(),
        ]
        .concat()
    })
}

/// Most of it is as Okapi sends it: otherwise nothing would ever be answered at a glance.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    const USUAL: &[u8] = b"X-Okapi-Tenant: diku\r\nX-Okapi-Url: http://o:9130\r\nX-Okapi-Token: h.p.s\r\nX-Okapi-Permissions-Required: a\r\nX-Okapi-Module-Permissions: {}\r\n";
    let plain = Just(b"GET /users?limit=1 HTTP/1.1\r\n".to_vec());
    let line = prop_oneof![2 => plain, 1 => line()];
    let usual = prop_oneof![
        3 => Just(USUAL.to_vec()),
        1 => vec(field(), 0..8).prop_map(|fields| fields.concat()),
    ];
    let more = prop_oneof![
        2 => Just(Vec::new()),
        4 => vec(field(), 1..3).prop_map(|fields| fields.concat()),
        1 => (50_usize..1_100).prop_map(|fields| b"a:b\r\n".repeat(fields)),
    ];
    let changes = prop_oneof![
        2 => Just(Vec::new()),
        1 => vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..4),
    ];
    let end = select(&["\r\n", "\r\n", "\r\n", "\n", ""][..]);
    (line, usual, more, any::<bool>(), end, changes).prop_map(
        |(line, usual, more, first, end, changes)| {
            let fields = if first { [more, usual] } else { [usual, more] };
            let mut head = [line, fields.concat(), end.as_bytes().to_vec()].concat();
            for (at, byte, how) in changes {
                let at = at.index(head.len());
                match how {
                    0 => head[at] = byte,
                    1 => head.insert(at, byte),
                    _ => drop(head.remove(at)),
                }
                if head.is_empty() {
                    break;
                }
            }
            head
        },
    )
}

/// What was answered at a glance must be the same question to the library, without a body or a reason to pass it through.
fn compare(runtime: &tokio::runtime::Runtime, head: &[u8]) -> Result<bool, TestCaseError> {
    let next = b"DELETE /next HTTP/1.1\r\n\r\n";
    let bytes = [head, next].concat();
    let Some((glanced, length)) = glanced(&bytes) else {
        return Ok(false);
    };
    let requests = read(runtime, &bytes);
    prop_assert!(!requests.is_empty(), "the library refuses it");
    let parts = &requests[0];
    prop_assert!(parts.body().is_end_stream());
    let parsed = FilterRequest::parse(parts.method(), parts.uri(), parts.headers(), &HOST);
    prop_assert_eq!(parsed.bypass, None);
    prop_assert!(parsed.probe.is_none());
    let line = RequestLine::of(parts.method(), parts.uri());
    prop_assert_eq!(&records(&parsed.question, line), &glanced);
    if length == head.len() {
        prop_assert_eq!(requests.len(), 2, "the next one begins elsewhere");
        prop_assert_eq!(requests[1].uri().path(), "/next");
    }
    Ok(true)
}

#[test]
fn what_is_answered_at_a_glance_is_the_same_question_to_the_library() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answered = Cell::new(0);
    let cases = Config::default().cases.max(8_000);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&heads(), |head| {
        if compare(&runtime, &head)? {
            answered.set(answered.get() + 1);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(answered.get() > cases / 10, "{} of {cases}", answered.get());
}

/// Every byte at every kind of place of a target, a name and a value.
#[test]
fn no_single_byte_makes_another_question_of_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let usual = b"GET /us/ers?li=1 HTTP/1.1\r\nHost: a\r\nX-Okapi-Tenant: d\r\nX-Okapi-Token: h.p.s\r\nX-Okapi-Module-Permissions: {}\r\n\r\n";
    let mut answered = 0;
    for at in 0..usual.len() {
        for byte in 0..=u8::MAX {
            for insert in [false, true] {
                let mut head = usual.to_vec();
                if insert {
                    head.insert(at, byte);
                } else {
                    head[at] = byte;
                }
                let same = compare(&runtime, &head).unwrap_or_else(|error| {
                    panic!("{byte:#x} at {at}: {error}");
                });
                answered += u32::from(same);
            }
        }
    }
    assert!(answered > 1_000, "{answered}");
}
