//! Two nodes, one limit: the counters are in Redis.
//!
//! Alice has 3 requests a day, whichever node she asks. Then Redis is gone, and her rule says what
//! happens: she is denied. A rule without a word would let every node go on with its part of the
//! limit (`on_store_failure: local`).
//!
//! The Redis is started for this example and ends with it, so `redis-server` has to be installed. A
//! service has its address in its settings.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin shared_counters
//! ```

use std::error::Error;
use std::time::Duration;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Engine, rules_of};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::redis::Single;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 3/day, align: first_hit }
    on_store_failure: deny
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let redis = Single::start();
    let nodes = [node(redis.url()).await?, node(redis.url()).await?];
    for round in 0..4 {
        let number = round % nodes.len();
        ask(&nodes[number], &format!("node {}", number + 1)).await?;
    }
    redis.kill();
    ask(&nodes[0], "node 1 without Redis").await
}

/// What each process of a fleet does at its start.
async fn node(url: &str) -> Result<Engine<RedisBackend>, Box<dyn Error>> {
    // A busy machine may take its time; a service has 10 ms for an answer if nothing is said.
    let options = LinkOptions { timeout: Duration::from_secs(5), ..LinkOptions::default() };
    let link = Link::open(Address::parse(url)?, options)?;
    // Nobody has to wait for the connection: until it is there, rules say what happens. Here it
    // would be in the way.
    while !link.is_up() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let engine = Engine::new(rules_of(RULES)?)?;
    Ok(RedisBackend::attach(engine, Store::new(link, StoreOptions::default())))
}

async fn ask(node: &Engine<RedisBackend>, name: &str) -> Result<(), Box<dyn Error>> {
    let entries = [Entry::new("user", "alice")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let checked = node.check_async(&request).await?;
    let left = checked.statuses[0].verdict.remaining.unwrap_or_default();
    println!("{name}: {}, {left} left", if checked.allowed { "may go" } else { "may not" });
    Ok(())
}
