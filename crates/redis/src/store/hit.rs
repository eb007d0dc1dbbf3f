//! Hits and refunds: from the denial cache, by a batched script call, or by an optimistic update.

use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Store;
use super::batcher::{BatchReply, Deadline, Pending};
use super::denials::Denials;
use crate::call::CallError;
use crate::script::{ScriptAnswer, ScriptRequest};

/// Why a hit has no decision at its deadline.
#[derive(Debug)]
pub(crate) struct HitError {
    pub(crate) error: CallError,
    /// The outcome, if the call is still in flight.
    pub(crate) late: Option<LateOutcome>,
}

/// The outcome of a call that missed its deadline, as soon as it is known.
#[derive(Debug)]
pub(crate) struct LateOutcome {
    store: Store,
    hash: u64,
    reply: oneshot::Receiver<BatchReply>,
}

impl Store {
    /// Decides and charges a hit, by the deadline of the client.
    pub(crate) async fn hit(
        &self,
        request: ScriptRequest,
        client_deadline: Option<Instant>,
    ) -> Result<ScriptAnswer, HitError> {
        let inner = &*self.inner;
        let (hash, now) = (inner.request_hash(&request), inner.now());
        if let Some(verdict) = inner.denials.find(&request, hash, now) {
            inner.counters.cached_denials.fetch_add(1, Ordering::Relaxed);
            let verdicts = vec![verdict];
            return Ok(ScriptAnswer { allowed: false, verdicts, returned: Vec::new() });
        }
        let cacheable = Denials::cacheable_part(&request);
        let answer = self.decide(request, hash, client_deadline).await?;
        if let (Some(part), false, [verdict]) = (cacheable, answer.allowed, &*answer.verdicts) {
            inner.denials.insert(part, hash, verdict, inner.now());
        }
        Ok(answer)
    }

    /// Refunds each part independently.
    pub(crate) async fn refund(&self, request: ScriptRequest) -> Result<ScriptAnswer, CallError> {
        let hash = self.inner.request_hash(&request);
        let parts = request.parts.clone();
        let answer = self.decide(request, hash, None).await;
        self.forget_denials(&parts);
        answer.map_err(|error| error.error)
    }

    async fn decide(
        &self,
        request: ScriptRequest,
        hash: u64,
        client_deadline: Option<Instant>,
    ) -> Result<ScriptAnswer, HitError> {
        let inner = &self.inner;
        inner.counters.requests.fetch_add(1, Ordering::Relaxed);
        if inner.needs_recovery() {
            // Boxed: rare, and a large future.
            Box::pin(inner.recover_all(&request.parts)).await?;
        }
        for part in &request.parts {
            inner.publish_if_new(&part.rule).await;
        }
        let deadline = Deadline::new(inner.link.timeout(), client_deadline);
        let (reply, replied) = oneshot::channel();
        let pending = Pending { request, hash, deadline, reply };
        let batcher = &inner.batchers[hash as usize % inner.batchers.len()];
        let reply = match batcher.try_send(pending) {
            Ok(()) => replied.await.unwrap_or(BatchReply::Failed(CallError::Broken)),
            Err(_) => BatchReply::Failed(CallError::Busy),
        };
        let answer = match reply {
            BatchReply::Decided(answer, observations) => {
                inner.observe_all(observations, hash);
                Ok(answer)
            }
            // Boxed: rare, and a large future.
            BatchReply::Unsupported(request) => {
                Box::pin(self.decide_optimistically(request)).await.map_err(HitError::from)
            }
            BatchReply::Failed(error) => Err(error.into()),
            BatchReply::Late(reply) => {
                let late = Some(LateOutcome { store: self.clone(), hash, reply });
                Err(HitError { error: CallError::TimedOut, late })
            }
        };
        match &answer {
            // A store that refuses writes still denies: only a charge proves that it writes.
            Ok(answer) if answer.allowed => {
                inner.write_status.accepted();
                if inner.journal.has_entries() {
                    inner.settle_journal();
                }
            }
            Ok(_) => {}
            Err(HitError { error, .. }) => inner.on_call_failed(error),
        }
        answer
    }

    async fn decide_optimistically(
        &self,
        request: ScriptRequest,
    ) -> Result<ScriptAnswer, CallError> {
        let inner = &*self.inner;
        inner.counters.optimistic.fetch_add(1, Ordering::Relaxed);
        let _guard = inner.lock_first(&request.parts).await;
        let (answer, is_corrupt) = inner.updates().decide(&request).await?;
        if is_corrupt {
            inner.counters.corrupt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer)
    }
}

impl From<CallError> for HitError {
    fn from(error: CallError) -> Self {
        Self { error, late: None }
    }
}

impl LateOutcome {
    /// The decision of the store; `None` if unknown or absent.
    pub(crate) async fn decision(self) -> Option<ScriptAnswer> {
        match self.reply.await {
            Ok(BatchReply::Decided(answer, observations)) => {
                self.store.inner.observe_all(observations, self.hash);
                Some(answer)
            }
            _ => None,
        }
    }
}
