//! Faults and their times.

use crate::conditions::Conditions;
use crate::rng::SimRng;

/// All faults of a world.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// Network conditions without faults.
    pub conditions: Conditions,
    /// Faults by time in milliseconds.
    pub faults: Vec<(u64, Fault)>,
    /// End of all faults, in milliseconds.
    pub over_ms: u64,
}

/// A fault or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The network conditions change.
    Conditions(Conditions),
    /// A node is partitioned from the store.
    Cut(usize),
    /// The partition of a node ends.
    Heal(usize),
    /// The store stalls for this many milliseconds.
    Stall(u64),
    /// The primary is lost with its writes of the last milliseconds.
    FailOver(u64),
    /// The store is lost with all data.
    LoseAll,
    /// A primary is available again.
    Back,
    /// A node connects to the new primary.
    Reconnect(usize),
    /// A node crashes.
    Crash(usize),
    /// A node shuts down gracefully.
    Stop(usize),
    /// A new process replaces an ended node.
    Start(usize),
    /// The clock of a node is stepped by this many milliseconds.
    Step(usize, i64),
    /// A node loads a revision of the rules.
    Reload(usize, usize),
    /// The network of one node changes; back to that of all, if `None`.
    Link(usize, Option<Conditions>),
    /// The store is unreachable and loses nothing: a shard of a Cluster, or all.
    Down(Option<usize>),
    /// The clock of the store is stepped by this many milliseconds.
    StoreStep(i64),
}

/// Calls are delayed, lost and duplicated.
const DEGRADED: Conditions =
    Conditions { delay_ms: 4, late: (60, 400), lost: 30, unanswered: 30, twice: 40, least_ms: 0 };

impl FaultPlan {
    /// No faults, on a normal network.
    #[must_use]
    pub const fn none() -> Self {
        Self { conditions: Conditions::NORMAL, faults: Vec::new(), over_ms: 0 }
    }

    pub(super) fn new(rng: &mut SimRng, nodes: usize, length_ms: u64) -> Self {
        let delay_ms = rng.choose(&[0, 1, 2, 3]);
        let conditions = Conditions { delay_ms, ..Conditions::NORMAL };
        let kinds = rng.choose(&[0, 0, 1, 1, 2, 3]);
        let over = length_ms * 6 / 10;
        let mut faults = Vec::new();
        let mut last = 0;
        for _ in 0..kinds {
            let from = rng.within(300, over.saturating_sub(600).max(301));
            let to = from + rng.within(50, over.saturating_sub(from).max(51));
            let node = rng.within(0, nodes as u64 - 1) as usize;
            last = last.max(to);
            one(rng, (from, to), node, nodes, conditions, &mut faults);
        }
        faults.sort_by_key(|(at, _)| *at);
        Self { conditions, faults, over_ms: if kinds == 0 { 0 } else { last } }
    }

    /// Whether a node stops or crashes.
    #[must_use]
    pub fn stops_nodes(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Stop(_) | Fault::Crash(_)))
    }

    /// Whether the store loses data.
    #[must_use]
    pub fn loses_data(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::FailOver(_) | Fault::LoseAll))
    }

    /// Whether the clock of the store is stepped.
    #[must_use]
    pub fn steps_store(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::StoreStep(_)))
    }

    /// Whether a node reloads its rules.
    #[must_use]
    pub fn reloads(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Reload(..)))
    }
}

fn one(
    rng: &mut SimRng,
    (from, to): (u64, u64),
    node: usize,
    nodes: usize,
    fair: Conditions,
    faults: &mut Vec<(u64, Fault)>,
) {
    let mut then = |at: u64, fault| faults.push((at, fault));
    match rng.within(0, 12) {
        0 | 1 => {
            then(from, Fault::Conditions(DEGRADED));
            then(to, Fault::Conditions(fair));
        }
        2 => {
            then(from, Fault::Cut(node));
            then(to, Fault::Heal(node));
        }
        3 => {
            (0..nodes).for_each(|node| then(from, Fault::Cut(node)));
            (0..nodes).for_each(|node| then(to, Fault::Heal(node)));
        }
        4 => then(from, Fault::Stall((to - from).min(800))),
        kind @ 5..=8 => {
            let lost = rng.within(0, 100);
            then(from, if kind <= 6 { Fault::FailOver(lost) } else { Fault::LoseAll });
            let back = from + rng.within(0, 200).min(to - from);
            then(back, Fault::Back);
            for node in 0..nodes {
                then(back + rng.within(0, 30), Fault::Reconnect(node));
            }
        }
        9 => {
            then(from, Fault::Crash(node));
            then(to, Fault::Start(node));
        }
        10 => {
            then(from, Fault::Stop(node));
            then(to, Fault::Start(node));
        }
        11 => {
            let by = i64::try_from(rng.within(1, 5_000)).unwrap_or(1);
            then(from, Fault::Step(node, if rng.permille(500) { by } else { -by }));
        }
        _ => (0..nodes).for_each(|node| then(from + rng.within(0, 200), Fault::Reload(node, 1))),
    }
}
