//! The eight bytes of a lane: one packed state, or a reference to a whole one.
//!
//! ```text
//!   tag  until, since the store's epoch                     number
//!   00   48 bits of microseconds (8.9 years)                14 bits
//!   01   38 bits of milliseconds (8.7 years)                24 bits
//!   10   28 bits of seconds (8.5 years)                     34 bits
//!   11   30 bits of seconds (34 years), rounded up          32 bits: where the whole state is
//! ```
//!
//! Every form contains its expiry, so that a table can reuse a lane without decoding its content.
//! Buckets expire at any microsecond and have a small number (the fraction of one); windows end on
//! whole seconds and may count to billions. A state that fits none of the first three forms is
//! stored whole in the slab.

use sluicegate_core::packed::Packed;
use sluicegate_core::time::Timestamp;

/// The eight bytes of a lane. Zero is a lane that was never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

/// The content of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Packed(Packed),
    /// The index of a whole state in the slab.
    Whole(u32),
}

/// Microseconds since the store's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Since(u64);

/// The origin of a store's times: a whole second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

const MICROS: u64 = 0;
const MILLIS: u64 = 1;
const SECONDS: u64 = 2;
const WHOLE: u64 = 3;

const NUMBER_BITS: [u32; 4] = [14, 24, 34, 32];
const TIME_BITS: [u32; 4] = [48, 38, 28, 30];
const UNIT_US: [u64; 4] = [1, 1_000, 1_000_000, 1_000_000];
const TAG_SHIFT: u32 = 62;
/// A whole state whose expiry is too far ahead to be stored.
const NEVER: u64 = u64::MAX;

impl Word {
    /// A lane that was never used.
    pub(crate) const EMPTY: Self = Self(0);
    /// A lane that was used and can be reused.
    pub(crate) const GONE: Self = Self(1);

    /// A packed state, if it fits.
    #[inline(always)]
    pub(crate) fn packed(packed: Packed, epoch: Epoch) -> Option<Self> {
        let us = packed.expires_at.as_micros().checked_sub(epoch.0).filter(|us| *us > 0)?;
        let fits = |tag: u64, time: u64| {
            time >> TIME_BITS[tag as usize] == 0 && packed.number >> NUMBER_BITS[tag as usize] == 0
        };
        if fits(MICROS, us) {
            return Some(Self::join(MICROS, us, packed.number));
        }
        Self::packed_coarsely(us, packed.number)
    }

    /// The same, at a whole millisecond or second.
    #[inline(never)]
    fn packed_coarsely(us: u64, number: u64) -> Option<Self> {
        let fits = |tag: u64, time: u64| {
            time >> TIME_BITS[tag as usize] == 0 && number >> NUMBER_BITS[tag as usize] == 0
        };
        for tag in [MILLIS, SECONDS] {
            let unit = UNIT_US[tag as usize];
            if us.is_multiple_of(unit) && fits(tag, us / unit) {
                return Some(Self::join(tag, us / unit, number));
            }
        }
        None
    }

    /// A whole state at `index`, needed until `expires_at`.
    pub(crate) fn whole(index: u32, expires_at: Timestamp, epoch: Epoch) -> Self {
        let us = expires_at.as_micros().saturating_sub(epoch.0);
        let longest = (1 << TIME_BITS[WHOLE as usize]) - 1;
        // The longest means never; the epoch moves on long before.
        let seconds = us.div_ceil(UNIT_US[WHOLE as usize]).clamp(1, longest);
        Self::join(WHOLE, seconds, u64::from(index))
    }

    #[inline]
    pub(crate) fn content(self, epoch: Epoch) -> Content {
        if self.tag() == MICROS as usize {
            let expires_at = Timestamp::from_micros(epoch.0.saturating_add(self.until().0));
            return Content::Packed(Packed { expires_at, number: self.0 & 0x3fff });
        }
        let number = self.0 & ((1 << NUMBER_BITS[self.tag()]) - 1);
        if self.tag() == WHOLE as usize {
            return Content::Whole(number as u32);
        }
        let expires_at = Timestamp::from_micros(epoch.0.saturating_add(self.until().0));
        Content::Packed(Packed { expires_at, number })
    }

    /// The most common content: live, at a whole microsecond, with the number 0.
    #[inline]
    pub(crate) fn whole_micros(self, epoch: Epoch, now: Timestamp) -> Option<Packed> {
        // The tag of microseconds and the number are 0: the rest is the time.
        let us = self.0.rotate_right(NUMBER_BITS[0]);
        let expires_at = Timestamp::from_micros(epoch.0.wrapping_add(us));
        // Less one, so that an empty lane does not match: it would be live before the epoch.
        let fits = us.wrapping_sub(1) >> TIME_BITS[0] == 0;
        (fits && expires_at > now).then_some(Packed { expires_at, number: 0 })
    }

    /// The index of the whole state, if this is one.
    #[inline]
    pub(crate) fn index(self) -> Option<u32> {
        (self.tag() == WHOLE as usize).then_some(self.0 as u32)
    }

    /// The same with its whole state at another index.
    pub(crate) fn moved_to(self, index: u32) -> Self {
        Self(self.0 >> 32 << 32 | u64::from(index))
    }

    /// Whether it has not expired.
    #[inline]
    pub(crate) fn is_live(self, now: Since) -> bool {
        self.until() > now
    }

    /// Whether its expiry is too far ahead to be stored.
    pub(crate) fn is_never(self) -> bool {
        self.until() == Since(u64::MAX)
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Its expiry.
    #[inline]
    pub(crate) fn until(self) -> Since {
        match self.tag() {
            // Nearly always.
            0 => Since(self.0 >> NUMBER_BITS[0]),
            3 if self.0 >> NUMBER_BITS[3] == NEVER >> NUMBER_BITS[3] => Since(u64::MAX),
            tag => Since(((self.0 << 2 >> 2) >> NUMBER_BITS[tag]) * UNIT_US[tag]),
        }
    }

    #[inline]
    fn tag(self) -> usize {
        (self.0 >> TAG_SHIFT) as usize
    }

    #[inline]
    fn join(tag: u64, time: u64, number: u64) -> Self {
        Self(tag << TAG_SHIFT | time << NUMBER_BITS[tag as usize] | number)
    }
}

impl Epoch {
    /// Distance of the epoch before the first use of a store: the clock may be set back so far, and
    /// states still fit.
    const ROOM_S: u64 = 24 * 3_600;
    /// Half of the range: the other half is for times ahead.
    const SUITS_US: u64 = 1 << (TIME_BITS[0] - 1);

    /// The epoch of a store first used at `now`.
    pub(crate) fn around(now: Timestamp) -> Self {
        let seconds = now.as_micros() / 1_000_000;
        Self(seconds.saturating_sub(Self::ROOM_S) * 1_000_000)
    }

    /// Whether times near `now` fit well.
    pub(crate) fn suits(self, now: Timestamp) -> bool {
        let now = now.as_micros();
        self.0 <= now && now - self.0 < Self::SUITS_US
    }

    /// The moment `since` the epoch.
    pub(crate) fn at(self, since: Since) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(since.0))
    }

    #[inline]
    pub(crate) fn since(self, now: Timestamp) -> Since {
        Since(now.as_micros().saturating_sub(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(us)
    }

    proptest! {
        #[test]
        fn what_fits_comes_back(
            us in prop_oneof![0..1u64 << 53, (0..1u64 << 33).prop_map(|s| s * 1_000_000)],
            number in prop_oneof![0..1u64 << 15, 0..1u64 << 40],
            start in 0u64..1 << 52,
        ) {
            let epoch = Epoch::around(at(start));
            let packed = Packed { expires_at: at(us), number };
            if let Some(word) = Word::packed(packed, epoch) {
                prop_assert_eq!(word.content(epoch), Content::Packed(packed));
                prop_assert!(word.is_live(epoch.since(at(us - 1))));
                prop_assert!(!word.is_live(epoch.since(at(us))));
                prop_assert!(!word.is_empty());
                prop_assert_eq!(word.index(), None);
            }
        }

        #[test]
        fn a_whole_state_is_needed_no_less_long(us in 0u64..1 << 53, index: u32, start in 0u64..1 << 52) {
            let epoch = Epoch::around(at(start));
            let word = Word::whole(index, at(us), epoch);
            prop_assert_eq!(word.content(epoch), Content::Whole(index));
            prop_assert_eq!(word.index(), Some(index));
            if us > epoch.0 {
                prop_assert!(word.is_live(epoch.since(at(us - 1))));
            }
            prop_assert!(word.is_live(epoch.since(at(start.min(epoch.0)))));
        }
    }

    #[test]
    fn usual_limits_fit() {
        let epoch = Epoch::around(at(1_800_000_000_000_000));
        let fits = |expires_us: u64, number: u64| {
            let expires_at = at(1_800_000_000_000_000 + expires_us);
            Word::packed(Packed { expires_at, number }, epoch).is_some()
        };
        assert!(fits(333_334, 1), "3/s");
        assert!(fits(5 * 365 * 86_400_000_000, 16_383), "any microsecond of the coming years");
        assert!(!fits(1, 16_384), "a large fraction at an odd microsecond");
        assert!(fits(86_400_000_000, 10_000_000_000), "ten billion a day");
        assert!(fits(250_000, 16_000_000), "16 million in a quarter of a second");
        assert!(!fits(1, 1 << 20), "a window from the first hit may end anywhere");
    }

    #[test]
    fn nothing_is_live_that_was_never_written() {
        for now in [0, 1, 1 << 52] {
            let now = Epoch::around(at(0)).since(at(now));
            assert!(!Word::EMPTY.is_live(now));
            assert!(!Word::GONE.is_live(now));
        }
        assert!(!Word::GONE.is_empty());
    }
}
