//! What is in the file, in memory: queues in order, stages, bounds, and what is due.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::deferred::request::{DeferredRequest, Millis, Stage};
use crate::deferred::store::{DeferredStats, Exceeded, StoreBounds};

/// Where each request is. It is derived from the file alone, except who owns a queue.
#[derive(Debug, Default)]
pub(super) struct Index {
    requests: HashMap<String, IndexedRequest>,
    queues: HashMap<String, IndexedQueue>,
    /// Queues without an owner.
    unclaimed: VecDeque<String>,
    stages: [BTreeMap<u64, String>; 3],
    /// Waiting requests of each route.
    routes: HashMap<String, u64>,
    callbacks: BTreeSet<(Millis, String)>,
    deletions: BTreeSet<(Millis, String)>,
    bytes: u64,
    last_sequence: u64,
}

/// A request.
#[derive(Debug)]
struct IndexedRequest {
    version: u64,
    sequence: u64,
    queue: String,
    route: String,
    stage: Stage,
    bytes: u64,
    created_at: Millis,
    callback_at: Option<Millis>,
    deleted_at: Option<Millis>,
}

/// The waiting requests of a queue, which exists while it has a request or an owner.
#[derive(Debug, Default)]
struct IndexedQueue {
    requests: BTreeMap<u64, String>,
    bytes: u64,
    is_claimed: bool,
}

impl Index {
    /// The bound that a new request would exceed.
    pub(super) fn exceeded(
        &self,
        request: &DeferredRequest,
        bounds: StoreBounds,
    ) -> Option<Exceeded> {
        let StoreBounds { count, queue_count, queue_bytes, bytes } = bounds;
        let new = request.bytes();
        let of_route = self.routes.get(&request.route).copied().unwrap_or_default();
        let queue = self.queues.get(&request.queue);
        let (in_queue, queued) =
            queue.map_or((0, 0), |queue| (queue.requests.len() as u64, queue.bytes));
        if of_route >= count {
            Some(Exceeded::Count)
        } else if in_queue >= queue_count {
            Some(Exceeded::QueueCount)
        } else if queued.saturating_add(new) > queue_bytes {
            Some(Exceeded::QueueBytes)
        } else if self.bytes.saturating_add(new) > bytes {
            Some(Exceeded::Bytes)
        } else {
            None
        }
    }

    /// The sequence number of the next request.
    pub(super) const fn next_sequence(&mut self) -> u64 {
        self.last_sequence += 1;
        self.last_sequence
    }

    /// Adds a request that is not there.
    pub(super) fn insert(&mut self, request: &DeferredRequest) {
        let stage = request.state.stage();
        let entry = IndexedRequest {
            version: request.version,
            sequence: request.sequence,
            queue: request.queue.clone(),
            route: request.route.clone(),
            stage,
            bytes: request.bytes(),
            created_at: request.created_at,
            callback_at: request.callback_due_at(),
            deleted_at: request.deleted_at,
        };
        self.last_sequence = self.last_sequence.max(entry.sequence);
        self.bytes = self.bytes.saturating_add(entry.bytes);
        self.stages[stage as usize].insert(entry.sequence, request.id.clone());
        self.callbacks.extend(entry.callback_at.map(|at| (at, request.id.clone())));
        self.deletions.extend(entry.deleted_at.map(|at| (at, request.id.clone())));
        if stage == Stage::Waiting {
            *self.routes.entry(entry.route.clone()).or_default() += 1;
            let queue = self.queues.entry(entry.queue.clone()).or_default();
            if queue.requests.is_empty() && !queue.is_claimed {
                self.unclaimed.push_back(entry.queue.clone());
            }
            queue.requests.insert(entry.sequence, request.id.clone());
            queue.bytes = queue.bytes.saturating_add(entry.bytes);
        }
        self.requests.insert(request.id.clone(), entry);
    }

    /// Removes a request.
    pub(super) fn remove(&mut self, id: &str) {
        let Some(entry) = self.requests.remove(id) else { return };
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        self.stages[entry.stage as usize].remove(&entry.sequence);
        if let Some(at) = entry.callback_at {
            self.callbacks.remove(&(at, id.to_owned()));
        }
        if let Some(at) = entry.deleted_at {
            self.deletions.remove(&(at, id.to_owned()));
        }
        if entry.stage != Stage::Waiting {
            return;
        }
        if let Some(count) = self.routes.get_mut(&entry.route) {
            *count -= 1;
            if *count == 0 {
                self.routes.remove(&entry.route);
            }
        }
        if let Some(queue) = self.queues.get_mut(&entry.queue) {
            queue.requests.remove(&entry.sequence);
            queue.bytes = queue.bytes.saturating_sub(entry.bytes);
            if queue.requests.is_empty() && !queue.is_claimed {
                self.queues.remove(&entry.queue);
                self.unclaimed.retain(|queue| *queue != entry.queue);
            }
        }
    }

    /// The version of a request.
    pub(super) fn version(&self, id: &str) -> Option<u64> {
        self.requests.get(id).map(|entry| entry.version)
    }

    /// The stage and the sequence number of a request.
    pub(super) fn place(&self, id: &str) -> Option<(Stage, u64)> {
        self.requests.get(id).map(|entry| (entry.stage, entry.sequence))
    }

    /// Number of requests before this one in its queue.
    pub(super) fn ahead(&self, id: &str) -> u64 {
        let place = || {
            let entry = self.requests.get(id).filter(|entry| entry.stage == Stage::Waiting)?;
            let queue = self.queues.get(&entry.queue)?;
            Some(queue.requests.range(..entry.sequence).count() as u64)
        };
        place().unwrap_or_default()
    }

    /// Whether requests of a queue wait.
    pub(super) fn is_waiting(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|queue| !queue.requests.is_empty())
    }

    /// The first request of a queue.
    pub(super) fn first(&self, queue: &str) -> Option<&str> {
        self.queues.get(queue)?.requests.values().next().map(String::as_str)
    }

    /// Queues without an owner, which have one from now on.
    pub(super) fn claim(&mut self, count_max: usize) -> Vec<String> {
        let claimed: Vec<_> = self.unclaimed.drain(..count_max.min(self.unclaimed.len())).collect();
        for queue in &claimed {
            if let Some(queue) = self.queues.get_mut(queue) {
                queue.is_claimed = true;
            }
        }
        claimed
    }

    /// Gives up a queue.
    pub(super) fn release(&mut self, name: &str) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        queue.is_claimed = false;
        match queue.requests.is_empty() {
            true => drop(self.queues.remove(name)),
            false => self.unclaimed.push_back(name.to_owned()),
        }
    }

    /// Owners of queues, which a new index does not know.
    pub(super) fn take_claims(&mut self, previous: &Self) {
        let claimed = previous.queues.iter().filter(|(_, queue)| queue.is_claimed);
        for (name, _) in claimed {
            self.queues.entry(name.clone()).or_default().is_claimed = true;
            self.unclaimed.retain(|queue| queue != name);
        }
    }

    /// Ids of a stage, the oldest first.
    pub(super) fn ids(&self, stage: Stage, offset: usize, count_max: usize) -> Vec<String> {
        let ids = self.stages[stage as usize].values();
        ids.skip(offset).take(count_max).cloned().collect()
    }

    /// Ids of requests whose callback is due.
    pub(super) fn callbacks(&self, now: Millis, count_max: usize) -> Vec<String> {
        due(&self.callbacks, now, count_max)
    }

    /// Ids of requests whose time has passed.
    pub(super) fn outdated(&self, now: Millis, count_max: usize) -> Vec<String> {
        due(&self.deletions, now, count_max)
    }

    pub(super) fn stats(&self) -> DeferredStats {
        let [waiting, _, dead] = &self.stages;
        let created = |id: &String| self.requests.get(id).map(|entry| entry.created_at);
        DeferredStats {
            waiting: waiting.len() as u64,
            oldest_at: waiting.values().next().and_then(created),
            dead: dead.len() as u64,
            bytes: self.bytes,
        }
    }
}

fn due(set: &BTreeSet<(Millis, String)>, now: Millis, count_max: usize) -> Vec<String> {
    let due = set.iter().take_while(|(at, _)| *at <= now);
    due.take(count_max).map(|(_, id)| id.clone()).collect()
}
