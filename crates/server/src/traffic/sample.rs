//! A sample of recent requests that keeps whole histories: for what-if, dry runs and suggestions.
//!
//! ```text
//!   hash of the identity of each descriptor  ->  the request is in the sample if one of them
//!                                                begins with `level` zero bits: 1 in 2^level
//!   full within two minutes                  ->  level + 1, and what no longer fits is dropped
//!   nearly empty after ten minutes           ->  level - 1
//! ```
//!
//! So of an identity that is in the sample, all requests are, and of every kind of identity (users,
//! addresses, paths) the same share is. Up to a few hundred requests per second for some minutes,
//! the level is 0 and the sample is everything. It has at most [`REQUESTS_MAX`] requests and
//! [`BYTES_MAX`] bytes of them, none older than an hour.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate::rules::request::Request;
use sluicegate::rules::set::write_plain;
use sluicegate::{Checked, Snapshot, Span, Timestamp};

use super::sample_codec::encode;

/// Requests of the sample.
pub const REQUESTS_MAX: usize = 20_000;
/// Bytes of all requests of the sample.
pub const BYTES_MAX: usize = 8 << 20;
/// Bytes of a request; longer ones are not in the sample, and counted.
pub const REQUEST_BYTES_MAX: usize = 2_048;
/// Age of the oldest request.
const AGE_MAX: Span = Span::from_secs(3_600);
/// A sample that is full within this time takes fewer identities.
const SPAN_MIN: Span = Span::from_secs(120);
/// A sample that is nearly empty after this time takes more identities.
const SPAN_SPARSE: Span = Span::from_secs(600);
const LEVEL_MAX: u32 = 20;

/// The sample of a node.
#[derive(Debug, Default)]
pub struct RequestSample {
    level: AtomicU32,
    /// Requests that were too long.
    too_long: AtomicU64,
    /// Requests that were lost since another thread was at the sample.
    missed: AtomicU64,
    ring: Mutex<SampleRing>,
}

#[derive(Debug, Default)]
struct SampleRing {
    requests: VecDeque<SampledRequest>,
    bytes: usize,
    /// The levels of the time of the requests, and since when; the last is the current one.
    levels: VecDeque<(Timestamp, u32)>,
}

/// A request of the sample.
#[derive(Debug, Clone)]
pub struct SampledRequest {
    /// When it was decided.
    pub at: Timestamp,
    /// Whether it was allowed.
    pub is_allowed: bool,
    /// The smallest hash of its identities.
    hash: u64,
    /// The request.
    pub encoded: Arc<[u8]>,
}

/// The sample at one moment.
#[derive(Debug, Clone)]
pub struct SampleView {
    /// The requests, in the order of their times.
    pub requests: Vec<SampledRequest>,
    /// One identity in 2^level is in the sample.
    pub level: u32,
    /// Requests that were too long for the sample, since the node started.
    pub too_long: u64,
    /// Requests that were lost, since the node started.
    pub missed: u64,
}

/// Whether an identity is in a sample of this level.
#[inline]
#[must_use]
pub const fn is_in_sample(hash: u64, level: u32) -> bool {
    hash.leading_zeros() >= level
}

impl RequestSample {
    /// Adds a request that was decided, if it belongs to the sample.
    #[inline]
    pub(super) fn offer(
        &self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        checked: &Checked,
        is_allowed: bool,
        now: impl FnOnce() -> Timestamp,
    ) {
        let level = self.level.load(Ordering::Relaxed);
        let mut hash = u64::MAX;
        for index in 0..request.descriptors.len() {
            let Some(of) = identity_hash(rules, request, checked, index) else { return };
            hash = hash.min(of);
        }
        if is_in_sample(hash, level) {
            self.add(request, hash, is_allowed, now());
        }
    }

    #[cold]
    fn add(&self, request: &Request<'_>, hash: u64, is_allowed: bool, at: Timestamp) {
        let Some(encoded) = encode(request, REQUEST_BYTES_MAX) else {
            self.too_long.fetch_add(1, Ordering::Relaxed);
            return;
        };
        // A decision never waits for a statistic.
        let Some(mut ring) = self.ring.try_lock() else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let level = self.level.load(Ordering::Relaxed);
        if is_in_sample(hash, level) {
            ring.push(SampledRequest { at, is_allowed, hash, encoded: encoded.into() });
            let next = ring.make_room(level, at);
            self.level.store(next, Ordering::Relaxed);
        }
    }

    /// Drops what is too old, and takes more identities if the sample is nearly empty.
    pub(super) fn tick(&self, now: Timestamp) {
        let mut ring = self.ring.lock();
        while ring.requests.front().is_some_and(|request| now.since(request.at) > AGE_MAX) {
            ring.pop();
        }
        let level = self.level.load(Ordering::Relaxed);
        let since = ring.levels.back().map_or(now, |(since, _)| *since);
        let is_sparse = ring.requests.len() < REQUESTS_MAX / 8 && ring.bytes < BYTES_MAX / 8;
        if level > 0 && is_sparse && now.since(since) >= SPAN_SPARSE {
            ring.levels.push_back((now, level - 1));
            self.level.store(level - 1, Ordering::Relaxed);
        }
        ring.forget_levels(now);
    }

    /// The sample now. Where identities were added meanwhile, only those remain whose whole history
    /// is there.
    #[must_use]
    pub fn view(&self) -> SampleView {
        let ring = self.ring.lock();
        let level = ring.levels.iter().map(|(_, level)| *level).max().unwrap_or(0);
        let whole = ring.requests.iter().filter(|request| is_in_sample(request.hash, level));
        let mut requests: Vec<SampledRequest> = whole.cloned().collect();
        drop(ring);
        // Threads may have added them in another order.
        requests.sort_by_key(|request| request.at);
        SampleView {
            requests,
            level,
            too_long: self.too_long.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
        }
    }
}

impl SampleView {
    /// The time from the first request to the last.
    #[must_use]
    pub fn span(&self) -> Span {
        let ends = self.requests.first().zip(self.requests.last());
        ends.map_or(Span::ZERO, |(first, last)| last.at.since(first.at))
    }
}

impl SampleRing {
    fn push(&mut self, request: SampledRequest) {
        if self.levels.is_empty() {
            self.levels.push_back((request.at, 0));
        }
        self.bytes += request.encoded.len();
        self.requests.push_back(request);
    }

    fn pop(&mut self) {
        if let Some(request) = self.requests.pop_front() {
            self.bytes -= request.encoded.len();
        }
    }

    fn is_full(&self) -> bool {
        self.requests.len() > REQUESTS_MAX || self.bytes > BYTES_MAX
    }

    /// Drops identities, or the oldest requests, while there are too many. The level from now on.
    fn make_room(&mut self, mut level: u32, now: Timestamp) -> u32 {
        while self.is_full() {
            let span = self.requests.front().map_or(Span::ZERO, |first| now.since(first.at));
            if span >= SPAN_MIN || level >= LEVEL_MAX {
                self.pop();
                continue;
            }
            level += 1;
            self.requests.retain(|request| is_in_sample(request.hash, level));
            self.bytes = self.requests.iter().map(|request| request.encoded.len()).sum();
            // What remains is whole at this level.
            self.levels.clear();
            self.levels.push_back((now, level));
        }
        level
    }

    /// Forgets the levels of a time without requests.
    fn forget_levels(&mut self, now: Timestamp) {
        let first = self.requests.front().map_or(now, |request| request.at);
        while self.levels.get(1).is_some_and(|(since, _)| *since <= first) {
            self.levels.pop_front();
        }
    }
}

/// The hash of the identity of a descriptor; without a rule, of its entries.
pub(super) fn identity_hash(
    rules: &Snapshot<'_>,
    request: &Request<'_>,
    checked: &Checked,
    index: usize,
) -> Option<u64> {
    let step = checked.plan.steps().get(index)?;
    match checked.plan.identity(step) {
        [] => {
            let mut plain = Vec::new();
            write_plain(request.domain, request.descriptors[index].entries, &mut plain);
            rules.traffic_hash(&plain)
        }
        identity => rules.traffic_hash(identity),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::rules::request::{Descriptor, Entry};
    use sluicegate::{Engine, rules_of};

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(1_794_744_000_000_000 + millis * 1_000)
    }

    /// Offers one request of a user for each millisecond.
    fn offer(sample: &RequestSample, times: std::ops::Range<u64>, users: u64) {
        let rules = "{ domain: shop, descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 9 } }] }";
        let builder = Engine::builder(rules_of(rules).unwrap());
        let engine = builder.observe_traffic(true).build().unwrap();
        for time in times {
            let user = (time % users).to_string();
            let entries = [Entry::new("user", &user)];
            let descriptors = [Descriptor::of(&entries)];
            let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
            let checked = engine.check(&request);
            sample.offer(&engine.snapshot(), &request, &checked, checked.allowed, || at(time));
            if time.is_multiple_of(1_000) {
                sample.tick(at(time));
            }
        }
    }

    /// Requests of each user.
    fn histories(view: &SampleView) -> Vec<usize> {
        let mut users = std::collections::HashMap::<&[u8], usize>::new();
        for request in &view.requests {
            *users.entry(&request.encoded).or_default() += 1;
        }
        users.into_values().collect()
    }

    #[test]
    fn a_slow_node_samples_everything() {
        let sample = RequestSample::default();
        offer(&sample, 0..5_000, 50);
        let view = sample.view();
        assert_eq!((view.level, view.requests.len(), view.too_long, view.missed), (0, 5_000, 0, 0));
        assert!(histories(&view).iter().all(|requests| *requests == 100));
        assert_eq!(view.span(), Span::from_millis(4_999));
    }

    #[test]
    fn a_fast_node_samples_whole_histories_of_fewer_identities() {
        let sample = RequestSample::default();
        offer(&sample, 0..100_000, 1_000);
        let view = sample.view();
        assert!((3..=4).contains(&view.level), "{}", view.level);
        assert!(histories(&view).iter().all(|requests| *requests == 100), "all of each");
        let users = histories(&view).len();
        let due = 1_000 >> view.level;
        assert!((due / 2..due * 2).contains(&users), "{users} at level {}", view.level);
        assert!(view.requests.len() <= REQUESTS_MAX);
    }

    #[test]
    fn more_identities_are_taken_when_there_is_room() {
        let sample = RequestSample::default();
        offer(&sample, 0..100_000, 1_000);
        let level = sample.view().level;
        sample.tick(at(100_000 + 3_600_001));
        assert_eq!(sample.view().requests.len(), 0, "all of them are too old");
        assert_eq!(sample.view().level, level - 1);
        sample.tick(at(100_000 + 2 * 3_600_001));
        assert_eq!(sample.view().level, level - 2);
    }

    #[test]
    fn memory_is_bounded() {
        let sample = RequestSample::default();
        let long = "x".repeat(1_900);
        for time in 0..30_000 {
            let entries = [Entry::new("user", &long)];
            let descriptors = [Descriptor::of(&entries)];
            let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
            sample.add(&request, u64::MAX >> LEVEL_MAX, true, at(time));
        }
        let bytes: usize = sample.view().requests.iter().map(|one| one.encoded.len()).sum();
        assert!((1..=BYTES_MAX).contains(&bytes), "{bytes}");
        let longer = "x".repeat(REQUEST_BYTES_MAX);
        let entries = [Entry::new("user", &longer)];
        let descriptors = [Descriptor::of(&entries)];
        sample.add(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }, 0, true, at(1));
        assert_eq!(sample.view().too_long, 1);
    }
}
