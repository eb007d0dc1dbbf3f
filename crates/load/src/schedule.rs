//! Arrival times of an open loop, independent of the server's responses.
//!
//! A closed loop sends less the slower it is answered and therefore hides stalls (coordinated
//! omission). Here every request has a scheduled time, and its latency counts from there even if it
//! was sent late.

use std::time::Duration;

use fastrand::Rng;

use crate::keys::rng;

/// Requests per second in an open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    per_second: f64,
}

/// A rate of an open loop for some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateStep {
    /// How long it lasts.
    pub time: Duration,
    /// Requests per second.
    pub rate: Rate,
}

/// Arrival process of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Constant intervals.
    Constant,
    /// Independent arrivals: a Poisson process.
    Poisson,
}

/// Scheduled times of one thread, relative to the start.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    next: Duration,
    kind: Kind,
    steps: Vec<Step>,
}

/// A step: its first request, when it is due, and the time from one request to the next.
#[derive(Debug, Clone, Copy)]
struct Step {
    number: f64,
    at_nanos: f64,
    nanos: f64,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Multiplied rather than accumulated, so that rounding errors do not add up.
    Constant { number: u64, step: u64 },
    /// Numbers of all threads, at random distances.
    Poisson { rng: Rng, step: f64, number: f64 },
}

impl Rate {
    /// Upper bound.
    pub const PER_SECOND_MAX: f64 = 10_000_000.0;
    /// Lower bound.
    pub const PER_SECOND_MIN: f64 = 0.001;

    /// Requests per second; `None` outside the bounds.
    #[must_use]
    pub fn per_second(rate: f64) -> Option<Self> {
        let sensible = (Self::PER_SECOND_MIN..=Self::PER_SECOND_MAX).contains(&rate);
        sensible.then_some(Self { per_second: rate })
    }

    /// Requests per second.
    #[must_use]
    pub const fn as_per_second(self) -> f64 {
        self.per_second
    }
}

impl RateStep {
    /// Requests per second over all steps.
    pub(crate) fn mean(steps: &[Self]) -> f64 {
        let seconds: f64 = steps.iter().map(|step| step.time.as_secs_f64()).sum();
        let requests = |step: &Self| step.rate.per_second * step.time.as_secs_f64();
        steps.iter().map(requests).sum::<f64>() / seconds.max(f64::MIN_POSITIVE)
    }
}

impl Schedule {
    /// The share of one thread; all threads together reach the rates. The last rate stays.
    pub(crate) fn new(
        rates: &[RateStep],
        arrivals: Arrivals,
        seed: u64,
        thread: u64,
        threads: u64,
    ) -> Self {
        let mut steps: Vec<Step> = Vec::with_capacity(rates.len());
        let (mut number, mut at_nanos) = (0.0, 0.0);
        for RateStep { time, rate } in rates {
            let nanos = 1e9 / rate.per_second;
            steps.push(Step { number, at_nanos, nanos });
            at_nanos += time.as_nanos() as f64;
            number += time.as_nanos() as f64 / nanos;
        }
        let kind = match arrivals {
            Arrivals::Constant => Kind::Constant { number: thread, step: threads },
            Arrivals::Poisson => Kind::Poisson {
                // Independent of the keys.
                rng: rng(!seed, thread),
                step: threads as f64,
                number: 0.0,
            },
        };
        let mut schedule = Self { next: Duration::ZERO, kind, steps };
        schedule.advance();
        schedule
    }

    /// Time of the next request.
    pub(crate) const fn due(&self) -> Duration {
        self.next
    }

    /// Advances to the next request.
    pub(crate) fn advance(&mut self) {
        let number = match &mut self.kind {
            Kind::Constant { number, step } => {
                let at = *number as f64;
                *number += *step;
                at
            }
            Kind::Poisson { rng, step, number } => {
                *number += -(1.0 - rng.f64()).ln() * *step;
                *number
            }
        };
        let after = self.steps.partition_point(|step| step.number <= number);
        let Some(step) = after.checked_sub(1).and_then(|index| self.steps.get(index)) else {
            return;
        };
        let nanos = step.at_nanos + (number - step.number) * step.nanos;
        // Far beyond any run this saturates.
        self.next = Duration::from_nanos(nanos as u64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first(count: usize, mut schedule: Schedule) -> Vec<Duration> {
        let step = || {
            let due = schedule.due();
            schedule.advance();
            due
        };
        std::iter::repeat_with(step).take(count).collect()
    }

    fn rate(per_second: f64) -> [RateStep; 1] {
        [RateStep { time: Duration::MAX, rate: Rate::per_second(per_second).unwrap() }]
    }

    #[test]
    fn even_distances_do_not_drift() {
        let due = first(1_000_001, Schedule::new(&rate(3.0), Arrivals::Constant, 1, 0, 1));
        assert_eq!(due[0], Duration::ZERO);
        assert_eq!(due[3_000], Duration::from_secs(1_000));
        assert_eq!(due[999_999], Duration::from_secs(333_333));
    }

    #[test]
    fn threads_come_in_turn() {
        let of = |thread| first(3, Schedule::new(&rate(1_000.0), Arrivals::Constant, 1, thread, 2));
        let [even, odd] =
            [of(0), of(1)].map(|all| all.iter().map(Duration::as_millis).collect::<Vec<_>>());
        assert_eq!((even, odd), (vec![0, 2, 4], vec![1, 3, 5]));
    }

    #[test]
    fn strangers_come_at_the_rate_and_independently() {
        let count = 200_000;
        let due = first(count, Schedule::new(&rate(1_000.0), Arrivals::Poisson, 5, 0, 1));
        let gaps: Vec<f64> = due.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.001).abs() < 0.001 * 0.02, "{mean}");
        // In an exponential distribution e^-1 of the values exceed the mean, and e^-3 three times
        // the mean.
        for (times, share) in [(1.0, 0.3679), (3.0, 0.0498)] {
            let above = gaps.iter().filter(|gap| **gap > 0.001 * times).count() as f64;
            assert!((above / gaps.len() as f64 - share).abs() < 0.006, "{above} above {times}");
        }
    }

    #[test]
    fn rates_change_at_their_time() {
        let step = |seconds, per_second| {
            let rate = Rate::per_second(per_second).unwrap();
            RateStep { time: Duration::from_secs(seconds), rate }
        };
        let steps = [step(2, 10.0), step(1, 100.0), step(1, 10.0)];
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let due = first(100_000, Schedule::new(&steps, arrivals, 3, 0, 1));
            let count = |from: u64, to: u64| {
                due.iter().filter(|due| (from..to).contains(&due.as_secs())).count() as f64
            };
            let (before, during, after) = (count(0, 2) / 2.0, count(2, 3), count(3, 1_003) / 1e3);
            assert!((5.0..=15.0).contains(&before), "{before}");
            assert!((80.0..=120.0).contains(&during), "{during}");
            assert!((9.7..=10.3).contains(&after), "{after}");
        }
    }

    proptest! {
        #[test]
        fn time_never_goes_back(per_second in 0.001f64..1e7, seed: u64, threads in 1u64..9, poisson: bool) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Constant };
            let due = first(100, Schedule::new(&rate(per_second), arrivals, seed, 0, threads));
            prop_assert!(due.is_sorted());
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_rate() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert_eq!(Rate::per_second(rate), None);
        }
    }
}
