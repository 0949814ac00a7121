//! What each request at the gateway costs in auth calls: filter calls grouped by the first segment of their request id.
//!
//! Okapi appends a segment for every hop (`302770/circulation;911034/users`), so the first one names the request that a
//! person or a job made. A bounded ring of the latest; off unless `REQUEST_REPORT` says how many. No token, no user, no
//! query value: ids in paths are shown as `{id}`.

use crate::key::RequestLine;
use crate::metrics::Outcome;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest id and path that are kept, in bytes.
const LONGEST: usize = 128;

/// One call at the filter port, answered.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What was asked for.
    pub line: RequestLine<'a>,
    /// `X-Okapi-Request-Id`.
    pub id: Option<&'a [u8]>,
    /// How it was answered.
    pub outcome: Outcome,
    /// When it came.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

/// What is known of one root request.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RootRequest {
    /// The first segment of the request id.
    pub id: String,
    /// The method of its first call.
    pub method: String,
    /// The path of its first call, ids replaced, with the names of the query's parameters.
    pub path: String,
    /// Auth calls so far.
    pub calls: u64,
    /// Of these, answered from the cache.
    pub hits: u64,
    /// Of these, answered by asking (or waiting for) the auth module.
    pub misses: u64,
    /// Of these, passed through.
    pub bypasses: u64,
    /// Time of all its auth calls, in microseconds.
    pub auth_micros: u64,
    /// Time of those that waited for the auth module, in microseconds.
    pub upstream_micros: u64,
    /// From its first auth call to the end of its latest, in microseconds: at the most what it took altogether so far.
    pub span_micros: u64,
    /// The same segment byte for byte, under which the ring finds it.
    #[serde(skip)]
    key: Arc<[u8]>,
    #[serde(skip)]
    began: Option<Instant>,
}

/// The ring.
#[derive(Debug)]
pub struct Report {
    most: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    places: HashMap<Arc<[u8]>, usize, ahash::RandomState>,
    requests: Vec<RootRequest>,
    next: usize,
}

/// What `GET /requests` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// The latest, newest first.
    pub latest: Vec<RootRequest>,
    /// The same, by the time of their auth calls, costliest first; at most twenty.
    pub costliest: Vec<RootRequest>,
}

impl Report {
    /// A ring of `most` root requests; none at all for 0.
    pub fn new(most: usize) -> Option<Self> {
        (most > 0).then(|| Self {
            most,
            ring: Mutex::default(),
        })
    }

    /// Adds a call to its root request. Calls without a request id belong to none.
    pub fn note(&self, call: &Call<'_>) {
        let Some(id) = call.id.and_then(|id| id.split(|byte| *byte == b';').next()) else {
            return;
        };
        let id = &id[..id.len().min(LONGEST)];
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match ring.places.get(id) {
            Some(place) => *place,
            None => ring.begin(id, call, self.most),
        };
        ring.requests[place].add(call);
    }

    /// What is known now.
    pub fn listing(&self) -> Listing {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let (newer, older) = (&ring.requests[..ring.next], &ring.requests[ring.next..]);
        let latest: Vec<RootRequest> = older.iter().chain(newer).rev().cloned().collect();
        drop(ring);
        let mut costliest = latest.clone();
        costliest.sort_by_key(|request| std::cmp::Reverse(request.auth_micros));
        costliest.truncate(20);
        Listing { latest, costliest }
    }
}

impl Ring {
    /// Takes the place of the oldest where there is no free one.
    fn begin(&mut self, id: &[u8], call: &Call<'_>, most: usize) -> usize {
        let request = RootRequest::new(id, call);
        let place = self.next;
        self.next = (place + 1) % most;
        self.places.insert(request.key.clone(), place);
        match self.requests.get_mut(place) {
            Some(oldest) => {
                let oldest = std::mem::replace(oldest, request);
                self.places.remove(&oldest.key);
            }
            None => self.requests.push(request),
        }
        place
    }
}

impl RootRequest {
    fn new(id: &[u8], call: &Call<'_>) -> Self {
        Self {
            id: String::from_utf8_lossy(id).into_owned(),
            method: call.line.method.chars().take(16).collect(),
            path: shown(call.line),
            calls: 0,
            hits: 0,
            misses: 0,
            bypasses: 0,
            auth_micros: 0,
            upstream_micros: 0,
            span_micros: 0,
            key: id.into(),
            began: Some(call.began),
        }
    }

    fn add(&mut self, call: &Call<'_>) {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let took = micros(call.took);
        self.calls += 1;
        self.auth_micros += took;
        let waited = match call.outcome {
            Outcome::Hit | Outcome::Stale | Outcome::Refreshed => {
                self.hits += 1;
                0
            }
            Outcome::Miss | Outcome::Collapsed => {
                self.misses += 1;
                took
            }
            Outcome::Bypass => {
                self.bypasses += 1;
                took
            }
        };
        self.upstream_micros += waited;
        let began = *self.began.get_or_insert(call.began);
        let end = call.began.saturating_duration_since(began) + call.took;
        self.span_micros = self.span_micros.max(micros(end));
    }
}

impl Listing {
    /// The same as FOLIO's table of auth calls per request.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (title, requests) in [("latest", &self.latest), ("costliest", &self.costliest)] {
            let _ = writeln!(
                text,
                "{title}\n{:<7} {:<44} {:>6} {:>6} {:>7} {:>10} {:>12} {:>14} {:>7}",
                "method",
                "path",
                "calls",
                "hits",
                "misses",
                "auth ms",
                "upstream ms",
                "first-last ms",
                "auth %"
            );
            for request in requests {
                let _ = writeln!(
                    text,
                    "{:<7} {:<44} {:>6} {:>6} {:>7} {:>10} {:>12} {:>14} {:>7}",
                    request.method,
                    request.path,
                    request.calls,
                    request.hits,
                    request.misses + request.bypasses,
                    millis(request.auth_micros),
                    millis(request.upstream_micros),
                    millis(request.span_micros),
                    share(request.auth_micros, request.span_micros),
                );
            }
        }
        text
    }
}

fn millis(micros: u64) -> String {
    format!("{}.{:02}", micros / 1_000, micros % 1_000 / 10)
}

/// Calls may overlap, so their share may pass a hundred.
fn share(part: u64, whole: u64) -> String {
    match (part * 1_000).checked_div(whole) {
        Some(tenths) => format!("{}.{}", tenths / 10, tenths % 10),
        None => "-".to_owned(),
    }
}

/// A path that names nobody and nothing: ids replaced, query values left out.
fn shown(line: RequestLine<'_>) -> String {
    let (path, query) = line.split();
    let mut path: String = path
        .split('/')
        .map(|segment| if is_id(segment) { "{id}" } else { segment })
        .collect::<Vec<_>>()
        .join("/");
    let names = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split('=').next());
    for (n, name) in names.filter(|name| !name.is_empty()).enumerate() {
        path.push(if n == 0 { '?' } else { '&' });
        path.push_str(name);
    }
    if path.len() > LONGEST {
        let cut = (0..=LONGEST)
            .rev()
            .find(|at| path.is_char_boundary(*at))
            .unwrap_or(0);
        path.truncate(cut);
    }
    path
}

/// UUIDs, numbers, bar codes, names with an `@`: whatever has a digit or was escaped, unless it is a version (`v1`).
fn is_id(segment: &str) -> bool {
    let version = segment.len() <= 3 && segment.starts_with('v');
    !version
        && segment
            .bytes()
            .any(|byte| byte.is_ascii_digit() || matches!(byte, b'%' | b'@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &[u8]) -> Call<'_> {
        let (method, target) = ("GET", "/x");
        Call {
            line: RequestLine { method, target },
            id: Some(id),
            outcome: Outcome::Hit,
            began: Instant::now(),
            took: Duration::from_micros(1),
        }
    }

    fn note(report: &Report, id: &'static str, target: &str, outcome: Outcome, took: u64) {
        let method = "POST";
        report.note(&Call {
            line: RequestLine { method, target },
            id: Some(id.as_bytes()),
            outcome,
            began: Instant::now(),
            took: Duration::from_micros(took),
        });
    }

    #[test]
    fn calls_are_grouped_by_the_first_segment_of_the_request_id() {
        let report = Report::new(10).unwrap();
        note(
            &report,
            "1/circulation",
            "/circulation/check-out-by-barcode",
            Outcome::Miss,
            5_000,
        );
        note(
            &report,
            "1/circulation;2/users",
            "/users/7",
            Outcome::Hit,
            30,
        );
        note(&report, "3/users", "/users", Outcome::Bypass, 7_000);

        let listing = report.listing();

        assert_eq!(listing.latest[1].calls, 2);
        assert_eq!((listing.latest[1].hits, listing.latest[1].misses), (1, 1));
        assert_eq!(
            (
                listing.latest[1].auth_micros,
                listing.latest[1].upstream_micros
            ),
            (5_030, 5_000)
        );
        assert_eq!(listing.costliest[0].id, "3/users");
        assert!(
            listing
                .table()
                .contains("/circulation/check-out-by-barcode")
        );
    }

    #[test]
    fn the_oldest_makes_room() {
        let report = Report::new(2).unwrap();
        for id in ["1/a", "2/b", "3/c", "3/c;9/x", "4/d"] {
            note(&report, id, "/x", Outcome::Hit, 1);
        }

        let ids: Vec<String> = report
            .listing()
            .latest
            .into_iter()
            .map(|request| request.id)
            .collect();

        assert_eq!(ids, ["4/d", "3/c"]);
    }

    #[test]
    fn a_path_shows_no_id_and_no_query_value() {
        for (target, path) in [
            ("/users/11111111-1111-4111-8111-111111111111", "/users/{id}"),
            ("/items/%20x/by-barcode/4711", "/items/{id}/by-barcode/{id}"),
            (
                "/users?query=username==%22me%22&limit=1",
                "/users?query&limit",
            ),
            ("/api/v1/x", "/api/v1/x"),
            ("/a@b.org", "/{id}"),
        ] {
            assert_eq!(
                shown(RequestLine {
                    method: "GET",
                    target
                }),
                path
            );
        }
        assert!(
            shown(RequestLine {
                method: "GET",
                target: &format!("/{}", "x".repeat(500))
            })
            .len()
                <= LONGEST
        );
    }

    #[test]
    fn none_are_kept_unless_asked_for() {
        assert!(Report::new(0).is_none());
    }

    #[test]
    fn ids_that_only_bytes_tell_apart_have_places_of_their_own() {
        let report = Report::new(2).unwrap();
        let ids: [&[u8]; 4] = [b"1\xff", b"1\xfe", b"1\xfd", b"1\xfe"];
        for id in ids {
            report.note(&call(id));
        }

        let calls: Vec<u64> = report
            .listing()
            .latest
            .iter()
            .map(|request| request.calls)
            .collect();

        assert_eq!(calls, [1, 2]);
    }

    #[test]
    fn a_new_request_costs_the_same_in_a_large_ring() {
        let full = |most: usize| {
            let report = Report::new(most).unwrap();
            let begin = |number: usize| report.note(&call(number.to_string().as_bytes()));
            (0..most).for_each(begin);
            let before = Instant::now();
            (most..most + 2_000).for_each(begin);
            before.elapsed()
        };

        let (small, large) = (full(100), full(100_000));

        // A look at every place would take it a thousand times as long, the larger tables take it a few times as long.
        assert!(large < small * 100, "{large:?}, where {small:?} will do");
    }
}
