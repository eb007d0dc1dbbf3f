//! A store that is not there when services start, and what is said of it.

use std::time::Duration;

use sluicegate_testkit::proxy::Slow;
use sluicegate_testkit::redis::{Cluster, Options, Single};

use crate::client::{Answer, Client};
use crate::fleet::{Fleet, metric};
use crate::support::http::get;
use crate::support::service::Service;

const RULES: &str = "
  - key: open
    limits: { algorithm: fixed_window, rate: 3/year }
    on_store_failure: allow
  - key: shut
    limits: { algorithm: fixed_window, rate: 3/year }
    on_store_failure: deny
  - key: envoy
    rate_limit: { unit: year, requests_per_unit: 3 }
";

/// Long for an answer on a busy machine.
const TIMEOUT: (&str, &str) = ("SLUICEGATE_STORE_TIMEOUT", "2s");

#[test]
fn listeners_are_open_and_nobody_is_sent_there_until_the_store_was_reached() {
    let server = Single::start();
    server.kill();
    let mut fleet = Fleet::unready(1, server.url(), RULES, &[TIMEOUT]);
    let line = fleet.services[0].has_said("the store cannot be reached");
    let address = format!("127.0.0.1:{}", server.port());
    assert!(line.contains(&format!("address={address} ")), "{line}");
    assert!(line.contains("Connection refused"), "{line}");
    let policies = "`error` for 1 rule (unless another rule denies, an error, so that Envoy's \
                    `failure_mode_deny` decides), `allow` for 1 rule (nothing is denied by them), \
                    `deny` for 1 rule (everything is denied by them)";
    assert!(line.contains(policies), "{line}");
    let breaker = format!("sluicegate_redis_breaker{{server=\"{address}\"}}");
    assert_eq!(metric(&fleet.services[0], &breaker), 2);
    let ready = fleet.services[0].admin("/ready");
    assert_eq!((ready.status, ready.body.trim()), (503, "the store cannot be reached"));
    assert_eq!(fleet.services[0].admin("/live").status, 200);
    // Whoever comes all the same is answered.
    assert_eq!(four(&fleet.services[0], "open", "ada"), [Answer::Allowed; 4]);
    assert_eq!(four(&fleet.services[0], "shut", "ada"), [Answer::Denied; 4]);
    let mut client = Client::of(&fleet.services[0].http).unwrap();
    assert_eq!(client.check(r#"{"shut":"ada"},{"envoy":"ada"}"#), Answer::Denied);
    assert_eq!(client.check(r#"{"open":"ada"},{"envoy":"ada"}"#), Answer::Failed);
    assert_eq!(metric(&fleet.services[0], "sluicegate_redis_up"), 0);

    server.restart();
    fleet.says("the store answers");
    assert_eq!(fleet.services[0].admin("/ready").status, 200);
    assert_eq!(metric(&fleet.services[0], "sluicegate_redis_up"), 1);
    assert_eq!(metric(&fleet.services[0], &breaker), 0);
    assert_exact(&fleet.services[0], "bob");
}

#[test]
fn no_alarm_is_raised_while_the_first_attempt_goes_on() {
    let server = Single::start();
    let proxy = Slow::before(server.port());
    // Every reply of the handshake is late, and later than the connection is checked.
    proxy.delay(Duration::from_millis(60));
    // Without the warning of a mixture of policies, which names the store too.
    let rules = RULES.replace("    rate_limit:", "    on_store_failure: allow\n    rate_limit:");
    let mut fleet = Fleet::unready(1, &proxy.url(), &rules, &[TIMEOUT, ("REDIS_TIMEOUT", "10s")]);
    let line = fleet.services[0].has_said("the store ");
    assert!(line.contains("the store answers"), "{line}");
}

#[test]
fn whoever_wants_to_be_without_a_service_that_is_without_a_store_says_so() {
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    let strict = [TIMEOUT, ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")];
    let mut fleet = Fleet::with(1, server.url(), RULES, &strict);
    assert_eq!(fleet.services[0].admin("/ready").status, 200);
    assert_exact(&fleet.services[0], "ada");

    server.kill();
    fleet.says("the store cannot be reached");
    assert_eq!(fleet.services[0].admin("/ready").status, 503);
    let healthy = get(&fleet.services[0].http, "/healthcheck", &[]);
    assert_eq!(healthy.status, 500, "{healthy:?}");

    server.restart();
    fleet.says("the store answers");
    assert_eq!(fleet.services[0].admin("/ready").status, 200);
    assert_eq!(four(&fleet.services[0], "open", "ada"), [Answer::Denied; 4]);
    assert_exact(&fleet.services[0], "bob");
}

#[test]
fn a_lost_part_of_a_cluster_is_reported_with_its_share() {
    let cluster = Cluster::start();
    let mut fleet = Fleet::with(1, cluster.url(), RULES, &[TIMEOUT]);
    let master = cluster.master_of(0);
    // Without a replica there is no failover.
    cluster.kill(cluster.replica_of(master));
    cluster.kill(master);
    let line = fleet.services[0].says("a part of the Cluster cannot be reached");
    let address = format!("addresses=127.0.0.1:{} ", master.port());
    for part in ["WARN", &address, " slots (33%)\"", "`error` for 1 rule"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(fleet.services[0].admin("/ready").status, 200, "the other parts are decided");
    master.restart();
    fleet.says("all primaries of the Cluster answer");
}

/// Under both policies.
fn assert_exact(service: &Service, user: &str) {
    for policy in ["open", "shut"] {
        let [first @ .., last] = four(service, policy, user);
        assert_eq!((first, last), ([Answer::Allowed; 3], Answer::Denied), "{policy} {user}");
    }
}

fn four(service: &Service, policy: &str, user: &str) -> [Answer; 4] {
    let mut client = Client::of(&service.http).unwrap();
    [(); 4].map(|()| client.check(&format!(r#"{{"{policy}":"{user}"}}"#)))
}
