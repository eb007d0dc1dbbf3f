//! Clients as they are: a handful of tenants of a large language model's API.
//!
//! The parameters are fitted to the published workload of ServeGen (Xiang et al., *ServeGen:
//! Workload Characterization and Generation of Large Language Model Serving in Production*, arXiv
//! 2505.09999; its repository, Apache-2.0, has for each client and ten minutes the rate and the
//! fitted distribution of intervals, over 14 days). For each tenant:
//!
//! - `rate` is the mean over all its windows, silent ones included;
//! - `swing` and `peak_hour` are the amplitude and phase of the first harmonic of a day, by least
//!   squares (the workload does not state its time zone);
//! - `deviation` is the standard deviation of the logarithm of a window's rate over that harmonic,
//!   and `correlation` that of this logarithm from one window to the next;
//! - `shape` is the median over the windows of the tenant's more frequent family of intervals.
//!
//! So the rate is log-normal with an autoregressive logarithm, and bursts come from both: windows
//! of a high rate, and intervals that vary more than those of independent arrivals. Silent windows
//! (2 to 4 % of them) and weekdays are not modelled.

use sluicegate_core::time::Span;
use sluicegate_random::IntervalDistribution;

/// Length of the windows that the rates were fitted to.
pub(super) const WINDOW: Span = Span::from_secs(600);

/// A fitted tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// Its name in reports: the client of ServeGen.
    pub name: &'static str,
    /// Mean requests per second.
    pub rate: f64,
    /// Amplitude over a day, as a part of the mean.
    pub swing: f64,
    /// Hour of the highest rate.
    pub peak_hour: f64,
    /// Standard deviation of the logarithm of the rate.
    pub deviation: f64,
    /// Correlation of that logarithm from one window of ten minutes to the next.
    pub correlation: f64,
    /// Family of its intervals.
    pub family: IntervalFamily,
    /// Their shape: the lower, the burstier.
    pub shape: f64,
}

/// Family of the intervals of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalFamily {
    /// Gamma distribution.
    Gamma,
    /// Weibull distribution, whose tail is heavier.
    Weibull,
}

use IntervalFamily::{Gamma, Weibull};

/// The fitted tenants, from even to bursty and from large to small.
#[rustfmt::skip]
pub const TENANTS: [Tenant; 8] = [
    Tenant { name: "m-small-5", rate: 350.87, swing: 0.60, peak_hour: 19.2, deviation: 0.39, correlation: 0.99, family: Gamma, shape: 0.81 },
    Tenant { name: "m-small-14", rate: 103.49, swing: 0.07, peak_hour: 20.4, deviation: 0.50, correlation: 0.98, family: Weibull, shape: 0.29 },
    Tenant { name: "m-mid-73", rate: 64.88, swing: 0.32, peak_hour: 3.2, deviation: 0.61, correlation: 0.84, family: Gamma, shape: 0.09 },
    Tenant { name: "m-small-26", rate: 40.95, swing: 0.72, peak_hour: 19.0, deviation: 1.24, correlation: 0.99, family: Gamma, shape: 0.39 },
    Tenant { name: "m-mid-23", rate: 37.95, swing: 0.04, peak_hour: 5.6, deviation: 0.61, correlation: 0.44, family: Weibull, shape: 0.50 },
    Tenant { name: "m-mid-71", rate: 22.05, swing: 0.87, peak_hour: 16.5, deviation: 0.98, correlation: 0.88, family: Gamma, shape: 0.98 },
    Tenant { name: "m-small-11", rate: 7.63, swing: 0.29, peak_hour: 17.3, deviation: 0.56, correlation: 0.80, family: Weibull, shape: 0.36 },
    Tenant { name: "m-small-35", rate: 6.32, swing: 0.78, peak_hour: 19.8, deviation: 1.29, correlation: 0.97, family: Weibull, shape: 0.48 },
];

impl Tenant {
    /// The tenant of a client: the fitted ones in turn.
    pub(super) fn of(client: u32) -> &'static Self {
        &TENANTS[client as usize % TENANTS.len()]
    }

    /// The distribution of its intervals.
    ///
    /// ```
    /// let bursty = sluicegate_lab::traffic::TENANTS[1].intervals();
    /// assert!(bursty.coefficient_of_variation() > 5.0);
    /// ```
    #[must_use]
    pub fn intervals(&self) -> IntervalDistribution {
        match self.family {
            Gamma => IntervalDistribution::gamma(self.shape),
            Weibull => IntervalDistribution::weibull(self.shape),
        }
    }
}
