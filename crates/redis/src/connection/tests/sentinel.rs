//! A primary that Sentinels watch over.

use sluicegate_testkit::redis::{Secrets, Sentinel, Single};

use super::load::Load;
use super::*;
use crate::Secret;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_followed_under_load_and_never_written_to_again() {
    // It comes back, for a moment as a primary, and becomes a replica.
    a_lost_primary_is_followed(Single::kill, Single::restart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_hangs_is_left_and_not_gone_back_to() {
    // It resumes where it was, briefly still as a primary.
    a_lost_primary_is_followed(Single::pause, Single::resume).await;
}

async fn a_lost_primary_is_followed(lose: impl Fn(&Single), find: impl Fn(&Single)) {
    let servers = Sentinel::start();
    let options = LinkOptions { timeout: Duration::from_millis(200), ..ample() };
    let options = LinkOptions { connect_timeout: Duration::from_secs(1), ..options };
    let link = open(servers.url(), options);
    let load = Load::start(&link, &["visits".to_owned()], 4);
    load.answered(100).await;
    let old = servers.primary();
    lose(old);
    let new = servers.await_primary_other_than(old.port());
    until_epoch(&link, 1).await;
    load.answered(100).await;
    find(old);
    servers.await_calm();
    load.answered(100).await;
    let books = load.stop().await;
    servers.await_calm();
    until(&link, ServerHealth::Up).await;
    // On a busy machine Sentinels may also declare the new primary dead and return to the old one;
    // the link follows.
    if link.epoch() == 1 {
        let not_sent = |error: &CallError| matches!(error, CallError::Down | CallError::Busy);
        assert!(books.not_done.iter().all(not_sent), "{:?}", books.not_done);
        let address = format!("127.0.0.1:{}", new.port());
        assert_eq!(&*link.stats().servers[0].address, address, "{}", what_was_said(&servers));
    }
    assert_eq!(link.stats().servers.len(), 1);
    // Writes that the old primary had not replicated are lost; none is executed twice.
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
    let load = Load::start(&link, &["visits".to_owned()], 2);
    load.answered(100).await;
    // On a busy machine a Sentinel may abort a failover, and an operator repeats the command.
    for _ in 0..3 {
        // The state below shows whether the command took effect.
        let _taken = servers.sentinels()[0].try_ask(&["SENTINEL", "FAILOVER", "mymaster"]);
        let mut changed = link.epoch_changes();
        let followed = changed.wait_for(|epoch| *epoch >= 1);
        if tokio::time::timeout(2 * AMPLE, followed).await.is_ok() {
            break;
        }
    }
    assert!(link.epoch() >= 1, "{}", what_was_said(&servers));
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
    let lost = link.stats().discovery_error.unwrap();
    assert!(lost.contains("knows no primary named `nobody`"), "{lost}");
    assert!(!link.is_up());
}

fn what_was_said(servers: &Sentinel) -> String {
    let all = servers.servers().iter().chain(servers.sentinels());
    all.map(|server| format!("{server:?} said:\n{}\n", server.log())).collect()
}
