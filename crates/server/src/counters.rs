//! Whose counters are asked: this node's own, or those that it shares with others.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sluicegate::rules::request::Request;
use sluicegate::{
    Checked, Engine, HoldError, Holder, Inspected, Snapshot, Span, Timestamp, Waited,
};
use sluicegate_redis::{SharedEngine, StoreError};
use tokio::time::Instant;

/// Whose counters are asked. This node's own answer at once.
#[derive(Debug, Clone, Copy)]
pub enum Counters<'a> {
    /// Those in this node's memory.
    Own(&'a Engine),
    /// Those in a store.
    Shared(&'a SharedEngine),
}

/// What a future comes to that waits for nothing; nothing if it does wait. Then it is given up.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl Counters<'_> {
    /// The rules, whoever keeps the counters.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        match self {
            Self::Own(engine) => engine,
            Self::Shared(shared) => shared.engine(),
        }
    }

    /// As [`Snapshot::check`].
    pub(crate) async fn check(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        self.check_within(rules, request, now, checked, None).await
    }

    /// As [`Snapshot::check`], for a client that waits until a moment.
    pub(crate) async fn check_within(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
        deadline: Option<Instant>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Own(_) => rules.check(request, now, checked),
            Self::Shared(shared) => shared.check_within(rules, request, checked, deadline).await?,
        }
        Ok(())
    }

    /// As [`Snapshot::peek`].
    pub(crate) async fn peek(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        match self {
            Self::Own(_) => rules.peek(request, now, checked),
            Self::Shared(shared) => shared.peek_by(rules, request, checked).await?,
        }
        Ok(())
    }

    /// As [`Snapshot::refund`].
    pub(crate) async fn refund(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        match self {
            Self::Own(_) => rules.refund(request, now, checked),
            Self::Shared(shared) => shared.refund_by(rules, request, checked).await?,
        }
        Ok(())
    }

    /// As [`Snapshot::reset`].
    pub(crate) async fn reset(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), StoreError> {
        match self {
            Self::Own(_) => rules.reset(request, now, checked),
            Self::Shared(shared) => shared.reset_by(rules, request, checked).await?,
        }
        Ok(())
    }

    /// As [`Snapshot::inspect`].
    pub(crate) async fn inspect(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Result<Vec<Inspected>, StoreError> {
        match self {
            Self::Own(_) => Ok(rules.inspect(request, now)),
            Self::Shared(shared) => shared.inspect_by(rules, request).await,
        }
    }

    /// As [`Snapshot::reserve`].
    pub(crate) async fn reserve(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        (holder, ttl): (Holder, Span),
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<(), HoldError> {
        match self {
            Self::Own(_) => rules.reserve(request, holder, ttl, now, checked),
            Self::Shared(shared) => shared.reserve_by(rules, request, holder, ttl, checked).await,
        }
    }

    /// As [`Snapshot::commit`].
    pub(crate) async fn commit(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        match self {
            Self::Own(_) => rules.commit(request, holder, now, checked),
            Self::Shared(shared) => shared.commit_by(rules, request, holder, checked).await,
        }
    }

    /// As [`Snapshot::cancel`].
    pub(crate) async fn cancel(
        self,
        rules: &Snapshot<'_>,
        request: &Request<'_>,
        holder: Holder,
        now: Timestamp,
        checked: &mut Checked,
    ) -> Result<u64, HoldError> {
        match self {
            Self::Own(_) => rules.cancel(request, holder, now, checked),
            Self::Shared(shared) => shared.cancel_by(rules, request, holder, checked).await,
        }
    }

    /// As [`Engine::wait`].
    pub(crate) async fn wait(
        self,
        request: &Request<'_>,
        holder: Holder,
        patience: Span,
    ) -> Result<Waited, HoldError> {
        match self {
            Self::Own(engine) => engine.wait(request, holder, patience).await,
            Self::Shared(shared) => shared.wait(request, holder, patience).await,
        }
    }
}
