//! The short way through a decision: a hit on hard limits whose states are packed, which is nearly every hit.
//!
//! It gives the answers of the long way ([`Shard::take`], core's account, [`Shard::put`]) without building an
//! account; a property compares the two.

use sluicegate_core::limit::{Limit, State};
use sluicegate_core::packed::{FastHit, LimitStatus, Packed};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Verdict, judge};

use super::{Budget, Shard, column, name};
use crate::memory::slab::{Slab, Whole};
use crate::memory::table::Seat;
use crate::memory::word::{Content, Epoch, Since, Word};

/// The most limits of a plan that goes the short way.
const SHORT_STEPS_MAX: usize = 4;

/// How far the short way led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Short {
    /// To the end.
    Decided,
    /// To the end, and a newcomer was added: the table may be another one now.
    Added,
    /// Not far: take the long way.
    TakeLong,
    /// To a newcomer for whom there is no room.
    NoRoom,
}

/// One step on its way.
#[derive(Clone, Copy)]
struct Asked {
    kept: Option<Packed>,
    known: bool,
    hit: FastHit,
    /// What will be written.
    word: Option<Word>,
}

const UNASKED: Asked = Asked {
    kept: None,
    known: false,
    hit: FastHit {
        allowed: true,
        after: Span::ZERO,
        stands: LimitStatus { remaining: None, reset_after: Span::ZERO, beyond: 0 },
        kept: None,
    },
    word: None,
};

// === impl Shard ===

impl Shard {
    /// A hit of `cost` by an identity.
    ///
    /// The verdict is written where the caller wants it: handed back, it would be copied three times on its way.
    #[inline]
    pub(crate) fn hit(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Short {
        // Known, under one bucket, in a lane that is found at once: no step further than needed.
        let plan = &*self.plan;
        if let Some(bucket) = &plan.bucket
            && cost > 0
            && let Some(lane) = self.table.at_home(name(hash, 0))
            && let Some(packed) = lane.whole_micros(self.epoch, now)
            && let Some(hit) = bucket.hit(Some(packed), cost, now)
        {
            if let Some(packed) = hit.kept {
                match Word::packed(packed, self.epoch) {
                    Some(word) => *lane = word,
                    None => return Short::TakeLong,
                }
            }
            *verdict = Verdict::from_single(&hit.decision());
            return Short::Decided;
        }
        self.hit_any(budget, hash, cost, now, verdict)
    }

    #[inline(never)]
    fn hit_any(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Short {
        let now = now.min(NOW_MAX);
        if !self.plan.holds_at(now) && !self.epoch.suits(now) {
            // The table is looked after first, under the plan that its states were made by.
            return Short::TakeLong;
        }
        let plan = self.plan_at(now);
        let serves = plan.serves(cost);
        if plan.steps.len() > 1 {
            return match serves {
                true => self.hit_several(budget, hash, cost, now, verdict),
                false => Short::TakeLong,
            };
        }
        let plainly = match serves {
            true => self.hit_fast(budget, hash, cost, now, verdict),
            false => Short::TakeLong,
        };
        match plainly {
            Short::TakeLong => self.hit_single(budget, hash, cost, now, verdict),
            way => way,
        }
    }

    /// One limit, a packed state, nothing out of the ordinary.
    #[inline]
    fn hit_fast(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Short {
        let since = self.epoch.since(now);
        let name = name(hash, 0);
        let seat = self.table.seat(name, since);
        let Ok(kept) = self.kept(seat) else { return Short::TakeLong };
        let Some(hit) = self.plan.steps.first().and_then(|step| step.hit_fast(kept, cost, now))
        else {
            return Short::TakeLong;
        };
        *verdict = Verdict::from_single(&hit.decision());
        let Some(packed) = hit.kept else { return Short::Decided };
        let Some(word) = Word::packed(packed, self.epoch) else { return Short::TakeLong };
        if let Seat::Taken(lane) = seat {
            self.table.put(lane, name, word);
            return Short::Decided;
        }
        if self.add(budget, name, word, seat, since) { Short::Added } else { Short::NoRoom }
    }

    /// One limit whose state is kept whole, or will be: a log, a smooth limiter, a debt; or a clock that was set back. What
    /// the core makes of the state is kept, also when it denies: it may have been moved to the new time.
    #[inline(never)]
    fn hit_single(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Short {
        let Some(step) = self.plan.steps.first().filter(|step| step.supports_single_hit(cost))
        else {
            return Short::TakeLong;
        };
        if !self.epoch.suits(now) {
            // What does not fit may do so once the table is looked after.
            return Short::TakeLong;
        }
        let since = self.epoch.since(now);
        let name = name(hash, 0);
        let seat = self.table.seat(name, since);
        let Seat::Taken(lane) = seat else {
            let mut state = State::New;
            *verdict = Verdict::from_single(&step.hit_single(&mut state, cost, now));
            if state == State::New {
                return Short::Decided;
            }
            let word = word_of(&mut self.slab, self.epoch, step.limit(), state);
            return match self.add(budget, name, word, seat, since) {
                true => Short::Added,
                false => {
                    self.drop_whole(word);
                    Short::NoRoom
                }
            };
        };
        let word = match self.table.word(lane).content(self.epoch) {
            Content::Packed(packed) => {
                let mut state = step.limit().unpack(packed);
                *verdict = Verdict::from_single(&step.hit_single(&mut state, cost, now));
                word_of(&mut self.slab, self.epoch, step.limit(), state)
            }
            Content::Whole(place) => {
                let Some(Whole::State(state)) = self.slab.get_mut(place) else {
                    return Short::TakeLong;
                };
                *verdict = Verdict::from_single(&step.hit_single(state, cost, now));
                let limit = step.limit();
                let packed = limit.pack(state).and_then(|packed| Word::packed(packed, self.epoch));
                match packed {
                    None if *state != State::New => {
                        Word::whole(place, limit.expires_at(state), self.epoch)
                    }
                    other => {
                        self.slab.take(place);
                        other.unwrap_or(Word::GONE)
                    }
                }
            }
        };
        self.table.put(lane, name, word);
        Short::Decided
    }

    /// Gives a newcomer its lane, if there is room.
    #[inline(never)]
    fn add(&mut self, budget: &Budget, name: u64, word: Word, seat: Seat, since: Since) -> bool {
        let needs_room = matches!(seat, Seat::Fresh(_) | Seat::Full);
        if needs_room && !self.reserve(budget, since) {
            return false;
        }
        self.write(budget, name, word, since);
        budget.release(usize::from(needs_room));
        true
    }

    #[inline(never)]
    fn hit_several(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> Short {
        let since = self.epoch.since(now);
        let steps = self.plan.steps.len();
        if steps > SHORT_STEPS_MAX {
            return Short::TakeLong;
        }
        let mut all = [UNASKED; SHORT_STEPS_MAX];
        let all = &mut all[..steps];
        for (index, (step, asked)) in self.plan.steps.iter().zip(&mut *all).enumerate() {
            let seat = self.table.seat(name(hash, column(index)), since);
            let Ok(kept) = self.kept(seat) else { return Short::TakeLong };
            let Some(hit) = step.hit_fast(kept, cost, now) else { return Short::TakeLong };
            let word = hit.kept.and_then(|packed| Word::packed(packed, self.epoch));
            if word.is_none() && hit.kept.is_some() {
                return Short::TakeLong;
            }
            *asked = Asked { kept, known: matches!(seat, Seat::Taken(_)), hit, word };
        }
        if !all.iter().all(|asked| asked.hit.allowed) {
            // Nobody is charged but those who count first, and they are asked again, so that the wait is true. Of the
            // others, who agreed say how they stand as it is.
            for (step, asked) in self.plan.steps.iter().zip(&mut *all) {
                if step.limit().counts_first() {
                    let again = step.hit_fast(asked.hit.kept, cost, now);
                    let Some(again) = again else { return Short::TakeLong };
                    asked.hit = FastHit { allowed: again.allowed, after: again.after, ..asked.hit };
                    continue;
                }
                asked.word = None;
                if asked.hit.allowed {
                    asked.hit.stands = step.stands(asked.kept, now);
                }
            }
        }
        let newcomer = all.iter().all(|asked| !asked.known);
        if newcomer && !self.reserve(budget, since) {
            return Short::NoRoom;
        }
        for (index, asked) in all.iter().enumerate() {
            if let Some(word) = asked.word {
                self.write(budget, name(hash, column(index)), word, since);
            }
        }
        budget.release(usize::from(newcomer));
        let added = all.iter().any(|asked| asked.word.is_some() && !asked.known);
        let mut decisions = [UNASKED.hit.decision(); SHORT_STEPS_MAX];
        for (decision, asked) in decisions.iter_mut().zip(&*all) {
            *decision = asked.hit.decision();
        }
        *verdict = judge(&decisions[..steps]);
        if added { Short::Added } else { Short::Decided }
    }

    /// What is kept in a seat, unless it is kept whole.
    #[inline]
    fn kept(&self, seat: Seat) -> Result<Option<Packed>, ()> {
        let Seat::Taken(lane) = seat else { return Ok(None) };
        match self.table.word(lane).content(self.epoch) {
            Content::Packed(packed) => Ok(Some(packed)),
            Content::Whole(_) => Err(()),
        }
    }

    /// Sets a lane aside for a newcomer at `now`.
    pub(crate) fn reserve_at(&mut self, budget: &Budget, now: Timestamp) -> bool {
        self.reserve(budget, self.epoch.since(now))
    }

    /// Sets a lane aside for a newcomer; looks for lanes that have run out if that may help.
    fn reserve(&mut self, budget: &Budget, since: Since) -> bool {
        budget.reserve() || {
            self.reclaim(budget, since);
            budget.reserve()
        }
    }
}

/// The word for a state, which is kept whole if it cannot be packed.
pub(crate) fn word_of(slab: &mut Slab, epoch: Epoch, limit: &Limit, state: State) -> Word {
    if state == State::New {
        return Word::GONE;
    }
    let packed = limit.pack(&state).and_then(|packed| Word::packed(packed, epoch));
    packed.unwrap_or_else(|| {
        let expires_at = limit.expires_at(&state);
        Word::whole(slab.keep(Whole::State(state)), expires_at, epoch)
    })
}
