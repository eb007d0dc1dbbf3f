//! What time it is for the store, by a clock of this node.
//!
//! An answer tells the time at some moment between when it was asked for and when it was heard:
//!
//! ```text
//!   sent at tick a ------------- heard at tick b ------- now, at tick t
//!                 store: "it is T"
//!   T + (t - b)  <=  what it is there now  <=  T + (t - a)        give or take what the clocks differ in pace
//! ```
//!
//! Several answers narrow it down. When they contradict each other the store's clock was set, or another server answers: then the newest counts alone.

use sluicegate_core::time::{Span, Timestamp};

/// What two clocks may differ in pace: one part in so many.
const DRIFT: u64 = 1_000;

/// Between which moments the store's time is. Ticks are this node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreTime {
    /// At this tick it was no earlier than this.
    earliest: (Timestamp, Timestamp),
    /// At this tick it was no later than this.
    latest: (Timestamp, Timestamp),
}

impl StoreTime {
    /// By one answer.
    pub(super) const fn told(at: Timestamp, sent: Timestamp, heard: Timestamp) -> Self {
        Self { earliest: (heard, at), latest: (sent, at) }
    }

    /// By what was known, and one more answer.
    pub(super) fn and(self, newer: Self) -> Self {
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

    /// No earlier than this is it there.
    #[inline]
    pub(super) fn earliest(&self, tick: Timestamp) -> Timestamp {
        let (then, at) = self.earliest;
        let (on, back) = (tick.since(then), then.since(tick));
        at.after(on.less(drift(on))).before(back).before(drift(back))
    }

    /// No later than this is it there.
    #[inline]
    pub(super) fn latest(&self, tick: Timestamp) -> Timestamp {
        let (then, at) = self.latest;
        let (on, back) = (tick.since(then), then.since(tick));
        at.after(on).after(drift(on)).before(back.less(drift(back)))
    }
}

/// How far apart clocks can be that were set alike so long ago.
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
        let time = StoreTime::told(at(1_000_000), at(500), at(900));
        assert_eq!((time.earliest(at(900)), time.latest(at(900))), (at(1_000_000), at(1_000_400)));
        // A second later a clock may be a millisecond behind or ahead.
        let later = at(1_000_900);
        assert_eq!(time.earliest(later), at(1_999_000));
        assert_eq!(time.latest(later), at(2_001_400));
    }

    #[test]
    fn a_faster_answer_narrows_it_down_and_a_slower_does_not_widen_it() {
        let slow = StoreTime::told(at(1_000_000), at(0), at(900));
        let fast = StoreTime::told(at(1_002_000), at(2_050), at(2_150));
        let both = slow.and(fast);
        assert_eq!(both.latest(at(2_150)).since(both.earliest(at(2_150))).as_micros(), 100);
        let slow_again = StoreTime::told(at(1_003_000), at(2_500), at(3_500));
        let all = both.and(slow_again);
        assert!(all.latest(at(3_500)).since(all.earliest(at(3_500))).as_micros() <= 104);
    }

    #[test]
    fn when_the_clock_there_was_set_the_newest_answer_counts() {
        let time = StoreTime::told(at(9_000_000), at(0), at(100));
        let set_back = StoreTime::told(at(5_000_000), at(1_000), at(1_100));
        assert_eq!(time.and(set_back), set_back);
        let set_on = StoreTime::told(at(20_000_000), at(2_000), at(2_100));
        assert_eq!(set_back.and(set_on), set_on);
    }

    proptest! {
        /// Whatever the answers took, and whatever the pace, it is not outside.
        #[test]
        fn the_time_there_is_never_outside(
            pace in -990_i64..=990,
            answers in prop::collection::vec((0_u64..5_000_000, 0_u64..20_000, 0_u64..20_000), 1..20),
            after in 0_u64..10_000_000,
        ) {
            let (mut tick, mut time) = (0, None::<StoreTime>);
            let there = |tick: u64| at((1_000_000_000 + tick as i64 + tick as i64 * pace / 1_000_000) as u64);
            for (pause, way, back) in answers {
                let (sent, said, heard) = (tick + pause, tick + pause + way, tick + pause + way + back);
                let told = StoreTime::told(there(said), at(sent), at(heard));
                time = Some(time.map_or(told, |time| time.and(told)));
                tick = heard;
            }
            let (time, tick) = (time.unwrap(), tick + after);
            // A microsecond for what was rounded.
            prop_assert!(time.earliest(at(tick)) <= there(tick).after(Span::from_micros(1)));
            prop_assert!(time.latest(at(tick)) >= there(tick).before(Span::from_micros(1)));
        }
    }
}
