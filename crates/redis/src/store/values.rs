//! Plain values that nodes share, and locks between nodes. Each has a name and expires.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::{Store, key};
use crate::CallError;
use crate::call::{Call, Script};

/// Deletes a lock that still belongs to its owner.
static UNLOCK: Script = Script::new(
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
);

impl Store {
    /// Reads a value; `None` if there is none, or it has expired.
    ///
    /// # Errors
    /// When the store does not answer, or refuses the call.
    pub async fn value(&self, name: &str) -> Result<Option<Vec<u8>>, CallError> {
        let key = self.value_key(name);
        match self.command(&key, cmd("GET").arg(&*key).clone()).await? {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// Writes a value that expires.
    ///
    /// # Errors
    /// As [`Store::value`]; the value may have been written.
    pub async fn set_value(
        &self,
        name: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<(), CallError> {
        let key = self.value_key(name);
        let set = cmd("SET").arg(&*key).arg(value).arg("PX").arg(millis(ttl)).clone();
        self.command(&key, set).await.map(|_| ())
    }

    /// Removes a value.
    ///
    /// # Errors
    /// As [`Store::value`]; the value may have been removed.
    pub async fn remove_value(&self, name: &str) -> Result<(), CallError> {
        let key = self.value_key(name);
        self.command(&key, cmd("DEL").arg(&*key).clone()).await.map(|_| ())
    }

    /// Acquires a lock that expires; `false` while another owner has it.
    ///
    /// # Errors
    /// As [`Store::value`]; the lock may have been acquired.
    pub async fn lock(&self, name: &str, owner: &str, ttl: Duration) -> Result<bool, CallError> {
        let key = self.value_key(name);
        let set = cmd("SET").arg(&*key).arg(owner).arg("NX").arg("PX").arg(millis(ttl)).clone();
        self.command(&key, set).await.map(|reply| reply == Value::Okay)
    }

    /// Releases a lock, unless it has expired or belongs to another owner.
    ///
    /// # Errors
    /// As [`Store::value`]; the lock may have been released.
    pub async fn unlock(&self, name: &str, owner: &str) -> Result<(), CallError> {
        let (keys, args) = (vec![self.value_key(name).to_vec()], vec![owner.into()]);
        self.inner.link.call(&Call { script: &UNLOCK, keys, args }).await.map(|_| ())
    }

    fn value_key(&self, name: &str) -> Arc<[u8]> {
        key::plain_key(&self.inner.options.namespace, format!("value:{name}").as_bytes())
    }

    async fn command(&self, key: &[u8], command: Cmd) -> Result<Value, CallError> {
        let mut results = self.inner.link.pipeline(key, vec![command]).await?;
        results.pop().unwrap_or(Ok(Value::Nil)).map_err(CallError::Refused)
    }
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use sluicegate_testkit::redis::Single;

    use super::*;
    use crate::Redis;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn values_are_shared_and_expire() {
        let server = Single::start();
        let redis = Redis::connect(server.url()).unwrap();
        assert!(redis.connected(LONG).await);
        let store = redis.store();
        assert_eq!(store.value("a").await, Ok(None));
        store.set_value("a", b"\0x", LONG).await.unwrap();
        assert_eq!(store.value("a").await, Ok(Some(b"\0x".to_vec())));
        let ttl: u64 = server.cli(&["PTTL", "sg:1:value:a"]).parse().unwrap();
        assert!((1..=600_000).contains(&ttl), "{ttl}");
        store.remove_value("a").await.unwrap();
        assert_eq!(store.value("a").await, Ok(None));
    }

    #[tokio::test]
    async fn a_lock_has_one_owner_and_expires() {
        let server = Single::start();
        let redis = Redis::connect(server.url()).unwrap();
        assert!(redis.connected(LONG).await);
        let store = redis.store();
        assert_eq!(store.lock("l", "one", LONG).await, Ok(true));
        assert_eq!(store.lock("l", "two", LONG).await, Ok(false));
        store.unlock("l", "two").await.unwrap();
        assert_eq!(store.lock("l", "two", LONG).await, Ok(false), "not its owner");
        store.unlock("l", "one").await.unwrap();
        assert_eq!(store.lock("l", "two", LONG).await, Ok(true));
        let ttl: u64 = server.cli(&["PTTL", "sg:1:value:l"]).parse().unwrap();
        assert!((1..=600_000).contains(&ttl), "{ttl}");
    }
}
