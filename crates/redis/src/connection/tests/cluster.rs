//! A Cluster whose slots and primaries move.

use redis::cmd;
use sluicegate_testkit::redis::{Cluster, Options, Single, Tls};

use super::load::{Books, Load};
use super::*;
use crate::TlsOptions;

/// Keys all over the Cluster.
fn keys() -> Vec<String> {
    (0..12).map(|number| format!("{{visitor-{number}}}:visits")).collect()
}

fn nothing_failed(books: &Books) {
    assert_eq!((books.unclear(), &books.not_done[..]), (0, &[][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_to_who_has_the_slot() {
    let cluster = Cluster::start();
    let link = open(cluster.url(), ample());
    for key in keys() {
        assert_eq!(link.slot_of(key.as_bytes()), Some(cluster.slot_of(&key)));
        assert_eq!(count(&link, &key).await, Ok(1));
    }
    let stats = link.stats();
    assert_eq!((stats.servers.len(), stats.moved_redirects, stats.epoch), (3, 0, 0));
    let mut other = increment("a");
    other.keys.push(b"b".to_vec());
    let refused = link.call(&other).await.unwrap_err();
    assert!(refused.to_string().contains("CROSSSLOT"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_under_load_fails_no_call_and_repeats_none() {
    let cluster = Cluster::start();
    // One node is enough to find the others.
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.nodes()[1].port());
    let link = open(&url, ample());
    let keys = keys();
    let load = Load::start(&link, &keys, 2);
    load.answered(200).await;
    for key in &keys[..6] {
        let slot = cluster.slot_of(key);
        let from = cluster.master_of(slot).port();
        let to = cluster.nodes()[..3].iter().find(|node| node.port() != from).unwrap();
        let migration = cluster.migration(slot, to);
        load.answered(50).await;
        migration.move_keys(1);
        load.answered(50).await;
        migration.finish();
        load.answered(50).await;
    }
    let books = load.stop().await;
    nothing_failed(&books);
    let stats = link.stats();
    assert!(stats.ask_redirects > 0 && stats.moved_redirects > 0, "{stats:?}");
    assert_eq!(stats.epoch, 0, "slots moved, and nobody took over");
    books.compare(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_a_slot_that_is_half_gone_are_sent_on_one_by_one() {
    let cluster = Cluster::start();
    let link = open(cluster.url(), ample());
    let incrby = |key: &str| {
        let mut command = cmd("INCRBY");
        command.arg(format!("{{half}}{key}")).arg(1);
        command
    };
    let all = || ["a", "b", "c", "d"].map(incrby).to_vec();
    let ones = vec![Ok(Value::Int(1)); 4];
    assert_eq!(link.pipeline(b"{half}", all()).await, Ok(ones));
    let slot = cluster.slot_of("{half}");
    let from = cluster.master_of(slot).port();
    let to = cluster.nodes()[..3].iter().find(|node| node.port() != from).unwrap();
    let migration = cluster.migration(slot, to);
    assert_eq!(migration.move_keys(2), 2);
    let twos = vec![Ok(Value::Int(2)); 4];
    assert_eq!(link.pipeline(b"{half}", all()).await, Ok(twos));
    // Two keys, one of them migrated: Redis itself replies that it cannot execute the call.
    let mut both = increment("{half}a");
    both.keys = ["a", "b", "c", "d"].map(|key| format!("{{half}}{key}").into()).to_vec();
    let refused = link.call(&both).await.unwrap_err();
    assert!(matches!(&refused, CallError::Refused(words) if words.starts_with("TRYAGAIN ")));
    assert_eq!(link.stats().tried_again, 1);
    migration.finish();
    let threes = vec![Ok(Value::Int(3)); 4];
    assert_eq!(link.pipeline(b"{half}", all()).await, Ok(threes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_order_fails_no_call_that_was_not_answered_so() {
    let cluster = Cluster::start();
    let link = open(cluster.url(), ample());
    let keys = keys();
    let load = Load::start(&link, &keys, 2);
    load.answered(200).await;
    let master = &cluster.nodes()[0];
    cluster.fail_over(master);
    until_epoch(&link, 1).await;
    load.answered(200).await;
    let books = load.stop().await;
    // `CLUSTER FAILOVER` waits until the replica has everything: nothing is lost.
    let down = |error: &CallError| *error == CallError::Down;
    assert!(books.not_done.iter().all(down), "{:?}", books.not_done);
    books.compare(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_master_is_followed_and_the_others_go_on() {
    a_lost_master_is_followed(|cluster, master| cluster.kill(master)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_hangs_is_left_and_the_others_go_on() {
    a_lost_master_is_followed(|_, master| master.pause()).await;
}

async fn a_lost_master_is_followed(lose: impl Fn(&Cluster, &Single)) {
    let cluster = Cluster::start();
    let options = LinkOptions { timeout: Duration::from_millis(200), ..ample() };
    let options = LinkOptions { connect_timeout: Duration::from_secs(1), ..options };
    let link = open(cluster.url(), options);
    let keys = keys();
    let load = Load::start(&link, &keys, 2);
    load.answered(200).await;
    let master = &cluster.nodes()[0];
    let slot = keys.iter().map(|key| cluster.slot_of(key));
    let slot = slot.into_iter().find(|slot| cluster.master_of(*slot).port() == master.port());
    let slot = slot.expect("a key of the first master");
    lose(&cluster, master);
    load.answered(200).await;
    cluster.await_master_other_than(master.port(), slot);
    until_epoch(&link, 1).await;
    load.answered(200).await;
    let books = load.stop().await;
    let down = |error: &CallError| *error == CallError::Down;
    assert!(books.not_done.iter().all(down), "{:?}", books.not_done);
    for key in &keys {
        let answered = books.answers[key].len();
        let unclear = books.unclear.get(key).copied().unwrap_or_default();
        let most = answered + usize::try_from(unclear).unwrap();
        let happened = usize::try_from(count(&link, key).await.unwrap() - 1).unwrap();
        assert!(happened <= most, "{key}: {happened} happened, {most} could have");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_over_tls_with_a_password() {
    let password = Some("secret".to_owned());
    let cluster =
        Cluster::with(&Options { tls: Some(Tls::Mutual), password, ..Options::default() });
    let files = cluster.tls_files();
    let tls = TlsOptions {
        ca: Some(files.ca.clone()),
        client_cert: Some(files.client_certificate.clone()),
        client_key: Some(files.client_key.clone()),
        ..TlsOptions::default()
    };
    let link = open(cluster.url(), LinkOptions { tls, ..ample() });
    for key in keys() {
        assert_eq!(count(&link, &key).await, Ok(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_cluster_is_told() {
    let server = Single::start();
    let link = open(&format!("redis-cluster://127.0.0.1:{}", server.port()), ample());
    assert_eq!(count(&link, "visits").await, Err(CallError::Down));
    let lost = link.stats().discovery_error.unwrap();
    assert!(lost.contains("cluster support disabled"), "{lost}");
}
