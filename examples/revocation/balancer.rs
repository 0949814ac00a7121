//! Two auth modules behind one address: every request goes to the other one.
//!
//! It takes a connection, hands one question on and one answer back, and closes: whoever asks again, connects again.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::common::Outcome;

/// Questions and answers are far smaller: the neighbours' limit is 8 KB.
const LARGEST: usize = 64 * 1_024;

/// A running balancer. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct Balancer {
    address: SocketAddr,
    acceptor: JoinHandle<()>,
}

impl Balancer {
    /// Starts one in the current runtime.
    pub(crate) async fn start(modules: Vec<SocketAddr>) -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let acceptor = tokio::spawn(async move {
            for module in modules.iter().cycle() {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(carry(stream, *module));
                }
            }
        });
        Ok(Self { address, acceptor })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn carry(mut near: TcpStream, far: SocketAddr) -> std::io::Result<()> {
    let mut far = TcpStream::connect(far).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let mut buffer = vec![0; LARGEST];
    // Both are written in one piece, so on loopback they are read in one.
    let count = near.read(&mut buffer).await?;
    far.write_all(&buffer[..count]).await?;
    let count = far.read(&mut buffer).await?;
    near.write_all(&buffer[..count]).await?;
    near.shutdown().await
}
