//! The binary format of states, accounts, limits and modes.
//!
//! Numbers are varints and variants one byte. There is no version: the file has one. Equal values
//! have equal encodings.
//!
//! Input is not trusted. Decoding gives a valid value or `None`: numbers are within the bounds of
//! the arithmetic, limits pass their constructors, sums are computed again. A file that announces a
//! million entries allocates memory only for those that are present.

mod limit;
mod state;

pub(crate) use state::all_distinct;

use crate::arithmetic::EXACT_MAX;
use crate::quota::{ExactTime, Rate};
use crate::time::{Span, Timestamp};

/// A value with a binary format.
pub(crate) trait Encode: Sized {
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes a value from the front of `bytes` and advances them.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
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

impl Encode for Rate {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.count());
        self.period().encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let count = read_varint(bytes)?;
        Self::new(count, Span::decode(bytes)?).ok()
    }
}
