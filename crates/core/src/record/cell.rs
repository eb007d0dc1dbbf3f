//! Text format of a cell, and the sorted set beside it.

use std::fmt::Write;

use super::number;
use crate::algorithm::concurrency::{Holder, SlotLease, SlotsState};
use crate::algorithm::gcra::GcraState;
use crate::algorithm::periodic::PeriodicState;
use crate::algorithm::sliding_log::{Entries, Entry, LogState};
use crate::algorithm::sliding_window::CounterState;
use crate::algorithm::tally::TallyState;
use crate::algorithm::warm_up::WarmUpState;
use crate::arithmetic::{EXACT_MAX, signed};
use crate::limit::{Kernel, Limit, State};
use crate::quota::ExactTime;
use crate::time::Timestamp;

/// Appends the cell, and its set if this limit has one. A state of another limit counts as none.
pub(super) fn write(limit: &Limit, state: &State, out: &mut String, beside: &mut Vec<Vec<Member>>) {
    let mut members = Vec::new();
    match (limit.kernel(), state) {
        (Kernel::Gcra(_), State::Gcra(state)) => gcra(state, out),
        (Kernel::Periodic(_), State::Periodic(state)) => periodic(state, out),
        (Kernel::Counter(_), State::Counter(state)) => counter(state, out),
        (Kernel::Log(_), State::Log(state)) => members = log(state, out),
        (Kernel::WarmUp(_), State::WarmUp(state)) => warm_up(state, out),
        (Kernel::Slots(_), State::Slots(state)) => {
            members = slot_members(state);
            let held = state.leases().iter().fold(0u64, |held, one| held.saturating_add(one.slots));
            let _ = write!(out, "{}:{held}", state.seen().as_micros());
        }
        (Kernel::Tally(_), State::Tally(state)) => {
            let _ = write!(out, "{}@{}", state.count, state.start.as_micros());
        }
        (Kernel::Closed, State::Spent(used)) => {
            let _ = write!(out, "x{}", used.min(&EXACT_MAX));
        }
        _ => out.push('-'),
    }
    if has_set(limit) {
        beside.push(members);
    }
}

/// The state of a cell; its set is the next of those beside the record, if this limit has one.
pub(super) fn read<'a>(
    limit: &Limit,
    text: &str,
    beside: &mut impl Iterator<Item = &'a SetContents>,
) -> Option<State> {
    let set = if has_set(limit) { beside.next() } else { None };
    if text == "-" {
        return Some(State::New);
    }
    Some(match limit.kernel() {
        Kernel::Open => return None,
        Kernel::Closed => State::Spent(number(text.strip_prefix('x')?)?),
        Kernel::Gcra(_) => State::Gcra(read_gcra(text)?),
        Kernel::Periodic(_) => State::Periodic(read_periodic(text)?),
        Kernel::Counter(_) => State::Counter(read_counter(text)?),
        Kernel::WarmUp(_) => State::WarmUp(read_warm_up(text)?),
        Kernel::Log(_) => {
            let mut numbers = text.split(':').map(number);
            let seen = Timestamp::from_micros(numbers.next()??);
            numbers.clone().all(|number| number.is_some()).then_some(())?;
            (numbers.count() == 5).then_some(())?;
            State::Log(Box::new(LogState { entries: set?.entries()?, seen }))
        }
        Kernel::Slots(_) => {
            let (seen, held) = text.split_once(':')?;
            number(held)?;
            State::Slots(Box::new(set?.slots(Timestamp::from_micros(number(seen)?))?))
        }
        Kernel::Tally(_) => {
            let (count, start) = text.split_once('@')?;
            let start = Timestamp::from_micros(number(start)?);
            State::Tally(TallyState { start, count: number(count)? })
        }
    })
}

/// Whether a limit has a set.
pub(super) fn has_set(limit: &Limit) -> bool {
    matches!(limit.kernel(), Kernel::Log(_) | Kernel::Slots(_))
}

// === encoding ===

fn gcra(state: &GcraState, out: &mut String) {
    tat(state.tat, out);
    if state.extra > 0 {
        let _ = write!(out, ",e{}", state.extra);
    }
    moments(state.seen, state.hole_until, out);
}

fn periodic(state: &PeriodicState, out: &mut String) {
    let _ = write!(out, "{}@{}", state.level, state.anchor.as_micros());
    moments(state.seen, state.hole_until, out);
}

fn counter(state: &CounterState, out: &mut String) {
    let CounterState { start, previous, current, next, seen } = state;
    let _ = write!(out, "{}:{previous}:{current}", start.as_micros());
    if *next > 0 {
        let _ = write!(out, ":{next}");
    }
    moments(*seen, None, out);
}

fn log(state: &LogState, out: &mut String) -> Vec<Member> {
    let (members, sequence) = log_members(&state.entries);
    let entries = &state.entries;
    let first = entries.first().map(|entry| entry.at).unwrap_or_default().as_micros();
    let last = entries.last().unwrap_or_default().as_micros();
    let (seen, sum, denied) = (state.seen.as_micros(), entries.sum(), entries.denied_sum());
    let _ = write!(out, "{seen}:{sum}:{denied}:{first}:{last}:{sequence}");
    members
}

fn warm_up(state: &WarmUpState, out: &mut String) {
    tat(state.free, out);
    out.push('~');
    tat(state.cool, out);
    let _ = write!(out, "~{}", state.seen.as_micros());
}

fn tat(tat: ExactTime, out: &mut String) {
    let _ = match tat.frac() {
        0 => write!(out, "{}", tat.us()),
        frac => write!(out, "{}+{frac}", tat.us()),
    };
}

fn moments(seen: Option<Timestamp>, hole: Option<Timestamp>, out: &mut String) {
    for (letter, moment) in [('s', seen), ('h', hole)] {
        if let Some(moment) = moment {
            let _ = write!(out, ",{letter}{}", moment.as_micros());
        }
    }
}

// === decoding ===

/// The values named by letters after the first part of a cell.
#[derive(Default)]
struct Named {
    extra: Option<u64>,
    seen: Option<Timestamp>,
    hole: Option<Timestamp>,
}

fn named(text: &str) -> Option<(&str, Named)> {
    let mut parts = text.split(',');
    let (first, mut named) = (parts.next()?, Named::default());
    for part in parts {
        let (letter, digits) = part.split_at_checked(1)?;
        let value = number(digits)?;
        let again = match letter {
            "e" => named.extra.replace(value).is_some(),
            "s" => named.seen.replace(Timestamp::from_micros(value)).is_some(),
            "h" => named.hole.replace(Timestamp::from_micros(value)).is_some(),
            _ => true,
        };
        (!again).then_some(())?;
    }
    Some((first, named))
}

fn read_tat(text: &str) -> Option<ExactTime> {
    let (us, frac) = text.split_once('+').unwrap_or((text, "0"));
    Some(ExactTime::from_raw_parts(number(us)?, number(frac)?))
}

fn read_gcra(text: &str) -> Option<GcraState> {
    let (first, Named { extra, seen, hole }) = named(text)?;
    let (tat, extra) = (read_tat(first)?, extra.unwrap_or(0));
    Some(GcraState { tat, extra, seen, hole_until: hole })
}

fn read_periodic(text: &str) -> Option<PeriodicState> {
    let (first, Named { extra: None, seen, hole }) = named(text)? else { return None };
    let (level, anchor) = first.split_once('@')?;
    let level = match level.strip_prefix('-') {
        Some(debt) => signed(number(debt)?).saturating_neg(),
        None => signed(number(level)?),
    };
    let anchor = Timestamp::from_micros(number(anchor)?);
    Some(PeriodicState { level, anchor, seen, hole_until: hole })
}

fn read_counter(text: &str) -> Option<CounterState> {
    let (first, Named { extra: None, seen, hole: None }) = named(text)? else { return None };
    let mut numbers = first.split(':').map(number);
    let start = Timestamp::from_micros(numbers.next()??);
    let (previous, current) = (numbers.next()??, numbers.next()??);
    let next = numbers.next().unwrap_or(Some(0))?;
    numbers.next().is_none().then_some(CounterState { start, previous, current, next, seen })
}

fn read_warm_up(text: &str) -> Option<WarmUpState> {
    let mut parts = text.split('~');
    let (free, cool) = (read_tat(parts.next()?)?, read_tat(parts.next()?)?);
    let seen = Timestamp::from_micros(number(parts.next()?)?);
    parts.next().is_none().then_some(WarmUpState { free, cool, seen })
}

/// A member of a sorted set: its score and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The time of an entry or the expiry of a lease, in microseconds.
    pub score: u64,
    /// The rest of it, encoded.
    pub name: String,
}

/// The contents of a set, or the relevant part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetContents {
    /// The entries of a log, oldest first.
    Log(Vec<Entry>),
    /// The leases of a concurrency limit.
    Slots(Vec<SlotLease>),
    /// All members of either kind.
    Whole(Vec<Member>),
}

impl SetContents {
    pub(super) fn entries(&self) -> Option<Entries> {
        let mut entries = Entries::default();
        match self {
            Self::Log(some) => some.iter().for_each(|entry| entries.insert(*entry)),
            Self::Whole(members) => {
                for member in members {
                    entries.insert(member.entry()?);
                }
            }
            Self::Slots(_) => return None,
        }
        Some(entries)
    }

    pub(super) fn slots(&self, seen: Timestamp) -> Option<SlotsState> {
        let leases = match self {
            Self::Slots(some) => some.clone(),
            Self::Whole(members) => members.iter().map(Member::lease).collect::<Option<_>>()?,
            Self::Log(_) => return None,
        };
        Some(SlotsState::new(leases, seen))
    }
}

impl Member {
    fn entry(&self) -> Option<Entry> {
        let (name, denied) = match self.name.strip_suffix('d') {
            Some(name) => (name, true),
            None => (self.name.as_str(), false),
        };
        let (_, weight) = name.rsplit_once('-')?;
        Some(Entry { at: Timestamp::from_micros(self.score), weight: number(weight)?, denied })
    }

    fn lease(&self) -> Option<SlotLease> {
        let (holder, slots) = self.name.split_once('*').unwrap_or((&self.name, "1"));
        let holder = Holder(u64::from_str_radix(holder, 16).ok()?);
        Some(SlotLease { holder, slots: number(slots)?, until: Timestamp::from_micros(self.score) })
    }

    fn from_lease(lease: &SlotLease) -> Self {
        let name = match lease.slots {
            1 => format!("{:016x}", lease.holder.0),
            slots => format!("{:016x}*{slots}", lease.holder.0),
        };
        Self { score: lease.until.as_micros(), name }
    }
}

/// The members of a log. A sequence number orders entries of one moment.
pub(super) fn log_members(entries: &Entries) -> (Vec<Member>, u64) {
    let mut members = Vec::with_capacity(entries.len());
    let mut last: Option<(Timestamp, u64)> = None;
    for entry in entries.iter() {
        let sequence = match last {
            Some((at, sequence)) if at == entry.at => sequence.saturating_add(1),
            _ => 0,
        };
        last = Some((entry.at, sequence));
        let (at, suffix) = (entry.at.as_micros(), if entry.denied { "d" } else { "" });
        members.push(Member {
            score: at,
            name: format!("{at}-{sequence:05}-{}{suffix}", entry.weight),
        });
    }
    (members, last.map_or(0, |(_, sequence)| sequence))
}

/// The members of a concurrency limit.
pub(super) fn slot_members(slots: &SlotsState) -> Vec<Member> {
    slots.leases().iter().map(Member::from_lease).collect()
}
