//! Envoy's rate limit service over a real connection, asked by a real client.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod grpc_common;

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use sluicegate_server::grpc::GrpcLimits;
use sluicegate_server::telemetry::{Event, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use grpc_common::{request, server};

#[tokio::test]
async fn a_client_is_answered_until_the_limit_and_beyond() {
    let server = server(GrpcLimits::default()).await;
    let mut client = server.client().await;
    for (left, code) in [(2, Code::Ok), (1, Code::Ok), (0, Code::Ok), (0, Code::OverLimit)] {
        let answer = client.should_rate_limit(request("alice")).await.unwrap().into_inner();
        assert_eq!((answer.overall_code(), answer.statuses[0].limit_remaining), (code, left));
    }
    let answer = client.should_rate_limit(request("bob")).await.unwrap().into_inner();
    assert_eq!(answer.overall_code(), Code::Ok);
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn calls_at_once_are_counted_each_once() {
    let server = server(GrpcLimits::default()).await;
    let client = server.client().await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let mut client = client.clone();
        calls.spawn(async move {
            client.should_rate_limit(request("carol")).await.unwrap().into_inner().overall_code()
        });
    }
    let codes = calls.join_all().await;
    assert_eq!(codes.iter().filter(|code| **code == Code::Ok).count(), 3);
    drop(client);
    server.end().await;
}

/// envoyproxy/ratelimit ends its process on this.
#[tokio::test]
async fn a_limit_whose_unit_does_not_exist_is_refused_and_harms_nobody() {
    let server = server(GrpcLimits::default()).await;
    let mut client = server.client().await;
    for unit in [0, 8, 99, -1] {
        let mut asked = request("mallory");
        asked.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 5, unit });
        let status = client.should_rate_limit(asked).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{unit}");
        assert!(status.message().contains(&format!("got `{unit}`")), "{}", status.message());
    }
    let answer = client.should_rate_limit(request("mallory")).await.unwrap().into_inner();
    assert_eq!(answer.statuses[0].limit_remaining, 2, "nothing was counted before");
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_told() {
    let limits = GrpcLimits { message_bytes: 4_096, ..GrpcLimits::default() };
    let server = server(limits).await;
    let mut client = server.client().await;
    let mut failed = async |request: RateLimitRequest| {
        let status = client.should_rate_limit(request).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    let (code, message) = failed(RateLimitRequest { domain: String::new(), ..request("a") }).await;
    assert_eq!((code, &*message), (tonic::Code::Unknown, "rate limit domain must not be empty"));
    let (code, message) = failed(RateLimitRequest { descriptors: vec![], ..request("a") }).await;
    assert_eq!(
        (code, &*message),
        (tonic::Code::Unknown, "rate limit descriptor list must not be empty")
    );
    let (code, message) = failed(request(&"a".repeat(5_000))).await;
    assert_eq!(code, tonic::Code::ResourceExhausted, "{message}");
    assert_eq!((server.failures(Fault::Invalid), server.failures(Fault::Service)), (1, 2));
    let fine = client.should_rate_limit(request("after all that")).await;
    assert!(fine.is_ok(), "the connection is still good");
    drop(client);
    server.end().await;
}

#[tokio::test]
async fn another_method_is_not_there() {
    let server = server(GrpcLimits::default()).await;
    let mut grpc = tonic::client::Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/no.such/Method");
    let codec = tonic_prost::ProstCodec::<RateLimitRequest, RateLimitRequest>::default();
    let status = grpc.unary(tonic::Request::new(request("a")), path, codec).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    assert!(status.message().contains("/no.such/Method"), "{status}");
    drop(grpc);
    server.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_let_go() {
    let limits = GrpcLimits { timeout: Duration::from_secs(5), ..GrpcLimits::default() };
    let server = server(limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    // The clock of the runtime moves on by itself while everybody waits.
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn what_is_not_http_2_is_let_go() {
    let server = server(GrpcLimits::default()).await;
    let mut other = TcpStream::connect(server.address).await.unwrap();
    other.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    // Closed, or reset: either way it is over.
    let _ = other.read_to_end(&mut heard).await;
    server.end().await;
}

#[tokio::test]
async fn a_server_that_stops_brings_what_has_begun_to_its_end() {
    let server = server(GrpcLimits::default()).await;
    let mut client = server.client().await;
    client.should_rate_limit(request("dave")).await.unwrap();
    server.stop.send(()).unwrap();
    // It ends though the client is still there.
    server.ended.await.unwrap().unwrap();
    let times = |what| server.service.telemetry().count(what);
    assert_eq!((times(Event::ConnectionOpened), times(Event::ConnectionClosed)), (1, 1));
    assert!(client.should_rate_limit(request("dave")).await.is_err());
}
