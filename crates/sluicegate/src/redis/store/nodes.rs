//! Who there is: each node says every second that it is there and what it is asked for, and hears of the others.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
        store.greet_once().await;
    }
}

impl Inner {
    /// Says hello, and hears of the others.
    pub(super) async fn greet_once(self: &Arc<Self>) {
        let said = self.link.call(&self.hello()).await;
        match &said {
            Ok(_) => self.refusal.is_over(),
            Err(error) => self.refusal.heard(error),
        }
        // Who cannot be asked leaves us with what was heard last.
        let Some((live, round)) = said.ok().as_ref().and_then(Round::read) else { return };
        self.nodes.store(live.max(1), Ordering::Relaxed);
        self.demands.hear(live.max(1), round);
        if self.journal.has_entries() {
            self.settle_journal();
        }
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
