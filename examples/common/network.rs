//! A network of a known length: hands bytes on, each way a while later, and takes the time its far end needs.
//!
//! Threads that sleep, not timers of a runtime: those are no finer than a millisecond, which is the length in question.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Outcome;

/// What the far end was asked, and how long it took to begin its answers, all together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FarEnd {
    /// Answers.
    pub(crate) answers: u32,
    /// From the last byte of a question to the first byte of its answer, summed.
    pub(crate) took: Duration,
}

/// A running network. Dropped, it takes no more connections; those there are end with their owners.
#[derive(Debug)]
pub(crate) struct Network {
    near: SocketAddr,
    far_end: Arc<Mutex<FarEnd>>,
    over: Arc<AtomicBool>,
}

impl Network {
    /// Leads to `far`; a question and its answer need `there_and_back` in all.
    pub(crate) fn start(far: SocketAddr, there_and_back: Duration) -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = listener.local_addr()?;
        let (far_end, over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (times, stop) = (Arc::clone(&far_end), Arc::clone(&over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                if let Ok(stream) = stream {
                    // Who cannot be connected through sees its connection close.
                    let _ = carry(stream, far, there_and_back / 2, &times);
                }
            }
        });
        Ok(Self {
            near,
            far_end,
            over,
        })
    }

    /// Its near end.
    pub(crate) fn near(&self) -> SocketAddr {
        self.near
    }

    /// What it has seen of its far end since this was asked last.
    pub(crate) fn take(&self) -> FarEnd {
        let mut times = self.far_end.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *times)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.near);
    }
}

/// One connection: a thread for each direction. Questions and answers take turns on it, as Okapi and the sidecar ask.
fn carry(
    near: TcpStream,
    far: SocketAddr,
    one_way: Duration,
    times: &Arc<Mutex<FarEnd>>,
) -> Outcome<()> {
    let far = TcpStream::connect(far)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let began = Instant::now();
    // Nanoseconds since `began` at which the latest question had left, 0 once its answer has begun.
    let asked = Arc::new(AtomicU64::new(0));
    let (near_out, far_out) = (near.try_clone()?, far.try_clone()?);
    let noted = Arc::clone(&asked);
    // Before the write: on one machine the answer may be there before the write returns.
    let left = move || noted.store(nanos(began), Ordering::SeqCst);
    std::thread::spawn(move || hand_on(near, far_out, one_way, || {}, left));
    let times = Arc::clone(times);
    let answered = move || {
        let asked = asked.swap(0, Ordering::SeqCst);
        if asked > 0 {
            let took = Duration::from_nanos(nanos(began).saturating_sub(asked));
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
            times.answers += 1;
            times.took += took;
        }
    };
    std::thread::spawn(move || hand_on(far, near_out, one_way, answered, || {}));
    Ok(())
}

fn hand_on(
    mut from: TcpStream,
    mut to: TcpStream,
    one_way: Duration,
    mut has_read: impl FnMut(),
    mut will_write: impl FnMut(),
) {
    let mut buffer = vec![0; 16 * 1_024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            break;
        }
        has_read();
        std::thread::sleep(one_way);
        will_write();
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Either side may be gone already.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}
