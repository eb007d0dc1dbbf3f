//! Lease calls: a node returns, holds and acquires quota of some identities.
//!
//! ```text
//!   arguments per request:  index of its parameters, node, serial, give, hold, want, ttl in µs
//!   reply:  time
//!     per request:  -1                  unsupported; nothing has changed
//!                   -2                  stale: a later call was executed; nothing has changed
//!                   granted, record     quota granted, and the record before, or nil
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

use super::reply::ReplyReader;
use super::request::{header, index_of, number16};
use super::{BadReply, DISAGREEMENTS, LEASE, ScriptRule};
use crate::call::Call;

/// A lease request for one identity.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRequest {
    pub(crate) key: Arc<[u8]>,
    pub(crate) rule: Arc<ScriptRule>,
    pub(crate) node: u64,
    /// Increases with every request of the node for this identity.
    pub(crate) serial: u64,
    /// Quota to return.
    pub(crate) give: u64,
    /// Quota that the node holds after that.
    pub(crate) hold: u64,
    /// Quota to acquire beyond that.
    pub(crate) want: u64,
    /// Lifetime of the lease.
    pub(crate) ttl: Span,
}

/// Outcome of a lease request.
#[derive(Debug, Clone)]
pub(crate) enum LeaseOutcome {
    Granted {
        /// The store's time.
        now: Timestamp,
        granted: u64,
        /// End of the lease by the store's time, exclusive.
        until: Timestamp,
        /// Whether the quota that the node held is still valid.
        is_extended: bool,
        /// The record afterwards.
        account: Account,
        epoch: u64,
        /// Grant of an earlier execution of the same request, if it expired unspent.
        lapsed: u64,
    },
    /// A later request of the node was executed. Nothing has changed.
    Stale,
    /// The script does not support the record, or a limit cannot be leased. Nothing has changed.
    Unsupported,
}

/// Reply in place of a grant.
const STALE: i64 = -2;

/// Encodes one call for all requests. Without a clock the script uses the store's time.
pub(crate) fn encode_lease(requests: &[LeaseRequest], clock: Option<Timestamp>) -> Call {
    let mut params: Vec<&[u8]> = Vec::new();
    let mut keys = Vec::with_capacity(requests.len());
    let mut payload = Vec::new();
    for request in requests {
        let text = &request.rule.params.bytes;
        let (index, want) = match request.is_supported() {
            true => (index_of(&mut params, text), request.want),
            // The script rejects an amount above the maximum.
            false => (0, EXACT_MAX + 1),
        };
        payload.extend(number16(index).to_le_bytes());
        payload.extend(format!("{:016x}", request.node).as_bytes());
        for number in [request.serial, request.give, request.hold, want, request.ttl.as_micros()] {
            payload.extend(number.to_le_bytes());
        }
        keys.push(request.key.to_vec());
    }
    let mut args = vec![header(params.len(), requests.len(), clock)];
    args.extend(params.into_iter().map(<[u8]>::to_vec));
    args.push(payload);
    Call { script: &LEASE, keys, args }
}

/// Decodes the outcomes of all requests of a call.
pub(crate) fn decode_lease(
    requests: &[LeaseRequest],
    value: Value,
) -> Result<Vec<LeaseOutcome>, BadReply> {
    let mut reply = ReplyReader::new(value)?;
    let now = reply.moment()?.min(NOW_MAX);
    requests.iter().map(|request| decode_one(request, now, &mut reply)).collect()
}

fn decode_one(
    request: &LeaseRequest,
    now: Timestamp,
    reply: &mut ReplyReader,
) -> Result<LeaseOutcome, BadReply> {
    let code = reply.signed()?;
    let Ok(granted) = u64::try_from(code) else {
        return Ok(if code == STALE { LeaseOutcome::Stale } else { LeaseOutcome::Unsupported });
    };
    let (steps, layout) = (request.rule.steps(), &request.rule.params.layout);
    let mut record = match reply.text()?.map(|text| Record::read(&text, &[], steps, layout)) {
        Some(Found::Record(record)) => record,
        Some(Found::Other(_) | Found::Garbage) | None => Record::default(),
    };
    let lapsed = lapsed_of(&record, request, now);
    let leased = record.lease(steps, &request.wish(), now);
    // The script's grant is final, but without an expiry it is useless.
    let nothing = Grant { granted, until: now, valid: false, returned: false, remaining: 0 };
    let grant = if let LeaseReply::Granted(grant) = leased { grant } else { nothing };
    if leased != LeaseReply::Granted(Grant { granted, ..grant }) {
        DISAGREEMENTS.fetch_add(1, Ordering::Relaxed);
    }
    let Grant { until, valid: is_extended, .. } = grant;
    let Record { epoch, account } = record;
    Ok(LeaseOutcome::Granted { now, granted, until, is_extended, account, epoch, lapsed })
}

/// The expired grant of an earlier execution of the same request.
fn lapsed_of(record: &Record, request: &LeaseRequest, now: Timestamp) -> u64 {
    let cells = record.account.leases().nodes().iter();
    let mut own = cells.filter(|cell| cell.node == request.node && cell.serial == request.serial);
    let ended = own.find(|cell| cell.until <= now);
    ended.map_or(0, |cell| cell.amount.saturating_sub(request.hold))
}

impl LeaseRequest {
    /// Whether the script supports it.
    fn is_supported(&self) -> bool {
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
