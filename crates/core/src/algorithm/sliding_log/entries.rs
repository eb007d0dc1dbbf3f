//! The log's entries, packed as a ring of time differences.
//!
//! An entry is one varint, `difference << 2 | denied << 1 | heavy`, followed by its weight if that
//! is not 1. Five hundred hits in an hour are seven seconds apart on average and take four bytes
//! each; a sorted set or a vector of timestamps takes eight to eighty.
//!
//! Entries ascend in time. Nearly all are appended; one that belongs in the middle (after a clock
//! step back, or before a booking) rewrites the ring.

use super::LOG_ENTRIES_MAX;
use crate::arithmetic::{EXACT_MAX, clamp_amount};
use crate::codec::{Encode, count, read_varint, write_varint};
use crate::time::{Span, Timestamp};

/// Maximum number of entries decoded: a log's own, twice as many denied ones, and as many again
/// from changes of its limit.
const ENTRIES_READ_MAX: u64 = LOG_ENTRIES_MAX * 4;

/// One hit in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it counts from.
    pub at: Timestamp,
    /// Its cost.
    pub weight: u64,
    /// Whether it was denied but counts.
    pub denied: bool,
}

/// The hits of one identity, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    /// Start of the oldest entry; earlier bytes were dropped.
    head: usize,
    /// The base of the oldest entry's difference.
    base: Timestamp,
    last: Timestamp,
    /// Bytes of the latest entry.
    last_bytes: usize,
    len: usize,
    sum: u64,
    denied_sum: u64,
}

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

    /// The oldest entry.
    #[must_use]
    pub fn first(&self) -> Option<Entry> {
        self.iter().next()
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

    /// Inserts an entry in order of time.
    pub fn insert(&mut self, entry: Entry) {
        if entry.weight == 0 {
            return;
        }
        if self.is_empty() || entry.at >= self.last {
            self.append(entry);
            return;
        }
        let mut all: Vec<Entry> = self.iter().collect();
        let index = all.partition_point(|e| e.at <= entry.at);
        all.insert(index, entry);
        self.rewrite(all);
    }

    /// Adds an entry in order of time: to the one of its time, if there is one.
    pub fn add(&mut self, entry: Entry) {
        if entry.weight == 0 {
            return;
        }
        if self.is_empty() || entry.at > self.last {
            self.append(entry);
            return;
        }
        if entry.at == self.last
            && let Some(last) = self.pop_last()
        {
            if last.joins(&entry) {
                self.append(last.joined(&entry));
            } else {
                self.append(last);
                self.append(entry);
            }
            return;
        }
        let mut all: Vec<Entry> = self.iter().collect();
        let index = all.partition_point(|e| e.at <= entry.at);
        all.insert(index, entry);
        self.rewrite_merged(all);
    }

    /// Drops the oldest entries while `gone` returns true.
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

    /// Replaces all entries; these ascend in time, and entries without weight are left out.
    pub fn rewrite(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let mut new = Self::default();
        for entry in entries {
            if entry.weight > 0 {
                new.append(entry);
            }
        }
        *self = new;
    }

    /// [Replaces](Self::rewrite) all entries; those of one time become one.
    pub fn rewrite_merged(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let mut merged: Vec<Entry> = Vec::new();
        for entry in entries {
            match merged.last_mut() {
                Some(last) if last.joins(&entry) => *last = last.joined(&entry),
                _ => merged.push(entry),
            }
        }
        self.rewrite(merged);
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
        self.make_room();
        let before = self.bytes.len();
        entry.write_after(self.last, &mut self.bytes);
        self.last_bytes = self.bytes.len().saturating_sub(before);
        self.last = entry.at;
        self.len = self.len.saturating_add(1);
        self.sum = clamp_amount(self.sum.saturating_add(entry.weight));
        if entry.denied {
            self.denied_sum = clamp_amount(self.denied_sum.saturating_add(entry.weight));
        }
    }

    /// Removes the latest entry.
    fn pop_last(&mut self) -> Option<Entry> {
        let start = self.bytes.len().checked_sub(self.last_bytes)?;
        let mut bytes = self.bytes.get(start..)?;
        let entry = Entry { at: self.last, ..Entry::read_after(Timestamp::EPOCH, &mut bytes)? };
        // The code of an entry is the difference to the one before, with two flags.
        let difference = read_varint(&mut self.bytes.get(start..)?)? >> 2;
        self.bytes.truncate(start);
        self.last = self.last.before(Span::from_micros(difference));
        // Known again with the next entry, which is the only use of this.
        self.last_bytes = 0;
        self.len = self.len.saturating_sub(1);
        self.forget(&entry);
        Some(entry)
    }

    fn forget(&mut self, entry: &Entry) {
        self.sum = self.sum.saturating_sub(entry.weight);
        if entry.denied {
            self.denied_sum = self.denied_sum.saturating_sub(entry.weight);
        }
        // A saturated sum is computed again.
        if self.sum < EXACT_MAX.saturating_sub(entry.weight) {
            return;
        }
        let sums = self.iter().fold((0u64, 0u64), |(all, denied), e| {
            let more = if e.denied { e.weight } else { 0 };
            (clamp_amount(all.saturating_add(e.weight)), clamp_amount(denied.saturating_add(more)))
        });
        (self.sum, self.denied_sum) = sums;
    }

    /// Makes room for an entry: where others were dropped if that is worth moving, else by growing
    /// a sixteenth. Doubling would leave half of a large log unused.
    fn make_room(&mut self) {
        const ENTRY_BYTES_MAX: usize = 20;
        const GROW_BY: usize = 16;
        let room = |bytes: &Vec<u8>| bytes.capacity().saturating_sub(bytes.len());
        if room(&self.bytes) >= ENTRY_BYTES_MAX {
            return;
        }
        if self.head > self.bytes.len() / (2 * GROW_BY) {
            self.move_to_front();
        }
        if room(&self.bytes) < ENTRY_BYTES_MAX {
            self.bytes.reserve_exact((self.bytes.len() / GROW_BY).max(ENTRY_BYTES_MAX));
        }
    }

    /// Compacts the ring once more than half of its bytes are dropped entries.
    fn compact(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        } else if self.head > self.bytes.len() / 2 {
            self.move_to_front();
        }
    }

    fn move_to_front(&mut self) {
        self.bytes.drain(..self.head.min(self.bytes.len()));
        self.head = 0;
    }
}

/// Equal entries, regardless of their position in the ring.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Entries {}

impl Encode for Entries {
    fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, self.len as u64);
        let mut before = Timestamp::EPOCH;
        for entry in self.iter() {
            entry.write_after(before, out);
            before = entry.at;
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut entries = Self::default();
        for _ in 0..count(bytes, ENTRIES_READ_MAX)? {
            let entry = Entry::read_after(entries.last, bytes)?;
            if !(1..=EXACT_MAX).contains(&entry.weight) {
                return None;
            }
            entries.append(entry);
        }
        Some(entries)
    }
}

impl Entry {
    /// Whether both can be one entry.
    fn joins(&self, other: &Self) -> bool {
        self.at == other.at && self.denied == other.denied
    }

    fn joined(&self, other: &Self) -> Self {
        Self { weight: clamp_amount(self.weight.saturating_add(other.weight)), ..*self }
    }

    /// Appends the entry after one at time `before`.
    fn write_after(&self, before: Timestamp, bytes: &mut Vec<u8>) {
        let difference = self.at.since(before).as_micros();
        let heavy = self.weight != 1;
        // At most 53 + 2 bits.
        let code = difference.saturating_mul(4) | u64::from(self.denied) << 1 | u64::from(heavy);
        write_varint(bytes, code);
        if heavy {
            write_varint(bytes, clamp_amount(self.weight));
        }
    }

    fn read_after(before: Timestamp, bytes: &mut &[u8]) -> Option<Self> {
        let code = read_varint(bytes)?;
        let at = before.after(Span::from_micros(code >> 2));
        let weight = if code & 1 == 1 { read_varint(bytes)? } else { 1 };
        Some(Self { at, weight, denied: code & 2 == 2 })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: Timestamp,
}

impl Iterator for Reader<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let entry = Entry::read_after(self.at, &mut self.bytes)?;
        self.at = entry.at;
        Some(entry)
    }
}
