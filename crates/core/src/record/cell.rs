//! Text format of a cell.

use std::fmt::Write;

use super::number;
use super::sets::{self, Member, SetContents};
use crate::algorithm::gcra::GcraState;
use crate::algorithm::periodic::PeriodicState;
use crate::algorithm::sliding_log::LogState;
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
        (Kernel::Periodic(_), State::Periodic(state)) => steps(state, out),
        (Kernel::Counter(_), State::Counter(state)) => counter(state, out),
        (Kernel::Log(_), State::Log(state)) => members = log(state, out),
        (Kernel::WarmUp(_), State::WarmUp(state)) => warm_up(state, out),
        (Kernel::Slots(_), State::Slots(state)) => {
            members = sets::slot_members(state);
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
        Kernel::Gcra(_) => State::Gcra(read_meter(text)?),
        Kernel::Periodic(_) => State::Periodic(read_steps(text)?),
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

// === as text ===

fn gcra(state: &GcraState, out: &mut String) {
    tat(state.tat, out);
    if state.extra > 0 {
        let _ = write!(out, ",e{}", state.extra);
    }
    moments(state.seen, state.hole_until, out);
}

fn steps(state: &PeriodicState, out: &mut String) {
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
    let (members, sequence) = sets::log_members(&state.entries);
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

// === and back ===

/// What is named by letters behind the first part of a cell.
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

fn read_mark(text: &str) -> Option<ExactTime> {
    let (us, frac) = text.split_once('+').unwrap_or((text, "0"));
    Some(ExactTime::from_raw_parts(number(us)?, number(frac)?))
}

fn read_meter(text: &str) -> Option<GcraState> {
    let (first, Named { extra, seen, hole }) = named(text)?;
    let (tat, extra) = (read_mark(first)?, extra.unwrap_or(0));
    Some(GcraState { tat, extra, seen, hole_until: hole })
}

fn read_steps(text: &str) -> Option<PeriodicState> {
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
    let (free, cool) = (read_mark(parts.next()?)?, read_mark(parts.next()?)?);
    let seen = Timestamp::from_micros(number(parts.next()?)?);
    parts.next().is_none().then_some(WarmUpState { free, cool, seen })
}
