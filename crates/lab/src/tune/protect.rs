//! Limits that hold a capacity: one per client, and one for all clients together.
//!
//! The limit of all guarantees the capacity on any traffic, but denies every client while the
//! capacity is used up. The limit per client denies heavy clients only, and holds the capacity on
//! this traffic: in no window are more requests admitted in sum. If many clients come at once, no
//! limit per client holds it.
//!
//! The limit of all is a sliding log, which denies nothing while the capacity is held. A log has at
//! most 10,000 entries; a larger capacity takes a token bucket, whose burst and refill of one
//! window make up the capacity, and which denies what comes more unevenly than that.
//!
//! Of the pairs of rate and burst that hold the capacity, the one that denies the fewest requests
//! is recommended; of equal ones that with the fewest denied clients, then the strictest.

use std::cmp::Reverse;

use sluicegate_core::limit::{Limit, State};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};

use super::TuneError;
use super::shape::{LimitShape, RollingSum, decide};
use super::usage::UsageByClient;
use crate::arrival::Arrival;

/// Limits that hold a capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Protection {
    /// The most requests in any window without limits, and when.
    pub peak: u64,
    /// When that window ended.
    pub peak_at: Timestamp,
    /// Clients with a request in that window.
    pub peak_clients: usize,
    /// The limit per client, and its effect alone; `None` if none holds the capacity.
    pub per_client: Option<ProtectingLimit>,
    /// The limit of all clients together, and its effect alone.
    pub overall: ProtectingLimit,
    /// What the limit of all denies beside the limit per client, in both parts: of the requests
    /// that the limits were chosen from, and of those held out.
    pub overall_denied: [u64; 2],
}

/// A limit that holds a capacity, and what it denies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProtectingLimit {
    /// The limit without its size.
    pub shape: LimitShape,
    /// The size.
    pub size: u64,
    /// In the part that it was chosen from.
    pub training: ProtectionCost,
    /// In the part held out.
    pub held_out: ProtectionCost,
}

/// The effect of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProtectionCost {
    /// Requests.
    pub requests: u64,
    /// Denied requests.
    pub denied_requests: u64,
    /// Clients with a denied request.
    pub denied_clients: usize,
    /// The largest cost admitted in any window.
    pub peak: u64,
}

/// A capacity in any window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) units: u64,
    pub(super) window: Span,
}

/// What requests are limited by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Client,
    Overall,
}

/// All requests in the order of time, with their clients numbered without gaps.
struct Requests {
    arrivals: Vec<Arrival>,
    clients: usize,
    split: usize,
}

/// Finds both limits.
pub(super) fn protect(
    training_usage: &UsageByClient,
    usage: &UsageByClient,
    split: Timestamp,
    capacity: Capacity,
    shapes: &[LimitShape],
    horizon: Span,
) -> Result<Protection, TuneError> {
    let requests = Requests::new(usage, split);
    let (peak, peak_at, peak_clients) = requests.peak(capacity.window);
    let training = requests.training();
    let searches: Vec<&LimitShape> = shapes.iter().collect();
    let search =
        |shape: &&LimitShape| largest_size(**shape, training_usage, training, &requests, capacity);
    let found = in_parallel(&searches, search);
    // `min_by_key` takes the first of equal ones: of equal pairs the one with the higher rate.
    let best = found.into_iter().flatten().rev().min_by_key(|(shape, size, cost)| {
        (cost.denied_requests, cost.denied_clients, shape.admitted_max(*size, horizon))
    });
    let per_client = match best {
        Some((shape, size, _)) => {
            Some(requests.both(shape, size, Scope::Client, capacity.window)?)
        }
        None => None,
    };
    let overall = overall(&requests, capacity)?;
    let overall_denied = match &per_client {
        Some(limit) => {
            let limits = [limit.shape.limit(limit.size)?, overall.shape.limit(overall.size)?];
            requests.denied_by_overall(&limits)
        }
        None => [overall.training, overall.held_out].map(|part| part.denied_requests),
    };
    Ok(Protection { peak, peak_at, peak_clients, per_client, overall, overall_denied })
}

/// The largest size per client that holds the capacity, or one that denies nobody.
fn largest_size(
    shape: LimitShape,
    usage: &UsageByClient,
    training: &[Arrival],
    requests: &Requests,
    capacity: Capacity,
) -> Option<(LimitShape, u64, ProtectionCost)> {
    let cost_at = |size: u64| {
        let limit = shape.limit(size).ok()?;
        requests.decide(training, &limit, Scope::Client, capacity, capacity.units)
    };
    let needs = usage.clients().map(|client| shape.needed_size(client, Span::ZERO));
    // The smallest size that denies nobody; a larger one changes nothing.
    let high = needs.max().unwrap_or(1);
    if let Some(cost) = cost_at(high) {
        return Some((shape, high, cost));
    }
    let mut best = (1, cost_at(1)?);
    let mut high = high;
    while high - best.0 > 1 {
        let middle = best.0 + (high - best.0) / 2;
        match cost_at(middle) {
            Some(cost) => best = (middle, cost),
            None => high = middle,
        }
    }
    Some((shape, best.0, best.1))
}

/// The limit of all: a log if the core has one of this size, else the bucket that denies the fewest
/// requests.
fn overall(requests: &Requests, capacity: Capacity) -> Result<ProtectingLimit, TuneError> {
    let Capacity { units, window } = capacity;
    let log = LimitShape::SlidingLog(window);
    if log.limit(units).is_ok() {
        return requests.both(log, units, Scope::Overall, window);
    }
    let candidates: Vec<(LimitShape, u64)> = (1..10)
        .filter_map(|tenth| {
            let burst = (units / 10).saturating_mul(tenth);
            let rate = Rate::new(units.checked_sub(burst)?, window).ok()?;
            Some((LimitShape::TokenBucket(rate), burst))
        })
        .collect();
    let training = requests.training();
    let cost = |(shape, size): &(LimitShape, u64)| {
        let limit = shape.limit(*size).ok()?;
        let cost = requests.decide(training, &limit, Scope::Overall, capacity, u64::MAX)?;
        Some((cost.denied_requests, cost.denied_clients))
    };
    let costs = in_parallel(&candidates, cost);
    let found = candidates.into_iter().zip(costs).filter_map(|(pair, cost)| Some((cost?, pair)));
    let best = found.min_by_key(|(cost, (_, size))| (*cost, Reverse(*size)));
    let (_, (shape, size)) = best.ok_or(TuneError::NoLimit)?;
    requests.both(shape, size, Scope::Overall, window)
}

impl Requests {
    fn new(usage: &UsageByClient, split: Timestamp) -> Self {
        let mut arrivals = usage.by_time();
        let numbers: Vec<u32> =
            usage.clients().filter_map(|requests| Some(requests.first()?.client)).collect();
        for arrival in &mut arrivals {
            // The numbers ascend.
            arrival.client = numbers.partition_point(|number| *number < arrival.client) as u32;
        }
        let split = arrivals.partition_point(|arrival| arrival.at < split);
        Self { arrivals, clients: numbers.len(), split }
    }

    fn training(&self) -> &[Arrival] {
        self.arrivals.get(..self.split).unwrap_or_default()
    }

    /// The largest sum in a window, its end, and the number of its clients.
    fn peak(&self, window: Span) -> (u64, Timestamp, usize) {
        let mut sum = RollingSum::new(window);
        let (mut peak, mut at) = (0, Timestamp::EPOCH);
        for arrival in &self.arrivals {
            let now = sum.add(arrival.at, u64::from(arrival.cost));
            if now > peak {
                (peak, at) = (now, arrival.at);
            }
        }
        let end = self.arrivals.partition_point(|arrival| arrival.at <= at);
        let start = self
            .arrivals
            .partition_point(|arrival| arrival.at <= at && at.since(arrival.at) >= window);
        let inside = self.arrivals.get(start..end).unwrap_or_default();
        let mut clients: Vec<u32> = inside.iter().map(|arrival| arrival.client).collect();
        clients.sort_unstable();
        clients.dedup();
        (peak, at, clients.len())
    }

    /// The effect of a limit; `None` as soon as more than `most` are admitted in a window.
    fn decide(
        &self,
        arrivals: &[Arrival],
        limit: &Limit,
        scope: Scope,
        capacity: Capacity,
        most: u64,
    ) -> Option<ProtectionCost> {
        let mut states = vec![State::New; if scope == Scope::Client { self.clients } else { 1 }];
        let mut denied = vec![false; self.clients];
        let mut sum = RollingSum::new(capacity.window);
        let mut cost = ProtectionCost::default();
        for arrival in arrivals {
            let client = arrival.client as usize;
            let state = states.get_mut(if scope == Scope::Client { client } else { 0 })?;
            cost.requests += 1;
            if decide(limit, state, arrival) {
                cost.peak = cost.peak.max(sum.add(arrival.at, u64::from(arrival.cost)));
                if cost.peak > most {
                    return None;
                }
            } else {
                cost.denied_requests += 1;
                *denied.get_mut(client)? = true;
            }
        }
        cost.denied_clients = denied.into_iter().filter(|is_denied| *is_denied).count();
        Some(cost)
    }

    /// The effect in both parts, each from a new state.
    fn both(
        &self,
        shape: LimitShape,
        size: u64,
        scope: Scope,
        window: Span,
    ) -> Result<ProtectingLimit, TuneError> {
        let limit = shape.limit(size)?;
        let capacity = Capacity { units: u64::MAX, window };
        let (training, held_out) = self.arrivals.split_at(self.split);
        let [training, held_out] = [training, held_out]
            .map(|part| self.decide(part, &limit, scope, capacity, u64::MAX).unwrap_or_default());
        Ok(ProtectingLimit { shape, size, training, held_out })
    }

    /// Requests of both parts that pass the limit per client and are denied by that of all.
    fn denied_by_overall(&self, [per_client, overall]: &[Limit; 2]) -> [u64; 2] {
        let (training, held_out) = self.arrivals.split_at(self.split);
        [training, held_out].map(|part| {
            let mut states = vec![State::New; self.clients];
            let mut all = State::New;
            let passes = part.iter().filter(|arrival| {
                let state = states.get_mut(arrival.client as usize);
                state.is_some_and(|state| decide(per_client, state, arrival))
            });
            passes.filter(|arrival| !decide(overall, &mut all, arrival)).count() as u64
        })
    }
}

/// Evaluates each item on one of the cores; results are in the order of the items.
fn in_parallel<I: Sync, T: Send>(items: &[I], of: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let (of, next) = (&of, &next);
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(item) = items.get(index) else { return done };
                done.push((index, of(item)));
            }
        };
        let workers: Vec<_> = (0..cores.min(items.len())).map(|_| scope.spawn(work)).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<(usize, T)>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
