//! Who there is: each node says every second that it is there and what it is asked for, and hears of the others.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::Inner;
use super::demand::Round;
use crate::redis::call::{Call, Script};

/// How often a node says that it is there.
const EVERY: Duration = Duration::from_secs(1);

/// By the store's clock. Whoever was silent for five seconds is gone.
static HELLO: Script = Script::new(include_str!("lua/hello.lua"));

/// Says hello until the store is dropped.
pub(super) async fn greet(store: Weak<Inner>) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(store) = store.upgrade() else { return };
        // A node that is apart announces itself when it has recovered.
        if !store.rejoin.is_apart() {
            store.heartbeat().await;
        }
    }
}

/// What a heartbeat says of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// Nodes that are alive, this one included.
    pub(super) live: u64,
    /// The store's time.
    pub(super) now_us: u64,
    /// The last heartbeat of the node that was silent for longest.
    pub(super) oldest_us: u64,
}

impl Heartbeat {
    pub(super) fn read(reply: &Value) -> Option<(Self, Round)> {
        let Value::Array(parts) = reply else { return None };
        let [live, now, oldest, round @ ..] = parts.as_slice() else { return None };
        let whole = |value: &Value| match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let heartbeat =
            Self { live: whole(live)?.max(1), now_us: whole(now)?, oldest_us: whole(oldest)? };
        Some((heartbeat, Round::read(round)?))
    }
}

impl Inner {
    /// Reports that this node is alive, and learns of the others. Nothing if the store does not answer.
    pub(super) async fn heartbeat(self: &Arc<Self>) -> Option<Heartbeat> {
        let reply = self.link.call(&self.hello()).await;
        match &reply {
            Ok(_) => self.refusal.is_over(),
            Err(error) => self.refusal.heard(error),
        }
        let (heartbeat, round) = Heartbeat::read(&reply.ok()?)?;
        self.nodes.store(heartbeat.live, Ordering::Relaxed);
        self.demands.hear(heartbeat.live, round);
        if self.journal.has_entries() {
            self.settle_journal();
        }
        Some(heartbeat)
    }

    fn hello(&self) -> Call {
        // All of one slot on a Cluster.
        let name = format!("{:016x}", self.node);
        let key = |beside: &str| self.key(format!("{{nodes}}{beside}").as_bytes()).to_vec();
        let own = |round: u8| key(&format!(":{round}:{name}"));
        let keys = vec![key(""), key(":0"), key(":1"), own(0), own(1)];
        let clock = self.clock().map(|now| now.as_micros().to_string()).unwrap_or_default();
        let mut args = vec![clock.into_bytes(), name.clone().into_bytes()];
        for (id, demand) in self.demands.look(self.ticks()) {
            args.extend([format!("{id:016x}").into_bytes(), demand.to_string().into_bytes()]);
        }
        Call { script: &HELLO, keys, args }
    }
}

#[cfg(test)]
mod tests;
