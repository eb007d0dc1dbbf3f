//! Clients that are slow, silent or send too much.

use std::time::Duration;

use sluicegate_config::gateway::{ClientTimeouts, GatewayConfig};
use tokio::io::AsyncWriteExt;

use crate::support::{
    Running, Upstream, config, exchange, is_closed, read_to_end, response, within,
};

/// Short times, so that a test waits for them.
fn hasty(upstream: &Upstream) -> GatewayConfig {
    let time = Duration::from_millis(200);
    GatewayConfig {
        timeouts: ClientTimeouts { header: time, body: time, idle: time, tls_handshake: time },
        body_bytes_max: Some(1_000),
        header_bytes_max: 8 << 10,
        ..config(upstream)
    }
}

#[tokio::test]
async fn clients_without_a_complete_head_are_closed() {
    let upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    for bytes in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: a\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n"] {
        let mut socket = gateway.connect().await;
        socket.write_all(bytes.as_bytes()).await.unwrap();
        assert!(is_closed(&mut socket).await, "{bytes}");
    }
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    let mut socket = gateway.connect().await;
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(response(&mut socket).await.starts_with("HTTP/1.1 200"));
    assert!(is_closed(&mut socket).await);
}

#[tokio::test]
async fn a_head_that_is_too_long_gets_431() {
    let upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    let long = "x".repeat(100_000);
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {long}\r\n\r\n");
    let refused = exchange(&mut gateway.connect().await, &head).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
}

#[tokio::test]
async fn a_body_that_is_too_large_gets_413() {
    let upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    let post = "POST / HTTP/1.1\r\nhost: a\r\n";
    // By its length at once, without a byte of it.
    let known = format!("{post}content-length: 1001\r\n\r\n");
    let refused = exchange(&mut gateway.connect().await, &known).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    assert!(refused.contains("connection: close\r\n") && refused.contains("body_too_large"));
    // By counting, while it streams.
    let chunk = format!("258\r\n{}\r\n", "x".repeat(600));
    let counted = format!("{post}transfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n");
    let refused = exchange(&mut gateway.connect().await, &counted).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    assert!(refused.contains("connection: close\r\n"), "{refused}");
    let fits =
        format!("{post}content-length: 1000\r\nconnection: close\r\n\r\n{}", "x".repeat(1_000));
    let answered = exchange(&mut gateway.connect().await, &fits).await.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
}

#[tokio::test]
async fn a_client_that_still_sends_its_body_receives_the_refusal() {
    let upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    let mut socket = gateway.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    // The response is on its way; a reset would discard it.
    socket.write_all(&vec![b'x'; 1_000_000]).await.unwrap();
    let refused = read_to_end(&mut socket).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
}

#[tokio::test]
async fn a_body_that_stalls_gets_408() {
    let mut upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    let mut socket = gateway.connect().await;
    let begun = "POST /hold HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf";
    socket.write_all(begun.as_bytes()).await.unwrap();
    upstream.arrival().await;
    let refused = read_to_end(&mut socket).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 408"), "{refused}");
    assert!(refused.contains("connection: close\r\n") && refused.contains("body_timeout"));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut() {
    let mut upstream = Upstream::start().await;
    let gateway = Running::start(&hasty(&upstream)).await;
    let mut socket = gateway.connect().await;
    socket.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    // The connection of the metrics page is one.
    let open = "sluicegate_connections_open";
    upstream.arrival().await;
    assert_eq!(gateway.metric(open).await, 2);
    within(async { while gateway.metric(open).await > 1 {} }).await;
    drop(socket);
}
