//! Request targets with characters that the HTTP library refuses to hold, such as the raw quotes of
//! `?query=username=="admin"`, which `curl` does not encode and mod-authtoken takes.
//!
//! Such a character travels through this process as a stand-in that the library does hold, a private-use character of
//! its own (U+F700 and the byte), and is put back before the target goes up: byte for byte as it came. Pure. The trap:
//! a target that would go up as something else is refused. That is one which brings a stand-in along, and one with a
//! `#`: the library would cut it off there without a word, and asked about less than what came, the auth module might
//! say yes to something else (`/admin/health#/../users` would become its health route).

use http::Uri;
use http::uri::PathAndQuery;
use std::sync::LazyLock;

/// First byte of a stand-in in UTF-8.
const FIRST: u8 = 0xef;
/// Second byte for characters below 0x40, and for the others.
const SECOND: [u8; 2] = [0x9c, 0x9d];
/// Bytes of a stand-in.
const LENGTH: usize = 3;

/// Visible ASCII that the library refuses in a path, and in a query; asked of the library itself.
static REFUSED: LazyLock<[[bool; 128]; 2]> = LazyLock::new(|| {
    ["/", "/?"].map(|start| {
        std::array::from_fn(|byte| {
            let byte = u8::try_from(byte).unwrap_or_default();
            // `#` is no character of a target at all (RFC 9112, 3.2): that it is refused stays so.
            byte.is_ascii_graphic()
                && byte != b'#'
                && PathAndQuery::try_from(format!("{start}{}", char::from(byte))).is_err()
        })
    })
});

/// What is to be done about a request line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Nothing: the library holds its target, or refuses it for another reason.
    AsItIs,
    /// This is the line with stand-ins.
    Held(Vec<u8>),
    /// Its target has a fragment, which none may have (RFC 9112, 3.2), or what looks like a stand-in.
    Refused,
}

/// Looks at a request line (without its line end).
pub fn hold(line: &[u8]) -> Line {
    let middle = middle(line);
    if memchr::memchr(b'#', middle).is_some() || has_stand_in(middle) {
        return Line::Refused;
    }
    let Some((method, target, version)) = split(line) else {
        return Line::AsItIs;
    };
    let query = memchr::memchr(b'?', target).unwrap_or(target.len());
    let refused = |at: usize, byte: u8| {
        let table = usize::from(at > query);
        REFUSED[table]
            .get(usize::from(byte))
            .copied()
            .unwrap_or(false)
    };
    if !target
        .iter()
        .enumerate()
        .any(|(at, byte)| refused(at, *byte))
    {
        return Line::AsItIs;
    }
    let mut held = Vec::with_capacity(line.len() + 16 * LENGTH);
    held.extend_from_slice(method);
    held.push(b' ');
    for (at, &byte) in target.iter().enumerate() {
        if refused(at, byte) {
            held.extend_from_slice(&[FIRST, SECOND[usize::from(byte >> 6)], 0x80 | (byte & 0x3f)]);
        } else {
            held.push(byte);
        }
    }
    held.push(b' ');
    held.extend_from_slice(version);
    Line::Held(held)
}

/// The line with the characters that the stand-ins stand for.
pub fn restore(line: &[u8]) -> Vec<u8> {
    let mut restored = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(original) = stand_in(rest) {
            restored.push(original);
            rest = &rest[LENGTH..];
        } else {
            restored.push(byte);
            rest = after;
        }
    }
    restored
}

/// Whether there is a stand-in in a target.
pub fn holds(target: &Uri) -> bool {
    target
        .path_and_query()
        .is_some_and(|target| has_stand_in(target.as_str().as_bytes()))
}

/// Bytes of a target as it came and goes up.
pub fn wire_length(target: &PathAndQuery) -> usize {
    let bytes = target.as_str().as_bytes();
    if memchr::memchr(FIRST, bytes).is_none() {
        return bytes.len();
    }
    restore(bytes).len()
}

fn has_stand_in(target: &[u8]) -> bool {
    memchr::memchr_iter(FIRST, target).any(|at| stand_in(&target[at..]).is_some())
}

/// What stands between a line's first space and its last: the target, whatever form it has.
fn middle(line: &[u8]) -> &[u8] {
    let Some(space) = memchr::memchr(b' ', line) else {
        return b"";
    };
    let behind = &line[space + 1..];
    &behind[..memchr::memrchr(b' ', behind).unwrap_or(behind.len())]
}

/// The character for which the first three of these bytes stand.
fn stand_in(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [FIRST, second, third @ 0x80..=0xbf, ..] => {
            let high = SECOND.iter().position(|known| known == second)?;
            Some(u8::try_from(high).ok()? << 6 | (third & 0x3f))
        }
        _ => None,
    }
}

/// Method, target and version of a line that is a request line of HTTP/1 with a path for a target.
fn split(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = memchr::memchr(b' ', line)?;
    let last = memchr::memrchr(b' ', line).filter(|last| *last > space)?;
    let (method, target, version) = (&line[..space], &line[space + 1..last], &line[last + 1..]);
    let whole = matches!(version, b"HTTP/1.1" | b"HTTP/1.0")
        && target.first() == Some(&b'/')
        && !target.contains(&b' ')
        && method.iter().all(u8::is_ascii_graphic);
    whole.then_some((method, target, version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn raw_quotes_are_held_and_restored() {
        let line = br#"GET /users?query=username=="admin" HTTP/1.1"#;

        let Line::Held(held) = hold(line) else {
            panic!("the library does not hold quotes in a query");
        };

        let (_, target, _) = split(&held).unwrap();
        let target = PathAndQuery::try_from(target).unwrap();
        assert_eq!(restore(&held), line);
        assert_eq!(wire_length(&target), line.len() - "GET  HTTP/1.1".len());
    }

    #[test]
    fn what_the_library_holds_stays_as_it_is() {
        for line in [
            "GET /users?limit=1 HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET http://x/\" HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "{\"a\": \"b\" HTTP/1.1",
            "GET /ü HTTP/1.1",
            "",
        ] {
            assert_eq!(hold(line.as_bytes()), Line::AsItIs, "{line}");
        }
    }

    #[test]
    fn what_would_go_up_as_something_else_is_refused() {
        for line in [
            "GET /x\u{f722} HTTP/1.1",
            "GET http://x/?a=\u{f722} HTTP/1.1",
            "GET /x#y HTTP/1.1",
            "GET /admin/health#/../x HTTP/1.0",
            "GET /x?a=\"#\" HTTP/1.1",
            "GET http://x/#y HTTP/1.1",
            "OPTIONS *# HTTP/1.1",
            "GET /#",
        ] {
            assert_eq!(hold(line.as_bytes()), Line::Refused, "{line}");
        }
        // A method may have one (RFC 9110, 5.6.2).
        assert_eq!(hold(b"G#T /x HTTP/1.1"), Line::AsItIs);
    }

    proptest! {
        #[test]
        fn every_visible_target_is_held_by_the_library_and_comes_back(
            path in "[!-\"$-~]{0,20}", query in prop::option::of("[!-\"$-~]{0,20}"),
        ) {
            let target = match query {
                Some(query) => format!("/{path}?{query}"),
                None => format!("/{path}"),
            };
            let line = format!("GET {target} HTTP/1.1");
            let held = match hold(line.as_bytes()) {
                Line::Held(held) => held,
                Line::AsItIs => line.clone().into_bytes(),
                Line::Refused => panic!("nothing here looks like a stand-in"),
            };
            let (_, held_target, _) = split(&held).unwrap();

            prop_assert!(PathAndQuery::try_from(held_target).is_ok(), "{}", target);
            prop_assert_eq!(restore(&held), line.into_bytes());
        }
    }
}
