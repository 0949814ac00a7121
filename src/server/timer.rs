//! A timer for connections whose deadline moves with every request and hardly ever comes.
//!
//! hyper makes a sleep for each head it waits for and drops it when the head is there; tokio's own enters and leaves
//! the timer wheel each time, which costs as much as the look-up of a decision. Here a connection has one tokio sleep
//! that stays in the wheel: a later deadline is only noted, and looked at when the earlier one has come. The waker may
//! so be called once too often, never too late.

use hyper::rt::{Sleep, Timer};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

type Shared = Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>;

/// The timer of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionTimer {
    sleep: Shared,
}

#[allow(
    clippy::disallowed_types,
    reason = "hyper's trait is written in std's instants"
)]
impl Timer for ConnectionTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Waiting {
            sleep: self.sleep.clone(),
            deadline: Instant::now() + duration,
        })
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Waiting {
            sleep: self.sleep.clone(),
            deadline: Instant::from_std(deadline),
        })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

struct Waiting {
    sleep: Shared,
    deadline: Instant,
}

impl Sleep for Waiting {}

impl Future for Waiting {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = shared.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.deadline)));
        if sleep.deadline() > self.deadline {
            sleep.as_mut().reset(self.deadline);
        }
        loop {
            match sleep.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if sleep.deadline() >= self.deadline => return Poll::Ready(()),
                Poll::Ready(()) => sleep.as_mut().reset(self.deadline),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_later_deadline_is_kept_to_although_an_earlier_sleep_was_dropped() {
        let timer = ConnectionTimer::default();
        let began = Instant::now();
        {
            let mut early = timer.sleep(Duration::from_secs(10));
            let polled = std::future::poll_fn(|context| Poll::Ready(early.as_mut().poll(context)));
            assert!(polled.await.is_pending());
        }
        tokio::time::advance(Duration::from_secs(5)).await;

        timer.sleep(Duration::from_secs(10)).await;

        assert_eq!(began.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_is_kept_to_as_well() {
        let timer = ConnectionTimer::default();
        let began = Instant::now();
        {
            let mut late = timer.sleep(Duration::from_mins(1));
            let polled = std::future::poll_fn(|context| Poll::Ready(late.as_mut().poll(context)));
            assert!(polled.await.is_pending());
        }

        timer.sleep(Duration::from_secs(1)).await;

        assert_eq!(began.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_be_used_again_after_it_has_come() {
        let timer = ConnectionTimer::default();
        let began = Instant::now();
        for _ in 0..3 {
            timer.sleep(Duration::from_secs(2)).await;
        }

        assert_eq!(began.elapsed().as_secs(), 6);
    }
}
