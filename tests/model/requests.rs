//! What comes to the filter port: heads as Okapi sends them, and what their senders are up to.

use crate::truth::{Change, Mask, NAMES, PERMISSIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use okapi_auth_sidecar::body::Body;
use okapi_auth_sidecar::headers;

/// What a request asks permission for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) required: Mask,
    pub(crate) desired: Option<&'static str>,
    pub(crate) modules: &'static str,
}

const fn demand(required: Mask) -> Demand {
    Demand {
        required,
        desired: None,
        modules: "{}",
    }
}

const MODULES: &str = r#"{"mod-notes-1":["notes.get"]}"#;

/// The administrator's.
pub(crate) const ADMINISTER: Demand = demand(0b1_0000);

pub(crate) const DEMANDS: [Demand; 10] = [
    demand(0),
    demand(0b0001),
    demand(0b0010),
    demand(0b0100),
    demand(0b1000),
    demand(0b0011),
    ADMINISTER,
    Demand {
        required: 0b0001,
        desired: Some("users.read.*"),
        modules: "{}",
    },
    Demand {
        required: 0b0010,
        desired: None,
        modules: MODULES,
    },
    Demand {
        required: 0,
        desired: Some(""),
        modules: MODULES,
    },
];

/// Whom an announced change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    User(usize, usize),
    Tenant(usize),
}

/// Whose memory below outlives an announced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    None,
    User,
    Permission,
    Set,
}

/// What follows if a request is let through.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// Nothing.
    Read,
    /// The sidecar knows that something changes; these things do.
    Announce {
        reach: Reach,
        memory: Memory,
        changes: Vec<Change>,
    },
    /// These things change, and the sidecar takes no notice.
    Unnoticed(Vec<Change>),
    /// With 204.
    Logout,
    /// mod-authtoken forgets its permissions.
    RefreshFromOutside,
}

/// One request to be.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) method: Method,
    pub(crate) target: String,
    /// Whose tenant the header names.
    pub(crate) tenant: usize,
    pub(crate) token: Option<usize>,
    /// `X-Okapi-User-Id`: a user of the tenant.
    pub(crate) user_header: Option<usize>,
    pub(crate) demand: Demand,
    pub(crate) other_url: bool,
    /// Passed through, for its content type.
    pub(crate) form: bool,
    pub(crate) purpose: Purpose,
}

impl Draft {
    /// The request itself. `token` and `user_id` are what the draft's numbers stand for.
    pub(crate) fn request(
        &self,
        token: Option<&HeaderValue>,
        user_id: Option<&str>,
    ) -> Request<Body> {
        let mut map = HeaderMap::with_capacity(12);
        let mut put = |name: HeaderName, value: &str| {
            let value = HeaderValue::from_str(value).expect("a header value");
            map.insert(name, value);
        };
        put(headers::TENANT, if self.tenant == 0 { "t0" } else { "t1" });
        put(
            headers::URL,
            if self.other_url {
                "http://okapi-b:9130"
            } else {
                "http://okapi:9130"
            },
        );
        put(headers::MODULE_PERMISSIONS, self.demand.modules);
        if self.demand.required != 0 {
            let names: Vec<&str> = (0..PERMISSIONS)
                .filter(|permission| self.demand.required & 1 << permission != 0)
                .map(|permission| NAMES[permission])
                .collect();
            put(headers::PERMISSIONS_REQUIRED, &names.join(","));
        }
        if let Some(desired) = self.demand.desired {
            put(headers::PERMISSIONS_DESIRED, desired);
        }
        if let Some(user_id) = user_id {
            put(headers::USER_ID, user_id);
        }
        if self.form {
            put(
                http::header::CONTENT_TYPE,
                "application/x-www-form-urlencoded",
            );
        }
        if matches!(self.purpose, Purpose::RefreshFromOutside) {
            put(headers::REFRESH_CACHE, "true");
        }
        if let Some(token) = token {
            map.insert(headers::TOKEN, token.clone());
        }
        let mut request = Request::new(Body::Empty);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.parse::<Uri>().expect("a target");
        *request.headers_mut() = map;
        request
    }

    /// Whether it is the auth module's own route.
    pub(crate) fn own_route(&self) -> bool {
        self.target.starts_with("/token") || self.target.starts_with("/_/tenant")
    }

    /// Whether the cache has nothing to do with it.
    pub(crate) fn bypass(&self) -> bool {
        self.form
            || self.own_route()
            || self.token.is_none()
            || matches!(self.purpose, Purpose::RefreshFromOutside)
    }
}
