//! How many nodes there are: each says every second that it is there, and hears how many did so lately.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::Inner;
use crate::redis::call::{Call, Script};

/// How often a node says that it is there.
const EVERY: Duration = Duration::from_secs(1);

/// By the store's clock. Whoever was silent for five seconds is gone.
static HELLO: Script = Script::new(
    "local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 5000000)
redis.call('PEXPIRE', KEYS[1], 60000)
return redis.call('ZCARD', KEYS[1])",
);

/// Says hello until the store is dropped.
pub(super) async fn greet(store: Weak<Inner>) {
    let Some(name) = store.upgrade().map(|store| format!("{:016x}", store.node)) else { return };
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(store) = store.upgrade() else { return };
        let keys = vec![store.key(b"nodes").to_vec()];
        let call = Call { script: &HELLO, keys, args: vec![name.clone().into_bytes()] };
        // Who cannot be asked leaves us with what was heard last.
        let said = store.link.call(&call).await;
        match &said {
            Ok(_) => store.refusal.is_over(),
            Err(error) => store.refusal.heard(error),
        }
        if let Ok(Value::Int(count)) = said {
            store.nodes.store(u64::try_from(count).unwrap_or(1).max(1), Ordering::Relaxed);
            if store.journal.has_entries() {
                store.settle_journal();
            }
        }
    }
}
