//! Requests as Okapi sends them to its auth module.
//!
//! A filter call carries the client's own headers first, then those that Okapi sets, in Okapi's order: 14 to 17 in all.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::headers::Headers;
use super::super::raw::Request;

/// Numbers the requests, so that no two carry the same id.
static NUMBER: AtomicU32 = AtomicU32::new(1);

/// Builds a filter call (in its plainest form, what a browser's `GET` becomes).
#[derive(Clone, Debug)]
pub struct FilterCall {
    method: String,
    target: String,
    client: Headers,
    tenant: Option<String>,
    user_id: Option<String>,
    url: Option<String>,
    token: Option<String>,
    required: Option<String>,
    desired: Option<String>,
    module_permissions: Option<String>,
    last: Headers,
    without: Vec<String>,
}

impl FilterCall {
    /// Any method. For tenant `diku` and without a token, until told otherwise.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            client: [
                ("User-Agent", "Mozilla/5.0"),
                ("Accept", "application/json, text/plain"),
                ("Accept-Encoding", "gzip"),
            ]
            .into_iter()
            .collect(),
            tenant: Some("diku".to_owned()),
            user_id: None,
            url: Some("http://127.0.0.1:9130".to_owned()),
            token: None,
            required: None,
            desired: None,
            module_permissions: Some("{}".to_owned()),
            last: Headers::new(),
            without: Vec::new(),
        }
    }

    /// `GET`.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// The same call for another target.
    #[must_use]
    pub fn to(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// `X-Okapi-Tenant`.
    #[must_use]
    pub fn tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// `X-Okapi-Token`.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// `X-Okapi-User-Id`, as a calling module passes it on.
    #[must_use]
    pub fn user_id(mut self, id: &str) -> Self {
        self.user_id = Some(id.to_owned());
        self
    }

    /// `X-Okapi-Url`.
    #[must_use]
    pub fn url(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// `X-Okapi-Permissions-Required`, comma-joined as Okapi does.
    #[must_use]
    pub fn required(mut self, permissions: &[&str]) -> Self {
        self.required = Some(permissions.join(","));
        self
    }

    /// `X-Okapi-Permissions-Desired`.
    #[must_use]
    pub fn desired(mut self, permissions: &[&str]) -> Self {
        self.desired = Some(permissions.join(","));
        self
    }

    /// `X-Okapi-Module-Permissions`, as JSON text.
    #[must_use]
    pub fn module_permissions(mut self, json: &str) -> Self {
        self.module_permissions = Some(json.to_owned());
        self
    }

    /// One more header of the client's, before Okapi's own.
    #[must_use]
    pub fn client_header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.client.push(name, value);
        self
    }

    /// One more header, after all others but `host`; a duplicate if there is one of that name.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.last.push(name, value);
        self
    }

    /// Leaves a header out; one added with `header` stays.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.without.push(name.to_owned());
        self
    }

    /// The client sent its body chunked: the filter call has the framing and an empty body.
    #[must_use]
    pub fn chunked(self) -> Self {
        self.client_header("Transfer-Encoding", "chunked")
    }

    /// The request. Each has a request id of its own.
    pub fn request(&self) -> Request {
        let segment = self.target.split(['/', '?']).nth(1).unwrap_or_default();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let mut request = Request::new(&self.method, &self.target);
        request.headers = self.client.clone();
        let headers = &mut request.headers;
        let mut add = |name: &str, value: Option<&String>| {
            if let Some(value) = value {
                headers.push(name, value);
            }
        };
        add("X-Okapi-Tenant", self.tenant.as_ref());
        add("X-Okapi-User-Id", self.user_id.as_ref());
        add(
            "X-Okapi-Request-Id",
            Some(&format!("{number:06}/{segment}")),
        );
        add("X-Okapi-Url", self.url.as_ref());
        add("X-Okapi-request-ip", Some(&"127.0.0.1".to_owned()));
        let timestamp = 1_796_040_950_000_u64 + u64::from(number);
        add("X-Okapi-request-timestamp", Some(&timestamp.to_string()));
        add("X-Okapi-request-method", Some(&self.method));
        add("X-Okapi-Token", self.token.as_ref());
        add("X-Okapi-Permissions-Required", self.required.as_ref());
        add("X-Okapi-Permissions-Desired", self.desired.as_ref());
        add(
            "X-Okapi-Module-Permissions",
            self.module_permissions.as_ref(),
        );
        add("X-Okapi-Match-Path-Pattern", Some(&"/*".to_owned()));
        for name in &self.without {
            headers.remove(name);
        }
        for (name, value) in self.last.iter() {
            headers.push(name, value);
        }
        if !self
            .without
            .iter()
            .any(|name| name.eq_ignore_ascii_case("host"))
        {
            headers.push("host", "127.0.0.1:8071");
        }
        request
    }
}

/// A system call's filter call (tenant init, permissions, timers): no token, `X-Okapi-Filter: auth`, an empty body with its length.
pub fn system(method: &str, path: &str, tenant: &str) -> Request {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 1_000_000;
    let mut request = Request::new(method, path);
    request.headers = [
        ("X-Okapi-Module-Permissions", "{}"),
        ("X-Okapi-Request-Id", &format!("{number:06}/proxy")),
        ("X-Okapi-Url-to", "http://127.0.0.1:8071"),
        ("X-Okapi-Filter", "auth"),
        ("X-Okapi-Tenant", tenant),
        ("X-Okapi-Url", "http://127.0.0.1:9130"),
        ("Accept", "*/*"),
        ("Content-Type", "application/json; charset=UTF-8"),
        ("user-agent", "Vert.x-WebClient/4.5.13"),
        ("content-length", "0"),
        ("host", "127.0.0.1:8071"),
    ]
    .into_iter()
    .collect();
    request
}

/// A handler call to an own route: the filter's answer (`token`, `permissions`) handed on, the client's body chunked.
pub fn handler(path: &str, tenant: &str, token: &str, permissions: &str, body: &str) -> Request {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 1_000_000;
    let mut request = Request::new("POST", path);
    request.headers = [
        ("user-agent", "Vert.x-WebClient/4.5.4"),
        ("X-Okapi-Tenant", tenant),
        ("content-type", "application/json"),
        ("X-Okapi-Request-Id", &format!("{number:06}/token")),
        ("X-Okapi-Url", "http://127.0.0.1:9130"),
        ("X-Okapi-request-ip", "127.0.0.1"),
        ("X-Okapi-request-timestamp", "1796040950000"),
        ("X-Okapi-request-method", "POST"),
        ("X-Okapi-Permissions", permissions),
        ("X-Okapi-Token", token),
        ("X-Okapi-Match-Path-Pattern", path),
        ("host", "127.0.0.1:8071"),
        ("transfer-encoding", "chunked"),
    ]
    .into_iter()
    .collect();
    request.body = body.as_bytes().to_vec();
    request
}
