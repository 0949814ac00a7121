//! Values of the command line. Each error names what was wrong and what would be right; clap puts flag and value in front.

use std::time::Duration;

use crate::config::units::parse_duration;
use crate::okapi::Url;

/// A duration, written as in the settings.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|wanted| format!("a duration is {wanted}"))
}

/// Okapi's address; a path in front of Okapi's own is allowed.
pub(super) fn okapi_url(text: &str) -> Result<Url, String> {
    http_url(text)
}

/// The sidecar's address, without the slash at the end that Okapi would keep and double.
pub(super) fn sidecar_url(text: &str) -> Result<String, String> {
    let url = http_url(text)?;
    if url.path() != "/" {
        let base = text.strip_suffix(url.path()).unwrap_or(text);
        return Err(format!("the sidecar has no path of its own; say {base}"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// mod-authtoken's address, exactly as Okapi is to be told.
pub(super) fn direct_url(text: &str) -> Result<String, String> {
    http_url(text)?;
    Ok(text.trim_end_matches('/').to_owned())
}

/// What a real call asks for.
pub(super) fn probe_path(text: &str) -> Result<String, String> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.starts_with('/') && plain {
        Ok(text.to_owned())
    } else {
        Err("a path begins with / and holds neither blanks nor #: /_/proxy/health".to_owned())
    }
}

/// Any text, but some.
pub(super) fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("there must be something".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Whether an address holds a user or a password. Addresses are shown and stored, so they have no place in one. Not checked
/// with the rest: clap shows the value that it refuses.
pub(super) fn holds_password(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
}

fn http_url(text: &str) -> Result<Url, String> {
    let url =
        Url::parse(text).map_err(|error| format!("{error}; an address is http://host:port"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("an address begins with http:// or https:// and names a host".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("an address has neither ? nor #".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_an_end() {
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("150ms"), Ok(Duration::from_millis(150)));
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        for wrong in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 m",
            "25h",
            "99999999999999999999s",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_slash_at_the_end_is_dropped_and_a_path_refused() {
        assert_eq!(
            sidecar_url("http://127.0.0.1:8071/"),
            Ok("http://127.0.0.1:8071".to_owned())
        );
        assert_eq!(
            sidecar_url("http://Sidecar:8071"),
            Ok("http://Sidecar:8071".to_owned())
        );
        let path = sidecar_url("http://127.0.0.1:8071/auth").unwrap_err();
        assert!(path.contains("http://127.0.0.1:8071"), "{path}");
        assert_eq!(
            direct_url("http://proxy/auth/"),
            Ok("http://proxy/auth".to_owned())
        );
    }

    #[test]
    fn an_address_is_http_and_nothing_more() {
        for wrong in [
            "okapi:9130",
            "ftp://okapi",
            "http://okapi?x=1",
            "http://okapi#x",
            "",
        ] {
            assert!(okapi_url(wrong).is_err(), "{wrong}");
        }
        assert!(okapi_url("https://folio.example.org/okapi").is_ok());
    }

    #[test]
    fn a_password_in_an_address_is_seen() {
        assert!(holds_password("http://user:hunter2@okapi"));
        assert!(holds_password("http://user@okapi"));
        assert!(!holds_password("http://okapi:9130"));
    }

    #[test]
    fn a_probe_path_is_a_path() {
        assert!(probe_path("/users?limit=1").is_ok());
        for wrong in ["users", "", "/a b", "/a#b"] {
            assert!(probe_path(wrong).is_err(), "{wrong}");
        }
    }
}
