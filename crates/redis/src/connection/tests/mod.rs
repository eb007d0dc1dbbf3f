//! Against real servers.
//!
//! Calls count (`INCR`), so what came of them can be compared with what servers have in the end: an
//! answer means that it happened once, a refusal that it did not, and only a time-out or a broken
//! connection leaves it open.

mod bounds;
mod cluster;
mod doors;
mod load;
mod sentinel;
mod single;
mod trouble;

use std::time::Duration;

use redis::Value;

use super::server::ServerHealth;
use super::{Address, Link, LinkOptions};
use crate::CallError;
use crate::call::{Call, Script};

static INCREMENT: Script = Script::new("return redis.call('INCR', KEYS[1])");

/// Far more than a call needs, however busy the machine: these tests are about what happens, not
/// how fast.
const AMPLE: Duration = Duration::from_secs(5);

fn ample() -> LinkOptions {
    LinkOptions { timeout: AMPLE, connect_timeout: AMPLE, ..LinkOptions::default() }
}

fn open(url: &str, options: LinkOptions) -> Link {
    Link::open(Address::parse(url).unwrap(), options).unwrap()
}

fn increment(key: &str) -> Call {
    Call { script: &INCREMENT, keys: vec![key.into()], args: Vec::new() }
}

async fn count(link: &Link, key: &str) -> Result<i64, CallError> {
    link.call(&increment(key)).await.map(|value| match value {
        Value::Int(count) => count,
        other => panic!("INCR said {other:?}"),
    })
}

/// Waits until all servers that are known are up, or until one is down.
async fn until(link: &Link, wanted: ServerHealth) {
    for server in link.inner.topology.servers() {
        let mut condition = server.state.health.subscribe();
        let wait = condition.wait_for(|condition| *condition == wanted);
        tokio::time::timeout(4 * AMPLE, wait)
            .await
            .unwrap_or_else(|_| panic!("never {wanted:?}: {:?}", link.stats()))
            .unwrap();
    }
}

/// Waits until the store may have lost data.
async fn until_epoch(link: &Link, epoch: u64) {
    let mut changed = link.epoch_changes();
    let wait = changed.wait_for(|now| *now >= epoch);
    tokio::time::timeout(4 * AMPLE, wait)
        .await
        .unwrap_or_else(|_| panic!("never epoch {epoch}: {:?}", link.stats()))
        .unwrap();
}
