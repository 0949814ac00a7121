//! Requests as they stand in a connection's buffer: where a head ends, and where its body does.
//!
//! Pure. The heads are read by the parser that the HTTP library uses, with the same settings, so both see the same
//! fields. The trap: where a message ends must never be a matter of opinion. What is not framed in one of three plain
//! ways is [`Framing::Unclear`], and the connection is given to the library for good and ends with that request.

use http::HeaderName;
use httparse::{Header, Status};
use std::mem::MaybeUninit;

/// Fields that nearly every head has room in.
const USUAL_FIELDS: usize = 64;
/// Most fields of a head: the library would stop at 100 unless told otherwise, the auth module has no such limit.
pub const MOST_FIELDS: usize = 1_024;

/// How the end of a request is found (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// One `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked` and nothing beside it.
    Chunked,
    /// Anything else.
    Unclear,
}

/// A whole request head.
#[derive(Clone, Copy)]
pub struct Head<'b, 'a> {
    /// The method.
    pub method: &'a str,
    /// The request target.
    pub target: &'a str,
    /// The fields, names as they were spelt.
    pub fields: &'b [Header<'a>],
    /// Bytes up to the body.
    pub length: usize,
    /// Where the request ends.
    pub framing: Framing,
    /// Whether nothing in it is meant for the connection: it may be answered without the HTTP library.
    pub simple: bool,
}

impl<'a> Head<'_, 'a> {
    /// The first field of this name.
    pub fn field(&self, name: &HeaderName) -> Option<&'a [u8]> {
        let named = |field: &&Header<'a>| field.name.eq_ignore_ascii_case(name.as_str());
        self.fields.iter().find(named).map(|field| field.value)
    }
}

impl std::fmt::Debug for Head<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The fields hold tokens.
        f.debug_struct("Head")
            .field("length", &self.length)
            .field("framing", &self.framing)
            .field("simple", &self.simple)
            .finish_non_exhaustive()
    }
}

/// What a buffer begins with.
#[derive(Debug)]
pub enum Beginning<'b, 'a> {
    /// A whole head.
    Whole(Head<'b, 'a>),
    /// Part of one.
    Partial,
    /// Something that the library refuses as well.
    Broken,
}

/// Looks at the beginning of a buffer, and lets `look` have what is there.
pub fn with_head<R>(bytes: &[u8], look: impl FnOnce(Beginning<'_, '_>) -> R) -> R {
    let mut room = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut room) {
        Err(httparse::Error::TooManyHeaders) => {
            let mut room = vec![MaybeUninit::uninit(); MOST_FIELDS];
            let mut request = httparse::Request::new(&mut []);
            let parsed = request.parse_with_uninit_headers(bytes, &mut room);
            look(beginning(&request, parsed))
        }
        parsed => look(beginning(&request, parsed)),
    }
}

fn beginning<'b, 'a>(
    request: &'b httparse::Request<'b, 'a>,
    parsed: httparse::Result<usize>,
) -> Beginning<'b, 'a> {
    match parsed {
        Ok(Status::Complete(length)) => match (request.method, request.path, request.version) {
            (Some(method), Some(target), Some(version)) => {
                Beginning::Whole(whole(method, target, version, request.headers, length))
            }
            _ => Beginning::Broken,
        },
        Ok(Status::Partial) => Beginning::Partial,
        Err(_) => Beginning::Broken,
    }
}

fn whole<'b, 'a>(
    method: &'a str,
    target: &'a str,
    version: u8,
    fields: &'b [Header<'a>],
    length: usize,
) -> Head<'b, 'a> {
    let mut framing = Framing::None;
    let mut simple = version == 1;
    for field in fields {
        match of_the_connection(field.name) {
            Connection::Nothing => {}
            Connection::Length => {
                simple = false;
                framing = match (framing, decimal(field.value)) {
                    (Framing::None, Some(length)) => Framing::Length(length),
                    _ => Framing::Unclear,
                };
            }
            Connection::Encoding => {
                simple = false;
                framing =
                    if framing == Framing::None && field.value.eq_ignore_ascii_case(b"chunked") {
                        Framing::Chunked
                    } else {
                        Framing::Unclear
                    };
            }
            Connection::Other => simple = false,
        }
    }
    // What follows a CONNECT is no request, and HTTP/1.0 knows no chunks.
    if method == "CONNECT" || version == 0 && framing == Framing::Chunked {
        framing = Framing::Unclear;
    }
    Head {
        method,
        target,
        fields,
        length,
        framing,
        simple: simple && framing == Framing::None,
    }
}

/// What a field tells the connection.
enum Connection {
    Nothing,
    Length,
    Encoding,
    Other,
}

fn of_the_connection(name: &str) -> Connection {
    // The first letter spares most names the comparisons.
    match name.as_bytes().first().map(u8::to_ascii_lowercase) {
        Some(b'c') if name.eq_ignore_ascii_case("content-length") => Connection::Length,
        Some(b't') if name.eq_ignore_ascii_case("transfer-encoding") => Connection::Encoding,
        Some(b'c') if name.eq_ignore_ascii_case("connection") => Connection::Other,
        Some(b'e') if name.eq_ignore_ascii_case("expect") => Connection::Other,
        Some(b'u') if name.eq_ignore_ascii_case("upgrade") => Connection::Other,
        _ => Connection::Nothing,
    }
}

/// Digits and nothing else, few enough to be a length.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: the next byte belongs to the next request.
    Nothing,
    /// So many bytes.
    Length(u64),
    /// Chunks (RFC 9112, 7.1).
    Chunks(Chunks),
    /// Nobody knows.
    Unclear,
}

/// Where in a chunked body one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In a size, of so many digits so far.
    Size(u64, u8),
    /// In what may follow a size.
    Extension(u64),
    /// Behind that line's CR.
    SizeEnd(u64),
    /// In data, with so many bytes left.
    Data(u64),
    /// Behind data.
    DataCr,
    /// Behind data's CR.
    DataEnd,
    /// Behind the last chunk or a trailer: an empty line ends the body.
    LastCr,
    /// Behind that line's CR.
    LastEnd,
    /// In a trailer.
    Trailer,
    /// Behind its CR.
    TrailerEnd,
}

impl Rest {
    /// What follows a head.
    pub fn of(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Nothing,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunks(Chunks::Size(0, 0)),
            Framing::Unclear => Self::Unclear,
        }
    }

    /// How many of these bytes belong to the body. What does not have the exact form of chunks makes the rest unclear, and
    /// then all of them are said to.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Unclear => bytes.len(),
            Self::Length(left) => {
                let taken = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Nothing;
                }
                taken
            }
            Self::Chunks(_) => self.take_chunks(bytes),
        }
    }

    fn take_chunks(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let (Self::Chunks(chunks), Some(&byte)) = (*self, bytes.get(at)) {
            *self = match chunks {
                Chunks::Data(left) => {
                    let here = (bytes.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    at += here;
                    match left - here as u64 {
                        0 => Self::Chunks(Chunks::DataCr),
                        left => Self::Chunks(Chunks::Data(left)),
                    }
                }
                other => {
                    at += 1;
                    other.after(byte)
                }
            };
        }
        if *self == Self::Unclear {
            return bytes.len();
        }
        at
    }
}

impl Chunks {
    /// A size has at most so many digits: what has more is no length.
    const MOST_DIGITS: u8 = 15;

    fn after(self, byte: u8) -> Rest {
        let next = match (self, byte) {
            (Self::Size(size, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if digits < Self::MOST_DIGITS =>
            {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Self::Size(size * 16 + digit, digits + 1)
            }
            (Self::Size(size, 1..) | Self::Extension(size), b'\r') => Self::SizeEnd(size),
            (Self::Size(size, 1..), b';') => Self::Extension(size),
            (Self::Extension(size), byte) if byte != b'\n' => Self::Extension(size),
            (Self::SizeEnd(0) | Self::TrailerEnd, b'\n') => Self::LastCr,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataEnd,
            (Self::DataEnd, b'\n') => Self::Size(0, 0),
            (Self::LastCr, b'\r') => Self::LastEnd,
            (Self::LastEnd, b'\n') => return Rest::Nothing,
            (Self::Trailer, b'\r') => Self::TrailerEnd,
            (Self::LastCr | Self::Trailer, byte) if byte != b'\n' => Self::Trailer,
            _ => return Rest::Unclear,
        };
        Rest::Chunks(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framing(fields: &str) -> (Framing, bool) {
        let head = format!("POST /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        with_head(head.as_bytes(), |beginning| match beginning {
            Beginning::Whole(whole) => {
                assert_eq!(whole.length, head.len());
                (whole.framing, whole.simple)
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn only_three_framings_are_clear_and_only_none_is_simple() {
        for (fields, expected, simple) in [
            ("", Framing::None, true),
            ("X-Okapi-Tenant: t\r\n", Framing::None, true),
            ("Connection: keep-alive\r\n", Framing::None, false),
            ("EXPECT: 100-continue\r\n", Framing::None, false),
            ("upgrade: h2c\r\n", Framing::None, false),
            ("Content-Length: 0\r\n", Framing::Length(0), false),
            ("content-length: 17\r\n", Framing::Length(17), false),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked, false),
            ("Content-Length: +1\r\n", Framing::Unclear, false),
            ("Content-Length: 1, 1\r\n", Framing::Unclear, false),
            ("Content-Length:\r\n", Framing::Unclear, false),
            (
                "Content-Length: 1234567890123456789\r\n",
                Framing::Unclear,
                false,
            ),
            (
                "Content-Length: 1\r\nContent-Length: 1\r\n",
                Framing::Unclear,
                false,
            ),
            (
                "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                Framing::Unclear,
                false,
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
                Framing::Unclear,
                false,
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                Framing::Unclear,
                false,
            ),
            (
                "Transfer-Encoding: gzip, chunked\r\n",
                Framing::Unclear,
                false,
            ),
            ("Transfer-Encoding: identity\r\n", Framing::Unclear, false),
        ] {
            assert_eq!(framing(fields), (expected, simple), "{fields}");
        }
    }

    #[test]
    fn old_versions_and_tunnels_are_not_simple() {
        for (line, framing) in [
            ("GET /x HTTP/1.0\r\n", Framing::None),
            (
                "GET /x HTTP/1.0\r\nContent-Length: 1\r\n",
                Framing::Length(1),
            ),
            (
                "GET /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
                Framing::Unclear,
            ),
            ("CONNECT a:1 HTTP/1.1\r\n", Framing::Unclear),
        ] {
            let head = format!("{line}\r\n");
            with_head(head.as_bytes(), |beginning| match beginning {
                Beginning::Whole(head) => {
                    assert_eq!((head.framing, head.simple), (framing, false), "{line}");
                }
                other => panic!("{line}: {other:?}"),
            });
        }
    }

    #[test]
    fn a_head_may_have_as_many_fields_as_the_library_is_told_and_no_more() {
        for (fields, whole) in [
            (64, true),
            (65, true),
            (MOST_FIELDS, true),
            (MOST_FIELDS + 1, false),
        ] {
            let head = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(fields));
            with_head(head.as_bytes(), |beginning| {
                assert_eq!(matches!(beginning, Beginning::Whole(_)), whole, "{fields}");
            });
        }
    }

    #[test]
    fn a_head_in_pieces_is_partial_at_each_of_them() {
        let head = b"GET /x?a=\"b\" HTTP/1.1\r\nX-Okapi-Tenant: t\r\n\r\n";
        for end in 0..head.len() {
            with_head(&head[..end], |beginning| {
                assert!(matches!(beginning, Beginning::Partial), "{end}");
            });
        }
    }

    /// How many bytes of these belong to the body, and what is left of it.
    fn taken(framing: Framing, bytes: &[u8]) -> (usize, Rest) {
        let mut rest = Rest::of(framing);
        let taken = rest.take(bytes);
        (taken, rest)
    }

    #[test]
    fn a_body_ends_where_it_ends() {
        let next = b"GET / HTTP/1.1\r\n\r\n";
        for (framing, body) in [
            (Framing::None, &b""[..]),
            (Framing::Length(0), b""),
            (Framing::Length(5), b"0\r\n\r\n"),
            (Framing::Chunked, b"0\r\n\r\n"),
            (Framing::Chunked, b"000\r\n\r\n"),
            (Framing::Chunked, b"3\r\na\r\n\r\n0\r\n\r\n"),
            (Framing::Chunked, b"0A\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n"),
            (Framing::Chunked, b"1;a=b;c=\"d\"\r\nx\r\n0;e\r\n\r\n"),
            (Framing::Chunked, b"1\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n"),
        ] {
            let bytes = [body, next].concat();
            assert_eq!(
                taken(framing, &bytes),
                (body.len(), Rest::Nothing),
                "{framing:?} {body:?}"
            );
        }
    }

    #[test]
    fn what_does_not_have_the_form_of_chunks_makes_a_bodys_end_unclear() {
        for body in [
            &b" 0\r\n\r\n"[..],
            b"0 ;a\r\n\r\n",
            b";a\r\n\r\n",
            b"0;a\n\r\n",
            b"0;a\r\r\n\r\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\nA: b\r\r\n\r\n",
            b"\r\n0\r\n\r\n",
            b"0\n\n",
            b"0\r\r\n",
            b"x\r\n",
            b"1\r\nab\r\n0\r\n\r\n",
            b"1\r\na\n0\r\n\r\n",
            b"0\r\n\n",
            b"0000000000000000\r\n\r\n",
            b"fffffffffffffffff\r\n",
        ] {
            assert_eq!(
                taken(Framing::Chunked, body),
                (body.len(), Rest::Unclear),
                "{body:?}"
            );
        }
        assert_eq!(taken(Framing::Unclear, b"abc"), (3, Rest::Unclear));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_body_is_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..5),
            behind in prop::collection::vec(any::<u8>(), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            let body = bytes.len();
            bytes.extend_from_slice(&behind);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut rest = Rest::of(Framing::Chunked);
            let (mut from, mut taken) = (0, 0);
            for cut in cuts {
                let piece = rest.take(&bytes[from..cut]);
                prop_assert!(piece == cut - from || rest == Rest::Nothing);
                taken += piece;
                from = cut;
            }
            prop_assert_eq!((taken, rest), (body, Rest::Nothing));
        }
    }
}
