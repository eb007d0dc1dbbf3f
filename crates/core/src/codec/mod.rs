//! States, accounts, limits and modes as bytes, for whoever keeps them in a file.
//!
//! Each has a `write` and a `read`. Numbers take as many bytes as they need, a kind is one byte, and nothing
//! says of which version it is: the file does. Equal values are written as equal bytes.
//!
//! Nothing that is read is trusted. Whatever the bytes, `read` gives a value that can be used like any
//! other, or `None`: numbers are within the bounds of the arithmetic, limits pass their constructors, sums
//! are counted anew. And a file that announces a million entries gets no memory for them, but for those
//! that are there.

mod limit;
mod state;

pub(crate) use state::all_distinct;

use crate::arithmetic::EXACT_MAX;
use crate::quota::{ExactTime, Rate};
use crate::time::{Span, Timestamp};

/// What can be written as bytes and read again.
pub(crate) trait Encode: Sized {
    fn encode(&self, out: &mut Vec<u8>);

    /// The value at the front of `bytes`, which is taken away from them.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
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

/// How many things follow: no more than `most`, nor than there are bytes left.
pub(crate) fn count(bytes: &mut &[u8], max: u64) -> Option<u64> {
    read_varint(bytes).filter(|count| *count <= max.min(bytes.len() as u64))
}

pub(crate) fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

/// One of several kinds: a byte says which.
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

// === impl Encode for what numbers stand for ===

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
    /// Nothing is 0, and every moment one more than it is.
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
