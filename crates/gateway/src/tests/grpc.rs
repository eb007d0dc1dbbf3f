//! gRPC from a client through the gateway to a server, both of tonic.

use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Reported;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;

use super::*;

/// A server that reports the health of a shop, and its URL.
async fn health_server() -> (HealthReporter, String) {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("h2c://{}", listener.local_addr().unwrap());
    let served = Server::builder().add_service(service);
    tokio::spawn(served.serve_with_incoming(TcpIncoming::from(listener)));
    (reporter, url)
}

async fn client_of(gateway: &RunningGateway) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", gateway.address)).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_streams_and_errors_of_grpc_pass() {
    let (reporter, url) = health_server().await;
    let gateway = RunningGateway::forwarding(upstream(&url)).await;
    let mut client = client_of(&gateway).await;
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let response = client.check(request("shop")).await.unwrap().into_inner();
    assert_eq!(response.status(), Reported::Serving);
    let error = client.check(request("unknown")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");

    // A message of a stream arrives before the next one is sent.
    let mut stream = client.watch(request("shop")).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.status(), Reported::Serving);
    reporter.set_service_status("shop", ServingStatus::NotServing).await;
    let second = stream.message().await.unwrap().unwrap();
    assert_eq!(second.status(), Reported::NotServing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_denied_call_gets_resource_exhausted() {
    let (_reporter, url) = health_server().await;
    let servers = vec![url.parse().unwrap()];
    let mut config = GatewayConfig::simple(([127, 0, 0, 1], 0).into(), servers, Some("test"));
    config.routes[0].denial.body = Some("not for gRPC".to_owned());
    let rules = "domain: test\ndescriptors:\n  - key: remote_address\n    limits:\n      - { name: \
                 daily, algorithm: fixed_window, rate: 1/d }\n";
    let gateway = RunningGateway::with_rules(config, Some(rules.to_owned())).await;
    let mut client = client_of(&gateway).await;
    let request = || HealthCheckRequest { service: "shop".to_owned() };
    client.check(request()).await.unwrap();
    let denied = client.check(request()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted, "{denied}");
    assert!(denied.message().starts_with("Request quota exceeded."), "{denied}");
    assert_eq!(denied.metadata().get("x-ratelimit-limit").unwrap(), "1");
    assert!(denied.metadata().contains_key("grpc-retry-pushback-ms"));
}
