//! A state as bytes, and the tickets that point into one.

use super::{Written, amount, byte, read_all, read_number, with_kind, write_all, write_number};
use crate::algorithm::concurrency::{Holder, Lease, SLOTS_MAX, SlotsState};
use crate::algorithm::gcra::MeterState;
use crate::algorithm::periodic::StepsState;
use crate::algorithm::sliding_log::{Entries, LogState};
use crate::algorithm::sliding_window::CounterState;
use crate::algorithm::tally::TallyState;
use crate::algorithm::warm_up::WarmUpState;
use crate::algorithm::{Ticket, Trace};
use crate::limit::State;
use crate::quota::Mark;
use crate::time::Timestamp;

// === impl State ===

impl State {
    /// Appends this state to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::New => out.push(0),
            Self::Meter(state) => with_kind(1, state, out),
            Self::Steps(state) => with_kind(2, state, out),
            Self::Counter(state) => with_kind(3, state, out),
            Self::Log(state) => with_kind(4, &**state, out),
            Self::WarmUp(state) => with_kind(5, state, out),
            Self::Slots(state) => with_kind(6, &**state, out),
            Self::Spent(used) => {
                out.push(7);
                write_number(out, *used);
            }
            Self::Tally(state) => with_kind(8, state, out),
        }
    }

    /// The state at the front of `bytes`, which is taken away from them; `None` if there is none.
    ///
    /// ```
    /// use sluicegate_core::limit::State;
    ///
    /// let mut bytes = Vec::new();
    /// State::Spent(300).write(&mut bytes);
    /// let mut rest = &bytes[..];
    /// assert_eq!(State::read(&mut rest), Some(State::Spent(300)));
    /// assert_eq!(State::read(&mut rest), None);
    /// ```
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(match byte(bytes)? {
            0 => Self::New,
            1 => Self::Meter(Written::read_from(bytes)?),
            2 => Self::Steps(Written::read_from(bytes)?),
            3 => Self::Counter(Written::read_from(bytes)?),
            4 => Self::Log(Box::new(Written::read_from(bytes)?)),
            5 => Self::WarmUp(Written::read_from(bytes)?),
            6 => Self::Slots(Box::new(Written::read_from(bytes)?)),
            7 => Self::Spent(read_number(bytes)?),
            8 => Self::Tally(Written::read_from(bytes)?),
            _ => return None,
        })
    }
}

// === impl Written for the states of kernels ===

impl Written for MeterState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.mark.write_to(out);
        write_number(out, self.extra);
        self.seen.write_to(out);
        self.hole_until.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            mark: Mark::read_from(bytes)?,
            extra: amount(bytes)?,
            seen: Option::read_from(bytes)?,
            hole_until: Option::read_from(bytes)?,
        })
    }
}

impl Written for StepsState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.level.write_to(out);
        self.anchor.write_to(out);
        self.seen.write_to(out);
        self.hole_until.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            level: i64::read_from(bytes)?,
            anchor: Timestamp::read_from(bytes)?,
            seen: Option::read_from(bytes)?,
            hole_until: Option::read_from(bytes)?,
        })
    }
}

impl Written for CounterState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.start.write_to(out);
        write_number(out, self.previous);
        write_number(out, self.current);
        write_number(out, self.next);
        self.seen.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            start: Timestamp::read_from(bytes)?,
            previous: amount(bytes)?,
            current: amount(bytes)?,
            next: amount(bytes)?,
            seen: Option::read_from(bytes)?,
        })
    }
}

impl Written for LogState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.seen.write_to(out);
        self.entries.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { seen: Timestamp::read_from(bytes)?, entries: Entries::read_from(bytes)? })
    }
}

impl Written for WarmUpState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.free.write_to(out);
        self.cool.write_to(out);
        self.seen.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            free: Mark::read_from(bytes)?,
            cool: Mark::read_from(bytes)?,
            seen: Timestamp::read_from(bytes)?,
        })
    }
}

impl Written for SlotsState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.seen().write_to(out);
        write_all(self.leases(), out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let seen = Timestamp::read_from(bytes)?;
        let leases: Vec<Lease> = read_all(bytes, SLOTS_MAX)?;
        each_once(leases.iter().map(|lease| lease.holder))?;
        Some(Self::of(leases, seen))
    }
}

impl Written for Lease {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.holder.0);
        write_number(out, self.slots);
        self.until.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            holder: Holder(read_number(bytes)?),
            slots: read_number(bytes).filter(|slots| *slots > 0)?,
            until: Timestamp::read_from(bytes)?,
        })
    }
}

impl Written for TallyState {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.start.write_to(out);
        write_number(out, self.count);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { start: Timestamp::read_from(bytes)?, count: amount(bytes)? })
    }
}

/// Whether nobody holds twice what is held once.
pub(crate) fn each_once(holders: impl Iterator<Item = Holder>) -> Option<()> {
    let mut sorted: Vec<Holder> = holders.collect();
    sorted.sort_unstable();
    sorted.is_sorted_by(|one, next| one < next).then_some(())
}

// === impl Written for Ticket ===

impl Written for Ticket {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.charged);
        self.slot.write_to(out);
        self.trace.write_to(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            // As it was asked for, which nothing bounds where any cost is granted.
            charged: read_number(bytes)?,
            slot: Timestamp::read_from(bytes)?,
            trace: Trace::read_from(bytes)?,
        })
    }
}

impl Written for Trace {
    fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nowhere => out.push(0),
            Self::Mark(mark) => with_kind(1, mark, out),
            Self::Level { level, anchor, cost, slot } => {
                with_kind(2, level, out);
                anchor.write_to(out);
                write_number(out, *cost);
                slot.write_to(out);
            }
            Self::Count { start, count } => {
                with_kind(3, start, out);
                write_number(out, *count);
            }
            Self::Entry { at } => with_kind(4, at, out),
            Self::Price { free, price, cool } => {
                with_kind(5, free, out);
                price.write_to(out);
                cool.write_to(out);
            }
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(match byte(bytes)? {
            0 => Self::Nowhere,
            1 => Self::Mark(Mark::read_from(bytes)?),
            2 => Self::Level {
                level: i64::read_from(bytes)?,
                anchor: Timestamp::read_from(bytes)?,
                cost: read_number(bytes)?,
                slot: Timestamp::read_from(bytes)?,
            },
            3 => Self::Count { start: Timestamp::read_from(bytes)?, count: amount(bytes)? },
            4 => Self::Entry { at: Timestamp::read_from(bytes)? },
            5 => Self::Price {
                free: Mark::read_from(bytes)?,
                price: Mark::read_from(bytes)?,
                cool: Mark::read_from(bytes)?,
            },
            _ => return None,
        })
    }
}
