//! A part of the platform with a runtime of its own and exactly one thread in it.
//!
//! All parts share a process, so only the threads can say which of them used how much of the processor.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::Outcome;

/// A running part. Dropped, its tasks end at once.
#[derive(Debug)]
pub(crate) struct Part {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// Where Linux accounts for the thread; `None` elsewhere.
    account: Option<PathBuf>,
}

impl Part {
    /// Starts the thread.
    pub(crate) fn new(name: &str) -> Outcome<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()?;
        let link = runtime.spawn(async { std::fs::read_link("/proc/thread-self") });
        // "<process>/task/<thread>", which /proc/self shortens.
        let account = runtime.block_on(link)?.ok().and_then(|link| {
            let thread = link.file_name()?;
            Some(
                PathBuf::from("/proc/self/task")
                    .join(thread)
                    .join("schedstat"),
            )
        });
        Ok(Self {
            runtime: Some(runtime),
            account,
        })
    }

    /// Runs a future on the part's own thread and waits for it.
    pub(crate) fn run<F>(&self, future: F) -> Outcome<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let runtime = self.runtime.as_ref().ok_or("the part has ended")?;
        Ok(runtime.block_on(runtime.spawn(future))?)
    }

    /// Processor time of the part's thread so far; `None` where the system does not say.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(self.account.as_ref()?).ok()?;
        let nanos = text.split(' ').next()?.parse().ok()?;
        Some(Duration::from_nanos(nanos))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
