//! Rates that vary over time: a rate for each step of a fixed length.

use std::f64::consts::TAU;

use fastrand::Rng;
use sluicegate_core::time::Span;
use sluicegate_random::standard_normal;

use super::tenants::{Tenant, WINDOW};

/// Arrivals per microsecond over time.
#[derive(Debug, Clone)]
pub(super) struct RateProfile {
    shape: RateShape,
    /// Length of a step, in microseconds.
    step_us: f64,
    /// The current step and its rate.
    step: u64,
    rate: f64,
    /// Number of steps after which nothing arrives.
    steps: u64,
}

#[derive(Debug, Clone)]
enum RateShape {
    Constant,
    /// A sine of this period, in steps.
    Sine {
        mean: f64,
        swing: f64,
        period: f64,
    },
    /// Exponential decay from `begin`, in steps.
    Sale {
        plain: f64,
        excess: f64,
        begin: f64,
        fade: f64,
    },
    /// A sine with noise that is correlated from step to step.
    Tenant {
        mean: f64,
        tenant: Tenant,
        noise: f64,
        rng: Rng,
    },
}

/// Steps of a sine in one period, and of a decay in its time constant.
const STEPS: f64 = 1_000.0;
/// Steps of all traffic at most: a rate of nearly nothing must not search for an arrival for ever.
const ALL_STEPS: f64 = 1e7;
const DAY_US: f64 = 86_400e6;

impl RateProfile {
    /// Rates are per second.
    pub(super) fn constant(rate: f64) -> Self {
        let (shape, step_us) = (RateShape::Constant, f64::INFINITY);
        Self { shape, step_us, step: 0, rate: rate / 1e6, steps: u64::MAX }
    }

    /// The lowest rate is at the start, as at midnight.
    pub(super) fn sine(mean: f64, swing: f64, period: Span, length: Span) -> Self {
        let step_us = step_us(period, length);
        let period = period.as_micros() as f64 / step_us;
        // A few steps do not resolve a sine; so short a period shows in no measure.
        let swing = if period < 10.0 { 0.0 } else { swing };
        Self::begun(RateShape::Sine { mean: mean / 1e6, swing, period }, step_us, u64::MAX)
    }

    pub(super) fn sale(plain: f64, factor: f64, begin: Span, fade: Span, length: Span) -> Self {
        let wanted = step_us(fade, length);
        let (begin, fade) = (begin.as_micros() as f64, fade.as_micros() as f64);
        // A divisor of the time until it begins, so that a step begins there.
        let step_us = if begin > 0.0 { begin / (begin / wanted).ceil() } else { wanted };
        let plain = plain / 1e6;
        let (begin, fade) = ((begin / step_us).round(), fade / step_us);
        let excess = plain * (factor - 1.0);
        Self::begun(RateShape::Sale { plain, excess, begin, fade }, step_us, u64::MAX)
    }

    /// Of a tenant, for as long as the traffic lasts: a tenant that is silent for long must not
    /// search for its next arrival beyond the end.
    pub(super) fn tenant(mean: f64, tenant: &Tenant, length: Span, mut rng: Rng) -> Self {
        let step_us = WINDOW.as_micros() as f64;
        let steps = length.as_micros() / WINDOW.as_micros() + 1;
        let noise = standard_normal(&mut rng);
        let shape = RateShape::Tenant { mean: mean / 1e6, tenant: *tenant, noise, rng };
        Self::begun(shape, step_us, steps)
    }

    fn begun(shape: RateShape, step_us: f64, steps: u64) -> Self {
        let mut profile = Self { shape, step_us, step: 0, rate: 0.0, steps };
        profile.rate = profile.shape.rate(0, step_us);
        profile
    }

    /// The time, in microseconds, at which so many arrivals are expected after `us`; `None` if
    /// that is beyond the end.
    pub(super) fn advance(&mut self, us: f64, mut expected: f64) -> Option<f64> {
        let mut us = us;
        loop {
            let end = (self.step + 1) as f64 * self.step_us;
            let within = self.rate * (end - us);
            if expected < within || self.step_us.is_infinite() {
                return Some(us + expected / self.rate);
            }
            expected -= within;
            us = end;
            self.step += 1;
            if self.step >= self.steps {
                return None;
            }
            self.rate = self.shape.rate(self.step, self.step_us);
        }
    }
}

/// The length of a step, in microseconds, of a shape that changes within `scale`.
fn step_us(scale: Span, length: Span) -> f64 {
    let fine = scale.as_micros() as f64 / STEPS;
    fine.max(length.as_micros() as f64 / ALL_STEPS).max(1.0)
}

impl RateShape {
    /// The rate of a step, which is the one after the last.
    fn rate(&mut self, step: u64, step_us: f64) -> f64 {
        // At the middle of the step.
        let at = step as f64 + 0.5;
        match self {
            Self::Constant => 0.0,
            Self::Sine { mean, swing, period } => {
                *mean * (1.0 - *swing * (TAU * at / *period).cos())
            }
            Self::Sale { plain, excess, begin, fade } => {
                let after = at - *begin;
                let excess = if after < 0.0 { 0.0 } else { *excess * (-after / *fade).exp() };
                *plain + excess
            }
            Self::Tenant { mean, tenant, noise, rng } => {
                let day = at * step_us / DAY_US - tenant.peak_hour / 24.0;
                let deviation = tenant.deviation;
                let factor = (deviation * *noise - deviation * deviation / 2.0).exp();
                let correlation = tenant.correlation;
                let fresh = (1.0 - correlation * correlation).sqrt() * standard_normal(rng);
                *noise = correlation * *noise + fresh;
                *mean * (1.0 + tenant.swing * (TAU * day).cos()) * factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::TENANTS;

    #[test]
    fn rates_of_tenants_are_log_normal_and_correlated() {
        for tenant in TENANTS {
            let (even, rng) = (Tenant { swing: 0.0, ..tenant }, Rng::with_seed(5));
            let mut shape = RateShape::Tenant { mean: 3.0, tenant: even, noise: 0.0, rng };
            let count = 400_000;
            let rates: Vec<f64> = (0..count).map(|step| shape.rate(step, 600e6)).collect();
            let logs: Vec<f64> = rates.iter().map(|rate| (rate / 3.0).ln()).collect();
            let average = |sum: f64| sum / count as f64;
            let mean = average(logs.iter().sum());
            let variance = average(logs.iter().map(|log| (log - mean).powi(2)).sum());
            let pairs = logs.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
            let correlation = average(pairs.sum()) / variance;
            let name = tenant.name;
            assert!((variance.sqrt() / tenant.deviation - 1.0).abs() < 0.05, "{name}: {variance}");
            assert!((correlation - tenant.correlation).abs() < 0.01, "{name}: {correlation}");
            // The mean of the rate is the stated one: that of its logarithm is lower.
            assert!((mean + variance / 2.0).abs() < 0.05, "{name}: {mean}");
        }
    }

    #[test]
    fn a_tenant_has_its_highest_rate_at_its_hour() {
        for tenant in TENANTS {
            let (quiet, rng) = (Tenant { deviation: 0.0, ..tenant }, Rng::with_seed(5));
            let mut shape = RateShape::Tenant { mean: 1.0, tenant: quiet, noise: 0.0, rng };
            let rates: Vec<f64> = (0..144).map(|step| shape.rate(step, 600e6)).collect();
            let highest = (0..144).max_by(|a, b| rates[*a].total_cmp(&rates[*b])).unwrap();
            let hour = (highest as f64 + 0.5) / 6.0;
            assert!((hour - tenant.peak_hour).abs() < 0.2, "{}: {hour}", tenant.name);
            assert!((rates[highest] - 1.0 - tenant.swing).abs() < 0.01);
        }
    }
}
