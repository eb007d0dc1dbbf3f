//! Deferred requests in the Redis that all nodes share.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sluicegate_redis::{
    CallError, DurableQueues, LISTS, Pushed, QueueBounds, QueueClaim, QueueEntry,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::request::{DeferredRequest, DeferredState, Millis, Stage};
use super::store::{
    BodyPart, Claim, DeferredStats, DeferredStore, Exceeded, PushError, Release, StoreBounds,
    StoreError,
};

/// How often queues of other nodes are looked for; those of this node are claimed at once.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// An entry expires so long after all its times: nothing stays for ever, whatever happens.
const MARGIN: Duration = Duration::from_secs(30 * 86_400);

/// Deferred requests in Redis.
pub(super) struct RedisStore {
    queues: DurableQueues,
    changed: Notify,
}

impl RedisStore {
    pub(super) fn new(queues: DurableQueues) -> Self {
        Self { queues, changed: Notify::new() }
    }
}

#[async_trait]
impl DeferredStore for RedisStore {
    async fn push(
        &self,
        request: &DeferredRequest,
        body: Bytes,
        bounds: StoreBounds,
    ) -> Result<u64, PushError> {
        let value = encode(request)?;
        let bounds = QueueBounds {
            group_count: bounds.count,
            queue_count: bounds.queue_count,
            queue_bytes: bounds.queue_bytes,
            bytes: bounds.bytes,
        };
        let pushed = self.queues.push(entry(request, &value), &body, bounds).await;
        match pushed.map_err(failed)? {
            Pushed::Behind(ahead) => {
                self.changed.notify_one();
                Ok(ahead)
            }
            Pushed::Exceeds(bound) => Err(PushError::Exceeded(match bound {
                0 => Exceeded::Count,
                1 => Exceeded::QueueCount,
                2 => Exceeded::QueueBytes,
                _ => Exceeded::Bytes,
            })),
        }
    }

    async fn is_waiting(&self, queue: &str) -> Result<bool, StoreError> {
        Ok(self.queues.first(queue).await.map_err(failed)?.is_some())
    }

    async fn get(&self, id: &str) -> Result<Option<(DeferredRequest, u64)>, StoreError> {
        let Some(value) = self.queues.value(id).await.map_err(failed)? else { return Ok(None) };
        let request = decode(&value)?;
        let ahead = match request.state.stage() {
            Stage::Waiting => self.queues.rank(&request.queue, id).await.map_err(failed)?,
            Stage::Done | Stage::Dead => 0,
        };
        Ok(Some((request, ahead)))
    }

    async fn body(&self, id: &str, part: BodyPart) -> Result<Option<Bytes>, StoreError> {
        let body = self.queues.body(id, part == BodyPart::Response).await;
        Ok(body.map_err(failed)?.map(Bytes::from))
    }

    async fn claim(&self, count_max: usize) -> Result<Vec<Claim>, StoreError> {
        let claims = self.queues.claim(count_max).await.map_err(failed)?;
        let claim = |one: QueueClaim| Claim { queue: one.queue, token: one.id };
        Ok(claims.into_iter().map(claim).collect())
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Claim>, StoreError> {
        let held: Vec<_> = claims.iter().map(queue_claim).collect();
        let held = self.queues.renew(&held).await.map_err(failed)?;
        let lost = claims.iter().zip(held).filter(|(_, is_held)| !is_held);
        Ok(lost.map(|(claim, _)| claim.clone()).collect())
    }

    async fn release(&self, claim: &Claim, release: Release) -> Result<bool, StoreError> {
        let in_any_case = release == Release::Abandon;
        self.queues.release(&queue_claim(claim), in_any_case).await.map_err(failed)
    }

    async fn first(&self, queue: &str) -> Result<Option<DeferredRequest>, StoreError> {
        let Some(id) = self.queues.first(queue).await.map_err(failed)? else { return Ok(None) };
        let value = self.queues.value(&id).await.map_err(failed)?;
        // It may have been deleted between the two calls.
        value.map(|value| decode(&value)).transpose()
    }

    async fn save(
        &self,
        request: &DeferredRequest,
        response: Option<Bytes>,
    ) -> Result<bool, StoreError> {
        let value = encode(request)?;
        let drops_body = request.state == DeferredState::Done;
        let saved = self.queues.save(entry(request, &value), response.as_deref(), drops_body).await;
        // One that is redriven may be in a queue without an owner.
        if request.state == DeferredState::Queued && request.attempts == 0 {
            self.changed.notify_one();
        }
        saved.map_err(failed)
    }

    async fn remove(&self, request: &DeferredRequest) -> Result<bool, StoreError> {
        self.queues.remove(entry(request, &[])).await.map_err(failed)
    }

    async fn list(
        &self,
        stage: Stage,
        offset: usize,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError> {
        decode_all(self.queues.list(stage as usize, offset, count_max).await)
    }

    async fn callbacks(
        &self,
        now: Millis,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError> {
        decode_all(self.queues.due(now, count_max).await)
    }

    async fn outdated(
        &self,
        now: Millis,
        count_max: usize,
    ) -> Result<Vec<DeferredRequest>, StoreError> {
        let mut outdated =
            decode_all(self.queues.passed(Stage::Done as usize, now, count_max).await)?;
        outdated
            .extend(decode_all(self.queues.passed(Stage::Dead as usize, now, count_max).await)?);
        Ok(outdated)
    }

    async fn stats(&self) -> Result<DeferredStats, StoreError> {
        let stats = self.queues.stats().await.map_err(failed)?;
        let [waiting, _, dead]: [u64; LISTS] = stats.counts;
        Ok(DeferredStats { waiting, oldest_at: stats.oldest, dead, bytes: stats.bytes })
    }

    async fn durability_warning(&self) -> Option<String> {
        self.queues.connected().await;
        self.queues.durability_warning().await
    }

    async fn changed(&self) {
        // Too long only if nothing has changed here.
        let _ = timeout(POLL_EVERY, self.changed.notified()).await;
    }

    async fn close(&self) {}
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("queues", &self.queues).finish_non_exhaustive()
    }
}

fn entry<'a>(request: &'a DeferredRequest, value: &'a [u8]) -> QueueEntry<'a> {
    let last = request.deleted_at.unwrap_or(request.expires_at).max(request.due_at);
    let time = Duration::from_millis(last.saturating_sub(request.created_at));
    QueueEntry {
        id: &request.id,
        queue: &request.queue,
        group: &request.route,
        version: request.version,
        list: request.state.stage() as usize,
        bytes: request.bytes(),
        time: request.deleted_at.unwrap_or(request.created_at),
        due: request.callback_due_at(),
        value,
        ttl: time.saturating_add(MARGIN),
    }
}

fn queue_claim(claim: &Claim) -> QueueClaim {
    QueueClaim { queue: claim.queue.clone(), id: claim.token.clone() }
}

fn encode(request: &DeferredRequest) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(request).map_err(StoreError::new)
}

fn decode(value: &[u8]) -> Result<DeferredRequest, StoreError> {
    serde_json::from_slice(value).map_err(StoreError::new)
}

/// Entries that this version cannot read are left out: another one of the fleet may have written
/// them.
fn decode_all(values: Result<Vec<Vec<u8>>, CallError>) -> Result<Vec<DeferredRequest>, StoreError> {
    let values = values.map_err(failed)?;
    Ok(values.iter().filter_map(|value| decode(value).ok()).collect())
}

fn failed(error: CallError) -> StoreError {
    StoreError::new(error)
}
