//! A control plane that a test scripts: it sends what the test says, and shows each request.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use futures_util::{Stream, stream};
use prost::{Message, Name};
use sluicegate_testkit::until;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

type Responses = Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;
type DeltaResponses = Pin<Box<dyn Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Send>>;

type Responder = UnboundedSender<Result<DiscoveryResponse, Status>>;

/// Ends with this value, and its connections too.
pub struct ControlPlane {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
    requests: Receiver<DiscoveryRequest>,
    streams: Streams,
    sent: usize,
}

#[derive(Clone)]
struct Streams {
    /// Of the last stream.
    responses: Arc<Mutex<Option<Responder>>>,
    headers: Arc<Mutex<MetadataMap>>,
    requests: Sender<DiscoveryRequest>,
}

impl ControlPlane {
    /// Starts one at an address whose port may be 0.
    pub fn start(address: &str, tls: Option<ServerTlsConfig>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener =
            until("the address is free", || runtime.block_on(TcpListener::bind(address)).ok());
        let address = listener.local_addr().unwrap();
        let (requests, received) = channel();
        let streams = Streams { responses: Arc::default(), headers: Arc::default(), requests };
        let service = AggregatedDiscoveryServiceServer::new(streams.clone());
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let incoming = TcpIncoming::from(listener);
        runtime.spawn(server.add_service(service).serve_with_incoming(incoming));
        Self { address, runtime: Some(runtime), requests: received, streams, sent: 0 }
    }

    /// The next request of the service.
    pub fn next(&self) -> DiscoveryRequest {
        self.requests.recv_timeout(Duration::from_secs(60)).expect("no request")
    }

    /// Whether nothing comes for a while.
    pub fn is_silent(&self, a_while: Duration) -> bool {
        self.requests.recv_timeout(a_while).is_err()
    }

    /// Sends a set; its nonce.
    pub fn send(&mut self, version: &str, set: &[RateLimitConfig]) -> String {
        let resources = set.iter().map(|config| Any {
            type_url: RateLimitConfig::type_url(),
            value: config.encode_to_vec(),
        });
        self.send_any(version, resources.collect())
    }

    pub fn send_any(&mut self, version: &str, resources: Vec<Any>) -> String {
        self.sent += 1;
        let nonce = format!("nonce-{}", self.sent);
        let response = DiscoveryResponse {
            version_info: version.to_owned(),
            resources,
            type_url: RateLimitConfig::type_url(),
            nonce: nonce.clone(),
            ..Default::default()
        };
        let responses = self.streams.responses.lock().unwrap();
        responses.as_ref().unwrap().send(Ok(response)).unwrap();
        nonce
    }

    /// A header of the last stream.
    pub fn header(&self, name: &str) -> String {
        let headers = self.streams.headers.lock().unwrap();
        headers.get(name).unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Streams {
    type StreamAggregatedResourcesStream = Responses;
    type DeltaAggregatedResourcesStream = DeltaResponses;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let (sender, mut responses): (_, UnboundedReceiver<_>) = unbounded_channel();
        *self.responses.lock().unwrap() = Some(sender);
        *self.headers.lock().unwrap() = request.metadata().clone();
        let (mut stream, requests) = (request.into_inner(), self.requests.clone());
        tokio::spawn(async move {
            while let Ok(Some(request)) = stream.message().await {
                let _ = requests.send(request);
            }
        });
        Ok(Response::new(Box::pin(stream::poll_fn(move |context| responses.poll_recv(context)))))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<DeltaResponses>, Status> {
        Err(Status::unimplemented("state of the world only"))
    }
}

/// Rules of a domain: so many requests a year for each user.
pub fn limited(domain: &str, requests_per_unit: u32) -> RateLimitConfig {
    let policy = RateLimitPolicy {
        unit: RateLimitUnit::Year.into(),
        requests_per_unit,
        ..Default::default()
    };
    let user = RateLimitDescriptor {
        key: "user".to_owned(),
        rate_limit: Some(policy),
        ..Default::default()
    };
    RateLimitConfig {
        name: format!("rules/{domain}"),
        domain: domain.to_owned(),
        descriptors: vec![user],
    }
}
