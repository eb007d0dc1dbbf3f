//! The log's entries, packed: a ring of time differences.
//!
//! An entry is one variable-length number, `difference << 2 | denied << 1 | heavy`, followed by its
//! weight if that is not 1. Five hundred hits in an hour lie seven seconds apart on average and take
//! four bytes each; a sorted set or a vector of timestamps takes eight to eighty.
//!
//! Entries ascend in time. New ones nearly always come last and are appended; one that belongs in
//! the middle (a clock that stepped back, a hit before a booking) rewrites the ring.

use crate::arithmetic::cut_amount;
use crate::time::{Span, Timestamp};

/// One hit in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it counts from.
    pub at: Timestamp,
    /// Its cost.
    pub weight: u64,
    /// Whether it was denied and occupies the log all the same.
    pub denied: bool,
}

/// The hits of one identity, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    /// Where the oldest entry begins; what lies before was dropped.
    head: usize,
    /// What the oldest entry's difference counts from.
    base: Timestamp,
    last: Timestamp,
    len: usize,
    sum: u64,
    denied_sum: u64,
}

// === impl Entries ===

impl Entries {
    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The weight of all entries.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The weight of the denied ones among them.
    #[must_use]
    pub const fn denied_sum(&self) -> u64 {
        self.denied_sum
    }

    /// The time of the latest entry.
    #[must_use]
    pub fn last(&self) -> Option<Timestamp> {
        (!self.is_empty()).then_some(self.last)
    }

    /// Bytes held, used or not.
    #[must_use]
    pub const fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        Reader { bytes: self.bytes.get(self.head..).unwrap_or(&[]), at: self.base }
    }

    /// Adds an entry in its place.
    pub fn insert(&mut self, entry: Entry) {
        if entry.weight == 0 {
            return;
        }
        if self.is_empty() || entry.at >= self.last {
            self.append(entry);
            return;
        }
        let mut all: Vec<Entry> = self.iter().collect();
        let place = all.partition_point(|e| e.at <= entry.at);
        all.insert(place, entry);
        self.rewrite(all);
    }

    /// Drops the entries from the oldest on while `gone` says so.
    pub fn drop_while(&mut self, gone: impl Fn(&Entry) -> bool) {
        loop {
            let mut reader = self.reader();
            let before = reader.bytes.len();
            let Some(entry) = reader.next() else { break };
            if !gone(&entry) {
                break;
            }
            let taken = before.saturating_sub(reader.bytes.len());
            self.head = self.head.saturating_add(taken);
            self.base = entry.at;
            self.len = self.len.saturating_sub(1);
            self.forget(&entry);
        }
        self.compact();
    }

    /// Replaces all entries by these, which ascend in time; those without weight are left out.
    pub fn rewrite(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let mut new = Self::default();
        for entry in entries {
            if entry.weight > 0 {
                new.append(entry);
            }
        }
        *self = new;
    }

    /// Moves every entry back in time.
    pub fn move_back(&mut self, by: Span) {
        let moved: Vec<Entry> =
            self.iter().map(|entry| Entry { at: entry.at.before(by), ..entry }).collect();
        self.rewrite(moved);
    }

    fn reader(&self) -> Reader<'_> {
        Reader { bytes: self.bytes.get(self.head..).unwrap_or(&[]), at: self.base }
    }

    fn append(&mut self, entry: Entry) {
        if self.is_empty() {
            *self =
                Self { bytes: std::mem::take(&mut self.bytes), base: entry.at, ..Self::default() };
            self.bytes.clear();
            self.last = entry.at;
        }
        let difference = entry.at.since(self.last).as_micros();
        let heavy = entry.weight != 1;
        // At most 53 + 2 bits.
        let code = difference.saturating_mul(4) | u64::from(entry.denied) << 1 | u64::from(heavy);
        self.make_room();
        write_number(&mut self.bytes, code);
        if heavy {
            write_number(&mut self.bytes, cut_amount(entry.weight));
        }
        self.last = entry.at;
        self.len = self.len.saturating_add(1);
        self.sum = cut_amount(self.sum.saturating_add(entry.weight));
        if entry.denied {
            self.denied_sum = cut_amount(self.denied_sum.saturating_add(entry.weight));
        }
    }

    fn forget(&mut self, entry: &Entry) {
        self.sum = self.sum.saturating_sub(entry.weight);
        if entry.denied {
            self.denied_sum = self.denied_sum.saturating_sub(entry.weight);
        }
        // A sum that was cut at the bound is counted anew from what is left.
        if self.sum < crate::arithmetic::EXACT_MAX.saturating_sub(entry.weight) {
            return;
        }
        let sums = self.iter().fold((0u64, 0u64), |(all, denied), e| {
            let more = if e.denied { e.weight } else { 0 };
            (cut_amount(all.saturating_add(e.weight)), cut_amount(denied.saturating_add(more)))
        });
        (self.sum, self.denied_sum) = sums;
    }

    /// Grows by a quarter: doubling would leave half of a large log unused.
    fn make_room(&mut self) {
        const ENTRY_BYTES_MAX: usize = 20;
        if self.bytes.capacity().saturating_sub(self.bytes.len()) < ENTRY_BYTES_MAX {
            self.bytes.reserve_exact((self.bytes.len() / 4).max(ENTRY_BYTES_MAX));
        }
    }

    /// Moves the entries to the front once more than half of the bytes are dropped ones.
    fn compact(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        } else if self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head.min(self.bytes.len()));
            self.head = 0;
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: Timestamp,
}

impl Iterator for Reader<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let code = read_number(&mut self.bytes)?;
        self.at = self.at.after(Span::from_micros(code >> 2));
        let weight = if code & 1 == 1 { read_number(&mut self.bytes)? } else { 1 };
        Some(Entry { at: self.at, weight, denied: code & 2 == 2 })
    }
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
fn write_number(bytes: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    while rest > 0x7f {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
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
