//! How many may wait, and for how long.

use std::task::Poll;

use futures_util::future::{join_all, poll_fn};
use sluicegate_testkit::redis::Single;

use super::*;

fn narrow(timeout: Duration) -> LinkOptions {
    LinkOptions { timeout, connections: 1, in_flight: 2, waiting: 3, ..ample() }
}

#[tokio::test(flavor = "multi_thread")]
async fn above_the_bound_a_caller_hears_at_once() {
    let server = Single::start();
    let link = open(server.url(), narrow(AMPLE));
    until(&link, ServerHealth::Up).await;
    server.pause();
    let call = increment("visits");
    let mut calls: Vec<_> = (0..8).map(|_| Box::pin(link.call(&call))).collect();
    // Each is begun once, in this order; none can be answered.
    let mut begun = Vec::new();
    for call in &mut calls {
        begun.push(poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await);
    }
    let (kept, turned_away) = begun.split_at(5);
    assert!(kept.iter().all(Poll::is_pending), "{begun:?}");
    let busy = Poll::Ready(Err(CallError::Busy));
    assert!(turned_away.iter().all(|answer| *answer == busy), "{begun:?}");
    let stats = &link.stats().servers[0];
    assert_eq!((stats.in_flight, stats.waiting), (2, 3));
    server.resume();
    calls.truncate(5);
    let answers = join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let stats = &link.stats().servers[0];
    assert_eq!((stats.in_flight, stats.waiting), (0, 0));
    assert_eq!(link.stats().busy, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waited_in_vain_was_not_sent() {
    let server = Single::start();
    let link = open(server.url(), narrow(Duration::from_millis(50)));
    until(&link, ServerHealth::Up).await;
    let others = link.inner.topology.servers();
    let places = others[0].state.in_flight.acquire_many(2).await.unwrap();
    let call = increment("visits");
    let answers = join_all((0..3).map(|_| link.call(&call))).await;
    assert_eq!(answers, [const { Err(CallError::Busy) }; 3]);
    drop(places);
    assert_eq!(server.cli(&["EXISTS", "visits"]), "0");
    assert!(link.is_up(), "that is nobody's failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_gives_his_place_back() {
    let server = Single::start();
    let link = open(server.url(), narrow(AMPLE));
    until(&link, ServerHealth::Up).await;
    server.pause();
    let call = increment("visits");
    for _ in 0..2 {
        let mut left = Box::pin(link.call(&call));
        assert!(poll_fn(|context| Poll::Ready(left.as_mut().poll(context))).await.is_pending());
        drop(left);
        let stats = &link.stats().servers[0];
        assert_eq!((stats.in_flight, stats.waiting), (0, 0));
    }
    server.resume();
    assert!(count(&link, "visits").await.is_ok());
}

#[tokio::test]
async fn what_can_never_work_is_an_error_at_once() {
    let address = || Address::parse("rediss://localhost").unwrap();
    let mut options = ample();
    options.tls.ca = Some("/nowhere/ca.pem".into());
    let error = Link::open(address(), options).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/ca.pem: "), "{error}");
    let options = LinkOptions { password_file: Some("/nowhere/password".into()), ..ample() };
    let plain = Address::parse("redis://localhost").unwrap();
    let error = Link::open(plain, options).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/password: "), "{error}");
    let options = LinkOptions { connections: 0, ..ample() };
    let error = Link::open(address(), options).unwrap_err().to_string();
    assert_eq!(error, "connections: must be 1 to 1024");
}

#[test]
fn without_a_runtime_there_is_no_link() {
    let address = Address::parse("redis://localhost").unwrap();
    let error = Link::open(address, ample()).unwrap_err();
    assert_eq!(error, crate::LinkError::NoRuntime);
}
