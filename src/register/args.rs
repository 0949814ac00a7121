//! The command lines of `register` and `unregister`. Every flag that a deployment sets has an environment name as well.

use std::path::PathBuf;
use std::time::Duration;

use super::values::{
    direct_url, duration, holds_password, not_empty, okapi_url, probe_path, sidecar_url,
};
use crate::okapi::{Access, Credentials, FileError, Secret, Url, read_value};

/// The environment names that these two commands read. `serve` refuses unknown names with this prefix, so it has to know them.
pub const ENV_NAMES: &[&str] = &[
    "AUTH_SIDECAR_OKAPI_URL",
    "AUTH_SIDECAR_OKAPI_CA_FILE",
    "AUTH_SIDECAR_OKAPI_TOKEN",
    "AUTH_SIDECAR_OKAPI_TOKEN_FILE",
    "AUTH_SIDECAR_OKAPI_USERNAME",
    "AUTH_SIDECAR_OKAPI_USERNAME_FILE",
    "AUTH_SIDECAR_OKAPI_PASSWORD_FILE",
    "AUTH_SIDECAR_OKAPI_LOGIN_TENANT",
    "AUTH_SIDECAR_OKAPI_TIMEOUT",
    "AUTH_SIDECAR_OKAPI_PODS",
    "AUTH_SIDECAR_REGISTER_URL",
    "AUTH_SIDECAR_REGISTER_TENANT",
    "AUTH_SIDECAR_REGISTER_MODULE_ID",
    "AUTH_SIDECAR_REGISTER_MODULE_NAME",
    "AUTH_SIDECAR_REGISTER_INSTANCE_ID",
    "AUTH_SIDECAR_REGISTER_DIRECT_URL",
    "AUTH_SIDECAR_REGISTER_PROBE_PATH",
    "AUTH_SIDECAR_REGISTER_SAMPLES",
    "AUTH_SIDECAR_REGISTER_SAMPLE_INTERVAL",
    "AUTH_SIDECAR_REGISTER_WAIT",
    "AUTH_SIDECAR_REGISTER_PUT_BACK_FOR",
    "AUTH_SIDECAR_REGISTER_OUTPUT",
];

/// What both commands say at the end of their help.
const EXIT_CODES: &str = "\
A token may also be given in the environment variable AUTH_SIDECAR_OKAPI_TOKEN.

Exit codes:
  0  done, or there was nothing to do
  2  the command line is wrong
  3  refused: it cannot work like this, and nothing was changed
  4  Okapi cannot be reached, or lets us not do it; what had been changed was put back
  5  a check failed; what had been changed was put back
  6  something failed and not everything could be put back: look at it now
  7  interrupted by a signal; what had been changed was put back";

/// `register`: has Okapi ask the sidecar instead of mod-authtoken, without a moment in which nobody is asked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct RegisterArgs {
    #[command(flatten)]
    pub(super) okapi: OkapiArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Where Okapi finds the sidecar. In Okapi's own pod that is the loopback address: each pod then asks its own sidecar.
    #[arg(
        long,
        env = "AUTH_SIDECAR_REGISTER_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8071",
        value_parser = sidecar_url
    )]
    pub(super) url: String,
    /// Wait so long until every Okapi pod reaches its sidecar, and until Okapi answers at all (a rollout), e.g. 10m.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_WAIT", default_value = "0s", value_parser = duration)]
    pub(super) wait: Duration,
    /// Neither rehearse nor keep records in Okapi's discovery: for an Okapi that refuses entries of modules it does not know.
    #[arg(long)]
    pub(super) no_parking: bool,
}

/// `unregister`: has Okapi ask mod-authtoken itself again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct UnregisterArgs {
    #[command(flatten)]
    pub(super) okapi: OkapiArgs,
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// Put the direct entries back first: those that `register` has on record in Okapi's discovery, or the --direct-url ones.
    #[arg(long)]
    pub(super) restore: bool,
    /// Where mod-authtoken listens, in place of the record; may be given several times. Implies --restore.
    #[arg(
        long,
        env = "AUTH_SIDECAR_REGISTER_DIRECT_URL",
        hide_env_values = true,
        value_delimiter = ',',
        value_parser = direct_url
    )]
    pub(super) direct_url: Vec<String>,
}

/// How to reach Okapi, and as whom.
#[derive(Debug, clap::Args)]
pub(super) struct OkapiArgs {
    /// Okapi's address: that of its Service, so that all its pods are met.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_URL", hide_env_values = true, value_parser = okapi_url)]
    okapi_url: Url,
    /// More certificates to trust when that is https, in PEM form.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_CA_FILE")]
    okapi_ca_file: Option<PathBuf>,
    /// A token, by the environment alone: command lines can be seen by everybody.
    #[arg(
        long,
        env = "AUTH_SIDECAR_OKAPI_TOKEN",
        hide_env_values = true,
        hide = true
    )]
    okapi_token: Option<Secret>,
    /// A file that holds a token.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_TOKEN_FILE")]
    okapi_token_file: Option<PathBuf>,
    /// The user who logs in.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_USERNAME")]
    username: Option<String>,
    /// A file that holds the user's name.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_USERNAME_FILE")]
    username_file: Option<PathBuf>,
    /// A file that holds the user's password.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
    /// The tenant of that user or token.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_LOGIN_TENANT", default_value = "supertenant", value_parser = not_empty)]
    login_tenant: String,
    /// How long one answer of Okapi may take.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_TIMEOUT", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// How many Okapi pods there are. Without it Okapi's own list of nodes is counted.
    #[arg(long, env = "AUTH_SIDECAR_OKAPI_PODS", value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(super) okapi_pods: Option<u16>,
}

/// What both commands need to know of the entry and of the checks.
#[derive(Debug, clap::Args)]
pub(super) struct CommonArgs {
    /// The tenant for which real calls are made; the auth module must be enabled for it. Without it: the login tenant.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_TENANT")]
    tenant: Option<String>,
    /// The auth module's id, e.g. mod-authtoken-2.17.0; auto: the version enabled for --tenant, else the only one that runs.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_MODULE_ID", default_value = "auto")]
    module_id: String,
    /// The auth module's name, to look for its id.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_MODULE_NAME", default_value = "mod-authtoken", value_parser = not_empty)]
    pub(super) module_name: String,
    /// The instance id of the sidecar's entry. Without it: the module id followed by -auth-sidecar.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_INSTANCE_ID")]
    instance_id: Option<String>,
    /// What a real call asks for: GET of this path, without a token. Any answer of the auth module will do, be it a refusal.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_PROBE_PATH", default_value = "/_/proxy/health", value_parser = probe_path)]
    pub(super) probe_path: String,
    /// How many checks in a row must go well, at the least. With several Okapi pods more are made, so that each is met.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_SAMPLES", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) samples: u16,
    /// The pause between two health checks.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_SAMPLE_INTERVAL", default_value = "100ms", value_parser = duration)]
    pub(super) sample_interval: Duration,
    /// After a failure, how long it is tried to put everything back. In Kubernetes the grace period should be longer.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_PUT_BACK_FOR", default_value = "2m", value_parser = duration)]
    pub(super) put_back_for: Duration,
    /// Change nothing: say what would be done.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// How to say what was done. With json, one document on standard output; the lines that go along are on standard error.
    #[arg(long, env = "AUTH_SIDECAR_REGISTER_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub(super) output: Output,
}

/// How to say what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// Lines for people.
    Text,
    /// One document for programs.
    Json,
}

/// Why the command line cannot be used although each flag is well formed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgsError {
    /// A user or a password where everybody can see it.
    #[error("{0} holds a user or a password; give them apart, with --username and --password-file")]
    PasswordInUrl(&'static str),
    /// Two ways to say who asks.
    #[error(
        "a token and a user are given; give one of AUTH_SIDECAR_OKAPI_TOKEN, --okapi-token-file, or a user with --password-file"
    )]
    TokenAndUser,
    /// Two tokens.
    #[error("AUTH_SIDECAR_OKAPI_TOKEN and --okapi-token-file are both given; give one of them")]
    TwoTokens,
    /// Two names.
    #[error("--username and --username-file are both given; give one of them")]
    TwoNames,
    /// A user without a password, or the other way round.
    #[error(
        "a login needs a name (--username or --username-file) and --password-file; {0} is missing"
    )]
    HalfALogin(&'static str),
    /// A token that no header can carry.
    #[error("the token holds characters that no token has; it must be one word of ASCII")]
    NotAToken,
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl RegisterArgs {
    /// How to reach Okapi.
    pub(super) fn access(&self) -> Result<Access, ArgsError> {
        if holds_password(&self.url) {
            return Err(ArgsError::PasswordInUrl("--url"));
        }
        self.okapi.access()
    }
}

impl UnregisterArgs {
    /// How to reach Okapi.
    pub(super) fn access(&self) -> Result<Access, ArgsError> {
        if self.direct_url.iter().any(|url| holds_password(url)) {
            return Err(ArgsError::PasswordInUrl("--direct-url"));
        }
        self.okapi.access()
    }
}

impl OkapiArgs {
    /// Reads the files, and makes of all of it one way to reach Okapi.
    fn access(&self) -> Result<Access, ArgsError> {
        if holds_password(self.okapi_url.as_str()) {
            return Err(ArgsError::PasswordInUrl("--okapi-url"));
        }
        Ok(Access {
            url: self.okapi_url.clone(),
            ca_file: given(self.okapi_ca_file.as_ref()).cloned(),
            timeout: self.timeout,
            tenant: self.login_tenant.clone(),
            credentials: self.credentials()?,
        })
    }

    fn credentials(&self) -> Result<Credentials, ArgsError> {
        match (self.token()?, self.user()?) {
            (Some(_), Some(_)) => Err(ArgsError::TokenAndUser),
            (Some(token), None) => Ok(Credentials::Token(token)),
            (None, Some(user)) => Ok(user),
            (None, None) => Ok(Credentials::Nobody),
        }
    }

    fn token(&self) -> Result<Option<Secret>, ArgsError> {
        let value = self.okapi_token.clone().filter(|token| !token.is_empty());
        let token = match (value, given(self.okapi_token_file.as_ref())) {
            (Some(_), Some(_)) => return Err(ArgsError::TwoTokens),
            (Some(token), None) => token,
            (None, Some(path)) => Secret::new(read_value(path)?),
            (None, None) => return Ok(None),
        };
        if token.is_one_word() {
            Ok(Some(token))
        } else {
            Err(ArgsError::NotAToken)
        }
    }

    fn user(&self) -> Result<Option<Credentials>, ArgsError> {
        let name = self.username.as_ref().filter(|name| !name.is_empty());
        let name = match (name, given(self.username_file.as_ref())) {
            (Some(_), Some(_)) => return Err(ArgsError::TwoNames),
            (Some(name), None) => Some(name.clone()),
            (None, Some(path)) => Some(read_value(path)?),
            (None, None) => None,
        };
        match (name, given(self.password_file.as_ref())) {
            (Some(name), Some(path)) => Ok(Some(Credentials::User {
                name,
                password: Secret::new(read_value(path)?),
            })),
            (Some(_), None) => Err(ArgsError::HalfALogin("--password-file")),
            (None, Some(_)) => Err(ArgsError::HalfALogin("the name")),
            (None, None) => Ok(None),
        }
    }
}

impl CommonArgs {
    /// The module id that was asked for; `None`: look for it.
    pub(super) fn wanted_module(&self) -> Option<&str> {
        Some(self.module_id.as_str()).filter(|id| !id.is_empty() && *id != "auto")
    }

    /// The tenant for which real calls are made, when one was named.
    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|tenant| !tenant.is_empty())
    }

    /// The instance id of our entry.
    pub(super) fn instance(&self, module: &str) -> String {
        let wanted = self.instance_id.clone().filter(|id| !id.is_empty());
        wanted.unwrap_or_else(|| format!("{module}-auth-sidecar"))
    }
}

/// A chart may well set a variable to nothing; that is as good as not set.
fn given(path: Option<&PathBuf>) -> Option<&PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Commands {
        #[command(flatten)]
        register: RegisterArgs,
    }

    fn args(more: &[&str]) -> RegisterArgs {
        let line = ["register", "--okapi-url", "http://okapi:9130"]
            .iter()
            .chain(more);
        Commands::parse_from(line).register
    }

    #[test]
    fn every_environment_name_of_both_commands_is_on_the_list() {
        use clap::{Args as _, Command};

        let commands = [
            RegisterArgs::augment_args(Command::new("register")),
            UnregisterArgs::augment_args(Command::new("unregister")),
        ];
        let mut used: Vec<String> = commands
            .iter()
            .flat_map(Command::get_arguments)
            .filter_map(|arg| {
                arg.get_env()
                    .map(|name| name.to_string_lossy().into_owned())
            })
            .collect();
        used.sort();
        used.dedup();
        let mut listed: Vec<&str> = ENV_NAMES.to_vec();
        listed.sort_unstable();

        assert_eq!(used, listed);
    }

    #[test]
    fn the_instance_id_follows_the_module_id_unless_one_is_given() {
        let module = "mod-authtoken-2.17.0";

        assert_eq!(
            args(&[]).common.instance(module),
            "mod-authtoken-2.17.0-auth-sidecar"
        );
        assert_eq!(
            args(&["--instance-id", ""]).common.instance(module),
            "mod-authtoken-2.17.0-auth-sidecar"
        );
        assert_eq!(args(&["--instance-id", "x"]).common.instance(module), "x");
    }

    #[test]
    fn auto_and_nothing_both_mean_to_look_for_the_module() {
        assert_eq!(args(&[]).common.wanted_module(), None);
        assert_eq!(args(&["--module-id", ""]).common.wanted_module(), None);
        assert_eq!(
            args(&["--module-id", "m-1.0.0"]).common.wanted_module(),
            Some("m-1.0.0")
        );
    }

    #[test]
    fn one_way_to_say_who_asks_is_enough() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a.b.c\n").unwrap();
        let path = file.path().to_str().unwrap();

        let both = args(&[
            "--okapi-token-file",
            path,
            "--username",
            "u",
            "--password-file",
            path,
        ]);
        let half = args(&["--username", "u"]);
        let token = args(&["--okapi-token-file", path]);

        assert!(matches!(both.okapi.access(), Err(ArgsError::TokenAndUser)));
        assert!(matches!(half.okapi.access(), Err(ArgsError::HalfALogin(_))));
        let access = token.okapi.access().unwrap();
        assert!(matches!(access.credentials, Credentials::Token(_)));
        assert!(!format!("{access:?} {token:?}").contains("a.b.c"));
    }
}
