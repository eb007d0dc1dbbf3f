//! The handle: reasons of missing connections, the end of a process, outages as events.

use std::time::Duration;

use sluicegate::limit::FixedWindow;
use sluicegate::{Consistency, Limiter};
use sluicegate_redis::{LinkError, LinkOptions, Redis};
#[cfg(feature = "tracing")]
use sluicegate_testkit::log::{Log, subscribe};
use sluicegate_testkit::redis::{Options, Single};

const LONG: Duration = Duration::from_secs(20);

async fn connect(server: &Single) -> Redis {
    let link = LinkOptions { timeout: LONG, ..LinkOptions::default() };
    let redis = Redis::builder(server.url()).link(link).connect().expect("a handle");
    redis.ready(LONG).await.expect("a connection");
    redis
}

#[tokio::test]
async fn a_wrong_password_is_an_error_at_once() {
    let password = Some("right".to_owned());
    let server = Single::with(Options { password, ..Options::default() });
    let url = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    let redis = Redis::connect(&url).expect("a handle");
    let error = redis.ready(LONG).await.expect_err("a wrong password");
    assert!(matches!(error, LinkError::AccessDenied(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("password: ") && text.contains("WRONGPASS"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_missing_server_is_an_error_with_the_reason() {
    // Nothing listens on port 1.
    let redis = Redis::connect("redis://127.0.0.1:1").expect("a handle");
    let error = redis.ready(Duration::from_millis(200)).await.expect_err("no server");
    assert!(matches!(error, LinkError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn closing_releases_the_leases_of_all_limiters() {
    let server = Single::start();
    let redis = connect(&server).await;
    let builder = |name: &str| {
        let limiter = Limiter::builder().name(name).limit(FixedWindow::per_year(100_000));
        limiter.consistency(Consistency::Leased)
    };
    let limiters = ["one", "two"].map(|name| builder(name).on(&redis).expect("a limiter"));
    for limiter in &limiters {
        for _ in 0..100 {
            assert!(limiter.hit_async("alice").await.expect("an answer").is_allowed());
        }
    }
    redis.close().await;
    let other = connect(&server).await;
    for (name, limiter) in ["one", "two"].into_iter().zip(&limiters) {
        let engine = limiter.engine().expect("on a backend");
        let unspent: Vec<u64> =
            engine.backend().leases(9).into_iter().map(|lease| lease.unspent).collect();
        assert!(unspent.iter().all(|tokens| *tokens == 0), "{unspent:?}");
        let strict = Limiter::builder().name(name).limit(FixedWindow::per_year(100_000));
        let seen = strict.on(&other).expect("a limiter").of("alice").peek_async().await;
        assert_eq!(seen.expect("an answer").remaining, Some(99_900), "{name}");
    }
}

/// Waits for a number of lines.
#[cfg(feature = "tracing")]
async fn lines(log: &Log, count: usize) -> Vec<String> {
    let read = async {
        loop {
            let text = log.text();
            if text.lines().count() >= count {
                return text.lines().map(str::to_owned).collect();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, read).await.expect("no line in time")
}

#[cfg(feature = "tracing")]
#[tokio::test]
async fn an_outage_is_an_event_when_it_begins_and_when_it_ends() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_ansi(false)
        .finish();
    let _subscriber = subscribe(subscriber);
    let server = Single::start();
    let redis = connect(&server).await;
    let of_redis = |line: &str| line.contains("sluicegate_redis");
    let seen = lines(&log, 1).await;
    assert!(of_redis(&seen[0]) && seen[0].contains("INFO"), "{seen:?}");
    server.kill();
    let seen = lines(&log, 2).await;
    assert!(seen[1].contains("WARN") && seen[1].contains("the store cannot be reached"));
    assert!(seen[1].contains("error=") && seen[1].contains("on_store_failure"), "{seen:?}");
    server.restart();
    let seen = lines(&log, 3).await;
    assert!(seen[2].contains("INFO") && seen[2].contains("the store answers"), "{seen:?}");
    drop(redis);
}
