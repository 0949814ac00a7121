//! An upstream that believes nothing: reads what comes by the letter of RFC 9112 and nothing more lenient, keeps all of
//! it, and refuses every request, so that nothing is ever answered from the cache.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const NO: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno";

/// One request as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) line: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Heard {
    messages: Vec<Message>,
    faults: Vec<String>,
}

/// The running upstream.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) addr: SocketAddr,
    heard: Arc<Mutex<Heard>>,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a test that runs");
        let addr = listener.local_addr().expect("a test that runs");
        let heard = Arc::<Mutex<Heard>>::default();
        let keep = heard.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(listen(stream, keep.clone()));
            }
        });
        Self { addr, heard }
    }

    /// What came in since the last look, and what of it no strict reader would take.
    pub(crate) fn heard(&self) -> (Vec<Message>, Vec<String>) {
        let heard = std::mem::take(&mut *self.heard.lock().expect("a test that runs"));
        (heard.messages, heard.faults)
    }
}

async fn listen(mut stream: TcpStream, heard: Arc<Mutex<Heard>>) {
    let mut bytes = Vec::new();
    loop {
        match read(&bytes) {
            Ok(Some((message, length))) => {
                bytes.drain(..length);
                heard
                    .lock()
                    .expect("a test that runs")
                    .messages
                    .push(message);
                if stream.write_all(NO).await.is_err() {
                    return;
                }
            }
            // Broken off in the middle is no request.
            Ok(None) => match stream.read_buf(&mut bytes).await {
                Ok(read) if read > 0 => {}
                _ => return,
            },
            Err(fault) => {
                let shown = String::from_utf8_lossy(&bytes);
                heard
                    .lock()
                    .expect("a test that runs")
                    .faults
                    .push(format!("{fault}: {shown:?}"));
                return;
            }
        }
    }
}

/// The first whole request in these bytes and its length.
fn read(bytes: &[u8]) -> Result<Option<(Message, usize)>, &'static str> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "a head that is no text")?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let words: Vec<_> = line.split(' ').collect();
    if words.len() != 3 || words[2] != "HTTP/1.1" {
        return Err("a request line without three words");
    }
    if head.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return Err("a bare CR, LF or NUL");
    }
    let fields: Vec<_> = lines
        .map(|line| line.split_once(':').ok_or("a line without colon"))
        .map(|field| field.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())))
        .collect::<Result<_, _>>()?;
    let token = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.~!#$%&'*+^`|".contains(&byte))
    };
    if !fields.iter().all(|(name, _)| token(name)) {
        return Err("a name that is no token");
    }
    let all = |wanted: &str| -> Vec<&str> {
        let found = fields.iter().filter(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str()).collect()
    };
    if all("host").len() != 1 {
        return Err("not one Host");
    }
    let rest = &bytes[end + 4..];
    let body = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => Some((Vec::new(), 0)),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let length: usize = length.parse().map_err(|_| "a huge length")?;
            (rest.len() >= length).then(|| (rest[..length].to_vec(), length))
        }
        ([], ["chunked"]) => chunks(rest)?,
        _ => return Err("a body framed in two ways, or in none"),
    };
    Ok(body.map(|(body, length)| {
        let message = Message {
            line,
            fields: fields.clone(),
            body,
        };
        (message, end + 4 + length)
    }))
}

/// A chunked body without extensions and trailers, and its length on the wire.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&bytes[at..at + end]).map_err(|_| "a chunk size")?;
        if size.is_empty() || size.len() > 8 || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("a chunk size that is not just hexadecimal digits");
        }
        let size = usize::from_str_radix(size, 16).map_err(|_| "a chunk size")?;
        at += end + 2;
        let Some(chunk) = bytes.get(at..at + size + 2) else {
            return Ok(None);
        };
        if !chunk.ends_with(b"\r\n") {
            return Err("a chunk longer than its size, or trailers");
        }
        body.extend_from_slice(&chunk[..size]);
        at += size + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    crate::support::raw::find(bytes, wanted)
}
