//! When the process is asked to stop: SIGINT or SIGTERM. What to do about it is for others to say.

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

    /// Ends at the next signal; call it again for the one after.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
