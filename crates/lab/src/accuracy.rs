//! Accuracy of the approximations of a sliding log, measured on a stream of arrivals.
//!
//! ```text
//!   arrival ─> method: decides by its own state, with the production core
//!          └─> true count: the times of the last window, of the same client
//!
//!   counted    every request counts, admitted or not; all methods share one true count
//!   enforced   denied requests do not count; each method has the true count of what it admitted
//! ```
//!
//! A decision is wrong if the true count decides otherwise: one error, not those that follow from
//! it. The rate error of a request is that of the method's count: relative to the true one where
//! every request counts, to the limit where only admitted ones do.

mod adversary;
mod methods;
mod plot;
mod report;
#[cfg(test)]
mod tests;
mod window;

use sluicegate_core::time::{Span, Timestamp};

pub use self::adversary::{Adversary, Step, adversary};
pub use self::methods::{Method, methods};
pub use self::plot::{plot_adversary, plot_errors};
pub use self::report::{figures_table, parse_figures};
pub use self::window::RollingWindow;

use self::methods::MethodState;
use crate::arrival::Arrival;

/// Which requests count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Every request, as where only the excess of a rate is detected.
    All,
    /// Admitted requests, as a limit enforces.
    Admitted,
}

/// What was measured of one method.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Name of the method.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// Admitted although the window held the limit.
    pub wrongly_admitted: u64,
    /// Denied although the window had room.
    pub wrongly_denied: u64,
    /// Sum of the relative rate errors, without their signs.
    pub error_sum: f64,
    /// The largest of them; where every request counts, of those with a true count of at least half
    /// of the limit.
    pub error_max: f64,
    /// The most that was admitted in a rolling window, as a multiple of the limit; 0 where every
    /// request counts.
    pub peak: f64,
}

impl Figures {
    /// Share of wrong decisions.
    #[must_use]
    pub fn wrong(&self) -> f64 {
        let wrong = self.wrongly_admitted + self.wrongly_denied;
        wrong as f64 / self.requests.max(1) as f64
    }

    /// Mean relative rate error, over all requests.
    #[must_use]
    pub fn error_mean(&self) -> f64 {
        self.error_sum / self.requests.max(1) as f64
    }
}

/// Measures methods on a stream of arrivals.
///
/// ```
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
/// use sluicegate_lab::accuracy::{Counting, Study, methods};
/// use sluicegate_lab::arrival::Arrival;
/// use sluicegate_core::time::Timestamp;
///
/// let rate = Rate::new(2, Span::from_secs(1)).unwrap();
/// let mut study = Study::new(methods(rate, Counting::Admitted), rate, 1, Counting::Admitted);
/// for us in [900_000, 950_000, 1_000_000, 1_050_000] {
///     study.observe(Arrival { at: Timestamp::from_micros(us), client: 0, cost: 1 });
/// }
/// let fixed = study.figures().into_iter().find(|one| one.name == "fixed_window").unwrap();
/// assert_eq!((fixed.wrongly_admitted, fixed.peak), (2, 2.0));
/// ```
#[derive(Debug)]
pub struct Study {
    counting: Counting,
    limit: u64,
    window: Span,
    /// True counts of all requests, by client; only if every request counts.
    all: Vec<RollingWindow>,
    methods: Vec<MethodRun>,
}

#[derive(Debug)]
struct MethodRun {
    method: Method,
    /// By client.
    states: Vec<MethodState>,
    /// True counts of what it admitted, by client; only if admitted requests count.
    admitted: Vec<RollingWindow>,
    figures: Figures,
    /// The most in a rolling window.
    peak: u64,
}

impl Study {
    /// A study of `methods` that enforce `rate` for this number of clients.
    #[must_use]
    pub fn new(
        methods: Vec<Method>,
        rate: sluicegate_core::quota::Rate,
        clients: u32,
        counting: Counting,
    ) -> Self {
        let clients = clients as usize;
        let windows = |wanted| if counting == wanted { clients } else { 0 };
        let run = |method: Method| MethodRun {
            figures: Figures { name: method.name.to_owned(), ..Figures::default() },
            states: vec![MethodState::default(); clients],
            admitted: vec![RollingWindow::default(); windows(Counting::Admitted)],
            peak: 0,
            method,
        };
        Self {
            counting,
            limit: rate.count(),
            window: rate.period(),
            all: vec![RollingWindow::default(); windows(Counting::All)],
            methods: methods.into_iter().map(run).collect(),
        }
    }

    /// Decides one arrival by every method. Costs count as one request; an unknown client counts
    /// for nothing.
    pub fn observe(&mut self, arrival: Arrival) {
        let (client, at) = (arrival.client as usize, arrival.at);
        let before = match self.counting {
            Counting::All => {
                let Some(all) = self.all.get_mut(client) else { return };
                Some(all.count_and_push(at, self.window))
            }
            Counting::Admitted => None,
        };
        for run in &mut self.methods {
            match before {
                Some(before) => run.count(client, at, before, self.limit),
                None => run.enforce(client, at, self.window, self.limit),
            }
        }
    }

    /// What was measured so far.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        let peaked = |run: &MethodRun| {
            let peak = run.peak as f64 / self.limit.max(1) as f64;
            Figures { peak, ..run.figures.clone() }
        };
        self.methods.iter().map(peaked).collect()
    }
}

impl MethodRun {
    /// A request that counts even if it is denied; `before` others did in the window.
    fn count(&mut self, client: usize, at: Timestamp, before: u64, limit: u64) {
        let Some(state) = self.states.get_mut(client) else { return };
        let used = self.method.used(state, at);
        let admitted = used < limit;
        self.method.charge(state, at);
        let error = used.abs_diff(before) as f64 / (before + 1) as f64;
        self.figures.judge(admitted, before < limit, error);
        if before * 2 >= limit {
            self.figures.error_max = self.figures.error_max.max(error);
        }
    }

    /// A request that counts if it is admitted.
    fn enforce(&mut self, client: usize, at: Timestamp, window: Span, limit: u64) {
        let Some(state) = self.states.get_mut(client) else { return };
        let Some(truth) = self.admitted.get_mut(client) else { return };
        let before = truth.count(at, window);
        let used = self.method.used(state, at);
        let admitted = self.method.admits(state, at);
        if admitted {
            self.method.charge(state, at);
            truth.push(at);
            self.peak = self.peak.max(before + 1);
        }
        let error = used.abs_diff(before) as f64 / limit.max(1) as f64;
        self.figures.judge(admitted, before < limit, error);
        self.figures.error_max = self.figures.error_max.max(error);
    }
}

impl Figures {
    /// Compares a decision with whether the window had room.
    fn judge(&mut self, admitted: bool, has_room: bool, error: f64) {
        self.requests += 1;
        self.admitted += u64::from(admitted);
        self.wrongly_admitted += u64::from(admitted && !has_room);
        self.wrongly_denied += u64::from(!admitted && has_room);
        self.error_sum += error;
    }
}
