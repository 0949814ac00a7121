//! The parsers of keys, events, tokens and decisions, against anything, and against readers that were written apart.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use okapi_auth_sidecar::decision::{Answer, prove};
use okapi_auth_sidecar::headers;
use okapi_auth_sidecar::invalidation::event::{Scope, announced};
use okapi_auth_sidecar::key::{FilterRequest, KeyScope, Question, RequestLine};
use okapi_auth_sidecar::token::Token;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

const FIELDS: [HeaderName; 7] = [
    headers::TENANT,
    headers::URL,
    headers::TOKEN,
    headers::USER_ID,
    headers::PERMISSIONS_REQUIRED,
    headers::PERMISSIONS_DESIRED,
    headers::MODULE_PERMISSIONS,
];
const HOST: HeaderValue = HeaderValue::from_static("mod-authtoken:8081");

/// Bytes that may be a header's value.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(
            prop_oneof![0x20..=0x7e_u8, 0x80..=0xff_u8, Just(b'\t')],
            0..40
        ),
        select(
            &[
                "", "{}", "a", "a,b", "b,a", "auth", "auth /*", "true", "\0\0\0\0"
            ][..]
        )
        .prop_map(|text| text.replace('\0', " ").into_bytes()),
    ]
}

fn name() -> impl Strategy<Value = HeaderName> {
    let more = [
        headers::EXTRA_PERMISSIONS,
        headers::ADDITIONAL_TOKEN,
        headers::FILTER,
        headers::REFRESH_CACHE,
        headers::PROBE,
        http::header::CONTENT_TYPE,
        http::header::CONNECTION,
        http::header::HOST,
        http::header::COOKIE,
    ];
    select(FIELDS.into_iter().chain(more).collect::<Vec<_>>())
}

fn heads() -> impl Strategy<Value = HeaderMap> {
    vec((name(), value()), 0..14).prop_map(|fields| {
        let mut head = HeaderMap::new();
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                head.append(name, value);
            }
        }
        head
    })
}

fn target() -> impl Strategy<Value = Uri> {
    let piece = select(
        &[
            "/",
            "//",
            "users",
            "perms",
            "permissions",
            "_",
            "tenant",
            "token",
            "invalidate",
            "admin",
            "health",
            ".",
            "..",
            "%2e",
            "\\",
            "?",
            "indexField=userId",
            "&",
            "=",
            "22222222-2222-4222-8222-22222222abCD",
            "22222222-2222-4222-8222-22222222abC",
            "ü",
            "%",
            ";",
            ":",
            "@",
            "*",
            "a",
        ][..],
    );
    vec(piece, 0..12).prop_filter_map("no target", |pieces| {
        format!("/{}", pieces.concat()).parse().ok()
    })
}

fn methods() -> impl Strategy<Value = Method> {
    select(vec![
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
    ])
}

fn records(head: &HeaderMap) -> (Vec<u8>, Vec<u8>) {
    let question = Question::of(head);
    let (mut caller, mut demand) = (vec![1, 2, 3], vec![4]);
    question.write_caller(&mut caller);
    let line = RequestLine {
        method: "GET",
        target: "/",
    };
    question.write_demand(&mut demand, KeyScope::Permissions, line);
    (caller, demand)
}

/// What makes two questions the same, said plainly.
fn fields(head: &HeaderMap) -> Vec<Option<&HeaderValue>> {
    FIELDS.iter().map(|name| head.get(name)).collect()
}

/// JSON texts that are nearly what a token's payload or an answer's header holds.
fn json() -> impl Strategy<Value = String> {
    let piece = select(
        &[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"_\"",
            "\"a\"",
            "\"sub\"",
            "\"user_id\"",
            "\"exp\"",
            "\"type\"",
            "\"dummy\"",
            "\"x\\u0041\"",
            "\"\\ud800\"",
            "1",
            "-1",
            "1.5",
            "1e400",
            "18446744073709551616",
            "true",
            "null",
            " ",
            "\"TOKEN\"",
            "{\"a\":\"b\"}",
            "{\"_\":\"TOKEN\"}",
            "[\"p\"]",
            "[]",
        ][..],
    );
    prop_oneof![
        vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
        (vec(("_|a|m-1", "TOKEN|other|\\\\u0054OKEN"), 0..3)).prop_map(|members| {
            let members = members
                .iter()
                .map(|(name, text)| format!("\"{name}\":\"{text}\""));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }),
    ]
}

fn claims(payload: &[u8]) -> Option<okapi_auth_sidecar::token::Claims> {
    let token = format!(
        "eyJhbGciOiJIUzI1NiJ9.{}.c2ln",
        URL_SAFE_NO_PAD.encode(payload)
    );
    Token::new(token.as_bytes()).claims().ok()
}

proptest! {
    #[test]
    fn a_key_is_its_fields_and_nothing_else(first in heads(), second in heads(), at in 0..7_usize, new in value()) {
        let same = fields(&first) == fields(&second);
        prop_assert_eq!(records(&first) == records(&second), same);

        // The same with one field changed, which random heads seldom are.
        let mut changed = first.clone();
        if let Ok(new) = HeaderValue::from_bytes(&new) {
            changed.insert(FIELDS[at].clone(), new);
            prop_assert_eq!(records(&first) == records(&changed), fields(&first) == fields(&changed));
        }
    }

    #[test]
    fn bytes_moved_from_one_field_to_the_next_make_another_key(text in "[a-c,{}]{1,20}", cut in 0..20_usize, other in 0..20_usize) {
        let head = |cut: usize| {
            let (one, two) = text.split_at(cut.min(text.len()));
            let mut head = HeaderMap::new();
            head.insert(headers::PERMISSIONS_REQUIRED, HeaderValue::from_str(one).expect("a test that runs"));
            head.insert(headers::PERMISSIONS_DESIRED, HeaderValue::from_str(two).expect("a test that runs"));
            head.insert(headers::TOKEN, HeaderValue::from_str(two).expect("a test that runs"));
            head.insert(headers::USER_ID, HeaderValue::from_str(one).expect("a test that runs"));
            head
        };
        let same = cut.min(text.len()) == other.min(text.len());
        prop_assert_eq!(records(&head(cut)) == records(&head(other)), same);
    }

    #[test]
    fn what_may_be_answered_from_the_cache_is_an_unambiguous_filter_call(head in heads(), method in methods(), target in target()) {
        let parsed = FilterRequest::parse(&method, &target, &head, &HOST);
        if parsed.bypass.is_none() {
            for name in &FIELDS {
                prop_assert!(head.get_all(name).iter().count() <= 1);
            }
            prop_assert!(head.contains_key(headers::MODULE_PERMISSIONS));
            prop_assert!(!head[headers::TOKEN].is_empty());
            let path = target.path();
            for odd in ["%", "\\", "//", "/."] {
                prop_assert!(!path.contains(odd), "{}", path);
            }
            for own in ["/token", "/refreshtoken", "/_/tenant"] {
                prop_assert!(!path.starts_with(own), "{}", path);
            }
            prop_assert!(path.trim_end_matches('/') != "/admin/health");
            prop_assert!(!head.contains_key(headers::EXTRA_PERMISSIONS) && !head.contains_key(headers::ADDITIONAL_TOKEN));
            prop_assert!(head.get_all(headers::REFRESH_CACHE).iter().all(|value| value != "true"));
        }
    }

    #[test]
    fn an_event_is_a_write_and_its_user_is_in_the_path(method in methods(), target in target()) {
        if let Some(found) = announced(RequestLine::of(&method, &target)) {
            prop_assert!([Method::POST, Method::PUT, Method::DELETE].contains(&method));
            if let Scope::User(user) = found.scope {
                prop_assert_eq!(user.len(), 36);
                prop_assert_eq!(&user, &user.to_lowercase());
                let segments = target.path().split('/').filter(|segment| segment.eq_ignore_ascii_case(&user));
                prop_assert_eq!(segments.count(), 1);
            }
        }
    }

    #[test]
    fn any_bytes_may_be_a_token(bytes in vec(any::<u8>(), 0..200), payload in vec(any::<u8>(), 0..100)) {
        // Neither must break anything; what is no JSON says nothing.
        let _ = Token::new(&bytes).claims();
        if serde_json::from_slice::<Value>(&payload).is_err() {
            prop_assert!(claims(&payload).is_none());
        }
    }

    #[test]
    fn a_payload_says_what_another_reader_finds_in_it(payload in json()) {
        if let Some(found) = claims(payload.as_bytes()) {
            let other: Value = serde_json::from_str(&payload).expect("what was read is JSON");
            prop_assert!(other.is_object());
            prop_assert_eq!(found.exp, other.get("exp").map(|exp| exp.as_u64().expect("an unsigned integer")));
            let user = other.get("user_id").and_then(Value::as_str).filter(|user| !user.is_empty());
            prop_assert_eq!(found.user.as_deref(), user);
        }
    }

    #[test]
    fn what_is_kept_proves_itself_to_another_reader(
        tokens in json(),
        permissions in json(),
        asked in select(vec!["{}", "{\"a\":[]}", "{\"m-1\":[\"p\"]}", "[]", "", "{\"_\":[]}"]),
        status in select(vec![202_u16, 202, 202, 200, 401]),
        body in select(vec!["", "", "", "x"]),
        usual in any::<bool>(),
    ) {
        let mut request = HeaderMap::new();
        request.insert(headers::TOKEN, HeaderValue::from_static("TOKEN"));
        request.insert(headers::MODULE_PERMISSIONS, HeaderValue::from_static(asked));
        let permissions = if usual { "[\"p\"]".to_owned() } else { permissions };
        let mut answer = Answer {
            status: StatusCode::from_u16(status).expect("a test that runs"),
            headers: HeaderMap::new(),
            body: Bytes::from(body),
        };
        answer.headers.insert(headers::MODULE_TOKENS, HeaderValue::from_str(&tokens).expect("a test that runs"));
        answer.headers.insert(headers::PERMISSIONS, HeaderValue::from_str(&permissions).expect("a test that runs"));
        let claims = claims(br#"{"sub":"x"}"#);

        if prove(&Question::of(&request), claims.as_ref(), &answer).is_ok() {
            prop_assert_eq!((status, body), (202, ""));
            let read = |text: &str| serde_json::from_str::<Value>(text).expect("what was proven is JSON");
            let tokens = read(&tokens);
            prop_assert_eq!(&tokens["_"], "TOKEN");
            let names = |object: &Value| object.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
            let others: Vec<_> = names(&tokens).into_iter().filter(|name| name != "_").collect();
            prop_assert_eq!(others, names(&read(asked)));
            prop_assert!(read(&permissions).as_array().expect("an array").iter().all(Value::is_string));
        }
    }
}
