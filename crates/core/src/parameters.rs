//! Parameters of limits as whole numbers, for implementations of the algorithms elsewhere.

use crate::algorithm::gcra::{self, Gcra};
use crate::algorithm::period::Period;
use crate::algorithm::periodic::{Periodic, PeriodicVariant};
use crate::algorithm::sliding_window::Rounding;
use crate::limit::{Kernel, Limit};

/// The kernel of a limit: the algorithm that evaluates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelKind {
    /// Admits everything.
    Open,
    /// Admits nothing.
    Closed,
    /// GCRA: buckets and queues that refill continuously.
    Gcra,
    /// Buckets, windows and cycles that refill at the end of a period.
    Periodic,
    /// Sliding window of two counters.
    SlidingWindow,
    /// Sliding log.
    SlidingLog,
    /// Warm-up.
    WarmUp,
    /// Concurrency.
    Slots,
    /// Envoy's counter.
    Tally,
}

impl Limit {
    /// Its kernel, and the kernel's parameters in a fixed order.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::parameters::KernelKind;
    ///
    /// assert_eq!(Limit::Closed.parameters(), (KernelKind::Closed, Vec::new()));
    /// ```
    #[must_use]
    pub fn parameters(&self) -> (KernelKind, Vec<u64>) {
        match self.kernel() {
            Kernel::Open => (KernelKind::Open, Vec::new()),
            Kernel::Closed => (KernelKind::Closed, Vec::new()),
            Kernel::Gcra(gcra) => (KernelKind::Gcra, of_gcra(gcra).to_vec()),
            Kernel::Periodic(periodic) => (KernelKind::Periodic, of_periodic(periodic)),
            Kernel::Counter(counter) => {
                let up = u64::from(counter.rounding() == Rounding::Up);
                let window = counter.rate().period().as_micros();
                (KernelKind::SlidingWindow, vec![counter.rate().count(), window, up])
            }
            Kernel::Log(log) => {
                let (gap, denied) = (log.min_gap().as_micros(), u64::from(log.counts_denied()));
                let count = log.rates().count() as u64;
                let mut numbers = vec![count, gap, denied, log.slice().as_micros()];
                numbers.extend(log.rates().flat_map(|(max, length)| [max, length.as_micros()]));
                (KernelKind::SlidingLog, numbers)
            }
            Kernel::WarmUp(warm_up) => {
                let (gather, threshold) = warm_up.gathering();
                let (units, micros) = warm_up.rate().reduced();
                let (permits, time) = gather.reduced();
                let (length, factor) = (warm_up.warm_up().as_micros(), warm_up.cold_factor());
                let numbers = [units, micros, permits, time, length, factor, threshold];
                (KernelKind::WarmUp, numbers.to_vec())
            }
            Kernel::Slots(slots) => {
                (KernelKind::Slots, vec![slots.max(), slots.lease().as_micros()])
            }
            Kernel::Tally(tally) => {
                (KernelKind::Tally, vec![tally.limit(), tally.period().as_micros()])
            }
        }
    }
}

fn of_gcra(gcra: &Gcra) -> [u64; 9] {
    let variant = match gcra.variant {
        gcra::Variant::Bucket => 0,
        gcra::Variant::Queue => 1,
        gcra::Variant::Smooth => 2,
    };
    let Gcra { rate, capacity, full, start, forget_after, .. } = gcra;
    let (units, micros) = rate.reduced();
    let forget_after = forget_after.as_micros();
    let (full, start) = ([full.us(), full.frac()], [start.us(), start.frac()]);
    [variant, units, micros, *capacity, full[0], full[1], start[0], start[1], forget_after]
}

fn of_periodic(periodic: &Periodic) -> Vec<u64> {
    let variant = match periodic.variant {
        PeriodicVariant::Bucket => 0,
        PeriodicVariant::Window => 1,
        PeriodicVariant::Cycle => 2,
    };
    let (align, edges) = match &periodic.period {
        Period::Clock(_) => (0, &[][..]),
        Period::FirstHit(_) => (1, &[][..]),
        Period::Calendar(edges) => (2, edges.starts()),
    };
    let (capacity, refill) = (periodic.capacity.get(), periodic.refill.get());
    let (forget_after, longest) = (periodic.forget_after.as_micros(), periodic.period.longest());
    let fixed = [variant, capacity, refill, periodic.start, forget_after, longest.as_micros()];
    let mut numbers = fixed.to_vec();
    numbers.extend([align, edges.len() as u64]);
    numbers.extend(edges.iter().map(|edge| edge.as_micros()));
    numbers
}
