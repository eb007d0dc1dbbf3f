//! Measures the deviation from a shared limit and the decision latency of each consistency level,
//! and plots them.
//!
//! ```text
//! cargo run --release -p sluicegate-lab --example levels -- measure redis://127.0.0.1:6379 > docs/pictures/levels.tsv
//! cargo run --release -p sluicegate-lab --example levels -- draw < docs/pictures/levels.tsv > docs/pictures/levels.svg
//! ```
//!
//! Nodes are engines of this process, each with its own connection to Redis; keys begin with
//! `levels:`. All nodes receive hits of the same key at the same rate until each has denied for
//! [`DENIED_FOR`]. The window is a year, so that excess and shortfall are exact.

use std::error::Error;
use std::io::Read as _;
use std::time::Duration;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Operation, rules_of};
use sluicegate_lab::levels::{Measured, parse, plot};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use tokio::time::{Instant, MissedTickBehavior, interval};

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

const NODES: usize = 4;
const LIMIT: u64 = 20_000;
/// Hits per node and millisecond.
const PER_MS: u64 = 5;
/// Duration of denials that ends a run: longer than any sync interval and lease.
const DENIED_FOR: Duration = Duration::from_secs(4);

/// Name of a run, consistency of its rule, and whether a node dies after a quarter of the limit.
const RUNS: [(&str, &str, bool); 7] = [
    ("strict", "strict", false),
    ("hot key of strict", "{ strict: { hot_keys: leased } }", false),
    ("leased", "leased", false),
    ("leased, a node dies", "leased", true),
    ("eventual 10ms", "{ eventual: { sync_interval: 10ms } }", false),
    ("eventual 100ms", "{ eventual: { sync_interval: 100ms } }", false),
    ("eventual 500ms", "{ eventual: { sync_interval: 500ms } }", false),
];

/// Counts of one node.
#[derive(Default)]
struct NodeTally {
    admitted: u64,
    nanos: Vec<u64>,
    /// Maximum guaranteed excess and shortfall.
    over_bound: u64,
    short_bound: u64,
    /// Store calls until the first denial.
    calls: u64,
}

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["draw"] => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            print!("{}", plot(&parse(&text)?)?);
            Ok(())
        }
        ["measure", url] => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(measure(url))
        }
        _ => Err(
            "usage: `measure redis://ADDRESS`, or `draw` with the measurements as standard input"
                .into(),
        ),
    }
}

async fn measure(url: &str) -> Done<()> {
    let per_second = PER_MS * 1_000;
    println!(
        "# {NODES} nodes, each with {per_second} hits per second of one key with a limit of {LIMIT}, until all have denied for {} s",
        DENIED_FOR.as_secs()
    );
    println!(
        "# level\tp50_us\tp99_us\tover_percent\tover_bound\tshort_percent\tshort_bound\tcalls_per_decision"
    );
    for (name, consistency, one_dies) in RUNS {
        let one = run(url, name, consistency, one_dies).await?;
        let Measured { p50_us, p99_us, over, over_bound, short, short_bound, calls, .. } = one;
        println!(
            "{name}\t{p50_us:.2}\t{p99_us:.2}\t{over:.2}\t{over_bound:.2}\t{short:.2}\t{short_bound:.2}\t{calls:.4}"
        );
    }
    Ok(())
}

async fn run(url: &str, name: &str, consistency: &str, one_dies: bool) -> Done<Measured> {
    let mut nodes = Vec::new();
    for number in 0..NODES {
        // Each run has its own counters.
        let namespace = format!("levels:{name}:{}", std::process::id());
        let node = node(url, namespace, consistency)?;
        let dies_after = (one_dies && number == 0).then_some(LIMIT / 4 / NODES as u64);
        nodes.push(tokio::spawn(run_node(node, dies_after)));
    }
    let mut all = NodeTally::default();
    for node in nodes {
        let tally = node.await??;
        all.admitted += tally.admitted;
        all.calls += tally.calls;
        all.over_bound = all.over_bound.max(tally.over_bound);
        all.short_bound += tally.short_bound;
        all.nanos.extend(tally.nanos);
    }
    all.nanos.sort_unstable();
    let took = |part: usize| all.nanos[(all.nanos.len() - 1) * part / 100] as f64 / 1e3;
    let percent = |count: u64| count as f64 * 100.0 / LIMIT as f64;
    Ok(Measured {
        name: name.to_owned(),
        p50_us: took(50),
        p99_us: took(99),
        over: percent(all.admitted.saturating_sub(LIMIT)),
        over_bound: percent(all.over_bound),
        short: percent(LIMIT.saturating_sub(all.admitted)),
        short_bound: if one_dies { percent(all.short_bound) } else { 0.0 },
        calls: all.calls as f64 / all.nanos.len() as f64,
    })
}

fn node(url: &str, namespace: String, consistency: &str) -> Done<Engine<RedisBackend>> {
    let rules = format!(
        "domain: lab\ndescriptors: [{{ key: user, consistency: {consistency}, limits: {{ algorithm: fixed_window, rate: {LIMIT}/year }}, on_store_failure: error }}]\n"
    );
    let options = LinkOptions { timeout: Duration::from_secs(2), ..LinkOptions::default() };
    let link = Link::open(Address::parse(url)?, options)?;
    let store = Store::new(link, StoreOptions { namespace, ..StoreOptions::default() });
    Ok(RedisBackend::attach(Engine::new(rules_of(&rules)?)?, store))
}

/// Hits at a steady rate until denied for long enough, or until the node dies with its lease.
async fn run_node(node: Engine<RedisBackend>, dies_after: Option<u64>) -> Done<NodeTally> {
    let entries = [Entry::new("user", "ada")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "lab", descriptors: &descriptors, hits: 1 };
    let mut every = interval(Duration::from_millis(1));
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut tally, mut checked) = (NodeTally::default(), Checked::default());
    let mut last = Instant::now();
    while last.elapsed() < DENIED_FOR && dies_after.is_none_or(|max| tally.admitted < max) {
        every.tick().await;
        for _ in 0..PER_MS {
            let start = Instant::now();
            let rules = node.snapshot();
            node.apply(Operation::Hit, node.call(&rules, &request), &mut checked).await?;
            if checked.allowed {
                tally.admitted += 1;
                last = Instant::now();
                let took = last.duration_since(start).as_nanos();
                tally.nanos.push(u64::try_from(took).unwrap_or(u64::MAX));
                tally.over_bound = tally.over_bound.max(checked.statuses[0].promise.over);
            } else if tally.calls == 0 {
                tally.calls = node.backend().store().link().stats().calls;
            }
        }
    }
    let held = node.backend().leases(1).first().map_or(0, |lease| lease.unspent);
    tally.short_bound = if dies_after.is_some() { held } else { 0 };
    if dies_after.is_none() {
        node.backend().close().await;
    }
    Ok(tally)
}
