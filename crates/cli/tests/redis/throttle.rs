//! `CL.THROTTLE` at services that share a store.

use std::process::Command;

use redis::{Client, Value, pipe};
use sluicegate_testkit::redis::{Cluster, Single};
use sluicegate_testkit::until;

use crate::fleet::{Fleet, metric};
use crate::support::server;
use crate::support::service::Service;

/// At least one rule is needed.
const RULES: &str = "
  - key: user
    limits: { algorithm: fixed_window, rate: 3/year }
";

/// Limited, limit and remaining, as redis-cli prints them.
fn throttle(service: &Service, key: &str, arguments: &str) -> [i64; 3] {
    let mut command = Command::new(server("redis-cli"));
    command.args(["-p", service.resp.rsplit_once(':').unwrap().1, "CL.THROTTLE", key]);
    let output = command.args(arguments.split(' ')).output().unwrap();
    let replies = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<i64> = replies.lines().map(|line| line.parse().unwrap()).collect();
    [numbers[0], numbers[1], numbers[2]]
}

/// Alternately at each service.
fn throttle_times(fleet: &Fleet, key: &str, arguments: &str, times: usize) -> Vec<[i64; 3]> {
    let services = fleet.services.iter().cycle().take(times);
    services.map(|service| throttle(service, key, arguments)).collect()
}

#[test]
fn a_bucket_is_shared_by_all_nodes() {
    let redis = Single::start();
    let fleet = Fleet::start(2, redis.url(), RULES);
    let (ok, denied) = (|left| [0, 3, left], [1, 3, 0]);
    let answers = throttle_times(&fleet, "user:42", "2 3 86400", 6);
    assert_eq!(answers, [ok(2), ok(1), ok(0), denied, denied, denied]);
    // Another key, and a quantity.
    assert_eq!(throttle(&fleet.services[0], "user:43", "2 3 86400 2"), [0, 3, 1]);
    assert_eq!(throttle(&fleet.services[1], "user:43", "2 3 86400 2"), [1, 3, 1]);
    assert_eq!(throttle(&fleet.services[1], "user:43", "2 3 86400 0"), [0, 3, 1]);
    // Other parameters carry over what was used.
    assert_eq!(throttle(&fleet.services[1], "user:42", "4 3 86400"), [0, 5, 1]);
    assert_eq!(throttle(&fleet.services[0], "user:42", "4 3 86400"), [0, 5, 0]);
    fleet.trusts_its_store();
    // Every key in the store expires, those of the parameters too.
    for key in redis.cli(&["KEYS", "sg:*"]).lines() {
        let seconds: i64 = redis.cli(&["TTL", key]).parse().unwrap();
        let is_of_rule = key.contains("{shop|");
        assert!(is_of_rule || (1..=3 * 2 * 86_400).contains(&seconds), "{key} {seconds}");
    }
}

#[test]
fn a_bucket_is_shared_on_a_cluster() {
    let redis = Cluster::start();
    let fleet = Fleet::start(2, redis.url(), RULES);
    for user in 0..8 {
        let answers = throttle_times(&fleet, &format!("user:{user}"), "2 3 86400", 4);
        assert_eq!(answers, [[0, 3, 2], [0, 3, 1], [0, 3, 0], [1, 3, 0]]);
    }
    fleet.trusts_its_store();
}

#[test]
fn a_pipeline_is_one_round_trip_and_answered_in_its_order() {
    let redis = Single::start();
    let fleet = Fleet::start(1, redis.url(), RULES);
    let service = &fleet.services[0];
    // Publishes the parameters.
    throttle(service, "first", "9999 1 86400");
    let url = format!("redis://{}", service.resp);
    let mut client = Client::open(url).unwrap().get_connection().unwrap();
    let calls = || metric(service, "sluicegate_redis_calls_total");

    let before = calls();
    let mut keys = pipe();
    for user in 0..32 {
        keys.cmd("CL.THROTTLE").arg(user).arg(9_999).arg(1).arg(86_400);
    }
    let replies: Vec<[i64; 5]> = keys.query(&mut client).unwrap();
    assert!(replies.iter().all(|reply| reply[..3] == [0, 10_000, 9_999]), "{replies:?}");
    let sent = calls() - before;
    assert!(sent <= 8, "32 keys took {sent} calls");

    let mut same = pipe();
    for _ in 0..1_000 {
        same.cmd("CL.THROTTLE").arg("same").arg(9_999).arg(1).arg(86_400);
    }
    let replies: Vec<[i64; 5]> = same.query(&mut client).unwrap();
    let left: Vec<i64> = replies.iter().map(|reply| reply[2]).collect();
    assert_eq!(left, (9_000..10_000).rev().collect::<Vec<i64>>());

    // Errors and other commands between them, other quantities, and the rules.
    let mut mixed = pipe();
    mixed.ignore_errors();
    mixed.cmd("CL.THROTTLE").arg("mixed").arg(4).arg(1).arg(86_400);
    mixed.cmd("CL.THROTTLE").arg("mixed").arg(4).arg(0).arg(86_400);
    mixed.cmd("CL.THROTTLE").arg("mixed").arg(4).arg(1).arg(86_400).arg(3);
    mixed.cmd("PING");
    mixed.cmd("CL.THROTTLE").arg("mixed").arg(4).arg(1).arg(86_400);
    mixed.cmd("SG.CHECK").arg("shop").arg("user=42");
    mixed.cmd("CL.THROTTLE").arg("mixed").arg(4).arg(1).arg(86_400);
    let replies: Vec<Value> = mixed.query(&mut client).unwrap();
    let left = |index: usize| redis::from_redis_value::<[i64; 5]>(replies[index].clone()).unwrap();
    assert_eq!([0, 2, 4, 5, 6].map(|index| left(index)[2]), [4, 1, 0, 2, 0]);
    assert_eq!(left(6)[0], 1);
    assert!(matches!(&replies[1], Value::ServerError(_)), "{replies:?}");
    assert_eq!(replies[3], Value::SimpleString("PONG".into()));
    fleet.trusts_its_store();
}

#[test]
fn without_the_store_each_node_has_its_share() {
    let redis = Single::start();
    let fleet = Fleet::with(2, redis.url(), RULES, &[("SLUICEGATE_STORE_TIMEOUT", "2s")]);
    fleet.knows_itself();
    let arguments = "7 8 86400";
    // Both have observed that two of eight are used.
    assert_eq!(throttle_times(&fleet, "user:42", arguments, 2), [[0, 8, 7], [0, 8, 6]]);
    redis.kill();
    for service in &fleet.services {
        until("the store is down", || (metric(service, "sluicegate_redis_up") == 0).then_some(()));
    }
    let answers = throttle_times(&fleet, "user:42", arguments, 10);
    let admitted = answers.iter().filter(|answer| answer[0] == 0).count();
    // One has seen one hit, the other one two: (8 - 1) / 2 and (8 - 2) / 2.
    assert_eq!(admitted, 6, "{answers:?}");
    assert_eq!(fleet.metric("sluicegate_redis_owed_hits_total"), 6);

    redis.restart();
    until("the store has all admissions", || {
        let is_local = fleet.metric("sluicegate_redis_local_mode") > 0;
        (!is_local && throttle(&fleet.services[0], "user:42", "7 8 86400 0")[2] == 0).then_some(())
    });
    let answers = throttle_times(&fleet, "user:42", arguments, 2);
    assert!(answers.iter().all(|answer| answer[0] == 1), "{answers:?}");
}
