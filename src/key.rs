//! Which parts of a filter request can change the answer, hence when two requests are the same.
//!
//! Pure: no clock, no I/O, no log. A field missing here hands one user another's yes; a reason missing in [`Bypass`]
//! answers from memory what only the auth module can answer. Method and path are left out of the key on purpose:
//! off the pass-through paths mod-authtoken's `FilterApi` reads neither (`CACHE_KEY_SCOPE=request` adds them for
//! auth modules that do).

use crate::headers;
use crate::target::wire_length;
use crate::token::{Claims, Token};
use crate::wire;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri};

/// The longest request line mod-authtoken accepts, in bytes (Vert.x `maxInitialLineLength`).
pub const MAX_LINE: usize = 4096;
/// The largest header block it accepts: names, values and two bytes each (Vert.x `maxHeaderSize`).
pub const MAX_HEAD: usize = 8192;

/// Why a request is passed through: alone, streamed and unstored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// No `X-Okapi-Module-Permissions`: not a filter call.
    NoModulePermissions,
    /// `X-Okapi-Filter` is neither absent nor `auth` nor starts with `auth `, or is given twice.
    FilterPhase,
    /// The path starts with `/token`, `/refreshtoken` or `/_/tenant`: the auth module's own routes.
    OwnRoute,
    /// The path is not plain: the auth module normalises paths for its health route.
    Path,
    /// `/admin/health`, which says 200 to anybody.
    Health,
    /// A request line over [`MAX_LINE`]: the auth module's 414.
    LineTooLong,
    /// A head over [`MAX_HEAD`]: the auth module's 431.
    HeadTooLarge,
    /// A header that the answer depends on is given twice.
    DuplicateHeader,
    /// No token, or an empty one: the answer is made anew for each such request.
    NoToken,
    /// `X-Okapi-Extra-Permissions`: changes the token that comes back.
    ExtraPermissions,
    /// `X-Okapi-Additional-Token`: meant for other auth modules.
    AdditionalToken,
    /// `Authtoken-Refresh-Cache: true`: the caller wants a fresh answer.
    RefreshHeader,
    /// A form or multipart `Content-Type`: the auth module's body handler looks at it.
    ContentType,
    /// The request has a body.
    Body,
    /// `CACHE_TTL` is `0s`.
    TtlZero,
}

impl Bypass {
    /// Every reason, for metrics that are there from the start.
    pub const ALL: [Self; 15] = [
        Self::NoModulePermissions,
        Self::FilterPhase,
        Self::OwnRoute,
        Self::Path,
        Self::Health,
        Self::LineTooLong,
        Self::HeadTooLarge,
        Self::DuplicateHeader,
        Self::NoToken,
        Self::ExtraPermissions,
        Self::AdditionalToken,
        Self::RefreshHeader,
        Self::ContentType,
        Self::Body,
        Self::TtlZero,
    ];

    /// The reason as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoModulePermissions => "no_module_permissions",
            Self::FilterPhase => "filter_phase",
            Self::OwnRoute => "own_route",
            Self::Path => "path",
            Self::Health => "health",
            Self::LineTooLong => "line_too_long",
            Self::HeadTooLarge => "head_too_large",
            Self::DuplicateHeader => "duplicate_header",
            Self::NoToken => "no_token",
            Self::ExtraPermissions => "extra_permissions",
            Self::AdditionalToken => "additional_token",
            Self::RefreshHeader => "refresh_header",
            Self::ContentType => "content_type",
            Self::Body => "body",
            Self::TtlZero => "ttl_zero",
        }
    }

    /// Whether a `401` of the auth module still says of the caller's token what it would say on an ordinary path.
    pub fn judges_the_token(self) -> bool {
        match self {
            Self::Path
            | Self::ExtraPermissions
            | Self::AdditionalToken
            | Self::RefreshHeader
            | Self::ContentType
            | Self::Body
            | Self::TtlZero => true,
            Self::NoModulePermissions
            | Self::FilterPhase
            | Self::OwnRoute
            | Self::Health
            | Self::LineTooLong
            | Self::HeadTooLarge
            | Self::DuplicateHeader
            | Self::NoToken => false,
        }
    }

    /// Whether the auth module still answers the very question that the key names, so that its no is a no to the key.
    pub fn asks_the_same(self) -> bool {
        match self {
            Self::RefreshHeader | Self::Body | Self::TtlZero => true,
            Self::NoModulePermissions
            | Self::FilterPhase
            | Self::OwnRoute
            | Self::Path
            | Self::Health
            | Self::LineTooLong
            | Self::HeadTooLarge
            | Self::DuplicateHeader
            | Self::NoToken
            | Self::ExtraPermissions
            | Self::AdditionalToken
            | Self::ContentType => false,
        }
    }
}

/// Whether method and path are part of the key (`AUTH_SIDECAR_CACHE_KEY_SCOPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// The permissions asked for: one decision serves all paths.
    Permissions,
    /// Method and target as well: for auth modules that look at them.
    Request,
}

/// A request line's method and target (path and query), as the HTTP library would hold them.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query; empty where there is neither.
    pub target: &'a str,
}

impl<'a> RequestLine<'a> {
    /// That of a request which the library holds.
    pub fn of(method: &'a Method, target: &'a Uri) -> Self {
        Self {
            method: method.as_str(),
            target: target.path_and_query().map_or("", PathAndQuery::as_str),
        }
    }

    /// That of a head which the library has not seen.
    pub fn of_head(head: &wire::Head<'_, 'a>) -> Self {
        Self {
            method: head.method,
            target: head.target,
        }
    }

    /// The path, without the query.
    pub fn path(&self) -> &'a str {
        self.split().0
    }

    /// Path and query.
    pub fn split(&self) -> (&'a str, Option<&'a str>) {
        match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target, None),
        }
    }
}

/// The inputs of the auth module's answer, as the request gave them: absent and empty are different.
#[derive(Clone, Copy, Default)]
pub struct Question<'a> {
    /// `X-Okapi-Tenant`.
    pub tenant: Option<&'a [u8]>,
    /// `X-Okapi-Url`.
    pub url: Option<&'a [u8]>,
    /// `X-Okapi-Token`.
    pub token: Option<&'a [u8]>,
    /// `X-Okapi-User-Id`.
    pub user_id: Option<&'a [u8]>,
    /// `X-Okapi-Permissions-Required`.
    pub required: Option<&'a [u8]>,
    /// `X-Okapi-Permissions-Desired`.
    pub desired: Option<&'a [u8]>,
    /// `X-Okapi-Module-Permissions`.
    pub module_permissions: Option<&'a [u8]>,
}

impl std::fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Question")
            .field("tenant", &self.tenant)
            .field("token", &self.token.map(|_| "…"))
            .finish_non_exhaustive()
    }
}

impl<'a> Question<'a> {
    /// The question in a head that was found to have each of its headers at most once.
    pub fn of(headers: &'a HeaderMap) -> Self {
        let get = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            tenant: get(headers::TENANT),
            url: get(headers::URL),
            token: get(headers::TOKEN),
            user_id: get(headers::USER_ID),
            required: get(headers::PERMISSIONS_REQUIRED),
            desired: get(headers::PERMISSIONS_DESIRED),
            module_permissions: get(headers::MODULE_PERMISSIONS),
        }
    }

    /// The effective user, lower case: the header's, else the token's; none where there is neither.
    pub fn user(&self, claims: Option<&Claims>) -> Option<Box<str>> {
        let header = self
            .user_id
            .map(String::from_utf8_lossy)
            .filter(|user| !user.is_empty());
        match header {
            Some(user) => Some(user.to_lowercase().into_boxed_str()),
            None => claims?
                .user
                .as_deref()
                .map(|user| user.to_lowercase().into_boxed_str()),
        }
    }

    /// The token, if there is one that is not empty.
    pub fn token(&self) -> Option<Token<'a>> {
        self.token.filter(|bytes| !bytes.is_empty()).map(Token::new)
    }

    /// The tenant's bytes; an absent one counts as empty where only its scope matters.
    pub fn tenant(&self) -> &'a [u8] {
        self.tenant.unwrap_or_default()
    }

    /// Writes the caller's record: who asks. Each field is length-prefixed, so no two records share their bytes.
    pub fn write_caller(&self, record: &mut Vec<u8>) {
        record.clear();
        for field in [self.tenant, self.url, self.token, self.user_id] {
            write_field(record, field);
        }
    }

    /// Writes the demand's record: what is asked. With [`KeyScope::Request`], the request line as well.
    pub fn write_demand(&self, record: &mut Vec<u8>, scope: KeyScope, line: RequestLine<'_>) {
        record.clear();
        for field in [self.required, self.desired, self.module_permissions] {
            write_field(record, field);
        }
        match scope {
            KeyScope::Permissions => {}
            KeyScope::Request => {
                write_field(record, Some(line.method.as_bytes()));
                write_field(record, Some(line.target.as_bytes()));
            }
        }
    }
}

/// A length no field can have: header values are bounded far below it.
const ABSENT: u32 = u32::MAX;

fn write_field(record: &mut Vec<u8>, field: Option<&[u8]>) {
    let length = field.map_or(ABSENT, |bytes| {
        u32::try_from(bytes.len()).unwrap_or(ABSENT - 1)
    });
    record.extend_from_slice(&length.to_le_bytes());
    record.extend_from_slice(field.unwrap_or_default());
}

/// One request as the filter sees it.
#[derive(Clone, Copy)]
pub struct FilterRequest<'a> {
    /// What the answer depends on.
    pub question: Question<'a>,
    /// Why it must not be answered from the cache; none if it may.
    pub bypass: Option<Bypass>,
    /// Header bytes as the auth module will count them.
    pub head: usize,
    /// Whether `Authtoken-Refresh-Cache: true` came from outside, whatever else speaks for passing through.
    pub refresh_header: bool,
    /// A sidecar's question whether its upstream address leads here.
    pub probe: Option<&'a [u8]>,
    /// The head itself.
    pub headers: &'a HeaderMap,
}

impl std::fmt::Debug for FilterRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterRequest")
            .field("question", &self.question)
            .field("bypass", &self.bypass)
            .finish_non_exhaustive()
    }
}

impl<'a> FilterRequest<'a> {
    /// Reads a request's head. `host` is upstream's `Host`, which replaces the caller's and so counts in its place.
    /// Whether there is a body is the caller's to find out.
    pub fn parse(
        method: &Method,
        target: &Uri,
        headers: &'a HeaderMap,
        host: &HeaderValue,
    ) -> Self {
        let mut seen = Seen::default();
        for (name, value) in headers {
            seen.take(name.as_str(), name.as_str().len(), value.as_bytes());
        }
        let path = Path {
            text: target.path(),
            plain: target.scheme().is_none()
                && target.authority().is_none()
                && plain(target.path()),
            line: line_length(method, target),
        };
        Self {
            question: seen.question,
            bypass: seen.bypass(path, host),
            head: seen.head(host),
            refresh_header: seen.refresh,
            probe: seen.probe.filter(|_| seen.comes_from_a_sidecar()),
            headers,
        }
    }

    /// `X-Okapi-Request-Id`.
    pub fn request_id(&self) -> Option<&'a [u8]> {
        self.headers
            .get(headers::REQUEST_ID)
            .map(HeaderValue::as_bytes)
    }
}

/// The question of a head that the HTTP library has not seen, if nothing at all speaks against answering it from the cache.
/// The body and what concerns the connection are the caller's to look at.
pub fn at_a_glance<'a>(head: &wire::Head<'_, 'a>, host: &HeaderValue) -> Option<Question<'a>> {
    // Nothing that the library would refuse, cut off or hold otherwise: for those it is asked.
    if !METHODS.contains(&head.method) || !head.target.bytes().all(in_every_target) {
        return None;
    }
    let line = RequestLine::of_head(head);
    let mut seen = Seen::default();
    let mut room = [0; LONGEST_NAME];
    for field in head.fields {
        seen.take(
            lower_case(field.name, &mut room),
            field.name.len(),
            field.value,
        );
    }
    let path = Path {
        text: line.path(),
        plain: plain(line.path()),
        line: line.method.len() + 1 + line.target.len() + VERSION,
    };
    (seen.bypass(path, host).is_none() && seen.probe.is_none()).then_some(seen.question)
}

/// The methods of Okapi's routes.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];

/// The longest name that [`Seen`] or [`headers::stays_here`] knows has fewer bytes.
const LONGEST_NAME: usize = 32;

/// The name in lower case; none for one that nobody here knows.
fn lower_case<'a>(name: &str, room: &'a mut [u8; LONGEST_NAME]) -> &'a str {
    let Some(lower) = room.get_mut(..name.len()) else {
        return "";
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).unwrap_or_default()
}

/// Characters that a target may have anywhere (RFC 3986, 3.3 and 3.4).
fn in_every_target(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/?-._~!$&'()*+,;=:@%".contains(&byte)
}

/// What decides of a request line.
#[derive(Clone, Copy)]
struct Path<'a> {
    text: &'a str,
    /// Whether it means what it says to every router.
    plain: bool,
    /// Bytes of the request line.
    line: usize,
}

/// What one pass over the headers finds.
#[derive(Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one header seen or not"
)]
struct Seen<'a> {
    question: Question<'a>,
    filter: Option<&'a [u8]>,
    twice: bool,
    filter_twice: bool,
    additional_token: bool,
    extra_permissions: bool,
    refresh: bool,
    probe: Option<&'a [u8]>,
    form: bool,
    incoming: usize,
    outgoing: usize,
}

impl<'a> Seen<'a> {
    /// `name` in lower case, and how long it is where that was not to be had.
    fn take(&mut self, name: &str, length: usize, value: &'a [u8]) {
        let size = length + value.len() + 2;
        self.incoming += size;
        if !headers::stays_here(name) {
            self.outgoing += size;
        }
        let Some(okapi) = name.strip_prefix("x-okapi-") else {
            self.take_other(name, value);
            return;
        };
        let question = &mut self.question;
        let field = match okapi {
            "tenant" => &mut question.tenant,
            "url" => &mut question.url,
            "token" => &mut question.token,
            "user-id" => &mut question.user_id,
            "permissions-required" => &mut question.required,
            "permissions-desired" => &mut question.desired,
            "module-permissions" => &mut question.module_permissions,
            "filter" => {
                self.filter_twice |= self.filter.replace(value).is_some();
                return;
            }
            "additional-token" => {
                self.additional_token = true;
                return;
            }
            "extra-permissions" => {
                self.extra_permissions = true;
                return;
            }
            _ => return,
        };
        // The auth module takes the first of two, so that is whose question it would be.
        if field.is_some() {
            self.twice = true;
        } else {
            *field = Some(value);
        }
    }

    fn take_other(&mut self, name: &str, value: &'a [u8]) {
        if name == headers::REFRESH_CACHE.as_str() {
            self.refresh |= value == b"true";
        } else if name == CONTENT_TYPE.as_str() {
            self.form |= starts_with_ignore_case(value, b"multipart/")
                || starts_with_ignore_case(value, b"application/x-www-form-urlencoded");
        } else if name == headers::PROBE.as_str() {
            self.probe = Some(value);
        }
    }

    /// A sidecar asks upstream's health with nothing of Okapi's; an end user's header of that name comes through Okapi,
    /// which adds its own, and must raise no alarm.
    fn comes_from_a_sidecar(&self) -> bool {
        self.question.module_permissions.is_none() && self.question.tenant.is_none()
    }

    /// Bytes of the head, as it came or as it would go up, whichever is more.
    fn head(&self, host: &HeaderValue) -> usize {
        let outgoing = self.outgoing + HOST.as_str().len() + host.len() + 2;
        outgoing.max(self.incoming)
    }

    /// The table of design invariant 2, most telling reason first.
    fn bypass(&self, path: Path<'_>, host: &HeaderValue) -> Option<Bypass> {
        let filter_phase = match self.filter {
            None | Some(b"auth") => true,
            Some(other) => other.starts_with(b"auth "),
        };
        let rules = [
            (
                self.question.module_permissions.is_none(),
                Bypass::NoModulePermissions,
            ),
            (!filter_phase || self.filter_twice, Bypass::FilterPhase),
            (own_route(path.text), Bypass::OwnRoute),
            (!path.plain, Bypass::Path),
            (health(path.text), Bypass::Health),
            (path.line > MAX_LINE, Bypass::LineTooLong),
            (self.head(host) > MAX_HEAD, Bypass::HeadTooLarge),
            (self.twice, Bypass::DuplicateHeader),
            (self.question.token().is_none(), Bypass::NoToken),
            (self.extra_permissions, Bypass::ExtraPermissions),
            (self.additional_token, Bypass::AdditionalToken),
            (self.refresh, Bypass::RefreshHeader),
            (self.form, Bypass::ContentType),
        ];
        rules
            .into_iter()
            .find_map(|(applies, reason)| applies.then_some(reason))
    }
}

/// Whether the path belongs to the auth module's own routes: plain string prefixes, as its `Route` tests them.
pub fn own_route(path: &str) -> bool {
    path.starts_with("/token") || path.starts_with("/refreshtoken") || path.starts_with("/_/tenant")
}

/// Whether the path means what it says to every router: nothing to decode, to resolve or to normalise, and all ASCII
/// (what the HTTP library cannot hold travels as something else meanwhile, see [`crate::target`]).
fn plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    path.starts_with('/')
        && !bytes
            .iter()
            .any(|byte| matches!(byte, b'%' | b'\\') || !byte.is_ascii())
        && !bytes
            .windows(2)
            .any(|pair| pair[0] == b'/' && matches!(pair[1], b'/' | b'.'))
}

fn health(path: &str) -> bool {
    matches!(path, "/admin/health" | "/admin/health/")
}

/// The request line without its line end: method, target, `HTTP/1.1` and two spaces.
fn line_length(method: &Method, target: &Uri) -> usize {
    let target = target.path_and_query().map_or(0, wire_length);
    method.as_str().len() + 1 + target + VERSION
}

/// Bytes behind the target in a request line.
const VERSION: usize = " HTTP/1.1".len();

fn starts_with_ignore_case(value: &[u8], prefix: &[u8]) -> bool {
    value
        .get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use proptest::prelude::*;

    const HOST_VALUE: HeaderValue = HeaderValue::from_static("mod-authtoken:8081");

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        map
    }

    const USUAL: [(&str, &str); 5] = [
        ("x-okapi-tenant", "t1"),
        ("x-okapi-url", "http://okapi:9130"),
        ("x-okapi-token", "h.p.s"),
        ("x-okapi-permissions-required", "a"),
        ("x-okapi-module-permissions", "{}"),
    ];

    fn bypass(method: &str, target: &str, more: &[(&str, &str)]) -> Option<Bypass> {
        let map = headers(&[&USUAL[..], more].concat());
        let target: Uri = target.parse().unwrap();
        FilterRequest::parse(&method.parse().unwrap(), &target, &map, &HOST_VALUE).bypass
    }

    #[test]
    fn an_ordinary_filter_call_may_be_answered_from_the_cache() {
        assert_eq!(bypass("GET", "/users?limit=1", &[]), None);
        assert_eq!(
            bypass("POST", "/x/token?query=x==%221%22&p=..//", &[]),
            None
        );
        assert_eq!(
            bypass("GET", "/a.b/c./d?x=/./y", &[("x-okapi-filter", "auth")]),
            None
        );
        assert_eq!(
            bypass("GET", "/users", &[("x-okapi-filter", "auth /*")]),
            None
        );
        assert_eq!(
            bypass("GET", "/users", &[("authtoken-refresh-cache", "TRUE")]),
            None
        );
        assert_eq!(
            bypass("GET", "/users", &[("content-type", "application/json")]),
            None
        );
    }

    #[test]
    fn each_reason_to_pass_through_is_found() {
        let cases = [
            (
                Bypass::FilterPhase,
                "/users",
                vec![("x-okapi-filter", "authx")],
            ),
            (
                Bypass::FilterPhase,
                "/users",
                vec![("x-okapi-filter", "pre /*")],
            ),
            (
                Bypass::FilterPhase,
                "/users",
                vec![("x-okapi-filter", "auth"), ("x-okapi-filter", "auth")],
            ),
            (Bypass::OwnRoute, "/tokenizer", vec![]),
            (Bypass::OwnRoute, "/refreshtoken/x", vec![]),
            (Bypass::OwnRoute, "/_/tenantpermissions", vec![]),
            (Bypass::Path, "/%74oken", vec![]),
            (Bypass::Path, "//token", vec![]),
            (Bypass::Path, "/x/../y", vec![]),
            (Bypass::Path, "/x/.y", vec![]),
            (Bypass::Path, "/x\\y", vec![]),
            (Bypass::Path, "http://authtoken/x", vec![]),
            (Bypass::Path, "*", vec![]),
            (Bypass::Health, "/admin/health", vec![]),
            (Bypass::Health, "/admin/health/?x=1", vec![]),
            (
                Bypass::DuplicateHeader,
                "/users",
                vec![("x-okapi-tenant", "t2")],
            ),
            (
                Bypass::DuplicateHeader,
                "/users",
                vec![("x-okapi-permissions-required", "a")],
            ),
            (
                Bypass::ExtraPermissions,
                "/users",
                vec![("x-okapi-extra-permissions", "[\"a\"]")],
            ),
            (
                Bypass::AdditionalToken,
                "/users",
                vec![("x-okapi-additional-token", "x")],
            ),
            (
                Bypass::RefreshHeader,
                "/users",
                vec![("authtoken-refresh-cache", "true")],
            ),
            (
                Bypass::ContentType,
                "/users",
                vec![("content-type", "Multipart/form-data; boundary=x")],
            ),
            (
                Bypass::ContentType,
                "/users",
                vec![("content-type", "application/x-www-form-urlencoded")],
            ),
        ];
        for (reason, target, more) in cases {
            assert_eq!(
                bypass("GET", target, &more),
                Some(reason),
                "{target} {more:?}"
            );
        }
    }

    #[test]
    fn no_token_and_no_module_permissions_are_passed_through() {
        let get = Method::GET;
        let target: Uri = "/users".parse().unwrap();
        for (value, reason) in [(Some(""), Bypass::NoToken), (None, Bypass::NoToken)] {
            let mut map = headers(&USUAL);
            map.remove("x-okapi-token");
            if let Some(value) = value {
                map.insert("x-okapi-token", value.parse().unwrap());
            }
            assert_eq!(
                FilterRequest::parse(&get, &target, &map, &HOST_VALUE).bypass,
                Some(reason)
            );
        }
        let mut map = headers(&USUAL);
        map.remove("x-okapi-module-permissions");
        assert_eq!(
            FilterRequest::parse(&get, &target, &map, &HOST_VALUE).bypass,
            Some(Bypass::NoModulePermissions)
        );
    }

    #[test]
    fn an_end_user_s_probe_header_is_a_header_like_any_other() {
        let target: Uri = "/admin/health".parse().unwrap();
        let probe = [("x-auth-sidecar-probe", "1")];
        let probed = |map: &HeaderMap| {
            FilterRequest::parse(&Method::GET, &target, map, &HOST_VALUE)
                .probe
                .is_some()
        };

        assert!(probed(&headers(&probe)));
        assert!(!probed(&headers(&[&USUAL[..], &probe].concat())));
    }

    #[test]
    fn the_limits_of_the_auth_module_are_met_to_the_byte() {
        let line = |length: usize| format!("/{}", "x".repeat(length - "GET / HTTP/1.1".len()));
        assert_eq!(bypass("GET", &line(MAX_LINE), &[]), None);
        assert_eq!(
            bypass("GET", &line(MAX_LINE + 1), &[]),
            Some(Bypass::LineTooLong)
        );

        let target: Uri = "/users".parse().unwrap();
        let used = FilterRequest::parse(&Method::GET, &target, &headers(&USUAL), &HOST_VALUE).head;
        let filler = "y".repeat(MAX_HEAD - used - "accept".len() - 2);
        assert_eq!(bypass("GET", "/users", &[("accept", &filler)]), None);
        assert_eq!(
            bypass("GET", "/users", &[("accept", &format!("{filler}y"))]),
            Some(Bypass::HeadTooLarge)
        );
    }

    #[test]
    fn what_stays_on_the_connection_does_not_count_for_the_auth_module() {
        let target: Uri = "/users".parse().unwrap();
        let mut map = headers(&USUAL);
        let plain = FilterRequest::parse(&Method::GET, &target, &map, &HOST_VALUE).head;
        map.insert("host", HeaderValue::from_static("a"));

        let with_host = FilterRequest::parse(&Method::GET, &target, &map, &HOST_VALUE).head;

        assert_eq!(plain, with_host);
    }

    type Fields = [Option<Vec<u8>>; 9];

    fn records(fields: &Fields, scope: KeyScope) -> (Vec<u8>, Vec<u8>) {
        let value = |n: usize| fields[n].as_deref();
        let question = Question {
            tenant: value(0),
            url: value(1),
            token: value(2),
            user_id: value(3),
            required: value(4),
            desired: value(5),
            module_permissions: value(6),
        };
        let method = if fields[7].is_some() {
            Method::GET
        } else {
            Method::PUT
        };
        let target: Uri = format!("/{}", fields[8].as_ref().map_or(0, Vec::len))
            .parse()
            .unwrap();
        let (mut caller, mut demand) = (Vec::new(), Vec::new());
        question.write_caller(&mut caller);
        question.write_demand(&mut demand, scope, RequestLine::of(&method, &target));
        (caller, demand)
    }

    #[test]
    fn changing_any_one_field_changes_the_key() {
        let base: Fields = std::array::from_fn(|n| Some(vec![b'a' + u8::try_from(n).unwrap()]));
        for n in 0..9 {
            for other in [None, Some(Vec::new()), Some(b"zz".to_vec())] {
                let mut changed = base.clone();
                changed[n] = other;
                let scope = if n < 7 {
                    KeyScope::Permissions
                } else {
                    KeyScope::Request
                };
                if n < 7
                    || records(&changed, KeyScope::Request) != records(&base, KeyScope::Request)
                {
                    assert_ne!(records(&changed, scope), records(&base, scope), "field {n}");
                }
            }
        }
    }

    #[test]
    fn method_and_path_are_no_part_of_the_usual_key() {
        let base: Fields = std::array::from_fn(|_| Some(b"v".to_vec()));
        let mut other = base.clone();
        other[7] = None;
        other[8] = Some(b"longer".to_vec());

        assert_eq!(
            records(&base, KeyScope::Permissions),
            records(&other, KeyScope::Permissions)
        );
        assert_ne!(
            records(&base, KeyScope::Request),
            records(&other, KeyScope::Request)
        );
    }

    fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
        // Few bytes and short values, so that equal ones and shifted boundaries come up often.
        prop::option::of(prop::collection::vec(
            prop::sample::select(vec![b'a', b',', b' ', 0xe9]),
            0..4,
        ))
    }

    proptest! {
        #[test]
        fn keys_are_equal_only_if_all_fields_are_equal(
            one in prop::array::uniform9(field()),
            two in prop::array::uniform9(field()),
        ) {
            let equal = one[..7] == two[..7];

            prop_assert_eq!(records(&one, KeyScope::Permissions) == records(&two, KeyScope::Permissions), equal);
        }
    }
}
