//! Tests of names that are resolved again, and of the time for a response.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_config::gateway::upstream::UpstreamConfig;
use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::send_error::SendError;
use super::server::tests::server;
use super::*;
use crate::client_body::tests::Pieces;
use crate::client_body::{BodyLimits, ClientBody};

/// A DNS server that answers questions for A records with these addresses and a lifetime of one
/// second; without addresses, with SERVFAIL.
async fn dns(addresses: Arc<Mutex<Vec<Ipv4Addr>>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut query = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut query).await {
            // The question ends behind the root label, with two bytes of type and class each.
            let name_end = 12 + query[12..length].iter().position(|byte| *byte == 0).unwrap();
            let question = &query[12..name_end + 5];
            let is_a = query[name_end + 2] == 1;
            let addresses = addresses.lock().clone();
            let answers = if is_a { addresses.as_slice() } else { &[] };
            let code = if addresses.is_empty() { 2 } else { 0 };
            let mut response = query[..2].to_vec();
            response.extend([0x81, 0x80 | code, 0, 1, 0, answers.len() as u8, 0, 0, 0, 0]);
            response.extend_from_slice(question);
            for address in answers {
                response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
                response.extend(address.octets());
            }
            socket.send_to(&response, peer).await.unwrap();
        }
    });
    address
}

async fn addresses_become(upstream: &Upstream, expected: &[Ipv4Addr]) {
    let expected: Vec<IpAddr> = expected.iter().copied().map(IpAddr::V4).collect();
    let mut interval = tokio::time::interval(Duration::from_millis(10));
    loop {
        let servers = upstream.servers();
        let addresses = servers.iter().filter_map(|server| Some(server.address()?.ip()));
        if addresses.collect::<Vec<_>>() == expected {
            return;
        }
        interval.tick().await;
    }
}

#[tokio::test]
async fn a_name_is_resolved_again_when_its_records_expire() {
    let [one, two, three] = [1, 2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let records = Arc::new(Mutex::new(vec![two, one]));
    let config = UpstreamConfig {
        resolvers: vec![dns(records.clone()).await],
        ..UpstreamConfig::new("app", vec!["http://app.test:80".parse().unwrap()])
    };
    let upstream = Upstream::new(&config, 1, None).unwrap();
    addresses_become(&upstream, &[one, two]).await;
    let kept = upstream.servers()[1].clone();
    *records.lock() = vec![two, three];
    addresses_become(&upstream, &[two, three]).await;
    assert!(Arc::ptr_eq(&kept, &upstream.servers()[0]), "an address that stays keeps its state");

    // A failure keeps the last addresses.
    records.lock().clear();
    let resolver = Resolver::new(&config.resolvers).unwrap();
    assert!(resolver.resolve("app.test").await.is_err());
    addresses_become(&upstream, &[two, three]).await;
}

#[tokio::test]
async fn servers_that_a_reload_keeps_have_their_state() {
    let servers = |urls: &[&str]| urls.iter().map(|url| url.parse().unwrap()).collect();
    let config = UpstreamConfig::new("app", servers(&["http://10.0.0.1", "http://10.0.0.2"]));
    let before = Upstream::new(&config, 1, None).unwrap();
    before.servers()[1].set_down(true);
    let same = Upstream::new(&config, 1, Some(&before)).unwrap();
    assert!(Arc::ptr_eq(&before, &same));

    let other = servers(&["http://10.0.0.2", "http://10.0.0.3"]);
    let config = UpstreamConfig { servers: other, ..config };
    let after = Upstream::new(&config, 1, Some(&before)).unwrap().servers();
    assert!(Arc::ptr_eq(&after[0], &before.servers()[1]));
    assert!(!after[0].is_usable() && after[1].is_usable());

    let config = UpstreamConfig { idle_max: 1, ..config };
    let anew = Upstream::new(&config, 1, Some(&before)).unwrap().servers();
    assert!(anew[0].is_usable(), "other options, other servers");
}

/// Sends a body with these pieces (delay and bytes) to a server that answers after some seconds,
/// and has 60 for its first byte.
async fn upload(pieces: &[(u64, usize)], answer_after: u64) -> Result<(), SendError> {
    let limits = BodyLimits { bytes_max: 100, timeout: Duration::from_secs(600) };
    let mut body = ClientBody::new(Pieces::new(pieces), limits);
    let outcome = body.outcome();
    let sent = async {
        while poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await.is_some() {}
        sleep(Duration::from_secs(answer_after)).await;
        Ok(())
    };
    server("http://10.0.0.1").head_in_time(sent, Some(outcome), None).await
}

#[tokio::test(start_paused = true)]
async fn the_time_for_the_first_byte_begins_at_the_end_of_the_request() {
    assert!(upload(&[(0, 1), (200, 1), (59, 1)], 59).await.is_ok());
    let late = upload(&[(0, 1), (200, 1)], 61).await;
    assert!(matches!(late, Err(SendError::Timeout)), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_take_the_body_is_not_waited_for() {
    let limits = BodyLimits { bytes_max: 100, timeout: Duration::from_secs(600) };
    let body = ClientBody::new(Pieces::new(&[(0, 1)]), limits);
    let begun = Instant::now();
    let unread = std::future::pending::<Result<(), SendError>>();
    let sent = server("http://10.0.0.1").head_in_time(unread, Some(body.outcome()), None).await;
    assert!(matches!(sent, Err(SendError::Timeout)), "{sent:?}");
    assert_eq!(begun.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_total_time_includes_the_upload() {
    let limits = BodyLimits { bytes_max: 100, timeout: Duration::from_secs(600) };
    let body = ClientBody::new(Pieces::new(&[]), limits);
    let begun = Instant::now();
    let deadline = Some(begun + Duration::from_secs(20));
    let unread = std::future::pending::<Result<(), SendError>>();
    let server = server("http://10.0.0.1");
    let sent = server.head_in_time(unread, Some(body.outcome()), deadline).await;
    assert!(matches!(sent, Err(SendError::Timeout)), "{sent:?}");
    assert_eq!(begun.elapsed().as_secs(), 20);
}
