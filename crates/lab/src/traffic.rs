//! Built-in traffic: seeded, and generated while it is read.
//!
//! ```text
//!   TrafficConfig ─> sources, each a stream of arrivals in the order of time ─> merged by a heap
//!
//!   renewal source  times between arrivals of a distribution, at a rate that varies over time;
//!                   the client of each is drawn              (all patterns but these two:)
//!   burst source    a number of arrivals within a short time, the clients in turn
//!                                                            (edge_bursts, herd)
//! ```
//!
//! Memory is that of the sources: one or two for most patterns, one for each client of `tenants`.
//! Time begins at [`START`], which is the start of a minute, hour, day and week.

mod burst;
mod rate;
mod renewal;
mod tenants;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use sluicegate_config::traffic::{TrafficConfig, TrafficPattern};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_random::{IntervalDistribution, Zipf};

use self::burst::{BurstSource, BurstTimes};
use self::rate::RateProfile;
use self::renewal::{ClientChoice, RenewalSource};
use crate::arrival::{Arrival, Client};

pub use self::tenants::{TENANTS, Tenant};

/// The first moment of built-in traffic: Monday, 5 January 2026, 00:00 UTC.
pub const START: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

/// Built-in traffic.
///
/// ```
/// use sluicegate_config::traffic::traffic;
/// use sluicegate_lab::traffic::Traffic;
///
/// let config = traffic("--traffic", "abuser: { clients: 10, length: 1m }")?;
/// let traffic = Traffic::new(config, 1);
/// assert_eq!(traffic.client(10).name, "abuser");
/// assert!(traffic.arrivals().is_sorted_by_key(|arrival| arrival.at));
/// assert!(traffic.arrivals().eq(traffic.arrivals()), "the same for the same seed");
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    config: TrafficConfig,
    seed: u64,
}

impl Traffic {
    /// Traffic of this form; each seed has its own.
    #[must_use]
    pub const fn new(config: TrafficConfig, seed: u64) -> Self {
        Self { config, seed }
    }

    /// Its form.
    #[must_use]
    pub const fn config(&self) -> &TrafficConfig {
        &self.config
    }

    /// Number of clients, the abuser included.
    #[must_use]
    pub const fn clients(&self) -> u32 {
        match self.config.pattern {
            TrafficPattern::Abuser { .. } => self.config.clients + 1,
            _ => self.config.clients,
        }
    }

    /// The client of a number below [`Traffic::clients`].
    #[must_use]
    pub fn client(&self, number: u32) -> Client {
        match self.config.pattern {
            TrafficPattern::Abuser { .. } => {
                let is_abuser = number == self.config.clients;
                let name = if is_abuser { "abuser".to_owned() } else { client_name(number) };
                Client { name, is_abuser: Some(is_abuser) }
            }
            TrafficPattern::Tenants { .. } => {
                let name = format!("{} {number}", Tenant::of(number).name);
                Client { name, is_abuser: None }
            }
            _ => Client { name: client_name(number), is_abuser: None },
        }
    }

    /// The moment at which it ends.
    #[must_use]
    pub const fn end(&self) -> Timestamp {
        START.after(self.config.length)
    }

    /// The arrivals in the order of time, from [`START`] to before [`Traffic::end`]. Those of one
    /// moment are in the order of their sources.
    #[must_use]
    pub fn arrivals(&self) -> TrafficArrivals {
        let mut sources = self.sources();
        let heads = sources.iter_mut().zip(0..);
        let heads = heads.filter_map(|(source, index)| Some(Reverse(source.next()?.head(index))));
        TrafficArrivals { heads: heads.collect(), sources, end_us: self.config.length.as_micros() }
    }

    fn sources(&self) -> Vec<Source> {
        let (clients, length) = (self.config.clients, self.config.length);
        let uniform = ClientChoice::Uniform { from: 0, count: clients };
        let independent = IntervalDistribution::Exponential;
        // `index` separates the random numbers of several sources.
        let renewal = |index, intervals, rate, choice| {
            Source::Renewal(Box::new(RenewalSource::new(intervals, rate, choice, self.rng(index))))
        };
        match self.config.pattern {
            TrafficPattern::Steady { rate } => {
                let in_turn = ClientChoice::InTurn { next: 0, count: clients };
                let rate = RateProfile::constant(rate);
                vec![renewal(0, IntervalDistribution::Constant, rate, in_turn)]
            }
            TrafficPattern::Poisson { rate } => {
                vec![renewal(0, independent, RateProfile::constant(rate), uniform)]
            }
            TrafficPattern::Diurnal { rate, swing, period } => {
                vec![renewal(
                    0,
                    independent,
                    RateProfile::sine(rate, swing, period, length),
                    uniform,
                )]
            }
            TrafficPattern::EdgeBursts { window, burst, spread } => {
                let times = BurstTimes::Edges { window, spread };
                vec![Source::Burst(BurstSource::new(times, clients, burst, self.rng(0)))]
            }
            TrafficPattern::FlashSale { rate, factor, begin, fade } => {
                vec![renewal(
                    0,
                    independent,
                    RateProfile::sale(rate, factor, begin, fade, length),
                    uniform,
                )]
            }
            TrafficPattern::Abuser { rate, abuse } => {
                let abuser = ClientChoice::Uniform { from: clients, count: 1 };
                vec![
                    renewal(0, independent, RateProfile::constant(rate), uniform),
                    renewal(1, independent, RateProfile::constant(abuse), abuser),
                ]
            }
            TrafficPattern::Herd { rate, every, retries, backoff, spread } => {
                let times = BurstTimes::Retries { every, retries, backoff, spread };
                vec![
                    renewal(0, independent, RateProfile::constant(rate), uniform),
                    Source::Burst(BurstSource::new(times, clients, 1, self.rng(1))),
                ]
            }
            TrafficPattern::Zipf { rate, exponent } => {
                let zipf = Zipf::new(u64::from(clients), exponent);
                let choice = ClientChoice::Zipf(zipf);
                vec![renewal(0, independent, RateProfile::constant(rate), choice)]
            }
            TrafficPattern::Tenants { rate } => {
                let shares: f64 = (0..clients).map(|client| Tenant::of(client).rate).sum();
                let source = |client| {
                    let tenant = Tenant::of(client);
                    let mean = rate * tenant.rate / shares;
                    let noise = self.rng(u64::from(client) + (1 << 32));
                    let rate = RateProfile::tenant(mean, tenant, length, noise);
                    let choice = ClientChoice::Uniform { from: client, count: 1 };
                    renewal(u64::from(client), tenant.intervals(), rate, choice)
                };
                (0..clients).map(source).collect()
            }
        }
    }

    fn rng(&self, index: u64) -> Rng {
        // Seeds that differ in one bit give unrelated numbers only behind a good mixer.
        let mut mixed = Rng::with_seed(self.seed);
        let high = mixed.u64(..);
        Rng::with_seed(high ^ Rng::with_seed(index).u64(..))
    }
}

fn client_name(number: u32) -> String {
    format!("client {number}")
}

/// An arrival of a source, relative to the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SourceArrival {
    us: u64,
    client: u32,
}

/// The next arrival of a source; earlier ones, then those of earlier sources come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SourceHead {
    us: u64,
    source: u32,
    client: u32,
}

#[derive(Debug, Clone)]
enum Source {
    Renewal(Box<RenewalSource>),
    Burst(BurstSource),
}

impl SourceArrival {
    const fn head(self, source: u32) -> SourceHead {
        SourceHead { us: self.us, source, client: self.client }
    }
}

impl Source {
    fn next(&mut self) -> Option<SourceArrival> {
        match self {
            Self::Renewal(source) => source.next(),
            Self::Burst(source) => Some(source.next()),
        }
    }
}

/// Arrivals of built-in traffic in the order of time.
#[derive(Debug, Clone)]
pub struct TrafficArrivals {
    heads: BinaryHeap<Reverse<SourceHead>>,
    sources: Vec<Source>,
    end_us: u64,
}

impl Iterator for TrafficArrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let mut first = self.heads.peek_mut()?;
        let Reverse(SourceHead { us, source, client }) = *first;
        if us >= self.end_us {
            return None;
        }
        match self.sources.get_mut(source as usize).and_then(Source::next) {
            Some(next) => *first = Reverse(next.head(source)),
            None => {
                std::collections::binary_heap::PeekMut::pop(first);
            }
        }
        Some(Arrival { at: START.after(Span::from_micros(us)), client, cost: 1 })
    }
}
