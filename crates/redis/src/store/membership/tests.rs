//! Nodes that share a real store, on a clock of their own.

use std::sync::atomic::AtomicU64;

use sluicegate_core::time::Timestamp;
use sluicegate_testkit::redis::Single;

use super::*;
use crate::store::Weight;
use crate::{Address, Link, LinkOptions, Store, StoreOptions};
use sluicegate::clock::ManualClock;

/// Far more than a call needs, however busy the machine.
const AMPLE: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
const WHOLE: i64 = 1_000_000;

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(1_794_770_800_000_000))
}

fn node(server: &Single, clock: &ManualClock) -> Store {
    let options = LinkOptions { timeout: AMPLE, connect_timeout: AMPLE, ..LinkOptions::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), options).unwrap();
    let clock = Some(Arc::new(clock.clone()) as _);
    Store::new(link, StoreOptions { clock, ..StoreOptions::default() })
}

/// A rule with a constant hit rate on a node.
struct Demand {
    hits: Arc<AtomicU64>,
    per_second: u64,
    weight: Arc<crate::store::RuleWeight>,
}

impl Demand {
    fn of(store: &Store, rule: &str, per_second: u64) -> Self {
        let hits = Arc::<AtomicU64>::default();
        let counted = hits.clone();
        let read = move || Some(counted.load(Ordering::Relaxed));
        Self { hits, per_second, weight: store.watch_demand(rule, read) }
    }

    fn share(&self) -> i64 {
        self.weight.get().part_of(WHOLE)
    }
}

/// Advances time with hits and heartbeats of all nodes.
async fn live(seconds: u64, clock: &ManualClock, stores: &[&Store], demands: &[&Demand]) {
    for _ in 0..seconds {
        clock.advance(SECOND);
        for demand in demands {
            demand.hits.fetch_add(demand.per_second, Ordering::Relaxed);
        }
        for store in stores {
            store.inner.heartbeat(Phase::Settled).await;
        }
    }
}

#[tokio::test]
async fn shares_go_by_demand_and_those_of_the_dead_go_to_the_others() {
    let (server, clock) = (Single::start(), clock());
    let (one, other) = (node(&server, &clock), node(&server, &clock));
    let (busy, idle) = (Demand::of(&one, "rule", 900), Demand::of(&other, "rule", 100));
    let unheard = Demand::of(&other, "quiet", 1);
    let (stores, demands) = ([&one, &other], [&busy, &idle, &unheard]);
    live(2, &clock, &stores, &demands).await;
    assert_eq!((one.nodes(), other.nodes()), (2, 2));
    assert!(busy.share() + idle.share() <= WHOLE, "also before anybody knows of demand");
    live(8, &clock, &stores, &demands).await;
    // A quarter evenly and the rest by demand: 1/8 + 3/4 * 9/10, and 1/8 + 3/4 * 1/10.
    assert!((799_900..=800_000).contains(&busy.share()), "{}", busy.share());
    assert!((199_900..=200_000).contains(&idle.share()), "{}", idle.share());
    assert_eq!(unheard.weight.get(), Weight::even(2));
    // A rule without earlier demand on a node belongs mostly to the peers.
    let late = Demand::of(&other, "rule", 0);
    assert_eq!(late.weight.get(), idle.weight.get());

    // The peer stopped: its demand expires within seconds.
    live(8, &clock, &[&one], &[&busy]).await;
    assert_eq!((one.nodes(), busy.weight.get()), (1, Weight::even(1)));
}

#[tokio::test]
async fn a_node_that_leaves_is_not_counted_from_the_next_heartbeat_on() {
    let (server, clock) = (Single::start(), clock());
    let (one, other) = (node(&server, &clock), node(&server, &clock));
    live(2, &clock, &[&one, &other], &[]).await;
    assert_eq!((one.nodes(), other.nodes()), (2, 2));
    other.leave().await;
    live(1, &clock, &[&other, &one], &[]).await;
    assert_eq!(one.nodes(), 1, "a heartbeat after the end is not sent");
    // Nothing waits for it in the phases of a recovery either.
    let heartbeat = one.inner.heartbeat(Phase::Settled).await.unwrap();
    for phase in [Phase::Reasserted, Phase::Settled] {
        assert_eq!(heartbeat.members(phase).count, 1, "{phase:?}");
    }
}

#[tokio::test]
async fn demand_may_turn_at_any_time_and_shares_never_add_up_to_more() {
    let (server, clock) = (Single::start(), clock());
    let nodes: Vec<Store> = (0..4).map(|_| node(&server, &clock)).collect();
    let stores: Vec<&Store> = nodes.iter().collect();
    let mut demands: Vec<Demand> = nodes.iter().map(|node| Demand::of(node, "rule", 100)).collect();
    live(6, &clock, &stores, &demands.iter().collect::<Vec<_>>()).await;
    for turn in 0..24 {
        for (index, demand) in demands.iter_mut().enumerate() {
            demand.per_second = if index == turn / 2 % 4 { 100_000 } else { 10 };
        }
        let all: Vec<&Demand> = demands.iter().collect();
        // Each node sends heartbeats at its own time, and the store may fail after each.
        clock.advance(Duration::from_millis(900));
        for demand in &all {
            demand.hits.fetch_add(demand.per_second, Ordering::Relaxed);
        }
        for store in &stores {
            clock.advance(Duration::from_millis(25));
            store.inner.heartbeat(Phase::Settled).await;
            let sum: i64 = all.iter().map(|demand| demand.share()).sum();
            assert!(sum <= WHOLE, "turn {turn}: {sum}");
            let floor = WHOLE / 16 - 1;
            assert!(all.iter().all(|demand| demand.share() >= floor), "turn {turn}");
        }
    }
}

#[tokio::test]
async fn a_hello_that_was_heard_twice_counts_once() {
    let (server, clock) = (Single::start(), clock());
    let (one, other) = (node(&server, &clock), node(&server, &clock));
    let (here, there) = (Demand::of(&one, "rule", 300), Demand::of(&other, "rule", 300));
    for _ in 0..8 {
        live(1, &clock, &[&one, &other], &[&here, &there]).await;
        for _ in 0..3 {
            one.inner.heartbeat(Phase::Settled).await;
        }
    }
    assert_eq!((here.weight.get(), there.weight.get()), (Weight::even(2), Weight::even(2)));
}

mod away {
    use super::*;
    use crate::RedisBackend;
    use sluicegate::{Engine, rules_of};
    use sluicegate_rules::request::{Descriptor, Entry, Request};

    /// Two nodes with demand nine to one, whose store has just failed.
    async fn nine_to_one(limit: &str, clock: &ManualClock) -> [Engine<RedisBackend>; 2] {
        let server = Single::start();
        let text = format!("domain: shop\ndescriptors: [{{ key: user, limits: {{ {limit} }} }}]\n");
        let shared = || {
            let rules = rules_of(&text).unwrap();
            let engine = Engine::builder(rules).clock(clock.clone()).build().unwrap();
            RedisBackend::attach(engine, node(&server, clock))
        };
        let (one, other) = (shared(), shared());
        for second in 0..10 {
            let user = format!("user {second}");
            for hit in 0..40 {
                ask(if hit % 10 == 0 { &other } else { &one }, &user).await;
            }
            live(1, clock, &[one.backend().store(), other.backend().store()], &[]).await;
        }
        server.kill();
        [one, other]
    }

    async fn ask(engine: &Engine<RedisBackend>, user: &str) -> bool {
        let entries = [Entry::new("user", user)];
        let request = Request { domain: "shop", descriptors: &[Descriptor::of(&entries)], hits: 1 };
        engine.check_async(&request).await.unwrap().allowed
    }

    /// Each is at its share: 80 and 20 % of what may pass. Rounding lets it be at most one above.
    fn assert_shares(admitted: [u64; 2], limit: u64) {
        let [busy, idle] = admitted;
        assert!((limit * 78 / 100..=limit * 80 / 100 + 1).contains(&busy), "{admitted:?}");
        assert!((limit * 18 / 100..=limit * 20 / 100 + 1).contains(&idle), "{admitted:?}");
        assert!(busy + idle <= limit + 1, "{admitted:?}");
    }

    #[tokio::test]
    async fn the_busy_node_admits_nearly_all_of_a_window() {
        const LIMIT: u64 = 500;
        let clock = clock();
        let limit = format!("algorithm: fixed_window, rate: {LIMIT}/year");
        let nodes = nine_to_one(&limit, &clock).await;
        let mut admitted = [0, 0];
        for _ in 0..LIMIT {
            for (node, admitted) in nodes.iter().zip(&mut admitted) {
                *admitted += u64::from(ask(node, "new").await);
            }
        }
        assert_shares(admitted, LIMIT);
    }

    /// Under constant load a bucket is always nearly empty: the node with the smaller weight must
    /// not be the only one that admits.
    #[tokio::test]
    async fn the_busy_node_admits_nearly_all_of_what_a_bucket_gives_and_no_more() {
        const SECONDS: u64 = 10;
        let clock = clock();
        let nodes = nine_to_one("algorithm: token_bucket, rate: 100/s, burst: 10", &clock).await;
        let mut admitted = [0, 0];
        for _ in 0..SECONDS * 500 {
            clock.advance(Duration::from_millis(2));
            for (node, admitted) in nodes.iter().zip(&mut admitted) {
                *admitted += u64::from(ask(node, "new").await);
            }
        }
        assert_shares(admitted, 10 + 100 * SECONDS);
    }
}
