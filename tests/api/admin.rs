//! The admin port and the commands that ask it: health, metrics, looking at the cache, purging, settings.

use crate::harness::{ADMIN_TOKEN, LOANS, Sidecar, loans, pair};
use crate::program::{self, Program};
use crate::support::raw::{self, Answer, Request};
use crate::support::standin::call::FilterCall;
use crate::support::standin::{DESK, MUELLER, Options, Standin};
use crate::upstream::nobody;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

const GUARDED: [(&str, &str); 4] = [
    ("GET", "/cache"),
    ("DELETE", "/cache"),
    ("DELETE", "/cache/diku"),
    ("DELETE", "/cache/diku/11111111-1111-4111-8111-111111111111"),
];

/// A sidecar with an admin token, and decisions of two users in `diku` and of one in `college`.
async fn stocked() -> (Standin, Sidecar, [FilterCall; 3]) {
    let (standin, sidecar) = pair(&[("ADMIN_TOKEN", ADMIN_TOKEN)]).await;
    let calls = [
        loans(&standin.access_token("diku", DESK)),
        loans(&standin.access_token("diku", MUELLER)),
        loans(&standin.access_token("college", DESK)).tenant("college"),
    ];
    for call in &calls {
        assert!(!sidecar.hits(&standin, call).await);
        assert!(sidecar.hits(&standin, call).await);
    }
    (standin, sidecar, calls)
}

async fn which_hit(standin: &Standin, sidecar: &Sidecar, calls: &[FilterCall]) -> Vec<bool> {
    let mut hits = Vec::new();
    for call in calls {
        hits.push(sidecar.hits(standin, call).await);
    }
    hits
}

/// With any headers, in order.
async fn with_headers(
    sidecar: &Sidecar,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut request = Request::new(method, path);
    request.headers.push("Host", "sidecar");
    for (name, value) in headers {
        request.headers.push(*name, value);
    }
    raw::ask(sidecar.admin, &request).await.expect("an answer")
}

#[tokio::test]
async fn the_health_endpoints_say_that_it_lives_and_is_ready() {
    let (standin, sidecar) = pair(&[]).await;
    for path in ["/health/live", "/health/ready", "/admin/health"] {
        let answer = sidecar.admin("GET", path, None).await;
        assert_eq!((answer.status, answer.text()), (200, "OK"), "{path}");
        assert_eq!(
            sidecar.admin("HEAD", path, None).await.status,
            200,
            "{path}"
        );
        assert_eq!(
            sidecar.admin("POST", path, None).await.status,
            405,
            "{path}"
        );
    }
    // All Okapi's pods would become unready with the auth module, at the same moment.
    drop(standin);
    assert_eq!(
        sidecar.admin("GET", "/health/ready", None).await.status,
        200
    );
}

/// Filter calls carry any path.
#[tokio::test]
async fn the_filter_port_answers_nothing_of_its_own() {
    let (standin, sidecar) = pair(&[("ADMIN_TOKEN", ADMIN_TOKEN)]).await;
    let bearer = format!("Bearer {ADMIN_TOKEN}");
    let mut asked = 0;
    for (method, path) in [
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/admin/health"),
        ("GET", "/metrics"),
        ("GET", "/requests"),
        ("GET", "/cache"),
        ("DELETE", "/cache"),
        ("DELETE", "/cache/diku"),
        ("OPTIONS", "/users"),
        ("GET", "/"),
        ("GET", "/favicon.ico"),
    ] {
        let mut plain = Request::new(method, path);
        plain.headers.push("Authorization", &bearer);
        for request in [
            plain,
            FilterCall::new(method, path).token("h.p.s").request(),
            FilterCall::new(method, path).required(&[LOANS]).request(),
        ] {
            let answer = sidecar.send(&request).await;

            asked += 1;
            assert_eq!(
                standin.calls().total,
                asked,
                "{method} {path} is the auth module's"
            );
            let healthy = path == "/admin/health";
            assert_eq!(
                answer.status,
                if healthy { 200 } else { answer.status.max(400) }
            );
        }
    }
    assert_eq!(sidecar.sum("auth_sidecar_purges_total{").await, 0.0);
}

#[tokio::test]
async fn the_admin_port_answers_no_filter_call() {
    let (standin, sidecar) = pair(&[("ADMIN_TOKEN", ADMIN_TOKEN)]).await;
    let token = standin.access_token("diku", DESK);
    let call = FilterCall::get("/circulation/loans").token(&token);
    assert!(!sidecar.hits(&standin, &call).await);

    for (method, path) in [
        ("GET", "/circulation/loans"),
        ("GET", "/"),
        ("POST", "/token/sign"),
        ("POST", "/_/tenant"),
        ("GET", "/health"),
        ("GET", "/health/live/"),
        ("GET", "/metrics/x"),
        ("GET", "//health/live"),
    ] {
        let request = FilterCall::new(method, path).token(&token).request();
        let answer = raw::ask(sidecar.admin, &request).await.unwrap();

        assert_eq!(answer.status, 404, "{method} {path}");
        assert!(answer.okapi_headers().is_empty());
    }
    assert_eq!(standin.calls().total, 1);
}

#[tokio::test]
async fn without_a_configured_token_nobody_looks_or_purges() {
    let (standin, sidecar) = pair(&[]).await;
    let call = loans(&standin.access_token("diku", DESK));
    assert!(!sidecar.hits(&standin, &call).await);

    for (method, path) in GUARDED {
        for bearer in [None, Some(""), Some("x"), Some(ADMIN_TOKEN)] {
            let answer = sidecar.admin(method, path, bearer).await;

            assert_eq!(answer.status, 403, "{method} {path}");
            assert!(
                answer.text().contains("AUTH_SIDECAR_ADMIN_TOKEN"),
                "{}",
                answer.text()
            );
        }
    }
    assert!(sidecar.hits(&standin, &call).await);
}

#[tokio::test]
async fn whoever_brings_no_bearer_token_is_told_what_is_missing() {
    let (standin, sidecar, calls) = stocked().await;
    let (mut longer, mut other) = (ADMIN_TOKEN.to_owned(), ADMIN_TOKEN.to_owned());
    longer.push('x');
    other.replace_range(15..16, "g");
    let right = format!("Bearer {ADMIN_TOKEN}");
    let wrong = "error=\"invalid_token\"";
    let none = "";
    for (method, path) in GUARDED {
        for (authorization, error) in [
            (None, none),
            (Some("Basic Og==".to_owned()), none),
            (Some(ADMIN_TOKEN.to_owned()), none),
            (Some(format!("Basic {ADMIN_TOKEN}")), none),
            (Some("Bearer".to_owned()), none),
            (Some("Bearer x".to_owned()), wrong),
            (Some(format!("Bearer {}", &ADMIN_TOKEN[..15])), wrong),
            (Some(format!("Bearer {longer}")), wrong),
            (Some(format!("Bearer {other}")), wrong),
            (
                Some(format!("Bearer {}", ADMIN_TOKEN.to_uppercase())),
                wrong,
            ),
            (Some(format!("Bearer {ADMIN_TOKEN} {ADMIN_TOKEN}")), wrong),
        ] {
            let headers: Vec<_> = authorization
                .iter()
                .map(|value| ("Authorization", value.as_str()))
                .collect();
            let answer = with_headers(&sidecar, method, path, &headers).await;

            assert_eq!(answer.status, 401, "{method} {path} {authorization:?}");
            let challenge = answer.headers.get("WWW-Authenticate").expect("a challenge");
            assert!(challenge.starts_with("Bearer realm=\""), "{challenge}");
            assert_eq!(
                challenge.contains("error="),
                !error.is_empty(),
                "{challenge}"
            );
            assert!(challenge.contains(error), "{challenge}");
            assert!(!answer.text().contains(ADMIN_TOKEN));
        }
        let twice = [
            ("Authorization", right.as_str()),
            ("Authorization", right.as_str()),
        ];
        let answer = with_headers(&sidecar, method, path, &twice).await;
        assert_eq!(answer.status, 400, "{method} {path}");
        let challenge = answer.headers.get("WWW-Authenticate").expect("a challenge");
        assert!(
            challenge.contains("error=\"invalid_request\""),
            "{challenge}"
        );
        // A token in the address would stand in logs.
        let in_query = format!("{path}?access_token={ADMIN_TOKEN}");
        assert_eq!(sidecar.admin(method, &in_query, None).await.status, 401);
    }
    for path in [
        "/cache/",
        "/cache/diku/",
        "/cache/diku/x/y",
        "/cache/diku/x/",
    ] {
        assert_eq!(
            sidecar
                .admin("DELETE", path, Some(ADMIN_TOKEN))
                .await
                .status,
            404,
            "{path}"
        );
    }
    for method in ["POST", "PUT", "PATCH"] {
        assert_eq!(
            sidecar
                .admin(method, "/cache", Some(ADMIN_TOKEN))
                .await
                .status,
            405
        );
    }

    assert_eq!(sidecar.sum("auth_sidecar_purges_total{").await, 0.0);
    assert_eq!(which_hit(&standin, &sidecar, &calls).await, [true; 3]);
}

#[tokio::test]
async fn the_scheme_s_name_may_be_written_in_any_case() {
    let (_standin, sidecar, _) = stocked().await;
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let value = format!("{scheme} {ADMIN_TOKEN}");
        let answer = with_headers(&sidecar, "GET", "/cache", &[("Authorization", &value)]).await;
        assert_eq!(answer.status, 200, "{scheme}");
    }
}

#[tokio::test]
async fn a_look_at_the_cache_tells_how_much_there_is_and_names_nobody() {
    let (standin, sidecar, _) = stocked().await;
    sidecar.advance(Duration::from_secs(7));

    let answer = sidecar.admin("GET", "/cache", Some(ADMIN_TOKEN)).await;

    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers.get("Content-Type"), Some("application/json"));
    let report: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(report["entries"], 3);
    assert_eq!(report["voidEntries"], 0);
    assert_eq!(report["callers"], 3);
    assert_eq!(report["demands"], 1);
    assert_eq!(
        report["tenants"],
        serde_json::json!({"diku": 2, "college": 1})
    );
    let bytes = report["bytes"].as_u64().unwrap();
    assert!(bytes > 0 && bytes <= report["capacityBytes"].as_u64().unwrap());
    let age = report["oldestAgeSeconds"].as_f64().unwrap();
    assert!((7.0..20.0).contains(&age), "{age}");
    for secret in [DESK, MUELLER, "desk", "eyJ", "http://"] {
        assert!(!answer.text().contains(secret), "{secret}");
    }

    // What is void or over is counted apart.
    assert_eq!(
        sidecar
            .admin("DELETE", "/cache/college", Some(ADMIN_TOKEN))
            .await
            .status,
        204
    );
    let answer = sidecar.admin("GET", "/cache", Some(ADMIN_TOKEN)).await;
    let report: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (&report["entries"], &report["voidEntries"]),
        (&2.into(), &1.into())
    );
    assert_eq!(report["tenants"], serde_json::json!({"diku": 2}));
    sidecar.advance(Duration::from_mins(1));
    let answer = sidecar.admin("GET", "/cache", Some(ADMIN_TOKEN)).await;
    let report: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (&report["entries"], &report["voidEntries"]),
        (&0.into(), &3.into())
    );
    assert_eq!(report["oldestAgeSeconds"], Value::Null);
    drop(standin);
}

#[tokio::test]
async fn a_purge_drops_its_scope_and_no_more() {
    let upper = MUELLER.to_uppercase();
    for (path, scope, stay) in [
        ("/cache".to_owned(), "all", [false, false, false]),
        ("/cache/diku".to_owned(), "tenant", [false, false, true]),
        ("/cache/%64iku".to_owned(), "tenant", [false, false, true]),
        (
            format!("/cache/diku/{MUELLER}"),
            "user",
            [true, false, true],
        ),
        (format!("/cache/diku/{upper}"), "user", [true, false, true]),
        (
            format!("/cache/college/{MUELLER}"),
            "user",
            [true, true, true],
        ),
        ("/cache/nobody".to_owned(), "tenant", [true, true, true]),
        ("/cache/DIKU".to_owned(), "tenant", [true, true, true]),
    ] {
        let (standin, sidecar, calls) = stocked().await;

        let answer = sidecar.admin("DELETE", &path, Some(ADMIN_TOKEN)).await;

        assert_eq!((answer.status, answer.body.len()), (204, 0), "{path}");
        assert_eq!(which_hit(&standin, &sidecar, &calls).await, stay, "{path}");
        // No hold: what is asked from now on is asked after it, so it is stored.
        assert_eq!(
            which_hit(&standin, &sidecar, &calls).await,
            [true; 3],
            "{path}"
        );
        let series = format!("auth_sidecar_purges_total{{scope=\"{scope}\"}}");
        assert_eq!(sidecar.metric(&series).await, 1.0);
        assert_eq!(sidecar.sum("auth_sidecar_purges_total{").await, 1.0);
    }
}

#[tokio::test]
async fn a_purge_works_with_listening_off() {
    let settings = [("ADMIN_TOKEN", ADMIN_TOKEN), ("REVOCATION_LISTEN", "false")];
    let (standin, sidecar) = pair(&settings).await;
    let call = loans(&standin.access_token("diku", DESK));
    for path in [
        "/cache".to_owned(),
        "/cache/diku".to_owned(),
        format!("/cache/diku/{DESK}"),
    ] {
        sidecar.hits(&standin, &call).await;
        assert!(sidecar.hits(&standin, &call).await);

        assert_eq!(
            sidecar
                .admin("DELETE", &path, Some(ADMIN_TOKEN))
                .await
                .status,
            204
        );

        assert!(!sidecar.hits(&standin, &call).await, "{path}");
    }
}

/// One sample: name, labels as written, value.
fn sample(line: &str) -> (&str, &str, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("closed labels")),
        None => (series, ""),
    };
    (name, labels, value.parse().expect("a number"))
}

#[tokio::test]
async fn the_metrics_are_well_formed() {
    let (standin, sidecar, calls) = stocked().await;
    sidecar.ask(&loans("h.p.s")).await;
    sidecar.ask(&FilterCall::get("/x")).await;
    which_hit(&standin, &sidecar, &calls).await;

    let answer = sidecar.admin("GET", "/metrics", None).await;

    assert_eq!(answer.status, 200);
    let content_type = answer.headers.get("Content-Type").unwrap();
    assert!(
        content_type.starts_with("text/plain; version=0.0.4"),
        "{content_type}"
    );
    let text = answer.text();
    assert!(text.ends_with('\n'));
    let mut types = BTreeMap::new();
    let mut helps = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut buckets: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(
                types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "twice: {line}"
            );
            continue;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(
                !help.trim().is_empty() && helps.insert(name.to_owned()),
                "{line}"
            );
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let (name, labels, value) = sample(line);
        assert!(
            series.insert((name.to_owned(), labels.to_owned())),
            "twice: {line}"
        );
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|end| name.strip_suffix(end))
            .find(|family| types.get(*family).is_some_and(|kind| kind == "histogram"))
            .unwrap_or(name);
        assert!(types.contains_key(family), "no type: {line}");
        assert!(helps.contains(family), "no help: {line}");
        assert!(
            family.starts_with("auth_sidecar_") || family.starts_with("process_"),
            "{line}"
        );
        let counter = types[family] == "counter";
        assert_eq!(counter, family.ends_with("_total"), "{line}");
        assert!(value >= 0.0, "{line}");
        if name.ends_with("_bucket") {
            let others = labels.rsplit_once("le=").map_or("", |(others, _)| others);
            let before = buckets
                .insert(format!("{family}{others}"), value)
                .unwrap_or(0.0);
            assert!(value >= before, "buckets go up: {line}");
        }
    }
}

#[tokio::test]
async fn every_metric_is_there_and_names_nobody() {
    let (standin, sidecar, calls) = stocked().await;
    sidecar.ask(&loans("h.p.s")).await;
    sidecar.ask(&FilterCall::get("/x")).await;
    which_hit(&standin, &sidecar, &calls).await;

    let answer = sidecar.admin("GET", "/metrics", None).await;

    let text = answer.text();
    let there = |name: &str| text.contains(&format!("# TYPE {name} "));
    for name in [
        "requests_total",
        "tenant_requests_total",
        "answer_seconds",
        "upstream_seconds",
        "upstream_answers_total",
        "upstream_failures_total",
        "upstream_retries_total",
        "upstream_refreshes_total",
        "upstream_connections",
        "upstream_in_flight",
        "stored_total",
        "not_stored_total",
        "held_answers_total",
        "cache_entries",
        "cache_bytes",
        "cache_capacity_bytes",
        "cache_callers",
        "cache_demands",
        "evictions_total",
        "revocations_total",
        "purges_total",
        "time_saved_seconds_total",
        "loops_detected_total",
        "connections",
        "draining",
        "ready",
        "build_info",
    ] {
        assert!(there(&format!("auth_sidecar_{name}")), "{name}");
    }
    for name in [
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
    ] {
        assert!(there(name), "{name}");
    }
    for secret in ["eyJ", "h.p.s", DESK, MUELLER, ADMIN_TOKEN, "circulation"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

/// An alert on a counter needs it to be there before its first event.
#[tokio::test]
async fn every_label_of_a_counter_is_there_from_the_start() {
    let (_standin, sidecar) = pair(&[]).await;
    let answer = sidecar.admin("GET", "/metrics", None).await;
    let count = |name: &str| {
        let start = format!("auth_sidecar_{name}{{");
        answer
            .text()
            .lines()
            .filter(|line| line.starts_with(&start))
            .count()
    };
    for (name, series) in [
        ("upstream_failures_total", 7),
        ("upstream_retries_total", 2),
        ("upstream_refreshes_total", 2),
        ("upstream_answers_total", 5),
        ("held_answers_total", 3),
        ("purges_total", 3),
        ("loops_detected_total", 2),
        ("not_stored_total", 15),
        ("evictions_total", 4),
        // Five outcomes without a reason, and fifteen reasons to pass a request through.
        ("requests_total", 20),
    ] {
        assert_eq!(count(name), series, "{name}");
    }
    assert!(count("revocations_total") >= 12);
}

#[tokio::test]
async fn only_so_many_tenants_have_a_label_of_their_own() {
    let (standin, sidecar) = pair(&[("METRICS_TENANTS", "1")]).await;
    for (tenant, times) in [("diku", 3), ("college", 4)] {
        let call = loans(&standin.access_token(tenant, DESK)).tenant(tenant);
        for _ in 0..times {
            assert_eq!(sidecar.ask(&call).await.status, 202);
        }
    }
    let count = |tenant: &str, outcome: &str| {
        format!("auth_sidecar_tenant_requests_total{{tenant=\"{tenant}\",outcome=\"{outcome}\"}}")
    };

    assert_eq!(sidecar.metric(&count("diku", "hit")).await, 2.0);
    assert_eq!(sidecar.metric(&count("diku", "miss")).await, 1.0);
    assert_eq!(sidecar.metric(&count("other", "hit")).await, 3.0);
    assert_eq!(sidecar.metric(&count("other", "miss")).await, 1.0);
    assert_eq!(
        sidecar
            .sum("auth_sidecar_tenant_requests_total{tenant=\"college\"")
            .await,
        0.0
    );
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn the_purge_command_does_what_the_endpoint_does() {
    let (standin, sidecar, calls) = stocked().await;
    let admin = sidecar.admin.to_string();
    let upstream = standin.url();
    let settings = [
        ("UPSTREAM_URL", upstream.as_str()),
        ("ADMIN_LISTEN", &admin),
        ("ADMIN_TOKEN", ADMIN_TOKEN),
    ];
    for (arguments, stay) in [
        (
            vec!["purge", "--tenant", "diku", "--user", MUELLER],
            [true, false, true],
        ),
        (vec!["purge", "--tenant", "diku"], [false, false, true]),
        (vec!["purge"], [false, false, false]),
    ] {
        let output = program::run(&arguments, &settings).await;

        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(
            which_hit(&standin, &sidecar, &calls).await,
            stay,
            "{arguments:?}"
        );
        assert_eq!(which_hit(&standin, &sidecar, &calls).await, [true; 3]);
    }
    // The same from elsewhere, with the token in a file.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{ADMIN_TOKEN}").unwrap();
    let settings = [
        ("UPSTREAM_URL", upstream.as_str()),
        ("ADMIN_TOKEN_FILE", file.path().to_str().unwrap()),
    ];
    let url = format!("http://{admin}");
    let output = program::run(&["purge", "--url", &url], &settings).await;
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(which_hit(&standin, &sidecar, &calls).await, [false; 3]);
}

#[tokio::test]
async fn a_purge_command_that_did_not_purge_says_why() {
    let (standin, sidecar, calls) = stocked().await;
    let (admin, nobody) = (sidecar.admin.to_string(), nobody().await.to_string());
    let upstream = standin.url();
    let wrong = "another-token-of-the-same-length";
    for (address, token, words) in [
        (&admin, Some(wrong), "401"),
        (&admin, None, "AUTH_SIDECAR_ADMIN_TOKEN"),
        (&nobody, Some(ADMIN_TOKEN), nobody.as_str()),
    ] {
        let mut settings = vec![
            ("UPSTREAM_URL", upstream.as_str()),
            ("ADMIN_LISTEN", address),
        ];
        settings.extend(token.map(|token| ("ADMIN_TOKEN", token)));

        let output = program::run(&["purge"], &settings).await;

        assert_eq!(output.status.code(), Some(1));
        let errors = stderr(&output);
        assert!(errors.contains(words), "{errors}");
        assert!(
            !errors.contains(wrong) && !errors.contains(ADMIN_TOKEN),
            "{errors}"
        );
    }
    let output = program::run(&["purge", "--user", DESK], &[("UPSTREAM_URL", &upstream)]).await;
    assert!(!output.status.success());
    assert!(stderr(&output).contains("--tenant"), "{}", stderr(&output));
    assert_eq!(which_hit(&standin, &sidecar, &calls).await, [true; 3]);
}

#[tokio::test]
async fn a_purge_is_logged_with_its_scope() {
    let standin = Standin::start(Options::default()).await;
    let program = Program::serve(&standin, &[("ADMIN_TOKEN", ADMIN_TOKEN)]).await;
    for path in [
        "/cache".to_owned(),
        "/cache/diku".to_owned(),
        format!("/cache/diku/{DESK}"),
    ] {
        let mut request = Request::new("DELETE", path);
        request.headers.push("Host", "sidecar");
        request
            .headers
            .push("Authorization", format!("Bearer {ADMIN_TOKEN}"));
        assert_eq!(raw::ask(program.admin, &request).await.unwrap().status, 204);
    }
    program.terminate().await;
    let (_, log, _) = program.output().await;

    let purges: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["message"] == "purged")
        .collect();
    let scopes: Vec<_> = purges
        .iter()
        .map(|line| line["scope"].as_str().unwrap())
        .collect();
    assert_eq!(scopes, ["all", "tenant", "user"]);
    assert!(purges.iter().all(|line| line["level"] == "INFO"));
    assert_eq!(
        (purges[1]["tenant"].as_str(), purges[2]["user"].as_str()),
        (Some("diku"), Some(DESK))
    );
    assert!(!log.contains(ADMIN_TOKEN));
}

#[tokio::test]
async fn the_healthcheck_command_says_whether_the_process_lives() {
    let (standin, sidecar) = pair(&[]).await;
    let (upstream, port) = (standin.url(), sidecar.admin.port());
    // As the container's own address is usually written.
    let everywhere = format!("0.0.0.0:{port}");
    let settings = [
        ("UPSTREAM_URL", upstream.as_str()),
        ("ADMIN_LISTEN", &everywhere),
    ];
    let output = program::run(&["healthcheck"], &settings).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let url = format!("http://127.0.0.1:{port}");
    let output = program::run(&["healthcheck", "--url", &url], &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let nobody = nobody().await.to_string();
    let output = program::run(&["healthcheck", "--url", &format!("http://{nobody}")], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&nobody), "{}", stderr(&output));
    // The filter port is no admin port: what answers there is the auth module.
    let filter = format!("http://{}", sidecar.addr);
    let output = program::run(&["healthcheck", "--url", &filter], &[]).await;
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn the_check_command_prints_the_settings_in_force_and_no_secret() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        "cache_ttl = \"30s\"\ncache_max_bytes = \"8MiB\"\nlog = \"debug\""
    )
    .unwrap();
    let settings = [
        ("UPSTREAM_URL", "http://mod-authtoken:8081"),
        ("ADMIN_TOKEN", ADMIN_TOKEN),
        ("CONFIG", file.path().to_str().unwrap()),
        ("LOG", "warn"),
        // Kubernetes' own, for a Service of our name.
        ("PORT", "tcp://10.0.0.1:8071"),
        ("PORT_8071_TCP_ADDR", "10.0.0.1"),
        ("SERVICE_HOST", "10.0.0.1"),
    ];
    let output = program::run(&["check", "--listen", "127.0.0.1:9999"], &settings).await;

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", stderr(&output));
    for line in [
        "AUTH_SIDECAR_UPSTREAM_URL=http://mod-authtoken:8081",
        "AUTH_SIDECAR_LISTEN=127.0.0.1:9999",
        "AUTH_SIDECAR_ADMIN_LISTEN=0.0.0.0:8072",
        "AUTH_SIDECAR_CACHE_TTL=30s",
        "AUTH_SIDECAR_CACHE_MAX_BYTES=8MiB",
        "AUTH_SIDECAR_LOG=warn",
        "AUTH_SIDECAR_REVOCATION_HOLD=5s",
        "AUTH_SIDECAR_ADMIN_TOKEN=(set)",
    ] {
        assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
    }
    assert!(
        text.lines()
            .all(|line| line.starts_with("AUTH_SIDECAR_") && line.contains('='))
    );
    assert!(!text.contains(ADMIN_TOKEN));
    assert_eq!(
        okapi_auth_sidecar::config::SETTINGS.len() - text.lines().count(),
        2,
        "CONFIG and ADMIN_TOKEN_FILE are sources"
    );
}

#[tokio::test]
async fn wrong_settings_are_told_all_at_once_before_anything_is_bound() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let secret = "too short";
    let settings = [
        ("UPSTREAM_URL", "http://mod-authtoken:8081/path?x"),
        ("LISTEN", address.as_str()),
        ("ADMIN_LISTEN", "everywhere"),
        ("CACHE_TTL", "60"),
        ("CACHE_TTL_JITTER", "2"),
        ("CACHE_MAX_BYTES", "64 apples"),
        ("CACHE_KEY_SCOPE", "everything"),
        ("REVOCATION_LISTEN", "maybe"),
        ("REVOCATION_UPSTREAM_REFRESH", "two"),
        ("UPSTREAM_TIMEOUT", "-1s"),
        ("WORKER_THREADS", "0"),
        ("LOG_FORMAT", "xml"),
        ("ADMIN_TOKEN", secret),
        ("CACHE_TLT", "60s"),
    ];
    for command in [
        &[][..],
        &["serve"],
        &["check"],
        &["purge"],
        &["healthcheck"],
    ] {
        let output = program::run(command, &settings).await;

        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(output.stdout.is_empty(), "{command:?}");
        let errors = stderr(&output);
        for (name, value) in settings.iter().filter(|(name, _)| *name != "LISTEN") {
            let line = errors
                .lines()
                .find(|line| line.contains(&format!("AUTH_SIDECAR_{name}: ")));
            let line = line.unwrap_or_else(|| panic!("{name} is not told: {errors}"));
            assert!(line.contains("wanted: "), "{line}");
            let shown = line.contains(value);
            assert!(
                shown || *name == "ADMIN_TOKEN" || *name == "CACHE_TLT",
                "{line}"
            );
        }
        assert!(!errors.contains(secret), "{errors}");
        assert!(
            errors.contains("AUTH_SIDECAR_CACHE_TTL"),
            "the nearest name: {errors}"
        );
        assert!(!errors.contains("cannot be bound"), "{errors}");
    }
}

#[tokio::test]
async fn without_an_upstream_there_is_nothing_to_serve() {
    let output = program::run(&[], &[]).await;

    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("AUTH_SIDECAR_UPSTREAM_URL"),
        "{}",
        stderr(&output)
    );
}
