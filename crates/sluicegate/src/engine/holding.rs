//! A request that is settled later: reserved or booked first, then committed or cancelled.
//!
//! Limits of Envoy's form count what comes when it comes, so nothing can be held of them, and a request that is under one is refused before
//! anything is charged. Who settles names the request again, with the id that it was held under: nothing is kept beside the counters themselves, and so
//! whoever has them can settle. A rule that knows nothing of the id, since it came later, has nothing to settle.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::plan::{List, ListMatch, Plan};
use sluicegate_rules::request::Request;
use sluicegate_rules::set::RuleNo;

use super::check::{Manner, Want, first_alike, most_of};
use super::{Checked, Engine, Snapshot};
use crate::backend::{StoreError, StoreFailure};
use crate::limiter::{Asked, ask_each};

/// Why nothing is held, or nothing was settled. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldError {
    /// A descriptor is under a limit of Envoy's form, which counts what comes when it comes.
    CountsAtOnce {
        /// Which one, by its place.
        descriptor: usize,
    },
    /// A descriptor is under a limit that nodes count by themselves and tell each other of: nothing is held for anybody.
    Told {
        /// Which one, by its place.
        descriptor: usize,
    },
    /// A limit has no meaning for it, or holds too much already.
    Refused(Refusal),
    /// The store did not answer.
    Store(StoreFailure),
    /// Nothing is held under this id: it was never given, is settled, or ran out more than a day ago.
    Unknown,
}

/// Which operation a cost is part of.
type OpOf<'a> = &'a dyn Fn(u64) -> Op;

// === impl Engine ===

impl Engine {
    /// An id that nobody else has, and nobody can guess: what is held under it is settled by it.
    ///
    /// ```
    /// use sluicegate::Engine;
    ///
    /// assert_ne!(Engine::new_holder(), Engine::new_holder());
    /// ```
    #[must_use]
    pub fn new_holder() -> Holder {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Holder(KEY.get_or_init(RandomState::new).hash_one(next))
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// As a check, to be settled or cancelled later; after `ttl` it is cancelled by itself. What may go is held under `holder`.
    ///
    /// A slot of a concurrency limit is held until then, or until its lease ends.
    ///
    /// ```
    /// # #[cfg(feature = "config")] {
    /// use sluicegate::rules::request::{Descriptor, Entry, Request};
    /// use sluicegate::{Checked, Engine, Span, rules_of};
    ///
    /// let engine = Engine::new(rules_of(
    ///     "
    /// domain: llm
    /// descriptors:
    ///   - key: user
    ///     limits: { algorithm: token_bucket, rate: 100000/day }
    /// ",
    /// )?)?;
    /// let entries = [Entry::new("user", "alice")];
    /// let descriptors = [Descriptor::of(&entries)];
    /// let request = |hits| Request { domain: "llm", descriptors: &descriptors, hits };
    ///
    /// let (rules, now, mut checked) = (engine.snapshot(), engine.now(), Checked::default());
    /// let holder = Engine::new_holder();
    /// rules.reserve(&request(4_000), holder, Span::from_secs(60), now, &mut checked)?;
    /// assert_eq!(checked.statuses[0].verdict.remaining, Some(96_000));
    /// assert_eq!(rules.commit(&request(1_250), holder, now, &mut checked)?, 2_750);
    /// assert_eq!(checked.statuses[0].verdict.remaining, Some(98_750));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When something that it is under cannot be reserved.
    pub fn reserve(
        &self,
        request: &Request<'_>,
        holder: Holder,
        ttl: Span,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        self.hold(&|cost| Op::Reserve { cost, ttl, holder }, request, holder, now, checked)?;
        self.count_unless_listed(checked);
        Ok(())
    }

    /// As a check by somebody who would wait up to `patience`: books a turn ahead. How long it is until then is what the statuses say,
    /// and [`Checked::wait`].
    ///
    /// A slot of a concurrency limit cannot be booked: it is free now, or this is denied.
    ///
    /// # Errors
    /// When something that it is under cannot be booked.
    pub fn book(
        &self,
        request: &Request<'_>,
        holder: Holder,
        patience: Span,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let op = |cost| Op::Acquire { cost, max_wait: patience, holder: Some(holder) };
        self.hold(&op, request, holder, now, checked)?;
        self.count_unless_listed(checked);
        Ok(())
    }

    /// Settles what was reserved with what was really used, which the request's hits say: less gives the rest back, more is charged, into debt if need
    /// be. Slots are freed. How much was given back by the least generous limit.
    ///
    /// # Errors
    /// When nothing is held under this id.
    pub fn commit(
        &self,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        self.settle(&|cost| Op::Commit { cost, holder }, request, holder, now, checked)
    }

    /// Gives back what is held, as far as it can be. How much that was, by the least generous limit.
    ///
    /// # Errors
    /// When nothing is held under this id.
    pub fn cancel(
        &self,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        self.settle(&|_| Op::Cancel { holder }, request, holder, now, checked)
    }

    /// Asks for all of it, and counts nothing.
    pub(super) fn hold(
        &self,
        op: OpOf<'_>,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        if self.begin(request, checked).is_some_and(|listed| deny_listed(listed, checked)) {
            return Ok(());
        }
        let Checked { allowed, statuses, plan, each } = checked;
        self.refuse_counting(plan)?;
        let mut alone = Vec::new();
        for (place, no) in self.steps(plan, |manner| matches!(manner, Manner::Once(_))) {
            statuses[place].verdict = match first_alike(plan, place) {
                first if first < place => statuses[first].verdict,
                _ => {
                    let asked = self.asked(no, plan.identity(&plan.steps()[place]));
                    let answered = asked.try_ask(op(most_of(plan, place)), now);
                    let answered = answered.map_err(|refusal| {
                        give_back(&alone, holder, now);
                        HoldError::Refused(refusal)
                    })?;
                    alone.push(asked);
                    answered.verdict
                }
            };
        }
        *allowed = self.is_allowed(statuses);
        let firsts = self
            .steps(plan, |manner| matches!(manner, Manner::Together(_)))
            .filter(|(place, _)| first_alike(plan, *place) == *place);
        let asked: Vec<(Asked<'_>, u64)> = firsts
            .map(|(place, no)| {
                (self.asked(no, plan.identity(&plan.steps()[place])), most_of(plan, place))
            })
            .collect();
        let peek: OpOf<'_> = &|cost| Op::Peek { cost };
        let said = ask_each(&asked, if *allowed { op } else { peek }, now, each);
        said.map_err(|refusal| {
            give_back(&alone, holder, now);
            HoldError::Refused(refusal)
        })?;
        let mut said = each.iter();
        for (place, _) in self.steps(plan, |manner| matches!(manner, Manner::Together(_))) {
            let first = first_alike(plan, place);
            statuses[place].verdict = match first < place {
                true => statuses[first].verdict,
                false => said.next().copied().unwrap_or(statuses[place].verdict),
            };
        }
        *allowed = self.is_allowed(statuses);
        if !*allowed {
            // A quota that agreed has nothing to hold for a request that does not go.
            give_back(&alone, holder, now);
        }
        Ok(())
    }

    /// Counts the hits of a request, unless a list decided it.
    pub fn count_unless_listed(&self, checked: &Checked) {
        if checked.listed().is_none() {
            self.count(&checked.plan, &checked.statuses);
        }
    }

    fn settle(
        &self,
        op: OpOf<'_>,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        if self.begin(request, checked).is_some() {
            return Ok(0);
        }
        let Checked { statuses, plan, .. } = checked;
        let (mut limited, mut returned, mut freed) = (false, None::<u64>, None::<u64>);
        let holds = |manner| matches!(manner, Manner::Once(_) | Manner::Together(_));
        for (place, no) in self.steps(plan, holds) {
            limited = true;
            let first = first_alike(plan, place);
            if first < place {
                statuses[place].verdict = statuses[first].verdict;
                continue;
            }
            let asked = self.asked(no, plan.identity(&plan.steps()[place]));
            let settled = asked
                .try_ask(op(most_of(plan, place)), now)
                // There may be a slot that came without a reservation.
                .or_else(|_| asked.try_ask(Op::Cancel { holder }, now));
            statuses[place].verdict = match settled {
                Ok(answer) => {
                    let back = answer.returned.unwrap_or(0);
                    // What a slot was worth is told only where nothing else was held beside it.
                    let least = if asked.has_slots_only() { &mut freed } else { &mut returned };
                    *least = Some(least.map_or(back, |least| least.min(back)));
                    answer.verdict
                }
                Err(_) => asked.ask(Op::Peek { cost: 0 }, now),
            };
        }
        match returned.or(freed) {
            Some(returned) => Ok(returned),
            None if limited => Err(HoldError::Unknown),
            None => Ok(0),
        }
    }

    /// Steps that are asked in a manner, by their place, and the rule of each.
    fn steps<'p>(
        &'p self,
        plan: &'p Plan,
        wanted: impl Fn(Manner) -> bool + 'p,
    ) -> impl Iterator<Item = (usize, RuleNo)> + 'p {
        plan.steps().iter().enumerate().filter_map(move |(place, step)| {
            match self.manner(Want::Hit, step) {
                manner @ (Manner::Once(no) | Manner::Together(no)) if wanted(manner) => {
                    Some((place, no))
                }
                _ => None,
            }
        })
    }

    /// Refuses requests under limits that count at once.
    ///
    /// # Errors
    /// With the index of the descriptor.
    pub fn refuse_counting(&self, plan: &Plan) -> Result<(), HoldError> {
        let counts = |step| matches!(step, Manner::Alone(_) | Manner::Override(_));
        let mut steps = plan.steps().iter();
        match steps.position(|step| counts(self.manner(Want::Hit, step))) {
            Some(descriptor) => Err(HoldError::CountsAtOnce { descriptor }),
            None => Ok(()),
        }
    }
}

/// A list has its say; it always has one.
fn deny_listed(listed: ListMatch, checked: &mut Checked) -> bool {
    if listed.list == List::Deny {
        checked.deny_listed(listed);
    }
    true
}

fn give_back(held: &[Asked<'_>], holder: Holder, now: Timestamp) {
    for asked in held {
        // One that denied holds nothing.
        let _ = asked.try_ask(Op::Cancel { holder }, now);
    }
}

// === impl HoldError ===

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CountsAtOnce { descriptor } => write!(
                f,
                "descriptors[{descriptor}] is under a limit of Envoy's form, which counts what comes when it comes; write it with `limits`, such as \
                 {{ algorithm: fixed_window, rate: 100/m }}"
            ),
            Self::Told { descriptor } => write!(
                f,
                "descriptors[{descriptor}] is under a rule that is `eventual`: nodes tell each other what they have counted, and nothing is held for anybody; \
                 write `consistency: leased` or `strict`"
            ),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Store(failure) => failure.fmt(f),
            Self::Unknown => f.write_str(
                "nothing is held under this id: it was never given, is settled, or ran out long ago",
            ),
        }
    }
}

impl std::error::Error for HoldError {}

impl From<StoreError> for HoldError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.failure)
    }
}
