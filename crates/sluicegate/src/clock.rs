//! Clocks: the only module that reads the time.
//!
//! A limiter reads its [`Clock`] once per call unless the call passes a time. [`SystemClock`] is
//! the default. A [`ManualClock`] moves only when advanced, for tests.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
pub use sluicegate_core::time::{Span, Timestamp};

/// A source of time.
///
/// ```
/// use sluicegate::clock::{Clock, Timestamp};
///
/// #[derive(Debug)]
/// struct AlwaysNoon;
///
/// impl Clock for AlwaysNoon {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(43_200_000_000)
///     }
/// }
///
/// let limiter = sluicegate::Limiter::builder()
///     .limit(sluicegate::limit::FixedWindow::per_day(1))
///     .clock(AlwaysNoon)
///     .build()?;
/// assert!(limiter.hit("alice").is_allowed());
/// assert_eq!(limiter.hit("alice").reset_after, sluicegate::Span::from_secs(12 * 3600));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Microseconds since the UNIX epoch.
    fn now(&self) -> Timestamp;

    /// A monotonic time with any origin, for measuring durations.
    ///
    /// Defaults to [`Clock::now`].
    fn ticks(&self) -> Timestamp {
        self.now()
    }

    /// Wakes `waker` at `at`, if this clock does not advance automatically.
    ///
    /// If `false`, waiting uses a real-time timer.
    fn wakes(&self, at: Timestamp, waker: &Waker) -> bool {
        let _ = (at, waker);
        false
    }
}

/// The system clock.
///
/// It uses the processor's time stamp counter, which takes half the time of a system call, and
/// compares it with the system clock once a second. Steps of a millisecond or more are followed;
/// smaller ones are not, so that the clock does not oscillate with every correction.
///
/// ```
/// use sluicegate::clock::{Clock, SystemClock};
///
/// let clock = SystemClock::get();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start: u64,
    /// Offset of the epoch from the counter's start, in microseconds.
    offset_us: AtomicU64,
    /// When to read the system clock again, in nanoseconds since the start.
    resync_at_ns: AtomicU64,
}

/// A clock that is set manually, for tests.
///
/// Clones share the time. A waiting task wakes when the clock reaches its deadline.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().since(before), sluicegate::Span::from_secs(5));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    now_us: AtomicU64,
    sleepers: Mutex<Vec<(Timestamp, Waker)>>,
}

const RESYNC_INTERVAL_NS: u64 = 1_000_000_000;
const FOLLOW_FROM_US: u64 = 1_000;

impl SystemClock {
    /// The clock of this process.
    ///
    /// The first call takes up to 200 ms to calibrate the counter.
    #[must_use]
    pub fn get() -> &'static Self {
        static CLOCK: OnceLock<SystemClock> = OnceLock::new();
        CLOCK.get_or_init(|| {
            let counter = quanta::Clock::new();
            let start = counter.raw();
            let offset_us = AtomicU64::new(system_us());
            Self { counter, start, offset_us, resync_at_ns: AtomicU64::new(RESYNC_INTERVAL_NS) }
        })
    }

    /// The time.
    #[inline]
    #[must_use]
    pub fn read(&self) -> Timestamp {
        let ns = self.counter.delta_as_nanos(self.start, self.counter.raw());
        if ns >= self.resync_at_ns.load(Ordering::Relaxed) {
            self.resync(ns);
        }
        Timestamp::from_micros(self.offset_us.load(Ordering::Relaxed).wrapping_add(ns / 1_000))
    }

    /// By the counter alone.
    #[inline]
    #[must_use]
    pub fn read_ticks(&self) -> Timestamp {
        Timestamp::from_micros(self.counter.delta_as_nanos(self.start, self.counter.raw()) / 1_000)
    }

    #[cold]
    fn resync(&self, ns: u64) {
        self.resync_at_ns.store(ns + RESYNC_INTERVAL_NS, Ordering::Relaxed);
        let offset = system_us().wrapping_sub(ns / 1_000);
        if offset.abs_diff(self.offset_us.load(Ordering::Relaxed)) >= FOLLOW_FROM_US {
            self.offset_us.store(offset, Ordering::Relaxed);
        }
    }
}

impl Clock for &'static SystemClock {
    fn now(&self) -> Timestamp {
        self.read()
    }

    fn ticks(&self) -> Timestamp {
        self.read_ticks()
    }
}

impl Clock for Arc<dyn Clock> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn ticks(&self) -> Timestamp {
        (**self).ticks()
    }

    fn wakes(&self, at: Timestamp, waker: &Waker) -> bool {
        (**self).wakes(at, waker)
    }
}

fn system_us() -> u64 {
    #[allow(clippy::disallowed_methods, reason = "this is the engine's clock")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl ManualClock {
    /// A clock at the beginning of 2024.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Timestamp::from_micros(1_704_067_200_000_000))
    }

    /// A clock at `now`.
    ///
    /// ```
    /// use sluicegate::clock::{Clock, ManualClock, Timestamp};
    ///
    /// assert_eq!(ManualClock::at(Timestamp::EPOCH).now(), Timestamp::EPOCH);
    /// ```
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Moves the clock on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::clock::{Clock, ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::at(Timestamp::EPOCH);
    /// clock.advance(Duration::from_millis(3));
    /// assert_eq!(clock.now().as_micros(), 3_000);
    /// ```
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(span(by)));
    }

    /// Sets the clock, forward or back.
    ///
    /// ```
    /// use sluicegate::clock::{Clock, ManualClock, Timestamp};
    ///
    /// let clock = ManualClock::new();
    /// clock.set(Timestamp::EPOCH);
    /// assert_eq!(clock.now(), Timestamp::EPOCH);
    /// ```
    pub fn set(&self, now: Timestamp) {
        let mut sleepers = self.shared.sleepers.lock();
        self.shared.now_us.store(now.as_micros(), Ordering::SeqCst);
        let due: Vec<Waker> =
            sleepers.extract_if(.., |(at, _)| *at <= now).map(|(_, waker)| waker).collect();
        drop(sleepers);
        due.into_iter().for_each(Waker::wake);
    }

    /// Number of waiters for this clock.
    ///
    /// ```
    /// assert_eq!(sluicegate::clock::ManualClock::new().sleepers(), 0);
    /// ```
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.shared.sleepers.lock().len()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.now_us.load(Ordering::SeqCst))
    }

    fn wakes(&self, at: Timestamp, waker: &Waker) -> bool {
        let mut sleepers = self.shared.sleepers.lock();
        if at <= self.now() {
            drop(sleepers);
            waker.wake_by_ref();
            return true;
        }
        // Once per deadline: polling again does not count twice. One task may wait for several
        // deadlines.
        if !sleepers.iter().any(|(when, other)| *when == at && other.will_wake(waker)) {
            sleepers.push((at, waker.clone()));
        }
        true
    }
}

/// A clock. The system clock is read without dynamic dispatch.
#[derive(Debug, Clone)]
pub enum TimeSource {
    /// The system clock.
    System(&'static SystemClock),
    /// Another clock.
    Custom(Arc<dyn Clock>),
}

impl TimeSource {
    /// This clock. The system clock is recognised: on a store with a clock of its own, it does not
    /// replace that one.
    ///
    /// ```
    /// use sluicegate::clock::{ManualClock, SystemClock, TimeSource};
    ///
    /// assert!(matches!(TimeSource::from_clock(SystemClock::get()), TimeSource::System(_)));
    /// assert!(matches!(TimeSource::from_clock(ManualClock::new()), TimeSource::Custom(_)));
    /// ```
    pub fn from_clock(clock: impl Clock + 'static) -> Self {
        match (&clock as &dyn Any).downcast_ref::<&'static SystemClock>() {
            Some(system) => Self::System(system),
            None => Self::Custom(Arc::new(clock)),
        }
    }

    /// This clock, or the system clock.
    pub fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        clock.map_or_else(|| Self::System(SystemClock::get()), Self::Custom)
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.read(),
            Self::Custom(clock) => clock.now(),
        }
    }

    /// Monotonic time.
    #[inline]
    pub fn ticks(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.read_ticks(),
            Self::Custom(clock) => clock.ticks(),
        }
    }

    /// Wakes `waker` at `at`; `false` if that takes a timer.
    pub(crate) fn wakes(&self, at: Timestamp, waker: &Waker) -> bool {
        matches!(self, Self::Custom(clock) if clock.wakes(at, waker))
    }

    /// Waits until a time.
    #[cfg(feature = "tokio")]
    pub async fn sleep_until(&self, until: Timestamp) {
        use std::future::poll_fn;
        use std::task::Poll;

        while self.now() < until {
            let is_over = poll_fn(|cx| match self {
                Self::System(_) => Poll::Ready(false),
                _ if self.now() >= until => Poll::Ready(true),
                _ if !self.wakes(until, cx.waker()) => Poll::Ready(false),
                _ if self.now() < until => Poll::Pending,
                _ => Poll::Ready(true),
            });
            if !is_over.await {
                tokio::time::sleep(until.since(self.now()).to_duration()).await;
            }
        }
    }
}

impl Default for TimeSource {
    fn default() -> Self {
        Self::new(None)
    }
}

/// A duration as a span, saturating at the maximum.
pub(crate) fn span(duration: Duration) -> Span {
    Span::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
