//! Limits of Envoy's form on the keys of envoyproxy/ratelimit, so that both can count on one Redis while a fleet moves.
//!
//! ```text
//!   <prefix><domain>_<key>_<value>_…_<start of the window>      INCRBY key hits · EXPIRE key unit+jitter
//! ```
//!
//! One such key is a number that lives for its window and somewhat longer. A hit is added first and compared afterwards, by this node's clock in whole
//! seconds, and the commands of a request go out in one pipeline: all of it as there. What is ours: a refund never goes below nothing, a count that has
//! no more room denies, and whoever is remembered as over its limit is compared with the limit of the request at hand, so that a raised limit or an
//! override is obeyed at once.
//!
//! The answer is the core's: the count as it was is the state of a [`Tally`](sluicegate_core::algorithm::tally::Tally), and the operation is applied to it.

mod count;
mod jitter;
mod key;
mod over_limit;
#[cfg(test)]
mod tests;
mod verdict;

use sluicegate_core::time::Timestamp;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::unit::Unit;

use super::call::CallError;
use super::connection::Link;
use over_limit::Over;

/// How envoyproxy/ratelimit would keep its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyKeys {
    /// What its keys begin with.
    pub prefix: Box<str>,
    /// Keys live less than so many seconds longer than their window, as chance has it; 0 for not at all.
    pub jitter_max_s: u64,
    /// Whether a request that would be denied charges only the limits that deny it.
    pub stop_increment_when_over: bool,
    /// How many bytes the keys may take that are known to be over their limit and not asked for again; 0 to ask for each.
    pub local_cache_bytes: usize,
}

/// Counters on its keys.
#[derive(Debug)]
pub(crate) struct EnvoyCounters {
    link: Link,
    /// Where limits per second are counted, if elsewhere.
    per_second: Option<Link>,
    keys: EnvoyKeys,
    over: Option<Over>,
}

/// What is wanted of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvoyOp {
    /// Count.
    Hit,
    /// Look, and leave no trace.
    Peek,
    /// Give back.
    Refund,
    /// Forget this window.
    Reset,
}

/// One counter that is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnvoyCheck<'a> {
    /// As [`write_envoy_key`](sluicegate_rules::set::write_envoy_key) writes it.
    pub(crate) text: &'a [u8],
    pub(crate) unit: Unit,
    pub(crate) requests_per_unit: u32,
    /// Whether it is only said what would be.
    pub(crate) shadow: bool,
    pub(crate) cost: u64,
}

/// What a counter held when it was asked, and what it was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) before: u64,
    pub(crate) charged: u64,
    /// From here, without asking the store.
    pub(crate) remembered: bool,
}

// === impl EnvoyCounters ===

impl EnvoyCounters {
    pub(crate) fn new(link: Link, per_second: Option<Link>, keys: EnvoyKeys) -> Self {
        let over = (keys.local_cache_bytes > 0).then(|| Over::new(keys.local_cache_bytes));
        Self { link, per_second, keys, over }
    }

    /// Asks all of them, in order: whoever is named twice finds what was charged first. What each says is apart from the others, as there.
    ///
    /// # Errors
    /// When the store gave no answer to one of them. Others may have been charged all the same.
    pub(crate) async fn ask(
        &self,
        op: EnvoyOp,
        asks: &[EnvoyCheck<'_>],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, CallError> {
        let counted = self.count(op, asks, now).await?;
        Ok(asks
            .iter()
            .zip(counted)
            .map(|(ask, counted)| verdict::verdict(op, ask, counted, now))
            .collect())
    }
}
