//! Accepts connections and answers what comes in on them, one request after the other.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::control::{Control, Trouble};
use super::wire::{Asked, Client, Reply, Unreadable, upgrades};
use super::{Module, filter};

const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";

/// The tasks of the open connections.
pub type Connections = Arc<Mutex<JoinSet<()>>>;

/// Accepts until it is dropped.
pub async fn accept(
    listener: TcpListener,
    module: Arc<Module>,
    control: Arc<Control>,
    connections: Connections,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let number = control.connected();
        let task = serve(stream, number, Arc::clone(&module), Arc::clone(&control));
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            // The client went away: nobody is left to tell.
            let _ = task.await;
        });
    }
}

async fn serve(
    stream: TcpStream,
    number: u64,
    module: Arc<Module>,
    control: Arc<Control>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut client = Client::new(stream);
    loop {
        let request = match client.next().await? {
            Ok(request) => request,
            Err(why) => {
                control.receive_unreadable();
                return refuse(client, why).await;
            }
        };
        if upgrades(&request) {
            control.receive(&request, number, module.clock.now());
            // What the real module would go on to say in HTTP/2 is beyond this one.
            client.send_bytes(SWITCHING).await?;
            client.gone().await;
            return Ok(());
        }
        let to = Asked::by(&request);
        let orders = control.receive(&request, number, module.clock.now());
        let reply = match &orders.trouble {
            None => filter::answer(&module, &request).await,
            Some(_) => None,
        };
        orders.pass_gates().await;
        if !orders.delay.is_zero() {
            tokio::time::sleep(orders.delay).await;
        }
        match (orders.trouble, reply) {
            (None, Some(reply)) => client.send(&reply, to).await?,
            (Some(Trouble::Bytes { bytes, close }), _) => {
                client.send_bytes(&bytes).await?;
                if close {
                    client.close().await;
                    return Ok(());
                }
            }
            (Some(Trouble::Close), _) => return Ok(()),
            (Some(Trouble::Hang), _) | (None, None) => {
                client.gone().await;
                return Ok(());
            }
        }
        if to.close {
            client.close().await;
            return Ok(());
        }
    }
}

async fn refuse(mut client: Client, why: Unreadable) -> io::Result<()> {
    let to = Asked {
        head: false,
        close: false,
        old: false,
    };
    client.send(&Reply::unreadable(why), to).await?;
    client.close().await;
    Ok(())
}
