//! Lease calls (stub until the record has them).
use std::sync::Arc;

use redis::Value;
use sluicegate_core::account::Account;
use sluicegate_core::time::{Span, Timestamp};

use super::{BadReply, Charter};
use crate::redis::call::{Call, Script};

/// What a node asks of one identity's record: one lease call.
#[derive(Debug, Clone)]
#[allow(dead_code)]
pub(crate) struct LeaseAsk {
    pub(crate) key: Arc<[u8]>,
    pub(crate) charter: Arc<Charter>,
    pub(crate) node: u64,
    pub(crate) serial: u64,
    pub(crate) give: u64,
    pub(crate) hold: u64,
    pub(crate) want: u64,
    pub(crate) ttl: Span,
}

#[derive(Debug, Clone)]
#[allow(dead_code)]
pub(crate) enum LeaseTold {
    Granted {
        now: Timestamp,
        granted: u64,
        until: Timestamp,
        kept: bool,
        left: u64,
        account: Account,
        epoch: u64,
    },
    Stale,
    LongWay,
}
static NOTHING: Script = Script::new("return 0");
pub(crate) fn lease_call(asks: &[LeaseAsk], _clock: Option<Timestamp>) -> Call {
    Call { script: &NOTHING, keys: vec![asks[0].key.to_vec()], args: Vec::new() }
}
pub(crate) fn lease_told(asks: &[LeaseAsk], _value: Value) -> Result<Vec<LeaseTold>, BadReply> {
    Ok(asks.iter().map(|_| LeaseTold::LongWay).collect())
}
