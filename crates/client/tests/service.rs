//! A client and a real service, over a real connection.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::time::Duration;

use sluicegate_client::{Client, DecisionSource, Descriptor, Error, Request, Unit};
use support::{PATIENT, of, service};

const RULES: &str = "
domain: shop
deny: [{ key: user, value: mallory }]
descriptors:
  - { key: user, limits: { name: daily, algorithm: fixed_window, rate: 3/day } }
  - { key: team, limits: { name: hourly, algorithm: fixed_window, rate: 10/h } }
";

async fn client() -> Client {
    client_with(&[]).await
}

async fn client_with(variables: &[(&str, &str)]) -> Client {
    Client::builder(service(RULES, variables).await).timeout(PATIENT).build().unwrap()
}

#[tokio::test]
async fn a_limit_is_reached_and_the_service_is_not_asked_again() {
    let client = client().await;
    for left in [2, 1, 0] {
        let decision = client.check(&of("user", "alice")).await.unwrap();
        assert_eq!((decision.allowed, decision.remaining), (true, Some(left)));
        assert_eq!((decision.quota, decision.limit.as_deref()), (Some(3), Some("daily")));
    }
    let denied = client.check(&of("user", "alice")).await.unwrap();
    assert_eq!(
        (denied.allowed, denied.source, denied.remaining),
        (false, DecisionSource::Service, Some(0))
    );
    assert!(
        denied.retry_after.unwrap() > Duration::ZERO && denied.retry_after == denied.reset_after
    );
    assert_eq!(denied.statuses[0].rule.as_deref(), Some("shop/user"));

    let known = client.check(&of("user", "alice")).await.unwrap();
    assert_eq!((known.allowed, known.source), (false, DecisionSource::Remembered));
    assert!(known.retry_after.unwrap() <= denied.retry_after.unwrap());
    assert_eq!((client.counts().sent, client.counts().remembered), (4, 1));
    assert!(client.check(&of("user", "bob")).await.unwrap().allowed);
}

#[tokio::test]
async fn looking_charges_nothing_and_what_is_given_back_is_there_again() {
    let client = client().await;
    let alice = of("user", "alice").hits(3);
    assert!(client.peek(&alice).await.unwrap().allowed);
    assert!(client.check(&alice).await.unwrap().allowed);
    let peeked = client.peek(&alice).await.unwrap();
    assert_eq!((peeked.allowed, peeked.remaining), (false, Some(0)));
    assert!(peeked.retry_after.is_some());
    assert!(!client.check(&alice).await.unwrap().allowed);
    assert_eq!(client.refund(&alice).await.unwrap().remaining, Some(3));
    let again = client.check(&alice).await.unwrap();
    assert_eq!(
        (again.allowed, again.source),
        (true, DecisionSource::Service),
        "what was known is over"
    );
}

#[tokio::test]
async fn many_at_once_in_their_order() {
    let client = client().await;
    client.check(&of("user", "denied").hits(3)).await.unwrap();
    client.check(&of("user", "denied").hits(3)).await.unwrap();
    let users = (0..2_500).map(|number| match number {
        7 | 1_700 => of("user", "denied").hits(3),
        _ => of("user", &number.to_string()),
    });
    let users: Vec<_> = users.collect();
    let sent = client.counts().sent;
    let decisions = client.check_many(&users).await.unwrap();
    let denied = decisions.iter().enumerate().filter(|(_, one)| !one.allowed);
    assert_eq!(denied.map(|(place, _)| place).collect::<Vec<_>>(), [7, 1_700]);
    assert_eq!(decisions[7].source, DecisionSource::Remembered);
    assert_eq!((decisions.len(), client.counts().sent - sent), (2_500, 3));
    assert!(client.check_many(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn several_descriptors_costs_and_limits_of_their_own() {
    let client = client().await;
    let both = of("user", "alice").descriptor(Descriptor::of([("team", "blue")]).hits(4)).hits(2);
    let decision = client.check(&both).await.unwrap();
    let left: Vec<_> = decision.statuses.iter().map(|status| status.remaining).collect();
    assert_eq!((left, decision.remaining), (vec![Some(1), Some(6)], Some(1)));
    let own = Descriptor::of([("any", "thing")]).limited_to(5, Unit::Day);
    let decision = client.check(&Request::new("shop").descriptor(own)).await.unwrap();
    assert_eq!((decision.quota, decision.remaining), (Some(5), Some(4)));
}

#[tokio::test]
async fn what_never_passes_says_so_and_is_not_remembered() {
    let client = client().await;
    for request in [of("user", "mallory"), of("user", "alice").hits(4)] {
        for _ in 0..2 {
            let denied = client.check(&request).await.unwrap();
            assert_eq!(
                (denied.allowed, denied.retry_after, denied.source),
                (false, None, DecisionSource::Service)
            );
            let at_once = client.until_allowed(&request, Duration::MAX).await.unwrap();
            assert!(!at_once.allowed);
        }
    }
}

#[tokio::test]
async fn both_forms_of_errors_and_any_headers() {
    for variables in [("SLUICEGATE_ERRORS", "problem"), ("SLUICEGATE_HEADERS", "none")] {
        let client = client_with(&[variables]).await;
        client.check(&of("user", "alice").hits(3)).await.unwrap();
        let denied = client.check(&of("user", "alice")).await.unwrap();
        assert!(!denied.allowed && denied.retry_after.is_some(), "{variables:?}");
        let refused = client.check(&Request::new("")).await.unwrap_err();
        assert_eq!(refused.code(), Some("invalid_request"), "{variables:?}");
        let Error::Refused { status: 400, .. } = &refused else { panic!("{refused:?}") };
        assert!(refused.to_string().contains(" answered 400: "), "{refused}");
    }
}

#[tokio::test]
async fn many_calls_share_few_connections() {
    let client = client().await;
    let calls = (0..50).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { client.check(&of("user", &number.to_string())).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert!(call.await.unwrap().unwrap().allowed);
    }
    assert_eq!(client.counts().sent, 50);
}

#[test]
fn an_address_that_is_none_says_what_to_write() {
    for (address, why) in [
        ("127.0.0.1:8080", "there is no scheme; write `http://127.0.0.1:8080`"),
        ("ftp://host", "it is neither `http://` nor `https://`"),
        ("http://me:secret@host", "it has a user name or a password"),
        ("http://host/?a=b", "it has a query"),
        ("http://", "write `http://HOST:PORT`"),
        ("", "there is no scheme"),
    ] {
        let error = Client::new(address).unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
    for address in ["http://[::1]:8080/", "http://localhost/behind/a/proxy/"] {
        assert!(Client::new(address).is_ok(), "{address}");
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn without_tls_it_says_what_to_do() {
    let error = Client::new("https://host").unwrap_err();
    assert!(error.to_string().contains("turn on the feature `tls`"), "{error}");
}
