//! Decides about one request: all its limiters agree, or none keeps anything of it.
//!
//! Nearly always every limiter *polices*, that is, says yes or no at once; then they are asked as one, in a single hit. A
//! limiter may also give *slots*, which are held until the response has ended, or *turns*, which are waited for. With such
//! limiters among them each is asked in its own way, and leaves a guard: what polices is reserved, slots are held, turns
//! are booked. When one says no, the guards of those before it are dropped, and that gives everything back.
//!
//! They are asked in this order because a place in the middle of a queue cannot be given back: whoever is
//! over a limit of its own never gets as far as the queue of everybody.

mod held;
mod reserved;
mod said;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Outcome, Verdict};

use self::held::{Guard, Held};
use self::reserved::Reserved;
use self::said::Heard;
pub(super) use self::said::Said;
use super::layer::{Config, WAIT_MAX};
use super::missing::{MISSING_KEY, Missing};
use crate::clock::{duration, span};
use crate::{Ask, Denied, Limiter, Permit, Policy, Together};

/// What becomes of a request.
pub(super) enum Admission {
    Passed(Passed),
    Denied(Said),
    /// It has to wait before it is known, or before it may go.
    Waits(Waits),
}

/// Dropped, it gives back what has been booked.
pub(super) type Waits = Pin<Box<dyn Future<Output = Result<Passed, Said>> + Send>>;

/// A request that may go.
pub(super) struct Passed {
    /// What is told; `None` if no limiter had a say.
    pub(super) said: Option<Said>,
    /// What is held until the response has ended.
    pub(super) slots: Vec<Permit>,
}

/// What a request wants of whom, without the request.
pub(super) struct Wanted {
    /// The places of the gates that have a say, and their keys.
    keys: Vec<(usize, Vec<u8>)>,
    cost: u64,
}

/// There is no key, and that is to be rejected.
#[derive(Debug)]
pub(super) struct NoKey;

/// Decides, or knows what to wait for.
pub(super) fn admit(config: &Arc<Config>, wanted: Wanted) -> Admission {
    let Some(question) = Question::new(config, &wanted) else {
        return Admission::Passed(Passed { said: None, slots: Vec::new() });
    };
    if question.is_plain() {
        let said = question.hit();
        if !said.is_allowed() {
            return Admission::Denied(said);
        }
        return Admission::Passed(Passed { said: Some(said), slots: Vec::new() });
    }
    if question.waits_for_slots() {
        return Admission::Waits(Box::pin(admit_patiently(config.clone(), wanted)));
    }
    let patience = question.patience;
    match question.decide(Vec::new(), patience) {
        Err(said) => Admission::Denied(said),
        Ok((said, held)) if held.has_to_wait() => Admission::Waits(Box::pin(wait(said, held))),
        Ok((said, held)) => Admission::Passed(Passed { said: Some(said), slots: held.start() }),
    }
}

async fn wait(said: Said, held: Held) -> Result<Passed, Said> {
    Ok(Passed { said: Some(said), slots: held.wait().await })
}

/// Waits for slots first, so that nothing is booked while it is not known whether there will be one.
async fn admit_patiently(config: Arc<Config>, wanted: Wanted) -> Result<Passed, Said> {
    let Some(question) = Question::new(&config, &wanted) else {
        return Ok(Passed { said: None, slots: Vec::new() });
    };
    let deadline = question.now().after(span(question.patience));
    let left = || duration(deadline.since(question.now()));
    let mut slots = Vec::new();
    for part in question.parts.iter().filter(|part| part.manner == Manner::Slots) {
        let slot = part.permit_async(question.cost, left()).await;
        let denied = slot.is_err();
        slots.push(slot);
        if denied {
            break;
        }
    }
    let patience = left();
    let (said, held) = question.decide(slots, patience)?;
    wait(said, held).await
}

/// A request and the limiters that have a say on it.
struct Question<'a> {
    /// In the order of their manners.
    parts: Vec<Part<'a>>,
    cost: u64,
    /// The longest wait, for those who make anybody wait at all.
    patience: Duration,
    /// Whether all do.
    patient: bool,
}

/// One limiter's part in it.
struct Part<'a> {
    limiter: &'a Limiter,
    key: &'a [u8],
    policies: Arc<[Policy]>,
    manner: Manner,
}

/// What a limiter does about a request. The order is that in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Manner {
    Police,
    Slots,
    Turns,
}

// === impl Wanted ===

impl Wanted {
    pub(super) fn new(config: &Config, request: &Parts) -> Result<Self, NoKey> {
        let mut keys = Vec::with_capacity(config.gates.len());
        for (place, gate) in config.gates.iter().enumerate() {
            let mut key = Vec::new();
            if gate.key.identify(request, &mut key).is_none() {
                match config.missing {
                    Missing::Shared => key = MISSING_KEY.to_vec(),
                    Missing::Pass => continue,
                    Missing::Reject => return Err(NoKey),
                }
            }
            keys.push((place, key));
        }
        Ok(Self { keys, cost: config.cost_of(request) })
    }
}

// === impl Question ===

impl<'a> Question<'a> {
    /// `None` if nobody has a say.
    fn new(config: &'a Config, wanted: &'a Wanted) -> Option<Self> {
        let patient = config.patience.is_some();
        let part = |(place, key): &'a (usize, Vec<u8>)| {
            let limiter = &config.gates.get(*place)?.limiter;
            // Asked anew for every request: limits may have been changed.
            let policies = limiter.policies();
            let manner = Manner::of(&policies, patient);
            Some(Part { limiter, key, policies, manner })
        };
        let mut parts: Vec<_> = wanted.keys.iter().filter_map(part).collect();
        parts.sort_by_key(|part| part.manner);
        let patience = config.patience.unwrap_or(WAIT_MAX);
        (!parts.is_empty()).then_some(Self { parts, cost: wanted.cost, patience, patient })
    }

    /// By the first limiter's clock, as [`Together`] has it.
    fn now(&self) -> Timestamp {
        self.parts.first().map(|part| part.limiter.now()).unwrap_or_default()
    }

    /// Whether one hit on all of them is all there is to do.
    fn is_plain(&self) -> bool {
        self.parts.iter().all(|part| part.manner == Manner::Police)
    }

    fn waits_for_slots(&self) -> bool {
        self.patient && self.parts.iter().any(|part| part.manner == Manner::Slots)
    }

    fn hit(self) -> Said {
        let now = self.now();
        let verdict = match self.parts.as_slice() {
            [part] => part.ask(self.cost).at(now).hit(),
            parts => together(parts).cost(self.cost).at(now).hit(),
        };
        self.say(verdict, now)
    }

    /// Asks one after the other. `slots` are those that have been waited for.
    fn decide(
        self,
        slots: Vec<Result<Permit, Denied>>,
        patience: Duration,
    ) -> Result<(Said, Held), Said> {
        let now = self.now();
        match self.hear(slots, patience, now) {
            Ok((verdict, held)) => Ok((self.say(verdict, now), held)),
            Err(verdict) => Err(self.say(verdict, now)),
        }
    }

    fn hear(
        &self,
        slots: Vec<Result<Permit, Denied>>,
        patience: Duration,
        now: Timestamp,
    ) -> Result<(Verdict, Held), Verdict> {
        let mut slots = slots.into_iter();
        let mut held = Held::default();
        let mut heard = Vec::new();
        let mut place = 0;
        for group in self.groups() {
            let answer = match group {
                [part] if part.manner == Manner::Slots => {
                    let slot = slots.next().unwrap_or_else(|| part.permit(self.cost, patience));
                    slot.and_then(|permit| {
                        in_time(permit.verdict(), patience)?;
                        Ok(Guard::slot(permit, part.limiter))
                    })
                }
                [part] if part.manner == Manner::Turns => {
                    part.ask(self.cost).within(patience).book().map(Guard::Turn)
                }
                parts => Reserved::new(parts, self.cost, now).map(Guard::Reserved),
            };
            let guard = answer.map_err(|denied| said::denial(denied, place))?;
            let policies = || group.iter().flat_map(|part| part.policies.iter());
            let enforced = policies().any(|policy| policy.enforced);
            heard.push(Heard { verdict: *guard.verdict(), place, enforced });
            place += policies().count();
            held.keep(guard);
        }
        Ok((said::all_agreed(&heard), held))
    }

    /// Those who are asked at once.
    fn groups(&self) -> impl Iterator<Item = &[Part<'a>]> {
        let police = self.parts.partition_point(|part| part.manner == Manner::Police);
        let (police, others) = self.parts.split_at(police);
        police.chunks(police.len().max(1)).chain(others.chunks(1))
    }

    fn say(self, verdict: Verdict, now: Timestamp) -> Said {
        let policies = match <[Part<'_>; 1]>::try_from(self.parts) {
            Ok([part]) => part.policies,
            Err(parts) => parts.iter().flat_map(|part| part.policies.iter().cloned()).collect(),
        };
        Said { verdict, policies, now }
    }
}

fn together<'a>(parts: &[Part<'a>]) -> Together<'a> {
    parts.iter().fold(Together::new(), |all, part| all.and(part.limiter, part.key))
}

// === impl Part ===

impl<'a> Part<'a> {
    fn ask(&self, cost: u64) -> Ask<'a> {
        self.limiter.of(self.key).cost(cost)
    }

    /// A slot, at once.
    fn permit(&self, cost: u64, patience: Duration) -> Result<Permit, Denied> {
        self.look(cost, patience)?;
        self.ask(cost).permit()
    }

    /// A slot, as soon as there is one.
    async fn permit_async(&self, cost: u64, patience: Duration) -> Result<Permit, Denied> {
        self.look(cost, patience)?;
        self.ask(cost).within(patience).permit_async().await
    }

    /// The turn of a limit beside the slots comes with them and is not given back: looks whether it would be in time.
    fn look(&self, cost: u64, patience: Duration) -> Result<(), Denied> {
        if self.policies.iter().any(makes_wait) {
            in_time(&self.ask(cost).peek(), patience)?;
        }
        Ok(())
    }
}

/// Denies what would have to wait too long.
fn in_time(verdict: &Verdict, patience: Duration) -> Result<(), Denied> {
    match verdict.outcome {
        Outcome::Allow { wait } if wait > span(patience) => {
            let retry_after = wait.less(span(patience));
            Err(Denied::NotNow(Verdict { outcome: Outcome::Deny { retry_after }, ..*verdict }))
        }
        _ => Ok(()),
    }
}

// === impl Manner ===

impl Manner {
    fn of(policies: &[Policy], patient: bool) -> Self {
        if policies.iter().any(|policy| policy.algorithm == "concurrency") {
            Self::Slots
        } else if patient || policies.iter().any(makes_wait) {
            Self::Turns
        } else {
            Self::Police
        }
    }
}

/// Whether a limit is there to make requests wait.
fn makes_wait(policy: &Policy) -> bool {
    matches!(policy.algorithm, "leaky_bucket" | "smooth_bursty" | "warm_up")
}
