//! How each kind of setting is written: durations and sizes carry units.

use super::{LogFormat, UpstreamUrl};
use crate::invalidation::hold::UpstreamRefresh;
use crate::key::KeyScope;
use http::Uri;
use http::uri::Scheme;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing_subscriber::filter::Targets;

/// The longest life of a decision.
const LONGEST_LIFE: Duration = Duration::from_mins(10);
/// The longest any duration may be: beyond a day it is a typing error.
const LONGEST: Duration = Duration::from_hours(24);
/// The smallest cache.
const LEAST_BYTES: u64 = 1 << 20;
/// The largest cache: beyond it, it is a typing error.
const MOST_BYTES: u64 = 1 << 40;

const DURATION: &str = "a whole number with a unit (ms, s, m or h), such as 60s, at most 24h";

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let parsed = units.iter().find_map(|(unit, millis)| {
        let number = text.strip_suffix(unit)?;
        let number: u64 = number
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| number.parse().ok())??;
        Some(Duration::from_millis(number.checked_mul(*millis)?))
    });
    parsed
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| DURATION.to_owned())
}

pub(super) fn parse_life(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok()
        .filter(|life| *life <= LONGEST_LIFE)
        .ok_or_else(|| "a whole number with a unit, such as 60s, from 0s to 10m".to_owned())
}

pub(super) fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok()
        .filter(|timeout| !timeout.is_zero())
        .ok_or_else(|| format!("{DURATION} and more than 0s"))
}

pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    parse_duration(text).map(|duration| crate::clock::millis(duration.as_millis()))
}

pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a number from 0 to 1, such as 0.1".to_owned())
}

pub(super) fn parse_cache_bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let parsed = units.iter().find_map(|(unit, shift)| {
        let number = text.strip_suffix(unit)?;
        let number: u64 = number
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| number.parse().ok())??;
        number.checked_mul(1 << shift)
    });
    parsed
        .filter(|bytes| (LEAST_BYTES..=MOST_BYTES).contains(bytes))
        .ok_or_else(|| {
            "a whole number with KiB, MiB or GiB, such as 64MiB, at least 1MiB".to_owned()
        })
}

pub(super) fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

pub(super) fn parse_refresh(text: &str) -> Result<UpstreamRefresh, String> {
    match text {
        "one" => Ok(UpstreamRefresh::One),
        "many" => Ok(UpstreamRefresh::Many),
        "off" => Ok(UpstreamRefresh::Off),
        _ => Err("one, many or off".to_owned()),
    }
}

pub(super) fn parse_key_scope(text: &str) -> Result<KeyScope, String> {
    match text {
        "permissions" => Ok(KeyScope::Permissions),
        "request" => Ok(KeyScope::Request),
        _ => Err("permissions or request".to_owned()),
    }
}

pub(super) fn parse_log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("json or text".to_owned()),
    }
}

pub(super) fn parse_log(text: &str) -> Result<String, String> {
    text.parse::<Targets>()
        .map(|_| text.to_owned())
        .map_err(|_| "a filter such as info or okapi_auth_sidecar=debug,warn".to_owned())
}

pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "an IP address and a port, such as 127.0.0.1:8071 or [::1]:8071".to_owned())
}

pub(super) fn parse_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match std::fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(format!("a file that can be read ({error})")),
    }
}

pub(super) fn parse_secret(text: &str) -> Result<String, String> {
    // What RFC 6750, 2.1 allows in a bearer token, and long enough not to be guessed.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if text.len() >= 16 && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err("at least 16 letters, digits or -._~+/=".to_owned())
    }
}

pub(super) fn parse_tenants(text: &str) -> Result<usize, String> {
    parse_count(text, 0, 1_000)
}

pub(super) fn parse_report(text: &str) -> Result<usize, String> {
    parse_count(text, 0, 10_000)
}

pub(super) fn parse_threads(text: &str) -> Result<usize, String> {
    parse_count(text, 1, 64)
}

fn parse_count(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let count: Option<usize> = text.parse().ok();
    count
        .filter(|count| (least..=most).contains(count))
        .ok_or_else(|| format!("a whole number from {least} to {most}"))
}

pub(super) fn parse_upstream(text: &str) -> Result<UpstreamUrl, String> {
    let wanted = || {
        "scheme http or https, host and port and nothing else, such as http://mod-authtoken:8081"
            .to_owned()
    };
    let uri: Uri = text.parse().map_err(|_| wanted())?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(wanted());
    };
    let known = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
    let bare =
        parts.path_and_query.is_none_or(|path| path == "/") && !authority.as_str().contains('@');
    // The address parser reads a port of any size as text.
    let port = authority
        .as_str()
        .rsplit_once(':')
        .is_none_or(|(host, port)| {
            authority.port_u16().is_some_and(|port| port != 0)
                || host.starts_with('[') && port.ends_with(']')
        });
    let named = !authority.host().is_empty();
    // `#` and `?` end what the parser keeps, so they are looked for in what was written.
    if known && bare && port && named && !text.contains(['#', '?']) {
        Ok(UpstreamUrl { scheme, authority })
    } else {
        Err(wanted())
    }
}

pub(super) fn duration(duration: Duration) -> String {
    millis(crate::clock::millis(duration.as_millis()))
}

pub(super) fn millis(millis: u64) -> String {
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ => format!("{}KiB", bytes >> 10),
    }
}
