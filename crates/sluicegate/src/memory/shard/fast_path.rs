//! The fast path of a decision: a hit on hard limits with packed states, which is nearly every hit.
//!
//! Its results equal those of the slow path ([`Shard::take`], core's account, [`Shard::put`])
//! without building an account; a property test compares the two.

use sluicegate_core::limit::{Limit, State};
use sluicegate_core::packed::{FastHit, LimitStatus, Packed};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};
use sluicegate_core::verdict::{Verdict, judge};

use super::{Budget, Shard, column, name};
use crate::memory::slab::{Slab, Whole};
use crate::memory::table::Probe;
use crate::memory::word::{Content, Epoch, Since, Word};

/// Maximum number of limits of a plan on the fast path.
const FAST_STEPS_MAX: usize = 4;

/// The result of the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FastPath {
    /// Decided.
    Decided,
    /// Decided, and a lane was added: the table may have been rebuilt.
    Added,
    /// Not decided: take the slow path.
    Fallback,
    /// Not decided: there is no room for a newcomer.
    NoRoom,
}

/// A hit on one step.
#[derive(Clone, Copy)]
struct StepHit {
    stored: Option<Packed>,
    known: bool,
    hit: FastHit,
    /// The word to write.
    word: Option<Word>,
}

const NO_HIT: StepHit = StepHit {
    stored: None,
    known: false,
    hit: FastHit {
        allowed: true,
        after: Span::ZERO,
        status: LimitStatus { remaining: None, reset_after: Span::ZERO, beyond: 0 },
        stored: None,
    },
    word: None,
};

impl Shard {
    /// A hit of `cost` by an identity.
    ///
    /// The verdict is written in place: as a return value it would be copied three times.
    #[inline]
    pub(crate) fn hit(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> FastPath {
        // The most common case: one bucket, a known identity in its home bucket.
        let plan = &*self.plan;
        if let Some(bucket) = &plan.bucket
            && cost > 0
            && let Some((lane, ())) = self.lanes.table.at_home(name(hash, 0))
            && let Some(packed) = lane.whole_micros(self.lanes.epoch, now)
            && let Some(hit) = bucket.hit(Some(packed), cost, now)
        {
            if let Some(packed) = hit.stored {
                match Word::packed(packed, self.lanes.epoch) {
                    Some(word) => *lane = word,
                    None => return FastPath::Fallback,
                }
            }
            *verdict = Verdict::from_single(&hit.decision());
            return FastPath::Decided;
        }
        self.hit_slow(budget, hash, cost, now, verdict)
    }

    #[inline(never)]
    fn hit_slow(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> FastPath {
        let now = now.min(NOW_MAX);
        if !self.plan.holds_at(now) && !self.lanes.epoch.suits(now) {
            // The table must be rebased first, under the plan of its states.
            return FastPath::Fallback;
        }
        let plan = self.plan_at(now);
        let serves = plan.serves(cost);
        if plan.steps.len() > 1 {
            return match serves {
                true => self.hit_several(budget, hash, cost, now, verdict),
                false => FastPath::Fallback,
            };
        }
        let fast = match serves {
            true => self.hit_fast(budget, hash, cost, now, verdict),
            false => FastPath::Fallback,
        };
        match fast {
            FastPath::Fallback => self.hit_single(budget, hash, cost, now, verdict),
            decided => decided,
        }
    }

    /// One limit with a packed state.
    #[inline]
    fn hit_fast(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> FastPath {
        let since = self.lanes.epoch.since(now);
        let name = name(hash, 0);
        let probe = self.lanes.table.probe(name, since);
        let Ok(stored) = self.stored(probe) else { return FastPath::Fallback };
        let Some(hit) = self.plan.steps.first().and_then(|step| step.hit_fast(stored, cost, now))
        else {
            return FastPath::Fallback;
        };
        *verdict = Verdict::from_single(&hit.decision());
        let Some(packed) = hit.stored else { return FastPath::Decided };
        let Some(word) = Word::packed(packed, self.lanes.epoch) else { return FastPath::Fallback };
        if let Probe::Occupied(lane) = probe {
            self.put_word(lane, name, word);
            return FastPath::Decided;
        }
        if self.add(budget, name, word, probe, since) { FastPath::Added } else { FastPath::NoRoom }
    }

    /// One limit with an unpacked state: a log, a smooth limiter, a debt, or after the clock was
    /// set back. The state is stored even after a denial: it may have moved to the new time.
    #[inline(never)]
    fn hit_single(
        &mut self,
        budget: &Budget,
        hash: u64,
        cost: u64,
        now: Timestamp,
        verdict: &mut Verdict,
    ) -> FastPath {
        let Some(step) = self.plan.steps.first().filter(|step| step.supports_single_hit(cost))
        else {
            return FastPath::Fallback;
        };
        if !self.lanes.epoch.suits(now) {
            // The state may fit a lane once the table is rebased.
            return FastPath::Fallback;
        }
        let since = self.lanes.epoch.since(now);
        let name = name(hash, 0);
        let probe = self.lanes.table.probe(name, since);
        let Probe::Occupied(lane) = probe else {
            let mut state = State::New;
            *verdict = Verdict::from_single(&step.hit_single(&mut state, cost, now));
            if state == State::New {
                return FastPath::Decided;
            }
            let word = word_of(&mut self.lanes.slab, self.lanes.epoch, step.limit(), state);
            return match self.add(budget, name, word, probe, since) {
                true => FastPath::Added,
                false => {
                    self.lanes.slab.drop_state(word);
                    FastPath::NoRoom
                }
            };
        };
        let word = match self.lanes.table.word(lane).content(self.lanes.epoch) {
            Content::Packed(packed) => {
                let mut state = step.limit().unpack(packed);
                *verdict = Verdict::from_single(&step.hit_single(&mut state, cost, now));
                word_of(&mut self.lanes.slab, self.lanes.epoch, step.limit(), state)
            }
            Content::Whole(index) => {
                let Some(Whole::State(state)) = self.lanes.slab.get_mut(index) else {
                    return FastPath::Fallback;
                };
                *verdict = Verdict::from_single(&step.hit_single(state, cost, now));
                let limit = step.limit();
                let packed =
                    limit.pack(state).and_then(|packed| Word::packed(packed, self.lanes.epoch));
                match packed {
                    None if *state != State::New => {
                        Word::whole(index, limit.expires_at(state), self.lanes.epoch)
                    }
                    other => {
                        self.lanes.slab.take(index);
                        other.unwrap_or(Word::GONE)
                    }
                }
            }
        };
        self.put_word(lane, name, word);
        FastPath::Decided
    }

    /// Adds a lane for a newcomer, if there is room.
    #[inline(never)]
    fn add(&mut self, budget: &Budget, name: u64, word: Word, probe: Probe, since: Since) -> bool {
        let needs_room = matches!(probe, Probe::Empty(_) | Probe::Full);
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
    ) -> FastPath {
        let since = self.lanes.epoch.since(now);
        let steps = self.plan.steps.len();
        if steps > FAST_STEPS_MAX {
            return FastPath::Fallback;
        }
        let mut all = [NO_HIT; FAST_STEPS_MAX];
        let all = &mut all[..steps];
        for (index, (step, step_hit)) in self.plan.steps.iter().zip(&mut *all).enumerate() {
            let probe = self.lanes.table.probe(name(hash, column(index)), since);
            let Ok(stored) = self.stored(probe) else { return FastPath::Fallback };
            let Some(hit) = step.hit_fast(stored, cost, now) else { return FastPath::Fallback };
            let word = hit.stored.and_then(|packed| Word::packed(packed, self.lanes.epoch));
            if word.is_none() && hit.stored.is_some() {
                return FastPath::Fallback;
            }
            *step_hit = StepHit { stored, known: matches!(probe, Probe::Occupied(_)), hit, word };
        }
        if !all.iter().all(|step_hit| step_hit.hit.allowed) {
            // Only limits that count first are charged; they are evaluated again for their wait.
            // The others that allowed the hit report their uncharged status.
            for (step, step_hit) in self.plan.steps.iter().zip(&mut *all) {
                if step.limit().counts_first() {
                    let again = step.hit_fast(step_hit.hit.stored, cost, now);
                    let Some(again) = again else { return FastPath::Fallback };
                    step_hit.hit =
                        FastHit { allowed: again.allowed, after: again.after, ..step_hit.hit };
                    continue;
                }
                step_hit.word = None;
                if step_hit.hit.allowed {
                    step_hit.hit.status = step.status(step_hit.stored, now);
                }
            }
        }
        let newcomer = all.iter().all(|step_hit| !step_hit.known);
        if newcomer && !self.reserve(budget, since) {
            return FastPath::NoRoom;
        }
        for (index, step_hit) in all.iter().enumerate() {
            if let Some(word) = step_hit.word {
                self.write(budget, name(hash, column(index)), word, since);
            }
        }
        budget.release(usize::from(newcomer));
        let added = all.iter().any(|step_hit| step_hit.word.is_some() && !step_hit.known);
        let mut decisions = [NO_HIT.hit.decision(); FAST_STEPS_MAX];
        for (decision, step_hit) in decisions.iter_mut().zip(&*all) {
            *decision = step_hit.hit.decision();
        }
        *verdict = judge(&decisions[..steps]);
        if added { FastPath::Added } else { FastPath::Decided }
    }

    /// The packed state of a lane; an error if the state is whole.
    #[inline]
    fn stored(&self, probe: Probe) -> Result<Option<Packed>, ()> {
        let Probe::Occupied(lane) = probe else { return Ok(None) };
        match self.lanes.table.word(lane).content(self.lanes.epoch) {
            Content::Packed(packed) => Ok(Some(packed)),
            Content::Whole(_) => Err(()),
        }
    }

    /// Reserves a lane for a newcomer at `now`.
    pub(crate) fn reserve_at(&mut self, budget: &Budget, now: Timestamp) -> bool {
        self.reserve(budget, self.lanes.epoch.since(now))
    }

    fn reserve(&mut self, budget: &Budget, since: Since) -> bool {
        self.lanes.reserve(budget, since, |()| {})
    }

    /// Counts an operation; whether a sweep is due.
    #[inline]
    pub(crate) fn sweep_due(&mut self) -> bool {
        self.lanes.sweep_due()
    }
}

/// The word of a state, which is stored in the slab if it cannot be packed.
pub(crate) fn word_of(slab: &mut Slab, epoch: Epoch, limit: &Limit, state: State) -> Word {
    if state == State::New {
        return Word::GONE;
    }
    let packed = limit.pack(&state).and_then(|packed| Word::packed(packed, epoch));
    packed.unwrap_or_else(|| {
        let expires_at = limit.expires_at(&state);
        Word::whole(slab.insert(Whole::State(state)), expires_at, epoch)
    })
}
