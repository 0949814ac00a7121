//! An upstream that says what it is told to, byte for byte: recorded answers with their order, case, chunking and closing.
//!
//! The stand-in answers as the real module would; this one answers as a test wants, so it can also be wrong. It takes down
//! every request as it came over the wire.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::headers::Headers;
use super::raw::{Answer, Request, find};

/// Waiting longer than this for a request fails the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is sent for one request.
#[derive(Clone)]
pub struct Reply {
    /// The whole answer; nothing at all if empty.
    pub bytes: Vec<u8>,
    /// Whether the connection closes after it.
    pub close: bool,
}

impl Reply {
    /// An answer with these headers in this order and case. It gets its length, unless the headers say how it is framed.
    pub fn new(status: u16, headers: &Headers, body: &[u8]) -> Self {
        let mut bytes = format!("HTTP/1.1 {status} Said So\r\n").into_bytes();
        headers.write_to(&mut bytes);
        let framed = headers.has("content-length") || headers.has("transfer-encoding");
        if !framed && status != 204 {
            bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if headers.has_word("transfer-encoding", "chunked") {
            write_chunked(&mut bytes, body);
        } else {
            bytes.extend_from_slice(body);
        }
        Self {
            bytes,
            close: false,
        }
    }

    /// A recorded answer, interim ones before it included, as it stood on the wire.
    pub fn recorded(answer: &Answer, to_head: bool) -> Self {
        let mut bytes = Vec::new();
        for line in &answer.interim {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n\r\n");
        }
        bytes.extend_from_slice(answer.start_line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
        answer.headers.write_to(&mut bytes);
        bytes.extend_from_slice(b"\r\n");
        if !to_head && answer.headers.has_word("transfer-encoding", "chunked") {
            write_chunked(&mut bytes, &answer.body);
        } else {
            bytes.extend_from_slice(&answer.body);
        }
        // Vert.x closes after what it could not read (414, 431) and where it was asked to.
        let close = matches!(answer.status, 414 | 431)
            || answer.start_line.starts_with("HTTP/1.0")
            || answer.headers.has_word("connection", "close");
        Self { bytes, close }
    }

    /// The connection closes without an answer.
    pub fn nothing() -> Self {
        Self {
            bytes: Vec::new(),
            close: true,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Answers hold tokens.
        write!(formatter, "Reply(<{} bytes>)", self.bytes.len())
    }
}

fn write_chunked(bytes: &mut Vec<u8>, body: &[u8]) {
    if !body.is_empty() {
        bytes.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
}

type Answers = dyn Fn(&Request) -> Reply + Send + Sync;

/// A running upstream. It stops, connections and all, when it is dropped.
pub struct Playback {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: JoinHandle<()>,
}

struct Shared {
    heard: Mutex<Vec<Request>>,
    count: watch::Sender<usize>,
    answers: Mutex<Arc<Answers>>,
}

impl fmt::Debug for Playback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Playback")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Playback {
    /// Binds and serves. Until it is told what to say, it says `200 OK`.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("an address to listen on");
        let address = listener.local_addr().expect("the address it listens on");
        let shared = Arc::new(Shared {
            heard: Mutex::default(),
            count: watch::Sender::new(0),
            answers: Mutex::new(Arc::new(|_| Reply::new(200, &Headers::new(), b"OK"))),
        });
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            acceptor,
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The same as a base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Says this recorded answer from now on, whatever is asked.
    pub fn play(&self, answer: &Answer) {
        let answer = answer.clone();
        self.answer_with(move |request| Reply::recorded(&answer, request.method == "HEAD"));
    }

    /// Says what this makes of the request from now on.
    pub fn answer_with(&self, answers: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        *locked(&self.shared.answers) = Arc::new(answers);
    }

    /// The requests that have come in, oldest first.
    pub fn heard(&self) -> Vec<Request> {
        locked(&self.shared.heard).clone()
    }

    /// How many requests have come in.
    pub fn calls(&self) -> usize {
        locked(&self.shared.heard).len()
    }

    /// Waits until this many requests have come in; fails the test if they do not.
    pub async fn seen(&self, count: usize) {
        let mut seen = self.shared.count.subscribe();
        timeout(PATIENCE, seen.wait_for(|seen| *seen >= count))
            .await
            .expect("as many requests as the test waits for")
            .expect("the upstream is there");
    }

    /// Forgets the requests that have come in.
    pub fn forget_calls(&self) {
        locked(&self.shared.heard).clear();
        self.shared.count.send_replace(0);
    }
}

impl Drop for Playback {
    fn drop(&mut self) {
        // The connections' tasks belong to the acceptor's and end with it.
        self.acceptor.abort();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            while connections.try_join_next().is_some() {}
            connections.spawn(serve(stream, Arc::clone(&shared)));
        }
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let request = read_request(&mut stream, &mut buffer).await?;
        let answers = Arc::clone(&*locked(&shared.answers));
        let count = {
            let mut heard = locked(&shared.heard);
            heard.push(request.clone());
            heard.len()
        };
        shared.count.send_replace(count);
        let reply = answers(&request);
        stream.write_all(&reply.bytes).await?;
        if reply.close {
            return stream.shutdown().await;
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Request> {
    let end = wait_for(stream, buffer, b"\r\n\r\n").await?;
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    let mut request = parse(&head[..end]).ok_or(ErrorKind::InvalidData)?;
    request.body = if request.headers.has_word("transfer-encoding", "chunked") {
        read_chunks(stream, buffer).await?
    } else {
        let length = request.headers.get("content-length").unwrap_or("0");
        let length = length.parse().map_err(|_| ErrorKind::InvalidData)?;
        take(stream, buffer, length).await?
    };
    Ok(request)
}

fn parse(head: &[u8]) -> Option<Request> {
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let line = String::from_utf8_lossy(lines.next()?);
    let (method, rest) = line.split_once(' ')?;
    let (target, version) = rest.rsplit_once(' ')?;
    let mut request = Request::new(method, target);
    version.clone_into(&mut request.version);
    for line in lines {
        let colon = find(line, b":")?;
        let name = String::from_utf8_lossy(&line[..colon]);
        request.headers.push(name, line[colon + 1..].trim_ascii());
    }
    Some(request)
}

async fn read_chunks(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = wait_for(stream, buffer, b"\r\n").await?;
        let line: Vec<u8> = buffer.drain(..end + 2).collect();
        let size = String::from_utf8_lossy(&line[..end]);
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| ErrorKind::InvalidData)?;
        body.extend(take(stream, buffer, size).await?);
        // Ends the chunk, or the trailers of which there are none.
        take(stream, buffer, 2).await?;
        if size == 0 {
            return Ok(body);
        }
    }
}

async fn wait_for(stream: &mut TcpStream, buffer: &mut Vec<u8>, what: &[u8]) -> io::Result<usize> {
    loop {
        if let Some(at) = find(buffer, what) {
            return Ok(at);
        }
        fill(stream, buffer).await?;
    }
}

async fn take(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> io::Result<Vec<u8>> {
    while buffer.len() < length {
        fill(stream, buffer).await?;
    }
    Ok(buffer.drain(..length).collect())
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(buffer).await? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
