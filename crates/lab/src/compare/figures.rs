//! The figures of a comparison, as scripts read them.

use serde::Serialize;
use sluicegate::Mode;
use sluicegate::estimate::bytes_per_identity;

use super::contender::{Contender, EXACT, NominalRule, Passage};
use super::demand::Demand;
use super::measure::Counted;
use super::series::TimeSeries;
use crate::arrival::Client;

/// The figures of all algorithms on one traffic.
#[derive(Debug, Clone, Serialize)]
pub struct AlgorithmComparison {
    /// The nominal rate.
    pub rate: String,
    /// Its number: what a window may hold.
    pub limit: u64,
    /// Length of its window.
    pub window_us: u64,
    /// The burst of algorithms that know one.
    pub burst: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Their cost: what amounts are compared with.
    pub demand: u64,
    /// Clients that sent them.
    pub clients: usize,
    /// Clients that sent more than the limit in a rolling window; nothing without the exact log.
    pub clients_above_limit: Option<usize>,
    /// Time of the first and the last request, in microseconds since the epoch.
    pub first_us: u64,
    /// The last.
    pub last_us: u64,
    /// Dispersion of the requests: variance by mean of the cost in tenths of a window.
    pub demand_dispersion: Option<f64>,
    /// Part of the demand that abusers sent, where they are known.
    pub demand_abuser_share: Option<f64>,
    /// The algorithms.
    pub algorithms: Vec<AlgorithmFigures>,
    /// Why other algorithms are left out.
    pub left_out: Vec<String>,
    /// The demand over time.
    #[serde(skip)]
    pub demand_series: TimeSeries,
}

/// The figures of one algorithm; amounts are sums of costs.
#[derive(Debug, Clone, Serialize)]
pub struct AlgorithmFigures {
    /// Its name.
    pub algorithm: String,
    /// The limit as it is written in a rule.
    pub limit: String,
    /// An algorithm listed before that decided every request the same.
    pub same_decisions_as: Option<String>,
    /// The amount admitted.
    pub admitted: u64,
    /// The same relative to the exact log: 0.02 is 2 % more; nothing without one.
    pub admitted_over_exact: Option<f64>,
    /// Requests that were denied.
    pub denied_requests: u64,
    /// The most of one client in any rolling window.
    pub peak: PeakWindow,
    /// The amount admitted above the limit in the rolling window that ends with it.
    pub over_admitted: u64,
    /// How much the fullest rolling window is above the limit.
    pub excess_worst: u64,
    /// The same of the window that ends with each admitted request, on average.
    pub excess_mean: f64,
    /// Denied requests for which the limit had room.
    pub refused_without_need: u64,
    /// Jain's index of what clients got of what they were entitled to.
    pub fairness: Option<f64>,
    /// How bursty the admitted requests are.
    pub burst_shape: BurstShape,
    /// Part of the admitted that abusers got, where they are known.
    pub abuser_share: Option<f64>,
    /// Mean time that an admitted request waits for its slot.
    pub mean_wait_us: f64,
    /// Memory of a client in the embedded store: of one that has used half of its quota, and at
    /// most.
    pub state_bytes: [u64; 2],
    /// The admitted over time.
    #[serde(skip)]
    pub series: TimeSeries,
}

/// The fullest rolling window.
#[derive(Debug, Clone, Serialize)]
pub struct PeakWindow {
    /// What it holds.
    pub amount: u64,
    /// In units of the limit.
    pub times_limit: f64,
    /// The client.
    pub client: String,
    /// When it ends, in microseconds since the epoch.
    pub end_us: u64,
}

/// How bursty admitted requests are.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BurstShape {
    /// The most of one client in any hundredth of a window.
    pub hundredth: u64,
    /// The most of one client in any tenth of a window.
    pub tenth: u64,
    /// Variance by mean of what all clients get in tenths of a window.
    pub dispersion: Option<f64>,
}

impl AlgorithmComparison {
    pub(super) fn new(
        rule: NominalRule,
        demand: &Demand,
        measured: Vec<(Contender, Counted)>,
        client: &dyn Fn(u32) -> Client,
    ) -> Self {
        let exact = measured.iter().find(|(contender, _)| contender.name == EXACT);
        let above = exact.map(|(_, counted)| demand.not_served(&counted.admitted_by));
        let exact = exact.map(|(_, counted)| counted.admitted);
        let names: Vec<(u64, String)> = measured
            .iter()
            .map(|(contender, counted)| (counted.decisions, contender.name.clone()))
            .collect();
        let clients = measured.iter().map(|(_, counted)| counted.admitted_by.len()).max();
        let abusers = abusers(clients.unwrap_or(0), client);
        let inputs = FigureInputs { rule, demand, client, abusers, exact };
        let mut demand_series = demand.series.clone();
        let figures = measured.into_iter().zip(0_usize..).map(|((contender, counted), index)| {
            let earlier = names.iter().take(index);
            let mut same = earlier.filter(|(decisions, _)| *decisions == counted.decisions);
            let same_decisions_as = same.next().map(|(_, name)| name.clone());
            figures(&contender, counted, same_decisions_as, &inputs)
        });
        let mut algorithms: Vec<AlgorithmFigures> = figures.collect();
        // Bins of one length for all, so that plots compare.
        let series = algorithms.iter().map(|figures| &figures.series);
        let width = series.chain([&demand_series]).map(TimeSeries::width_us).max().unwrap_or(1);
        demand_series.widen_to(width);
        algorithms.iter_mut().for_each(|figures| figures.series.widen_to(width));
        let abuser_demand = inputs.abusers.as_ref().map(|abusers| {
            let amount: u64 = abusers.iter().map(|abuser| demand.cost_of(*abuser)).sum();
            share(amount, demand.cost)
        });
        Self {
            rate: rule.rate_text(),
            limit: rule.limit(),
            window_us: rule.window().as_micros(),
            burst: rule.burst(),
            requests: demand.requests,
            demand: demand.cost,
            clients: demand.clients(),
            clients_above_limit: above,
            first_us: demand.first_us,
            last_us: demand.last_us,
            demand_dispersion: demand.dispersion(),
            demand_abuser_share: abuser_demand,
            algorithms,
            left_out: Vec::new(),
            demand_series,
        }
    }

    /// The figures of an algorithm.
    #[must_use]
    pub fn algorithm(&self, name: &str) -> Option<&AlgorithmFigures> {
        self.algorithms.iter().find(|figures| figures.algorithm == name)
    }

    /// The comparison as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self)
            .unwrap_or_else(|error| crate::answer::error_json(&error.to_string()))
    }
}

impl AlgorithmFigures {
    /// The part of its denials for which the limit had room.
    #[must_use]
    pub fn refused_share(&self) -> f64 {
        share(self.refused_without_need, self.denied_requests)
    }
}

/// The numbers of the abusers; `None` if that is not known of the clients.
fn abusers(clients: usize, client: &dyn Fn(u32) -> Client) -> Option<Vec<u32>> {
    let clients = u32::try_from(clients).unwrap_or(u32::MAX);
    if clients == 0 {
        return None;
    }
    client(0).is_abuser?;
    let is_abuser = |number: &u32| client(*number).is_abuser == Some(true);
    Some((0..clients).filter(is_abuser).collect())
}

/// What the figures of all algorithms are made with.
struct FigureInputs<'a> {
    rule: NominalRule,
    demand: &'a Demand,
    client: &'a dyn Fn(u32) -> Client,
    abusers: Option<Vec<u32>>,
    /// What the exact log admitted, unless it is left out.
    exact: Option<u64>,
}

fn figures(
    contender: &Contender,
    counted: Counted,
    same_decisions_as: Option<String>,
    inputs: &FigureInputs<'_>,
) -> AlgorithmFigures {
    let FigureInputs { rule, demand, client, abusers, exact } = inputs;
    let [peak, tenth, hundredth] = counted.peaks;
    let requests = counted.admitted_requests.max(1) as f64;
    let state = bytes_per_identity(std::slice::from_ref(&contender.limit), Mode::Hard);
    let abuser_share = abusers.as_ref().map(|abusers| {
        let of = |abuser: &u32| counted.admitted_by.get(*abuser as usize).copied().unwrap_or(0);
        share(abusers.iter().map(of).sum(), counted.admitted)
    });
    // A shaping limit decides as it does when it polices; only the times differ.
    let same_decisions_as = same_decisions_as.filter(|_| contender.passage == Passage::AtArrival);
    AlgorithmFigures {
        algorithm: contender.name.clone(),
        limit: contender.limit_text.clone(),
        same_decisions_as,
        admitted: counted.admitted,
        admitted_over_exact: exact
            .filter(|exact| *exact > 0)
            .map(|exact| share(counted.admitted, exact) - 1.0),
        denied_requests: counted.requests - counted.admitted_requests,
        peak: PeakWindow {
            amount: peak.amount,
            times_limit: share(peak.amount, rule.limit()),
            client: client(peak.client).name,
            end_us: peak.end_us,
        },
        over_admitted: counted.over_admitted,
        excess_worst: peak.amount.saturating_sub(rule.limit()),
        excess_mean: counted.excess_sum as f64 / requests,
        refused_without_need: counted.refused_without_need,
        fairness: demand.fairness(&counted.admitted_by),
        burst_shape: BurstShape {
            hundredth: hundredth.amount,
            tenth: tenth.amount,
            dispersion: counted.dispersion.index(demand.tenths()),
        },
        abuser_share,
        mean_wait_us: counted.waited_us as f64 / requests,
        state_bytes: [state.typical, state.max],
        series: counted.series,
    }
}

/// `part` of `whole`; 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
