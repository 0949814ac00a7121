//! SIGTERM and SIGINT, taken from the first moment on: as process 1 of a container we would otherwise not even notice them.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a run.
#[derive(Debug)]
pub(crate) struct Interrupts {
    terminate: Signal,
    interrupt: Signal,
}

impl Interrupts {
    /// From here on the signals no longer end the process.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The name of a signal that has come already.
    pub(crate) fn seen(&mut self) -> Option<&'static str> {
        use std::task::{Context, Waker};

        let mut context = Context::from_waker(Waker::noop());
        if self.terminate.poll_recv(&mut context).is_ready() {
            return Some("SIGTERM");
        }
        let interrupted = self.interrupt.poll_recv(&mut context).is_ready();
        interrupted.then_some("SIGINT")
    }
}
