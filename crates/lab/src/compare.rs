//! The same traffic through every algorithm, at the same nominal rate.
//!
//! ```text
//!   arrivals ──┬─> demand: what clients sent, and were entitled to
//!              ├─> limiter of an algorithm, its clock, its measures      (one thread for several,
//!              ├─> …                                                      in blocks of arrivals)
//!              └─> …
//! ```
//!
//! Every limiter is that of the product, on its memory store, with the time of the arrivals. The
//! measures are defined in `measure` and `demand`; `tests` has each as a search through all
//! requests. Memory is bounded by the clients and what a window admits of them, not by the number
//! of arrivals.

mod contender;
mod demand;
mod figures;
mod findings;
mod measure;
mod plot;
mod report;
mod rolling;
mod series;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

pub use self::contender::{Contender, EXACT, NominalRule, Passage};
pub use self::figures::{AlgorithmComparison, AlgorithmFigures, BurstShape, PeakWindow};
pub use self::findings::findings;
pub use self::plot::{plot_admitted, plot_peaks, plot_trade_off};
pub use self::report::report;
pub use self::series::{BINS_MAX, TimeSeries};
pub use self::table::table;

use self::demand::Demand;
use self::measure::{Counted, MeasuredLimiter};
use crate::arrival::{Arrival, Client};

/// Arrivals that are passed on at a time.
const BLOCK: usize = 8_192;
/// Blocks that a thread may be behind.
const BLOCKS_AHEAD: usize = 4;

/// What was measured on a traffic, before the names of its clients are known.
#[derive(Debug)]
pub struct MeasuredTraffic {
    rule: NominalRule,
    demand: Demand,
    measured: Vec<(Contender, Counted)>,
    left_out: Vec<String>,
}

/// Compares the algorithms on arrivals in the order of time; one that is earlier than the one
/// before counts at that one's time.
///
/// ```
/// use sluicegate_config::{traffic::traffic, units::rate};
/// use sluicegate_lab::compare::{NominalRule, compare};
/// use sluicegate_lab::traffic::Traffic;
///
/// let config = traffic("--traffic", "edge_bursts: { clients: 2, burst: 100, length: 3m }")?;
/// let traffic = Traffic::new(config, 1);
/// let rule = NominalRule::new(rate("100/m")?, None)?;
/// let found = compare(traffic.arrivals(), rule, &|number| traffic.client(number))?;
/// let peak = |name| found.algorithm(name).unwrap().peak.amount;
/// assert_eq!((peak("sliding_log"), peak("fixed_window")), (100, 200));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Without arrivals, and when the engine refuses a limit.
pub fn compare(
    arrivals: impl Iterator<Item = Arrival>,
    rule: NominalRule,
    client: &dyn Fn(u32) -> Client,
) -> Result<AlgorithmComparison, String> {
    let (measured, ()) = measure(rule, |each| arrivals.for_each(each))?;
    measured.comparison(client)
}

/// Measures the algorithms on the arrivals that `source` calls its argument with, which are in the
/// order of time.
///
/// # Errors
/// When the engine refuses a limit.
pub fn measure<T>(
    rule: NominalRule,
    source: impl FnOnce(&mut dyn FnMut(Arrival)) -> T,
) -> Result<(MeasuredTraffic, T), String> {
    let (contenders, left_out) = rule.contenders();
    let limiters: Vec<MeasuredLimiter> = contenders
        .iter()
        .map(|contender| MeasuredLimiter::new(contender, rule))
        .collect::<Result<_, _>>()?;
    let mut demand = Demand::new(rule.limit(), rule.window().as_micros());
    let (counted, returned) = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut shares: Vec<Vec<(usize, MeasuredLimiter)>> = Vec::new();
        shares.resize_with(threads.min(limiters.len()), Vec::new);
        let count = shares.len();
        for (index, limiter) in limiters.into_iter().enumerate() {
            shares[index % count].push((index, limiter));
        }
        let mut workers = Vec::new();
        let mut blocks = ArrivalBlocks { senders: Vec::new(), block: Vec::new() };
        for mut share in shares {
            let (sender, receiver) = sync_channel::<Arc<[Arrival]>>(BLOCKS_AHEAD);
            blocks.senders.push(sender);
            workers.push(scope.spawn(move || {
                for block in receiver {
                    for (_, limiter) in &mut share {
                        block.iter().for_each(|arrival| limiter.decide(arrival));
                    }
                }
                share.into_iter().map(|(index, limiter)| (index, limiter.finish()))
            }));
        }
        let returned = source(&mut |arrival| blocks.push(demand.add(arrival)));
        blocks.send();
        drop(blocks);
        let mut counted: Vec<(usize, Counted)> = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(share) => counted.extend(share),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        counted.sort_by_key(|(index, _)| *index);
        (counted, returned)
    });
    let counted = counted.into_iter().map(|(_, counted)| counted);
    let measured = contenders.into_iter().zip(counted).collect();
    Ok((MeasuredTraffic { rule, demand, measured, left_out }, returned))
}

impl MeasuredTraffic {
    /// Number of arrivals.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.demand.requests
    }

    /// The figures, with the names of `client` by number.
    ///
    /// # Errors
    /// Without arrivals.
    pub fn comparison(self, client: &dyn Fn(u32) -> Client) -> Result<AlgorithmComparison, String> {
        if self.demand.requests == 0 {
            return Err("there are no requests to compare the algorithms on".to_owned());
        }
        let mut found = AlgorithmComparison::new(self.rule, &self.demand, self.measured, client);
        found.left_out = self.left_out;
        Ok(found)
    }
}

/// Arrivals on their way to the threads.
struct ArrivalBlocks {
    senders: Vec<SyncSender<Arc<[Arrival]>>>,
    block: Vec<Arrival>,
}

impl ArrivalBlocks {
    fn push(&mut self, arrival: Arrival) {
        self.block.push(arrival);
        if self.block.len() >= BLOCK {
            self.send();
        }
    }

    fn send(&mut self) {
        let block: Arc<[Arrival]> = self.block.as_slice().into();
        self.block.clear();
        for sender in &self.senders {
            // A thread that panicked has closed its channel; joining it reports that.
            let _ = sender.send(Arc::clone(&block));
        }
    }
}
