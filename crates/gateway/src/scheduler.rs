//! Order of the requests that wait for a limit or an upstream: priorities, then deficit round
//! robin.
//!
//! ```text
//!   priority 9 ── client a: 1 1       the highest priority first;
//!              └─ client b: 1         within it each client in turn, by cost
//!   priority 5 ── client a: 1 1 1
//! ```
//!
//! A client's turn brings a quantum, the largest cost that waits, and its requests are served as
//! long as they fit into its deficit (Shreedhar and Varghese 1995). So clients with any demand get
//! equal shares, up to one quantum. Requests of one client are served in order of arrival. Nothing
//! here waits or reads a clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueuedRequest {
    /// Its number, in order of arrival.
    pub(crate) id: u64,
    /// Higher ones are served first.
    pub(crate) priority: u8,
    /// The client, for fairness.
    pub(crate) client: u64,
    /// What it takes of the limit.
    pub(crate) cost: u64,
}

/// Waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    classes: BTreeMap<Reverse<u8>, Class>,
    len: usize,
}

/// Requests of one priority.
#[derive(Debug, Default)]
struct Class {
    clients: HashMap<u64, Client>,
    /// Clients with requests, the one whose turn it is first.
    ring: VecDeque<u64>,
    quantum: u64,
}

#[derive(Debug, Default)]
struct Client {
    requests: VecDeque<QueuedRequest>,
    /// Of its requests.
    cost: u64,
    deficit: u64,
}

impl Scheduler {
    /// Number of waiting requests.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a request behind those of its client.
    pub(crate) fn push(&mut self, entry: QueuedRequest) {
        self.len += 1;
        let class = self.classes.entry(Reverse(entry.priority)).or_default();
        class.quantum = class.quantum.max(entry.cost);
        let client = class.clients.entry(entry.client).or_default();
        if client.requests.is_empty() {
            class.ring.push_back(entry.client);
            if class.ring.len() == 1 {
                client.deficit = class.quantum;
            }
        }
        client.cost = client.cost.saturating_add(entry.cost);
        client.requests.push_back(entry);
    }

    /// The request that is served next.
    pub(crate) fn next(&mut self) -> Option<QueuedRequest> {
        self.classes.values_mut().next().and_then(Class::next)
    }

    /// Removes a request that was served: its client pays for it.
    pub(crate) fn serve(&mut self, entry: QueuedRequest) {
        if let Some(class) = self.classes.get_mut(&Reverse(entry.priority))
            && let Some(client) = class.clients.get_mut(&entry.client)
        {
            client.deficit = client.deficit.saturating_sub(entry.cost);
        }
        self.remove(entry);
    }

    /// Removes a request that does not wait any more.
    pub(crate) fn remove(&mut self, entry: QueuedRequest) {
        let Some(class) = self.classes.get_mut(&Reverse(entry.priority)) else { return };
        self.len -= usize::from(class.remove(entry));
        if class.clients.is_empty() {
            self.classes.remove(&Reverse(entry.priority));
        }
    }

    /// Cost that is served before a request that would be added now.
    pub(crate) fn cost_before(&self, entry: QueuedRequest) -> u64 {
        self.before(entry, entry.cost, |client| client.cost)
    }

    /// Number of requests that are served before one that would be added now. Bounded by `n`, it
    /// bounds all requests by `n (1 + ln n)`, and leaves room for clients that wait with few.
    pub(crate) fn count_before(&self, entry: QueuedRequest) -> u64 {
        self.before(entry, 1, |client| client.requests.len() as u64)
    }

    /// What is served before a request of this size.
    fn before(&self, entry: QueuedRequest, size: u64, of: impl Fn(&Client) -> u64) -> u64 {
        let (mut before, mut own) = (0_u64, None);
        for (Reverse(priority), class) in &self.classes {
            match priority.cmp(&entry.priority) {
                std::cmp::Ordering::Greater => {
                    before = class.clients.values().map(&of).fold(before, u64::saturating_add);
                }
                std::cmp::Ordering::Equal => own = Some(class),
                std::cmp::Ordering::Less => {}
            }
        }
        let Some(class) = own else { return before };
        let of_client = class.clients.get(&entry.client).map_or(0, &of);
        // Until its turn, each other client is served as much as this one.
        let share = of_client.saturating_add(size);
        let others = class.clients.iter().filter(|(client, _)| **client != entry.client);
        let others = others.map(|(_, client)| of(client).min(share));
        before.saturating_add(of_client).saturating_add(others.fold(0, u64::saturating_add))
    }
}

impl Class {
    fn next(&mut self) -> Option<QueuedRequest> {
        loop {
            let client = self.clients.get(self.ring.front()?)?;
            let entry = *client.requests.front()?;
            if client.deficit >= entry.cost {
                return Some(entry);
            }
            self.pass_turn();
        }
    }

    /// The next client's turn begins.
    fn pass_turn(&mut self) {
        self.ring.rotate_left(1);
        self.begin_turn();
    }

    fn begin_turn(&mut self) {
        if let Some(client) = self.ring.front().and_then(|front| self.clients.get_mut(front)) {
            client.deficit = client.deficit.saturating_add(self.quantum);
        }
    }

    fn remove(&mut self, entry: QueuedRequest) -> bool {
        let Some(client) = self.clients.get_mut(&entry.client) else { return false };
        let Some(at) = client.requests.iter().position(|one| one.id == entry.id) else {
            return false;
        };
        client.requests.remove(at);
        client.cost = client.cost.saturating_sub(entry.cost);
        if client.requests.is_empty() {
            // What is left of a turn is not kept.
            self.clients.remove(&entry.client);
            let was_first = self.ring.front() == Some(&entry.client);
            self.ring.retain(|client| *client != entry.client);
            if was_first {
                self.begin_turn();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn entry(id: u64, priority: u8, client: u64, cost: u64) -> QueuedRequest {
        QueuedRequest { id, priority, client, cost }
    }

    /// Serves everything; the ids in order.
    fn drain(scheduler: &mut Scheduler) -> Vec<u64> {
        let mut served = Vec::new();
        while let Some(next) = scheduler.next() {
            scheduler.serve(next);
            served.push(next.id);
        }
        assert_eq!(scheduler.len(), 0);
        served
    }

    #[test]
    fn a_client_with_many_requests_does_not_delay_the_others() {
        let mut scheduler = Scheduler::default();
        for id in 0..100 {
            scheduler.push(entry(id, 5, 1, 1));
        }
        scheduler.push(entry(100, 5, 2, 1));
        scheduler.push(entry(101, 5, 3, 1));
        assert_eq!(drain(&mut scheduler)[..4], [0, 100, 101, 1]);
    }

    #[test]
    fn the_highest_priority_is_served_first() {
        let mut scheduler = Scheduler::default();
        for (id, priority) in [5, 1, 9, 5].into_iter().enumerate() {
            scheduler.push(entry(id as u64, priority, id as u64, 1));
        }
        assert_eq!(drain(&mut scheduler), [2, 0, 3, 1]);
    }

    #[test]
    fn shares_are_of_cost_and_not_of_requests() {
        let mut scheduler = Scheduler::default();
        for id in 0..3 {
            scheduler.push(entry(id, 5, 1, 10));
        }
        for id in 3..33 {
            scheduler.push(entry(id, 5, 2, 1));
        }
        let served = drain(&mut scheduler);
        let small = served.iter().take_while(|id| **id != 2).filter(|id| **id >= 3).count();
        assert!((19..=21).contains(&small), "{small} of cost 1 before the third of cost 10");
    }

    #[test]
    fn a_client_that_leaves_costs_nobody_a_turn() {
        let mut scheduler = Scheduler::default();
        for id in 0..3 {
            scheduler.push(entry(id, 5, id, 1));
        }
        assert_eq!(scheduler.next().map(|next| next.id), Some(0));
        scheduler.remove(entry(0, 5, 0, 1));
        scheduler.remove(entry(0, 5, 0, 1));
        assert_eq!(drain(&mut scheduler), [1, 2]);
    }

    proptest! {
        /// Whoever leaves, and whatever it costs: everything that stays is served once, requests of
        /// a client in order, and while two clients of a class both wait, their shares differ by at
        /// most two quanta and what they do not use of one.
        #[test]
        fn shares_are_equal_while_clients_wait(
            requests in prop::collection::vec((0_u64..3, 1_u64..6, prop::bool::weighted(0.2)), 1..60),
        ) {
            let mut scheduler = Scheduler::default();
            let entries: Vec<QueuedRequest> = requests.iter().enumerate()
                .map(|(id, (client, cost, _))| entry(id as u64, 5, *client, *cost)).collect();
            entries.iter().for_each(|one| scheduler.push(*one));
            for (one, (.., leaves)) in entries.iter().zip(&requests) {
                if *leaves { scheduler.remove(*one); }
            }
            let mut left: Vec<QueuedRequest> = entries.iter().zip(&requests)
                .filter(|(_, (.., leaves))| !leaves).map(|(one, _)| *one).collect();
            prop_assert_eq!(scheduler.len(), left.len());
            let quantum = entries.iter().map(|one| one.cost).max().unwrap_or(0);
            let mut shares = [0_u64; 3];
            while let Some(next) = scheduler.next() {
                let first = left.iter().find(|one| one.client == next.client);
                prop_assert_eq!(first, Some(&next), "in order");
                left.retain(|one| one.id != next.id);
                scheduler.serve(next);
                shares[next.client as usize] += next.cost;
                let waiting: Vec<u64> = (0..3).filter(|client| left.iter().any(|one| one.client == *client))
                    .map(|client| shares[client as usize]).collect();
                if let (Some(most), Some(least)) = (waiting.iter().max(), waiting.iter().min()) {
                    prop_assert!(most - least <= 3 * quantum, "{:?}", shares);
                }
            }
            prop_assert!(left.is_empty());
        }

        /// Nothing that is served before a request is left out of its estimate, as long as no one
        /// else comes.
        #[test]
        fn the_cost_before_a_request_is_that_of_those_served_first(
            requests in prop::collection::vec((0_u64..4, 0_u8..3), 0..40),
            (client, priority) in (0_u64..4, 0_u8..3),
        ) {
            let mut scheduler = Scheduler::default();
            for (id, (client, priority)) in requests.iter().enumerate() {
                scheduler.push(entry(id as u64, *priority, *client, 1));
            }
            let last = entry(999, priority, client, 1);
            let estimate = scheduler.cost_before(last);
            scheduler.push(last);
            let before = drain(&mut scheduler).iter().take_while(|id| **id != 999).count() as u64;
            prop_assert!(estimate >= before, "{estimate} for {before}");
            prop_assert!(estimate <= before + 4, "{estimate} for {before}");
        }
    }
}
