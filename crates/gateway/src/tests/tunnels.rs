//! Upgrades of HTTP/1.1.

use std::time::Duration;

use super::*;

const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
      Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

/// A server that switches protocols and returns what it reads.
async fn echo() -> String {
    server(|_, mut socket| async move {
        let head = read_head(&mut socket).await.unwrap().to_ascii_lowercase();
        assert!(head.contains("upgrade: websocket\r\n"), "{head}");
        assert!(head.contains("connection: upgrade\r\n"), "{head}");
        let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                        Upgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";
        socket.write_all(switched.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = socket.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    })
    .await
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways() {
    let gateway = RunningGateway::forwarding(upstream(&echo().await)).await;
    let mut client = gateway.connect().await;
    client.write_all(UPGRADE).await.unwrap();
    let head = read_head(&mut client).await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-accept: y\r\n"), "{head}");
    for message in ["one", "two"] {
        client.write_all(message.as_bytes()).await.unwrap();
        assert_eq!(read_until(&mut client, message).await.as_deref(), Some(message));
    }
    client.shutdown().await.unwrap();
    closed(&mut client).await;
}

#[tokio::test]
async fn a_tunnel_without_data_is_closed() {
    let mut config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), Vec::new(), None);
    config.upstreams = vec![upstream(&echo().await)];
    config.timeouts.idle = Duration::from_millis(100);
    let gateway = RunningGateway::start(config).await;
    let mut client = gateway.connect().await;
    client.write_all(UPGRADE).await.unwrap();
    let head = read_head(&mut client).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    closed(&mut client).await;
}

#[tokio::test]
async fn a_tunnel_is_drained() {
    let mut gateway = RunningGateway::forwarding(upstream(&echo().await)).await;
    let mut client = gateway.connect().await;
    client.write_all(UPGRADE).await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 101 "));
    drop(gateway.stop.take());
    let mut interval = tokio::time::interval(Duration::from_millis(10));
    while TcpStream::connect(gateway.address).await.is_ok() {
        interval.tick().await;
    }
    client.write_all(b"late").await.unwrap();
    assert_eq!(read_until(&mut client, "late").await.as_deref(), Some("late"));
    client.shutdown().await.unwrap();
    closed(&mut client).await;
}

#[tokio::test]
async fn an_upgrade_that_the_upstream_ignores_is_a_response() {
    let gateway = RunningGateway::forwarding(upstream(&named_server("plain").await)).await;
    let mut client = gateway.connect().await;
    client.write_all(UPGRADE).await.unwrap();
    let response = read_until(&mut client, "plain").await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn an_upgrade_to_http_2_does_not_reach_the_upstream() {
    let url = server(|_, mut socket| async move {
        let head = read_head(&mut socket).await.unwrap().to_ascii_lowercase();
        let body = if head.contains("upgrade") || head.contains("http2-settings") {
            "upgrade"
        } else {
            "plain"
        };
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        socket.write_all(response.as_bytes()).await.unwrap();
    })
    .await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let response = gateway.exchange(request).await;
    assert!(response.ends_with("plain"), "{response}");
}

#[tokio::test]
async fn a_tunnel_holds_its_slot_until_it_ends() {
    let servers = vec![echo().await.parse().unwrap()];
    let config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), servers, Some("test"));
    let rules = "domain: test\ndescriptors:\n  - key: remote_address\n    limits:\n      - \
                 { algorithm: concurrency, max: 1, lease: 1h }\n";
    let gateway = RunningGateway::with_rules(config, Some(rules.to_owned())).await;
    let mut client = gateway.connect().await;
    client.write_all(UPGRADE).await.unwrap();
    assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 101 "));
    let mut second = gateway.connect().await;
    second.write_all(UPGRADE).await.unwrap();
    assert!(read_head(&mut second).await.unwrap().starts_with("HTTP/1.1 429 "));
    drop(client);
    let ended = r#"sluicegate_gateway_requests_in_flight{route="/*"} 0"#;
    let has_ended = async || while !gateway.metrics().await.contains(ended) {};
    tokio::time::timeout(Duration::from_secs(60), has_ended()).await.unwrap();
    let mut third = gateway.connect().await;
    third.write_all(UPGRADE).await.unwrap();
    assert!(read_head(&mut third).await.unwrap().starts_with("HTTP/1.1 101 "));
    drop(third);
    tokio::time::timeout(Duration::from_secs(60), has_ended()).await.unwrap();
}
