//! The recorded exchanges of `tests/golden`, as typed values.
//!
//! What a real Okapi and a real mod-authtoken said to each other. Lines stand in the order in which the exchanges ended,
//! so look-ups stand before the answer they were made for.

use std::time::Duration;

use serde_json::Value;

use super::headers::Headers;
use super::raw::{Answer, Request};

/// The recordings, by file name without its ending.
const FILES: [(&str, &str); 5] = [
    ("check-out", include_str!("../golden/check-out.ndjson")),
    ("events", include_str!("../golden/events.ndjson")),
    ("filter", include_str!("../golden/filter.ndjson")),
    ("login", include_str!("../golden/login.ndjson")),
    ("tenant", include_str!("../golden/tenant.ndjson")),
];

/// The state that explains the recorded answers, as JSON text.
pub const WORLD: &str = include_str!("../golden/world.json");

/// Who sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Okapi, on behalf of a client, a module or itself.
    Okapi,
    /// A hand, straight to the auth module, to reach forms that Okapi does not send.
    Direct,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// File it stands in, without its ending.
    pub file: &'static str,
    /// Position in the file, from 0.
    pub index: usize,
    /// What was tried.
    pub scenario: String,
    /// Who sent it.
    pub via: Via,
    /// As it arrived at the auth module; the body without transfer coding.
    pub request: Request,
    /// As the auth module gave it, `interim` answers included.
    pub answer: Answer,
    /// How long the auth module took.
    pub took: Duration,
}

/// All exchanges of one file (`check-out`, `events`, `filter`, `login`, `tenant`), in recorded order.
///
/// Panics when there is no such file or it is not what the recorder writes: a test without its recordings proves nothing.
pub fn exchanges(file: &str) -> Vec<Exchange> {
    let (file, text) = FILES
        .into_iter()
        .find(|(name, _)| *name == file)
        .expect("a recording of that name");
    text.lines()
        .enumerate()
        .map(|(index, line)| exchange(file, index, line))
        .collect()
}

/// All exchanges of all files, file by file.
pub fn all() -> Vec<Exchange> {
    FILES.iter().flat_map(|(file, _)| exchanges(file)).collect()
}

fn exchange(file: &'static str, index: usize, line: &str) -> Exchange {
    let json: Value = serde_json::from_str(line).expect("a recorded line is JSON");
    Exchange {
        file,
        index,
        scenario: text(&json, "scenario"),
        via: match json["via"].as_str() {
            Some("okapi") => Via::Okapi,
            Some("direct") => Via::Direct,
            other => panic!("unknown sender {other:?}"),
        },
        request: request(&json["request"]),
        answer: answer(&json["answer"], &json["interim"]),
        took: Duration::from_micros(json["micros"].as_u64().expect("micros is a number")),
    }
}

fn request(json: &Value) -> Request {
    let line = text(json, "start_line");
    let (method, rest) = line.split_once(' ').expect("a method");
    let (target, version) = rest.rsplit_once(' ').expect("a version");
    Request {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version.to_owned(),
        headers: headers(&json["headers"]),
        body: text(json, "body").into_bytes(),
    }
}

fn answer(json: &Value, interim: &Value) -> Answer {
    let start_line = text(json, "start_line");
    let status = start_line.split(' ').nth(1).expect("a status");
    Answer {
        status: status.parse().expect("a status is a number"),
        start_line,
        headers: headers(&json["headers"]),
        body: text(json, "body").into_bytes(),
        interim: interim
            .as_array()
            .into_iter()
            .flatten()
            .map(|line| line.as_str().expect("a status line").to_owned())
            .collect(),
    }
}

fn headers(json: &Value) -> Headers {
    json.as_array()
        .expect("headers are a list")
        .iter()
        .map(|pair| {
            let name = pair[0].as_str().expect("a name");
            let value = pair[1].as_str().expect("a value");
            (name, value)
        })
        .collect()
}

fn text(json: &Value, name: &str) -> String {
    json[name].as_str().expect("recorded text").to_owned()
}
