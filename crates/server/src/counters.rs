//! Backend of the service's engine: this node's memory, which answers at once, or Redis.

pub(crate) use sluicegate::backend::ready as at_once;
use sluicegate::backend::{Call, StoreError};
use sluicegate::rules::request::Request;
use sluicegate::{
    Checked, Engine, HoldError, Holder, Inspected, Operation, Snapshot, Span, Timestamp, Waited,
};
use sluicegate_redis::RedisBackend;
use tokio::time::Instant;

/// An engine on Redis.
pub type SharedEngine = Engine<RedisBackend>;

/// Whose counters are asked. This node's own answer at once.
#[derive(Debug, Clone, Copy)]
pub enum Counters<'a> {
    /// Those in this node's memory.
    Own(&'a Engine),
    /// Those in a store.
    Shared(&'a SharedEngine),
}

/// A call of whichever engine.
macro_rules! on_engine {
    ($counters:expr, $engine:ident => $call:expr) => {
        match $counters {
            Counters::Own($engine) => $call,
            Counters::Shared($engine) => $call,
        }
    };
}

impl Counters<'_> {
    pub(crate) async fn apply(
        self,
        operation: Operation,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
        deadline: Option<Instant>,
    ) -> Result<(), StoreError> {
        let call = Call { rules, request, now, deadline: deadline.map(Instant::into_std) };
        on_engine!(self, engine => engine.apply(operation, call, checked).await)
    }

    pub(crate) async fn inspect(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Result<Vec<Inspected>, StoreError> {
        let call = Call { rules, request, now, deadline: None };
        on_engine!(self, engine => engine.inspect(call).await)
    }

    pub(crate) async fn reserve(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        (holder, ttl): (Holder, Span),
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        let call = Call { rules, request, now, deadline: None };
        on_engine!(self, engine => engine.reserve(call, holder, ttl, checked).await)
    }

    pub(crate) async fn commit(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        let call = Call { rules, request, now, deadline: None };
        on_engine!(self, engine => engine.commit(call, holder, checked).await)
    }

    pub(crate) async fn cancel(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        let call = Call { rules, request, now, deadline: None };
        on_engine!(self, engine => engine.cancel(call, holder, checked).await)
    }

    pub(crate) async fn wait(
        self,
        request: &Request<'_>,
        holder: Holder,
        max_wait: Span,
    ) -> Result<Waited, HoldError> {
        on_engine!(self, engine => engine.wait(request, holder, max_wait).await)
    }

    pub(crate) async fn check(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.apply(Operation::Hit, rules, request, now, checked, None).await
    }

    pub(crate) async fn check_within(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
        deadline: Option<Instant>,
    ) -> Result<(), StoreError> {
        self.apply(Operation::Hit, rules, request, now, checked, deadline).await
    }

    pub(crate) async fn peek(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.apply(Operation::Peek, rules, request, now, checked, None).await
    }

    pub(crate) async fn refund(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.apply(Operation::Refund, rules, request, now, checked, None).await
    }

    pub(crate) async fn reset(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.apply(Operation::Reset, rules, request, now, checked, None).await
    }
}
