//! A Cluster: slots that move, masters that go.

use sluicegate_testkit::redis::{Cluster, Options, Single, Tls};

#[test]
fn slots_move_step_by_step() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("{a}1");
    assert_eq!(slot, 15_495, "the one that everybody knows");
    let from = cluster.master_of(slot);
    let to = cluster.nodes()[..3].iter().find(|node| node.port() != from.port()).unwrap();
    let moved = format!("MOVED {slot} 127.0.0.1:{}", from.port());
    assert_eq!(to.cli(&["GET", "{a}1"]), moved);
    for key in ["{a}1", "{a}2", "{a}3"] {
        assert_eq!(from.cli(&["SET", key, "v"]), "OK");
    }

    let migration = cluster.migration(slot, to);
    assert_eq!(migration.from().port(), from.port());
    let ask = format!("ASK {slot} 127.0.0.1:{}", to.port());
    assert_eq!(from.cli(&["GET", "{a}new"]), ask, "what is not there may be on the other side");
    assert_eq!(migration.move_keys(1), 1);
    let answers: Vec<String> =
        ["{a}1", "{a}2", "{a}3"].iter().map(|key| from.cli(&["GET", key])).collect();
    assert_eq!(answers.iter().filter(|answer| **answer == ask).count(), 1, "{answers:?}");
    assert!(from.cli(&["MGET", "{a}1", "{a}2", "{a}3"]).starts_with("TRYAGAIN"));
    migration.finish();
    assert_eq!(cluster.master_of(slot).port(), to.port());
    assert_eq!(to.cli(&["MGET", "{a}1", "{a}2", "{a}3"]), "v\nv\nv");

    cluster.migrate_slot(slot, from);
    assert_eq!(from.cli(&["MGET", "{a}1", "{a}2", "{a}3"]), "v\nv\nv");
}

#[test]
fn a_master_hands_over_and_a_killed_one_is_replaced() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("k");
    let first = cluster.master_of(slot);
    assert_eq!(first.cli(&["SET", "k", "v"]), "OK");
    let second = cluster.fail_over(first);
    assert_eq!(cluster.master_of(slot).port(), second.port());
    assert_eq!(cluster.replica_of(second).port(), first.port());
    assert_eq!(second.cli(&["GET", "k"]), "v");

    cluster.kill(second);
    let third = cluster.await_master_other_than(second.port(), slot);
    assert_eq!(third.port(), first.port());
    assert_eq!(third.cli(&["GET", "k"]), "v");
    second.restart();
    cluster.await_calm();
    assert_eq!(cluster.replica_of(third).port(), second.port());
}

#[test]
fn nodes_with_passwords_and_certificates() {
    let password = Some("secret".to_owned());
    let options = Options { password, tls: Some(Tls::Mutual), ..Options::default() };
    let cluster = Cluster::with(&options);
    assert!(cluster.url().starts_with("rediss-cluster://:secret@127.0.0.1:"), "{}", cluster.url());
    let slot = cluster.slot_of("k");
    let from = cluster.master_of(slot);
    assert_eq!(from.cli(&["SET", "k", "v"]), "OK");
    let other = |node: &&Single| node.port() != from.port();
    cluster.migrate_slot(slot, cluster.nodes()[..3].iter().find(other).unwrap());
    assert_eq!(cluster.master_of(slot).cli(&["GET", "k"]), "v");
}

#[test]
fn all_of_it_is_gone_afterwards() {
    let cluster = Cluster::start();
    let pids: Vec<u32> = cluster.nodes().iter().map(Single::pid).collect();
    cluster.nodes()[0].pause();
    drop(cluster);
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} is still there");
    }
}
