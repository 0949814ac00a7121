//! The key parser beside a reader that was written from the design's table alone.
//!
//! Input: `METHOD target`, headers; a blank line; the headers in which a second request differs; a blank line; its
//! `METHOD target`.
#![no_main]

use http::{HeaderMap, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use okapi_auth_sidecar::key::{Bypass, FilterRequest, KeyScope, Question, RequestLine};
use okapi_auth_sidecar_fuzz::{HOP_BY_HOP, fields, head, parts, values};

type Fields = Vec<(String, Vec<u8>)>;

const CALLER: [&str; 4] = [
    "x-okapi-tenant",
    "x-okapi-url",
    "x-okapi-token",
    "x-okapi-user-id",
];
const DEMAND: [&str; 3] = [
    "x-okapi-permissions-required",
    "x-okapi-permissions-desired",
    "x-okapi-module-permissions",
];
const HOST: HeaderValue = HeaderValue::from_static("mod-authtoken:8081");

/// A request, once as the service gets it and once as a list.
struct Request {
    method: Method,
    target: Uri,
    fields: Fields,
    head: HeaderMap,
}

impl Request {
    fn new(line: &[u8], fields: Fields) -> Option<Self> {
        let space = line.iter().position(|byte| *byte == b' ')?;
        Some(Self {
            method: Method::from_bytes(&line[..space]).ok()?,
            target: Uri::try_from(&line[space + 1..]).ok()?,
            head: head(&fields)?,
            fields,
        })
    }

    fn parse(&self) -> FilterRequest<'_> {
        FilterRequest::parse(&self.method, &self.target, &self.head, &HOST)
    }

    fn first(&self, name: &str) -> Option<&[u8]> {
        values(&self.fields, name).first().copied()
    }

    fn firsts<const N: usize>(&self, names: [&str; N]) -> [Option<&[u8]>; N] {
        names.map(|name| self.first(name))
    }

    fn counts(&self, name: &str) -> usize {
        values(&self.fields, name).len()
    }

    /// Bytes of the headers that the auth module counts.
    fn bytes(&self, counted: impl Fn(&str) -> bool) -> usize {
        let counted = self.fields.iter().filter(|(name, _)| counted(name));
        counted
            .map(|(name, value)| name.len() + value.len() + 2)
            .sum()
    }

    /// Every reason of the design's table (invariant 2) that applies.
    fn reasons(&self) -> Vec<Bypass> {
        let stays = |name: &str| {
            HOP_BY_HOP.contains(&name) || ["expect", "host", "content-length"].contains(&name)
        };
        let path = self.target.path();
        let phase = values(&self.fields, "x-okapi-filter");
        let line = self
            .target
            .path_and_query()
            .map_or("", |target| target.as_str());
        // A stand-in for a character that the HTTP library refuses is three bytes for one.
        let line = String::from_utf8_lossy(line.as_bytes());
        let refused = line
            .chars()
            .filter(|char| ('\u{f700}'..='\u{f77f}').contains(char))
            .count();
        let line =
            self.method.as_str().len() + line.len() - 2 * refused + " ".len() + " HTTP/1.1".len();
        let outgoing = self.bytes(|name| !stays(name)) + "host".len() + HOST.len() + 2;
        let form = |value: &&[u8]| {
            let value = value.to_ascii_lowercase();
            value.starts_with(b"multipart/")
                || value.starts_with(b"application/x-www-form-urlencoded")
        };
        let table = [
            (
                Bypass::NoModulePermissions,
                self.counts("x-okapi-module-permissions") == 0,
            ),
            (
                Bypass::FilterPhase,
                match phase[..] {
                    [] => false,
                    [one] => one != b"auth" && !one.starts_with(b"auth "),
                    _ => true,
                },
            ),
            (
                Bypass::OwnRoute,
                ["/token", "/refreshtoken", "/_/tenant"]
                    .iter()
                    .any(|own| path.starts_with(own)),
            ),
            (
                Bypass::Path,
                !self.target.to_string().starts_with('/')
                    || ["%", "\\", "//", "/."].iter().any(|odd| path.contains(odd))
                    || !path.is_ascii(),
            ),
            (
                Bypass::Health,
                path == "/admin/health" || path == "/admin/health/",
            ),
            (Bypass::LineTooLong, line > 4_096),
            (
                Bypass::HeadTooLarge,
                outgoing > 8_192 || self.bytes(|_| true) > 8_192,
            ),
            (
                Bypass::DuplicateHeader,
                CALLER
                    .iter()
                    .chain(&DEMAND)
                    .any(|name| self.counts(name) > 1),
            ),
            (
                Bypass::NoToken,
                self.first("x-okapi-token").is_none_or(<[u8]>::is_empty),
            ),
            (
                Bypass::ExtraPermissions,
                self.counts("x-okapi-extra-permissions") > 0,
            ),
            (
                Bypass::AdditionalToken,
                self.counts("x-okapi-additional-token") > 0,
            ),
            (
                Bypass::RefreshHeader,
                values(&self.fields, "authtoken-refresh-cache").contains(&&b"true"[..]),
            ),
            (
                Bypass::ContentType,
                values(&self.fields, "content-type").iter().any(form),
            ),
        ];
        table
            .iter()
            .filter(|(_, applies)| *applies)
            .map(|(reason, _)| *reason)
            .collect()
    }
}

/// Whatever a field of a question is held as.
fn bytes<T: AsRef<[u8]> + ?Sized>(field: Option<&T>) -> Option<&[u8]> {
    field.map(AsRef::as_ref)
}

fn caller(question: &Question<'_>) -> Vec<u8> {
    let mut record = vec![7];
    question.write_caller(&mut record);
    record
}

fn demand(request: &Request, question: &Question<'_>, scope: KeyScope) -> Vec<u8> {
    let mut record = vec![7; 3];
    let line = RequestLine::of(&request.method, &request.target);
    question.write_demand(&mut record, scope, line);
    record
}

fn check(request: &Request) {
    let parsed = request.parse();
    let question = &parsed.question;
    let [tenant, url, token, user] = request.firsts(CALLER);
    assert_eq!(bytes(question.tenant), tenant);
    assert_eq!(bytes(question.url), url);
    assert_eq!(bytes(question.token), token);
    assert_eq!(bytes(question.user_id), user);
    let [required, desired, permissions] = request.firsts(DEMAND);
    assert_eq!(bytes(question.required), required);
    assert_eq!(bytes(question.desired), desired);
    assert_eq!(bytes(question.module_permissions), permissions);

    let reasons = request.reasons();
    match parsed.bypass {
        Some(reason) => assert!(
            reasons.contains(&reason),
            "{reason:?}, not one of {reasons:?}"
        ),
        None => assert_eq!(reasons, [], "a reason to ask"),
    }
    let refresh = values(&request.fields, "authtoken-refresh-cache").contains(&&b"true"[..]);
    assert_eq!(parsed.refresh_header, refresh);
}

/// Requests are the same to the cache exactly if what the answer depends on is the same.
fn compare(one: &Request, two: &Request) {
    let (first, second) = (one.parse().question, two.parse().question);
    let same_caller = one.firsts(CALLER) == two.firsts(CALLER);
    assert_eq!(caller(&first) == caller(&second), same_caller);

    let same_demand = one.firsts(DEMAND) == two.firsts(DEMAND);
    let scope = KeyScope::Permissions;
    assert_eq!(
        demand(one, &first, scope) == demand(two, &second, scope),
        same_demand
    );

    let target = |request: &Request| {
        RequestLine::of(&request.method, &request.target)
            .target
            .to_owned()
    };
    let same_line = one.method == two.method && target(one) == target(two);
    let scope = KeyScope::Request;
    assert_eq!(
        demand(one, &first, scope) == demand(two, &second, scope),
        same_demand && same_line
    );
}

fuzz_target!(|input: &[u8]| {
    let [first, second, last] = parts(input);
    let Some((line, lines)) = first.split_first() else {
        return;
    };
    let Some(one) = Request::new(line, fields(lines)) else {
        return;
    };
    check(&one);

    let changes = fields(&second);
    let mut changed = one.fields.clone();
    changed.retain(|(name, _)| changes.iter().all(|(other, _)| other != name));
    changed.extend(changes);
    let line = last.first().filter(|line| !line.is_empty()).unwrap_or(line);
    if let Some(two) = Request::new(line, changed) {
        check(&two);
        compare(&one, &two);
    }
});
