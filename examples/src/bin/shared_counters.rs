//! Two nodes, one limit, with counters in Redis.
//!
//! Alice has 3 requests per day on all nodes together. When Redis is unavailable the limiter denies
//! her. By default every node would continue with its share of the limit
//! (`OnStoreFailure::Local`).
//!
//! The example starts its own Redis, so `redis-server` must be installed. A service has the address
//! in its settings.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin shared_counters
//! ```

use std::error::Error;
use std::time::Duration;

use sluicegate::limit::TokenBucket;
use sluicegate::{Limiter, OnStoreFailure};
use sluicegate_redis::{LinkOptions, Redis, RedisBackend};
use sluicegate_testkit::redis::Single;

/// Generous, for busy machines.
const TIMEOUT: Duration = Duration::from_secs(5);

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
async fn node(url: &str) -> Result<Limiter<RedisBackend>, Box<dyn Error>> {
    let link = LinkOptions { timeout: TIMEOUT, ..LinkOptions::default() };
    let redis = Redis::builder(url).link(link).connect()?;
    // Optional: until the connection is established, `on_store_failure` applies. The example waits
    // for deterministic output.
    redis.connected(TIMEOUT).await;
    let limiter = Limiter::builder()
        .name("requests")
        .limit(TokenBucket::per_day(3))
        .on_store_failure(OnStoreFailure::Deny)
        .on(&redis)?;
    Ok(limiter)
}

async fn check(node: &Limiter<RedisBackend>, name: &str) -> Result<(), Box<dyn Error>> {
    let verdict = node.hit_async("alice").await?;
    let left = verdict.remaining.unwrap_or_default();
    let may_go = if verdict.is_allowed() { "may go" } else { "may not" };
    println!("{name}: {may_go}, {left} left");
    Ok(())
}
