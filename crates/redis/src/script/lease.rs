//! Lease calls: what a node gives back, holds and wants of some identities, and what it gets.
//!
//! ```text
//!   told:      for each ask the index of its sheet, node, serial, give, hold, want and time in µs
//!   answered:  the time
//!     of each ask:  -1                  it goes the long way; nothing has happened
//!                   -2                  a later call of the node was heard; nothing has happened
//!                   granted, record     how many more it has, and the record as it was before, or nil
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::Value;
use sluicegate_core::account::Account;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::lease::{Grant, LeaseDemand, LeaseReply};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::record::{Found, Record};
use sluicegate_core::time::{NOW_MAX, Span, Timestamp};

use super::reply::Reply;
use super::request::{head, index_of, number16};
use super::{BadReply, DISAGREEMENTS, LEASE, ScriptRule};
use crate::call::Call;

/// What a node asks of one identity's record: one lease call.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRequest {
    pub(crate) key: Arc<[u8]>,
    pub(crate) rule: Arc<ScriptRule>,
    pub(crate) node: u64,
    /// Higher than that of the node's calls for this identity before.
    pub(crate) serial: u64,
    /// How much it gives back.
    pub(crate) give: u64,
    /// How much it still holds after that.
    pub(crate) hold: u64,
    /// How much it wants beyond that.
    pub(crate) want: u64,
    /// For how long.
    pub(crate) ttl: Span,
}

/// What became of it.
#[derive(Debug, Clone)]
pub(crate) enum LeaseOutcome {
    Granted {
        /// The store's time.
        now: Timestamp,
        granted: u64,
        /// Until when that and what it holds may be used, by the store's time; this moment not included.
        until: Timestamp,
        /// Whether what it holds is still worth something.
        kept: bool,
        /// The record after it.
        account: Account,
        epoch: u64,
        /// What an earlier execution of the same call had granted, where that has run out unspent.
        lapsed: u64,
    },
    /// A later call of the node was executed. Nothing has changed.
    Stale,
    /// The record is one that only the long way understands, or a limit cannot be leased. Nothing has changed.
    Unsupported,
}

/// What the script says instead of a number that it grants.
const STALE: i64 = -2;

/// One call for all of these, at the store's own time unless another is given.
pub(crate) fn encode_lease(asks: &[LeaseRequest], clock: Option<Timestamp>) -> Call {
    let mut sheets: Vec<&[u8]> = Vec::new();
    let mut keys = Vec::with_capacity(asks.len());
    let mut told = Vec::new();
    for ask in asks {
        let text = ask.rule.params.text();
        let (sheet, want) = match ask.is_taken() {
            true => (index_of(&mut sheets, |known| *known == text, || text), ask.want),
            // This is a number that the script does not accept; and it knows nothing of such limits.
            false => (0, EXACT_MAX + 1),
        };
        told.extend(number16(sheet).to_le_bytes());
        told.extend(format!("{:016x}", ask.node).as_bytes());
        for number in [ask.serial, ask.give, ask.hold, want, ask.ttl.as_micros()] {
            told.extend(number.to_le_bytes());
        }
        keys.push(ask.key.to_vec());
    }
    let mut args = vec![head(sheets.len(), asks.len(), clock)];
    args.extend(sheets.into_iter().map(<[u8]>::to_vec));
    args.push(told);
    Call { script: &LEASE, keys, args }
}

/// The answers to all asks of one call.
pub(crate) fn decode_lease(
    asks: &[LeaseRequest],
    value: Value,
) -> Result<Vec<LeaseOutcome>, BadReply> {
    let mut reply = Reply::of(value)?;
    let now = reply.moment()?.min(NOW_MAX);
    asks.iter().map(|ask| one(ask, now, &mut reply)).collect()
}

fn one(ask: &LeaseRequest, now: Timestamp, reply: &mut Reply) -> Result<LeaseOutcome, BadReply> {
    let code = reply.signed()?;
    let Ok(granted) = u64::try_from(code) else {
        return Ok(if code == STALE { LeaseOutcome::Stale } else { LeaseOutcome::Unsupported });
    };
    let (steps, sheet) = (ask.rule.steps(), &ask.rule.params);
    let mut record = match reply.text()?.map(|text| Record::read(&text, &[], steps, sheet)) {
        Some(Found::Record(record)) => record,
        Some(Found::Other(_) | Found::Garbage) | None => Record::default(),
    };
    let lapsed = lapsed_of(&record, ask, now);
    let leased = record.lease(steps, &ask.wish(), now);
    // The script has granted it, whatever the core says; but without an end nothing can be made of it.
    let nothing = Grant { granted, until: now, valid: false, returned: false, remaining: 0 };
    let grant = if let LeaseReply::Granted(grant) = leased { grant } else { nothing };
    if leased != LeaseReply::Granted(Grant { granted, ..grant }) {
        DISAGREEMENTS.fetch_add(1, Ordering::Relaxed);
    }
    let Grant { until, valid: kept, .. } = grant;
    let Record { epoch, account } = record;
    Ok(LeaseOutcome::Granted { now, granted, until, kept, account, epoch, lapsed })
}

/// What the same call had granted before, if that has run out.
fn lapsed_of(record: &Record, ask: &LeaseRequest, now: Timestamp) -> u64 {
    let cells = record.account.leases().nodes().iter();
    let mut own = cells.filter(|cell| cell.node == ask.node && cell.serial == ask.serial);
    let ended = own.find(|cell| cell.until <= now);
    ended.map_or(0, |cell| cell.amount.saturating_sub(ask.hold))
}

// === impl LeaseRequest ===

impl LeaseRequest {
    /// Whether the script can hear it.
    fn is_taken(&self) -> bool {
        let numbers = [self.serial, self.give, self.hold, self.want];
        let steps = self.rule.steps();
        let fits = !steps.is_empty() && steps.iter().all(EnforcedLimit::is_leasable);
        fits && numbers.iter().all(|number| *number <= EXACT_MAX)
    }

    fn wish(&self) -> LeaseDemand {
        let Self { node, serial, give, hold, want, ttl, .. } = *self;
        LeaseDemand { node, serial, give, hold, want, ttl }
    }
}
