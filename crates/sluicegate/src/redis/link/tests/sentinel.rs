//! A primary that Sentinels watch over.

use sluicegate_bed::redis::{Secrets, Sentinel};

use super::load::Load;
use super::*;
use crate::redis::Secret;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_followed_under_load_and_never_written_to_again() {
    let servers = Sentinel::start();
    let link = open(servers.url(), LinkOptions { timeout: Duration::from_secs(1), ..ample() });
    assert_eq!(count(&link, "first").await, Ok(1));
    let load = Load::start(&link, &["visits".to_owned()], 8);
    load.answered(100).await;
    let old = servers.kill_primary();
    let new = servers.await_primary_other_than(old.port());
    until_epoch(&link, 1).await;
    load.answered(100).await;
    // He comes back, for a moment as a primary, and becomes a replica.
    old.restart();
    servers.await_calm();
    load.answered(100).await;
    let books = load.stop().await;
    let down = |error: &CallError| *error == CallError::Down;
    assert!(books.not_done.iter().all(down), "{:?}", books.not_done);
    let stats = link.stats();
    assert_eq!(stats.servers.len(), 1);
    assert_eq!(&*stats.servers[0].address, format!("127.0.0.1:{}", new.port()));
    assert_eq!(link.epoch(), 1);
    // What the old one had not passed on is lost; nothing happened twice.
    let answered = books.answers["visits"].len();
    let most = answered + usize::try_from(books.unclear()).unwrap();
    let happened = usize::try_from(count(&link, "visits").await.unwrap() - 1).unwrap();
    assert!(happened <= most, "{happened} happened, {most} could have");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordered_failover_is_followed_and_a_replica_refuses() {
    let secrets = Secrets { servers: Some("a".into()), sentinels: Some("b".into()) };
    let servers = Sentinel::with(secrets);
    let options = LinkOptions { sentinel_password: Some(Secret::new("b")), ..ample() };
    let link = open(servers.url(), options);
    let load = Load::start(&link, &["visits".to_owned()], 4);
    load.answered(100).await;
    // On a busy machine a Sentinel may give up what it was ordered to do, and an operator orders it again.
    for _ in 0..3 {
        servers.order_failover();
        let mut changed = link.changed();
        let followed = changed.wait_for(|epoch| *epoch == 1);
        if tokio::time::timeout(2 * AMPLE, followed).await.is_ok() {
            break;
        }
    }
    until_epoch(&link, 1).await;
    load.answered(100).await;
    let books = load.stop().await;
    let fits = |error: &CallError| match error {
        CallError::Down => true,
        CallError::Refused(words) => words.starts_with("READONLY "),
        _ => false,
    };
    assert!(books.not_done.iter().all(fits), "{:?}", books.not_done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_sentinel_knows_is_told() {
    let servers = Sentinel::start();
    let (sentinels, _) = servers.url().rsplit_once('/').unwrap();
    let link = open(&format!("{sentinels}/nobody"), ample());
    assert_eq!(count(&link, "visits").await, Err(CallError::Down));
    let lost = link.stats().lost.unwrap();
    assert!(lost.contains("knows no primary named `nobody`"), "{lost}");
    assert!(!link.is_up());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_hangs_is_left_and_not_gone_back_to() {
    let servers = Sentinel::start();
    let options = LinkOptions { timeout: Duration::from_millis(100), ..ample() };
    let link =
        open(servers.url(), LinkOptions { connect_timeout: Duration::from_secs(1), ..options });
    let load = Load::start(&link, &["visits".to_owned()], 8);
    load.answered(100).await;
    let old = servers.primary();
    old.pause();
    let new = servers.await_primary_other_than(old.port());
    until_epoch(&link, 1).await;
    load.answered(100).await;
    // It goes on where it was, for a moment still as a primary.
    old.resume();
    servers.await_calm();
    load.answered(100).await;
    let books = load.stop().await;
    let address = format!("127.0.0.1:{}", new.port());
    assert_eq!(&*link.stats().servers[0].address, address);
    assert_eq!(link.epoch(), 1);
    let answered = books.answers["visits"].len();
    let most = answered + usize::try_from(books.unclear()).unwrap();
    let happened = usize::try_from(count(&link, "visits").await.unwrap() - 1).unwrap();
    assert!(happened <= most, "{happened} happened, {most} could have");
}
