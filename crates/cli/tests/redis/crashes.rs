//! Nodes that die, primaries that die, slots that move: all while everybody asks.

use sluicegate_testkit::redis::{Cluster, Sentinel, Single};
use sluicegate_testkit::until;

use crate::fleet::Fleet;
use crate::hammer::{
    CLIENTS, Counts, ask_times, ask_times_while, ask_until_denied, ask_until_not_allowed_while,
};

const NODES: usize = 4;
const ADA: &str = r#"{"user":"ada"}"#;
const BOB: &str = r#"{"log":"bob"}"#;

/// Of those that a primary dies under: so many that all are still asking then.
const LIMIT: u64 = 2_000;
/// Shorter than others need to see that a primary is dead: so everybody has stopped asking before
/// there is another.
const HASTY: [(&str, &str); 1] = [("SLUICEGATE_STORE_TIMEOUT", "300ms")];

/// Without an answer of the store there is none, so that nobody is admitted whom it does not know
/// of.
fn rules(limit: u64) -> String {
    format!(
        "
  - key: user
    limits: {{ algorithm: fixed_window, rate: {limit}/year }}
    on_store_failure: error
  - key: log
    limits: {{ algorithm: sliding_log, rate: {limit}/day }}
    on_store_failure: error
"
    )
}

/// Never above the limit; below by no more than what may have been charged without anybody hearing
/// of it.
fn assert_within(counts: Counts, limit: u64) {
    let Counts { allowed, .. } = counts;
    assert!(allowed <= limit, "{allowed} of {limit}: {counts:?}");
    assert!(allowed + counts.in_doubt() >= limit, "{allowed} of {limit}: {counts:?}");
}

#[test]
fn a_service_that_is_killed_takes_no_more_with_it_than_what_was_under_way() {
    let server = Single::start();
    let fleet = Fleet::start(NODES, server.url(), &rules(400));
    let counts = ask_times_while(&fleet.services, &[ADA], 50, |progress| {
        progress.await_allowed(100);
        fleet.services[0].signal("KILL");
    })[0];
    assert!((1..=CLIENTS as u64).contains(&counts.lost), "one question of each of its clients");
    assert_eq!(counts.failed, 0);
    assert_within(counts, 400);
}

#[test]
fn a_master_of_a_cluster_hands_over_while_everybody_asks() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(NODES, cluster.url(), &rules(600));
    let slot = cluster.slot_of("sg:1:{shop|user=ada}");
    let before = cluster.master_of(slot);
    let counts = ask_times_while(&fleet.services, &[ADA], 60, |progress| {
        progress.await_allowed(100);
        cluster.order_failover(before);
        cluster.await_master_other_than(before.port(), slot);
    })[0];
    assert_within(counts, 600);
    assert_eq!(ask_times(&fleet.services, &[ADA], 1)[0].allowed, 0);
}

#[test]
fn slots_move_to_another_master_while_everybody_asks() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(NODES, cluster.url(), &rules(600));
    let all = ask_times_while(&fleet.services, &[ADA, BOB], 60, |progress| {
        for (hits, key) in [(200, "sg:1:{shop|user=ada}"), (500, "sg:1:{shop|log=bob}")] {
            let slot = cluster.slot_of(key);
            let from = cluster.master_of(slot).port();
            let to = cluster.nodes()[..3].iter().find(|node| node.port() != from).unwrap();
            progress.await_allowed(hits);
            cluster.migrate_slot(slot, to);
        }
    });
    for counts in all {
        assert_within(counts, 600);
    }
    let sent_on =
        |how| fleet.metric(&format!("sluicegate_redis_redirected_total{{how=\"{how}\"}}"));
    println!("sent on: {} for good, {} for once", sent_on("moved"), sent_on("ask"));
    assert!(sent_on("moved") > 0);
}

#[test]
fn a_master_of_a_cluster_that_crashes_loses_no_more_than_it_had_not_replicated() {
    let cluster = Cluster::start();
    let fleet = Fleet::with(NODES, cluster.url(), &rules(LIMIT), &HASTY);
    let slot = cluster.slot_of("sg:1:{shop|user=ada}");
    let master = cluster.master_of(slot);
    let mut before = ask_times(&fleet.services, &[ADA], 1)[0];
    await_replicated(master, cluster.replica_of(master));
    before += ask_until_not_allowed_while(&fleet.services, ADA, |progress| {
        progress.await_allowed(300);
        cluster.kill(master);
    });
    cluster.await_master_other_than(master.port(), slot);
    goes_on_within(&fleet, before);
}

#[test]
fn a_primary_that_crashes_loses_no_more_than_it_had_not_replicated() {
    let sentinel = Sentinel::start();
    let mut fleet = Fleet::with(NODES, sentinel.url(), &rules(LIMIT), &HASTY);
    let primary = sentinel.primary();
    let mut before = ask_times(&fleet.services, &[ADA], 1)[0];
    await_replicated(primary, sentinel.replica());
    before += ask_until_not_allowed_while(&fleet.services, ADA, |progress| {
        progress.await_allowed(300);
        primary.kill();
    });
    sentinel.await_primary_other_than(primary.port());
    fleet.says("the store answers");
    goes_on_within(&fleet, before);
}

#[test]
fn what_a_crash_has_lost_is_known_to_the_nodes_and_told_again() {
    let sentinel = Sentinel::start();
    let fleet = Fleet::start(NODES, sentinel.url(), &rules(LIMIT));
    let (primary, replica) = (sentinel.primary(), sentinel.replica());
    let before = admitted_but_not_replicated(&fleet, primary, replica);
    sentinel.await_primary_other_than(primary.port());
    is_told_again(&fleet, before);
}

#[test]
fn what_a_crash_in_a_cluster_has_lost_is_known_to_the_nodes_and_told_again() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(NODES, cluster.url(), &rules(LIMIT));
    let slot = cluster.slot_of("sg:1:{shop|user=ada}");
    let master = cluster.master_of(slot);
    let before = admitted_but_not_replicated(&fleet, master, cluster.replica_of(master));
    cluster.await_master_other_than(master.port(), slot);
    is_told_again(&fleet, before);
}

/// Hits that the replica has heard of, hits that it has not heard of, and the end of its primary.
fn admitted_but_not_replicated(fleet: &Fleet, primary: &Single, replica: &Single) -> Counts {
    let mut counts = ask_times(&fleet.services, &[ADA], 20)[0];
    await_replicated(primary, replica);
    replica.pause();
    // It cannot connect again.
    primary.cli(&["CLIENT", "KILL", "TYPE", "REPLICA"]);
    counts += ask_times(&fleet.services, &[ADA], 10)[0];
    assert_eq!(counts.allowed, 480);
    primary.kill();
    replica.resume();
    counts
}

fn is_told_again(fleet: &Fleet, before: Counts) {
    until("the new primary was told", || (fleet.left(ADA) == [LIMIT as i64 - 480]).then_some(()));
    assert!(fleet.metric("sluicegate_redis_reasserted_counters_total") > 0);
    goes_on_within(fleet, before);
}

#[test]
fn a_server_that_comes_back_with_nothing_is_told_what_was_used() {
    let server = Single::start();
    let mut fleet = Fleet::start(NODES, server.url(), &rules(300));
    let before = ask_times(&fleet.services, &[ADA, BOB], 10);
    assert_eq!(before.iter().map(|counts| counts.allowed).collect::<Vec<_>>(), [160, 160]);
    server.kill();
    fleet.says("the store cannot be reached");
    server.restart();
    fleet.says("the store answers");
    for asked in [ADA, BOB] {
        until("it was told", || (fleet.left(asked) == [140]).then_some(()));
    }
    let after = ask_times(&fleet.services, &[ADA, BOB], 10);
    assert_eq!(after.iter().map(|counts| counts.allowed).collect::<Vec<_>>(), [140, 140]);
}

/// A replica that has just been filled hears of nothing more until it has spoken, which takes it up
/// to a second.
fn await_replicated(primary: &Single, replica: &Single) {
    until("the replica has it all", || {
        let all = primary.info("master_repl_offset")?;
        (replica.info("slave_repl_offset")? == all).then_some(())
    });
}

/// After a failover: what was admitted before it and afterwards is above the limit by at most what
/// the new primary had not heard of.
fn goes_on_within(fleet: &Fleet, before: Counts) {
    let known = LIMIT - u64::try_from(fleet.left(ADA)[0]).unwrap();
    let lost = before.allowed.saturating_sub(known);
    let after = ask_until_denied(&fleet.services, ADA);
    let admitted = before.allowed + after.allowed;
    let over = admitted.saturating_sub(LIMIT);
    println!(
        "failover: {} admitted before it, {known} known after it, {lost} lost; \
         {admitted} admitted of {LIMIT} in all: {over} over; \
         nodes saw it {} times, and told {} counters again",
        before.allowed,
        fleet.metric("sluicegate_redis_epoch"),
        fleet.metric("sluicegate_redis_reasserted_counters_total"),
    );
    assert!(over <= lost, "{over} over, {lost} lost");
    let in_doubt = before.in_doubt() + after.in_doubt();
    assert!(admitted + in_doubt >= LIMIT, "{admitted} and {in_doubt} of {LIMIT}");
}
