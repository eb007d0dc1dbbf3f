//! Estimate of the store's time by this node's clock, as an interval.
//!
//! A reply carries the store's time at some moment between request and arrival:
//!
//! ```text
//!   sent at tick a ------------ received at tick b ------- now, at tick t
//!                store: time T
//!   T + (t - b)  <=  store's time now  <=  T + (t - a)      plus or minus clock drift
//! ```
//!
//! Further replies narrow the interval. If they contradict it, the store's clock was set or another
//! server replies: then only the newest counts.

use sluicegate_core::time::{Span, Timestamp};

/// Largest relative drift of two clocks: one part in this many.
const DRIFT: u64 = 1_000;

/// Interval of the store's time. Ticks are this node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreTime {
    /// Tick, and the lower bound at that tick.
    earliest: (Timestamp, Timestamp),
    /// Tick, and the upper bound at that tick.
    latest: (Timestamp, Timestamp),
}

impl StoreTime {
    /// The interval given by one reply.
    pub(super) const fn from_reply(at: Timestamp, sent: Timestamp, received: Timestamp) -> Self {
        Self { earliest: (received, at), latest: (sent, at) }
    }

    /// The intersection with a newer interval.
    pub(super) fn narrow(self, newer: Self) -> Self {
        let tick = newer.earliest.0;
        let earliest = match self.earliest(tick) > newer.earliest(tick) {
            true => self.earliest,
            false => newer.earliest,
        };
        let latest = match self.latest(tick) < newer.latest(tick) {
            true => self.latest,
            false => newer.latest,
        };
        let both = Self { earliest, latest };
        if both.earliest(tick) > both.latest(tick) { newer } else { both }
    }

    /// Lower bound of the store's time.
    #[inline]
    pub(super) fn earliest(&self, tick: Timestamp) -> Timestamp {
        let (then, at) = self.earliest;
        let (on, back) = (tick.since(then), then.since(tick));
        at.after(on.less(drift(on))).before(back).before(drift(back))
    }

    /// Upper bound of the store's time.
    #[inline]
    pub(super) fn latest(&self, tick: Timestamp) -> Timestamp {
        let (then, at) = self.latest;
        let (on, back) = (tick.since(then), then.since(tick));
        at.after(on).after(drift(on)).before(back.less(drift(back)))
    }
}

/// Largest drift over a span.
#[inline]
fn drift(span: Span) -> Span {
    Span::from_micros(span.as_micros() / DRIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(us)
    }

    #[test]
    fn it_is_known_to_within_a_round_trip() {
        let time = StoreTime::from_reply(at(1_000_000), at(500), at(900));
        assert_eq!((time.earliest(at(900)), time.latest(at(900))), (at(1_000_000), at(1_000_400)));
        // A second later a clock may be a millisecond behind or ahead.
        let later = at(1_000_900);
        assert_eq!(time.earliest(later), at(1_999_000));
        assert_eq!(time.latest(later), at(2_001_400));
    }

    #[test]
    fn a_faster_answer_narrows_it_down_and_a_slower_does_not_widen_it() {
        let slow = StoreTime::from_reply(at(1_000_000), at(0), at(900));
        let fast = StoreTime::from_reply(at(1_002_000), at(2_050), at(2_150));
        let both = slow.narrow(fast);
        assert_eq!(both.latest(at(2_150)).since(both.earliest(at(2_150))).as_micros(), 100);
        let slow_again = StoreTime::from_reply(at(1_003_000), at(2_500), at(3_500));
        let all = both.narrow(slow_again);
        assert!(all.latest(at(3_500)).since(all.earliest(at(3_500))).as_micros() <= 104);
    }

    #[test]
    fn when_the_clock_there_was_set_the_newest_answer_counts() {
        let time = StoreTime::from_reply(at(9_000_000), at(0), at(100));
        let set_back = StoreTime::from_reply(at(5_000_000), at(1_000), at(1_100));
        assert_eq!(time.narrow(set_back), set_back);
        let set_on = StoreTime::from_reply(at(20_000_000), at(2_000), at(2_100));
        assert_eq!(set_back.narrow(set_on), set_on);
    }

    proptest! {
        /// The bounds hold for any latency and drift.
        #[test]
        fn the_time_there_is_never_outside(
            pace in -990_i64..=990,
            answers in prop::collection::vec((0_u64..5_000_000, 0_u64..20_000, 0_u64..20_000), 1..20),
            after in 0_u64..10_000_000,
        ) {
            let (mut tick, mut time) = (0, None::<StoreTime>);
            let there = |tick: u64| at((1_000_000_000 + tick as i64 + tick as i64 * pace / 1_000_000) as u64);
            for (pause, there_us, back_us) in answers {
                let (sent, replied, received) = (tick + pause, tick + pause + there_us, tick + pause + there_us + back_us);
                let observed = StoreTime::from_reply(there(replied), at(sent), at(received));
                time = Some(time.map_or(observed, |time| time.narrow(observed)));
                tick = received;
            }
            let (time, tick) = (time.unwrap(), tick + after);
            // A microsecond for rounding.
            prop_assert!(time.earliest(at(tick)) <= there(tick).after(Span::from_micros(1)));
            prop_assert!(time.latest(at(tick)) >= there(tick).before(Span::from_micros(1)));
        }
    }
}
