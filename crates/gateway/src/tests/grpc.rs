//! gRPC from a client through the gateway to a server, both of tonic.

use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Reported;
use tonic_health::pb::health_client::HealthClient;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_streams_and_errors_of_grpc_pass() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("h2c://{}", listener.local_addr().unwrap());
    let served = Server::builder().add_service(service);
    tokio::spawn(served.serve_with_incoming(TcpIncoming::from(listener)));
    let gateway = RunningGateway::forwarding(upstream(&url)).await;

    let endpoint = Endpoint::from_shared(format!("http://{}", gateway.address)).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
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
