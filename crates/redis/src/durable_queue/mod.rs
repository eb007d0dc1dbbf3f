//! Durable queues that nodes share: entries with a value and a body, in order, in many queues.
//!
//! ```text
//!   stream, consumer group     a message for each queue with entries: its consumer owns the queue
//!   queue (sorted set)         ids of its entries, by sequence number
//!   entry (hash)               version, value, body, response
//!   lists, due (sorted sets)   ids by stage and time, and by the time of a callback
//! ```
//!
//! A queue has one message in the stream as long as it has entries, so it has one owner. The claim
//! of a node that does not renew it is taken over by another one. All keys are in one slot of a
//! Cluster, and each script changes an entry with all that belongs to it, or nothing. What is
//! stored is as durable as Redis is configured to be.

mod read;
mod reply;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::sleep;

use crate::call::{Call, Script};
use crate::{CallError, Link};
use reply::{claims_of, number_of};

static PUSH: Script = Script::new(include_str!("lua/push.lua"));
static SAVE: Script = Script::new(include_str!("lua/save.lua"));
static RELEASE: Script = Script::new(include_str!("lua/release.lua"));
static RENEW: Script = Script::new(include_str!("lua/renew.lua"));

/// The group of consumers: the nodes.
const GROUP: &str = "gateway";
/// A claim that was not renewed for so long is taken over.
const CLAIM_TTL: Duration = Duration::from_secs(10);
/// Lists of entries.
pub const LISTS: usize = 3;
/// The list of the entries that are in their queue.
pub const QUEUED: usize = 0;
/// Repetitions of a call whose reply was lost: all of them can be repeated.
const RETRIES: usize = 3;
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Claims that one call renews.
const RENEW_MAX: usize = 64;
/// Values of entries that one call reads: a reply is bounded, and a value has the head of a request.
const READ_MAX: usize = 4;

/// Durable queues. Clones share the connection.
#[derive(Clone)]
pub struct DurableQueues {
    link: Link,
    prefix: String,
    consumer: String,
}

/// An entry to store.
#[derive(Debug, Clone, Copy)]
pub struct QueueEntry<'a> {
    /// Its id, of letters and digits.
    pub id: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// Counted together, across queues.
    pub group: &'a str,
    /// Incremented by each change.
    pub version: u64,
    /// Its list, of [`LISTS`].
    pub list: usize,
    /// Bytes that it takes of the bounds.
    pub bytes: u64,
    /// Order in its list, in milliseconds.
    pub time: u64,
    /// When it is due, in milliseconds.
    pub due: Option<u64>,
    /// The value.
    pub value: &'a [u8],
    /// It expires this long after its last change, whatever happens to it.
    pub ttl: Duration,
}

/// Bounds that a new entry must not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// Entries of its group that are in a queue.
    pub group_count: u64,
    /// Entries of its queue.
    pub queue_count: u64,
    /// Bytes of its queue.
    pub queue_bytes: u64,
    /// Bytes of all entries.
    pub bytes: u64,
}

/// What became of a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is stored behind so many others.
    Behind(u64),
    /// This bound of [`QueueBounds`] would be exceeded, in their order.
    Exceeds(usize),
}

/// A queue that this node owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueClaim {
    /// Its name.
    pub queue: String,
    /// Id of the message in the stream.
    pub id: String,
}

/// Figures of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Entries of each list.
    pub counts: [u64; LISTS],
    /// Time of the first entry that is in a queue.
    pub oldest: Option<u64>,
    /// Bytes of all entries.
    pub bytes: u64,
}

impl DurableQueues {
    /// Queues over a link, which should have a longer timeout than counters have: a write may wait
    /// for the disk.
    #[must_use]
    pub fn new(link: Link, namespace: &str) -> Self {
        let consumer = format!("{:016x}", fastrand::u64(..));
        // One hash tag: all keys are in one slot.
        Self { link, prefix: format!("{namespace}:1:{{deferred}}:"), consumer }
    }

    /// Stores an entry at the end of its queue. It can be repeated.
    ///
    /// # Errors
    /// When the store does not answer; it may be stored nevertheless.
    pub async fn push(
        &self,
        entry: QueueEntry<'_>,
        body: &[u8],
        bounds: QueueBounds,
    ) -> Result<Pushed, CallError> {
        let keys = vec![
            self.entry_key(entry.id),
            self.queue_key(entry.queue),
            self.key(&["bytes:", entry.queue]),
            self.key(&["groups"]),
            self.key(&["bytes"]),
            self.list_key(QUEUED),
            self.key(&["sequence"]),
            self.stream(),
            self.key(&["claims"]),
        ];
        let numbers = [bounds.group_count, bounds.queue_count, bounds.queue_bytes, bounds.bytes];
        let mut args: Vec<Vec<u8>> = vec![
            entry.id.into(),
            entry.queue.into(),
            entry.group.into(),
            text(entry.version),
            text(entry.bytes),
            text(entry.time),
            entry.value.to_vec(),
            body.to_vec(),
            text(millis(entry.ttl)),
        ];
        args.extend(numbers.map(text));
        match self.call(&Call { script: &PUSH, keys, args }).await? {
            Value::Array(reply) => match reply.as_slice() {
                [Value::Int(1), Value::Int(before)] => Ok(Pushed::Behind(number_of(*before))),
                [Value::Int(0), Value::Int(bound)] => {
                    Ok(Pushed::Exceeds(usize::try_from(*bound).unwrap_or_default()))
                }
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    /// Replaces an entry of the version before, with a response and without its body if that is
    /// wanted; whether it did. It leaves its queue if its list is not [`QUEUED`], and enters it at
    /// the end if it was in another list. It can be repeated.
    ///
    /// # Errors
    /// When the store does not answer; it may be replaced nevertheless.
    pub async fn save(
        &self,
        entry: QueueEntry<'_>,
        response: Option<&[u8]>,
        drops_body: bool,
    ) -> Result<bool, CallError> {
        self.replace(entry, entry.version.saturating_sub(1), entry.list, response, drops_body).await
    }

    /// Deletes an entry of this version; whether it did.
    ///
    /// # Errors
    /// When the store does not answer; it may be deleted nevertheless.
    pub async fn remove(&self, entry: QueueEntry<'_>) -> Result<bool, CallError> {
        self.replace(entry, entry.version, LISTS, None, false).await
    }

    async fn replace(
        &self,
        entry: QueueEntry<'_>,
        expected: u64,
        list: usize,
        response: Option<&[u8]>,
        drops_body: bool,
    ) -> Result<bool, CallError> {
        let mut keys = vec![
            self.entry_key(entry.id),
            self.queue_key(entry.queue),
            self.key(&["bytes:", entry.queue]),
            self.key(&["groups"]),
            self.key(&["bytes"]),
        ];
        keys.extend((0..LISTS).map(|list| self.list_key(list)));
        keys.extend(["due", "sequence", "stream", "claims"].map(|name| self.key(&[name])));
        let flag = |is_set: bool| text(u64::from(is_set));
        let args = vec![
            entry.id.into(),
            entry.queue.into(),
            entry.group.into(),
            text(expected),
            text(entry.version),
            text(list as u64),
            text(entry.bytes),
            text(entry.time),
            entry.due.map_or_else(Vec::new, text),
            entry.value.to_vec(),
            flag(response.is_some()),
            response.unwrap_or_default().to_vec(),
            flag(drops_body),
            text(millis(entry.ttl)),
        ];
        let reply = self.call(&Call { script: &SAVE, keys, args }).await?;
        Ok(reply == Value::Int(1))
    }

    /// Claims queues: those of nodes that did not renew their claims, and those without an owner.
    ///
    /// # Errors
    /// When the store does not answer. What was claimed then expires.
    pub async fn claim(&self, count: usize) -> Result<Vec<QueueClaim>, CallError> {
        let stream = self.stream();
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(count);
        read.arg("STREAMS").arg(&stream).arg(">");
        let mut taken_over = cmd("XAUTOCLAIM");
        taken_over.arg(&stream).arg(GROUP).arg(&self.consumer).arg(millis(CLAIM_TTL));
        taken_over.arg("0-0").arg("COUNT").arg(count);
        let replies = self.link.pipeline(&stream, vec![read, taken_over]).await?;
        let mut claims = Vec::new();
        for reply in replies {
            match reply {
                Ok(reply) => claims.extend(claims_of(&reply)),
                Err(error) if error.starts_with("NOGROUP") => {
                    self.create_group(&stream).await?;
                    return Ok(claims);
                }
                Err(error) => return Err(CallError::Refused(error)),
            }
        }
        Ok(claims)
    }

    async fn create_group(&self, stream: &[u8]) -> Result<(), CallError> {
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(stream).arg(GROUP).arg("0").arg("MKSTREAM");
        match self.command(stream, create).await {
            Err(CallError::Refused(error)) if error.starts_with("BUSYGROUP") => Ok(()),
            created => created.map(|_| ()),
        }
    }

    /// Renews claims, which otherwise expire after ten seconds; whether each is still held.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn renew(&self, claims: &[QueueClaim]) -> Result<Vec<bool>, CallError> {
        let mut held = Vec::with_capacity(claims.len());
        for claims in claims.chunks(RENEW_MAX) {
            let mut args: Vec<Vec<u8>> = vec![GROUP.into(), self.consumer.as_bytes().into()];
            args.extend(claims.iter().map(|claim| claim.id.as_bytes().to_vec()));
            let keys = vec![self.stream()];
            let reply = self.call(&Call { script: &RENEW, keys, args }).await?;
            let Value::Array(replies) = reply else { return Err(unexpected()) };
            held.extend(replies.iter().map(|reply| *reply == Value::Int(1)));
        }
        Ok(held)
    }

    /// Gives up a queue, if it is empty or `in_any_case`; whether it did.
    ///
    /// # Errors
    /// When the store does not answer. The claim expires.
    pub async fn release(&self, claim: &QueueClaim, in_any_case: bool) -> Result<bool, CallError> {
        const TTL: Duration = Duration::from_secs(366 * 86_400);
        let keys = vec![self.queue_key(&claim.queue), self.stream(), self.key(&["claims"])];
        let args = vec![
            claim.queue.as_bytes().into(),
            claim.id.as_bytes().into(),
            GROUP.into(),
            text(u64::from(in_any_case)),
            text(millis(TTL)),
        ];
        let reply = self.call(&Call { script: &RELEASE, keys, args }).await?;
        Ok(reply == Value::Int(1))
    }

    /// Waits until there is a connection.
    pub async fn connected(&self) {
        while !self.link.is_up() {
            sleep(RETRY_DELAY).await;
        }
    }

    /// Calls a script that can be repeated.
    async fn call(&self, call: &Call) -> Result<Value, CallError> {
        let mut retries = 0;
        loop {
            match self.link.call(call).await {
                Err(error) if error.may_have_executed() && retries < RETRIES => {
                    retries += 1;
                    sleep(RETRY_DELAY).await;
                }
                reply => return reply,
            }
        }
    }

    fn key(&self, parts: &[&str]) -> Vec<u8> {
        let mut key = self.prefix.clone();
        parts.iter().for_each(|part| key.push_str(part));
        key.into_bytes()
    }

    fn entry_key(&self, id: &str) -> Vec<u8> {
        self.key(&["entry:", id])
    }

    fn queue_key(&self, queue: &str) -> Vec<u8> {
        self.key(&["queue:", queue])
    }

    fn list_key(&self, list: usize) -> Vec<u8> {
        self.key(&["list:", &list.to_string()])
    }

    fn stream(&self) -> Vec<u8> {
        self.key(&["stream"])
    }
}

impl fmt::Debug for DurableQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableQueues").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn unexpected() -> CallError {
    CallError::Refused("unexpected reply of a script".into())
}

fn text(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
