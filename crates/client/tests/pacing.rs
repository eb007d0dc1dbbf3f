//! A client that waits as it is told, and a real service, in a time that passes when nobody has
//! anything to do.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_client::{Client, DecisionSource};
use support::{SECOND, client_of, of, service_in_process};
use tokio::time::Instant;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, limits: { name: each, algorithm: token_bucket, rate: 1/s, burst: 1 } }
  - { key: day, limits: { name: daily, algorithm: fixed_window, rate: 1/day } }
  - { key: queue, limits: { name: shaped, algorithm: leaky_bucket, rate: 1/s, queue: 5 } }
";

fn client() -> Client {
    client_of(service_in_process(RULES)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waits_as_told_and_a_little_longer_and_never_asks_in_vain() {
    let client = client();
    let alice = of("user", "alice");
    let begun = Instant::now();
    for number in 0..20 {
        let decision = client.until_allowed(&alice, 60 * SECOND).await.unwrap();
        assert!(decision.allowed && begun.elapsed() >= number * SECOND, "{number}");
    }
    // A tenth longer at most, each.
    assert!(begun.elapsed() <= 19 * SECOND * 11 / 10, "{:?}", begun.elapsed());
    assert_eq!(client.counts().sent, 1 + 2 * 19, "one denial each");
}

#[tokio::test(start_paused = true)]
async fn chance_spreads_those_who_were_told_the_same() {
    let mut waits = BTreeSet::new();
    for _ in 0..20 {
        // Without a memory that would make up for coming too early.
        let client = client_of(service_in_process(RULES)).remember(0, SECOND).build().unwrap();
        client.check(&of("user", "alice")).await.unwrap();
        let begun = Instant::now();
        assert!(client.until_allowed(&of("user", "alice"), 60 * SECOND).await.unwrap().allowed);
        assert_eq!(client.counts().sent, 3, "announced once, and right");
        waits.insert(begun.elapsed());
    }
    assert!(waits.len() > 10, "{waits:?}");
    assert!(waits.iter().all(|wait| (SECOND..=SECOND * 11 / 10).contains(wait)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn many_who_wait_do_not_all_come_at_once() {
    let client = client();
    let begun = Instant::now();
    let calls = (0..10).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let decision = client.until_allowed(&of("user", "alice"), 60 * SECOND).await.unwrap();
            assert!(decision.allowed);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert!(begun.elapsed() >= 9 * SECOND);
    let counts = client.counts();
    assert!(counts.sent <= 60, "whoever knows that it is denied need not ask: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_make_it_is_told_at_once() {
    let client = client();
    let (user, day) = (of("user", "alice"), of("day", "alice"));
    for request in [&user, &day] {
        assert!(client.until_allowed(request, Duration::ZERO).await.unwrap().allowed);
    }
    let begun = Instant::now();
    let denied = client.until_allowed(&user, SECOND / 2).await.unwrap();
    assert_eq!((denied.allowed, denied.retry_after), (false, Some(SECOND)));
    let denied = client.until_allowed(&day, 600 * SECOND).await.unwrap();
    assert!(!denied.allowed && denied.retry_after > Some(600 * SECOND));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_long_denial_is_looked_at_again_now_and_then() {
    let client = client();
    let day = of("day", "alice");
    client.check(&day).await.unwrap();
    let mut asked = 0;
    for _ in 0..600 {
        asked += u64::from(client.check(&day).await.unwrap().source == DecisionSource::Service);
        tokio::time::advance(SECOND).await;
    }
    // Every half minute, in ten.
    assert_eq!((asked, client.counts().remembered), (20, 580));
}

#[tokio::test(start_paused = true)]
async fn where_a_limit_shapes_the_turn_is_waited_for() {
    let client = client();
    let job = of("queue", "jobs");
    let begun = Instant::now();
    for number in 0..4 {
        let decision = client.check(&job).await.unwrap();
        assert_eq!(decision.wait.unwrap_or_default(), number * SECOND);
    }
    let decision = client.until_allowed(&job, 4 * SECOND).await.unwrap();
    assert_eq!((decision.allowed, decision.wait, begun.elapsed()), (true, None, 4 * SECOND));
    client.check(&job).await.unwrap();
    let too_late = client.until_allowed(&job, SECOND).await.unwrap();
    assert_eq!((too_late.allowed, too_late.wait), (true, Some(2 * SECOND)));
    assert_eq!(begun.elapsed(), 4 * SECOND);
}
