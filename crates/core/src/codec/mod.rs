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

pub(crate) use state::each_once;

use crate::arithmetic::EXACT_MAX;
use crate::quota::{Mark, Rate};
use crate::time::{Span, Timestamp};

/// What can be written as bytes and read again.
pub(crate) trait Written: Sized {
    fn write_to(&self, out: &mut Vec<u8>);

    /// The value at the front of `bytes`, which is taken away from them.
    fn read_from(bytes: &mut &[u8]) -> Option<Self>;
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
pub(crate) fn write_number(bytes: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    while rest > 0x7f {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

pub(crate) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
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
    read_number(bytes).filter(|amount| *amount <= EXACT_MAX)
}

/// How many things follow: no more than `most`, nor than there are bytes left.
pub(crate) fn count(bytes: &mut &[u8], most: u64) -> Option<u64> {
    read_number(bytes).filter(|count| *count <= most.min(bytes.len() as u64))
}

pub(crate) fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

/// One of several kinds: a byte says which.
pub(crate) fn with_kind(kind: u8, value: &impl Written, out: &mut Vec<u8>) {
    out.push(kind);
    value.write_to(out);
}

pub(crate) fn write_all<T: Written>(all: &[T], out: &mut Vec<u8>) {
    write_number(out, all.len() as u64);
    for one in all {
        one.write_to(out);
    }
}

pub(crate) fn read_all<T: Written>(bytes: &mut &[u8], most: u64) -> Option<Vec<T>> {
    (0..count(bytes, most)?).map(|_| T::read_from(bytes)).collect()
}

// === impl Written for what numbers stand for ===

impl Written for i64 {
    /// The sign is the lowest bit.
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.unsigned_abs().saturating_mul(2) | u64::from(*self < 0));
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let code = read_number(bytes)?;
        let size =
            Self::try_from(code >> 1).ok().filter(|size| size.unsigned_abs() <= EXACT_MAX)?;
        Some(if code & 1 == 1 { size.saturating_neg() } else { size })
    }
}

impl Written for Timestamp {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.as_micros());
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        amount(bytes).map(Self::from_micros)
    }
}

impl Written for Option<Timestamp> {
    /// Nothing is 0, and every moment one more than it is.
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.map_or(0, |moment| moment.as_micros().saturating_add(1)));
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        match read_number(bytes)?.checked_sub(1) {
            None => Some(None),
            Some(moment) if moment <= EXACT_MAX => Some(Some(Timestamp::from_micros(moment))),
            Some(_) => None,
        }
    }
}

impl Written for Span {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.as_micros());
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        amount(bytes).map(Self::from_micros)
    }
}

impl Written for Mark {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.us());
        write_number(out, self.frac());
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self::of_some_rate(amount(bytes)?, amount(bytes)?))
    }
}

impl Written for Rate {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.count());
        self.period().write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let count = read_number(bytes)?;
        Self::new(count, Span::read_from(bytes)?).ok()
    }
}
