//! The end of a process: drain, and handover to the next one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use crate::support::{
    Running, Upstream, config, get, is_closed, read_to_end, request, response, temp_path, within,
};

#[tokio::test]
async fn requests_in_flight_are_answered_and_idle_connections_closed() {
    let mut upstream = Upstream::start().await;
    let mut gateway = Running::start(&config(&upstream)).await;
    let mut idle = gateway.connect().await;
    idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(response(&mut idle).await.starts_with("HTTP/1.1 200"));
    upstream.arrival().await;
    let mut busy = gateway.connect().await;
    busy.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    upstream.arrival().await;
    let address = gateway.address();
    gateway.stop();
    assert!(is_closed(&mut idle).await);
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
    upstream.held.add_permits(1);
    let answered = read_to_end(&mut busy).await.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    assert!(answered.contains("connection: close\r\n"), "{answered}");
    gateway.end().await;
}

#[tokio::test]
async fn a_connection_opened_just_before_the_end_gets_its_first_response() {
    let mut upstream = Upstream::start().await;
    let mut gateway = Running::start(&config(&upstream)).await;
    let mut busy = gateway.connect().await;
    busy.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    upstream.arrival().await;
    let mut new = gateway.connect().await;
    gateway.stop();
    // The listener is closed, so the new connection was accepted before.
    within(async { while TcpStream::connect(gateway.address()).await.is_ok() {} }).await;
    new.write_all(request("/", "").as_bytes()).await.unwrap();
    let answered = read_to_end(&mut new).await.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    upstream.held.add_permits(1);
    gateway.end().await;
}

#[tokio::test]
async fn the_second_deadline_cuts_requests_in_flight() {
    let mut upstream = Upstream::start().await;
    let mut gateway = Running::start(&config(&upstream)).await;
    let mut busy = gateway.connect().await;
    busy.write_all(b"GET /hold HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    upstream.arrival().await;
    gateway.stop();
    gateway.end().await;
    assert!(is_closed(&mut busy).await);
}

/// Opens connections, one after the other, until it is stopped; the number of responses.
async fn hammer(
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
) -> io::Result<()> {
    while !stop.load(Relaxed) {
        let response = get(address, "/", "").await?;
        if !response.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(response));
        }
        answered.fetch_add(1, Relaxed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_refuses_no_connection() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    let path = temp_path("handover");
    config.handover = Some(path.clone());
    let mut gateway = Running::start(&config).await;
    let (address, admin) = (gateway.address(), gateway.admin());
    config.listeners[0].address = address;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> =
        (0..8).map(|_| tokio::spawn(hammer(address, stop.clone(), answered.clone()))).collect();
    for _ in 0..5 {
        let next = answered.load(Relaxed) + 100;
        within(async {
            while answered.load(Relaxed) < next {
                tokio::task::yield_now().await
            }
        })
        .await;
        within(async {
            while !path.exists() {
                tokio::task::yield_now().await
            }
        })
        .await;
        let successor = Running::start_with(&config, admin).await.unwrap();
        assert_eq!(successor.addresses, [address]);
        // The first ends by itself.
        gateway.end().await;
        gateway = successor;
    }
    stop.store(true, Relaxed);
    for client in clients {
        within(client).await.unwrap().unwrap();
    }
    gateway.stop();
    gateway.end().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_successor_that_fails_changes_nothing() {
    let upstream = Upstream::start().await;
    let mut config = config(&upstream);
    let path = temp_path("failed-handover");
    config.handover = Some(path.clone());
    let mut gateway = Running::start(&config).await;
    within(async {
        while !path.exists() {
            tokio::task::yield_now().await
        }
    })
    .await;
    for _ in 0..2 {
        // It takes the sockets, and ends before it is ready.
        drop(UnixStream::connect(&path).await.unwrap());
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200"));
    }
    gateway.stop();
    gateway.end().await;
}
