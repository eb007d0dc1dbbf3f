//! Traffic by rule: which identities it sees and denies, and when it last did.
//!
//! An optional observer of decisions ([`EngineBuilder::observe_traffic`]). Exact hits are counted
//! by `stats`; this module adds what a total does not show:
//!
//! ```text
//!   distinct identities   HyperLogLog, six slices of 10 minutes       the last 50 to 60 minutes
//!   identities with       SpaceSaving, two generations of 5 minutes   the last 5 to 10 minutes
//!   the most hits
//!   last hit, last denial second of the last tick
//! ```
//!
//! The owner of the engine calls [`Engine::tick_traffic`] once a second: time moves by ticks alone,
//! so that a decision reads no clock. Above [`SKETCHED_PER_SECOND`] requests per second, the
//! sketches see a random sample of them, each with the weight of those that it stands for. All
//! memory is bounded: [`RULES_OBSERVED_MAX`] rules, each with a fixed number of identities of
//! bounded length.
//!
//! [`EngineBuilder::observe_traffic`]: crate::EngineBuilder::observe_traffic

mod distinct;
mod heavy_hitters;
mod report;
mod sampling;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;

pub use distinct::DISTINCT_STANDARD_ERROR;
pub use heavy_hitters::{HeavyHitters, TRACKED_IDENTITIES};
pub use report::{DistinctIdentities, IdentityHits, RuleTraffic, TopIdentities};

use super::Engine;
use crate::memory::HashKey;
use crate::striped::Striped;
use distinct::Distinct;
use sampling::is_sampled;

/// Maximum number of rules whose traffic is observed in detail: the first that have any.
pub const RULES_OBSERVED_MAX: usize = 500;

/// Requests per second that update the sketches of identities; of more, a random sample does.
pub const SKETCHED_PER_SECOND: u64 = 10_000;

/// Length of a slice in which distinct identities are counted.
const DISTINCT_SLICE: Span = Span::from_secs(600);
const DISTINCT_SLICES: usize = 6;

/// Length of a generation of the identities with the most hits.
const TOP_GENERATION: Span = Span::from_secs(300);

/// Observer of the decisions of an engine.
#[derive(Debug)]
pub(super) struct TrafficMonitor {
    key: HashKey,
    /// Rules that may still be observed.
    room: Arc<AtomicUsize>,
    /// One request in so many updates the sketches.
    interval: AtomicU32,
    requests: Striped<AtomicU64>,
    clock: TrafficClock,
    ticks: Mutex<Ticks>,
}

/// The time by ticks, in microseconds, and the slice and generation of it.
#[derive(Debug)]
struct TrafficClock {
    now: AtomicU64,
    slice: AtomicU64,
    generation: AtomicU64,
    began: AtomicU64,
}

#[derive(Debug, Default)]
struct Ticks {
    requests: u64,
    at: Option<Timestamp>,
}

/// Observed traffic of one rule.
#[derive(Debug)]
pub(super) struct TrafficState {
    last_hit: AtomicU64,
    last_denied: AtomicU64,
    last_shadow_denied: AtomicU64,
    identities: Slices,
    denied_identities: Slices,
    top: Mutex<Top>,
    /// Hits that no sketch has seen, since another thread was at it.
    unsketched: AtomicU64,
    room: Arc<AtomicUsize>,
}

/// Distinct identities by slice of time.
#[derive(Debug, Default)]
struct Slices {
    slices: [(AtomicU64, Distinct); DISTINCT_SLICES],
}

/// Identities with the most hits, in two generations.
#[derive(Debug, Default)]
struct Top {
    generation: u64,
    current: Sketches,
    previous: Sketches,
}

#[derive(Debug, Default)]
struct Sketches {
    all: HeavyHitters,
    denied: HeavyHitters,
    /// The largest sampling interval.
    interval: u32,
}

/// One hit under a rule.
#[derive(Debug, Clone, Copy)]
struct ObservedHit<'a> {
    identity: &'a [u8],
    cost: u64,
    is_denied: bool,
    is_shadow_denied: bool,
}

impl TrafficMonitor {
    pub(super) fn new(key: HashKey, now: Timestamp) -> Self {
        let monitor = Self {
            key,
            room: Arc::new(AtomicUsize::new(RULES_OBSERVED_MAX)),
            interval: AtomicU32::new(1),
            requests: Striped::new(AtomicU64::default),
            clock: TrafficClock {
                now: AtomicU64::new(0),
                slice: AtomicU64::new(0),
                generation: AtomicU64::new(0),
                began: AtomicU64::new(now.as_micros()),
            },
            ticks: Mutex::default(),
        };
        monitor.clock.set(now);
        monitor
    }

    /// Begins a request: the weight of its hits in the sketches, `None` if it is not sampled.
    #[inline]
    pub(super) fn begin(&self) -> Option<u32> {
        self.requests.mine().fetch_add(1, Ordering::Relaxed);
        let interval = self.interval.load(Ordering::Relaxed);
        is_sampled(interval).then_some(interval)
    }

    /// Observes a hit under a rule.
    #[inline]
    pub(super) fn observe(
        &self,
        state: &TrafficState,
        weight: Option<u32>,
        identity: &[u8],
        cost: u64,
        verdict: &Verdict,
    ) {
        let is_shadow_denied = verdict.shadow.is_some_and(|outcome| !outcome.is_allowed());
        let hit =
            ObservedHit { identity, cost, is_denied: !verdict.is_allowed(), is_shadow_denied };
        state.observe(&self.clock, self.key.hash(identity), weight, hit);
    }

    /// The state of a new rule, if there is room.
    pub(super) fn new_state(&self) -> Option<Box<TrafficState>> {
        let take = |room: usize| room.checked_sub(1);
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok().then(|| Box::new(TrafficState::new(self.room.clone())))
    }

    fn tick(&self, now: Timestamp) {
        let requests = self.requests.sum(|counter| counter);
        let mut ticks = self.ticks.lock();
        self.clock.set(now);
        let elapsed = ticks.at.map(|at| now.since(at).as_micros());
        if elapsed == Some(0) {
            return;
        }
        if let Some(elapsed) = elapsed {
            let new = requests.wrapping_sub(ticks.requests);
            let per_second = u128::from(new) * 1_000_000 / u128::from(elapsed);
            let interval = per_second.div_ceil(u128::from(SKETCHED_PER_SECOND));
            let interval = u32::try_from(interval).unwrap_or(u32::MAX).clamp(1, 1 << 16);
            self.interval.store(interval.next_power_of_two(), Ordering::Relaxed);
        }
        *ticks = Ticks { requests, at: Some(now) };
    }
}

impl TrafficClock {
    fn set(&self, now: Timestamp) {
        let micros = now.as_micros();
        self.now.store(micros, Ordering::Relaxed);
        self.slice.store(micros / DISTINCT_SLICE.as_micros(), Ordering::Relaxed);
        self.generation.store(micros / TOP_GENERATION.as_micros(), Ordering::Relaxed);
        self.began.fetch_min(micros, Ordering::Relaxed);
    }
}

impl TrafficState {
    fn new(room: Arc<AtomicUsize>) -> Self {
        Self {
            last_hit: AtomicU64::new(0),
            last_denied: AtomicU64::new(0),
            last_shadow_denied: AtomicU64::new(0),
            identities: Slices::default(),
            denied_identities: Slices::default(),
            top: Mutex::default(),
            unsketched: AtomicU64::new(0),
            room,
        }
    }

    #[inline]
    fn observe(&self, clock: &TrafficClock, hash: u64, weight: Option<u32>, hit: ObservedHit<'_>) {
        let now = clock.now.load(Ordering::Relaxed);
        let slice = clock.slice.load(Ordering::Relaxed);
        set(&self.last_hit, now);
        self.identities.add(slice, hash);
        if hit.is_denied || hit.is_shadow_denied {
            let last = if hit.is_denied { &self.last_denied } else { &self.last_shadow_denied };
            set(last, now);
            self.denied_identities.add(slice, hash);
        }
        if let Some(weight) = weight {
            self.sketch(clock.generation.load(Ordering::Relaxed), hash, weight, hit);
        }
    }

    fn sketch(&self, generation: u64, hash: u64, interval: u32, hit: ObservedHit<'_>) {
        let weight = hit.cost.saturating_mul(interval.into());
        // A decision never waits for a statistic.
        let Some(mut top) = self.top.try_lock() else {
            self.unsketched.fetch_add(weight, Ordering::Relaxed);
            return;
        };
        top.move_to(generation);
        let current = &mut top.current;
        current.interval = current.interval.max(interval);
        current.all.add(hash, hit.identity, weight);
        if hit.is_denied || hit.is_shadow_denied {
            current.denied.add(hash, hit.identity, weight);
        }
    }
}

impl Drop for TrafficState {
    fn drop(&mut self) {
        self.room.fetch_add(1, Ordering::Relaxed);
    }
}

impl Slices {
    #[inline]
    fn add(&self, slice: u64, hash: u64) {
        let (of, distinct) = &self.slices[slice as usize % DISTINCT_SLICES];
        if of.load(Ordering::Relaxed) != slice {
            // Threads that add meanwhile may be forgotten once: an identity less in a new slice.
            distinct.clear();
            of.store(slice, Ordering::Relaxed);
        }
        distinct.add(hash);
    }
}

impl Top {
    /// Begins a new generation if it is time.
    fn move_to(&mut self, generation: u64) {
        if generation == self.generation {
            return;
        }
        let is_next = generation == self.generation + 1;
        self.previous = std::mem::take(&mut self.current);
        if !is_next {
            self.previous = Sketches::default();
        }
        self.generation = generation;
    }
}

impl<B: ?Sized> Engine<B> {
    /// Moves the time of the observed traffic on, and adapts the sampling to the load. The owner
    /// calls it once a second; see [`EngineBuilder::observe_traffic`].
    ///
    /// [`EngineBuilder::observe_traffic`]: crate::EngineBuilder::observe_traffic
    pub fn tick_traffic(&self) {
        if let Some(monitor) = &self.state.traffic {
            monitor.tick(self.now());
        }
    }
}

#[inline]
fn set(last: &AtomicU64, now: u64) {
    // Most hits change nothing: the cache line stays shared.
    if last.load(Ordering::Relaxed) != now {
        last.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
