//! The log: its filter and its format. Nothing is logged per request above debug, and no token at any level.

use crate::config::{Config, LogFormat};
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging to standard output, once per process; a second call changes nothing.
pub fn start(config: &Config) {
    let filter = config.log.parse();
    let filter = filter.unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let log = tracing_subscriber::registry().with(filter);
    let started = match config.log_format {
        LogFormat::Json => log.with(fmt::layer().json().flatten_event(true)).try_init(),
        LogFormat::Text => {
            let colours = std::io::stdout().is_terminal();
            log.with(fmt::layer().with_ansi(colours)).try_init()
        }
    };
    if started.is_err() {
        tracing::debug!("the log was started before");
    }
}
