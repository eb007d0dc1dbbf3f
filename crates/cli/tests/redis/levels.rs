//! What the store knows of leases, and who of a fleet is which node.

use std::time::Instant;

use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::support::service::Service;

/// What a node may still hold of an identity, by the store's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub node: String,
    pub amount: u64,
}

/// The key of an identity in the store.
pub fn key_of(key: &str, value: &str) -> String {
    format!("sg:1:{{shop|{key}={value}}}")
}

/// What is leased of an identity: the word `#node:serial:amount:weight:until,…` of its record.
pub fn cells(server: &Single, key: &str) -> Vec<Cell> {
    let record = server.cli(&["GET", key]);
    let word = record.split(' ').find_map(|word| word.strip_prefix('#'));
    word.map_or_else(Vec::new, |word| word.split(',').map(cell).collect())
}

fn cell(text: &str) -> Cell {
    let parts: Vec<&str> = text.split(':').collect();
    let [node, _serial, amount, _weight, _until] = parts[..] else { panic!("no cell: `{text}`") };
    Cell { node: node.to_owned(), amount: amount.parse().unwrap() }
}

/// Waits until the store knows of something that is leased.
pub fn await_lease(server: &Single, key: &str) {
    until("something is leased", || {
        cells(server, key).iter().any(|cell| cell.amount > 0).then_some(())
    });
}

/// Who has said hello to the store lately.
pub fn nodes(server: &Single) -> Vec<String> {
    let all = server.command(&["ZRANGE", "sg:1:{nodes}", "0", "-1"]);
    all.items().iter().map(ToString::to_string).collect()
}

/// Ends all of them as an operator would: they give back what they hold.
pub fn stop(services: &mut [Service]) {
    services.iter().for_each(|service| service.signal("TERM"));
    for service in services {
        assert_eq!(service.ends(), Some(0));
    }
}

/// What time it is, in microseconds, by the store's clock.
pub fn store_time(server: &Single) -> u64 {
    let store_time = server.command(&["TIME"]);
    let parts: Vec<u64> =
        store_time.items().iter().map(|part| part.to_string().parse().unwrap()).collect();
    parts[0] * 1_000_000 + parts[1]
}

/// For what has to happen in time.
#[expect(clippy::disallowed_methods, reason = "real traffic of real processes is what is measured")]
pub fn now() -> Instant {
    Instant::now()
}
