//! A service that is away, or not well.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_client::{Client, DecisionSource, Error, UnavailablePolicy};
use support::{Does, SECOND, Scripted, allows, busy, header, of, says};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// What a service can do that is no answer.
fn faults() -> Vec<(&'static str, Does)> {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"allowed\":true";
    vec![
        ("did not answer within 500ms", Does::Nothing),
        ("broke off", Does::Closes),
        ("cannot be reached", Does::IsNotThere),
        ("broke off", Does::Says("no HTTP at all\r\n\r\n".to_owned())),
        ("broke off", Does::SaysAndCloses(half.to_owned())),
        ("did not answer within 500ms", Does::Says(half.to_owned())),
        ("sent an invalid response", says(200, "", "<html>")),
        ("sent an invalid response", says(200, "", r#"{"allowed":"yes"}"#)),
        ("answered 503: too many requests at once", busy(0)),
        ("answered 502: not a response of Sluicegate", says(502, "", "Bad Gateway")),
    ]
}

#[tokio::test(start_paused = true)]
async fn every_fault_is_tried_again_and_then_the_policy_decides() {
    for (why, fault) in faults() {
        let (service, _heard) = Scripted::new(std::slice::from_ref(&fault));
        let begun = Instant::now();
        let decide = |policy| {
            let client = service.client().on_unavailable(policy).breaker(u32::MAX, SECOND).build();
            let client = client.unwrap();
            async move { (client.check(&of("user", "42")).await, client.counts()) }
        };
        let (allowed, counts) = decide(UnavailablePolicy::Allow).await;
        let allowed = allowed.unwrap();
        assert_eq!((allowed.allowed, allowed.source), (true, DecisionSource::Policy), "{fault:?}");
        assert_eq!(
            (counts.sent, counts.retried, counts.failed, counts.by_policy),
            (2, 1, 2, 1),
            "{fault:?}"
        );
        assert!(!decide(UnavailablePolicy::Deny).await.0.unwrap().allowed);
        let by_name = UnavailablePolicy::local(|request| *request == of("user", "42"));
        assert!(decide(by_name).await.0.unwrap().allowed);
        let error = decide(UnavailablePolicy::Error).await.0.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains(why), "{fault:?}: {error}");
        assert!(error.to_string().starts_with("cannot check: http://service "), "{error}");
        assert_eq!(service.count(), 8, "{fault:?}");
        assert!(begun.elapsed() <= 6 * SECOND, "{fault:?} took {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_further_try_is_the_same_question_under_the_same_key() {
    for (_, fault) in faults() {
        let (service, mut heard) = Scripted::new(&[fault.clone(), allows()]);
        let client = service.client().on_unavailable(UnavailablePolicy::Error).build().unwrap();
        let decision = client.check(&of("user", "42")).await.unwrap();
        assert_eq!(
            (decision.allowed, decision.source),
            (true, DecisionSource::Service),
            "{fault:?}"
        );
        client.check(&of("user", "42")).await.unwrap();
        let keys = std::iter::from_fn(|| heard.try_recv().ok());
        let keys: Vec<_> =
            keys.map(|request| header(&request, "idempotency-key").unwrap().to_owned()).collect();
        let [.., last_try, other] = &*keys else { panic!("{keys:?}") };
        assert!(keys[..keys.len() - 1].iter().all(|key| key == last_try), "{keys:?}");
        assert_ne!(last_try, other);
        assert!((1..=255).contains(&other.len()));
    }
}

#[tokio::test(start_paused = true)]
async fn without_keys_only_what_was_not_done_is_asked_again() {
    for (why, fault) in faults() {
        let (service, mut heard) = Scripted::new(&[fault, allows()]);
        let client =
            service.client().without_idempotency_keys().on_unavailable(UnavailablePolicy::Error);
        let answer = client.build().unwrap().check(&of("user", "42")).await;
        let is_safe = why.starts_with("cannot be reached") || why.starts_with("answered 503");
        assert_eq!(answer.is_ok(), is_safe, "{why}: {answer:?}");
        while let Ok(request) = heard.try_recv() {
            assert_eq!(header(&request, "idempotency-key"), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_service_is_left_alone_as_long_as_it_says() {
    let (service, _heard) = Scripted::new(&[busy(1), allows()]);
    let client = service.client().on_unavailable(UnavailablePolicy::Error).build().unwrap();
    let begun = Instant::now();
    assert!(client.check(&of("user", "42")).await.unwrap().allowed);
    assert!((SECOND..SECOND * 11 / 10).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    // Longer than a caller has: it is not asked again.
    let (service, _heard) = Scripted::new(&[busy(2), allows()]);
    let client = service.client().on_unavailable(UnavailablePolicy::Deny).build().unwrap();
    let begun = Instant::now();
    assert_eq!(client.check(&of("user", "42")).await.unwrap().source, DecisionSource::Policy);
    assert_eq!((begun.elapsed(), service.count()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_the_callers_to_know() {
    let refusal = r#"{"error":{"code":"invalid_request","message":"no such field","context":{}}}"#;
    let (service, _heard) = Scripted::new(&[says(400, "", refusal)]);
    let client = service.client().breaker(1, SECOND).build().unwrap();
    for count in 1..=3 {
        let error = client.check(&of("user", "42")).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot check: http://service answered 400: no such field");
        assert_eq!((error.code(), service.count()), (Some("invalid_request"), count));
    }
    let (service, _heard) = Scripted::new(&[says(500, "", "")]);
    let client = service.client().build().unwrap();
    assert_eq!(client.check(&of("user", "42")).await.unwrap().source, DecisionSource::Policy);
    assert_eq!(service.count(), 1, "it would say the same again");
}

#[tokio::test(start_paused = true)]
async fn after_failures_in_a_row_one_looks_now_and_then() {
    let mut script = vec![Does::Nothing; 7];
    script.push(allows());
    let (service, _heard) = Scripted::new(&script);
    let client = service.client().tries(1).breaker(5, SECOND).build().unwrap();
    let alice = of("user", "alice");
    for _ in 0..5 {
        client.check(&alice).await.unwrap();
    }
    assert_eq!(service.count(), 5);
    for probes in 6..=8 {
        let begun = Instant::now();
        for _ in 0..100 {
            assert_eq!(client.check(&alice).await.unwrap().source, DecisionSource::Policy);
        }
        assert_eq!((begun.elapsed(), service.count()), (Duration::ZERO, probes - 1));
        tokio::time::advance(SECOND).await;
        let source = if probes == 8 { DecisionSource::Service } else { DecisionSource::Policy };
        assert_eq!(client.check(&alice).await.unwrap().source, source);
        assert_eq!(service.count(), probes);
    }
    assert_eq!(client.counts().short_circuited, 300);
    assert_eq!(client.check(&alice).await.unwrap().source, DecisionSource::Service);
}

#[tokio::test(start_paused = true)]
async fn a_sick_service_gets_a_tenth_more_and_not_twice_as_much() {
    let (service, _heard) = Scripted::new(&[busy(0)]);
    let client = service.client().tries(5).breaker(u32::MAX, SECOND).build().unwrap();
    for number in 0..1_000 {
        client.check(&of("user", &number.to_string())).await.unwrap();
    }
    let counts = client.counts();
    assert_eq!(counts.sent, 1_000 + counts.retried);
    assert!((100..=110).contains(&counts.retried), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn further_tries_are_spread() {
    let mut waits = BTreeSet::new();
    for _ in 0..10 {
        let (service, _heard) = Scripted::new(&[Does::Closes, allows()]);
        let client = service.client().backoff(SECOND, SECOND).build().unwrap();
        let begun = Instant::now();
        client.check(&of("user", "42")).await.unwrap();
        waits.insert(begun.elapsed());
    }
    assert!(waits.len() > 5 && waits.iter().all(|wait| *wait <= SECOND), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_back_by_a_policy() {
    let (service, _heard) = Scripted::new(&[Does::IsNotThere]);
    let client = service.client().build().unwrap();
    assert!(client.refund(&of("user", "42")).await.unwrap_err().is_unavailable());
    let many = client.check_many(&[of("user", "42"), of("user", "43")]).await.unwrap();
    assert!(many.len() == 2 && many.iter().all(|one| one.source == DecisionSource::Policy));
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_too_few_are_none() {
    let (service, _heard) = Scripted::new(&[says(200, "", r#"{"answers":[{"allowed":true}]}"#)]);
    let client = service.client().on_unavailable(UnavailablePolicy::Error).build().unwrap();
    let error = client.check_many(&[of("user", "42"), of("user", "43")]).await.unwrap_err();
    assert!(error.to_string().contains("omitted a response"), "{error}");
}

/// The same over sockets of the system, where nothing has to be waited for.
#[tokio::test]
async fn nobody_listens_and_who_listens_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::builder(&address)
        .timeout(support::PATIENT)
        .on_unavailable(UnavailablePolicy::Error);
    let client = client.build().unwrap();
    let hangs_up = async {
        for _ in 0..2 {
            let mut bytes = [0; 16];
            let _ = listener.accept().await.unwrap().0.read(&mut bytes).await;
        }
    };
    let alice = of("user", "alice");
    let (answer, ()) = tokio::join!(client.check(&alice), hangs_up);
    let Err(Error::Unavailable { why, .. }) = &answer else { panic!("{answer:?}") };
    assert!(why.ends_with(" (2 tries)"), "{why}");
    drop(listener);
    let error = client.check(&alice).await.unwrap_err();
    assert!(error.to_string().contains("cannot be reached: "), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
}
