//! A tonic service with gRPC-native denials.
//!
//! The service is tonic's health check, since it needs no `.proto` file. Each address may call it
//! three times per hour. The fourth call receives `RESOURCE_EXHAUSTED` with a message and a retry
//! delay in metadata that client libraries with a retry policy understand.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin tonic_service
//! cargo run -p sluicegate-examples --bin tonic_service -- --serve 127.0.0.1:50051
//! grpcurl -plaintext 127.0.0.1:50051 grpc.health.v1.Health/Check
//! ```

use std::net::SocketAddr;

use sluicegate::limit::TokenBucket;
use sluicegate::tower::RateLimitLayer;
use sluicegate::tower::key::peer_ip;
use sluicegate::{LimitError, Limiter};
use sluicegate_examples::{Lifetime, listen};
use tonic::Status;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::health_reporter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (_, health) = health_reporter();
    let (listener, stay) = listen().await?;
    let address = listener.local_addr()?;
    let server = Server::builder()
        .layer(limits()?)
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener));
    match stay {
        Lifetime::Service => server.await?,
        Lifetime::Demo => tokio::select! {
            ended = server => ended?,
            shown = show(address) => shown?,
        },
    }
    Ok(())
}

fn limits() -> Result<RateLimitLayer, LimitError> {
    let limiter = Limiter::new(TokenBucket::per_hour(3).named("calls"))?;
    let by_address = peer_ip(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr());
    Ok(RateLimitLayer::new(limiter, by_address))
}

/// Calls the service once more than allowed.
async fn show(service: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    let channel = Channel::from_shared(format!("http://{service}"))?.connect().await?;
    let mut client = HealthClient::new(channel);
    for call in 1..=4 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(reply) => {
                let left = in_metadata(reply.metadata(), "x-ratelimit-remaining");
                println!("call {call}: {:?}, {left} left", reply.get_ref().status());
            }
            Err(denied) => println!("call {call}: {}", in_words(&denied)),
        }
    }
    Ok(())
}

fn in_words(denied: &Status) -> String {
    let seconds = in_metadata(denied.metadata(), "retry-after");
    let pushback = in_metadata(denied.metadata(), "grpc-retry-pushback-ms");
    let (code, message) = (denied.code(), denied.message());
    format!("{code:?}: {message} (retry-after {seconds}, pushback {pushback})")
}

fn in_metadata<'a>(metadata: &'a tonic::metadata::MetadataMap, name: &str) -> &'a str {
    metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-")
}
