//! Reads of durable queues.

use redis::{Cmd, Value, cmd};

use super::reply::{bytes_of, ids_of, number_of};
use super::{DurableQueues, LISTS, QUEUED, QueueStats, READ_MAX};
use crate::CallError;

impl DurableQueues {
    /// The value of an entry.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn value(&self, id: &str) -> Result<Option<Vec<u8>>, CallError> {
        self.field(id, "value").await
    }

    /// The body of an entry, or its response.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn body(&self, id: &str, is_response: bool) -> Result<Option<Vec<u8>>, CallError> {
        self.field(id, if is_response { "response" } else { "body" }).await
    }

    async fn field(&self, id: &str, name: &str) -> Result<Option<Vec<u8>>, CallError> {
        let key = self.entry_key(id);
        let value = self.command(&key, cmd("HGET").arg(&key).arg(name).clone()).await?;
        Ok(bytes_of(value))
    }

    /// Number of entries before one in its queue; 0 if it is not there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn rank(&self, queue: &str, id: &str) -> Result<u64, CallError> {
        let key = self.queue_key(queue);
        let rank = self.command(&key, cmd("ZRANK").arg(&key).arg(id).clone()).await?;
        Ok(if let Value::Int(rank) = rank { number_of(rank) } else { 0 })
    }

    /// The id of the first entry of a queue.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn first(&self, queue: &str) -> Result<Option<String>, CallError> {
        let key = self.queue_key(queue);
        let ids = self.command(&key, cmd("ZRANGE").arg(&key).arg(0).arg(0).clone()).await?;
        Ok(ids_of(&ids).into_iter().next())
    }

    /// Values of the entries of a list, in order of their times.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(
        &self,
        list: usize,
        offset: usize,
        count: usize,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        let key = self.list_key(list);
        let last = offset.saturating_add(count).saturating_sub(1);
        let ids = self.command(&key, cmd("ZRANGE").arg(&key).arg(offset).arg(last).clone()).await?;
        self.values(ids_of(&ids)).await
    }

    /// Values of the entries of a list whose time has passed.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn passed(
        &self,
        list: usize,
        now: u64,
        count: usize,
    ) -> Result<Vec<Vec<u8>>, CallError> {
        self.until(self.list_key(list), now, count).await
    }

    /// Values of entries that are due.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn due(&self, now: u64, count: usize) -> Result<Vec<Vec<u8>>, CallError> {
        self.until(self.key(&["due"]), now, count).await
    }

    async fn until(&self, key: Vec<u8>, now: u64, count: usize) -> Result<Vec<Vec<u8>>, CallError> {
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(&key).arg("-inf").arg(now).arg("LIMIT").arg(0).arg(count);
        let ids = self.command(&key, range).await?;
        self.values(ids_of(&ids)).await
    }

    async fn values(&self, ids: Vec<String>) -> Result<Vec<Vec<u8>>, CallError> {
        let mut values = Vec::new();
        for ids in ids.chunks(READ_MAX) {
            let keys: Vec<_> = ids.iter().map(|id| self.entry_key(id)).collect();
            let read = keys.iter().map(|key| cmd("HGET").arg(key).arg("value").clone());
            let Some(key) = keys.first() else { continue };
            for reply in self.link.pipeline(key, read.collect()).await? {
                values.extend(bytes_of(reply.map_err(CallError::Refused)?));
            }
        }
        Ok(values)
    }

    /// Figures.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn stats(&self) -> Result<QueueStats, CallError> {
        let lists: Vec<_> = (0..LISTS).map(|list| self.list_key(list)).collect();
        let mut commands: Vec<Cmd> =
            lists.iter().map(|key| cmd("ZCARD").arg(key).clone()).collect();
        let bytes = self.key(&["bytes"]);
        commands.push(cmd("GET").arg(&bytes).clone());
        let oldest = cmd("ZRANGE").arg(&lists[QUEUED]).arg(0).arg(0).arg("WITHSCORES").clone();
        commands.push(oldest);
        let mut stats = QueueStats::default();
        let replies = self.link.pipeline(&bytes, commands).await?;
        for (index, reply) in replies.into_iter().enumerate() {
            match reply.map_err(CallError::Refused)? {
                Value::Int(count) if index < LISTS => stats.counts[index] = number_of(count),
                reply if index == LISTS => {
                    let text = bytes_of(reply).and_then(|bytes| String::from_utf8(bytes).ok());
                    stats.bytes = text.and_then(|text| text.parse().ok()).unwrap_or_default();
                }
                reply => {
                    let time = ids_of(&reply).get(1).and_then(|time| time.parse::<f64>().ok());
                    stats.oldest = time.map(|time| time as u64);
                }
            }
        }
        Ok(stats)
    }

    /// Why a crash of Redis loses what was acknowledged, if it does.
    pub async fn durability_warning(&self) -> Option<String> {
        let key = self.stream();
        let get = |name: &str| cmd("CONFIG").arg("GET").arg(name).clone();
        let replies = self.link.pipeline(&key, vec![get("appendonly"), get("appendfsync")]).await;
        let mut values = replies.ok()?.into_iter().map(|reply| {
            let reply = reply.ok()?;
            let pair: Vec<String> = match &reply {
                Value::Map(pairs) => pairs
                    .iter()
                    .flat_map(|(_, value)| ids_of(&Value::Array(vec![value.clone()])))
                    .collect(),
                other => ids_of(other).into_iter().skip(1).collect(),
            };
            pair.into_iter().next()
        });
        match (values.next().flatten().as_deref(), values.next().flatten().as_deref()) {
            (Some("yes"), Some("always")) => None,
            (Some("yes"), Some(policy)) => Some(format!(
                "Redis has `appendfsync {policy}`: a crash loses requests of the last second; with \
                 `appendfsync always` it loses none"
            )),
            (Some("no"), _) => Some(
                "Redis has `appendonly no`: a restart of Redis loses requests; set `appendonly yes` \
                 and `appendfsync always`"
                    .to_owned(),
            ),
            _ => Some(
                "Redis does not say whether it has `appendonly yes` and `appendfsync always`, \
                 without which a restart of it loses requests"
                    .to_owned(),
            ),
        }
    }

    pub(super) async fn command(&self, key: &[u8], command: Cmd) -> Result<Value, CallError> {
        let mut results = self.link.pipeline(key, vec![command]).await?;
        results.pop().unwrap_or(Ok(Value::Nil)).map_err(CallError::Refused)
    }
}
