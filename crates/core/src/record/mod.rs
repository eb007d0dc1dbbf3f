//! An identity as a shared store keeps it: one line of text that a person can read, and sorted sets beside it for what has
//! a size of its own.
//!
//! ```text
//!   1f3a9c02.0 1763232000123456                 a greedy bucket: when it will be full
//!   5e11d0a7.2 -3@1763232000000000 41@17632…    two windows: what is left, and since when; twice something was given back
//!   ^        ^ ^
//!   |        | one cell for each limit; of an elastic one two, with a slash between them; `-` where nothing is kept
//!   |        the epoch: raised by whatever gives back or makes anew
//!   the limits and their mode, as a fingerprint
//!
//!   … #00000000000000a1:12:500:800:1763232005000000,…  what nodes hold: node, serial, amount, demand, until when
//!
//!   … @1763232060000000,1763231880000000,1763318460000000,01…     what is pending: until when and from when on it stays as
//!                                                               it is, how long the record is needed, and the rest as bytes
//! ```
//!
//! | cell of | text | set beside it |
//! |---|---|---|
//! | greedy and leaky bucket, smooth bursty | `mark` or `mark+fraction`, then `,e` extra `,s` seen `,h` hole | |
//! | interval bucket, fixed window, cycle | `level@anchor`, then `,s` seen `,h` hole | |
//! | sliding window | `start:previous:current`, or with a fourth number for the next; then `,s` seen | |
//! | sliding log | `seen:sum:denied:first:last:sequence` | time → `time-sequence-weight`, denied ones with a `d` |
//! | warm-up | `free~cool~seen`, the first two with `+fraction` | |
//! | concurrency | `seen:held` | end of the lease → holder, or `holder*slots` |
//! | tally | `count@start` | |
//! | closed | `x` and what had been used | |
//!
//! Times are microseconds since 1970. A script reads and writes the same text: what a [`Sheet`] tells it is all that it has to know of the limits.

mod cell;
mod leases;
mod sets;
mod sheet;

pub use sets::{Member, SetContents};
pub use sheet::Sheet;

use std::fmt::Write;

use crate::account::Account;
use crate::arithmetic::EXACT_MAX;
use crate::lease::{Grant, LeaseDemand, LeaseReply};
use crate::limit::State;
use crate::mode::EnforcedLimit;
use crate::time::Timestamp;

/// What a store keeps of one identity.
///
/// ```
/// use sluicegate_core::account::{Account, Moment};
/// use sluicegate_core::algorithm::token_bucket::TokenBucket;
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::op::Op;
/// use sluicegate_core::quota::Rate;
/// use sluicegate_core::record::{Found, Record, Sheet};
/// use sluicegate_core::time::{Span, Timestamp};
///
/// let rate = Rate::new(10, Span::from_secs(60)).unwrap();
/// let plan = [EnforcedLimit::hard(Limit::TokenBucket(TokenBucket::new(rate, 1_000).unwrap()))];
/// let sheet = Sheet::new(&plan);
///
/// let mut account = Account::default();
/// let now = Moment::at(Timestamp::from_micros(1_763_232_000_000_000));
/// account.apply(&plan, Op::Hit { cost: 1, holder: None }, now).unwrap();
/// let record = Record { epoch: 0, account };
/// let (text, _) = record.write(&plan, &sheet);
/// assert_eq!(text, format!("{}.0 1763232006000000", sheet.fingerprint()));
/// assert_eq!(Record::read(text.as_bytes(), &[], &plan, &sheet), Found::Record(record));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// How often something was given back or made anew. What a node saw under a lower one is older.
    pub epoch: u64,
    /// What is kept.
    pub account: Account,
}

/// What was found in the place of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A record of these limits.
    Record(Record),
    /// A record of other limits, which have this fingerprint.
    Other(Box<str>),
    /// Nothing that this code has written.
    Garbage,
}

// === impl Record ===

impl Record {
    /// The record as text, and what is to lie in each of the sets beside it.
    #[must_use]
    pub fn write(&self, plan: &[EnforcedLimit], sheet: &Sheet) -> (String, Vec<Vec<Member>>) {
        let mut text = format!("{}.{}", sheet.fingerprint(), self.epoch.min(EXACT_MAX));
        let mut sets = Vec::with_capacity(sheet.sets());
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
        leases::write(self.account.leases(), &mut text);
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

    /// The record of this text, with the sets beside it: whole, or as much of them as matters.
    #[must_use]
    pub fn read(
        text: &[u8],
        beside: &[SetContents],
        plan: &[EnforcedLimit],
        sheet: &Sheet,
    ) -> Found {
        let Some((fingerprint, rest)) = std::str::from_utf8(text).ok().and_then(fingerprint_of)
        else {
            return Found::Garbage;
        };
        if fingerprint != sheet.fingerprint() {
            return Found::Other(fingerprint.into());
        }
        read_rest(rest, beside, plan).map_or(Found::Garbage, Found::Record)
    }

    /// Hears what a node gives back, holds and wants: [`Account::lease`]. What is given back raises the epoch.
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

/// The fingerprint at the front of a record, and what comes behind its point.
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
        Some(word) => account.with_leases(leases::read(word.strip_prefix('#')?)?),
        None => account,
    };
    let account = match words.next() {
        Some(holds) => account.with_encoded_holds(&pending(holds)?)?,
        None => account,
    };
    words.next().is_none().then_some(Record { epoch, account })
}

/// The bytes of what is pending.
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
