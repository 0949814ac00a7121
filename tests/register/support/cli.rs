//! The binary under test, and the shell scripts that do the same.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::okapi::Okapi;

/// No run takes longer; a hanging one must not hang the tests.
const AT_MOST: Duration = Duration::from_mins(1);

/// A command line.
#[derive(Debug)]
pub(crate) struct Cli {
    command: Command,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The document of `--output json`.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.all()))
    }

    /// Everything it said.
    pub(crate) fn all(&self) -> String {
        format!("code {}\n{}{}", self.code, self.stdout, self.stderr)
    }

    /// Fails unless it ended with this code.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.all());
        self
    }

    /// Fails unless it said all of this.
    #[track_caller]
    pub(crate) fn saying(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(
                self.all().contains(part),
                "{part:?} is not in {}",
                self.all()
            );
        }
        self
    }
}

impl Cli {
    /// `register` for tenant `diku`, quick.
    pub(crate) fn register(okapi: &Okapi) -> Self {
        Self::new("register", okapi)
    }

    /// `unregister` for tenant `diku`, quick.
    pub(crate) fn unregister(okapi: &Okapi) -> Self {
        Self::new("unregister", okapi)
    }

    fn new(name: &str, okapi: &Okapi) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_okapi-auth-sidecar"));
        command.arg(name);
        // By the environment, so that a test may say something else on the command line.
        Self::of(command)
            .env("AUTH_SIDECAR_OKAPI_URL", &okapi.url())
            .env("AUTH_SIDECAR_REGISTER_TENANT", "diku")
            .env("AUTH_SIDECAR_REGISTER_SAMPLE_INTERVAL", "1ms")
    }

    /// Any other command, with a clean environment.
    pub(crate) fn of(mut command: Command) -> Self {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Self { command }
    }

    pub(crate) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) async fn run(self) -> Ended {
        ended(self.start()).await
    }

    pub(crate) fn start(mut self) -> Child {
        self.command.spawn().unwrap()
    }
}

/// Waits for its end.
pub(crate) async fn ended(child: Child) -> Ended {
    let output: Output = tokio::time::timeout(AT_MOST, child.wait_with_output())
        .await
        .expect("it must end by itself")
        .unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Sends a signal to a process that this test started.
pub(crate) async fn send_signal(child: &Child, signal: &str) {
    let pid = child.id().expect("it is still running").to_string();
    let sent = Command::new("kill")
        .args(["-s", signal, &pid])
        .status()
        .await
        .unwrap();
    assert!(sent.success());
}
