//! The record of an identity in a shared store: one readable line of text, and sorted sets for
//! logs and slots.
//!
//! ```text
//!   1f3a9c02.0 1763232000123456                 a greedy bucket: when it is full
//!   5e11d0a7.2 -3@1763232000000000 41@17632…    two windows: level and start; two refunds so far
//!   ^        ^ ^
//!   |        | a cell per limit, two with a slash between if elastic; `-` without a state
//!   |        the epoch: raised by refunds and resets
//!   the fingerprint of the limits and their mode
//!
//!   … #00000000000000a1:12:500:800:1763232005000000,…  leases: node, serial, amount, demand, expiry
//!
//!   … @1763232060000000,1763231880000000,1763318460000000,01…
//!                     holds: until and from when they do not change, expiry of the record, bytes
//! ```
//!
//! | cell of | text | its set |
//! |---|---|---|
//! | greedy and leaky bucket, smooth bursty | `tat[+fraction]`, then `,e` extra `,s` seen `,h` gap | |
//! | interval bucket, fixed window, cycle | `level@anchor`, then `,s` seen `,h` gap | |
//! | sliding window | `start:previous:current[:next]`, then `,s` seen | |
//! | sliding log | `seen:sum:denied:first:last:sequence` | time → `time-sequence-weight`, `d` if denied |
//! | warm-up | `free~cool~seen`, the first two with `+fraction` | |
//! | concurrency | `seen:held` | end of the lease → holder, or `holder*slots` |
//! | tally | `count@start` | |
//! | closed | `x` and the amount used before | |
//!
//! Times are microseconds since 1970. A script reads and writes the same text, with the parameters
//! of the limits ([`Limit::parameters`](crate::limit::Limit::parameters)).

mod cell;

use std::fmt::Write;

pub use cell::{Member, SetContents};

use crate::account::Account;
use crate::algorithm::fixed_window::Align;
use crate::arithmetic::EXACT_MAX;
use crate::codec::write_varint;
use crate::lease::{Grant, LeaseDemand, LeaseReply, NodeLease, NodeLeases};
use crate::limit::{Limit, State};
use crate::mode::EnforcedLimit;
use crate::time::Timestamp;
use cell::has_set;

/// The record of one identity in a shared store.
///
/// ```
/// use sluicegate_core::account::{Account, Moment};
/// use sluicegate_core::algorithm::token_bucket::TokenBucket;
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::op::Op;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::record::{Found, Record, Layout};
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let rate = Rate::new(10, Span::from_secs(60)).unwrap();
/// let plan = [EnforcedLimit::hard(Limit::TokenBucket(TokenBucket::new(rate, 1_000).unwrap()))];
/// let layout = Layout::new(&plan);
///
/// let mut account = Account::default();
/// let now = Moment::at(Timestamp::from_micros(1_763_232_000_000_000));
/// account.apply(&plan, Op::Hit { cost: 1, holder: None }, now).unwrap();
/// let record = Record { epoch: 0, account };
/// let (text, _) = record.write(&plan, &layout);
/// assert_eq!(text, format!("{}.0 1763232006000000", layout.fingerprint()));
/// assert_eq!(Record::read(text.as_bytes(), &[], &plan, &layout), Found::Record(record));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Counts refunds and resets. State seen under a lower epoch is older.
    pub epoch: u64,
    /// The account.
    pub account: Account,
}

/// The result of reading a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A record of these limits.
    Record(Record),
    /// A record of other limits, which have this fingerprint.
    Other(Box<str>),
    /// Not a record.
    Garbage,
}

impl Record {
    /// The record as text, and the members of each of its sets.
    #[must_use]
    pub fn write(&self, plan: &[EnforcedLimit], layout: &Layout) -> (String, Vec<Vec<Member>>) {
        let mut text = format!("{}.{}", layout.fingerprint(), self.epoch.min(EXACT_MAX));
        let mut sets = Vec::with_capacity(layout.sets());
        let mut states = self.account.state_pairs();
        for step in plan {
            let (plain, boost) = states.next().unwrap_or((&State::New, &State::New));
            text.push(' ');
            cell::write(&step.limit, plain, &mut text, &mut sets);
            if let Some(limit) = &step.boost {
                text.push('/');
                cell::write(limit, boost, &mut text, &mut sets);
            }
        }
        write_leases(self.account.leases(), &mut text);
        if let Some((from, until)) = self.account.holds_stable_during() {
            let needed = self.account.expires_at(plan);
            let [until, from, needed] = [until, from, needed].map(Timestamp::as_micros);
            let _ = write!(text, " @{until},{from},{needed},");
            for byte in self.account.encoded_holds() {
                let _ = write!(text, "{byte:02x}");
            }
        }
        (text, sets)
    }

    /// Parses a record with its sets: whole, or the relevant part of them.
    #[must_use]
    pub fn read(
        text: &[u8],
        beside: &[SetContents],
        plan: &[EnforcedLimit],
        layout: &Layout,
    ) -> Found {
        let Some((fingerprint, rest)) = std::str::from_utf8(text).ok().and_then(fingerprint_of)
        else {
            return Found::Garbage;
        };
        if fingerprint != layout.fingerprint() {
            return Found::Other(fingerprint.into());
        }
        read_rest(rest, beside, plan).map_or(Found::Garbage, Found::Record)
    }

    /// Processes a lease call: [`Account::lease`]. A refund raises the epoch.
    pub fn lease(
        &mut self,
        plan: &[EnforcedLimit],
        request: &LeaseDemand,
        now: Timestamp,
    ) -> LeaseReply {
        let leased = self.account.lease(plan, request, now);
        if let LeaseReply::Granted(Grant { returned: true, .. }) = leased {
            self.epoch = self.epoch.saturating_add(1);
        }
        leased
    }
}

/// The fingerprint of a record, and the rest after the point.
fn fingerprint_of(text: &str) -> Option<(&str, &str)> {
    let (fingerprint, rest) = text.split_once('.')?;
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (fingerprint.len() == 8 && fingerprint.bytes().all(is_hex)).then_some((fingerprint, rest))
}

fn read_rest(text: &str, beside: &[SetContents], plan: &[EnforcedLimit]) -> Option<Record> {
    let mut words = text.split(' ');
    let epoch = number(words.next()?)?;
    let mut beside = beside.iter();
    let mut states = Vec::with_capacity(plan.len());
    for step in plan {
        let word = words.next()?;
        let (plain, boost) = match step.boost {
            Some(_) => word.split_once('/')?,
            None => (word, "-"),
        };
        let plain = cell::read(&step.limit, plain, &mut beside)?;
        let boost = match &step.boost {
            Some(limit) => cell::read(limit, boost, &mut beside)?,
            None => State::New,
        };
        states.push((plain, boost));
    }
    let account = Account::from_states(states);
    let mut words = words.peekable();
    let account = match words.next_if(|word| word.starts_with('#')) {
        Some(word) => account.with_leases(read_leases(word.strip_prefix('#')?)?),
        None => account,
    };
    let account = match words.next() {
        Some(holds) => account.with_encoded_holds(&pending(holds)?)?,
        None => account,
    };
    words.next().is_none().then_some(Record { epoch, account })
}

/// The bytes of the holds.
fn pending(word: &str) -> Option<Vec<u8>> {
    let mut parts = word.strip_prefix('@')?.split(',');
    for _ in 0..3 {
        number(parts.next()?)?;
    }
    let (hex, None) = (parts.next()?, parts.next()) else { return None };
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

/// A number that is held exactly, in decimal digits alone.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number <= EXACT_MAX)
}

// === leases: `#node:serial:amount:weight:until,…` ===

/// Appends the leases, if there are any.
fn write_leases(leases: &NodeLeases, out: &mut String) {
    for (index, lease) in leases.nodes().iter().enumerate() {
        let NodeLease { node, serial, amount, weight, until } = lease;
        let [serial, amount, weight] = [serial, amount, weight].map(|n| *n.min(&EXACT_MAX));
        let before = if index == 0 { " #" } else { "," };
        let until = until.as_micros();
        let _ = write!(out, "{before}{node:016x}:{serial}:{amount}:{weight}:{until}");
    }
}

/// Parses the text after the `#`.
fn read_leases(text: &str) -> Option<NodeLeases> {
    let nodes: Option<Vec<NodeLease>> = text.split(',').map(node_lease).collect();
    NodeLeases::new(nodes?)
}

fn node_lease(text: &str) -> Option<NodeLease> {
    let (node, rest) = text.split_once(':')?;
    let is_hex = node.len() == 16 && node.bytes().all(|byte| byte.is_ascii_hexdigit());
    let node = u64::from_str_radix(node, 16).ok().filter(|_| is_hex)?;
    let mut numbers = rest.split(':').map(number);
    let (serial, amount, weight) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let until = Timestamp::from_micros(numbers.next()??);
    numbers.next().is_none().then_some(NodeLease { node, serial, amount, weight, until })
}

/// Layout of the records of some limits.
///
/// ```
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::record::Layout;
///
/// let layout = Layout::new(&[EnforcedLimit::hard(Limit::Unlimited)]);
/// assert_eq!(layout.fingerprint().len(), 8);
/// assert_eq!(layout.sets(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    fingerprint: String,
    sets: usize,
}

impl Layout {
    /// Layout for limits without names.
    #[must_use]
    pub fn new(limits: &[EnforcedLimit]) -> Self {
        Self::named(limits, [])
    }

    /// Layout for limits of these names, as far as they have some. A limit of another name is
    /// another limit, whatever its parameters.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::record::Layout;
    ///
    /// let limits = [EnforcedLimit::hard(Limit::Closed)];
    /// let daily = Layout::named(&limits, [Some("daily")]);
    /// assert_ne!(daily.fingerprint(), Layout::new(&limits).fingerprint());
    /// assert_eq!(daily.fingerprint(), Layout::named(&limits, [Some("daily")]).fingerprint());
    /// ```
    #[must_use]
    pub fn named<'a>(
        limits: &[EnforcedLimit],
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        let with_sets =
            limits.iter().flat_map(EnforcedLimit::stages).filter(|limit| has_set(limit));
        Self { fingerprint: fingerprint(limits, names), sets: with_sets.count() }
    }

    /// Eight digits that identify the limits and their mode. The present window of a calendar makes
    /// no difference.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Number of sorted sets beside a record: one for each log and each concurrency limit, and as
    /// many again where they are elastic.
    #[must_use]
    pub const fn sets(&self) -> usize {
        self.sets
    }
}

// === the fingerprint ===

/// FNV-1a of the limits as bytes, folded to 32 bits. It distinguishes the revisions of one rule; a
/// collision has no effect on limits.
fn fingerprint<'a>(
    limits: &[EnforcedLimit],
    names: impl IntoIterator<Item = Option<&'a str>>,
) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut bytes = Vec::new();
    for step in limits {
        bytes.push(u8::from(step.enforced));
        write_varint(&mut bytes, step.slack);
        for limit in [Some(&step.limit), step.plain.as_ref(), step.boost.as_ref()] {
            match limit {
                Some(limit) => without_edges(limit, &mut bytes),
                None => bytes.push(u8::MAX),
            }
        }
    }
    for (index, name) in (0u8..).zip(names) {
        if let Some(name) = name {
            bytes.extend([u8::MAX, index]);
            bytes.extend_from_slice(name.as_bytes());
        }
    }
    let hash =
        bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    format!("{:08x}", (hash ^ (hash >> 32)) & 0xffff_ffff)
}

/// A limit as bytes: of a calendar only the length of its windows, and of a tally too, whose count
/// is the same under any limit.
fn without_edges(limit: &Limit, out: &mut Vec<u8>) {
    if let Limit::FixedWindow(window) = limit
        && let Align::Calendar(edges) = window.align()
    {
        out.push(u8::MAX - 1);
        for number in [window.rate().count(), window.rate().period().as_micros()] {
            write_varint(out, number);
        }
        write_varint(out, edges.longest().as_micros());
        return;
    }
    if let Limit::Tally(tally) = limit {
        out.push(u8::MAX - 2);
        write_varint(out, tally.period().as_micros());
        return;
    }
    limit.write(out);
}
