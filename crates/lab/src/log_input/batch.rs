//! Requests of a block of lines, mapped to descriptors, in few allocations.
//!
//! Parsing threads fill batches, and deciding threads read them. Keys are those of the mapping:
//! only values are stored, one after the other.

use std::hash::{BuildHasher, RandomState};

use sluicegate_accesslog::Record;
use sluicegate_core::time::Timestamp;
use sluicegate_rules::mapping::{Described, Few};
use sluicegate_rules::request::{Descriptor, Entry, Request};

use super::counts::LineErrors;
use super::mapping::{LogMapping, RecordHeaders, attributes};

/// Requests of consecutive lines of one log.
#[derive(Debug, Default)]
pub struct Batch {
    requests: Vec<BatchRequest>,
    /// What each mapping makes of each request.
    mapped: Vec<MappedRequest>,
    descriptors: Vec<BatchDescriptor>,
    /// The end of each value in `values`.
    ends: Vec<u32>,
    values: String,
    /// Index of its log.
    pub(super) log: usize,
    /// Lines before it.
    pub(super) lines_before: u64,
    /// All its lines, those without a request included.
    pub(super) lines: u64,
    pub(super) malformed: LineErrors,
    pub(super) invalid: LineErrors,
    pub(super) missing_part: u64,
}

/// A request of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchRequest {
    at: Timestamp,
    /// Lines of the batch before it.
    line: u32,
    /// Index of what the first mapping makes of it.
    mapped: u32,
    /// Hash of what all its counters depend on.
    shard: u32,
}

#[derive(Debug, Clone, Copy)]
struct MappedRequest {
    hits: u64,
    /// Index of its first descriptor.
    descriptor: u32,
    descriptors: u16,
    misses_part: bool,
}

#[derive(Debug, Clone, Copy)]
struct BatchDescriptor {
    /// Index in the mapping.
    index: u32,
    /// Index of its first value.
    value: u32,
    hits: Option<u64>,
}

/// A request of a log.
#[derive(Debug, Clone, Copy)]
pub struct LoggedRequest<'a> {
    /// When it is decided: its own time, or the time that was reached if it is late.
    pub at: Timestamp,
    /// Index of its log.
    pub log: usize,
    /// Its line, from 1.
    pub line: u64,
    batch: &'a Batch,
    request: &'a BatchRequest,
}

/// Where descriptors have the value that all counters of a request depend on; by the hash of this
/// value requests are divided among threads.
#[derive(Debug, Clone)]
pub struct ShardKey {
    /// The index of the entry, for each descriptor of each mapping.
    pub entries: Vec<Vec<usize>>,
    /// Hashes values; clones have the same keys.
    pub hasher: RandomState,
}

/// Bytes of a line that is shorter than most.
const LINE_BYTES_MIN: usize = 128;

impl Batch {
    /// A batch with room for the requests of a block of this size.
    pub(super) fn for_bytes(bytes: usize) -> Self {
        let lines = bytes / LINE_BYTES_MIN;
        Self {
            requests: Vec::with_capacity(lines),
            mapped: Vec::with_capacity(lines),
            descriptors: Vec::with_capacity(lines),
            ends: Vec::with_capacity(lines),
            ..Self::default()
        }
    }

    /// Adds the request of a line, which has so many lines of the batch before it.
    pub(super) fn push(
        &mut self,
        (mappings, shard_key): (&[LogMapping], Option<&ShardKey>),
        record: &Record<'_>,
        (line, text): (u32, &[u8]),
    ) {
        let headers = RecordHeaders(record);
        let attributes = attributes(&headers);
        let (mapped, mut shard) = (self.mapped.len(), None);
        for (which, mapping) in mappings.iter().enumerate() {
            match mapping.mapping.describe(&attributes) {
                Ok(described) => {
                    let logged = record.hits.filter(|_| mapping.mapping.hits.is_none());
                    let key =
                        shard_key.and_then(|key| Some((key.entries.get(which)?, &key.hasher)));
                    shard = shard.or(self.add_mapped(&described, logged, key));
                    if which == 0 {
                        self.missing_part += u64::from(described.missing().is_some());
                    }
                }
                Err(error) => {
                    self.mapped.truncate(mapped);
                    return self.invalid.add(u64::from(line), || error.to_string(), text);
                }
            }
        }
        let (mapped, shard) = (mapped as u32, shard.unwrap_or(0));
        self.requests.push(BatchRequest { at: record.at, line, mapped, shard });
    }

    /// Adds what a mapping makes of a request; the hash of what its counters depend on.
    fn add_mapped(
        &mut self,
        described: &Described<'_>,
        logged_hits: Option<u64>,
        shard_key: Option<(&Vec<usize>, &RandomState)>,
    ) -> Option<u32> {
        let descriptor = self.descriptors.len();
        let mut shard = None;
        for (index, entries, hits) in described.iter() {
            if let (Some((key, hasher)), None) = (shard_key, shard) {
                let value = key.get(index).and_then(|entry| entries.get(*entry));
                shard = value.map(|(_, value)| hasher.hash_one(value) as u32);
            }
            let value = self.ends.len() as u32;
            self.descriptors.push(BatchDescriptor { index: index as u32, value, hits });
            for (_, value) in entries {
                self.values.push_str(value);
                self.ends.push(self.values.len() as u32);
            }
        }
        self.mapped.push(MappedRequest {
            hits: logged_hits.unwrap_or(described.hits()),
            descriptor: descriptor as u32,
            descriptors: (self.descriptors.len() - descriptor) as u16,
            misses_part: described.missing().is_some(),
        });
        shard
    }

    /// Number of requests.
    pub(super) const fn len(&self) -> usize {
        self.requests.len()
    }

    /// The time of a request.
    pub(super) fn at(&self, index: usize) -> Timestamp {
        self.requests[index].at
    }

    /// Changes the time of each request, in the order of their lines.
    pub(super) fn set_times(&mut self, mut time: impl FnMut(Timestamp) -> Timestamp) {
        for request in &mut self.requests {
            request.at = time(request.at);
        }
    }

    /// Sorts requests by time; those of the same time stay in the order of their lines.
    pub(super) fn sort(&mut self) {
        if !self.requests.is_sorted_by_key(|request| request.at) {
            self.requests.sort_by_key(|request| request.at);
        }
    }

    /// The first request after `from` that is later than a time.
    pub(super) fn end_of(&self, from: usize, is_within: impl Fn(Timestamp) -> bool) -> usize {
        let rest = &self.requests[from..];
        // Mostly all of a batch.
        match rest.last() {
            Some(last) if is_within(last.at) => self.requests.len(),
            _ => from + rest.partition_point(|request| is_within(request.at)),
        }
    }

    /// A request, decided not before a time.
    pub(super) fn get(&self, index: usize, floor: Timestamp) -> LoggedRequest<'_> {
        let request = &self.requests[index];
        LoggedRequest {
            at: request.at.max(floor),
            log: self.log,
            line: self.lines_before + u64::from(request.line) + 1,
            batch: self,
            request,
        }
    }

    fn value(&self, index: usize) -> &str {
        let begin = match index.checked_sub(1) {
            Some(before) => self.ends[before] as usize,
            None => 0,
        };
        &self.values[begin..self.ends[index] as usize]
    }
}

impl<'a> LoggedRequest<'a> {
    /// Its cost, by the first mapping.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.mapped(0).hits
    }

    /// Hash of what all its counters depend on; 0 without a [`ShardKey`].
    #[must_use]
    pub const fn shard(&self) -> u32 {
        self.request.shard
    }

    /// Whether a mapping has left a descriptor out, since the line lacks a part of it.
    #[must_use]
    pub fn misses_part(&self, which: usize) -> bool {
        self.mapped(which).misses_part
    }

    /// The value of the first descriptor's first entry, by the first mapping.
    #[must_use]
    pub fn first_value(&self) -> Option<&'a str> {
        let first = self.descriptors(0).first()?;
        Some(self.batch.value(first.value as usize))
    }

    /// Calls `f` with the request by one of the mappings that the log was read with.
    pub fn with_request<R>(
        &self,
        mappings: &[LogMapping],
        which: usize,
        decide: impl FnOnce(&Request<'_>) -> R,
    ) -> R {
        let mapping = &mappings[which];
        let keys = |descriptor: &BatchDescriptor| {
            mapping.mapping.descriptors[descriptor.index as usize].entries.as_slice()
        };
        let of_mapping = self.descriptors(which);
        let mut entries = Few::<Entry<'_>>::new();
        for descriptor in of_mapping {
            let values = descriptor.value as usize..;
            let pairs = keys(descriptor).iter().zip(values);
            entries.extend(pairs.map(|((key, _), at)| Entry::new(key, self.batch.value(at))));
        }
        let (mut rest, mut descriptors) = (entries.as_slice(), Few::<Descriptor<'_>>::new());
        for descriptor in of_mapping {
            let (own, others) = rest.split_at(keys(descriptor).len());
            rest = others;
            descriptors.push(Descriptor { hits: descriptor.hits, ..Descriptor::of(own) });
        }
        let hits = self.mapped(which).hits;
        decide(&Request { domain: &mapping.domain, descriptors: &descriptors, hits })
    }

    fn mapped(&self, which: usize) -> &'a MappedRequest {
        &self.batch.mapped[self.request.mapped as usize + which]
    }

    fn descriptors(&self, which: usize) -> &'a [BatchDescriptor] {
        let mapped = self.mapped(which);
        let begin = mapped.descriptor as usize;
        &self.batch.descriptors[begin..begin + usize::from(mapped.descriptors)]
    }
}
