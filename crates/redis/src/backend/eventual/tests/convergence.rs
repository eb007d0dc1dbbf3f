//! Three nodes and a store, each with its own clock, and messages that are delayed, lost or
//! repeated. Each decision is compared with a naive ledger of the node's knowledge; after all
//! messages have arrived, every node has every count exactly once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use sluicegate_testkit::redis::Single;
use tokio::runtime::Runtime;

use super::*;
use crate::backend::eventual::key_replica::{KeyReplica, SyncPayload};
use crate::script::{SyncReply, SyncRequest};
use sluicegate::clock::ManualClock;

const NODES: usize = 3;
const WINDOW: u64 = 10_000_000;
const LONG: u64 = 25_000_000;
/// By the length of the window.
const LIMITS: [(u64, u64); 2] = [(WINDOW, 20), (LONG, 40)];
const SLIDING: u64 = 18;
const INTERVAL: Span = Span::from_secs(1);

#[derive(Debug, Clone, Copy)]
enum Turn {
    Pass(u64),
    Hit {
        node: usize,
        cost: u64,
    },
    Refund {
        node: usize,
        cost: u64,
    },
    /// A node sends its counts.
    Push {
        node: usize,
    },
    /// A message in transit arrives, and may be duplicated.
    Arrive {
        which: usize,
        again: bool,
    },
    Lose {
        which: usize,
    },
    /// A new node without state replaces it.
    Restart {
        node: usize,
    },
}

fn turn() -> impl Strategy<Value = Turn> {
    let node = || 0..NODES;
    prop_oneof![
        3 => (0_u64..700_000).prop_map(Turn::Pass),
        1 => (0_u64..15_000_000).prop_map(Turn::Pass),
        12 => (node(), 1_u64..5).prop_map(|(node, cost)| Turn::Hit { node, cost }),
        1 => (node(), 1_u64..5).prop_map(|(node, cost)| Turn::Refund { node, cost }),
        4 => node().prop_map(|node| Turn::Push { node }),
        8 => (any::<usize>(), prop::bool::weighted(0.2))
            .prop_map(|(which, again)| Turn::Arrive { which, again }),
        1 => any::<usize>().prop_map(|which| Turn::Lose { which }),
        1 => node().prop_map(|node| Turn::Restart { node }),
    ]
}

/// Admitted and refunded counts, by length and start of the window.
type Counts = BTreeMap<(u64, u64), (u64, u64)>;

/// A message in transit.
#[derive(Debug, Clone)]
enum Message {
    Push { name: usize, push: SyncRequest, version: u64, sent: Timestamp },
    Answer { name: usize, reply: SyncReply, version: u64, sent: Timestamp, knows: Counts },
}

struct Node {
    /// Which store handle, hence which name: a new one for each life.
    name: usize,
    replica: KeyReplica,
    /// Its clock is so far behind.
    behind: u64,
    /// The peers' counts as last received, and the time.
    knows: (u64, Counts),
}

struct World<'a> {
    runtime: &'a Runtime,
    clock: ManualClock,
    key: Arc<[u8]>,
    rule: Arc<Rule>,
    stores: &'a [Store],
    /// What each name has counted, and what of it has arrived.
    counted: Vec<Counts>,
    arrived: Vec<Counts>,
    nodes: Vec<Node>,
    in_transit: Vec<Message>,
    /// The maximum overshoot of a window.
    max_excess: i64,
}

impl World<'_> {
    fn now(&self) -> u64 {
        use sluicegate::clock::Clock;
        self.clock.now().as_micros()
    }

    fn pass(&self, us: u64) {
        self.clock.advance(Duration::from_micros(us));
    }

    fn tick(&self, node: usize) -> Timestamp {
        at(self.now() - self.nodes[node].behind)
    }

    fn take(&mut self, turn: Turn) -> TestCaseResult {
        match turn {
            Turn::Pass(us) => self.pass(us),
            Turn::Hit { node, cost } => self.hit(node, cost)?,
            Turn::Refund { node, cost } => self.refund(node, cost),
            Turn::Push { node } => self.push(node),
            Turn::Arrive { which, again } if !self.in_transit.is_empty() => {
                let which = which % self.in_transit.len();
                let message = self.in_transit[which].clone();
                if !again {
                    self.in_transit.remove(which);
                }
                self.arrive(message);
            }
            Turn::Lose { which } if !self.in_transit.is_empty() => {
                self.in_transit.remove(which % self.in_transit.len());
            }
            Turn::Restart { node } if self.counted.len() < self.stores.len() => {
                let name = self.counted.len();
                self.counted.push(Counts::new());
                self.arrived.push(Counts::new());
                let (replica, behind) = (KeyReplica::new(&self.rule), self.nodes[node].behind);
                self.nodes[node] = Node { name, replica, behind, knows: Default::default() };
            }
            _ => {}
        }
        Ok(())
    }

    fn hit(&mut self, node: usize, cost: u64) -> TestCaseResult {
        let tick = self.tick(node);
        let verdict = match self.nodes[node].replica.hit(&self.rule, cost, INTERVAL, tick) {
            Some(verdict) => verdict,
            None => {
                self.sync(node);
                let tick = self.tick(node);
                self.nodes[node].replica.hit(&self.rule, cost, INTERVAL, tick).unwrap()
            }
        };
        let Node { name, replica, knows, .. } = &self.nodes[node];
        let now = replica.moment().as_micros();
        let known = |length: u64, back: u64| {
            let start = (now - now % length) - back * length;
            let own = net(&self.counted[*name], (length, start));
            (own + net(&knows.1, (length, start))).max(0) as u64
        };
        let mut fits = LIMITS.iter().all(|(length, most)| known(*length, 0) + cost <= *most);
        let overlap = WINDOW - now % WINDOW;
        let estimate = known(WINDOW, 0) + known(WINDOW, 1) * overlap / WINDOW;
        fits &= estimate + cost <= SLIDING;
        prop_assert_eq!(
            verdict.is_allowed(),
            fits,
            "{} of {} at {}: {:?}",
            cost,
            node,
            now,
            verdict
        );
        if fits {
            let name = *name;
            for (length, most) in LIMITS {
                let at = (length, now - now % length);
                self.counted[name].entry(at).or_default().0 += cost;
                // The overshoot is bounded by the admissions unknown to the node.
                let all: i64 = self.counted.iter().map(|counts| net(counts, at)).sum();
                let own = net(&self.counted[name], at);
                let unknown = all - own - net(&self.nodes[node].knows.1, at);
                prop_assert!(all <= most as i64 + unknown.max(0));
                self.max_excess = self.max_excess.max(all - most as i64);
            }
        }
        Ok(())
    }

    fn refund(&mut self, node: usize, cost: u64) {
        let tick = self.tick(node);
        let Some(_) = self.nodes[node].replica.refund(&self.rule, cost, tick) else { return };
        let Node { name, replica, knows, .. } = &self.nodes[node];
        let now = replica.moment().as_micros();
        for (length, _) in LIMITS {
            let mut left = cost;
            for back in 0..2 {
                let at = (length, (now - now % length) - back * length);
                let known = net(&self.counted[*name], at) + net(&knows.1, at);
                let given = left.min(known.max(0) as u64);
                left -= given;
                if given > 0 {
                    self.counted[*name].entry(at).or_default().1 += given;
                }
            }
        }
    }

    fn push(&mut self, node: usize) {
        let message = self.message(node);
        self.in_transit.push(message);
    }

    fn message(&mut self, node: usize) -> Message {
        let sent = self.tick(node);
        let SyncPayload { op, epoch, counted, version } =
            self.nodes[node].replica.sync_payload(sent);
        let push = SyncRequest { key: self.key.clone(), op, epoch, counted };
        Message::Push { name: self.nodes[node].name, push, version, sent }
    }

    /// There and back at once.
    fn sync(&mut self, node: usize) {
        let message = self.message(node);
        self.arrive(message);
        let answer = self.in_transit.pop().unwrap();
        self.arrive(answer);
    }

    fn arrive(&mut self, message: Message) {
        // Events have distinct times.
        self.pass(1);
        match message {
            Message::Push { name, push, version, sent } => {
                let store = &self.stores[name];
                let reply = self.runtime.block_on(store.sync(std::slice::from_ref(&push)));
                let reply = reply.unwrap().remove(0);
                for counted in &push.counted {
                    let length = counted.name.parse().unwrap();
                    for window in [counted.current, counted.previous] {
                        let at = (length, window.start.as_micros());
                        let has = self.arrived[name].entry(at).or_default();
                        *has = (has.0.max(window.admitted), has.1.max(window.refunded));
                    }
                }
                let others = (0..).zip(&self.arrived).filter(|(other, _)| *other != name);
                let knows = sum(others.map(|(_, counts)| counts));
                self.in_transit.push(Message::Answer { name, reply, version, sent, knows });
            }
            Message::Answer { name, reply, version, sent, knows } => {
                let node = self.nodes.iter().position(|node| node.name == name);
                let Some(node) = node else { return };
                let tick = self.tick(node);
                let node = &mut self.nodes[node];
                node.replica.merge(&reply, version, (sent, tick));
                if reply.at.as_micros() >= node.knows.0 {
                    node.knows = (reply.at.as_micros(), knows);
                }
            }
        }
    }

    /// After all replies, every node has every count exactly once.
    fn settle(&mut self) -> TestCaseResult {
        self.in_transit.clear();
        for node in (0..NODES).chain(0..NODES) {
            self.sync(node);
        }
        // For stopped nodes, only the counts that had arrived.
        let alive: Vec<usize> = self.nodes.iter().map(|node| node.name).collect();
        let all = (0..).zip(&self.counted).zip(&self.arrived);
        let all = all.map(|((name, counted), arrived)| match alive.contains(&name) {
            true => counted,
            false => arrived,
        });
        let all = sum(all);
        for node in 0..NODES {
            let tick = self.tick(node);
            let replica = &mut self.nodes[node].replica;
            replica.peek(&self.rule, 1, INTERVAL, tick).unwrap();
            let now = replica.moment().as_micros();
            for (length, _) in LIMITS {
                let start = now - now % length;
                let known = replica.used(&length.to_string()).unwrap();
                let wanted =
                    [start, start - length].map(|at| net(&all, (length, at)).max(0) as u64);
                prop_assert_eq!([known.0, known.1], wanted, "windows of {} at {}", length, node);
            }
        }
        Ok(())
    }
}

fn net(counts: &Counts, at: (u64, u64)) -> i64 {
    counts.get(&at).map_or(0, |(admitted, given)| *admitted as i64 - *given as i64)
}

fn sum<'a>(all: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut sum = Counts::new();
    for (at, (admitted, given)) in all.flatten() {
        let has = sum.entry(*at).or_default();
        *has = (has.0 + admitted, has.1 + given);
    }
    sum
}

#[test]
fn nodes_say_what_a_ledger_of_what_they_can_know_says_and_in_the_end_know_all() {
    let server = Single::start();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let clock = ManualClock::at(at(1_794_770_800_000_000));
    let stores: Vec<Store> = runtime.block_on(async {
        (0..8).map(|seed| store(server.url(), Some(seed), Some(Arc::new(clock.clone())))).collect()
    });
    let limits = LIMITS.map(|(length, most)| fixed(most, Span::from_micros(length)));
    let is_sliding = sliding(SLIDING, Span::from_micros(WINDOW), Rounding::Floor);
    let rule = rule([&limits[..], &[is_sliding]].concat());
    let (case, max_excess) = (std::cell::Cell::new(0_u64), std::cell::Cell::new(0));
    let turns = prop::collection::vec(turn(), 1..120);
    let behind = prop::collection::vec(0_u64..1_000_000_000_000, NODES);
    let checked = TestRunner::new(config(150)).run(&(behind, turns), |(behind, turns)| {
        case.set(case.get() + 1);
        let node = |(name, behind)| Node {
            name,
            replica: KeyReplica::new(&rule),
            behind,
            knows: Default::default(),
        };
        let mut world = World {
            runtime: &runtime,
            clock: clock.clone(),
            key: format!("{{case {}}}:e", case.get()).into_bytes().into(),
            rule: rule.clone(),
            stores: &stores,
            counted: vec![Counts::new(); NODES],
            arrived: vec![Counts::new(); NODES],
            nodes: (0..).zip(behind).map(node).collect(),
            in_transit: Vec::new(),
            max_excess: 0,
        };
        for turn in turns {
            world.take(turn)?;
        }
        max_excess.set(max_excess.get().max(world.max_excess));
        world.settle()
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    assert!(max_excess.get() > 0, "nodes always knew everything: nothing was tried");
}
