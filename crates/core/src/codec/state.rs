//! Binary format of states and tickets.

use super::{
    Encode, amount, byte, decode_list, encode_list, encode_variant, read_varint, write_varint,
};
use crate::algorithm::concurrency::{Holder, SLOTS_MAX, SlotLease, SlotsState};
use crate::algorithm::gcra::GcraState;
use crate::algorithm::periodic::PeriodicState;
use crate::algorithm::sliding_log::{Entries, LogState};
use crate::algorithm::sliding_window::CounterState;
use crate::algorithm::tally::TallyState;
use crate::algorithm::warm_up::WarmUpState;
use crate::algorithm::{Ticket, Trace};
use crate::limit::State;
use crate::quota::ExactTime;
use crate::time::Timestamp;

impl State {
    /// Appends this state to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::New => out.push(0),
            Self::Gcra(state) => encode_variant(1, state, out),
            Self::Periodic(state) => encode_variant(2, state, out),
            Self::Counter(state) => encode_variant(3, state, out),
            Self::Log(state) => encode_variant(4, &**state, out),
            Self::WarmUp(state) => encode_variant(5, state, out),
            Self::Slots(state) => encode_variant(6, &**state, out),
            Self::Spent(used) => {
                out.push(7);
                write_varint(out, *used);
            }
            Self::Tally(state) => encode_variant(8, state, out),
        }
    }

    /// Decodes a state from the front of `bytes` and advances them; `None` if they are malformed.
    ///
    /// ```
    /// use sluicegate_core::limit::State;
    ///
    /// let mut bytes = Vec::new();
    /// State::Spent(300).write(&mut bytes);
    /// let mut rest = &bytes[..];
    /// assert_eq!(State::read(&mut rest), Some(State::Spent(300)));
    /// assert_eq!(State::read(&mut rest), None);
    /// ```
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(match byte(bytes)? {
            0 => Self::New,
            1 => Self::Gcra(Encode::decode(bytes)?),
            2 => Self::Periodic(Encode::decode(bytes)?),
            3 => Self::Counter(Encode::decode(bytes)?),
            4 => Self::Log(Box::new(Encode::decode(bytes)?)),
            5 => Self::WarmUp(Encode::decode(bytes)?),
            6 => Self::Slots(Box::new(Encode::decode(bytes)?)),
            7 => Self::Spent(read_varint(bytes)?),
            8 => Self::Tally(Encode::decode(bytes)?),
            _ => return None,
        })
    }
}

impl Encode for GcraState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.tat.encode(out);
        write_varint(out, self.extra);
        self.seen.encode(out);
        self.hole_until.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            tat: ExactTime::decode(bytes)?,
            extra: amount(bytes)?,
            seen: Option::decode(bytes)?,
            hole_until: Option::decode(bytes)?,
        })
    }
}

impl Encode for PeriodicState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.level.encode(out);
        self.anchor.encode(out);
        self.seen.encode(out);
        self.hole_until.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            level: i64::decode(bytes)?,
            anchor: Timestamp::decode(bytes)?,
            seen: Option::decode(bytes)?,
            hole_until: Option::decode(bytes)?,
        })
    }
}

impl Encode for CounterState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.start.encode(out);
        write_varint(out, self.previous);
        write_varint(out, self.current);
        write_varint(out, self.next);
        self.seen.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            start: Timestamp::decode(bytes)?,
            previous: amount(bytes)?,
            current: amount(bytes)?,
            next: amount(bytes)?,
            seen: Option::decode(bytes)?,
        })
    }
}

impl Encode for LogState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.seen.encode(out);
        self.entries.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { seen: Timestamp::decode(bytes)?, entries: Entries::decode(bytes)? })
    }
}

impl Encode for WarmUpState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.free.encode(out);
        self.cool.encode(out);
        self.seen.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            free: ExactTime::decode(bytes)?,
            cool: ExactTime::decode(bytes)?,
            seen: Timestamp::decode(bytes)?,
        })
    }
}

impl Encode for SlotsState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.seen().encode(out);
        encode_list(self.leases(), out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let seen = Timestamp::decode(bytes)?;
        let leases: Vec<SlotLease> = decode_list(bytes, SLOTS_MAX)?;
        all_distinct(leases.iter().map(|lease| lease.holder))?;
        Some(Self::new(leases, seen))
    }
}

impl Encode for SlotLease {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.holder.0);
        write_varint(out, self.slots);
        self.until.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            holder: Holder(read_varint(bytes)?),
            slots: read_varint(bytes).filter(|slots| *slots > 0)?,
            until: Timestamp::decode(bytes)?,
        })
    }
}

impl Encode for TallyState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.start.encode(out);
        write_varint(out, self.count);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { start: Timestamp::decode(bytes)?, count: amount(bytes)? })
    }
}

/// Whether all holders are distinct.
pub(crate) fn all_distinct(holders: impl Iterator<Item = Holder>) -> Option<()> {
    let mut sorted: Vec<Holder> = holders.collect();
    sorted.sort_unstable();
    sorted.is_sorted_by(|one, next| one < next).then_some(())
}

impl Encode for Ticket {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.charged);
        self.slot.encode(out);
        self.trace.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            // As requested, which is unbounded where any cost is granted.
            charged: read_varint(bytes)?,
            slot: Timestamp::decode(bytes)?,
            trace: Trace::decode(bytes)?,
        })
    }
}

impl Encode for Trace {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Untracked => out.push(0),
            Self::Tat(tat) => encode_variant(1, tat, out),
            Self::Level { level, anchor, cost, slot } => {
                encode_variant(2, level, out);
                anchor.encode(out);
                write_varint(out, *cost);
                slot.encode(out);
            }
            Self::Count { start, count } => {
                encode_variant(3, start, out);
                write_varint(out, *count);
            }
            Self::Entry { at } => encode_variant(4, at, out),
            Self::Price { free, price, cool } => {
                encode_variant(5, free, out);
                price.encode(out);
                cool.encode(out);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(match byte(bytes)? {
            0 => Self::Untracked,
            1 => Self::Tat(ExactTime::decode(bytes)?),
            2 => Self::Level {
                level: i64::decode(bytes)?,
                anchor: Timestamp::decode(bytes)?,
                cost: read_varint(bytes)?,
                slot: Timestamp::decode(bytes)?,
            },
            3 => Self::Count { start: Timestamp::decode(bytes)?, count: amount(bytes)? },
            4 => Self::Entry { at: Timestamp::decode(bytes)? },
            5 => Self::Price {
                free: ExactTime::decode(bytes)?,
                price: ExactTime::decode(bytes)?,
                cool: ExactTime::decode(bytes)?,
            },
            _ => return None,
        })
    }
}
