//! A raw HTTP/1.1 client: sends exactly the bytes it is given and reads one whole answer, names in wire order and case.
//!
//! Nothing is added, normalised or retried, since what is to be seen is just what a real client library would hide.
//! Every wait has a bound, so a test that would hang fails instead.

use std::fmt;
use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::headers::Headers;

/// Default bound of every single wait (connect, write, one whole answer).
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A request as it goes over the wire. `Debug` shows no body: bodies of own routes hold tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// Method, as sent.
    pub method: String,
    /// Request target, byte for byte.
    pub target: String,
    /// `HTTP/1.1` unless a test wants another.
    pub version: String,
    /// Fields in order.
    pub headers: Headers,
    /// Body without transfer coding.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            version: "HTTP/1.1".to_owned(),
            headers: Headers::new(),
            body: Vec::new(),
        }
    }

    /// The bytes for the wire. With a `Transfer-Encoding: chunked` field the body is chunked (an empty one is just the last
    /// chunk); otherwise it follows as it is, and any `Content-Length` is the caller's own.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut wire = format!("{} {} {}\r\n", self.method, self.target, self.version).into_bytes();
        self.headers.write_to(&mut wire);
        wire.extend_from_slice(b"\r\n");
        if self.headers.has_word("transfer-encoding", "chunked") {
            if !self.body.is_empty() {
                wire.extend_from_slice(format!("{:x}\r\n", self.body.len()).as_bytes());
                wire.extend_from_slice(&self.body);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
        } else {
            wire.extend_from_slice(&self.body);
        }
        wire
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Request")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("headers", &self.headers)
            .field("body", &format_args!("<{} bytes>", self.body.len()))
            .finish_non_exhaustive()
    }
}

/// An answer as it came over the wire. `Debug` shows the body of a refusal only: others may hold tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The whole status line.
    pub start_line: String,
    /// The status in it.
    pub status: u16,
    /// Fields in order.
    pub headers: Headers,
    /// Body, transfer coding removed.
    pub body: Vec<u8>,
    /// Status lines of the interim (1xx) answers before it.
    pub interim: Vec<String>,
}

impl Answer {
    /// The body as text; empty if it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    /// The fields whose names start with `X-Okapi-`, in order, with their wire case.
    pub fn okapi_headers(&self) -> Vec<(&str, &[u8])> {
        self.headers
            .iter()
            .filter(|(name, _)| {
                name.get(..8)
                    .is_some_and(|start| start.eq_ignore_ascii_case("x-okapi-"))
            })
            .collect()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Answer");
        shown
            .field("start_line", &self.start_line)
            .field("headers", &self.headers);
        if self.status >= 400 {
            shown.field("body", &self.text());
        } else {
            shown.field("body", &format_args!("<{} bytes>", self.body.len()));
        }
        shown.finish_non_exhaustive()
    }
}

/// One connection, kept alive for as many requests as the other side allows.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    patience: Duration,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = bounded(PATIENCE, TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(4096),
            patience: PATIENCE,
        })
    }

    /// The same with another bound for every wait.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The port it is connected from.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Sends these bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        bounded(self.patience, self.stream.write_all(bytes)).await
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        self.send(&request.to_bytes()).await?;
        self.answer(request.method == "HEAD").await
    }

    /// Reads one whole answer, interim ones before it included. An answer to `HEAD` has no body.
    pub async fn answer(&mut self, to_head: bool) -> io::Result<Answer> {
        let patience = self.patience;
        bounded(patience, self.read_answer(to_head)).await
    }

    /// Waits until the other side closes. `Ok(false)` if it sent something instead.
    pub async fn closed(&mut self) -> io::Result<bool> {
        if !self.buffer.is_empty() {
            return Ok(false);
        }
        let patience = self.patience;
        match bounded(patience, self.fill()).await {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
            Err(_) => Ok(true),
        }
    }

    async fn read_answer(&mut self, to_head: bool) -> io::Result<Answer> {
        let mut interim = Vec::new();
        loop {
            let (start_line, status, headers) = self.read_head().await?;
            if (100..200).contains(&status) && status != 101 {
                interim.push(start_line);
                continue;
            }
            let empty = to_head || status == 101 || status == 204 || status == 304;
            let body = if empty {
                Vec::new()
            } else {
                self.read_body(&headers).await?
            };
            return Ok(Answer {
                start_line,
                status,
                headers,
                body,
                interim,
            });
        }
    }

    async fn read_head(&mut self) -> io::Result<(String, u16, Headers)> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            self.fill().await?;
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let mut lines = head[..end]
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let start_line = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
        let status = start_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| invalid("no status in the status line"))?;
        let mut headers = Headers::new();
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':');
            let colon = colon.ok_or_else(|| invalid("a header line without a colon"))?;
            let name = String::from_utf8_lossy(&line[..colon]);
            headers.push(name, line[colon + 1..].trim_ascii());
        }
        Ok((start_line, status, headers))
    }

    async fn read_body(&mut self, headers: &Headers) -> io::Result<Vec<u8>> {
        if headers.has_word("transfer-encoding", "chunked") {
            return self.read_chunks().await;
        }
        if let Some(length) = headers.get("content-length") {
            let length = length
                .parse()
                .map_err(|_| invalid("content-length is no number"))?;
            return self.take(length).await;
        }
        // Neither: the body ends with the connection.
        loop {
            match self.fill().await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(std::mem::take(&mut self.buffer));
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line().await?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size.trim(), 16)
                .map_err(|_| invalid("chunk size is no number"))?;
            if size == 0 {
                while !self.take_line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size).await?);
            if !self.take_line().await?.is_empty() {
                return Err(invalid("a chunk longer than its size"));
            }
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
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(Error::new(
                ErrorKind::UnexpectedEof,
                "the other side closed the connection",
            ));
        }
        Ok(())
    }
}

/// Asks once on a connection of its own.
pub async fn ask(address: SocketAddr, request: &Request) -> io::Result<Answer> {
    Connection::open(address).await?.ask(request).await
}

async fn bounded<T>(
    patience: Duration,
    wait: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout(patience, wait)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "nothing came in time")))
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Where `wanted` begins in `bytes`.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
