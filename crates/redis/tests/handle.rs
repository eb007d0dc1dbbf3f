//! The handle: reasons of missing connections, the end of a process, outages as events.

#[cfg(feature = "tracing")]
use std::io;
#[cfg(feature = "tracing")]
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::limit::FixedWindow;
use sluicegate::{Consistency, Limiter};
use sluicegate_redis::{LinkError, LinkOptions, Redis};
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

/// The lines of a subscriber.
#[cfg(feature = "tracing")]
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

#[cfg(feature = "tracing")]
impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tracing")]
impl Log {
    /// Waits for a number of lines.
    async fn lines(&self, count: usize) -> Vec<String> {
        let read = async {
            loop {
                let text = String::from_utf8(self.0.lock().expect("a log").clone()).expect("text");
                if text.lines().count() >= count {
                    return text.lines().map(str::to_owned).collect();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, read).await.expect("no line in time")
    }
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
    let _subscriber = tracing::subscriber::set_default(subscriber);
    let server = Single::start();
    let redis = connect(&server).await;
    let of_redis = |line: &str| line.contains("sluicegate_redis");
    let lines = log.lines(1).await;
    assert!(of_redis(&lines[0]) && lines[0].contains("INFO"), "{lines:?}");
    server.kill();
    let lines = log.lines(2).await;
    assert!(lines[1].contains("WARN") && lines[1].contains("the store cannot be reached"));
    assert!(lines[1].contains("error=") && lines[1].contains("on_store_failure"), "{lines:?}");
    server.restart();
    let lines = log.lines(3).await;
    assert!(lines[2].contains("INFO") && lines[2].contains("the store answers"), "{lines:?}");
    drop(redis);
}
