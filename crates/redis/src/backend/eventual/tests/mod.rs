//! A single node equals the core; several converge in spite of lost and repeated messages.

mod cluster;
mod convergence;
mod end_to_end;
mod failures;
mod freshness;
mod single_node;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::test_runner::{Config, RngSeed};
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::domain::{DescriptorConfig, Domain};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::rule::{Consistency, Limits, RuleConfig};
use sluicegate_rules::set::{RuleNo, RuleSet};
use sluicegate_rules::unit::Unit;

use super::Eventual;
use super::table::ReplicaTable;
use crate::backend::LevelCounters;
use crate::backend::local::{Local, LocalStep};
use crate::{Address, Link, LinkOptions, Store, StoreOptions};
use sluicegate::Promise;
use sluicegate::backend::Rule;
use sluicegate::clock::TimeSource;

/// Deterministic cases unless configured otherwise, so that a failure is due to a change.
fn config(cases: u32) -> Config {
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    let fixed = Config { cases, rng_seed: RngSeed::Fixed(1), ..Config::default() };
    let config = if is_set { Config::default() } else { fixed };
    Config { failure_persistence: None, ..config }
}

fn rule(limits: Vec<Limit>) -> Arc<Rule> {
    let limits = limits.into_iter().map(|limit| LimitConfig::fixed(None, limit)).collect();
    Arc::new(Rule::new(limits, Mode::Hard).unwrap())
}

fn fixed(count: u64, length: Span) -> Limit {
    Limit::FixedWindow(FixedWindow::new(Rate::new(count, length).unwrap(), Align::Clock))
}

fn sliding(count: u64, length: Span, rounding: Rounding) -> Limit {
    Limit::SlidingWindow(SlidingWindow::new(Rate::new(count, length).unwrap(), rounding))
}

/// A window of 31 years, of which the next begins in 2033.
const YEARS: Span = Span::from_secs(1_000_000_000);

/// A node with one rule, on a real server.
struct Peer {
    eventual: Arc<Eventual>,
    rule: Arc<Rule>,
    counters: Arc<LevelCounters>,
    no: RuleNo,
    interval: Span,
}

impl Peer {
    fn new(url: &str, rule: &Arc<Rule>, interval: Span) -> Self {
        Self::of(url, rule, interval, ReplicaTable::new())
    }

    fn of(url: &str, rule: &Arc<Rule>, interval: Span, table: ReplicaTable) -> Self {
        let eventual = Eventual::with_table(&store(url, None, None), TimeSource::default(), table);
        let (rule, counters) = (rule.clone(), Arc::default());
        Self { eventual, rule, counters, no: a_number(), interval }
    }

    fn step<'a>(&'a self, identity: &'a str, cost: u64) -> LocalStep<'a> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(identity);
        let Self { rule, counters, no, .. } = self;
        let consistency = Consistency::Eventual { sync_interval: self.interval };
        let (no, identity) = (*no, identity.as_bytes());
        LocalStep { no, identity, hash, rule, consistency, counters, cost }
    }

    /// Its local decision.
    fn hit(&self, identity: &str, cost: u64) -> Local {
        self.eventual.hit(&self.step(identity, cost), self.interval, self.eventual.tick())
    }

    /// Its decision, after a pull if necessary.
    async fn decide(&self, identity: &str, cost: u64) -> (Verdict, Promise) {
        for _ in 0..2 {
            match self.hit(identity, cost) {
                Local::Decided(verdict, promise) => return (verdict, promise),
                Local::Unknown => self.pull(identity).await,
            }
        }
        panic!("it asks again");
    }

    async fn allows(&self, identity: &str, cost: u64) -> bool {
        self.decide(identity, cost).await.0.is_allowed()
    }

    /// Pushes its counts and merges those of the peers.
    async fn pull(&self, identity: &str) {
        self.eventual.pull(&self.step(identity, 1), self.interval).await.unwrap();
    }

    async fn left(&self, identity: &str) -> i64 {
        self.decide(identity, 0).await.0.remaining.unwrap()
    }
}

fn store(url: &str, seed: Option<u64>, clock: Option<Arc<dyn sluicegate::clock::Clock>>) -> Store {
    // Far more than a call needs, however busy the machine.
    let ample = Duration::from_secs(5);
    let options = LinkOptions { timeout: ample, connect_timeout: ample, ..LinkOptions::default() };
    let link = Link::open(Address::parse(url).unwrap(), options).unwrap();
    Store::new(link, StoreOptions { seed, clock, ..StoreOptions::default() })
}

/// That of the only rule there is.
fn a_number() -> RuleNo {
    let mut node = DescriptorConfig::any("user");
    node.rule = Some(RuleConfig::new(Limits::Envoy { requests_per_unit: 1, unit: Unit::Day }));
    let domain = Domain { descriptors: vec![node], ..Domain::new("test") };
    RuleSet::new(vec![domain]).unwrap().rules().next().unwrap()
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}
