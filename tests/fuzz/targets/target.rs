//! A request line that the HTTP library cannot hold comes back byte for byte.
//!
//! Input: a request line.
#![no_main]

use http::uri::PathAndQuery;
use libfuzzer_sys::fuzz_target;
use okapi_auth_sidecar::target::{Line, hold, holds, restore, wire_length};

/// Method, target, version.
fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b' ').collect()
}

/// Whether the library takes this target as it is.
fn library_holds(target: &[u8]) -> bool {
    PathAndQuery::try_from(target).is_ok()
}

fn looks_like_a_stand_in(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|three| {
        three[0] == 0xef && (0x9c..=0x9d).contains(&three[1]) && (0x80..=0xbf).contains(&three[2])
    })
}

/// Whether the line is one of HTTP/1 for a path, so that it is looked at.
fn is_request(words: &[&[u8]]) -> bool {
    matches!(words, [method, target, b"HTTP/1.1" | b"HTTP/1.0"]
        if target.starts_with(b"/") && method.iter().all(u8::is_ascii_graphic))
}

/// All between the first space and the last.
fn middle(line: &[u8]) -> Vec<u8> {
    let words = words(line);
    let end = if words.len() > 2 {
        words.len() - 1
    } else {
        words.len()
    };
    words.get(1..end).unwrap_or_default().join(&b' ')
}

fuzz_target!(|line: &[u8]| {
    let words_in = words(line);
    if !looks_like_a_stand_in(line) {
        assert_eq!(restore(line), line, "what holds nothing stays");
    }
    let refused = middle(line).contains(&b'#') || looks_like_a_stand_in(&middle(line));
    let held = hold(line);
    assert_eq!(
        held == Line::Refused,
        refused,
        "what would go up as something else, and nothing else"
    );
    match held {
        Line::Refused => {}
        Line::AsItIs => {
            // Of a request line: the library holds the target as it is, or what it refuses is no visible ASCII.
            if is_request(&words_in) {
                let target = words_in[1];
                let visible = target.iter().all(u8::is_ascii_graphic);
                assert!(!visible || library_holds(target));
            }
        }
        Line::Held(held) => {
            assert!(is_request(&words_in));
            assert_eq!(restore(&held), line);
            let (target, words_out) = (words_in[1], words(&held));
            assert_eq!((words_out[0], words_out[2]), (words_in[0], words_in[2]));
            assert!(!library_holds(target), "changed without need");
            let visible = target.iter().all(u8::is_ascii_graphic);
            match PathAndQuery::try_from(words_out[1]) {
                Ok(taken) => {
                    assert_eq!(taken.as_str().as_bytes(), words_out[1]);
                    assert_eq!(wire_length(&taken), target.len());
                    assert_eq!(restore(taken.as_str().as_bytes()), target);
                    let uri = taken.into();
                    assert!(holds(&uri));
                }
                Err(_) => assert!(!visible, "the library does not hold it"),
            }
        }
    }
});
