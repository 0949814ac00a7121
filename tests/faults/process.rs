//! The sidecar as a process of its own, looked at from outside: its ports, its metrics, its entry in `/proc`.
//!
//! For what cannot be seen in a shared process: limits, signals, memory, file descriptors. Only ever ends what it started.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "both binaries that include this use another part of it"
)]

use super::support::raw::{self, Answer, Request};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The admin port's bearer token.
pub const ADMIN_TOKEN: &str = "0123456789abcdef";

/// How long a process may take to answer for the first time, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// A running sidecar; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its filter port.
    pub addr: SocketAddr,
    /// Its admin port.
    pub admin: SocketAddr,
}

impl Process {
    /// Starts `binary` with these settings (names without prefix) in front of `upstream`, and waits until it is alive.
    /// With `open_files`, that is its hard limit.
    pub async fn start(
        binary: &Path,
        upstream: &str,
        settings: &[(&str, &str)],
        open_files: Option<u32>,
    ) -> Self {
        let (addr, admin) = (free_port(), free_port());
        let (listen, admin_listen) = (addr.to_string(), admin.to_string());
        let base = [
            ("UPSTREAM_URL", upstream),
            ("LISTEN", &listen),
            ("ADMIN_LISTEN", &admin_listen),
            ("ADMIN_TOKEN", ADMIN_TOKEN),
            ("CACHE_TTL_JITTER", "0"),
            ("WORKER_THREADS", "2"),
            ("LOG", "off"),
        ];
        let mut command = match open_files {
            None => Command::new(binary),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell
                    .arg("-c")
                    .arg(format!("ulimit -n {limit} && exec \"$0\""))
                    .arg(binary);
                shell
            }
        };
        command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        for (name, value) in base.iter().chain(settings) {
            command.env(format!("AUTH_SIDECAR_{name}"), value);
        }
        let child = command.spawn().expect("the sidecar's binary starts");
        let mut process = Self { child, addr, admin };
        process.alive().await;
        process
    }

    async fn alive(&mut self) {
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("the sidecar ended before it served: {status}");
            }
            let answer = self.try_admin("GET", "/health/live").await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the sidecar does not become alive");
    }

    /// Asks the admin port, with the bearer token.
    pub async fn try_admin(&self, method: &str, path: &str) -> io::Result<Answer> {
        let mut request = Request::new(method, path);
        request.headers.push("Host", "sidecar");
        request
            .headers
            .push("Authorization", format!("Bearer {ADMIN_TOKEN}"));
        raw::ask(self.admin, &request).await
    }

    /// `/metrics`.
    pub async fn metrics(&self) -> Exposition {
        let answer = self.try_admin("GET", "/metrics").await;
        Exposition(answer.expect("metrics").text().to_owned())
    }

    /// Waits until a series has this value; false if it does not come to that in time.
    pub async fn comes_to(&self, series: &str, value: f64, within: Duration) -> bool {
        for _ in 0..=within.as_millis() / PAUSE.as_millis() {
            if (self.metrics().await.value(series) - value).abs() < 0.5 {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory, in KiB.
    pub fn resident(&self) -> u64 {
        self.number("status", "VmRSS:")
    }

    /// The part of it that is no file's: what the process itself has written. In KiB.
    pub fn written(&self) -> u64 {
        self.number("status", "RssAnon:")
    }

    /// Resident memory in which a page counts by the share of those who have it mapped, in KiB.
    pub fn proportional(&self) -> u64 {
        self.number("smaps_rollup", "Pss:")
    }

    /// Its threads.
    pub fn threads(&self) -> u64 {
        self.number("status", "Threads:")
    }

    fn number(&self, file: &str, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/{file}", self.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.expect("a line of /proc").split_whitespace().next();
        number.expect("a number").parse().expect("a number")
    }

    /// Its open file descriptors.
    pub fn open_files(&self) -> usize {
        let listed = std::fs::read_dir(format!("/proc/{}/fd", self.id()));
        listed.expect("it runs").count()
    }

    /// Sends it SIGTERM.
    pub fn signal(&self) {
        self.kill("-TERM");
    }

    /// Sends it a signal, such as `-STOP`.
    pub fn kill(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.id().to_string()])
            .status();
        assert!(status.expect("kill").success(), "the sidecar is gone");
    }

    /// Waits until it has ended; `None` if it does not.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return Some(status);
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of `/metrics`.
#[derive(Debug)]
pub struct Exposition(String);

impl Exposition {
    /// The value of one series, named as it is exposed; 0 if it is not there.
    pub fn value(&self, series: &str) -> f64 {
        self.sum_of(|line| {
            line.strip_prefix(series)
                .is_some_and(|rest| rest.starts_with(' '))
        })
    }

    /// The sum of all series whose names and labels start like this.
    pub fn sum(&self, start: &str) -> f64 {
        self.sum_of(|line| line.starts_with(start))
    }

    fn sum_of(&self, wanted: impl Fn(&str) -> bool) -> f64 {
        let lines = self.0.lines().filter(|line| wanted(line));
        let values = lines.filter_map(|line| line.rsplit(' ').next());
        values
            .map(|value| value.parse::<f64>().expect("a number"))
            .sum()
    }
}

/// A port that nobody listens on right now.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address")
}
