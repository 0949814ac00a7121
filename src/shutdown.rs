//! When the process is asked to stop: SIGINT or SIGTERM. What to do about it is for others to say.

use std::task::{Context, Waker};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals, listened for from the moment this is made: as PID 1 a process without handlers ignores SIGTERM.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The name of the next signal; call it again for the one after.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// The name of a signal that has come already.
    pub fn seen(&mut self) -> Option<&'static str> {
        let mut context = Context::from_waker(Waker::noop());
        if self.terminate.poll_recv(&mut context).is_ready() {
            return Some("SIGTERM");
        }
        let interrupted = self.interrupt.poll_recv(&mut context).is_ready();
        interrupted.then_some("SIGINT")
    }
}
