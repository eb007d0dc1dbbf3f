//! Admission of one request: all its limiters admit it, or none is charged.
//!
//! Nearly always every limiter *polices*, that is, allows or denies at once; then one hit decides
//! about all of them. A limiter may also grant *slots*, guards until the response has ended, or
//! *turns*, which are waited for. With such limiters each kind leaves a guard: a reservation, a
//! permit or a booking. A denial drops the guards acquired before it, which releases them.
//!
//! Turns come last, because a position in the middle of a queue cannot be released: a client over
//! its own limit never reaches the shared queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Outcome, Verdict};

use super::denial::Rejection;
use super::guards::{GroupReservation, Guard, Guards, HeldSlot, Report};
use super::layer::{Config, LayerLimiter, MISSING_KEY, Missing, Reported, WAIT_MAX};
use super::shared;
use super::verdict::{self, GroupVerdict, OwnedVerdict};
use crate::clock::span;
use crate::limiter::split;
use crate::{Denied, KeyedOps, Limiter, Permit, Policy, Together};

/// The outcome for a request.
pub(super) enum AdmissionOutcome {
    Admitted(Admitted),
    Denied(Rejection),
    /// It waits before the decision, or for its turn.
    Pending(PendingAdmission),
}

/// Dropping it releases its bookings.
pub(super) type PendingAdmission =
    Pin<Box<dyn Future<Output = Result<Admitted, Rejection>> + Send>>;

/// An admitted request.
pub(super) struct Admitted {
    /// `None` if no limiter applies.
    pub(super) verdict: Option<OwnedVerdict>,
    /// Held until the response has ended.
    pub(super) slots: Vec<HeldSlot>,
}

/// Keys and cost of a request.
pub(super) struct RequestKeys {
    /// Indexes of the limiters that apply, and their keys.
    pub(super) keys: Vec<(usize, Vec<u8>)>,
    pub(super) cost: u64,
}

/// A request without a key, under [`Missing::Reject`].
#[derive(Debug)]
pub(super) struct MissingKey;

/// Decides at once, or returns the future to wait for.
pub(super) fn admit(config: &Arc<Config>, keys: RequestKeys) -> AdmissionOutcome {
    if config.limiters.iter().any(|keyed| matches!(keyed.limiter, LayerLimiter::Shared(_))) {
        return AdmissionOutcome::Pending(Box::pin(shared::admit(config.clone(), keys)));
    }
    let Some(admitting) = Admitting::new(config, &keys) else {
        return AdmissionOutcome::Admitted(Admitted { verdict: None, slots: Vec::new() });
    };
    if admitting.is_plain() {
        let verdict = admitting.hit();
        if !verdict.is_allowed() {
            return AdmissionOutcome::Denied(verdict.into());
        }
        return AdmissionOutcome::Admitted(Admitted { verdict: Some(verdict), slots: Vec::new() });
    }
    if admitting.waits_for_slots() {
        return AdmissionOutcome::Pending(Box::pin(admit_after_slots(config.clone(), keys)));
    }
    let max_wait = admitting.max_wait;
    match admitting.decide(Vec::new(), max_wait) {
        Err(verdict) => AdmissionOutcome::Denied(verdict.into()),
        Ok((verdict, guards)) if guards.has_to_wait() => {
            AdmissionOutcome::Pending(Box::pin(wait(verdict, guards)))
        }
        Ok((verdict, guards)) => {
            AdmissionOutcome::Admitted(Admitted { verdict: Some(verdict), slots: guards.start() })
        }
    }
}

async fn wait(verdict: OwnedVerdict, guards: Guards) -> Result<Admitted, Rejection> {
    Ok(Admitted { verdict: Some(verdict), slots: guards.wait().await })
}

async fn admit_after_slots(config: Arc<Config>, keys: RequestKeys) -> Result<Admitted, Rejection> {
    match decide_after_slots(&config, &keys).await? {
        Some((verdict, guards)) => wait(verdict, guards).await,
        None => Ok(Admitted { verdict: None, slots: Vec::new() }),
    }
}

/// Waits for slots first, so that nothing is booked before there is a slot. `None` if no limiter in
/// memory applies.
pub(super) async fn decide_after_slots(
    config: &Config,
    keys: &RequestKeys,
) -> Result<Option<(OwnedVerdict, Guards)>, OwnedVerdict> {
    let Some(admitting) = Admitting::new(config, keys) else { return Ok(None) };
    let deadline = admitting.now().after(span(admitting.max_wait));
    let left = || deadline.since(admitting.now()).to_duration();
    let mut slots = Vec::new();
    if admitting.waits_for_slots() {
        for part in admitting.parts.iter().filter(|part| part.kind == LimiterKind::Slots) {
            let slot = part.permit_async(admitting.cost, left()).await;
            let denied = slot.is_err();
            slots.push(slot);
            if denied {
                break;
            }
        }
    }
    let max_wait = left();
    admitting.decide(slots, max_wait).map(Some)
}

/// A request and the limiters that apply to it.
struct Admitting<'a> {
    /// In the order of their kinds.
    parts: Vec<LimiterCheck<'a>>,
    cost: u64,
    /// The longest wait at limiters that make requests wait.
    max_wait: Duration,
    /// Whether all of them do.
    waits_for_all: bool,
}

/// A limiter, its key and its policies for one request.
pub(super) struct LimiterCheck<'a> {
    pub(super) limiter: &'a Limiter,
    /// The same without reports, for everything but one hit that decides.
    pub(super) quiet: &'a Limiter,
    pub(super) key: &'a [u8],
    pub(super) policies: Arc<[Policy]>,
    kind: LimiterKind,
}

/// How a limiter treats a request; limiters decide in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LimiterKind {
    Police,
    Slots,
    Turns,
}

impl RequestKeys {
    pub(super) fn new(config: &Config, request: &Parts) -> Result<Self, MissingKey> {
        let mut keys = Vec::with_capacity(config.limiters.len());
        for (index, keyed) in config.limiters.iter().enumerate() {
            let mut key = Vec::new();
            if keyed.key.identify(request, &mut key).is_none() {
                match keyed.missing.unwrap_or(config.missing) {
                    Missing::Shared => key = MISSING_KEY.to_vec(),
                    Missing::Pass => continue,
                    Missing::Reject => return Err(MissingKey),
                }
            }
            keys.push((index, key));
        }
        Ok(Self { keys, cost: config.cost_of(request) })
    }
}

impl<'a> Admitting<'a> {
    /// `None` if no limiter in memory applies.
    fn new(config: &'a Config, keys: &'a RequestKeys) -> Option<Self> {
        let waits_for_all = config.max_wait.is_some();
        let part = |(index, key): &'a (usize, Vec<u8>)| {
            let LayerLimiter::Memory(limiter) = &config.limiters.get(*index)?.limiter else {
                return None;
            };
            let Reported { limiter, quiet } = limiter;
            // Read for every request: limits may have been changed.
            let policies = limiter.policies();
            let kind = LimiterKind::of(&policies, waits_for_all);
            Some(LimiterCheck { limiter, quiet, key, policies, kind })
        };
        let mut parts: Vec<_> = keys.keys.iter().filter_map(part).collect();
        parts.sort_by_key(|part| part.kind);
        let max_wait = config.max_wait.unwrap_or(WAIT_MAX);
        (!parts.is_empty()).then_some(Self { parts, cost: keys.cost, max_wait, waits_for_all })
    }

    /// By the first limiter's clock, as in [`Together`].
    fn now(&self) -> Timestamp {
        self.parts.first().map(|part| part.limiter.now()).unwrap_or_default()
    }

    /// Whether one hit decides about all of them.
    fn is_plain(&self) -> bool {
        self.parts.iter().all(|part| part.kind == LimiterKind::Police)
    }

    fn waits_for_slots(&self) -> bool {
        self.waits_for_all && self.parts.iter().any(|part| part.kind == LimiterKind::Slots)
    }

    fn hit(self) -> OwnedVerdict {
        let now = self.now();
        let verdict = match self.parts.as_slice() {
            [part] => part.limiter.of(part.key).cost(self.cost).at(now).hit(),
            parts => {
                let all = Together::new();
                let all = parts.iter().fold(all, |all, part| all.and(part.limiter, part.key));
                all.cost(self.cost).at(now).hit()
            }
        };
        self.with_policies(verdict, now)
    }

    /// Decides group by group. `slots` are those that have been waited for.
    fn decide(
        self,
        slots: Vec<Result<Permit, Denied>>,
        max_wait: Duration,
    ) -> Result<(OwnedVerdict, Guards), OwnedVerdict> {
        let now = self.now();
        match self.check_groups(slots, max_wait, now) {
            Ok((verdict, guards)) => Ok((self.with_policies(verdict, now), guards)),
            Err(verdict) => Err(self.with_policies(verdict, now)),
        }
    }

    fn check_groups(
        &self,
        slots: Vec<Result<Permit, Denied>>,
        max_wait: Duration,
        now: Timestamp,
    ) -> Result<(Verdict, Guards), Verdict> {
        let mut slots = slots.into_iter();
        let mut guards = Guards::default();
        let mut verdicts = Vec::new();
        let mut index = 0;
        for group in self.groups() {
            let answer = match group {
                [part] if part.kind == LimiterKind::Slots => {
                    let slot = slots.next().unwrap_or_else(|| part.permit(self.cost, max_wait));
                    slot.and_then(|permit| {
                        in_time(permit.verdict(), max_wait)?;
                        Ok(Guard::slot(permit, part.quiet))
                    })
                }
                [part] if part.kind == LimiterKind::Turns => {
                    part.ops(self.cost).within(max_wait).book().map(Guard::Turn)
                }
                parts => GroupReservation::new(parts, self.cost, now).map(Guard::Reservation),
            };
            let guard = match answer {
                Ok(guard) => guard,
                Err(denied) => {
                    let verdict = verdict::denial(denied);
                    reports(group, self.cost, &verdict).for_each(Report::send);
                    return Err(verdict::shifted(verdict, index));
                }
            };
            guards.report(reports(group, self.cost, guard.verdict()));
            let policies = || group.iter().flat_map(|part| part.policies.iter());
            let enforced = policies().any(|policy| policy.enforced);
            verdicts.push(GroupVerdict { verdict: *guard.verdict(), index, enforced });
            index += policies().count();
            guards.push(guard);
        }
        Ok((verdict::all_agreed(&verdicts), guards))
    }

    /// The limiters that decide together.
    fn groups(&self) -> impl Iterator<Item = &[LimiterCheck<'a>]> {
        let police = self.parts.partition_point(|part| part.kind == LimiterKind::Police);
        let (police, others) = self.parts.split_at(police);
        police.chunks(police.len().max(1)).chain(others.chunks(1))
    }

    fn with_policies(self, verdict: Verdict, now: Timestamp) -> OwnedVerdict {
        let policies = match <[LimiterCheck<'_>; 1]>::try_from(self.parts) {
            Ok([part]) => part.policies,
            Err(parts) => parts.iter().flat_map(|part| part.policies.iter().cloned()).collect(),
        };
        OwnedVerdict { verdict, policies, now }
    }
}

/// Reports of a group's verdict, for the listeners of its limiters.
fn reports<'a>(
    group: &'a [LimiterCheck<'_>],
    cost: u64,
    verdict: &'a Verdict,
) -> impl Iterator<Item = Report> + 'a {
    let counts = group.iter().map(|part| part.policies.len());
    let reports = group.iter().zip(split(verdict, counts));
    reports.filter_map(move |(part, verdict)| {
        let (limiter, key) = (part.limiter.clone(), part.key.to_vec());
        Some(Report { limiter, key, cost, verdict: verdict? })
    })
}

impl<'a> LimiterCheck<'a> {
    fn ops(&self, cost: u64) -> KeyedOps<'a> {
        self.quiet.of(self.key).cost(cost)
    }

    /// A slot, at once.
    fn permit(&self, cost: u64, max_wait: Duration) -> Result<Permit, Denied> {
        self.check_wait(cost, max_wait)?;
        self.ops(cost).permit()
    }

    /// A slot, as soon as there is one.
    async fn permit_async(&self, cost: u64, max_wait: Duration) -> Result<Permit, Denied> {
        self.check_wait(cost, max_wait)?;
        self.ops(cost).within(max_wait).permit_async().await
    }

    /// Denies a wait that would take too long: a turn that belongs to a slot cannot be released.
    fn check_wait(&self, cost: u64, max_wait: Duration) -> Result<(), Denied> {
        if self.policies.iter().any(makes_wait) {
            in_time(&self.ops(cost).peek(), max_wait)?;
        }
        Ok(())
    }
}

/// Denies a wait that would take too long.
fn in_time(verdict: &Verdict, max_wait: Duration) -> Result<(), Denied> {
    match verdict.outcome {
        Outcome::Allow { wait } if wait > span(max_wait) => {
            let retry_after = wait.less(span(max_wait));
            Err(Denied::NotNow(Verdict { outcome: Outcome::Deny { retry_after }, ..*verdict }))
        }
        _ => Ok(()),
    }
}

impl LimiterKind {
    pub(super) fn of(policies: &[Policy], waits_for_all: bool) -> Self {
        if policies.iter().any(|policy| policy.algorithm == "concurrency") {
            Self::Slots
        } else if waits_for_all || policies.iter().any(makes_wait) {
            Self::Turns
        } else {
            Self::Police
        }
    }
}

/// Whether the algorithm makes requests wait.
fn makes_wait(policy: &Policy) -> bool {
    matches!(policy.algorithm, "leaky_bucket" | "smooth_bursty" | "warm_up")
}
