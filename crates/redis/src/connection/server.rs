//! One server: its connections, how many calls they carry at once, and whether it is worth asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::AbortHandle;

use super::circuit_breaker::Breaker;
use super::dial::{Dialed, Greeting, dial};
use super::epoch::Witness;
use super::reconnect::{keep, look_after};
use super::settings::{Settings, Target};
use super::stats::{Counters, ServerStats};

/// One server. When it is dropped, its connections are closed.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

/// What callers and the tasks in the background share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) settings: Arc<Settings>,
    pub(super) surroundings: Surroundings,
    /// A connection each, while there is one.
    seats: Box<[ArcSwapOption<Line>]>,
    seating: Mutex<()>,
    pub(super) places: Semaphore,
    pub(super) waiting: AtomicUsize,
    pub(super) breaker: Breaker,
    /// Replies so far, over all connections.
    pub(super) replies: AtomicU64,
    /// Nobody knows yet: the first connections are still being made.
    fresh: AtomicBool,
    pub(super) condition: watch::Sender<Condition>,
    /// The breaker has opened.
    pub(super) opened: Notify,
    last_error: Mutex<Option<Box<str>>>,
}

/// What a server shares with the others of its link.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub(super) counters: Arc<Counters>,
    pub(super) witness: Arc<Witness>,
    /// Told when something is wrong, so that somebody may look where the primary is now.
    pub(super) alarm: Arc<Notify>,
    /// A replica is not even connected to.
    pub(super) primaries_only: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) connection: MultiplexedConnection,
    pub(super) under_way: AtomicUsize,
    /// Calls whose answers nobody saw, since the last one that was seen.
    pub(super) lost: AtomicU32,
    /// A caller found it broken: it is about to be taken away.
    pub(super) broken: AtomicBool,
    /// It carries nothing any more.
    pub(super) give_up: Notify,
    /// It should be made anew, and is good until then.
    pub(super) replace: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Fresh,
    Up,
    Down,
}

// === impl Server ===

impl Server {
    /// Begins to connect.
    pub(super) fn new(target: Target, settings: Arc<Settings>, surroundings: Surroundings) -> Self {
        let options = &settings.options;
        let (connections, in_flight) = (options.connections, options.in_flight);
        let shared = Arc::new(Shared {
            target,
            settings,
            surroundings,
            seats: (0..connections).map(|_| ArcSwapOption::empty()).collect(),
            seating: Mutex::new(()),
            places: Semaphore::new(connections.saturating_mul(in_flight)),
            waiting: AtomicUsize::new(0),
            breaker: Breaker::default(),
            replies: AtomicU64::new(0),
            fresh: AtomicBool::new(true),
            condition: watch::Sender::new(Condition::Fresh),
            opened: Notify::new(),
            last_error: Mutex::new(None),
        });
        let keepers =
            (0..connections).map(|index| tokio::spawn(keep(shared.clone(), index)).abort_handle());
        let mut tasks: Vec<_> = keepers.collect();
        tasks.push(tokio::spawn(look_after(shared.clone())).abort_handle());
        Self { shared, tasks }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn is_up(&self) -> bool {
        *self.condition.borrow() == Condition::Up
    }

    /// All connections that there are.
    pub(super) fn lines(&self) -> impl Iterator<Item = Arc<Line>> {
        self.seats.iter().filter_map(ArcSwapOption::load_full)
    }

    /// The connection with the least to do.
    pub(super) fn pick(&self) -> Option<Arc<Line>> {
        let whole = self.lines().filter(|line| !line.broken.load(Relaxed));
        whole.min_by_key(|line| line.under_way.load(Relaxed))
    }

    pub(super) async fn dial(&self) -> Result<Dialed, Box<str>> {
        let dialed = dial(&self.target, &self.settings).await?;
        if self.surroundings.primaries_only && dialed.greeting.primary == Some(false) {
            return Err("it is a replica".into());
        }
        Ok(dialed)
    }

    /// There is a connection, and the server said who it is: so it is back, if it was gone.
    pub(super) fn seat(&self, index: usize, line: Arc<Line>, greeting: &Greeting) {
        let _one_after_the_other = self.seating.lock();
        let first = self.lines().next().is_none();
        // Whoever calls over this connection must find the epoch raised.
        self.surroundings.witness.saw(greeting.identity.as_deref(), first);
        self.seats[index].store(Some(line));
        self.fresh.store(false, Relaxed);
        if first {
            // What was wrong before is not why it is gone the next time.
            *self.last_error.lock() = None;
        }
        self.breaker.found();
        self.settle();
    }

    /// The connection is gone.
    pub(super) fn unseat(&self, index: usize, why: &str) {
        self.seats[index].store(None);
        self.note(why);
        self.surroundings.alarm.notify_one();
        self.settle();
    }

    /// No connection could be made.
    pub(super) fn not_reached(&self, why: &str) {
        self.fresh.store(false, Relaxed);
        self.note(why);
        self.surroundings.alarm.notify_one();
        self.settle();
    }

    /// The server said that it can do nothing for now.
    pub(super) fn unready(&self, why: &str) {
        self.note(why);
        if self.breaker.trip() {
            self.tripped();
        }
    }

    /// The breaker has opened.
    pub(super) fn tripped(&self) {
        self.last_error.lock().get_or_insert_with(|| "no answer in time".into());
        self.opened.notify_one();
        self.surroundings.alarm.notify_one();
        self.settle();
    }

    /// Whoever waits is told how it stands.
    pub(super) fn settle(&self) {
        self.condition.send_if_modified(|condition| {
            let now = if !self.breaker.is_open() && self.lines().next().is_some() {
                Condition::Up
            } else if self.fresh.load(Relaxed) {
                Condition::Fresh
            } else {
                Condition::Down
            };
            std::mem::replace(condition, now) != now
        });
    }

    /// All connections are made anew, each kept until its successor is there, with whatever password and at whatever address is now the right one.
    pub(super) fn renew(&self) {
        self.lines().for_each(|line| line.replace.notify_one());
    }

    pub(super) fn note(&self, why: &str) {
        let mut last = self.last_error.lock();
        if last.as_deref() != Some(why) {
            *last = Some(why.into());
        }
    }

    pub(super) fn stats(&self) -> ServerStats {
        let lines: Vec<_> = self.lines().collect();
        ServerStats {
            address: self.target.to_string().into(),
            up: self.is_up(),
            breaker: self.breaker.state(),
            connections: lines.len(),
            in_flight: lines.iter().map(|line| line.under_way.load(Relaxed)).sum(),
            waiting: self.waiting.load(Relaxed),
            last_error: self.last_error.lock().clone(),
        }
    }
}

// === impl Line ===

impl Line {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            under_way: AtomicUsize::new(0),
            lost: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            give_up: Notify::new(),
            replace: Notify::new(),
        }
    }
}
