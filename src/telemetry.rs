//! The log: its filter and its format. Nothing is logged per request above debug, and no token at any level.

use crate::config::{Config, LogFormat};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging to standard output, once per process; a second call changes nothing.
pub fn start(config: &Config) {
    let filter = EnvFilter::try_new(&config.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(true);
    let started = match config.log_format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(std::io::stdout().is_terminal()).try_init(),
    };
    if started.is_err() {
        tracing::debug!("the log was started before");
    }
}
