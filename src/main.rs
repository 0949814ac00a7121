//! The command line: `serve` (the default), `check`, `healthcheck`, `purge`, `register`, `unregister`.

use clap::{Parser, Subcommand};
use http::{Method, StatusCode};
use okapi_auth_sidecar::config::PREFIX;
use okapi_auth_sidecar::register::{self, RegisterArgs, UnregisterArgs};
use okapi_auth_sidecar::shutdown::Signals;
use okapi_auth_sidecar::{Config, Server, local, telemetry};
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

/// A third fewer cycles per hit than the system's: hyper takes a new read buffer for every head that is still looked at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A cache of decisions in front of FOLIO's mod-authtoken. Settings are environment variables; see the README.
#[derive(Parser)]
#[command(name = "okapi-auth-sidecar", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Address of the filter port; instead of `AUTH_SIDECAR_LISTEN`, for Okapi's own deployment, which replaces %p
    /// only on a command line
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    Serve,
    /// Check the settings and print those in force, secrets hidden
    Check,
    /// Exit with 0 if the process behind the admin port is alive
    Healthcheck {
        /// Base URL of another admin port than this container's own
        #[arg(long)]
        url: Option<String>,
    },
    /// Drop what is in the cache: everything, a tenant's, or a user's
    Purge {
        /// Only this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// Only this user (UUID) of the tenant
        #[arg(long, requires = "tenant")]
        user: Option<String>,
        /// Base URL of another admin port than this container's own
        #[arg(long)]
        url: Option<String>,
    },
    /// Put this service in front of mod-authtoken in Okapi's discovery
    Register(Box<RegisterArgs>),
    /// Take it out again
    Unregister(Box<UnregisterArgs>),
}

/// The settings are wrong, or the process cannot start.
const FAILURE: u8 = 1;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        None | Some(Command::Serve) => with_config(arguments.listen, serve),
        Some(Command::Check) => with_config(arguments.listen, |config| check(&config)),
        Some(Command::Healthcheck { url: Some(url) }) => healthcheck(&url),
        Some(Command::Healthcheck { url: None }) => with_config(arguments.listen, |config| {
            healthcheck(&local::own_url(config.admin_listen))
        }),
        Some(Command::Purge { tenant, user, url }) => with_config(arguments.listen, |config| {
            purge(&config, tenant.as_deref(), user.as_deref(), url)
        }),
        Some(Command::Register(arguments)) => block_on(register::register(
            *arguments,
            &mut std::io::stdout(),
            &mut std::io::stderr(),
        )),
        Some(Command::Unregister(arguments)) => block_on(register::unregister(
            *arguments,
            &mut std::io::stdout(),
            &mut std::io::stderr(),
        )),
    }
}

fn with_config(listen: Option<SocketAddr>, run: impl FnOnce(Config) -> ExitCode) -> ExitCode {
    let listen = listen.map(|address| (format!("{PREFIX}LISTEN"), address.to_string()));
    match Config::from_env_and(listen) {
        Ok(config) => run(config),
        Err(errors) => fail(&errors),
    }
}

fn serve(config: Config) -> ExitCode {
    telemetry::start(&config);
    let mut runtime = if config.worker_threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        threads.worker_threads(config.worker_threads);
        threads
    };
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(serve_until_signalled(config)),
        Err(error) => fail(&error),
    }
}

async fn serve_until_signalled(config: Config) -> ExitCode {
    // Before anything is bound: as PID 1 a process without handlers ignores SIGTERM.
    let signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return fail(&error),
    };
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::info!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
    let server = match Server::bind(config).await {
        Ok(server) => server,
        Err(error) => return fail(&error),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(follow(signals, stop));
    let stopped = async {
        let _ = stopped.await;
    };
    match server.run(stopped).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// The first signal stops the server in order, the second at once.
async fn follow(mut signals: Signals, stop: tokio::sync::oneshot::Sender<()>) {
    let signal = signals.next().await;
    tracing::info!(signal, "signalled");
    // The server may have ended by itself; then there is nobody to tell.
    let _ = stop.send(());
    let signal = signals.next().await;
    tracing::warn!(signal, "signalled again: ending at once");
    std::process::exit(i32::from(FAILURE))
}

fn check(config: &Config) -> ExitCode {
    let mut out = std::io::stdout().lock();
    for (name, value) in config.effective() {
        if writeln!(out, "{PREFIX}{name}={value}").is_err() {
            return ExitCode::from(FAILURE);
        }
    }
    ExitCode::SUCCESS
}

fn healthcheck(url: &str) -> ExitCode {
    match block_on(local::ask(url, Method::GET, "/health/live", None)) {
        Ok((StatusCode::OK, _)) => ExitCode::SUCCESS,
        Ok((status, text)) => fail(&format!("{url}/health/live: {status} {text}")),
        Err(error) => fail(&error),
    }
}

fn purge(
    config: &Config,
    tenant: Option<&str>,
    user: Option<&str>,
    url: Option<String>,
) -> ExitCode {
    let Some(token) = &config.admin_token else {
        return fail(
            &"AUTH_SIDECAR_ADMIN_TOKEN or AUTH_SIDECAR_ADMIN_TOKEN_FILE: wanted: the admin port's bearer token",
        );
    };
    let url = url.unwrap_or_else(|| local::own_url(config.admin_listen));
    let path = ["/cache"]
        .into_iter()
        .map(str::to_owned)
        .chain(
            [tenant, user]
                .into_iter()
                .flatten()
                .map(local::path_segment),
        )
        .collect::<String>();
    match block_on(local::ask(
        &url,
        Method::DELETE,
        &path,
        Some(token.reveal()),
    )) {
        Ok((StatusCode::NO_CONTENT, _)) => ExitCode::SUCCESS,
        Ok((status, text)) => fail(&format!("{url}{path}: {status} {text}")),
        Err(error) => fail(&error),
    }
}

/// A runtime for one question.
fn block_on<T>(question: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a thread can wait for one connection")
        .block_on(question)
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    // Standard error may be closed; the exit code still tells.
    let _ = writeln!(std::io::stderr(), "okapi-auth-sidecar: {error}");
    ExitCode::from(FAILURE)
}
