//! Membership: each node sends a heartbeat every second, with its demand, and receives the others'.
//! A node that stops leaves: its peers do not count it from their next heartbeat on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::StoreInner;
use super::demand::DemandRound;
use crate::call::{Call, Script};

/// Interval of heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);

/// Nodes expire after five seconds without a heartbeat, by the store's clock.
pub(crate) static HEARTBEAT: Script = Script::new(include_str!("lua/heartbeat.lua"));

/// Sends heartbeats until the store is dropped.
pub(super) async fn send_heartbeats(store: Weak<StoreInner>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(store) = store.upgrade() else { return };
        // A node in local mode announces itself when it has recovered.
        if !store.is_local_mode() {
            store.heartbeat(Phase::Settled).await;
        }
    }
}

/// How far a node has recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The store has all records that this node observed.
    Reasserted,
    /// The store has also absorbed the admissions of this node without it.
    Settled,
    /// The node stops.
    Left,
}

/// Reply to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// The store's time, in microseconds.
    pub(super) now_us: u64,
    reasserted: Members,
    settled: Members,
}

/// Nodes that have reached a phase, or a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Members {
    pub(super) count: u64,
    /// The oldest of their last heartbeats.
    pub(super) oldest_us: u64,
}

impl Heartbeat {
    pub(super) fn decode(reply: &Value) -> Option<(Self, DemandRound)> {
        let Value::Array(parts) = reply else { return None };
        let [live, oldest, settled, oldest_settled, now, round @ ..] = parts.as_slice() else {
            return None;
        };
        let whole = |value: &Value| match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let members =
            |count, oldest| Some(Members { count: whole(count)?, oldest_us: whole(oldest)? });
        let heartbeat = Self {
            now_us: whole(now)?,
            reasserted: members(live, oldest)?,
            settled: members(settled, oldest_settled)?,
        };
        Some((heartbeat, DemandRound::decode(round)?))
    }

    pub(super) const fn members(&self, phase: Phase) -> Members {
        match phase {
            Phase::Reasserted => self.reasserted,
            Phase::Settled | Phase::Left => self.settled,
        }
    }
}

impl StoreInner {
    /// Sends a heartbeat. `None` if the store does not reply, or this node has left.
    pub(super) async fn heartbeat(self: &Arc<Self>, phase: Phase) -> Option<Heartbeat> {
        // One at a time: none arrives after that of a node that leaves.
        let mut has_left = self.has_left.lock().await;
        if *has_left {
            return None;
        }
        *has_left = phase == Phase::Left;
        let reply = self.link.call(&self.heartbeat_call(phase)).await;
        drop(has_left);
        match &reply {
            Ok(_) => self.write_status.accepted(),
            Err(error) => self.write_status.failed(error),
        }
        let (heartbeat, round) = Heartbeat::decode(&reply.ok()?)?;
        // In local mode, nodes that have not rejoined yet count too.
        let before = if self.is_local_mode() { self.nodes.load(Ordering::Relaxed) } else { 0 };
        let nodes = heartbeat.reasserted.count.max(before).max(1);
        self.nodes.store(nodes, Ordering::Relaxed);
        self.demands.update(nodes, round);
        if self.journal.has_entries() {
            self.settle_journal();
        }
        Some(heartbeat)
    }

    fn heartbeat_call(&self, phase: Phase) -> Call {
        // All of one slot on a Cluster.
        let name = format!("{:016x}", self.node);
        let key = |suffix: &str| self.key(format!("{{nodes}}{suffix}").as_bytes()).to_vec();
        let own = |round: u8| key(&format!(":{round}:{name}"));
        let keys = vec![key(""), key(":0"), key(":1"), own(0), own(1), key(":settled")];
        let clock = self.clock().map(|now| now.as_micros().to_string()).unwrap_or_default();
        let phase = match phase {
            Phase::Reasserted => "0",
            Phase::Settled => "1",
            Phase::Left => "-1",
        };
        let mut args = vec![clock.into_bytes(), name.clone().into_bytes(), phase.into()];
        for (id, demand) in self.demands.measure(self.ticks()) {
            args.extend([format!("{id:016x}").into_bytes(), demand.to_string().into_bytes()]);
        }
        Call { script: &HEARTBEAT, keys, args }
    }
}

#[cfg(test)]
mod tests;
