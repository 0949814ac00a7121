//! The real binary as a process of its own, with settings from its environment.

use crate::support::standin::Standin;
use std::net::SocketAddr;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Waiting longer than this for a process fails the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// The command with nothing but these settings (names without prefix) in its environment.
fn command(arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_okapi-auth-sidecar"));
    command
        .args(arguments)
        .env_clear()
        .envs(
            settings
                .iter()
                .map(|(name, value)| (format!("AUTH_SIDECAR_{name}"), value)),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub(crate) async fn run(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let output = command(arguments, settings).output();
    timeout(PATIENCE, output)
        .await
        .expect("it ends by itself")
        .expect("it starts")
}

/// A serving process. Dropped, it is killed.
pub(crate) struct Program {
    pub(crate) filter: SocketAddr,
    pub(crate) admin: SocketAddr,
    child: Child,
    log: JoinHandle<String>,
    errors: JoinHandle<String>,
}

impl Program {
    /// Starts one in front of the stand-in, on ports of its own, and waits until it serves.
    pub(crate) async fn serve(standin: &Standin, settings: &[(&str, &str)]) -> Self {
        let url = standin.url();
        let mut all = vec![
            ("UPSTREAM_URL", url.as_str()),
            ("LISTEN", "127.0.0.1:0"),
            ("ADMIN_LISTEN", "127.0.0.1:0"),
            ("LOG_FORMAT", "json"),
        ];
        all.extend(settings);
        let mut child = command(&["serve"], &all).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut errors = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut before = String::new();
        let (filter, admin) = loop {
            let line = timeout(PATIENCE, lines.next_line())
                .await
                .expect("a line in time");
            let line = line.expect("text").expect("it goes on");
            before.push_str(&line);
            before.push('\n');
            if line.contains("serving") {
                break (address(&line, "filter"), address(&line, "admin"));
            }
        };
        let log = tokio::spawn(async move {
            let mut log = before;
            while let Ok(Some(line)) = lines.next_line().await {
                log.push_str(&line);
                log.push('\n');
            }
            log
        });
        let errors = tokio::spawn(async move {
            let mut all = String::new();
            while let Ok(Some(line)) = errors.next_line().await {
                all.push_str(&line);
                all.push('\n');
            }
            all
        });
        Self {
            filter,
            admin,
            child,
            log,
            errors,
        }
    }

    /// Sends it SIGTERM.
    pub(crate) async fn terminate(&self) {
        let pid = self.child.id().expect("it still runs");
        // A shell's own `kill`: there may be no program of that name.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -TERM {pid}")])
            .status()
            .await;
        assert!(sent.expect("a shell").success());
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let status = timeout(PATIENCE, self.child.wait()).await;
        status.expect("it ends").expect("it can be waited for")
    }

    /// Waits for its end; its log, and what it said on standard error.
    pub(crate) async fn output(mut self) -> (ExitStatus, String, String) {
        let status = self.ended().await;
        let log = self.log.await.expect("the log is read to its end");
        let errors = self.errors.await.expect("and so are the errors");
        (status, log, errors)
    }
}

/// An address in a line of the log, JSON (`"filter":"127.0.0.1:1"`) or text (`filter=127.0.0.1:1`).
fn address(line: &str, name: &str) -> SocketAddr {
    let (_, rest) = line.split_once(name).expect("its name");
    let text = rest.trim_start_matches(['"', ':', '=']);
    let end = text.find(['"', ' ']).unwrap_or(text.len());
    text[..end].parse().expect("an address")
}
