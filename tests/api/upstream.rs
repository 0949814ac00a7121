//! An upstream that does to each connection what the test says, byte by byte: for what no proper server does.

use crate::support::raw::find;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// One connection, whose first request head has been read.
pub(crate) struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The head, its empty line included.
    pub(crate) head: String,
}

impl Peer {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Reads the head of the next request.
    pub(crate) async fn next_head(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Ok(String::from_utf8_lossy(&head).into_owned());
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// What has come after the head so far, at least one byte of it; empty at the end.
    pub(crate) async fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.buffer.reserve(64 * 1024);
            self.stream.read_buf(&mut self.buffer).await?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Waits until the other side has gone.
    pub(crate) async fn gone(&mut self) {
        while self.some().await.is_ok_and(|some| !some.is_empty()) {}
    }
}

/// A running upstream. It stops, connections and all, when it is dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    acceptor: JoinHandle<()>,
}

impl Upstream {
    /// Serves every connection but those of a sidecar's probe, which it answers itself.
    pub(crate) async fn start<F>(serve: impl Fn(Peer) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("an address to listen on");
        let address = listener.local_addr().expect("the address it listens on");
        let connections = Arc::<AtomicU64>::default();
        let count = connections.clone();
        let acceptor = tokio::spawn(async move {
            let serve = Arc::new(serve);
            let mut tasks = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (serve, count) = (serve.clone(), count.clone());
                tasks.spawn(async move {
                    let mut peer = Peer {
                        stream,
                        buffer: Vec::new(),
                        head: String::new(),
                    };
                    // Whoever goes away before a head has come asked nothing.
                    let Ok(head) = peer.next_head().await else {
                        return;
                    };
                    if head.to_lowercase().contains("x-auth-sidecar-probe:") {
                        let answer =
                            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                        let _ = peer.send(answer).await;
                        return;
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    peer.head = head;
                    // The sidecar may go away at any time, that is its business.
                    let _ = serve(peer).await;
                });
            }
        });
        Self {
            address,
            connections,
            acceptor,
        }
    }

    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections have brought a request.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Where nobody listens: bound once, so that it is free, and let go.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    listener.local_addr().expect("the address of it")
}
