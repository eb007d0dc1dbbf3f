//! The search for the limit of each goal, on the part of the log that limits are chosen from.

use sluicegate_core::time::{Span, Timestamp};

use super::goal::{ShareOf, TuneGoal};
use super::good_clients::{GOOD_CLIENTS_MIN, GoodClients};
use super::outcome::{LimitOutcome, OutcomeOptions, outcome};
use super::protect::{Capacity, protect};
use super::requests::{self, RequestShares, effective_clients};
use super::resample::stability;
use super::shape::LimitShape;
use super::statistics::{
    attainable_share, clients_needed, exceeded_by, predicted_at_most, tolerated,
};
use super::trade_off::{Exceeded, TradeOffPoint, over_rates, point, rates, strictest};
use super::usage::UsageByClient;
use super::{
    Basis, Recommendation, Shortage, TrafficFacts, TuneError, TuneOptions, TuneResult,
    TunedAlgorithm,
};
use crate::arrival::Arrival;

/// What the goals have in common.
pub(super) struct Tuner {
    pub(super) usage: UsageByClient,
    pub(super) training: UsageByClient,
    pub(super) split: Timestamp,
    pub(super) peaks: Vec<u64>,
    pub(super) options: TuneOptions,
    pub(super) good: Option<GoodClients>,
}

pub(super) type Found = (TuneResult, Vec<TradeOffPoint>);

impl Tuner {
    /// The result, and the curve to show with it.
    pub(super) fn find(&self, goal: TuneGoal) -> Result<Found, TuneError> {
        match goal {
            TuneGoal::DenyAtMost { share, of: ShareOf::Users } => self.clients(share),
            TuneGoal::DenyAtMost { share, of: ShareOf::Requests } => self.requests(share),
            TuneGoal::ServeGood { part } if self.good.is_none() => {
                let sample = self.peaks.len();
                let confidence = self.options.confidence;
                let needed = clients_needed(1.0 - part, confidence).max(GOOD_CLIENTS_MIN as u64);
                let shortage = Shortage { sample, needed, attainable: 1.0 };
                Ok((TuneResult::Shortage(shortage), self.whole_curve()))
            }
            TuneGoal::ServeGood { part } => self.clients(1.0 - part),
            TuneGoal::Protect { capacity, window } => {
                self.protect(Capacity { units: capacity, window })
            }
        }
    }

    /// A limit that denies at most a share of the clients that count.
    fn clients(&self, share: f64) -> Result<Found, TuneError> {
        let TuneOptions { confidence, horizon, .. } = self.options;
        let peak_max = self.good.map_or(u64::MAX, |good| good.peak_max);
        let counts: Vec<bool> = self.peaks.iter().map(|peak| *peak <= peak_max).collect();
        let sample = counts.iter().filter(|counts| **counts).count();
        let tolerated = tolerated(sample, share, confidence);
        let exceeded = Exceeded {
            promised: tolerated.unwrap_or(0),
            estimate: (share * sample as f64) as usize,
            lower: exceeded_by(sample, share, confidence),
        };
        let (curve, best) = self.curve(&counts, exceeded);
        let (Some(tolerated), Some(best)) = (tolerated, best) else {
            let needed = clients_needed(share, confidence);
            let attainable = attainable_share(sample, confidence);
            return Ok((TuneResult::Shortage(Shortage { sample, needed, attainable }), curve));
        };
        let outcome = self.outcome(best.shape, best.size, peak_max)?;
        let held_out = outcome.held_out.counted_clients;
        let basis = Basis::Clients {
            sample,
            tolerated,
            interval: [best.lower.min(best.size), best.size],
            estimate: best.estimate,
            predicted_held_out: predicted_at_most(held_out, tolerated, sample, confidence),
            stability: match self.options.algorithm {
                TunedAlgorithm::TokenBucket => stability(&curve, tolerated, horizon),
                _ => None,
            },
        };
        Ok((self.recommendation(best.shape, best.size, basis, outcome), curve))
    }

    /// A limit that denies at most a share of requests.
    fn requests(&self, share: f64) -> Result<Found, TuneError> {
        let shares = RequestShares::new(&self.training, self.options.confidence);
        let (shape, size, denied) =
            requests::strictest(&shares, &self.shapes(), share, self.options.horizon)?;
        let outcome = self.outcome(shape, size, u64::MAX)?;
        let curve = self.whole_curve();
        Ok((self.recommendation(shape, size, Basis::Requests(denied), outcome), curve))
    }

    /// Limits that hold a capacity.
    fn protect(&self, capacity: Capacity) -> Result<Found, TuneError> {
        let covered = self.training.last().since(self.training.first());
        if capacity.window > covered {
            let (option, given) = ("protect", capacity.window);
            return Err(TuneError::TooShort { option, given, covered });
        }
        let shapes = self.shapes();
        // Neighbouring rates hold a capacity at nearly the same cost.
        let step = if shapes.len() > 1 { 2 } else { 1 };
        let shapes: Vec<LimitShape> = shapes.into_iter().step_by(step).collect();
        let found = protect(
            &self.training,
            &self.usage,
            self.split,
            capacity,
            &shapes,
            self.options.horizon,
        )?;
        Ok((TuneResult::Protection(Box::new(found)), self.whole_curve()))
    }

    /// The curve, and its recommended point.
    fn curve(
        &self,
        counts: &[bool],
        exceeded: Exceeded,
    ) -> (Vec<TradeOffPoint>, Option<TradeOffPoint>) {
        let horizon = self.options.horizon;
        if self.options.algorithm == TunedAlgorithm::TokenBucket {
            let curve = over_rates(&self.training, counts, exceeded, horizon);
            let best = strictest(&curve, horizon).cloned();
            return (curve, best);
        }
        let at = |window| point(self.options.windowed(window), &self.training, counts, exceeded);
        let covered = self.training.last().since(self.training.first());
        let chosen = self.options.window;
        let mut windows: Vec<Span> =
            [1, 10, 60, 600, 3_600, 86_400].into_iter().map(Span::from_secs).collect();
        windows.push(chosen);
        windows.sort_unstable();
        windows.dedup();
        let unit = self.usage.resolution().as_micros().max(1);
        windows.retain(|window| *window <= covered && window.as_micros().is_multiple_of(unit));
        (windows.into_iter().map(at).collect(), Some(at(chosen)))
    }

    /// The curve of goals that are not about a share of clients.
    fn whole_curve(&self) -> Vec<TradeOffPoint> {
        let exceeded = Exceeded { promised: 0, estimate: 0, lower: 0 };
        self.curve(&vec![true; self.peaks.len()], exceeded).0
    }

    fn shapes(&self) -> Vec<LimitShape> {
        if self.options.algorithm != TunedAlgorithm::TokenBucket {
            return vec![self.options.windowed(self.options.window)];
        }
        rates(&self.training).into_iter().map(LimitShape::TokenBucket).collect()
    }

    fn outcome(
        &self,
        shape: LimitShape,
        size: u64,
        peak_max: u64,
    ) -> Result<LimitOutcome, TuneError> {
        let limit = shape.limit(size)?;
        let options = OutcomeOptions { split: self.split, horizon: self.options.horizon, peak_max };
        Ok(outcome(&limit, &self.usage, options))
    }

    fn recommendation(
        &self,
        shape: LimitShape,
        size: u64,
        basis: Basis,
        outcome: LimitOutcome,
    ) -> TuneResult {
        let admitted_max = shape.admitted_max(size, self.options.horizon);
        TuneResult::Limit(Box::new(Recommendation { shape, size, admitted_max, basis, outcome }))
    }
}

impl TuneOptions {
    pub(super) fn check(&self) -> Result<(), TuneError> {
        if !(0.5..1.0).contains(&self.confidence) {
            return Err(TuneError::Option {
                option: "confidence",
                range: "from `50%` to below `100%`",
            });
        }
        if !(0.0..=0.9).contains(&self.hold_out) {
            return Err(TuneError::Option { option: "hold-out", range: "from `0%` to `90%`" });
        }
        Ok(())
    }

    pub(super) fn check_length(
        &self,
        training: &UsageByClient,
        resolution: Span,
    ) -> Result<(), TuneError> {
        let covered = training.last().since(training.first());
        let too_short = |option, given| TuneError::TooShort { option, given, covered };
        if self.algorithm != TunedAlgorithm::TokenBucket {
            if self.window > covered {
                return Err(too_short("window", self.window));
            }
            let is_multiple = |unit: u64| unit == 0 || self.window.as_micros().is_multiple_of(unit);
            if !is_multiple(resolution.as_micros()) {
                return Err(TuneError::TooCoarse { window: self.window, resolution });
            }
        }
        if self.horizon > covered {
            return Err(too_short("horizon", self.horizon));
        }
        Ok(())
    }

    fn windowed(&self, window: Span) -> LimitShape {
        match self.algorithm {
            TunedAlgorithm::SlidingWindow => LimitShape::SlidingWindow(window),
            TunedAlgorithm::FixedWindow => LimitShape::FixedWindow(window),
            TunedAlgorithm::SlidingLog | TunedAlgorithm::TokenBucket => {
                LimitShape::SlidingLog(window)
            }
        }
    }
}

impl TrafficFacts {
    pub(super) fn of(usage: &UsageByClient, training: &UsageByClient, split: Timestamp) -> Self {
        let counts = || usage.clients().map(<[Arrival]>::len);
        let busiest = counts().max().unwrap_or(0);
        Self {
            requests: usage.request_count(),
            clients: usage.client_count(),
            single_request_clients: counts().filter(|count| *count == 1).count(),
            busiest_share: busiest as f64 / usage.request_count() as f64,
            effective_clients: effective_clients(usage),
            training_clients: training.client_count(),
            first: usage.first(),
            split,
            last: usage.last(),
            resolution: usage.resolution(),
        }
    }
}
