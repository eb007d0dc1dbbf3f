//! The short way through a decision: a hit on hard limits whose states are packed, which is nearly every hit.
//!
//! It gives the answers of the long way ([`Shard::take`], core's account, [`Shard::put`]) without building an
//! account; a property compares the two.

use sluicegate_core::packed::{Charged, Packed};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Decision, Outcome, Verdict, judge};

use super::{Room, Shard, column, name};
use crate::memory::slab::Whole;
use crate::memory::table::Seat;
use crate::memory::word::{Content, Since, Word};

/// The most limits of a plan that goes the short way.
const SHORT_STEPS_MAX: usize = 4;

const UNASKED: Decision = Decision {
    outcome: Outcome::Allow { wait: Span::ZERO },
    enforced: true,
    remaining: None,
    reset_after: Span::ZERO,
    soft: false,
    elastic: false,
};

/// How far the short way led.
#[derive(Debug)]
pub(crate) enum Short {
    /// To the end.
    Decided(Verdict),
    /// Not far: take the long way.
    TakeLong,
    /// To a newcomer for whom there is no room.
    NoRoom,
}

/// One step on its way.
#[derive(Clone, Copy)]
struct Asked {
    kept: Option<Packed>,
    seat: Seat,
    charged: Option<Packed>,
}

// === impl Shard ===

impl Shard {
    /// A hit of `cost` by an identity.
    #[inline]
    pub(crate) fn hit(&mut self, room: Room<'_>, hash: u64, cost: u64, now: Timestamp) -> Short {
        let plan = self.plan_at(now);
        if cost == 0 || cost > plan.short_cost_max {
            return Short::TakeLong;
        }
        if plan.steps.len() == 1 {
            self.hit_one(room, hash, cost, now)
        } else {
            self.hit_several(room, hash, cost, now)
        }
    }

    #[inline]
    fn hit_one(&mut self, room: Room<'_>, hash: u64, cost: u64, now: Timestamp) -> Short {
        let since = room.epoch.since(now);
        let name = name(hash, 0);
        let seat = self.table.seat(name, since);
        let Ok(kept) = self.kept(room, seat) else { return Short::TakeLong };
        let Some(step) = self.plan.steps.first() else { return Short::TakeLong };
        let hit = step.hit_packed(kept, cost, now);
        let verdict = Verdict::of_one(&hit.decision);
        let word = match hit.charged {
            Charged::Nothing => return Short::Decided(verdict),
            Charged::Packed(packed) => match Word::packed(packed, room.epoch) {
                Some(word) => word,
                None => {
                    let whole = step.limit().unpack(packed);
                    let expires_at = packed.expires_at;
                    let place = self.slab.keep(Whole::State(whole));
                    Word::whole(place, expires_at, room.epoch)
                }
            },
            Charged::Whole(_) => return Short::TakeLong,
        };
        match seat {
            Seat::Taken(lane) => self.table.put(lane, name, word),
            Seat::Free(lane) => {
                self.drop_whole(self.table.word(lane));
                self.table.put(lane, name, word);
            }
            Seat::Fresh(_) | Seat::Full => {
                if !self.reserve(room, since) {
                    self.drop_whole(word);
                    return Short::NoRoom;
                }
                self.write(room, name, word, since);
                room.budget.release(1);
            }
        }
        Short::Decided(verdict)
    }

    fn hit_several(&mut self, room: Room<'_>, hash: u64, cost: u64, now: Timestamp) -> Short {
        let since = room.epoch.since(now);
        let steps = self.plan.steps.len();
        if steps > SHORT_STEPS_MAX {
            return Short::TakeLong;
        }
        let mut asked = [Asked { kept: None, seat: Seat::Full, charged: None }; SHORT_STEPS_MAX];
        let mut decisions = [UNASKED; SHORT_STEPS_MAX];
        let mut allowed = true;
        let all = self.plan.steps.iter().zip(&mut asked).zip(&mut decisions).enumerate();
        for (index, ((step, asked), decision)) in all {
            asked.seat = self.table.seat(name(hash, column(index)), since);
            let Ok(kept) = self.kept(room, asked.seat) else { return Short::TakeLong };
            asked.kept = kept;
            let hit = step.hit_packed(kept, cost, now);
            asked.charged = match hit.charged {
                Charged::Nothing => None,
                Charged::Packed(packed) if Word::packed(packed, room.epoch).is_some() => {
                    Some(packed)
                }
                Charged::Packed(_) | Charged::Whole(_) => return Short::TakeLong,
            };
            allowed &= hit.decision.outcome.is_allowed();
            *decision = hit.decision;
        }
        let (asked, decisions) = (&asked[..steps], &mut decisions[..steps]);
        if !allowed {
            // Nobody is charged: those who agreed say how they stand as it is.
            for ((step, asked), decision) in self.plan.steps.iter().zip(asked).zip(&mut *decisions)
            {
                if asked.charged.is_some() {
                    *decision = step.glance_packed(asked.kept, now);
                }
            }
            return Short::Decided(judge(decisions));
        }
        let newcomer = asked.iter().all(|asked| !matches!(asked.seat, Seat::Taken(_)));
        if newcomer && !self.reserve(room, since) {
            return Short::NoRoom;
        }
        for (index, asked) in asked.iter().enumerate() {
            let word = asked.charged.and_then(|packed| Word::packed(packed, room.epoch));
            if let Some(word) = word {
                // The lane found before may have been taken by the step before.
                self.write(room, name(hash, column(index)), word, since);
            }
        }
        room.budget.release(usize::from(newcomer));
        Short::Decided(judge(decisions))
    }

    /// What is kept in a seat, unless it is kept whole.
    #[inline]
    fn kept(&self, room: Room<'_>, seat: Seat) -> Result<Option<Packed>, ()> {
        let Seat::Taken(lane) = seat else { return Ok(None) };
        match self.table.word(lane).content(room.epoch) {
            Content::Packed(packed) => Ok(Some(packed)),
            Content::Whole(_) => Err(()),
        }
    }

    /// Sets a lane aside for a newcomer; looks for lanes that have run out if that may help.
    pub(crate) fn reserve(&mut self, room: Room<'_>, since: Since) -> bool {
        room.budget.reserve() || {
            self.reclaim(room, since);
            room.budget.reserve()
        }
    }
}
