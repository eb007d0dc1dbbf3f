//! Ends a connection in time, and when its server stops.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Sleep, timeout};

use super::liveness::{Liveness, LivenessCheck, Watchdog};
use crate::memory::Account;

/// Time for the first request of a connection that was opened just before the server stops.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(1);

/// The clock and the end of a connection.
pub(super) struct Supervisor<'a, S> {
    liveness: &'a Liveness,
    account: &'a Account,
    watchdog: Watchdog,
    next_check: Pin<&'a mut Sleep>,
    /// Ready when the server stops.
    stop: Pin<&'a mut S>,
    is_stopping: bool,
    /// The task that runs it.
    task: Waker,
    wake_flag: Arc<WakeFlag>,
}

/// Waker of the clock and of the end of the server. It marks its wakeups, so that those for the
/// bytes of a request need not poll either.
struct WakeFlag {
    is_set: AtomicBool,
    task: Mutex<Waker>,
}

/// What a connection is woken for.
enum Wakeup<T> {
    Ended(T),
    Stop,
    Check,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Release);
        self.task.lock().wake_by_ref();
    }
}

impl<'a, S: Future<Output = ()>> Supervisor<'a, S> {
    /// Ends a connection with this watchdog, whose first check is due, or when `stop` is ready.
    pub(super) fn new(
        liveness: &'a Liveness,
        account: &'a Account,
        watchdog: Watchdog,
        next_check: Pin<&'a mut Sleep>,
        stop: Pin<&'a mut S>,
    ) -> Self {
        let task = Waker::noop().clone();
        let wake_flag =
            Arc::new(WakeFlag { is_set: AtomicBool::new(true), task: Mutex::new(task.clone()) });
        Self { liveness, account, watchdog, next_check, stop, is_stopping: false, task, wake_flag }
    }

    /// Drives a connection to its end; `None` if that takes too long. `close` begins the end.
    pub(super) async fn run<F: Future>(
        &mut self,
        mut served: Pin<&mut F>,
        close: impl Fn(Pin<&mut F>),
    ) -> Option<F::Output> {
        if self.is_stopping {
            close(served.as_mut());
        }
        // The end of what was served before may have taken the mark.
        self.wake_flag.is_set.store(true, Relaxed);
        loop {
            match poll_fn(|cx| self.poll(served.as_mut(), cx)).await {
                Wakeup::Ended(ended) => return Some(ended),
                Wakeup::Stop => {
                    self.is_stopping = true;
                    if !self.liveness.has_begun() {
                        // The first request of a new connection is on its way.
                        let begun = poll_fn(|cx| match served.as_mut().poll(cx) {
                            Poll::Ready(ended) => Poll::Ready(Some(ended)),
                            Poll::Pending if self.liveness.has_begun() => Poll::Ready(None),
                            Poll::Pending => Poll::Pending,
                        });
                        if let Ok(Some(ended)) = timeout(FIRST_REQUEST_GRACE, begun).await {
                            return Some(ended);
                        }
                    }
                    close(served.as_mut());
                }
                Wakeup::Check => {
                    match self.watchdog.check(self.liveness, self.account) {
                        LivenessCheck::Alive => {}
                        LivenessCheck::Idle => close(served.as_mut()),
                        LivenessCheck::TimedOut => return None,
                    }
                    let again = self.next_check.deadline() + self.watchdog.interval();
                    self.next_check.as_mut().reset(again);
                }
            }
            // The other may be ready too.
            self.wake_flag.is_set.store(true, Relaxed);
        }
    }

    fn poll<F: Future>(
        &mut self,
        served: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Wakeup<F::Output>> {
        let is_same_task = self.task.will_wake(cx.waker());
        if !is_same_task {
            self.task.clone_from(cx.waker());
            self.wake_flag.task.lock().clone_from(cx.waker());
        }
        let is_set = !is_same_task || self.wake_flag.is_set.load(Acquire);
        // First, so that a response that is ready too announces the end of its connection.
        if is_set {
            self.wake_flag.is_set.store(false, Relaxed);
            let waker = Waker::from(self.wake_flag.clone());
            let mut cx = Context::from_waker(&waker);
            if !self.is_stopping && self.stop.as_mut().poll(&mut cx).is_ready() {
                return Poll::Ready(Wakeup::Stop);
            }
        }
        if let Poll::Ready(ended) = served.poll(cx) {
            return Poll::Ready(Wakeup::Ended(ended));
        }
        if is_set {
            let waker = Waker::from(self.wake_flag.clone());
            if self.next_check.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return Poll::Ready(Wakeup::Check);
            }
        }
        Poll::Pending
    }
}
