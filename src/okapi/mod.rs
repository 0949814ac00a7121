//! Okapi's own API, as far as discovery needs it: the one room that names `reqwest`.
//!
//! Every call opens its own connection: through a Kubernetes Service a kept one would reach the same Okapi pod for ever,
//! and a check that samples the pods would sample one. No proxy, no redirects, nothing repeated behind our back.
//!
//! The trap: on a secured system each call passes mod-authtoken before it reaches Okapi's own code, by way of the very
//! entries that the call wants to change. A 500 `proxyClient failure` or a 404 `No running module instance` is therefore no
//! answer to the question at all (see [`OkapiError::may_pass`]).

mod answer;
mod login;
mod secret;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, Method};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tls::{self, TlsError};

pub(crate) use answer::Answer;
pub(crate) use login::{Credentials, FileError, read_value};
pub(crate) use reqwest::Url;
pub(crate) use secret::Secret;

/// How long a connection to Okapi may take, whatever the time for the whole answer is.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest answer that is read. A list of all modules of a large system has a few hundred kilobytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Okapi's name for "whose request is this" (Okapi `XOkapiHeaders`).
const TENANT: &str = "X-Okapi-Tenant";
/// Okapi's name for the caller's token (Okapi `XOkapiHeaders`).
const TOKEN: &str = "X-Okapi-Token";
/// With `trace_headers` switched on, Okapi names here the instance that each step of a request went to (Okapi `ProxyService.makeTraceHeader`).
const TRACE: &str = "X-Okapi-Trace";

/// One entry of Okapi's discovery: where an instance of a module listens (Okapi `DeploymentDescriptor`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// The module id, e.g. `mod-authtoken-2.17.0`. Okapi does not check that it knows such a module.
    pub srvc_id: String,
    /// The instance id, unique over all modules.
    pub inst_id: String,
    /// Where it listens, as it was given: a trailing slash is kept and leads to `//path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The node that runs it, when Okapi launched it itself. Deleting such an entry stops the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
}

/// What Okapi found when it asked an instance for `GET <url>`: any HTTP answer is healthy (Okapi `HealthDescriptor`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Health {
    /// Whether the instance answered at all.
    pub health_status: bool,
    /// `OK`, or why not.
    #[serde(default)]
    pub health_message: String,
}

/// Something that has nothing but an id that we care for.
#[derive(Debug, Deserialize)]
struct Named {
    id: String,
}

/// How to reach Okapi and as whom.
#[derive(Debug)]
pub(crate) struct Access {
    /// Okapi's address, without a trailing slash.
    pub url: Url,
    /// More certificates to trust when that is https.
    pub ca_file: Option<PathBuf>,
    /// For a whole answer.
    pub timeout: Duration,
    /// The tenant of the user or token; Okapi's administration belongs to `supertenant`.
    pub tenant: String,
    /// Who is asking.
    pub credentials: Credentials,
}

/// A client of one Okapi.
#[derive(Debug)]
pub(crate) struct Okapi {
    http: Client,
    base: Url,
    tenant: String,
    credentials: Credentials,
    token: Mutex<Option<Secret>>,
}

/// Why Okapi did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OkapiError {
    /// There was no answer: refused, timed out, broken off.
    #[error("{call}: no answer: {reason}")]
    NoAnswer {
        /// Method and path.
        call: String,
        /// The chain of causes.
        reason: String,
    },
    /// Okapi, or the auth module in front of it, said no.
    #[error("{call}: {answer}")]
    Refused {
        /// Method and path.
        call: String,
        /// What it said.
        answer: Box<Answer>,
    },
    /// The answer is not what this call should bring.
    #[error("{call}: the answer cannot be understood: {source}; is this address an Okapi?")]
    Garbled {
        /// Method and path.
        call: String,
        /// Where it stopped making sense.
        source: serde_json::Error,
    },
    /// Okapi let nobody in under this name.
    #[error("login of {user:?} for tenant {tenant:?} failed: {answer}")]
    Login {
        /// The name that was tried.
        user: String,
        /// The tenant it was tried for.
        tenant: String,
        /// What Okapi said.
        answer: Box<Answer>,
    },
    /// A login that went well brought no token.
    #[error(
        "login of {user:?} for tenant {tenant:?} was accepted, but the answer holds no token (looked for the cookie folioAccessToken and the header X-Okapi-Token)"
    )]
    NoToken {
        /// The name that was used.
        user: String,
        /// The tenant it was used for.
        tenant: String,
    },
    /// The client could not be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The client could not be made.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(#[source] reqwest::Error),
}

impl OkapiError {
    /// Whether the same call may go well in a moment: nobody answered, or the request died on its way through the auth module.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::Refused { answer, .. } | Self::Login { answer, .. } => answer.may_pass(),
            Self::Garbled { .. } | Self::NoToken { .. } | Self::Tls(_) | Self::Setup(_) => false,
        }
    }

    /// The refusal, when there was one.
    pub(crate) fn refusal(&self) -> Option<&Answer> {
        match self {
            Self::Refused { answer, .. } => Some(answer),
            Self::NoAnswer { .. }
            | Self::Login { .. }
            | Self::Garbled { .. }
            | Self::NoToken { .. }
            | Self::Tls(_)
            | Self::Setup(_) => None,
        }
    }
}

impl Okapi {
    /// Makes a client; nothing is sent yet.
    ///
    /// # Errors
    /// When the CA file cannot be used, or an https Okapi could not be trusted by anything.
    pub(crate) fn new(access: Access) -> Result<Self, OkapiError> {
        let https = access.url.scheme() == "https";
        let ca_file = access.ca_file.as_deref().filter(|_| https);
        // A client without TLS wants a configuration all the same.
        let trust = tls::client_config(https, ca_file, "--okapi-ca-file")?;
        let http = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT.min(access.timeout))
            .timeout(access.timeout)
            .user_agent(concat!("okapi-auth-sidecar/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(trust)
            .build()
            .map_err(OkapiError::Setup)?;
        Ok(Self {
            http,
            base: access.url,
            tenant: access.tenant,
            credentials: access.credentials,
            token: Mutex::new(None),
        })
    }

    /// The tenant in whose name the calls are made.
    pub(crate) fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Whether Okapi knows a module of this id (`GET /_/proxy/modules/{id}`).
    ///
    /// # Errors
    /// When Okapi says something else than yes or no.
    pub(crate) async fn knows(&self, module: &str) -> Result<bool, OkapiError> {
        let (call, answer) = self
            .call(
                Method::GET,
                self.at(&["_", "proxy", "modules", module]),
                None,
            )
            .await?;
        if answer.says_absent() {
            return Ok(false);
        }
        succeeded(&call, answer).map(|_| true)
    }

    /// Ids of the known modules that begin with `product` (`GET /_/proxy/modules?filter=`).
    ///
    /// # Errors
    /// When Okapi cannot or will not list them.
    pub(crate) async fn modules(&self, product: &str) -> Result<Vec<String>, OkapiError> {
        let mut url = self.at(&["_", "proxy", "modules"]);
        url.query_pairs_mut().append_pair("filter", product);
        self.ids(url).await
    }

    /// Ids of the modules that are enabled for a tenant (`GET /_/proxy/tenants/{tenant}/modules`).
    ///
    /// # Errors
    /// When Okapi cannot or will not list them; an unknown tenant is a 404.
    pub(crate) async fn tenant_modules(&self, tenant: &str) -> Result<Vec<String>, OkapiError> {
        self.ids(self.at(&["_", "proxy", "tenants", tenant, "modules"]))
            .await
    }

    /// All entries of the discovery (`GET /_/discovery/modules`).
    ///
    /// # Errors
    /// When Okapi cannot or will not list them.
    pub(crate) async fn entries(&self) -> Result<Vec<Entry>, OkapiError> {
        let (call, answer) = self
            .call(Method::GET, self.at(&["_", "discovery", "modules"]), None)
            .await?;
        parsed(call, answer)
    }

    /// How many Okapi nodes belong to the cluster (`GET /_/discovery/nodes`).
    ///
    /// # Errors
    /// When Okapi cannot or will not tell; it needs a permission of its own.
    pub(crate) async fn nodes(&self) -> Result<usize, OkapiError> {
        let (call, answer) = self
            .call(Method::GET, self.at(&["_", "discovery", "nodes"]), None)
            .await?;
        parsed::<Vec<Value>>(call, answer).map(|nodes| nodes.len())
    }

    /// Adds an entry (`POST /_/discovery/modules`). Okapi only records it, and answers 400 when the instance id is taken.
    ///
    /// # Errors
    /// When Okapi did not say that it was added.
    pub(crate) async fn add(&self, entry: &Entry) -> Result<(), OkapiError> {
        let (call, answer) = self
            .call(
                Method::POST,
                self.at(&["_", "discovery", "modules"]),
                Some(json!(entry)),
            )
            .await?;
        succeeded(&call, answer).map(drop)
    }

    /// Removes an entry (`DELETE /_/discovery/modules/{srvcId}/{instId}`). One that is not there counts as removed.
    ///
    /// # Errors
    /// When Okapi did not say that it is gone.
    pub(crate) async fn remove(&self, entry: &Entry) -> Result<(), OkapiError> {
        let url = self.at(&["_", "discovery", "modules", &entry.srvc_id, &entry.inst_id]);
        let (call, answer) = self.call(Method::DELETE, url, None).await?;
        if answer.says_absent() {
            return Ok(());
        }
        succeeded(&call, answer).map(drop)
    }

    /// Has the Okapi pod that answers ask one instance for `GET <url>` (`GET /_/discovery/health/{srvcId}/{instId}`).
    ///
    /// # Errors
    /// When Okapi cannot or will not ask.
    pub(crate) async fn health(&self, entry: &Entry) -> Result<Health, OkapiError> {
        let url = self.at(&["_", "discovery", "health", &entry.srvc_id, &entry.inst_id]);
        let (call, answer) = self.call(Method::GET, url, None).await?;
        parsed(call, answer)
    }

    /// One real request of a tenant, without a token: Okapi never answers such a one from its own token cache, so it passes the auth module.
    ///
    /// # Errors
    /// When nobody answered; any answer is a result.
    pub(crate) async fn ask(&self, tenant: &str, path: &str) -> Result<Answer, OkapiError> {
        let mut url = self.base.clone();
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(p, q)| (p, Some(q)));
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url.set_query(query);
        self.send(Method::GET, url, tenant, None, None)
            .await
            .map(|(_, answer)| answer)
    }

    async fn ids(&self, url: Url) -> Result<Vec<String>, OkapiError> {
        let (call, answer) = self.call(Method::GET, url, None).await?;
        let named: Vec<Named> = parsed(call, answer)?;
        Ok(named.into_iter().map(|module| module.id).collect())
    }

    /// Percent-encodes each segment: an instance id may hold anything.
    fn at(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// A call as the operator. A token that has run out meanwhile is renewed once.
    async fn call(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<(String, Answer), OkapiError> {
        let had_token = self.current_token().is_some();
        let token = self.token().await?;
        let (call, answer) = self
            .send(
                method.clone(),
                url.clone(),
                &self.tenant,
                token,
                body.clone(),
            )
            .await?;
        if answer.status != 401 || !had_token || !self.credentials.can_renew() {
            return Ok((call, answer));
        }
        self.keep_token(None);
        let token = self.token().await?;
        self.send(method, url, &self.tenant, token, body).await
    }

    fn current_token(&self) -> Option<Secret> {
        self.token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn keep_token(&self, token: Option<Secret>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        tenant: &str,
        token: Option<Secret>,
        body: Option<Value>,
    ) -> Result<(String, Answer), OkapiError> {
        let call = format!("{method} {}", url.path());
        let mut request = self.http.request(method, url).header(TENANT, tenant);
        if let Some(token) = token {
            request = request.header(TOKEN, sensitive(&token));
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        match Answer::read(request.send().await, MAX_ANSWER).await {
            Ok(answer) => Ok((call, answer)),
            Err(reason) => Err(OkapiError::NoAnswer { call, reason }),
        }
    }
}

/// A header value that no debug output shows.
fn sensitive(token: &Secret) -> reqwest::header::HeaderValue {
    let mut value = reqwest::header::HeaderValue::from_str(token.reveal())
        .expect("tokens are taken in only when they are one word of visible ASCII");
    value.set_sensitive(true);
    value
}

fn succeeded(call: &str, answer: Answer) -> Result<Answer, OkapiError> {
    if answer.succeeded() {
        Ok(answer)
    } else {
        Err(OkapiError::Refused {
            call: call.to_owned(),
            answer: Box::new(answer),
        })
    }
}

fn parsed<T: DeserializeOwned>(call: String, answer: Answer) -> Result<T, OkapiError> {
    let answer = succeeded(&call, answer)?;
    serde_json::from_str(&answer.body).map_err(|source| OkapiError::Garbled { call, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn okapi(url: &str) -> Okapi {
        Okapi::new(Access {
            url: Url::parse(url).unwrap(),
            ca_file: None,
            timeout: Duration::from_secs(1),
            tenant: "supertenant".to_owned(),
            credentials: Credentials::Nobody,
        })
        .unwrap()
    }

    #[test]
    fn ids_are_encoded_and_a_path_in_front_of_okapi_is_kept() {
        let okapi = okapi("http://proxy/okapi/");

        let url = okapi.at(&[
            "_",
            "discovery",
            "modules",
            "mod-a-1.0.0",
            "kube_10.0.0.1:8081/x y",
        ]);

        assert_eq!(
            url.as_str(),
            "http://proxy/okapi/_/discovery/modules/mod-a-1.0.0/kube_10.0.0.1:8081%2Fx%20y"
        );
    }

    #[test]
    fn an_entry_that_okapi_launched_is_told_from_one_that_it_was_told_of() {
        let launched: Entry = serde_json::from_str(
            r#"{"instId":"i","srvcId":"s","nodeId":"n","url":"http://x:9131","descriptor":{"exec":"java"}}"#,
        )
        .unwrap();
        let told: Entry =
            serde_json::from_str(r#"{"instId":"i","srvcId":"s","url":"http://x:9131"}"#).unwrap();

        assert_eq!(launched.node_id.as_deref(), Some("n"));
        assert_eq!(told.node_id, None);
        assert_eq!(
            serde_json::to_string(&told).unwrap(),
            r#"{"srvcId":"s","instId":"i","url":"http://x:9131"}"#
        );
    }

    #[test]
    fn no_debug_output_shows_a_token() {
        let okapi = okapi("http://okapi:9130");
        okapi.keep_token(Some(Secret::new("a.b.c")));

        assert!(!format!("{okapi:?}").contains("a.b.c"));
        assert!(!format!("{:?}", sensitive(&Secret::new("a.b.c"))).contains("a.b.c"));
    }
}
