//! Looking at a record, and telling it what it does not know.

use sluicegate_core::account::{Account, Moment, Part};
use sluicegate_core::time::{NOW_MAX, Timestamp};
use sluicegate_core::verdict::Decision;

use super::swap::{read_all, write_all};
use super::{Done, LongError, LongPart, TRIES_MAX, work};
use crate::redis::link::Link;
use crate::redis::script::Plans;

/// What each limit of a part says to its cost on its own. Leaves no trace.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn look(
    link: &Link,
    plans: &Plans,
    part: &LongPart,
    clock: Option<Timestamp>,
) -> Result<Vec<Decision>, LongError> {
    let cost = part.cost.unwrap_or(0);
    let looked = work(link, plans, std::slice::from_ref(part), clock, |parts, now| {
        let moment = |part: &Part<'_>| Moment { now, spare_capacity: part.spare_capacity };
        let each = parts.iter().flat_map(|part| part.account.look(part.plan, cost, moment(part)));
        Ok(Done { said: each.collect(), writes: false, raises_epoch: false })
    });
    Ok(looked.await?.2)
}

/// What another account of the same identity has in use is in use here too.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn absorb(
    link: &Link,
    plans: &Plans,
    part: &LongPart,
    other: &Account,
    clock: Option<Timestamp>,
) -> Result<(), LongError> {
    let absorbed = work(link, plans, std::slice::from_ref(part), clock, |parts, now| {
        parts.iter_mut().for_each(|part| part.account.absorb(part.plan, other, now));
        Ok(Done { said: (), writes: true, raises_epoch: false })
    });
    absorbed.await.map(|_| ())
}

/// No less is used than was seen at this epoch or a later one; whether something had been forgotten.
///
/// # Errors
/// When the store gave no answer.
pub(crate) async fn reassert(
    link: &Link,
    plans: &Plans,
    part: &LongPart,
    (seen, epoch): (&Account, u64),
    clock: Option<Timestamp>,
) -> Result<bool, LongError> {
    let (parts, steps) = (std::slice::from_ref(part), part.charter.steps());
    for _ in 0..TRIES_MAX {
        let (read_at, mut seats) = read_all(link, plans, parts, clock).await?;
        let now = read_at.min(NOW_MAX);
        let Some(seat) = seats.first_mut() else { return Ok(false) };
        // Somebody was given something back that we do not know of.
        if !seat.is_of(epoch) {
            return Ok(false);
        }
        let mut as_it_stands = seat.account.clone();
        as_it_stands.reassert(steps, &Account::default(), now);
        seat.account.reassert(steps, seen, now);
        if seat.account == as_it_stands {
            return Ok(false);
        }
        if write_all(link, &mut seats, parts, false, now, clock.is_some()).await? {
            return Ok(true);
        }
    }
    Err(LongError::Contended)
}
