//! A store that is killed, paused, slow, full or read-only: each rule's policy is what happens, and
//! afterwards the limit is exact again by itself.

use std::thread;
use std::time::Duration;

use sluicegate_testkit::proxy::Slow;
use sluicegate_testkit::redis::{Options, Single};
use sluicegate_testkit::until;

use crate::client::{Answer, Client};
use crate::fleet::{Fleet, metric};
use crate::hammer::{ask_over_rls, ask_times_while, load_over_rls};
use crate::support::service::Service;

const POLICIES: [&str; 4] = ["local", "allow", "deny", "error"];
const NODES: usize = 2;
const LIMIT: usize = 10;
/// How often each node is asked under each policy while the store is away: more than a node's share
/// of the limit.
const ASKED: usize = 8;
const SHARE: usize = LIMIT / NODES;

/// Long for an answer on a busy machine, short for whoever waits for one in vain.
const TIMEOUT: [(&str, &str); 1] = [("SLUICEGATE_STORE_TIMEOUT", "1s")];

/// How a fault looks to operators.
struct Signs {
    /// What is said in the log when it begins, and when it is over.
    lines: [&'static str; 2],
    /// What two numbers are meanwhile: whether it can be reached, and whether it refuses.
    up_and_refusing: [u64; 2],
    /// Why calls get no answer.
    reasons: &'static [&'static str],
}

/// Of a store that is gone.
const LOST: Signs = Signs {
    lines: ["the store cannot be reached: `on_store_failure` of each rule", "the store answers"],
    up_and_refusing: [0, 0],
    reasons: &["timed_out", "down", "broken"],
};

/// Of one that answers, and does nothing.
const REFUSES: Signs = Signs {
    lines: [
        "the store rejects writes: `on_store_failure` of each rule",
        "the store accepts writes again",
    ],
    up_and_refusing: [1, 1],
    reasons: &["refused"],
};

#[test]
fn killed() {
    // What was answered is on disk.
    let server = Single::with(Options { appendonly: true, ..Options::default() });
    survives(server.url(), &LOST, || server.kill(), || server.restart());
}

#[test]
fn paused() {
    let server = Single::start();
    survives(server.url(), &LOST, || server.pause(), || server.resume());
}

#[test]
fn slow() {
    let server = Single::start();
    let proxy = Slow::before(server.port());
    let url = proxy.url();
    let is_slow = || proxy.delay(Duration::from_secs(30));
    // Answers that are on their way would still come later than anybody waits for them.
    let is_fast = || {
        proxy.delay(Duration::ZERO);
        proxy.cut();
    };
    survives(&url, &LOST, is_slow, is_fast);
}

#[test]
fn out_of_reach() {
    let server = Single::start();
    let proxy = Slow::before(server.port());
    // Connections stay, and nothing arrives: nobody is told.
    survives(&proxy.url(), &LOST, || proxy.black_hole(true), || proxy.black_hole(false));
}

#[test]
fn full() {
    let server = Single::start();
    let may_keep = |bytes: &str| {
        assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", bytes]), "OK");
    };
    // Less than an empty server needs, and it throws nothing away (`noeviction`).
    survives(server.url(), &REFUSES, || may_keep("500kb"), || may_keep("0"));
}

#[test]
fn read_only() {
    let server = Single::start();
    let replicates = |whom: [&str; 2]| {
        assert_eq!(server.cli(&[&["REPLICAOF"], &whom[..]].concat()), "OK");
    };
    // Nobody listens there: it keeps what it has.
    survives(
        server.url(),
        &REFUSES,
        || replicates(["127.0.0.1", "1"]),
        || replicates(["NO", "ONE"]),
    );
}

#[test]
fn connections_that_are_cut_under_load_cost_no_more_than_what_was_on_them() {
    let server = Single::start();
    let proxy = Slow::before(server.port());
    let fleet = Fleet::start(NODES, &proxy.url(), &rules(600));
    let counts = ask_times_while(&fleet.services, &[r#"{"error":"ada"}"#], 120, |progress| {
        for hits in [100, 200, 300] {
            progress.await_allowed(hits);
            proxy.cut();
        }
    })[0];
    assert!(counts.allowed <= 600 && counts.allowed + counts.in_doubt() >= 600, "{counts:?}");
}

#[test]
fn a_rule_of_envoys_form_fails_as_envoyproxy_ratelimit_does() {
    let server = Single::start();
    let envoys = "  - { key: user, rate_limit: { unit: year, requests_per_unit: 10 } }\n";
    let mut fleet = Fleet::with(1, server.url(), envoys, &TIMEOUT);
    assert_eq!(ask_over_rls(&fleet.services, "user", "ada", 12).allowed, 10);
    server.kill();
    fleet.says(LOST.lines[0]);
    let errors = load_over_rls(&fleet.services[0], "user", "ada", 12).errors_by_text;
    // Status 2 is `UNKNOWN`.
    let unknown = "gRPC status 2: the store cannot be reached (descriptors[0])".to_owned();
    assert_eq!(errors.into_iter().collect::<Vec<_>>(), [(unknown, 12)]);
    server.restart();
    fleet.says(LOST.lines[1]);
    assert_eq!(ask_over_rls(&fleet.services, "user", "bob", 12).allowed, 10);
}

/// The whole story: before, meanwhile and afterwards.
fn survives(store: &str, signs: &Signs, breaks: impl FnOnce(), mends: impl FnOnce()) {
    let mut fleet = Fleet::with(NODES, store, &rules(LIMIT), &TIMEOUT);
    fleet.knows_itself();
    for policy in POLICIES {
        assert_exact(&fleet, policy, "before");
    }

    breaks();
    thread::scope(|scope| {
        for service in &fleet.services {
            for policy in POLICIES {
                scope.spawn(move || assert_policy(service, policy));
            }
        }
    });
    assert_told(&mut fleet, signs);
    // Both nodes have admitted their share of it; and a store that can still be read is no better
    // for that.
    assert_eq!(all_nodes(&fleet, "local", "before"), [Answer::Denied; NODES]);
    assert_state(&fleet, signs.up_and_refusing);

    mends();
    for service in &fleet.services {
        until("the store is asked again", || {
            (ask(service, "error", "new") == Answer::Allowed).then_some(())
        });
    }
    fleet.says(signs.lines[1]);
    assert_state(&fleet, [1, 0]);
    // Until then each node decides `local` rules by its share: bounded, but not exact.
    until("the nodes have rejoined", || {
        (fleet.metric("sluicegate_redis_local_mode") == 0).then_some(())
    });
    for policy in POLICIES {
        assert_exact(&fleet, policy, "after");
        let before = all_nodes(&fleet, policy, "before");
        assert_eq!(before, [Answer::Denied; NODES], "{policy}: nothing is forgotten");
    }
    // What the nodes have admitted by themselves is told to the store, which counts it.
    until("the store knows what it has missed", || {
        (fleet.left(r#"{"local":"meanwhile"}"#)[0] <= 0).then_some(())
    });
    assert_eq!(all_nodes(&fleet, "local", "meanwhile"), [Answer::Denied; NODES]);
    assert_eq!(fleet.metric("sluicegate_redis_disagreements_total"), 0);
}

/// Both nodes by turns, twice more than the limit.
fn assert_exact(fleet: &Fleet, policy: &str, user: &str) {
    let rounds = (0..LIMIT / NODES + 1).flat_map(|_| all_nodes(fleet, policy, user));
    let answers: Vec<Answer> = rounds.collect();
    let (first, last) = answers.split_at(LIMIT);
    assert!(first.iter().all(|one| *one == Answer::Allowed), "{policy} {user}: {answers:?}");
    assert!(last.iter().all(|one| *one == Answer::Denied), "{policy} {user}: {answers:?}");
}

/// Many ask a node at once, while the store is away.
fn assert_policy(service: &Service, policy: &str) {
    let answers: Vec<Answer> = thread::scope(|scope| {
        let ask = || scope.spawn(move || ask(service, policy, "meanwhile"));
        let asked: Vec<_> = (0..ASKED).map(|_| ask()).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let count = |of: Answer| answers.iter().filter(|one| **one == of).count();
    let counts = [Answer::Allowed, Answer::Denied, Answer::Failed].map(count);
    let expected = match policy {
        "local" => [SHARE, ASKED - SHARE, 0],
        "allow" => [ASKED, 0, 0],
        "deny" => [0, ASKED, 0],
        _ => [0, 0, ASKED],
    };
    assert_eq!(counts, expected, "{policy}: allowed, denied, failed");
}

/// Nodes stay in service, and say what they do.
fn assert_told(fleet: &mut Fleet, signs: &Signs) {
    fleet.says(signs.lines[0]);
    for service in &fleet.services {
        assert_eq!(service.admin("/ready").status, 200);
        for policy in POLICIES {
            let name = format!("sluicegate_redis_fallbacks_total{{policy=\"{policy}\"}}");
            assert_eq!(metric(service, &name), ASKED as u64, "{name}");
        }
        let failures = |reason: &&str| {
            metric(service, &format!("sluicegate_redis_call_failures_total{{reason=\"{reason}\"}}"))
        };
        let told: Vec<u64> = signs.reasons.iter().map(failures).collect();
        assert!(told.iter().sum::<u64>() > 0, "{:?}: {told:?}", signs.reasons);
    }
}

fn assert_state(fleet: &Fleet, up_and_refusing: [u64; 2]) {
    for service in &fleet.services {
        let state = ["sluicegate_redis_up", "sluicegate_redis_refusing"];
        assert_eq!(state.map(|name| metric(service, name)), up_and_refusing);
    }
}

fn all_nodes(fleet: &Fleet, policy: &str, user: &str) -> [Answer; NODES] {
    std::array::from_fn(|node| ask(&fleet.services[node], policy, user))
}

fn ask(service: &Service, policy: &str, user: &str) -> Answer {
    let mut client = Client::of(&service.http).unwrap();
    client.check(&format!(r#"{{"{policy}":"{user}"}}"#))
}

fn rules(limit: usize) -> String {
    let rule = |policy: &str| {
        format!(
            "  - key: {policy}\n    limits: {{ algorithm: fixed_window, rate: {limit}/year }}\n    on_store_failure: {policy}\n"
        )
    };
    POLICIES.map(rule).concat()
}
