//! Every setting: name, type, default, meaning and check. Nothing else reads settings.
//!
//! A TOML file named by `AUTH_SIDECAR_CONFIG` comes first, the environment goes over it (figment does the laying over);
//! each setting is then read on its own, so that all mistakes are told at once, before anything is bound. The trap:
//! Kubernetes injects `<SERVICE>_PORT` and `<SERVICE>_SERVICE_*` for a Service called `auth-sidecar`, so no setting may
//! have such a name and those variables are not ours.

mod error;
pub(crate) mod units;

pub use error::{ConfigErrors, Mistake};

use crate::decision::LifePolicy;
use crate::invalidation::hold::{Memory, UpstreamRefresh};
use crate::key::KeyScope;
use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use figment::value::{Num, Value};
use http::uri::{Authority, Scheme};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What every variable of ours starts with.
pub const PREFIX: &str = "AUTH_SIDECAR_";

/// Where the auth module is: scheme, host and port of `UPSTREAM_URL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and, where it is not the scheme's own, port: what goes into `Host`.
    pub authority: Authority,
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// The bearer token of the admin port's `/cache` and `/requests`. Shows nothing of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret's bytes, for a comparison in constant time.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The secret itself, to be sent as a bearer token.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `json` or `text` lines of log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// All settings, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// `UPSTREAM_URL`: mod-authtoken's base URL. Required.
    pub upstream_url: UpstreamUrl,
    /// `LISTEN`: the filter port. Default `127.0.0.1:8071`.
    pub listen: SocketAddr,
    /// `ADMIN_LISTEN`: health, metrics, purge. Default `0.0.0.0:8072`.
    pub admin_listen: SocketAddr,
    /// `CACHE_TTL` (60s, at most 10m; 0s is pure pass-through), `CACHE_TTL_JITTER` (0.1), `EXPIRY_SKEW` (0s),
    /// `CACHE_REFRESH_AHEAD` (0.8; 1 is off) and `CACHE_STALE_IF_ERROR` (0s is never).
    pub life: LifePolicy,
    /// `CACHE_MAX_BYTES`: bound on what the cache holds. Default 64MiB, at least 1MiB.
    pub cache_max_bytes: u64,
    /// `CACHE_KEY_SCOPE`: `permissions` or `request`.
    pub key_scope: KeyScope,
    /// `REVOCATION_LISTEN`: whether requests that announce a change void decisions. Default true.
    pub revocation_listen: bool,
    /// `REVOCATION_HOLD` (5s), `UPSTREAM_USER_CACHE` (60s), `UPSTREAM_PERMISSION_CACHE` (60s) and
    /// `REVOCATION_UPSTREAM_REFRESH` (many).
    pub memory: Memory,
    /// `UPSTREAM_CONNECT_TIMEOUT`. Default 2s.
    pub connect_timeout: Duration,
    /// `UPSTREAM_TIMEOUT`: whole answer of a filter call, from when a connection is had. Default 10s.
    pub upstream_timeout: Duration,
    /// `UPSTREAM_PASSTHROUGH_TIMEOUT`: until the answer's head, other calls. Default 120s.
    pub passthrough_timeout: Duration,
    /// `UPSTREAM_CONNECT_RETRY`: how long the connect of `/_/tenant*` is retried. Default 40s.
    pub connect_retry: Duration,
    /// `UPSTREAM_POOL_IDLE_TIMEOUT`. Default 5s.
    pub pool_idle_timeout: Duration,
    /// `UPSTREAM_CONNECTION_MAX_AGE`. Default 5m.
    pub connection_max_age: Duration,
    /// `UPSTREAM_CA_FILE`: an extra trust anchor (PEM) for an https upstream.
    pub ca_file: Option<PathBuf>,
    /// `ADMIN_TOKEN` or what `ADMIN_TOKEN_FILE` holds: bearer token for `/cache` and `/requests`.
    pub admin_token: Option<Secret>,
    /// `METRICS_TENANTS`: so many tenants get a label of their own. Default 20.
    pub metrics_tenants: usize,
    /// `REQUEST_REPORT`: how many root requests `GET /requests` remembers. Default 0.
    pub request_report: usize,
    /// `WORKER_THREADS`. Default min(cores, 2).
    pub worker_threads: usize,
    /// `DRAIN_DELAY`: how long a stopping process keeps serving as before. Default 0s.
    pub drain_delay: Duration,
    /// `SHUTDOWN_TIMEOUT`: how long it then waits for answers that are due. Default 10s.
    pub shutdown_timeout: Duration,
    /// `LOG`: filter in tracing's syntax. Default info.
    pub log: String,
    /// `LOG_FORMAT`: `json` or `text`. Default json.
    pub log_format: LogFormat,
}

/// Name, default and meaning of every setting, in the order of the README.
pub const SETTINGS: [(&str, &str, &str); 32] = [
    (
        "UPSTREAM_URL",
        "",
        "mod-authtoken's base URL: http or https, host, port; nothing else",
    ),
    ("LISTEN", "127.0.0.1:8071", "address of the filter port"),
    (
        "ADMIN_LISTEN",
        "0.0.0.0:8072",
        "address of the admin port: health, metrics, purge",
    ),
    (
        "CACHE_TTL",
        "60s",
        "life of a decision; 0s is pure pass-through; at most 10m",
    ),
    (
        "CACHE_TTL_JITTER",
        "0.1",
        "share of the ttl taken off at random, 0 to 1",
    ),
    (
        "CACHE_MAX_BYTES",
        "64MiB",
        "bound on what the cache holds, keys, values and tables; at least 1MiB",
    ),
    (
        "CACHE_KEY_SCOPE",
        "permissions",
        "permissions: one decision serves all paths; request: method and path are part of the key",
    ),
    (
        "CACHE_REFRESH_AHEAD",
        "0.8",
        "a hit later than this share of its life asks again in the background; 1 is off",
    ),
    (
        "CACHE_STALE_IF_ERROR",
        "0s",
        "how long past its life a decision may answer while upstream is down; 0s is never; at most 10m",
    ),
    ("EXPIRY_SKEW", "0s", "taken off the token's exp"),
    (
        "REVOCATION_LISTEN",
        "true",
        "whether requests that announce a change void decisions",
    ),
    (
        "REVOCATION_HOLD",
        "5s",
        "how long a write may take after its announcement",
    ),
    (
        "REVOCATION_UPSTREAM_REFRESH",
        "many",
        "one, many or off: how many mod-authtoken stand behind the address, and whether the refresh header is sent",
    ),
    (
        "UPSTREAM_USER_CACHE",
        "60s",
        "how long mod-authtoken remembers that a user is active (user.cache.seconds)",
    ),
    (
        "UPSTREAM_PERMISSION_CACHE",
        "60s",
        "how long mod-authtoken remembers permissions",
    ),
    (
        "UPSTREAM_CONNECT_TIMEOUT",
        "2s",
        "for a connection to upstream",
    ),
    (
        "UPSTREAM_TIMEOUT",
        "10s",
        "whole answer of a filter call, from when a connection is had",
    ),
    (
        "UPSTREAM_PASSTHROUGH_TIMEOUT",
        "120s",
        "until the answer's head, other calls",
    ),
    (
        "UPSTREAM_CONNECT_RETRY",
        "40s",
        "how long the connect of /_/tenant* is retried while a module starts",
    ),
    (
        "UPSTREAM_POOL_IDLE_TIMEOUT",
        "5s",
        "idle upstream connections are closed after this",
    ),
    (
        "UPSTREAM_CONNECTION_MAX_AGE",
        "5m",
        "so that new replicas behind a Service get traffic",
    ),
    (
        "UPSTREAM_CA_FILE",
        "",
        "extra trust anchor (PEM file) for an https upstream",
    ),
    ("ADMIN_TOKEN", "", "bearer token for /cache and /requests"),
    ("ADMIN_TOKEN_FILE", "", "file that holds it"),
    (
        "METRICS_TENANTS",
        "20",
        "so many tenants get a label of their own, the rest share other",
    ),
    (
        "REQUEST_REPORT",
        "0",
        "how many root requests GET /requests remembers; 0 is off",
    ),
    (
        "WORKER_THREADS",
        "min(cores, 2)",
        "threads that serve requests",
    ),
    (
        "DRAIN_DELAY",
        "0s",
        "how long a stopping process keeps serving as before",
    ),
    (
        "SHUTDOWN_TIMEOUT",
        "10s",
        "how long it then waits for answers that are due",
    ),
    (
        "LOG",
        "info",
        "filter in tracing's syntax, such as info or okapi_auth_sidecar=debug",
    ),
    ("LOG_FORMAT", "json", "json or text"),
    (
        "CONFIG",
        "",
        "a TOML file with any of these, names in lower case",
    ),
];

/// Variables with our prefix that are none of `serve`'s settings: Kubernetes' own, and the flags of `register`.
fn foreign(name: &str) -> bool {
    let injected = ["PORT", "SERVICE"];
    injected.iter().any(|start| {
        name == *start
            || name
                .strip_prefix(start)
                .is_some_and(|rest| rest.starts_with('_'))
    }) || crate::register::ENV_NAMES
        .iter()
        .any(|variable| variable.strip_prefix(PREFIX) == Some(name))
}

impl Config {
    /// Reads the settings from variables (names with the prefix; others are not looked at) and from the file that
    /// `AUTH_SIDECAR_CONFIG` among them names.
    ///
    /// # Errors
    /// All mistakes at once, each with the setting's name, the value as given (never a secret's) and what is right.
    pub fn from_pairs(
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let variables: BTreeMap<String, String> = pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value)))
            .filter(|(name, _)| !foreign(name))
            .collect();
        let mut reader = Reader::new(&variables);
        let config = reader.read();
        if reader.mistakes.is_empty() {
            Ok(config)
        } else {
            Err(ConfigErrors(reader.mistakes))
        }
    }

    /// Reads the settings from the process's environment, and from `more`, which goes over it.
    ///
    /// # Errors
    /// As [`Self::from_pairs`].
    pub fn from_env_and(
        more: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let pairs = std::env::vars_os().map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                // What is not UTF-8 shows as such in the mistake it then is.
                value.to_string_lossy().into_owned(),
            )
        });
        Self::from_pairs(pairs.chain(more))
    }

    /// The settings in force as `NAME=value` lines, secrets hidden.
    pub fn effective(&self) -> Vec<(&'static str, String)> {
        use units::{bytes, duration, millis};
        let life = &self.life;
        let memory = &self.memory;
        vec![
            ("UPSTREAM_URL", self.upstream_url.to_string()),
            ("LISTEN", self.listen.to_string()),
            ("ADMIN_LISTEN", self.admin_listen.to_string()),
            ("CACHE_TTL", duration(life.ttl)),
            ("CACHE_TTL_JITTER", life.jitter.to_string()),
            ("CACHE_MAX_BYTES", bytes(self.cache_max_bytes)),
            (
                "CACHE_KEY_SCOPE",
                match self.key_scope {
                    KeyScope::Permissions => "permissions".to_owned(),
                    KeyScope::Request => "request".to_owned(),
                },
            ),
            ("CACHE_REFRESH_AHEAD", life.refresh_ahead.to_string()),
            ("CACHE_STALE_IF_ERROR", duration(life.stale_if_error)),
            ("EXPIRY_SKEW", duration(life.skew)),
            ("REVOCATION_LISTEN", self.revocation_listen.to_string()),
            ("REVOCATION_HOLD", millis(memory.write)),
            (
                "REVOCATION_UPSTREAM_REFRESH",
                match memory.refresh {
                    UpstreamRefresh::One => "one".to_owned(),
                    UpstreamRefresh::Many => "many".to_owned(),
                    UpstreamRefresh::Off => "off".to_owned(),
                },
            ),
            ("UPSTREAM_USER_CACHE", millis(memory.user)),
            ("UPSTREAM_PERMISSION_CACHE", millis(memory.permission)),
            ("UPSTREAM_CONNECT_TIMEOUT", duration(self.connect_timeout)),
            ("UPSTREAM_TIMEOUT", duration(self.upstream_timeout)),
            (
                "UPSTREAM_PASSTHROUGH_TIMEOUT",
                duration(self.passthrough_timeout),
            ),
            ("UPSTREAM_CONNECT_RETRY", duration(self.connect_retry)),
            (
                "UPSTREAM_POOL_IDLE_TIMEOUT",
                duration(self.pool_idle_timeout),
            ),
            (
                "UPSTREAM_CONNECTION_MAX_AGE",
                duration(self.connection_max_age),
            ),
            (
                "UPSTREAM_CA_FILE",
                self.ca_file
                    .as_ref()
                    .map_or_else(String::new, |path| path.display().to_string()),
            ),
            (
                "ADMIN_TOKEN",
                self.admin_token.as_ref().map_or("", |_| "(set)").to_owned(),
            ),
            ("METRICS_TENANTS", self.metrics_tenants.to_string()),
            ("REQUEST_REPORT", self.request_report.to_string()),
            ("WORKER_THREADS", self.worker_threads.to_string()),
            ("DRAIN_DELAY", duration(self.drain_delay)),
            ("SHUTDOWN_TIMEOUT", duration(self.shutdown_timeout)),
            ("LOG", self.log.clone()),
            (
                "LOG_FORMAT",
                match self.log_format {
                    LogFormat::Json => "json".to_owned(),
                    LogFormat::Text => "text".to_owned(),
                },
            ),
        ]
    }
}

/// One reading of all settings, which gathers mistakes.
struct Reader {
    values: Figment,
    mistakes: Vec<Mistake>,
}

/// How a text becomes a value; `Err` says what would be right.
type Parse<T> = fn(&str) -> Result<T, String>;

impl Reader {
    fn new(variables: &BTreeMap<String, String>) -> Self {
        let mut mistakes = Vec::new();
        let mut values = Figment::new();
        if let Some(path) = variables.get("CONFIG").filter(|path| !path.is_empty()) {
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    let file = Figment::from(Toml::string(&text));
                    // Read now, so that a broken file is one mistake and not one per setting.
                    match file.extract::<BTreeMap<String, Value>>() {
                        Ok(settings) => {
                            unknown(
                                settings.keys().map(|name| (name.clone(), path.clone())),
                                &mut mistakes,
                            );
                            values = file;
                        }
                        Err(error) => mistakes.push(Mistake::new(
                            "CONFIG",
                            path,
                            &format!("a TOML file ({})", without_lines(&error.kind.to_string())),
                        )),
                    }
                }
                Err(error) => mistakes.push(Mistake::new(
                    "CONFIG",
                    path,
                    &format!("a file that can be read ({error})"),
                )),
            }
        }
        unknown(
            variables.keys().map(|name| (name.clone(), String::new())),
            &mut mistakes,
        );
        let lower: BTreeMap<String, &String> = variables
            .iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect();
        Self {
            values: values.merge(Serialized::defaults(lower)),
            mistakes,
        }
    }

    /// The setting's text, if it is given and not empty.
    fn text(&self, name: &str) -> Option<String> {
        let value = self.values.find_value(&name.to_lowercase()).ok()?;
        let text = match value {
            Value::String(_, text) => text,
            Value::Char(_, letter) => letter.to_string(),
            Value::Bool(_, flag) => flag.to_string(),
            Value::Num(_, number) => number_text(number),
            Value::Empty(..) => String::new(),
            Value::Dict(..) | Value::Array(..) => "(a table or list)".to_owned(),
        };
        (!text.is_empty()).then_some(text)
    }

    fn optional<T>(&mut self, name: &'static str, parse: Parse<T>) -> Option<T> {
        let text = self.text(name)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(right) => {
                // Before an `@` in an address stands a password.
                let secret = name == "ADMIN_TOKEN" || name == "UPSTREAM_URL" && text.contains('@');
                let shown = if secret { "(hidden)" } else { &text };
                self.mistakes.push(Mistake::new(name, shown, &right));
                None
            }
        }
    }

    fn or<T>(&mut self, name: &'static str, default: T, parse: Parse<T>) -> T {
        self.optional(name, parse).unwrap_or(default)
    }

    fn read(&mut self) -> Config {
        let seconds = Duration::from_secs;
        let upstream_url = self.optional("UPSTREAM_URL", units::parse_upstream);
        if upstream_url.is_none() && self.text("UPSTREAM_URL").is_none() {
            self.mistakes.push(Mistake::new(
                "UPSTREAM_URL",
                "",
                "mod-authtoken's base URL, such as http://mod-authtoken:8081",
            ));
        }
        let life = LifePolicy {
            ttl: self.or("CACHE_TTL", seconds(60), units::parse_life),
            jitter: self.or("CACHE_TTL_JITTER", 0.1, units::parse_share),
            skew: self.or("EXPIRY_SKEW", seconds(0), units::parse_duration),
            refresh_ahead: self.or("CACHE_REFRESH_AHEAD", 0.8, units::parse_share),
            stale_if_error: self.or("CACHE_STALE_IF_ERROR", seconds(0), units::parse_life),
        };
        let memory = Memory {
            write: self.or("REVOCATION_HOLD", 5_000, units::parse_memory),
            user: self.or("UPSTREAM_USER_CACHE", 60_000, units::parse_memory),
            permission: self.or("UPSTREAM_PERMISSION_CACHE", 60_000, units::parse_memory),
            refresh: self.or(
                "REVOCATION_UPSTREAM_REFRESH",
                UpstreamRefresh::Many,
                units::parse_refresh,
            ),
        };
        let config = Config {
            // The mistake is noted; the rest is read all the same, to tell its mistakes as well.
            upstream_url: upstream_url.unwrap_or(UpstreamUrl {
                scheme: Scheme::HTTP,
                authority: Authority::from_static("none"),
            }),
            listen: self.or(
                "LISTEN",
                ([127, 0, 0, 1], 8071).into(),
                units::parse_address,
            ),
            admin_listen: self.or(
                "ADMIN_LISTEN",
                ([0, 0, 0, 0], 8072).into(),
                units::parse_address,
            ),
            life,
            cache_max_bytes: self.or("CACHE_MAX_BYTES", 64 << 20, units::parse_cache_bytes),
            key_scope: self.or(
                "CACHE_KEY_SCOPE",
                KeyScope::Permissions,
                units::parse_key_scope,
            ),
            revocation_listen: self.or("REVOCATION_LISTEN", true, units::parse_flag),
            memory,
            connect_timeout: self.or("UPSTREAM_CONNECT_TIMEOUT", seconds(2), units::parse_timeout),
            upstream_timeout: self.or("UPSTREAM_TIMEOUT", seconds(10), units::parse_timeout),
            passthrough_timeout: self.or(
                "UPSTREAM_PASSTHROUGH_TIMEOUT",
                seconds(120),
                units::parse_timeout,
            ),
            connect_retry: self.or("UPSTREAM_CONNECT_RETRY", seconds(40), units::parse_duration),
            pool_idle_timeout: self.or(
                "UPSTREAM_POOL_IDLE_TIMEOUT",
                seconds(5),
                units::parse_duration,
            ),
            connection_max_age: self.or(
                "UPSTREAM_CONNECTION_MAX_AGE",
                seconds(300),
                units::parse_timeout,
            ),
            ca_file: self.optional("UPSTREAM_CA_FILE", units::parse_path),
            admin_token: self.admin_token(),
            metrics_tenants: self.or("METRICS_TENANTS", 20, units::parse_tenants),
            request_report: self.or("REQUEST_REPORT", 0, units::parse_report),
            worker_threads: self.or("WORKER_THREADS", default_threads(), units::parse_threads),
            drain_delay: self.or("DRAIN_DELAY", seconds(0), units::parse_duration),
            shutdown_timeout: self.or("SHUTDOWN_TIMEOUT", seconds(10), units::parse_duration),
            log: self.or("LOG", "info".to_owned(), units::parse_log),
            log_format: self.or("LOG_FORMAT", LogFormat::Json, units::parse_log_format),
        };
        self.check_together(&config);
        config
    }

    fn admin_token(&mut self) -> Option<Secret> {
        let given = self.optional("ADMIN_TOKEN", units::parse_secret);
        let Some(path) = self.text("ADMIN_TOKEN_FILE") else {
            return given.map(Secret);
        };
        if given.is_some() {
            self.mistakes.push(Mistake::new(
                "ADMIN_TOKEN_FILE",
                &path,
                "only one of ADMIN_TOKEN and ADMIN_TOKEN_FILE",
            ));
        }
        let read = std::fs::read_to_string(&path)
            .map_err(|error| format!("a file that can be read ({error})"))
            .and_then(|text| units::parse_secret(text.trim_end_matches(['\r', '\n'])));
        match read {
            Ok(secret) => Some(Secret(secret)),
            Err(right) => {
                self.mistakes
                    .push(Mistake::new("ADMIN_TOKEN_FILE", &path, &right));
                None
            }
        }
    }

    fn check_together(&mut self, config: &Config) {
        if config.listen.port() != 0 && config.listen.port() == config.admin_listen.port() {
            self.mistakes.push(Mistake::new(
                "ADMIN_LISTEN",
                &config.admin_listen.to_string(),
                "another port than LISTEN: health and metrics never answer on the filter port",
            ));
        }
        if config.ca_file.is_some() && config.upstream_url.scheme != Scheme::HTTPS {
            self.mistakes.push(Mistake::new(
                "UPSTREAM_CA_FILE",
                &config
                    .ca_file
                    .as_ref()
                    .map_or_else(String::new, |path| path.display().to_string()),
                "none, or an https UPSTREAM_URL",
            ));
        }
        let own = config.upstream_url.authority.as_str();
        if own == config.listen.to_string() {
            self.mistakes.push(Mistake::new(
                "UPSTREAM_URL",
                &config.upstream_url.to_string(),
                "mod-authtoken's address, not this service's own (LISTEN)",
            ));
        }
    }
}

/// Names the settings that do not exist, with the nearest that does.
fn unknown(names: impl Iterator<Item = (String, String)>, mistakes: &mut Vec<Mistake>) {
    for (name, file) in names {
        let in_file = !file.is_empty();
        let upper = if in_file {
            name.to_uppercase()
        } else {
            name.clone()
        };
        // A file that names a file would be read by nobody, and neither would a name in upper case in one.
        let here = !in_file || upper != "CONFIG" && name == name.to_lowercase();
        if here && SETTINGS.iter().any(|(known, ..)| *known == upper) {
            continue;
        }
        let nearest = SETTINGS
            .iter()
            .map(|(known, ..)| (strsim::jaro_winkler(known, &upper), *known))
            .max_by(|one, two| one.0.total_cmp(&two.0));
        let nearest = nearest.map_or("", |(_, known)| known);
        mistakes.push(Mistake::unknown(&name, nearest, &file));
    }
}

/// What the TOML reader says without the lines of the file that it quotes: one of them may be the secret's.
fn without_lines(message: &str) -> String {
    let kept: Vec<&str> = message
        .lines()
        .filter(|line| !line.contains('|'))
        .map(str::trim)
        .collect();
    kept.join(": ")
}

fn number_text(number: Num) -> String {
    match number {
        Num::F32(number) => number.to_string(),
        Num::F64(number) => number.to_string(),
        other => match (other.to_u128(), other.to_i128()) {
            (Some(number), _) => number.to_string(),
            (None, Some(number)) => number.to_string(),
            (None, None) => String::new(),
        },
    }
}

/// All cores of a node would be too many for a sidecar; a cgroup's quota is honoured.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2))
}

#[cfg(test)]
mod tests;
