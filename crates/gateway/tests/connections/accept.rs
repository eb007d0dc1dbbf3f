//! Before the first byte of a request.

use std::fs;
use std::time::Duration;

use sluicegate_config::gateway::listener::ListenerConfig;
use sluicegate_config::gateway::{AccessConfig, ConnectionLimits, NetworkList};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;
use sluicegate_rules::network::Network;
use tokio::io::AsyncWriteExt;

use crate::support::{
    Running, Upstream, any_port, config, exchange, get, is_closed, request, response, temp_path,
    within,
};

fn local() -> Vec<Network> {
    vec!["127.0.0.0/8".parse().unwrap()]
}

fn listed(networks: &[&str]) -> NetworkList {
    NetworkList {
        networks: networks.iter().map(|one| one.parse().unwrap()).collect(),
        files: Vec::new(),
    }
}

#[tokio::test]
async fn every_listener_serves() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.listeners.push(ListenerConfig::new(any_port()));
    config.listeners.push(ListenerConfig::new("[::1]:0".parse().unwrap()));
    let gateway = Running::start(&config).await;
    assert_eq!(gateway.addresses.len(), 3);
    assert!(gateway.addresses.iter().all(|address| address.port() != 0));
    for address in &gateway.addresses {
        let response = get(*address, "/x", "").await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{address}: {response}");
    }
}

#[tokio::test]
async fn a_proxy_header_names_the_client_and_is_required_of_listed_peers() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.timeouts.header = Duration::from_millis(200);
    config.listeners[0].proxy_protocol = local();
    let gateway = Running::start(&config).await;
    let mut socket = gateway.connect().await;
    let line = "PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\r\n";
    let seen = exchange(&mut socket, &format!("{line}{}", request("/", ""))).await.unwrap();
    assert!(seen.contains("x-forwarded-for: 192.0.2.7\r\n"), "{seen}");
    // Without a header, with an incomplete one, and without a byte.
    for bytes in ["GET / HTTP/1.1\r\nhost: a\r\n\r\n", "PROXY TCP4 192.0.2.7", ""] {
        let mut socket = gateway.connect().await;
        socket.write_all(bytes.as_bytes()).await.unwrap();
        assert!(is_closed(&mut socket).await, "{bytes}");
    }
    assert_eq!(gateway.rejected("proxy_header").await, 3);
}

#[tokio::test]
async fn other_peers_cannot_send_a_proxy_header() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.listeners[0].proxy_protocol = vec!["192.0.2.0/24".parse().unwrap()];
    let gateway = Running::start(&config).await;
    let mut socket = gateway.connect().await;
    let line = "PROXY TCP4 192.0.2.7 198.51.100.1 5000 80\r\n";
    let seen = exchange(&mut socket, &format!("{line}{}", request("/", ""))).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 400"), "{seen}");
    assert!(gateway.get("/").await.contains("x-forwarded-for: 127.0.0.1\r\n"));
}

#[tokio::test]
async fn open_connections_of_an_address_are_limited_across_workers() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.connections = ConnectionLimits { open: Some(4), ..ConnectionLimits::default() };
    let gateway = Running::start(&config).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut socket = gateway.connect().await;
        socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert!(response(&mut socket).await.starts_with("HTTP/1.1 200"));
        open.push(socket);
    }
    for _ in 0..8 {
        assert!(is_closed(&mut gateway.connect().await).await);
    }
    assert_eq!(gateway.rejected("open").await, 8);
    // One ends: the gateway has closed it when the client reads the end.
    let mut last = open.pop().unwrap();
    exchange(&mut last, &request("/", "")).await.unwrap();
    drop(last);
    while gateway.metric("sluicegate_connections_open").await > 4 {
        tokio::task::yield_now().await;
    }
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn new_connections_of_an_address_are_limited() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    let rate = Rate::new(3, Span::from_secs(3_600)).unwrap();
    config.connections = ConnectionLimits { rate: Some(rate), ..ConnectionLimits::default() };
    config.listeners[0].proxy_protocol = vec!["127.0.0.2/32".parse().unwrap()];
    let gateway = Running::start(&config).await;
    for _ in 0..3 {
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
    }
    assert!(is_closed(&mut gateway.connect().await).await);
    assert_eq!(gateway.rejected("rate").await, 1);
}

#[tokio::test]
async fn the_client_of_a_proxy_header_is_limited_and_not_the_proxy() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    let rate = Rate::new(1, Span::from_secs(3_600)).unwrap();
    config.connections = ConnectionLimits { rate: Some(rate), ..ConnectionLimits::default() };
    config.listeners[0].proxy_protocol = local();
    config.access.deny = listed(&["198.51.100.0/24"]);
    let gateway = Running::start(&config).await;
    let get = async |client: &str| {
        let line = format!("PROXY TCP4 {client} 10.0.0.1 5000 80\r\n");
        let mut socket = gateway.connect().await;
        exchange(&mut socket, &format!("{line}{}", request("/", ""))).await
    };
    for client in ["192.0.2.7", "192.0.2.8"] {
        assert!(get(client).await.unwrap().starts_with("HTTP/1.1 200"));
        assert!(get(client).await.is_err(), "the second connection");
    }
    assert!(get("198.51.100.1").await.is_err());
    assert_eq!((gateway.rejected("rate").await, gateway.rejected("denied").await), (2, 1));
}

#[tokio::test]
async fn denied_networks_are_closed_and_allowed_ones_exempt_from_limits() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.connections = ConnectionLimits { open: Some(1), ..ConnectionLimits::default() };
    config.access = AccessConfig { allow: listed(&["127.0.0.1"]), deny: NetworkList::default() };
    let gateway = Running::start(&config).await;
    let _open = [gateway.connect().await, gateway.connect().await];
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
    config.access = AccessConfig { deny: listed(&["127.0.0.0/8"]), ..AccessConfig::default() };
    let gateway = Running::start(&config).await;
    assert!(is_closed(&mut gateway.connect().await).await);
    assert_eq!(gateway.rejected("denied").await, 1);
}

#[tokio::test]
async fn a_changed_access_file_applies_to_new_connections() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    let path = temp_path("deny");
    fs::write(&path, "192.0.2.0/24\n").unwrap();
    config.access.deny.files = vec![path.clone()];
    let gateway = Running::start(&config).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
    fs::write(&path, "127.0.0.1 # now\n").unwrap();
    within(async { while get(gateway.address(), "/", "").await.is_ok() {} }).await;
    assert!(gateway.rejected("denied").await >= 1);
    fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn an_invalid_access_file_prevents_the_start() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    let path = temp_path("invalid");
    fs::write(&path, "everyone\n").unwrap();
    config.access.deny.files = vec![path.clone()];
    let error = Running::start_with(&config, any_port()).await.err().unwrap();
    assert!(error.contains(":1: `everyone` is not a network"), "{error}");
    fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn clients_behind_trusted_proxies_are_denied_by_request() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    config.trusted_proxies = local();
    config.access.deny = listed(&["192.0.2.0/24"]);
    let gateway = Running::start(&config).await;
    let of = async |client: &str| {
        let header = format!("x-forwarded-for: {client}\r\n");
        get(gateway.address(), "/", &header).await.unwrap()
    };
    let denied = of("192.0.2.7").await;
    assert!(denied.starts_with("HTTP/1.1 403") && denied.contains("forbidden"), "{denied}");
    assert!(of("198.51.100.7").await.starts_with("HTTP/1.1 200"));
}
