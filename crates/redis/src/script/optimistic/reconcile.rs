//! Reading a record for a person, and reconciling it with what a node knows.

use sluicegate_core::account::{Account, Moment, Part};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Decision;

use super::swap::{read_all, write_all};
use super::{Done, OptimisticError, OptimisticPart, work};
use crate::connection::Link;
use crate::script::{
    Combine, RuleRegistry, ScriptOp, ScriptOutcome, ScriptPart, ScriptRequest, decode, encode,
};

/// How often a record is read and swapped before it is charged without being read. Requests wait
/// for this.
const SWAPS_MAX: usize = 8;

/// What each limit of a part says to its cost on its own. Leaves no trace.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn look(
    link: &Link,
    registry: &RuleRegistry,
    part: &OptimisticPart,
    clock: Option<Timestamp>,
) -> Result<Vec<Decision>, OptimisticError> {
    let cost = part.cost.unwrap_or(0);
    let looked = work(link, registry, std::slice::from_ref(part), clock, |parts, now| {
        let moment = |part: &Part<'_>| Moment { now, spare_capacity: part.spare_capacity };
        let each =
            parts.iter().flat_map(|part| part.account.evaluate(part.plan, cost, moment(part)));
        Ok(Done { said: each.collect(), writes: false, raises_epoch: false })
    });
    Ok(looked.await?.2)
}

/// A record after it was changed.
#[derive(Debug)]
pub(crate) struct Changed {
    /// By the store's clock.
    pub(crate) at: Timestamp,
    pub(crate) account: Account,
    pub(crate) epoch: u64,
}

/// What was admitted without the store is in use in its record too, into debt if need be.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn absorb(
    link: &Link,
    registry: &RuleRegistry,
    part: &OptimisticPart,
    admitted: &Account,
    clock: Option<Timestamp>,
) -> Result<Changed, OptimisticError> {
    registry.publish(link, &part.rule).await?;
    let (parts, steps) = (std::slice::from_ref(part), part.rule.steps());
    let mut now = Timestamp::EPOCH;
    for _ in 0..SWAPS_MAX {
        let (read_at, mut seats) = read_all(link, registry, parts, clock).await?;
        now = read_at.min(NOW_MAX);
        let Some(seat) = seats.first_mut() else { break };
        seat.account.absorb(steps, admitted, now);
        if write_all(link, &mut seats, parts, false, now, clock.is_some()).await?
            && let Some(seat) = seats.pop()
        {
            return Ok(Changed { at: now, account: seat.account, epoch: seat.epoch });
        }
    }
    // Other nodes write faster than this one can swap. Charging what was used most is one call, and
    // never too little.
    charge(link, part, admitted.used(steps, now), clock).await?.ok_or(OptimisticError::Contended)
}

/// No less is used than was observed at this epoch or a later one; whether something had been lost.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn reassert(
    link: &Link,
    registry: &RuleRegistry,
    part: &OptimisticPart,
    (seen, epoch): (&Account, u64),
    clock: Option<Timestamp>,
) -> Result<bool, OptimisticError> {
    let (parts, steps) = (std::slice::from_ref(part), part.rule.steps());
    let mut deficit = 0;
    for _ in 0..SWAPS_MAX {
        let (read_at, mut seats) = read_all(link, registry, parts, clock).await?;
        let now = read_at.min(NOW_MAX);
        let Some(seat) = seats.first_mut() else { return Ok(false) };
        // A refund was made that this node does not know of.
        if !seat.is_of(epoch) {
            return Ok(false);
        }
        let mut as_it_stands = seat.account.clone();
        as_it_stands.reassert(steps, &Account::default(), now);
        seat.account.reassert(steps, seen, now);
        if seat.account == as_it_stands {
            return Ok(false);
        }
        deficit = seat.account.used(steps, now).saturating_sub(as_it_stands.used(steps, now));
        if write_all(link, &mut seats, parts, false, now, clock.is_some()).await? {
            return Ok(true);
        }
    }
    // As above; if other nodes charge the same deficit, a little less passes than might.
    charge(link, part, deficit, clock).await?.ok_or(OptimisticError::Contended).map(|_| true)
}

/// Charges a record whatever is left. Nothing if the script does not take it.
async fn charge(
    link: &Link,
    part: &OptimisticPart,
    cost: u64,
    clock: Option<Timestamp>,
) -> Result<Option<Changed>, OptimisticError> {
    let OptimisticPart { key, rule, .. } = part.clone();
    let parts = vec![ScriptPart { key, rule, cost, open: false, combine: Combine::Independent }];
    let asks = [ScriptRequest { parts, op: ScriptOp::Charge, holder: None, count: 1 }];
    let reply = link.call(&encode(&asks, clock)).await?;
    let Some(ScriptOutcome::Decided { now, after, .. }) = decode(&asks, reply)?.pop() else {
        return Ok(None);
    };
    let changed = after.into_iter().next();
    Ok(changed.map(|(_, account, epoch)| Changed { at: now, account, epoch }))
}
