//! Requests over time, in a bounded number of buckets.
//!
//! Buckets begin as seconds. When there are too many, each of the next width takes those that it
//! spans: every width is a multiple of the one before, and buckets begin at multiples of theirs, so
//! that nothing has to be split.

use sluicegate_core::time::{Span, Timestamp};

use super::verdict::ReplayVerdict;

/// Buckets of a series at most.
pub const BUCKETS_MAX: usize = 400;
/// Widths in seconds; beyond the last, they double.
const WIDTHS: [u64; 11] = [1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400];
const SECOND: u64 = 1_000_000;

/// Requests over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Width of a bucket in seconds.
    width: u64,
    /// Number of the first bucket: multiples of the width since the epoch.
    first: u64,
    buckets: Vec<Bucket>,
}

/// Requests of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket {
    /// All.
    pub requests: u64,
    /// Denied ones.
    pub denied: u64,
    /// Those that a rule in shadow mode would deny.
    pub shadow_denied: u64,
    /// Those that wait.
    pub delayed: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { width: WIDTHS[0], first: 0, buckets: Vec::new() }
    }
}

impl Series {
    /// Counts a request. Times need not be in order.
    pub fn add(&mut self, at: Timestamp, verdict: ReplayVerdict) {
        let mut bucket = Bucket { requests: 1, ..Bucket::default() };
        match verdict {
            ReplayVerdict::Allowed => {}
            ReplayVerdict::Delayed => bucket.delayed = 1,
            ReplayVerdict::ShadowDenied => bucket.shadow_denied = 1,
            ReplayVerdict::Denied => bucket.denied = 1,
        }
        self.add_bucket(at.as_micros() / SECOND, bucket);
    }

    fn add_bucket(&mut self, second: u64, bucket: Bucket) {
        loop {
            let number = second / self.width;
            if self.buckets.is_empty() {
                self.first = number;
            }
            let last = self.first + self.buckets.len() as u64;
            let (first, end) = (self.first.min(number), last.max(number + 1));
            if end - first > BUCKETS_MAX as u64 {
                self.widen();
                continue;
            }
            if first < self.first {
                let missing = (self.first - first) as usize;
                self.buckets.splice(..0, std::iter::repeat_n(Bucket::default(), missing));
                self.first = first;
            }
            if end > last {
                self.buckets.resize((end - first) as usize, Bucket::default());
            }
            self.buckets[(number - first) as usize].add(bucket);
            return;
        }
    }

    /// Moves on to the next width.
    #[cold]
    fn widen(&mut self) {
        let next = WIDTHS.iter().find(|width| **width > self.width);
        let width = next.copied().unwrap_or(self.width * 2);
        let wide = Self { width, first: 0, buckets: Vec::new() };
        let narrow = std::mem::replace(self, wide);
        for (second, bucket) in narrow.seconds() {
            if bucket.requests > 0 {
                self.add_bucket(second, bucket);
            }
        }
    }

    /// Adds the requests of another series.
    pub fn merge(&mut self, other: &Self) {
        while self.width < other.width {
            self.widen();
        }
        for (second, bucket) in other.seconds().filter(|(_, bucket)| bucket.requests > 0) {
            self.add_bucket(second, bucket);
        }
    }

    fn seconds(&self) -> impl Iterator<Item = (u64, Bucket)> {
        (self.first..).map(|number| number * self.width).zip(self.buckets.iter().copied())
    }

    /// Width of a bucket.
    #[must_use]
    pub const fn width(&self) -> Span {
        Span::from_secs(self.width)
    }

    /// The beginning and the requests of each bucket, empty ones in between included.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (Timestamp, Bucket)> {
        self.buckets.iter().enumerate().map(|(index, bucket)| {
            let number = self.first + index as u64;
            (Timestamp::from_micros(number * self.width * SECOND), *bucket)
        })
    }

    /// The bucket with the most requests, the first of several.
    #[must_use]
    pub fn busiest(&self) -> Option<(Timestamp, Bucket)> {
        self.buckets().max_by_key(|(at, one)| (one.requests, std::cmp::Reverse(*at)))
    }

    /// The buckets with the most requests that are denied, or would be, or that wait; at most so
    /// many, without those that have none.
    #[must_use]
    pub fn worst(&self, count: usize) -> Vec<(Timestamp, Bucket)> {
        let mut all: Vec<_> = self.buckets().filter(|(_, one)| one.restricted() > 0).collect();
        all.sort_by_key(|(at, one)| (std::cmp::Reverse(one.restricted()), *at));
        all.truncate(count);
        all
    }
}

impl Bucket {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.denied += other.denied;
        self.shadow_denied += other.shadow_denied;
        self.delayed += other.delayed;
    }

    /// Requests that do not pass at once, or would not.
    #[must_use]
    pub const fn restricted(&self) -> u64 {
        self.denied + self.shadow_denied + self.delayed
    }
}
