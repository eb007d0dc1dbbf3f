//! The sorted sets of a record.

use super::number;
use crate::algorithm::concurrency::{Holder, SlotLease, SlotsState};
use crate::algorithm::sliding_log::{Entries, Entry};
use crate::time::Timestamp;

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
