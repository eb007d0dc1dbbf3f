//! Nobody waits for ever: not for a message, not for an answer to be read, not for a client that has gone.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod grpc_common;

use std::time::Duration;

use sluicegate_server::grpc::GrpcLimits;
use sluicegate_server::telemetry::{Event, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use grpc_common::plain::{Plain, answered};
use grpc_common::raw::{self, DATA, GOAWAY, HEADERS, PING, RESET, Raw, SHOULD_RATE_LIMIT};
use grpc_common::{Clock, server};

const SECOND: Duration = Duration::from_secs(1);
/// A client's window of nothing.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

fn bounds() -> GrpcLimits {
    GrpcLimits { timeout: 10 * SECOND, idle: 60 * SECOND, age: None, ..GrpcLimits::default() }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_is_not_waited_for() {
    let clock = Clock::frozen();
    let server = server(bounds()).await;
    let mut client = Raw::connect(server.address).await;
    client.write(&raw::headers(1, SHOULD_RATE_LIMIT, &[])).await;
    client.write(&raw::data(1, &raw::message("alice")[..7])).await;
    client.round_trip().await;
    clock.advance(9 * SECOND).await;
    assert!(client.round_trip().await.is_empty(), "not yet");
    clock.advance(2 * SECOND).await;
    assert_eq!(client.next_of(HEADERS).await.unwrap().stream, 1);
    assert_eq!(client.next_of(RESET).await.unwrap().stream, 1);
    assert_eq!(server.failures(Fault::Late), 1);
    assert!(client.call(3, "alice").await.is_some());
    drop(client);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_not_waited_for_longer_than_it_waits_itself() {
    let clock = Clock::frozen();
    let server = server(bounds()).await;
    let mut client = Plain::connect(server.address).await;
    let hasty = [("grpc-timeout", "500m")];
    let (late, _sends) = client.begin(SHOULD_RATE_LIMIT, &hasty).await.unwrap();
    client.call(SHOULD_RATE_LIMIT, raw::message("alice")).await.unwrap();
    clock.advance(SECOND).await;
    assert_eq!(answered(late).await.unwrap().status, "4");
    drop(client);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_its_answers_is_let_go() {
    let clock = Clock::frozen();
    let server = server(bounds()).await;
    let mut client = Raw::connect_with(server.address, &NO_WINDOW).await;
    client.round_trip().await;
    client.write(&raw::whole(1, "alice")).await;
    let sent = client.round_trip().await;
    assert!(sent.iter().any(|frame| frame.kind == HEADERS));
    assert!(sent.iter().all(|frame| frame.kind != DATA), "there is no window for it");
    clock.advance(10 * SECOND).await;
    client.round_trip().await;
    clock.advance(10 * SECOND).await;
    assert!(client.is_closed().await);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_reads_its_answers_late_but_in_time_may_stay() {
    let clock = Clock::frozen();
    let server = server(bounds()).await;
    let mut client = Raw::connect_with(server.address, &NO_WINDOW).await;
    client.round_trip().await;
    for stream in [1, 3, 5, 7] {
        client.write(&raw::whole(stream, "alice")).await;
        client.round_trip().await;
        clock.advance(9 * SECOND).await;
        client.round_trip().await;
        client.send(raw::WINDOW_UPDATE, 0, stream, &1_000_u32.to_be_bytes()).await;
        assert_eq!(client.next_of(DATA).await.unwrap().stream, stream);
    }
    drop(client);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_quiet_may_stay_as_long_as_it_gives_a_sign_of_life() {
    let clock = Clock::frozen();
    let server = server(bounds()).await;
    let mut client = Raw::connect(server.address).await;
    client.round_trip().await;
    for stream in [1, 3] {
        clock.advance(60 * SECOND).await;
        let ping = client.next_of(PING).await.unwrap();
        client.pong(&ping).await;
        client.round_trip().await;
        clock.advance(10 * SECOND).await;
        assert!(client.round_trip().await.is_empty());
        assert!(client.call(stream, "alice").await.is_some());
        // It has just called, so it is not asked.
        clock.advance(10 * SECOND).await;
        client.round_trip().await;
    }
    clock.advance(60 * SECOND).await;
    client.next_of(PING).await.unwrap();
    clock.advance(10 * SECOND).await;
    assert!(client.is_closed().await);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_asked_to_come_again_and_finishes_what_it_has_begun() {
    let clock = Clock::frozen();
    let age = Some(100 * SECOND);
    let long = GrpcLimits { age, age_grace: 50 * SECOND, timeout: 1_000 * SECOND, ..bounds() };
    let server = server(long).await;
    let mut client = Raw::connect(server.address).await;
    client.write(&raw::headers(1, SHOULD_RATE_LIMIT, &[])).await;
    client.round_trip().await;
    clock.advance(89 * SECOND).await;
    assert!(client.round_trip().await.is_empty(), "a tenth less, at the least");
    clock.advance(22 * SECOND).await;
    client.next_of(GOAWAY).await.unwrap();
    let ping = client.next_of(PING).await.unwrap();
    client.pong(&ping).await;
    let farewell = client.next_of(GOAWAY).await.unwrap();
    assert_eq!(farewell.payload[..4], 1_u32.to_be_bytes(), "the last call that is answered");
    client.write(&raw::last(1, &raw::message("alice"))).await;
    assert_eq!(client.next_of(DATA).await.unwrap().stream, 1);
    client.rest().await;
    // Another connection is as welcome as before.
    assert!(Raw::connect(server.address).await.call(1, "alice").await.is_some());
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_cut_off_after_its_grace() {
    let clock = Clock::frozen();
    let age = Some(100 * SECOND);
    let long = GrpcLimits { age, age_grace: 50 * SECOND, timeout: 1_000 * SECOND, ..bounds() };
    let server = server(long).await;
    let mut client = Raw::connect(server.address).await;
    client.write(&raw::headers(1, SHOULD_RATE_LIMIT, &[])).await;
    client.round_trip().await;
    clock.advance(111 * SECOND).await;
    client.next_of(GOAWAY).await.unwrap();
    clock.advance(49 * SECOND).await;
    client.round_trip().await;
    clock.advance(SECOND).await;
    assert!(client.is_closed().await);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_does_not_wait_for_ever() {
    let clock = Clock::frozen();
    let long = GrpcLimits { timeout: 1_000 * SECOND, drain: 30 * SECOND, ..bounds() };
    let server = server(long).await;
    let mut client = Raw::connect(server.address).await;
    client.write(&raw::headers(1, SHOULD_RATE_LIMIT, &[])).await;
    client.round_trip().await;
    server.stop.send(()).unwrap();
    client.next_of(GOAWAY).await.unwrap();
    clock.advance(29 * SECOND).await;
    client.round_trip().await;
    assert!(!server.ended.is_finished());
    clock.advance(SECOND).await;
    assert!(client.is_closed().await);
    server.ended.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_does_not_wait_for_who_has_said_nothing() {
    let server = server(bounds()).await;
    let _silent = TcpStream::connect(server.address).await.unwrap();
    while server.count(Event::ConnectionOpened) == 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    server.end().await;
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn frames_and_header_blocks_must_end_in_time() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let begun = [preface.clone(), raw::frame(raw::SETTINGS, 0, 0, &[])].concat();
    let headers = raw::headers(1, SHOULD_RATE_LIMIT, &[]);
    let open = raw::frame(HEADERS, 0, 1, &headers[9..]);
    for bytes in [preface, [begun.clone(), open].concat(), [begun, headers[..20].to_vec()].concat()]
    {
        let clock = Clock::frozen();
        let server = server(bounds()).await;
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(&bytes).await.unwrap();
        // The server's SETTINGS: it is past the preface.
        client.read_exact(&mut [0; 9]).await.unwrap();
        settle().await;
        for _ in 0..2 {
            clock.advance(5 * SECOND).await;
            settle().await;
        }
        assert_eq!(server.count(Event::ConnectionClosed), 0, "{} bytes", bytes.len());
        clock.advance(5 * SECOND).await;
        settle().await;
        assert_eq!(server.count(Event::ConnectionClosed), 1, "{} bytes", bytes.len());
        server.end().await;
    }
}

/// All tasks have done what they can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
