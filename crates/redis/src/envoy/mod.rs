//! Limits of Envoy's form on the keys of envoyproxy/ratelimit, so that both can share a Redis
//! during a migration.
//!
//! ```text
//!   <prefix><domain>_<key>_<value>_…_<start of the window>   INCRBY key hits · EXPIRE key unit+jitter
//! ```
//!
//! As in envoyproxy/ratelimit, a key holds the count of one window; hits are added first and
//! compared afterwards, by this node's clock in whole seconds, and a request is one pipeline.
//! Unlike there, a refund never makes a count negative, a count that would overflow denies, and a
//! cached over-limit key is compared with the current limit, so that a raised limit takes effect at
//! once.
//!
//! The verdict is the core's: the count before the operation is the state of a
//! [`Tally`](sluicegate_core::algorithm::tally::Tally), to which the operation is applied.

mod count;
mod over_limit;
#[cfg(test)]
mod tests;

pub(crate) use count::REFUND;
use sluicegate::backend::UNCOUNTED;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::tally::{Tally, TallyState};
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::Op;
use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::{Verdict, judge};
use sluicegate_rules::unit::Unit;

use super::call::CallError;
use super::connection::Link;
use count::start_s;
use over_limit::OverLimitCache;

/// Options of envoyproxy/ratelimit that affect its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyKeys {
    /// Prefix of all keys.
    pub prefix: Box<str>,
    /// Upper bound, exclusive, of the random seconds that a key outlives its window; 0 for none.
    pub jitter_max_s: u64,
    /// Whether a denied request charges only the limits that deny it.
    pub stop_increment_when_over: bool,
    /// Size of the cache of keys over their limit; 0 to disable it.
    pub local_cache_bytes: usize,
}

/// Counters in the format of envoyproxy/ratelimit.
#[derive(Debug)]
pub(crate) struct EnvoyCounters {
    link: Link,
    /// Separate store for limits per second.
    per_second: Option<Link>,
    keys: EnvoyKeys,
    over_limit: Option<OverLimitCache>,
}

/// An operation on counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvoyOp {
    Hit,
    Peek,
    Refund,
    /// Deletes the current window.
    Reset,
}

/// A counter with its limit and cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnvoyCheck<'a> {
    /// As [`write_envoy_key`](sluicegate_rules::set::write_envoy_key) writes it.
    pub(crate) text: &'a [u8],
    pub(crate) unit: Unit,
    pub(crate) requests_per_unit: u32,
    /// Whether the verdict is not enforced.
    pub(crate) shadow: bool,
    pub(crate) cost: u64,
}

/// A counter before an operation, and its charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterReading {
    pub(crate) before: u64,
    pub(crate) charged: u64,
    /// From the cache of keys over their limit.
    pub(crate) is_cached: bool,
}

impl EnvoyCounters {
    pub(crate) fn new(link: Link, per_second: Option<Link>, keys: EnvoyKeys) -> Self {
        let bytes = keys.local_cache_bytes;
        let over_limit = (bytes > 0).then(|| OverLimitCache::new(bytes));
        Self { link, per_second, keys, over_limit }
    }

    /// Applies an operation to counters in order, each independently of the others.
    ///
    /// # Errors
    /// When a call fails. Other counters may have been charged.
    pub(crate) async fn apply(
        &self,
        op: EnvoyOp,
        checks: &[EnvoyCheck<'_>],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, CallError> {
        let readings = self.count(op, checks, now).await?;
        let verdicts =
            checks.iter().zip(readings).map(|(check, reading)| verdict(op, check, reading, now));
        Ok(verdicts.collect())
    }
}

fn verdict(
    op: EnvoyOp,
    check: &EnvoyCheck<'_>,
    reading: CounterReading,
    now: Timestamp,
) -> Verdict {
    let start = Timestamp::from_micros(start_s(check.unit, now).saturating_mul(1_000_000));
    let mut state = State::Tally(TallyState { start, count: reading.before });
    // Always valid: a 32-bit number per unit fits a tally.
    let limit = Tally::new(check.requests_per_unit.into(), check.unit.span());
    let limit = limit.map_or(Limit::Closed, Limit::Tally);
    let mode = if check.shadow { Mode::Shadow } else { Mode::Hard };
    let Ok(limit) = EnforcedLimit::new(limit, mode) else { return UNCOUNTED };
    let op = match op {
        EnvoyOp::Hit => {
            let mut decision = limit.hit_single(&mut state, reading.charged, now);
            decision.enforced = !check.shadow;
            return judge(&[decision]);
        }
        EnvoyOp::Peek => Op::Peek { cost: check.cost },
        EnvoyOp::Refund => Op::Refund { cost: check.cost },
        EnvoyOp::Reset => Op::Reset,
    };
    let mut account = Account::from_states([(state, State::New)]);
    let answer = account.apply(&[limit], op, Moment::at(now));
    answer.map_or(UNCOUNTED, |answer| answer.verdict)
}
