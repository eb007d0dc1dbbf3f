//! Two nodes, one limit, with counters in Redis.
//!
//! Alice has 3 requests per day on all nodes together. When Redis is unavailable her rule denies
//! her. By default every node would continue with its share of the limit (`on_store_failure:
//! local`).
//!
//! The example starts its own Redis, so `redis-server` must be installed. A service has the address
//! in its settings.
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
        check(&nodes[number], &format!("node {}", number + 1)).await?;
    }
    redis.kill();
    check(&nodes[0], "node 1 without Redis").await
}

/// Startup of each process of a fleet.
async fn node(url: &str) -> Result<Engine<RedisBackend>, Box<dyn Error>> {
    // Generous for busy machines; the default timeout is 10 ms.
    let options = LinkOptions { timeout: Duration::from_secs(5), ..LinkOptions::default() };
    let link = Link::open(Address::parse(url)?, options)?;
    // Optional: until the connection is established, the failure policy of the rules applies. The
    // example waits for deterministic output.
    while !link.is_up() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let engine = Engine::new(rules_of(RULES)?)?;
    Ok(RedisBackend::attach(engine, Store::new(link, StoreOptions::default())))
}

async fn check(node: &Engine<RedisBackend>, name: &str) -> Result<(), Box<dyn Error>> {
    let entries = [Entry::new("user", "alice")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let checked = node.check_async(&request).await?;
    let left = checked.statuses[0].verdict.remaining.unwrap_or_default();
    println!("{name}: {}, {left} left", if checked.allowed { "may go" } else { "may not" });
    Ok(())
}
