//! Reserving, settling and waiting, and asking again without being charged again.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use sluicegate_client::{Client, DecisionSource, Request, Reserved, UnavailablePolicy};
use support::{Does, PATIENT, SECOND, Scripted, client_of, of, service, service_in_process};
use tokio::time::Instant;
use tower::ServiceExt;

const RULES: &str = "
domain: shop
descriptors:
  - { key: tokens, limits: { name: tokens, algorithm: fixed_window, rate: 1000/day } }
  - { key: paced, limits: { name: paced, algorithm: token_bucket, rate: 1/s, burst: 1 } }
  - { key: slots, limits: { name: slots, algorithm: concurrency, max: 1, lease: 10m } }
";

fn client() -> Client {
    client_of(service_in_process(RULES)).build().unwrap()
}

async fn left(client: &Client, request: &Request) -> i64 {
    client.peek(&request.clone().hits(0)).await.unwrap().remaining.unwrap()
}

#[tokio::test]
async fn what_is_not_used_is_given_back_over_a_real_connection() {
    let client = Client::builder(service(RULES, &[]).await).timeout(PATIENT).build().unwrap();
    let tokens = of("tokens", "alice");
    let held = client.reserve(&tokens.clone().hits(800), PATIENT).await.unwrap();
    let held = held.held().unwrap();
    assert_eq!((held.decision().remaining, held.expires_after()), (Some(200), Some(PATIENT)));
    assert!(matches!(
        client.reserve(&tokens.clone().hits(800), PATIENT).await.unwrap(),
        Reserved::Denied(denied) if denied.source == DecisionSource::Service && denied.retry_after.is_some()
    ));
    let settled = held.commit(250).await.unwrap();
    assert_eq!((settled.returned, settled.statuses[0].remaining), (550, Some(750)));
    // Who was denied may pass now, and is asked about.
    let again = client.reserve(&tokens.clone().hits(800), PATIENT).await.unwrap();
    assert_eq!(again.decision().source, DecisionSource::Service);
    let held = client.reserve(&tokens.clone().hits(700), PATIENT).await.unwrap().held().unwrap();
    assert_eq!(held.cancel().await.unwrap().returned, 700);
    // More than was reserved, and than there is.
    let held = client.reserve(&tokens.clone().hits(1), PATIENT).await.unwrap().held().unwrap();
    held.commit(900).await.unwrap();
    assert_eq!(left(&client, &tokens).await, -150);
}

#[tokio::test]
async fn somebody_else_settles_it_and_only_once() {
    let client = Client::builder(service(RULES, &[]).await).timeout(PATIENT).build().unwrap();
    let held = client.reserve(&of("tokens", "alice").hits(10), PATIENT).await.unwrap();
    let token = held.held().unwrap().into_token().unwrap();
    assert_eq!(client.clone().commit(&token, 4).await.unwrap().returned, 6);
    for error in
        [client.commit(&token, 4).await.unwrap_err(), client.cancel(&token).await.unwrap_err()]
    {
        assert_eq!(error.code(), Some("settled_reservation"), "{error}");
    }
    let no_name = client.cancel("no\"thing").await.unwrap_err();
    assert_eq!(no_name.code(), Some("unknown_reservation"), "{no_name}");
    assert_eq!(left(&client, &of("tokens", "alice")).await, 996);
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_given_back() {
    let client = client();
    let tokens = of("tokens", "alice");
    let held = client.reserve(&tokens.clone().hits(800), 60 * SECOND).await.unwrap();
    assert_eq!(left(&client, &tokens).await, 200);
    drop(held);
    // Time passes when everybody has done what there is to do.
    tokio::time::sleep(SECOND).await;
    assert_eq!(left(&client, &tokens).await, 1_000);
}

#[test]
fn what_is_dropped_where_nothing_runs_is_left_to_run_out() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let (client, held) = runtime.block_on(async {
        let client = client();
        let held = client.reserve(&of("tokens", "alice").hits(800), 60 * SECOND).await.unwrap();
        (client, held)
    });
    drop(held);
    runtime.block_on(async {
        tokio::time::sleep(59 * SECOND).await;
        assert_eq!(left(&client, &of("tokens", "alice")).await, 200);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(left(&client, &of("tokens", "alice")).await, 1_000);
    });
}

#[tokio::test(start_paused = true)]
async fn nobody_to_ask() {
    let (away, _heard) = Scripted::new(&[Does::IsNotThere]);
    let ask = |policy| away.client().on_unavailable(policy).build().unwrap();
    let tokens = of("tokens", "alice");
    let held =
        ask(UnavailablePolicy::Allow).reserve(&tokens, SECOND).await.unwrap().held().unwrap();
    assert_eq!(held.decision().source, DecisionSource::Policy);
    let settled = held.commit(5).await.unwrap();
    assert_eq!((settled.returned, settled.source), (0, DecisionSource::Policy));
    assert!(ask(UnavailablePolicy::Deny).reserve(&tokens, SECOND).await.unwrap().held().is_none());
    assert!(
        ask(UnavailablePolicy::Error).reserve(&tokens, SECOND).await.unwrap_err().is_unavailable()
    );
    let waited = ask(UnavailablePolicy::Allow).wait(&tokens, SECOND).await.unwrap();
    assert!(waited.decision.allowed && waited.slot.is_none());
}

// === waiting ===

#[tokio::test(start_paused = true)]
async fn the_turn_is_waited_for_in_order() {
    let client = client();
    let (paced, begun) = (of("paced", "alice"), Instant::now());
    for second in 0..4 {
        let waited = client.wait(&paced, 60 * SECOND).await.unwrap();
        assert!(waited.decision.allowed && waited.slot.is_none());
        assert_eq!(
            (waited.waited, begun.elapsed()),
            (SECOND.min(second * SECOND), second * SECOND)
        );
    }
    let denied = client.wait(&paced, SECOND / 2).await.unwrap();
    assert_eq!((denied.decision.allowed, begun.elapsed()), (false, 3 * SECOND), "at once");
    assert_eq!(client.counts().sent, 5);
}

#[tokio::test(start_paused = true)]
async fn a_wait_may_take_longer_than_a_check() {
    let client = client_of(service_in_process(RULES)).timeout(SECOND / 10).build().unwrap();
    client.check(&of("paced", "alice")).await.unwrap();
    assert!(client.wait(&of("paced", "alice"), 60 * SECOND).await.unwrap().decision.allowed);
    let (silent, _heard) = Scripted::new(&[Does::Nothing]);
    let client = silent
        .client()
        .timeout(SECOND / 10)
        .on_unavailable(UnavailablePolicy::Error)
        .build()
        .unwrap();
    let begun = Instant::now();
    assert!(client.wait(&of("paced", "alice"), 60 * SECOND).await.unwrap_err().is_unavailable());
    assert_eq!((begun.elapsed(), silent.count()), (60 * SECOND + SECOND / 10, 1));
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_any_more_has_taken_nothing() {
    let client = client();
    let paced = of("paced", "alice");
    client.check(&paced).await.unwrap();
    let impatient = tokio::time::timeout(SECOND / 2, client.wait(&paced, 60 * SECOND)).await;
    assert!(impatient.is_err());
    tokio::time::sleep(SECOND / 2).await;
    assert!(client.check(&paced).await.unwrap().allowed, "its turn is free");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_it_is_given_back() {
    let client = client();
    let slot = of("slots", "alice");
    let first = client.wait(&slot, SECOND).await.unwrap();
    assert!(first.slot.is_some());
    let denied = client.wait(&slot, SECOND).await.unwrap();
    assert!(!denied.decision.allowed && denied.slot.is_none());
    let begun = Instant::now();
    let second = tokio::spawn({
        let (client, slot) = (client.clone(), slot.clone());
        async move { client.wait(&slot, 600 * SECOND).await.unwrap() }
    });
    tokio::time::sleep(5 * SECOND).await;
    drop(first);
    let second = second.await.unwrap();
    assert!(second.decision.allowed && second.slot.is_some());
    assert_eq!(begun.elapsed(), 5 * SECOND);
    second.slot.unwrap().cancel().await.unwrap();
    assert!(client.wait(&slot, Duration::ZERO).await.unwrap().decision.allowed);
}

// === asking again ===

/// A service whose next answer gets lost, after everything has been done, whenever it is told so.
fn forgetful() -> (Client, Arc<AtomicBool>) {
    let loses = Arc::new(AtomicBool::new(false));
    let (service, hints) = (service_in_process(RULES), loses.clone());
    let lossy = Router::new().fallback(move |request: http::Request<axum::body::Body>| {
        let (service, hints) = (service.clone(), hints.clone());
        async move {
            let answer = service.oneshot(request).await.unwrap();
            if hints.swap(false, Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    (client_of(lossy).build().unwrap(), loses)
}

#[tokio::test(start_paused = true)]
async fn whatever_is_asked_again_is_done_once() {
    let (client, loses) = forgetful();
    let tokens = of("tokens", "alice").hits(100);
    let keyed = tokens.clone().idempotency_key("b3f1c2d4");
    let lose = || loses.store(true, Ordering::Relaxed);
    lose();
    assert_eq!(client.check(&keyed).await.unwrap().remaining, Some(900));
    lose();
    assert_eq!(
        client.check_many(std::slice::from_ref(&tokens)).await.unwrap()[0].remaining,
        Some(800)
    );
    lose();
    assert_eq!(client.refund(&keyed).await.unwrap().remaining, Some(900));
    lose();
    let held = client.reserve(&tokens, 60 * SECOND).await.unwrap().held().unwrap();
    assert_eq!(held.decision().remaining, Some(800));
    lose();
    assert_eq!(held.commit(30).await.unwrap().returned, 70);
    let held = client.reserve(&tokens, 60 * SECOND).await.unwrap().held().unwrap();
    lose();
    assert_eq!(held.cancel().await.unwrap().returned, 100);
    assert_eq!(left(&client, &tokens).await, 870);
    assert_eq!((client.counts().retried, client.counts().by_policy), (6, 0));
}
