//! Too little CPU for everybody: a strict limit holds although calls to the store take far longer
//! than they should.
//!
//! Services, Redis and the load share one core, and Redis or a service is stopped for a while. All
//! settings are the defaults.

use std::process::Command;
use std::thread;
use std::time::Duration;

use sluicegate_testkit::redis::Single;

use crate::fleet::{Fleet, metric};
use crate::hammer::{Counts, load_in_parallel};
use crate::support::service::Service;

const NODES: usize = 4;
const LIMIT: u64 = 500;
const RULES: &str = "
  - key: strict
    limits: { algorithm: token_bucket, rate: 1/h, burst: 500 }
  - key: leased
    consistency: leased
    limits: { algorithm: token_bucket, rate: 1/h, burst: 500 }
";

/// Requests of each service.
const REQUESTS: u64 = 1_500;

struct Starved {
    server: Single,
    fleet: Fleet,
}

impl Starved {
    fn start() -> Self {
        let server = Single::start();
        let fleet = Fleet::with(NODES, server.url(), RULES, &[]);
        fleet.knows_itself();
        let services = fleet.services.iter().map(Service::id);
        for process in services.chain([server.pid()]) {
            on_one_core(process);
        }
        Self { server, fleet }
    }

    /// Sends 64 requests at a time to each node. No more is admitted than the limit, and the share
    /// of each node that went without Redis for longer than the timeout.
    fn load(&self, key: &str) -> Counts {
        let counts = load_in_parallel(&self.fleet.services, key, "ada", REQUESTS);
        let local = "sluicegate_redis_fallbacks_total{policy=\"local\"}";
        let services = self.fleet.services.iter();
        let apart = services.filter(|service| metric(service, local) > 0).count() as u64;
        println!("{key}: {counts:?}, {apart} nodes decided without Redis");
        assert_eq!(counts.failed, 0);
        assert!(counts.allowed <= LIMIT + apart * LIMIT / NODES as u64, "{counts:?}, {apart}");
        assert_eq!(self.fleet.metric("sluicegate_redis_disagreements_total"), 0);
        counts
    }

    fn pause(&self, millis: u64) {
        self.server.pause();
        thread::park_timeout(Duration::from_millis(millis));
        self.server.resume();
    }
}

/// All threads of a process run on the first core from now on.
fn on_one_core(process: u32) {
    let set = Command::new("taskset").args(["-a", "-p", "1", &process.to_string()]).output();
    let set = set.unwrap_or_else(|error| panic!("taskset is missing (util-linux): {error}"));
    assert!(set.status.success(), "{set:?}");
}

#[test]
fn a_strict_limit_holds() {
    let allowed = Starved::start().load("strict").allowed;
    assert!(allowed >= LIMIT, "nothing is lost: {allowed}");
}

#[test]
fn a_strict_limit_holds_while_redis_and_nodes_pause_for_50_ms() {
    let starved = Starved::start();
    thread::scope(|scope| {
        let load = scope.spawn(|| starved.load("strict"));
        for service in &starved.fleet.services {
            starved.pause(50);
            service.signal("STOP");
            thread::park_timeout(Duration::from_millis(50));
            service.signal("CONT");
        }
        assert!(load.join().unwrap().allowed >= LIMIT);
    });
}

#[test]
fn a_strict_limit_holds_while_redis_pauses_for_longer_than_the_timeout() {
    let starved = Starved::start();
    thread::scope(|scope| {
        let load = scope.spawn(|| starved.load("strict"));
        for _ in 0..3 {
            starved.pause(300);
            thread::park_timeout(Duration::from_millis(100));
        }
        load.join().unwrap();
    });
}

#[test]
fn a_leased_limit_holds() {
    Starved::start().load("leased");
}
