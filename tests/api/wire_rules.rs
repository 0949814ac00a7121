//! What may differ between two sides of the sidecar, and nothing else: the comparison of requests and answers on the wire.

use crate::support::headers::Headers;
use crate::support::raw::{Answer, Request};
use std::collections::BTreeMap;

/// Headers that belong to one connection: dropped on the way up, whatever `Connection` names.
const HOP_BY_HOP: [&str; 9] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Te",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Http2-Settings",
    "Expect",
];

/// Framing of an answer's body, and whether the connection goes on: each connection's own.
const ANSWER_FRAMING: [&str; 3] = ["Connection", "Content-Length", "Transfer-Encoding"];

/// `X-Okapi-Token` from `x-okapi-token`.
pub(crate) fn title_case(name: &str) -> String {
    let mut start = true;
    name.chars()
        .map(|letter| {
            let letter = if start {
                letter.to_ascii_uppercase()
            } else {
                letter.to_ascii_lowercase()
            };
            start = letter == '-';
            letter
        })
        .collect()
}

/// Fields by name: the order of different names says nothing, the order of a name's values does.
fn fields<'a>(
    headers: &'a Headers,
    name: impl Fn(&'a str) -> String,
) -> BTreeMap<String, Vec<&'a [u8]>> {
    let mut fields = BTreeMap::<_, Vec<_>>::new();
    for (field, value) in headers.iter() {
        fields.entry(name(field)).or_default().push(value);
    }
    fields
}

/// How an answer of the sidecar differs from what the auth module said: status, headers (names in Title-Case) and body.
/// Framing is the connection's own: a hit may say `Content-Length: 0` where the module sent no chunk.
pub(crate) fn answer_differs(said: &Answer, got: &Answer, asked: &Request) -> Option<String> {
    if said.status != got.status {
        return Some(format!("status {}, said {}", got.status, said.status));
    }
    if said.body != got.body {
        return Some("body".to_owned());
    }
    let closes = got.headers.has_word("connection", "close");
    if closes && !asked.headers.has_word("connection", "close") {
        return Some("the connection is closed unasked".to_owned());
    }
    let (mut said, mut got) = (
        fields(&said.headers, title_case),
        fields(&got.headers, str::to_owned),
    );
    for name in ANSWER_FRAMING {
        said.remove(name);
        got.remove(name);
    }
    difference(&said, &got)
}

/// How a request as the auth module got it differs from what it should be: the target byte for byte, all headers but the
/// fixed list, names in Title-Case, `Host` the module's own, the body with clean framing, nothing added.
pub(crate) fn request_differs(sent: &Request, got: &Request, upstream: &str) -> Option<String> {
    let line =
        |request: &Request| format!("{} {} {}", request.method, request.target, request.version);
    if line(sent) != line(got) {
        return Some(format!("{}, sent {}", line(got), line(sent)));
    }
    if sent.body != got.body {
        return Some("body".to_owned());
    }
    let host = upstream.as_bytes();
    let length = sent.body.len().to_string();
    let mut wanted = fields(&sent.headers, title_case);
    for name in HOP_BY_HOP {
        wanted.remove(name);
    }
    wanted.insert("Host".to_owned(), vec![host]);
    let got = &mut fields(&got.headers, str::to_owned);
    if sent.body.is_empty() {
        // No body needs no framing; one that turns out to be empty while it is streamed stays chunked.
        wanted.remove("Content-Length");
        if sent.headers.has("Transfer-Encoding") && got.contains_key("Transfer-Encoding") {
            wanted.insert("Transfer-Encoding".to_owned(), vec![b"chunked"]);
        }
    } else if sent.headers.has("Content-Length") {
        wanted.insert("Content-Length".to_owned(), vec![length.as_bytes()]);
    } else {
        wanted.insert("Transfer-Encoding".to_owned(), vec![b"chunked"]);
    }
    difference(&wanted, got)
}

fn difference(
    wanted: &BTreeMap<String, Vec<&[u8]>>,
    got: &BTreeMap<String, Vec<&[u8]>>,
) -> Option<String> {
    let names = |fields: &BTreeMap<String, Vec<&[u8]>>| {
        fields
            .iter()
            .map(|(name, values)| (name.clone(), values.len()))
            .collect::<Vec<_>>()
    };
    if names(wanted) != names(got) {
        return Some(format!(
            "headers {:?}, wanted {:?}",
            names(got),
            names(wanted)
        ));
    }
    wanted
        .iter()
        .find(|(name, values)| got[*name] != **values)
        .map(|(name, _)| format!("value of {name}"))
}
