//! Bytes: what comes in goes up, what comes back goes out, and odd things are refused or passed on, never misread.
//!
//! | file | what |
//! |---|---|
//! | `heads.rs` | names, values, targets, sizes, in both directions |
//! | `bodies.rs` | framing, streaming, what has no body |
//! | `connections.rs` | keep-alive, pipelining, split packets, old clients, what is no HTTP |
//! | `logs.rs` | what the log shows of all this |

mod bodies;
mod connections;
mod heads;
mod logs;

use crate::support::headers::Headers;
use crate::support::raw::Request;
use crate::support::standin::Standin;

/// The names of the fields that belong to one connection: they stay here.
const STAYS: [&str; 9] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "HTTP2-Settings",
    "Expect",
];

/// Names of framing fields, which each side makes anew.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// The latest request that the stand-in has seen.
fn latest(standin: &Standin) -> Request {
    standin
        .requests()
        .last()
        .expect("a request")
        .request
        .clone()
}

/// The fields but those of these names, lower-cased, in order of their names: where duplicates keep their order.
fn fields(headers: &Headers, without: &[&str]) -> Vec<(String, String)> {
    let mut fields: Vec<_> = headers
        .iter()
        .filter(|(name, _)| !without.iter().any(|other| other.eq_ignore_ascii_case(name)))
        .map(|(name, value)| (name.to_ascii_lowercase(), readable(value)))
        .collect();
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    fields
}

/// The bytes as text, in which no two are alike: what is not ASCII is written as a number.
fn readable(value: &[u8]) -> String {
    value.escape_ascii().to_string()
}
