//! Hits and refunds: decided by a script, in calls that many requests share, by a deadline of each
//! request's own.

use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batcher::{Deadline, Pending, Reply};
use super::denials::Denials;
use super::{Store, call_error};
use crate::call::CallError;
use crate::script::{self, ScriptAnswer, ScriptRequest};

/// Why a hit got no answer by its deadline.
#[derive(Debug)]
pub(crate) struct HitError {
    pub(crate) error: CallError,
    /// The outcome, where the call is still under way.
    pub(crate) late: Option<LateOutcome>,
}

/// The outcome of a call that missed its deadline, as soon as it is known.
#[derive(Debug)]
pub(crate) struct LateOutcome {
    store: Store,
    hash: u64,
    reply: oneshot::Receiver<Reply>,
}

// === impl Store ===

impl Store {
    /// A hit, as the parts' stands say.
    pub(crate) async fn hit(
        &self,
        ask: ScriptRequest,
        client: Option<Instant>,
    ) -> Result<ScriptAnswer, HitError> {
        let inner = &*self.inner;
        let (hash, now) = (inner.hash(&ask), inner.now());
        if let Some(verdict) = inner.denials.find(&ask, hash, now) {
            inner.known.fetch_add(1, Ordering::Relaxed);
            return Ok(ScriptAnswer { allowed: false, verdicts: vec![verdict] });
        }
        let denied = Denials::may_remember(&ask);
        let answered = self.ask(ask, hash, client).await?;
        if let (Some(part), false, [verdict]) = (denied, answered.allowed, &*answered.verdicts) {
            inner.denials.remember(part, hash, verdict, inner.now());
        }
        Ok(answered)
    }

    /// Gives back, each part on its own.
    pub(crate) async fn refund(&self, ask: ScriptRequest) -> Result<ScriptAnswer, CallError> {
        let hash = self.inner.hash(&ask);
        let parts = ask.parts.clone();
        let answered = self.ask(ask, hash, None).await;
        self.forget_denials(&parts);
        answered.map_err(|unanswered| unanswered.error)
    }

    /// Asks the store, no longer than the client waits.
    async fn ask(
        &self,
        ask: ScriptRequest,
        hash: u64,
        client: Option<Instant>,
    ) -> Result<ScriptAnswer, HitError> {
        let inner = &self.inner;
        inner.asked.fetch_add(1, Ordering::Relaxed);
        if inner.needs_recovery() {
            // Rare, and large.
            Box::pin(inner.recover_all(&ask.parts)).await?;
        }
        inner.publish_rules(&ask.parts).await;
        let deadline = Deadline::new(inner.link.timeout(), client);
        let (reply, replied) = oneshot::channel();
        let pending = Pending { ask, hash, deadline, reply };
        let sent = inner.lanes[hash as usize % inner.lanes.len()].try_send(pending);
        let reply = match sent {
            Ok(()) => replied.await.unwrap_or(Reply::Failed(CallError::Broken)),
            Err(_) => Reply::Failed(CallError::Busy),
        };
        let answered = match reply {
            Reply::Answered(answered, seen) => {
                inner.note(seen, hash);
                Ok(answered)
            }
            // Rare, and large.
            Reply::Unsupported(ask) => {
                Box::pin(self.decide_optimistically(ask)).await.map_err(HitError::from)
            }
            Reply::Failed(error) => Err(error.into()),
            Reply::Late(reply) => {
                let late = Some(LateOutcome { store: self.clone(), hash, reply });
                Err(HitError { error: CallError::TimedOut, late })
            }
        };
        match &answered {
            // One that is full still denies: only who was charged tells that it writes.
            Ok(answered) if answered.allowed => {
                inner.refusal.is_over();
                if inner.journal.has_entries() {
                    inner.settle_journal();
                }
            }
            Ok(_) => {}
            Err(HitError { error, .. }) => {
                inner.failed.fetch_add(1, Ordering::Relaxed);
                inner.refusal.heard(error);
            }
        }
        answered
    }

    /// The same with the core's help.
    async fn decide_optimistically(&self, ask: ScriptRequest) -> Result<ScriptAnswer, CallError> {
        let inner = &*self.inner;
        inner.long.fetch_add(1, Ordering::Relaxed);
        let _one_at_a_time = inner.long_lock(&ask.parts).await;
        let said =
            script::decide_optimistically(&inner.link, &inner.registry, &ask, inner.clock()).await;
        let mut said = said.map_err(|error| call_error(error.into()))?;
        if said.garbage {
            inner.garbage.fetch_add(1, Ordering::Relaxed);
        }
        said.each.pop().ok_or(CallError::Broken)
    }
}

// === impl HitError, LateOutcome ===

impl From<CallError> for HitError {
    fn from(error: CallError) -> Self {
        Self { error, late: None }
    }
}

impl LateOutcome {
    /// What the store decided; `None` if that cannot be known, or it decided nothing.
    pub(crate) async fn decision(self) -> Option<ScriptAnswer> {
        match self.reply.await {
            Ok(Reply::Answered(answered, records)) => {
                self.store.inner.note(records, self.hash);
                Some(answered)
            }
            _ => None,
        }
    }
}
