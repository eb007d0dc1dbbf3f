//! Sentinels: a primary goes, another one comes.

use sluicegate_testkit::redis::{Secrets, Sentinel};

#[test]
fn a_failover_on_demand_and_back() {
    let servers = Sentinel::start();
    let ports = servers.sentinels().each_ref().map(|s| format!("127.0.0.1:{}", s.port()));
    assert_eq!(servers.url(), format!("redis-sentinel://{}/mymaster", ports.join(",")));
    let first = servers.primary();
    assert_eq!(first.cli(&["SET", "k", "1"]), "OK");
    assert_eq!(first.cli(&["WAIT", "1", "0"]), "1");
    assert!(servers.replica().cli(&["SET", "k", "2"]).starts_with("READONLY"));

    let second = servers.fail_over();
    assert_ne!(second.port(), first.port());
    assert_eq!(second.cli(&["INCR", "k"]), "2");
    assert!(first.cli(&["SET", "k", "3"]).starts_with("READONLY"), "it is the replica now");
    assert_eq!(servers.fail_over().port(), first.port());
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let servers = Sentinel::start();
    servers.primary().cli(&["SET", "k", "v"]);
    assert_eq!(servers.primary().cli(&["WAIT", "1", "0"]), "1");
    let killed = servers.kill_primary();
    let primary = servers.await_primary_other_than(killed.port());
    assert_eq!(primary.cli(&["GET", "k"]), "v");
    killed.restart();
    servers.await_calm();
    assert_eq!(servers.replica().port(), killed.port());
}

#[test]
fn passwords_for_servers_and_sentinels() {
    let secrets = Secrets { servers: Some("one".to_owned()), sentinels: Some("two".to_owned()) };
    let servers = Sentinel::with(secrets);
    assert!(servers.url().starts_with("redis-sentinel://:one@127.0.0.1:"), "{}", servers.url());
    assert_eq!(servers.primary().cli(&["AUTH", "one"]), "OK");
    assert!(servers.primary().cli(&["AUTH", "two"]).starts_with("WRONGPASS"));
    assert_eq!(servers.sentinels()[0].cli(&["AUTH", "two"]), "OK");
}
