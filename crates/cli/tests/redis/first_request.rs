//! The first request: scripts are loaded before a service is ready, and whenever it reconnects.

use std::io::{Read, Write};
use std::net::TcpStream;

use sluicegate_testkit::redis::{Cluster, Single};
use sluicegate_testkit::until;

use crate::client::{Answer, Client};
use crate::fleet::{Fleet, metric};
use crate::support::http::post;

/// One for each script.
const RULES: &str = "
  - key: envoy
    rate_limit: { unit: year, requests_per_unit: 100 }
  - key: native
    limits: { algorithm: sliding_log, rate: 100/day }
  - key: leased
    consistency: leased
    limits: { algorithm: fixed_window, rate: 100/year }
  - key: eventual
    consistency: eventual
    limits: { algorithm: fixed_window, rate: 100/year }
";

/// A request to every rule for several users, so that every primary gets some.
fn request_all(fleet: &Fleet) {
    let service = &fleet.services[0];
    let mut client = Client::of(&service.http).unwrap();
    for user in 0..16 {
        for key in ["envoy", "native", "leased", "eventual"] {
            let answer = client.check(&format!(r#"{{"{key}":"{user}"}}"#));
            assert_eq!(answer, Answer::Allowed, "{key}");
        }
        let body = format!(r#"{{"domain":"shop","descriptors":[{{"native":"{user}"}}]}}"#);
        assert_eq!(post(&service.http, "/v1/reserve", &body).status, 200);
    }
}

/// The server never had to ask for a script.
fn assert_loaded(server: &Single) {
    let errors = server.cli(&["INFO", "errorstats"]);
    assert!(!errors.contains("errorstat_"), "{errors}");
}

/// Both at once: a call of a connection that goes on would miss its script.
fn lose_scripts_and_connections(server: &Single) {
    let mut admin = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    admin
        .write_all(b"MULTI\r\nSCRIPT FLUSH\r\nCLIENT KILL TYPE normal\r\nEXEC\r\nQUIT\r\n")
        .unwrap();
    let mut replies = String::new();
    admin.read_to_string(&mut replies).unwrap();
    assert!(replies.contains("*2\r\n+OK\r\n"), "{replies}");
}

#[test]
fn no_request_waits_for_a_script() {
    let redis = Single::start();
    let fleet = Fleet::start(1, redis.url(), RULES);
    request_all(&fleet);
    assert_loaded(&redis);
    // A server without them, and new connections.
    lose_scripts_and_connections(&redis);
    until("connections are new", || {
        let reconnects = metric(&fleet.services[0], "sluicegate_redis_reconnects_total");
        (reconnects >= 2).then_some(())
    });
    request_all(&fleet);
    assert_loaded(&redis);
}

#[test]
fn no_primary_of_a_cluster_lacks_a_script() {
    let redis = Cluster::start();
    for node in redis.nodes() {
        node.cli(&["CONFIG", "RESETSTAT"]);
    }
    let fleet = Fleet::start(1, redis.url(), RULES);
    request_all(&fleet);
    redis.nodes().iter().for_each(assert_loaded);
}
