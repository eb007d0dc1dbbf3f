//! The worst case of a window that forgets when its hits came: the whole limit at the end of one
//! window, and in the next one as much as is admitted, as soon as it is.

use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};

use super::{Counting, Method, MethodState, RollingWindow, methods};

/// An admitted request of the adversary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Time since the start of the first window.
    pub at: Span,
    /// Admitted in the window that ends with it.
    pub held: u64,
}

/// What a method admitted to the adversary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adversary {
    /// Name of the method.
    pub name: &'static str,
    /// Every admitted request.
    pub steps: Vec<Step>,
}

/// Attempts of the adversary in each window.
const ATTEMPTS: u64 = 10_000;

/// Runs the adversary against every method, over three windows: nothing until the last ten
/// thousandth of the first one, then an attempt every ten thousandth of a window.
///
/// ```
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::time::Span;
///
/// let runs = sluicegate_lab::accuracy::adversary(Rate::new(10, Span::from_secs(60)).unwrap());
/// let peak = |name| runs.iter().find(|run| run.name == name).unwrap().peak();
/// assert_eq!((peak("sliding_window"), peak("sliding_window, slices: 6")), (20, 10));
/// ```
#[must_use]
pub fn adversary(rate: Rate) -> Vec<Adversary> {
    methods(rate, Counting::Admitted).iter().map(|method| attack(method, rate)).collect()
}

fn attack(method: &Method, rate: Rate) -> Adversary {
    let window = rate.period();
    let step = window.as_micros().div_ceil(ATTEMPTS).max(1);
    // Any window of the clock.
    let some = 1_800_000_000_000_000;
    let start = Timestamp::from_micros(some - some % window.as_micros().max(1));
    let from = window.as_micros().saturating_sub(step);
    let to = window.as_micros().saturating_mul(3);
    let (mut state, mut truth, mut steps) =
        (MethodState::default(), RollingWindow::default(), Vec::new());
    let mut into = from;
    while into < to {
        let at = Span::from_micros(into);
        let now = start.after(at);
        // The whole limit at once at first, then one by one.
        loop {
            let _ = method.used(&mut state, now);
            if !method.admits(&state, now) {
                break;
            }
            method.charge(&mut state, now);
            let held = truth.count_and_push(now, window).saturating_add(1);
            steps.push(Step { at, held });
        }
        into = into.saturating_add(step);
    }
    Adversary { name: method.name, steps }
}

impl Adversary {
    /// Admitted in the window that ends at `now_us`, in microseconds like `window_us`.
    pub(super) fn held(&self, now_us: u64, window_us: u64) -> usize {
        let in_window = |step: &&Step| {
            let at = step.at.as_micros();
            at <= now_us && at.saturating_add(window_us) > now_us
        };
        self.steps.iter().filter(in_window).count()
    }

    /// The most in any rolling window.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.steps.iter().map(|step| step.held).max().unwrap_or(0)
    }
}
