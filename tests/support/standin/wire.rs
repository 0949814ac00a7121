//! The server's side of the wire: reads requests as Vert.x does, writes answers as it does, to the byte.
//!
//! Not hyper's server: it cannot show an `HTTP/1.0 414`, keeps no header order, and refuses targets that the real module takes.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::headers::Headers;
use super::super::raw::{Request, find};

/// Longest request line in bytes, line end not counted.
const LONGEST_LINE: usize = 4096;
/// Most bytes of header fields: names, values and two for each.
const LARGEST_HEAD: usize = 8192;
/// A head that does not end within this is refused without reading on.
const HEAD_BUFFER: usize = 64 * 1024;

/// A request that is refused before anything looks at it. The connection closes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// 414, said in HTTP/1.0 since the version stands at the end of the line.
    LineTooLong,
    /// 431.
    HeadTooLarge,
    /// 400.
    Malformed,
}

/// One connection from a client.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    wire: Vec<u8>,
}

impl Client {
    /// Takes over an accepted connection.
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(4096),
            wire: Vec::with_capacity(4096),
        }
    }

    /// Reads the next request with its body, saying `100 Continue` on the way if it asks for that. `Err` ends the connection;
    /// a request that cannot be read is the inner error.
    pub async fn next(&mut self) -> io::Result<Result<Request, Unreadable>> {
        let end = loop {
            match self.head_end() {
                Ok(Some(end)) => break end,
                Ok(None) => self.fill().await?,
                Err(unreadable) => return Ok(Err(unreadable)),
            }
        };
        let request = parse(&self.buffer[..end]);
        self.buffer.drain(..end + 4);
        let mut request = match request {
            Ok(request) => request,
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        if request.headers.has_word("expect", "100-continue") {
            self.stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        match self.read_body(&request.headers).await {
            Ok(body) => request.body = body,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Ok(Err(Unreadable::Malformed));
            }
            Err(error) => return Err(error),
        }
        Ok(Ok(request))
    }

    /// Sends an answer.
    pub async fn send(&mut self, reply: &Reply, to: Asked) -> io::Result<()> {
        self.wire.clear();
        reply.render(to, &mut self.wire);
        self.stream.write_all(&self.wire).await
    }

    /// Sends these bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Waits until the client has gone.
    pub async fn gone(&mut self) {
        while self.fill().await.is_ok() {
            self.buffer.clear();
        }
    }

    /// Closes in an orderly way: what was sent arrives, even if the client has sent more than was read.
    pub async fn close(mut self) {
        if self.stream.shutdown().await.is_ok() {
            self.gone().await;
        }
    }

    fn head_end(&self) -> Result<Option<usize>, Unreadable> {
        let line = find(&self.buffer, b"\r\n");
        if line.unwrap_or(self.buffer.len()) > LONGEST_LINE {
            return Err(Unreadable::LineTooLong);
        }
        match find(&self.buffer, b"\r\n\r\n") {
            Some(end) => Ok(Some(end)),
            None if self.buffer.len() > HEAD_BUFFER => Err(Unreadable::HeadTooLarge),
            None => Ok(None),
        }
    }

    async fn read_body(&mut self, headers: &Headers) -> io::Result<Vec<u8>> {
        if headers.has_word("transfer-encoding", "chunked") {
            return self.read_chunks().await;
        }
        match headers.get("content-length") {
            Some(length) => {
                let length = length.parse().map_err(|_| ErrorKind::InvalidData)?;
                self.take(length).await
            }
            None => Ok(Vec::new()),
        }
    }

    async fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line().await?;
            let size = line.split(';').next().unwrap_or_default();
            let size =
                usize::from_str_radix(size.trim(), 16).map_err(|_| ErrorKind::InvalidData)?;
            if size == 0 {
                while !self.take_line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size).await?);
            self.take_line().await?;
        }
    }

    async fn take_line(&mut self) -> io::Result<String> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                break end;
            }
            self.fill().await?;
        };
        let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn parse(head: &[u8]) -> Result<Request, Unreadable> {
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let line = String::from_utf8_lossy(lines.next().ok_or(Unreadable::Malformed)?);
    let (method, rest) = line.split_once(' ').ok_or(Unreadable::Malformed)?;
    let (target, version) = rest.rsplit_once(' ').ok_or(Unreadable::Malformed)?;
    if !version.starts_with("HTTP/1.") {
        return Err(Unreadable::Malformed);
    }
    let mut request = Request::new(method, target);
    version.clone_into(&mut request.version);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.ok_or(Unreadable::Malformed)?);
        let name = String::from_utf8_lossy(name.trim_ascii_end());
        request.headers.push(name, value[1..].trim_ascii());
    }
    if request.headers.size() > LARGEST_HEAD {
        return Err(Unreadable::HeadTooLarge);
    }
    Ok(request)
}

/// What of the request shapes its answer's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// `HEAD`: neither body nor framing headers.
    pub head: bool,
    /// The connection ends after this answer.
    pub close: bool,
    /// `HTTP/1.0`: answered in kind, and a body without a known length ends with the connection.
    pub old: bool,
}

impl Asked {
    /// Reads it from a request.
    pub fn by(request: &Request) -> Self {
        let old = request.version == "HTTP/1.0";
        Self {
            head: request.method == "HEAD",
            close: old || request.headers.has_word("connection", "close"),
            old,
        }
    }
}

/// Whether a request asks to go on in HTTP/2 without TLS, which the real module's server agrees to (and Okapi never does).
pub fn upgrades(request: &Request) -> bool {
    let headers = &request.headers;
    headers.has_word("upgrade", "h2c")
        && headers.has_word("connection", "upgrade")
        && headers.has("http2-settings")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// `transfer-encoding: chunked`, before all other fields.
    Chunked,
    /// `content-length`, after all other fields.
    Length,
    /// None: 101 and 204.
    Absent,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    version: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    framing: Framing,
}

impl Reply {
    /// Chunked, without a body so far: `setChunked(true)`.
    pub fn chunked(status: u16) -> Self {
        Self::new(status, Framing::Chunked, Vec::new())
    }

    /// The answer of `endText`.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, Framing::Length, body.into().into_bytes())
            .with("Content-Type", "text/plain")
    }

    /// The answer of `endJson`.
    pub fn json(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, Framing::Length, body.into().into_bytes())
            .with("Content-Type", "application/json")
    }

    /// A body with its length and no other header.
    pub fn plain(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, Framing::Length, body.into().into_bytes())
    }

    /// The router's own answer when nothing handled the request or a handler threw: the reason phrase, no `Content-Type`.
    pub fn router(status: u16) -> Self {
        Self::plain(status, reason(status))
    }

    /// No body and no framing header.
    pub fn empty(status: u16) -> Self {
        Self::new(status, Framing::Absent, Vec::new())
    }

    /// The answer to what could not be read.
    pub fn unreadable(why: Unreadable) -> Self {
        // The connection closes, though the answer does not say so.
        match why {
            Unreadable::LineTooLong => Self {
                version: "HTTP/1.0",
                ..Self::plain(414, "")
            },
            Unreadable::HeadTooLarge => Self::plain(431, ""),
            Unreadable::Malformed => Self::plain(400, ""),
        }
    }

    /// The same with one more header, or with another value of it.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same with this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into().into_bytes();
        self
    }

    fn new(status: u16, framing: Framing, body: Vec<u8>) -> Self {
        Self {
            status,
            version: "HTTP/1.1",
            headers: Vec::with_capacity(6),
            body,
            framing,
        }
    }

    fn render(&self, to: Asked, wire: &mut Vec<u8>) {
        let chunked = self.framing == Framing::Chunked && !to.old;
        let version = if to.old { "HTTP/1.0" } else { self.version };
        let line = format!("{version} {} {}\r\n", self.status, reason(self.status));
        wire.extend_from_slice(line.as_bytes());
        if chunked && !to.head {
            wire.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        for (name, value) in &self.headers {
            wire.extend_from_slice(name.as_bytes());
            wire.extend_from_slice(b": ");
            if value.is_ascii() {
                wire.extend_from_slice(value.as_bytes());
            } else {
                // As Netty writes: a character is a byte, if it fits.
                wire.extend(value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')));
            }
            wire.extend_from_slice(b"\r\n");
        }
        if self.framing == Framing::Length && !to.head {
            let line = format!("content-length: {}\r\n", self.body.len());
            wire.extend_from_slice(line.as_bytes());
        }
        if to.close && !to.old {
            wire.extend_from_slice(b"connection: close\r\n");
        }
        wire.extend_from_slice(b"\r\n");
        if to.head {
            return;
        }
        if chunked && !self.body.is_empty() {
            wire.extend_from_slice(format!("{:x}\r\n", self.body.len()).as_bytes());
            wire.extend_from_slice(&self.body);
            wire.extend_from_slice(b"\r\n");
        } else {
            wire.extend_from_slice(&self.body);
        }
        if chunked {
            wire.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

/// The reason phrase that Vert.x (Netty) writes.
pub fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown Status",
    }
}
