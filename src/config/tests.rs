use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    Config::from_pairs(
        pairs
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned())),
    )
}

fn with(name: &str, value: &str) -> Result<Config, ConfigErrors> {
    read(&[("UPSTREAM_URL", "http://a:1"), (name, value)])
}

#[test]
fn the_upstream_alone_is_enough_and_the_defaults_are_as_documented() {
    let config = read(&[("UPSTREAM_URL", "http://mod-authtoken:8081")]).unwrap();

    for (name, value) in config.effective() {
        let documented = SETTINGS
            .iter()
            .find(|(known, ..)| *known == name)
            .unwrap()
            .1;
        match name {
            "UPSTREAM_URL" => assert_eq!(value, "http://mod-authtoken:8081"),
            "WORKER_THREADS" => assert_eq!(value, default_threads().to_string()),
            "UPSTREAM_USER_CACHE" | "UPSTREAM_PERMISSION_CACHE" | "CACHE_TTL" => {
                assert_eq!((value.as_str(), documented), ("1m", "60s"));
            }
            "UPSTREAM_PASSTHROUGH_TIMEOUT" => {
                assert_eq!((value.as_str(), documented), ("2m", "120s"));
            }
            _ => assert_eq!(value, documented, "{name}"),
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once_with_name_value_and_what_is_right() {
    let errors = read(&[
        ("CACHE_TTL", "60"),
        ("CACHE_MAX_BYTES", "64MB"),
        ("CACHE_TLT", "1s"),
        ("ADMIN_TOKEN", "short-secret"),
        ("REVOCATION_UPSTREAM_REFRESH", "two"),
    ])
    .unwrap_err();
    let told = errors.to_string();

    assert_eq!(errors.0.len(), 6, "{told}");
    for line in [
        "AUTH_SIDECAR_CACHE_TTL: '60' is wrong; wanted: a whole number with a unit, such as 60s, from 0s to 10m",
        "AUTH_SIDECAR_CACHE_MAX_BYTES: '64MB' is wrong; wanted: a whole number with KiB, MiB or GiB",
        "AUTH_SIDECAR_CACHE_TLT: wanted: a known setting; the nearest is AUTH_SIDECAR_CACHE_TTL",
        "AUTH_SIDECAR_ADMIN_TOKEN: '(hidden)' is wrong",
        "AUTH_SIDECAR_REVOCATION_UPSTREAM_REFRESH: 'two' is wrong; wanted: one, many or off",
        "AUTH_SIDECAR_UPSTREAM_URL: wanted: mod-authtoken's base URL",
    ] {
        assert!(told.contains(line), "{line}\n--\n{told}");
    }
    assert!(!told.contains("short-secret"));
}

#[test]
fn values_of_every_kind_are_refused_when_they_are_wrong() {
    for (name, value) in [
        ("UPSTREAM_URL", "mod-authtoken:8081"),
        ("UPSTREAM_URL", "ftp://a:1"),
        ("UPSTREAM_URL", "http://a:1/path"),
        ("UPSTREAM_URL", "http://a:1?x"),
        ("UPSTREAM_URL", "http://a:1#x"),
        ("UPSTREAM_URL", "http://u:p@a:1"),
        ("UPSTREAM_URL", "http://a:99999"),
        ("UPSTREAM_URL", "http://a:"),
        ("UPSTREAM_URL", "http://:80"),
        ("UPSTREAM_URL", "http://127.0.0.1:8071"),
        ("LISTEN", "8071"),
        ("LISTEN", "localhost:8071"),
        ("ADMIN_LISTEN", "0.0.0.0:8071"),
        ("CACHE_TTL", "11m"),
        ("CACHE_TTL", "-1s"),
        ("CACHE_TTL", "1.5s"),
        ("CACHE_TTL", "+1s"),
        ("CACHE_TTL", "60 s"),
        ("CACHE_TTL_JITTER", "1.1"),
        ("CACHE_TTL_JITTER", "NaN"),
        ("CACHE_REFRESH_AHEAD", "-0.1"),
        ("CACHE_MAX_BYTES", "1023KiB"),
        ("CACHE_MAX_BYTES", "9999999999GiB"),
        ("CACHE_KEY_SCOPE", "path"),
        ("CACHE_STALE_IF_ERROR", "1h"),
        ("REVOCATION_LISTEN", "yes"),
        ("UPSTREAM_TIMEOUT", "0s"),
        ("UPSTREAM_CONNECT_TIMEOUT", "soon"),
        ("UPSTREAM_CONNECTION_MAX_AGE", "0s"),
        ("UPSTREAM_CA_FILE", "/does/not/exist.pem"),
        ("ADMIN_TOKEN_FILE", "/does/not/exist"),
        ("ADMIN_TOKEN", "with spaces in it, long"),
        ("METRICS_TENANTS", "-1"),
        ("WORKER_THREADS", "0"),
        ("LOG", "in=fo=x"),
        ("LOG_FORMAT", "xml"),
        ("CONFIG", "/does/not/exist.toml"),
    ] {
        let errors = with(name, value)
            .err()
            .unwrap_or_else(|| panic!("{name}={value} was accepted"));

        assert!(
            errors.to_string().contains(&format!("{PREFIX}{name}")),
            "{errors}"
        );
    }
}

#[test]
fn variables_that_kubernetes_injects_are_not_ours() {
    let config = read(&[
        ("UPSTREAM_URL", "http://a:1"),
        ("PORT", "tcp://10.0.0.1:8071"),
        ("PORT_8071_TCP_ADDR", "10.0.0.1"),
        ("SERVICE_HOST", "10.0.0.1"),
    ]);

    assert!(config.is_ok(), "{config:?}");
    assert!(with("PORTS", "1").is_err());
}

#[test]
fn a_file_comes_before_the_environment() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "upstream_url = \"http://a:1\"\ncache_ttl = \"30s\"\nmetrics_tenants = 7\nrevocation_listen = false\n",
    )
    .unwrap();

    let config = read(&[
        ("CONFIG", file.path().to_str().unwrap()),
        ("CACHE_TTL", "5s"),
    ])
    .unwrap();

    assert_eq!(config.life.ttl, Duration::from_secs(5));
    assert_eq!(config.metrics_tenants, 7);
    assert!(!config.revocation_listen);
}

#[test]
fn unknown_names_and_broken_syntax_in_the_file_are_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let told = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        with("CONFIG", file.path().to_str().unwrap())
            .unwrap_err()
            .to_string()
    };

    assert!(told("cache_tll = \"1s\"").contains("cache_tll in"));
    assert!(told("cache_ttl = ").contains("AUTH_SIDECAR_CONFIG"));
    assert!(told("cache_ttl = 60").contains("AUTH_SIDECAR_CACHE_TTL: '60' is wrong"));
}

#[test]
fn a_secret_is_read_from_a_file_and_never_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0123456789abcdef\n").unwrap();

    let config = with("ADMIN_TOKEN_FILE", file.path().to_str().unwrap()).unwrap();

    assert_eq!(
        config.admin_token.as_ref().unwrap().as_bytes(),
        b"0123456789abcdef"
    );
    assert!(!format!("{config:?}{:?}", config.effective()).contains("0123456789abcdef"));
}

#[test]
fn a_numeric_secret_stays_text() {
    let config = with("ADMIN_TOKEN", "1234567890123456").unwrap();

    assert_eq!(config.admin_token.unwrap().reveal(), "1234567890123456");
}

#[test]
fn an_upstream_may_be_a_name_or_an_address_of_either_family() {
    for (given, authority) in [
        ("http://mod-authtoken", "mod-authtoken"),
        ("http://mod-authtoken/", "mod-authtoken"),
        ("https://[::1]:8443", "[::1]:8443"),
        ("http://[::1]", "[::1]"),
        ("http://127.0.0.1:8081", "127.0.0.1:8081"),
    ] {
        let config =
            read(&[("UPSTREAM_URL", given)]).unwrap_or_else(|errors| panic!("{given}: {errors}"));

        assert_eq!(config.upstream_url.authority.as_str(), authority);
    }
}

/// What is told of a file with this text.
fn told_of(text: &str) -> String {
    use std::io::Write as _;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    with("CONFIG", file.path().to_str().unwrap())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_broken_file_is_told_by_its_line_number_and_not_by_its_text() {
    let told = told_of("cache_ttl = \"60s\"\nadmin_token = \"0123456789abcdef\n");

    assert!(
        told.contains("a TOML file (") && told.contains("line 2"),
        "{told}"
    );
    assert!(!told.contains("0123456789"), "{told}");
}

#[test]
fn a_name_in_upper_case_in_a_file_is_refused_and_not_overlooked() {
    let told = told_of("CACHE_TTL = \"1s\"\n");

    assert!(told.contains("CACHE_TTL in /"), "{told}");
    assert!(told.contains("the nearest is cache_ttl"), "{told}");
}

#[test]
fn a_password_in_the_upstream_s_address_is_refused_and_not_shown() {
    let told = with("UPSTREAM_URL", "http://me:secret@mod-authtoken:8081")
        .unwrap_err()
        .to_string();

    assert!(told.contains("UPSTREAM_URL: '(hidden)' is wrong"), "{told}");
}
