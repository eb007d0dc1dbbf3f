//! Recorded requests by client: what a limit per client sees.
//!
//! Times of a log have a resolution. Two requests of the same second may be a microsecond or almost
//! a second apart, and those of neighbouring seconds too: sizes of limits are computed for the
//! worst case ([`super::shape`]).

use sluicegate_core::time::{Span, Timestamp};

use super::TuneError;
use crate::arrival::Arrival;

/// The most requests that are held: 4 GiB of them, and as much while they are sorted.
pub const REQUESTS_MAX: usize = 1 << 28;

/// Requests by client, each client's in the order of time.
#[derive(Debug, Clone)]
pub struct UsageByClient {
    arrivals: Vec<Arrival>,
    /// Where the requests of each client begin; clients are in the order of their numbers.
    starts: Vec<usize>,
    first: Timestamp,
    last: Timestamp,
    resolution: Span,
}

impl UsageByClient {
    /// Sorts requests by client.
    ///
    /// ```
    /// use sluicegate_core::time::Timestamp;
    /// use sluicegate_lab::arrival::Arrival;
    /// use sluicegate_lab::tune::usage::UsageByClient;
    ///
    /// let arrival = |s: u64, client| Arrival { at: Timestamp::from_micros(s * 1_000_000), client, cost: 1 };
    /// let usage = UsageByClient::new(vec![arrival(1, 7), arrival(2, 3), arrival(3, 7)])?;
    /// let requests: Vec<usize> = usage.clients().map(<[_]>::len).collect();
    /// assert_eq!(requests, [1, 2]);
    /// assert_eq!(usage.resolution().as_micros(), 1_000_000);
    /// # Ok::<(), sluicegate_lab::tune::TuneError>(())
    /// ```
    ///
    /// # Errors
    /// When there is no request, or more than [`REQUESTS_MAX`].
    pub fn new(mut arrivals: Vec<Arrival>) -> Result<Self, TuneError> {
        if arrivals.len() > REQUESTS_MAX {
            return Err(TuneError::TooManyRequests { max: REQUESTS_MAX });
        }
        let times = || arrivals.iter().map(|arrival| arrival.at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else {
            return Err(TuneError::NoRequests);
        };
        let resolution = [1_000_000, 1_000]
            .into_iter()
            .find(|us| times().all(|at| at.as_micros().is_multiple_of(*us)));
        // A single moment shows no resolution.
        let resolution = if first == last { None } else { resolution };
        let resolution = resolution.map_or(Span::ZERO, Span::from_micros);
        arrivals.sort_by_key(|arrival| (arrival.client, arrival.at));
        let mut starts = vec![0];
        for (index, pair) in arrivals.windows(2).enumerate() {
            if let [one, next] = pair
                && one.client != next.client
            {
                starts.push(index + 1);
            }
        }
        Ok(Self { arrivals, starts, first, last, resolution })
    }

    /// The requests of each client that has any.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = &[Arrival]> + Clone {
        (0..self.starts.len()).map(|index| self.client(index))
    }

    /// The requests of a client, by its rank among those that have any.
    #[must_use]
    pub fn client(&self, index: usize) -> &[Arrival] {
        let start = self.starts.get(index).copied().unwrap_or(self.arrivals.len());
        let end = self.starts.get(index + 1).copied().unwrap_or(self.arrivals.len());
        self.arrivals.get(start..end).unwrap_or_default()
    }

    /// All requests in the order of time.
    #[must_use]
    pub fn by_time(&self) -> Vec<Arrival> {
        let mut arrivals = self.arrivals.clone();
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }

    /// The number of clients.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.starts.len()
    }

    /// The number of requests.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.arrivals.len()
    }

    /// The first request.
    #[must_use]
    pub fn first(&self) -> Timestamp {
        self.first
    }

    /// The last request.
    #[must_use]
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// The unit of the times: a second, a millisecond, or zero if they are exact.
    #[must_use]
    pub fn resolution(&self) -> Span {
        self.resolution
    }

    /// When this part of the active time has passed. Gaps, in which nobody sends anything, do not
    /// count; so a log with a hole is not split into a full part and an empty one, and the burst of
    /// one client does not move the split as it would if requests were counted.
    #[must_use]
    pub fn active_time_passed(&self, part: f64) -> Timestamp {
        const SLOTS: u64 = 1_000;
        let span = self.last.since(self.first).as_micros() + 1;
        let slot_of = |at: Timestamp| {
            let into = at.since(self.first).as_micros();
            (u128::from(into) * u128::from(SLOTS) / u128::from(span)) as usize
        };
        let mut active = vec![false; SLOTS as usize];
        for arrival in &self.arrivals {
            if let Some(slot) = active.get_mut(slot_of(arrival.at)) {
                *slot = true;
            }
        }
        let slots = active.iter().filter(|is_active| **is_active).count() as f64;
        let target = (slots * part).round() as usize;
        let mut passed = 0;
        for (slot, is_active) in (0_u128..).zip(active) {
            if passed == target && is_active {
                let offset = slot * u128::from(span) / u128::from(SLOTS);
                return self.first.after(Span::from_micros(offset as u64));
            }
            passed += usize::from(is_active);
        }
        self.last.after(Span::from_micros(1))
    }

    /// Evaluates each client on all cores; results are in the order of the clients.
    pub(super) fn map_clients<T: Send>(&self, of: impl Fn(&[Arrival]) -> T + Sync) -> Vec<T> {
        /// Fewer requests are not worth a thread.
        const PART_MIN: usize = 20_000;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = cores.min(self.arrivals.len() / PART_MIN).max(1);
        let share = self.arrivals.len().div_ceil(parts);
        let bounds: Vec<usize> = (0..=parts)
            .map(|part| self.starts.partition_point(|start| *start < part * share))
            .collect();
        let of = &of;
        std::thread::scope(|scope| {
            let workers: Vec<_> = bounds
                .windows(2)
                .map(|bound| {
                    let range = bound[0]..bound[1];
                    scope.spawn(move || range.map(|i| of(self.client(i))).collect::<Vec<T>>())
                })
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<T>>| match worker.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().flat_map(join).collect()
        })
    }
}
