//! Servers that fail: retries, time-outs, health.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sluicegate_config::gateway::upstream::{Ejection, HealthCheck, UpstreamTimeouts};
use tokio::sync::Notify;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The URL of a port on which nothing listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A server that answers the first request of a connection, and closes it at the second. Counts the
/// requests that it has read.
async fn closing_server(requests: Arc<AtomicUsize>) -> String {
    server(move |_, mut socket| {
        let requests = requests.clone();
        async move {
            if read_head(&mut socket).await.is_some() {
                requests.fetch_add(1, Relaxed);
                socket.write_all(OK).await.unwrap();
            }
            if read_head(&mut socket).await.is_some() {
                requests.fetch_add(1, Relaxed);
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_get_on_a_dead_connection_is_sent_again_and_a_post_is_not() {
    let requests = Arc::new(AtomicUsize::new(0));
    let gateway =
        RunningGateway::forwarding(upstream(&closing_server(requests.clone()).await)).await;
    assert!(gateway.get("/1").await.starts_with("HTTP/1.1 200 "));
    let again = gateway.get("/2").await;
    assert!(again.starts_with("HTTP/1.1 200 "), "{again}");
    assert_eq!(requests.load(Relaxed), 3, "the second one was sent twice");
    let post = "POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let response = gateway.exchange(post).await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    assert!(response.to_ascii_lowercase().contains("retry-after: 1"), "{response}");
    assert_eq!(requests.load(Relaxed), 4, "the POST was sent once");
}

#[tokio::test]
async fn the_next_server_is_tried_and_an_unreachable_one_ejected() {
    let (dead, alive) = (nowhere().await, named_server("alive").await);
    let config = UpstreamConfig {
        eject: Ejection { failures: 2, duration: Duration::from_secs(600) },
        ..upstreams(&[&dead, &alive])
    };
    let gateway = RunningGateway::forwarding(config).await;
    for _ in 0..8 {
        let response = gateway.get("/").await;
        assert!(response.ends_with("alive"), "{response}");
    }
    let page = gateway.metrics().await;
    let health =
        |url: &str| format!("sluicegate_upstream_healthy{{upstream=\"app\",server=\"{url}\"}}");
    assert!(page.contains(&format!("{} 0\n", health(&dead))), "{page}");
    assert!(page.contains(&format!("{} 1\n", health(&alive))), "{page}");
}

#[tokio::test]
async fn the_last_server_is_not_ejected() {
    let dead = nowhere().await;
    let config = UpstreamConfig {
        eject: Ejection { failures: 1, duration: Duration::from_secs(600) },
        ..upstream(&dead)
    };
    let gateway = RunningGateway::forwarding(config).await;
    for _ in 0..3 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        assert!(response.contains(r#""code":"upstream_failed""#), "{response}");
    }
    let page = gateway.metrics().await;
    assert!(page.contains(&format!("server=\"{dead}\"}} 1\n")), "{page}");
}

#[tokio::test]
async fn a_server_that_fails_its_checks_gets_no_requests() {
    let (checked, checks) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (seen, notify) = (checks.clone(), checked.clone());
    let sick = server(move |_, mut socket| {
        let (seen, notify) = (seen.clone(), notify.clone());
        async move {
            let head = read_head(&mut socket).await.unwrap_or_default();
            assert!(head.starts_with("GET /health "), "{head}");
            let response = "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n";
            let _ = socket.write_all(response.as_bytes()).await;
            closed(&mut socket).await;
            seen.fetch_add(1, Relaxed);
            notify.notify_one();
        }
    })
    .await;
    let well = named_server("well").await;
    let health = HealthCheck {
        path: "/health".to_owned(),
        every: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        unhealthy_after: 2,
        ..HealthCheck::default()
    };
    let config = UpstreamConfig { health: Some(health), ..upstreams(&[&sick, &well]) };
    let gateway = RunningGateway::forwarding(config).await;
    // The outcome of the second check is known when the third begins.
    while checks.load(Relaxed) < 3 {
        checked.notified().await;
    }
    for _ in 0..6 {
        assert!(gateway.get("/").await.ends_with("well"));
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_504() {
    let hanging = server(|_, mut socket| async move { closed(&mut socket).await }).await;
    let timeouts =
        UpstreamTimeouts { first_byte: Duration::from_millis(50), ..UpstreamTimeouts::default() };
    let gateway =
        RunningGateway::forwarding(UpstreamConfig { timeouts, ..upstream(&hanging) }).await;
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    assert!(response.to_ascii_lowercase().contains("retry-after: 1"), "{response}");
    assert!(response.contains("upstream_timeout"), "{response}");
}

#[tokio::test]
async fn a_slow_upload_takes_no_time_of_the_server() {
    let arrived = Arc::new(Notify::new());
    let half = arrived.clone();
    let url = server(move |_, mut socket| {
        let half = half.clone();
        async move {
            let head = read_head(&mut socket).await.unwrap_or_default();
            if head.starts_with("POST ") {
                read_until(&mut socket, "half").await;
                half.notify_one();
                read_until(&mut socket, "rest").await;
                socket.write_all(OK).await.unwrap();
            }
            closed(&mut socket).await;
        }
    })
    .await;
    let timeouts =
        UpstreamTimeouts { first_byte: Duration::from_millis(50), ..UpstreamTimeouts::default() };
    let gateway = RunningGateway::forwarding(UpstreamConfig { timeouts, ..upstream(&url) }).await;
    let mut client = gateway.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhalf";
    client.write_all(head.as_bytes()).await.unwrap();
    arrived.notified().await;
    // Meanwhile the time passes twice for other requests.
    for _ in 0..2 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    }
    client.write_all(b"rest").await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("ok"), "{response}");
}

#[tokio::test]
async fn a_response_that_exceeds_the_total_time_is_cut() {
    let stalling = server(|_, mut socket| async move {
        read_head(&mut socket).await;
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
        closed(&mut socket).await;
    })
    .await;
    let timeouts =
        UpstreamTimeouts { total: Some(Duration::from_millis(100)), ..UpstreamTimeouts::default() };
    let gateway =
        RunningGateway::forwarding(UpstreamConfig { timeouts, ..upstream(&stalling) }).await;
    let response = gateway.get("/").await;
    assert!(response.ends_with("half"), "{response}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_another_request() {
    let (done, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let notify = (done.clone(), end.clone());
    let url = server(move |_, mut socket| {
        let (done, end) = notify.clone();
        async move {
            read_head(&mut socket).await;
            socket.write_all(OK).await.unwrap();
            done.notify_one();
            closed(&mut socket).await;
            end.notify_one();
        }
    })
    .await;
    let timeouts =
        UpstreamTimeouts { idle: Duration::from_millis(50), ..UpstreamTimeouts::default() };
    let gateway = RunningGateway::forwarding(UpstreamConfig { timeouts, ..upstream(&url) }).await;
    assert!(gateway.get("/").await.ends_with("ok"));
    done.notified().await;
    end.notified().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_request() {
    let (begun, cancelled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let notify = (begun.clone(), cancelled.clone());
    let url = server(move |_, mut socket| {
        let (begun, cancelled) = notify.clone();
        async move {
            read_head(&mut socket).await;
            begun.notify_one();
            closed(&mut socket).await;
            cancelled.notify_one();
        }
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let mut client = gateway.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    begun.notified().await;
    drop(client);
    cancelled.notified().await;
}
