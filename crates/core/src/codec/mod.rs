//! The binary format of states, accounts, limits and modes.
//!
//! Numbers are varints and variants one byte. There is no version: the file has one. Equal values
//! have equal encodings.
//!
//! Input is not trusted. Decoding gives a valid value or `None`: numbers are within the bounds of
//! the arithmetic, limits pass their constructors, sums are computed again. A file that announces a
//! million entries allocates memory only for those that are present.

mod limit;

use crate::algorithm::concurrency::{Holder, SLOTS_MAX, SlotLease, SlotsState};
use crate::algorithm::gcra::GcraState;
use crate::algorithm::periodic::PeriodicState;
use crate::algorithm::sliding_log::{Entries, LogState};
use crate::algorithm::sliding_window::CounterState;
use crate::algorithm::tally::TallyState;
use crate::algorithm::warm_up::WarmUpState;
use crate::algorithm::{Ticket, Trace};
use crate::arithmetic::EXACT_MAX;
use crate::limit::State;
use crate::quota::ExactTime;
use crate::time::{Span, Timestamp};

/// A value with a binary format.
pub(crate) trait Encode: Sized {
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes a value from the front of `bytes` and advances them.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// The format of a struct: its fields in order, each with its decoder.
macro_rules! encode_fields {
    ($type:ty { $($field:ident: $decode:path),+ }) => {
        impl Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.encode(out);)+
            }

            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $decode(bytes)?),+ })
            }
        }
    };
}
/// LEB128: seven bits per byte, lowest first; the highest bit is set if more follow.
pub(crate) fn write_varint(bytes: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    while rest > 0x7f {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

pub(crate) fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A number that is held exactly.
pub(crate) fn amount(bytes: &mut &[u8]) -> Option<u64> {
    read_varint(bytes).filter(|amount| *amount <= EXACT_MAX)
}

fn positive(bytes: &mut &[u8]) -> Option<u64> {
    read_varint(bytes).filter(|number| *number > 0)
}

/// The number of following items: at most `max` and the number of bytes left.
pub(crate) fn count(bytes: &mut &[u8], max: u64) -> Option<u64> {
    read_varint(bytes).filter(|count| *count <= max.min(bytes.len() as u64))
}

pub(crate) fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

/// Writes a variant: its number and its value.
pub(crate) fn encode_variant(kind: u8, value: &impl Encode, out: &mut Vec<u8>) {
    out.push(kind);
    value.encode(out);
}

pub(crate) fn encode_list<T: Encode>(all: &[T], out: &mut Vec<u8>) {
    write_varint(out, all.len() as u64);
    for one in all {
        one.encode(out);
    }
}

pub(crate) fn decode_list<T: Encode>(bytes: &mut &[u8], max: u64) -> Option<Vec<T>> {
    (0..count(bytes, max)?).map(|_| T::decode(bytes)).collect()
}

impl Encode for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, *self);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        read_varint(bytes)
    }
}

impl Encode for Holder {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.0);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        read_varint(bytes).map(Self)
    }
}

impl Encode for i64 {
    /// The sign is the lowest bit.
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.unsigned_abs().saturating_mul(2) | u64::from(*self < 0));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let code = read_varint(bytes)?;
        let size =
            Self::try_from(code >> 1).ok().filter(|size| size.unsigned_abs() <= EXACT_MAX)?;
        Some(if code & 1 == 1 { size.saturating_neg() } else { size })
    }
}

impl Encode for Timestamp {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.as_micros());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        amount(bytes).map(Self::from_micros)
    }
}

impl Encode for Option<Timestamp> {
    /// `None` is 0, and every timestamp one more than its value.
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.map_or(0, |moment| moment.as_micros().saturating_add(1)));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match read_varint(bytes)?.checked_sub(1) {
            None => Some(None),
            Some(moment) if moment <= EXACT_MAX => Some(Some(Timestamp::from_micros(moment))),
            Some(_) => None,
        }
    }
}

impl Encode for Span {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.as_micros());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        amount(bytes).map(Self::from_micros)
    }
}

impl Encode for ExactTime {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.us());
        write_varint(out, self.frac());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self::from_raw_parts(amount(bytes)?, amount(bytes)?))
    }
}

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

encode_fields!(GcraState {
    tat: ExactTime::decode,
    extra: amount,
    seen: Option::decode,
    hole_until: Option::decode
});
encode_fields!(PeriodicState {
    level: i64::decode,
    anchor: Timestamp::decode,
    seen: Option::decode,
    hole_until: Option::decode
});
encode_fields!(CounterState {
    start: Timestamp::decode,
    previous: amount,
    current: amount,
    next: amount,
    seen: Option::decode
});
encode_fields!(LogState { seen: Timestamp::decode, entries: Entries::decode });
encode_fields!(WarmUpState {
    free: ExactTime::decode,
    cool: ExactTime::decode,
    seen: Timestamp::decode
});
encode_fields!(TallyState { start: Timestamp::decode, count: amount });
// The charge is that requested, which is unbounded where any cost is granted.
encode_fields!(Ticket { charged: read_varint, slot: Timestamp::decode, trace: Trace::decode });

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

encode_fields!(SlotLease { holder: Holder::decode, slots: positive, until: Timestamp::decode });

/// Whether all holders are distinct.
pub(crate) fn all_distinct(holders: impl Iterator<Item = Holder>) -> Option<()> {
    let mut sorted: Vec<Holder> = holders.collect();
    sorted.sort_unstable();
    sorted.is_sorted_by(|one, next| one < next).then_some(())
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
