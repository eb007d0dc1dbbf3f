//! Whoever asks for too much is told, and nobody else suffers.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod grpc_common;

use sluicegate_server::grpc::GrpcLimits;
use sluicegate_server::telemetry::{Endpoint, Event, Fault};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use grpc_common::plain::{Plain, answered};
use grpc_common::raw::{self, DATA, GOAWAY, HEADERS, RESET, Raw, SHOULD_RATE_LIMIT};
use grpc_common::{server, server_of_budget};

const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once() {
    let server = server(GrpcLimits { connections: 1, ..GrpcLimits::default() }).await;
    let mut first = Raw::connect(server.address).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    let mut heard = Vec::new();
    let _ = second.read_to_end(&mut heard).await;
    assert!(heard.is_empty(), "not a word: {heard:?}");
    assert_eq!(server.count(Event::ConnectionRefused), 1);
    assert!(first.call(1, "alice").await.is_some(), "the first does not notice");
    assert_eq!(server.count(Event::ConnectionOpened), 1);
    drop(first);
    server.end().await;
}

#[tokio::test]
async fn one_waiting_call_too_many_is_told_of_the_overload() {
    let server = server(GrpcLimits { in_flight: 1, ..GrpcLimits::default() }).await;
    let mut client = Plain::connect(server.address).await;
    let (first, mut first_sends) = client.begin(SHOULD_RATE_LIMIT, &[]).await.unwrap();
    let (second, _sends) = client.begin(SHOULD_RATE_LIMIT, &[]).await.unwrap();
    let second = answered(second).await.unwrap();
    assert_eq!(second.status, "14", "{second:?}");
    assert_eq!(server.failures(Fault::Overload), 1);
    // A call whose message is there need not wait.
    let third = client.call(SHOULD_RATE_LIMIT, raw::message("alice")).await.unwrap();
    assert_eq!(third.status, "0", "{third:?}");
    first_sends.send_data(raw::message("alice").into(), true).unwrap();
    assert_eq!(answered(first).await.unwrap().status, "0");
    // Its seat is free again.
    let (fourth, mut sends) = client.begin(SHOULD_RATE_LIMIT, &[]).await.unwrap();
    client.call(SHOULD_RATE_LIMIT, raw::message("bob")).await.unwrap();
    sends.send_data(raw::message("alice").into(), true).unwrap();
    assert_eq!(answered(fourth).await.unwrap().status, "0");
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn unfinished_messages_together_are_not_longer_than_they_may_be() {
    // Half of it for messages: one of them.
    let server = server_of_budget(GrpcLimits::default(), 192 << 10).await;
    let mut client = Plain::connect(server.address).await;
    let part = &raw::framed(0, &[0; 50_000])[..40_000];
    let (first, mut first_sends) = client.begin(SHOULD_RATE_LIMIT, &[]).await.unwrap();
    first_sends.send_data(part.to_vec().into(), false).unwrap();
    let (second, mut sends) = client.begin(SHOULD_RATE_LIMIT, &[]).await.unwrap();
    sends.send_data(part.to_vec().into(), false).unwrap();
    assert_eq!(answered(second).await.unwrap().status, "8");
    assert_eq!(server.failures(Fault::Overload), 1);
    assert!(server.service.memory().refusals() > 0);
    // The first gives its room back when it goes.
    first_sends.send_reset(h2::Reason::CANCEL);
    drop(first);
    let fine = client.call(SHOULD_RATE_LIMIT, raw::message("alice")).await.unwrap();
    assert_eq!(fine.status, "0");
    let (third, mut sends) = client.begin(SHOULD_RATE_LIMIT, &[]).await.unwrap();
    let (start, rest) = (raw::framed(0, &[0; 40_000]), [0; 0]);
    sends.send_data(start.into(), false).unwrap();
    sends.send_data(rest.to_vec().into(), true).unwrap();
    // Nonsense, but all of it was taken in.
    assert_eq!(answered(third).await.unwrap().status, "3");
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn what_is_announced_too_long_need_not_be_sent() {
    let server = server(GrpcLimits { message_bytes: 1_000, ..GrpcLimits::default() }).await;
    let mut client = Raw::connect(server.address).await;
    let start = &raw::framed(0, &[0; 1_001])[..10];
    client.write(&raw::headers(1, SHOULD_RATE_LIMIT, &[])).await;
    client.write(&raw::data(1, start)).await;
    let answer = client.next_of(HEADERS).await.unwrap();
    assert_eq!(answer.stream, 1);
    let reset = client.next_of(RESET).await.unwrap();
    assert_eq!((reset.stream, reset.reason()), (1, NO_ERROR), "the rest is not wanted");
    assert_eq!(server.failures(Fault::Invalid), 1);
    assert!(client.call(3, "alice").await.is_some());
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn compressed_messages_are_told_what_is_read() {
    let server = server(GrpcLimits::default()).await;
    let mut client = Plain::connect(server.address).await;
    let told = client.call(SHOULD_RATE_LIMIT, raw::framed(1, b"squeezed")).await.unwrap();
    assert_eq!(told.status, "12");
    assert_eq!(told.headers["grpc-accept-encoding"], "identity");
    assert!(told.headers["grpc-message"].to_str().unwrap().contains("send them uncompressed"));
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn headers_beyond_their_bound_are_refused() {
    let server = server(GrpcLimits { header_bytes: 1_000, ..GrpcLimits::default() }).await;
    let mut client = Raw::connect(server.address).await;
    let long = "x".repeat(2_000);
    client.write(&raw::headers(1, SHOULD_RATE_LIMIT, &[("x-long", &long)])).await;
    client.write(&raw::last(1, &raw::message("alice"))).await;
    let refused = client.next_of(HEADERS).await.unwrap();
    assert_eq!((refused.stream, refused.flags & 1), (1, 1), "answered without a message");
    assert!(client.call(3, "alice").await.is_some(), "the connection is still good");
    assert_eq!(server.service.telemetry().calls(Endpoint::ShouldRateLimit), 1);
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn as_many_calls_at_once_as_there_may_be_are_answered() {
    let server = server(GrpcLimits::default()).await;
    let mut client = Raw::connect(server.address).await;
    let mut all = Vec::new();
    // As tonic sends them: a small piece, and then the end. All of it is there before the server looks.
    let streams = (1..).step_by(2).take(1_024);
    for stream in streams.clone() {
        all.extend(raw::headers(stream, SHOULD_RATE_LIMIT, &[]));
        all.extend(raw::data(stream, &raw::message("a")));
        all.extend(raw::last(stream, &[]));
    }
    client.write(&all).await;
    let mut answered = Vec::new();
    while answered.len() < 1_024 {
        answered.push(client.next_of(DATA).await.expect("all are answered").stream);
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(streams));
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn one_call_too_many_on_a_connection_is_refused() {
    let server = server(GrpcLimits { calls: 4, ..GrpcLimits::default() }).await;
    // A client with a window of nothing, which can be sent no answers.
    let mut client = Raw::connect_with(server.address, &[0, 4, 0, 0, 0, 0]).await;
    client.round_trip().await;
    for stream in [1, 3, 5, 7, 9] {
        client.write(&raw::whole(stream, "alice")).await;
    }
    let refused = client.next_of(RESET).await.unwrap();
    assert_eq!((refused.stream, refused.reason()), (9, REFUSED_STREAM));
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn calls_that_are_broken_off_at_once_end_the_connection_only_if_they_are_too_many() {
    let server = server(GrpcLimits { calls: 100, ..GrpcLimits::default() }).await;
    let broken_off = |from: u32, count: usize| -> Vec<u8> {
        let streams = (from..).step_by(2).take(count);
        let call = |stream| [raw::headers(stream, SHOULD_RATE_LIMIT, &[]), raw::reset(stream)];
        streams.flat_map(call).flatten().collect()
    };
    let mut client = Raw::connect(server.address).await;
    client.write(&broken_off(1, 100)).await;
    assert!(client.call(1_001, "alice").await.is_some());
    client.write(&broken_off(2_001, 2_000)).await;
    let farewell = client.next_of(GOAWAY).await.unwrap();
    assert_eq!(farewell.reason(), ENHANCE_YOUR_CALM);
    client.rest().await;
    let mut other = Raw::connect(server.address).await;
    assert!(other.call(1, "alice").await.is_some());
    drop(other);
    server.end().await;
}

#[tokio::test]
async fn calls_whose_answers_are_not_read_are_part_of_the_memory_budget() {
    const BUDGET: usize = 512 << 10;

    let server = server_of_budget(GrpcLimits::default(), BUDGET).await;
    let memory = server.service.memory().clone();
    let mut other = Raw::connect(server.address).await;
    let mut client = Raw::connect_with(server.address, &[0, 4, 0, 0, 0, 0]).await;
    for stream in (1..).step_by(2).take(20) {
        client.write(&raw::whole(stream, "alice")).await;
        client.round_trip().await;
    }
    assert!(memory.reserved_bytes() > 20 * (2 << 10), "{}", memory.reserved_bytes());
    let calls: Vec<u8> =
        (101..).step_by(2).take(200).flat_map(|stream| raw::whole(stream, "alice")).collect();
    client.write(&calls).await;
    client.rest().await;
    assert!(memory.refusals() > 0 && memory.reserved_bytes() <= BUDGET);
    assert!(other.call(1, "alice").await.is_some(), "the others do not notice");
    drop((client, other));
    server.end().await;
    assert_eq!(memory.reserved_bytes(), 0);
}
