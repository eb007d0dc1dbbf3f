//! A server on loopback, what to ask it, and a clock that stands still.

#![allow(dead_code)] // Each test file uses some of it.

pub(crate) mod plain;
pub(crate) mod raw;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use sluicegate::{Engine, rules_of};
use sluicegate_server::app::{App, AppBuilder};
use sluicegate_server::grpc::{GrpcLimits, Options, serve};
use sluicegate_server::listen::Listener;
use sluicegate_server::memory::MemoryBudget;
use sluicegate_server::telemetry::{Endpoint, Event, Fault};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }
";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) service: App,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) ended: JoinHandle<std::io::Result<()>>,
}

pub(crate) fn service() -> App {
    builder().build()
}

fn builder() -> AppBuilder {
    App::builder(Engine::new(rules_of(RULES).unwrap()).unwrap())
}

pub(crate) async fn server(limits: GrpcLimits) -> Server {
    server_with(Options { limits, ..Options::default() }).await
}

/// The same with a memory budget of so many bytes.
pub(crate) async fn server_of_budget(limits: GrpcLimits, bytes: usize) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = builder().memory_budget(MemoryBudget::new(bytes)).build();
    serving(listener.into(), address, Options { limits, ..Options::default() }, service)
}

pub(crate) async fn server_with(options: Options) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    server_at(listener.into(), address, options)
}

pub(crate) fn server_at(listener: Listener, address: SocketAddr, options: Options) -> Server {
    serving(listener, address, options, service())
}

fn serving(listener: Listener, address: SocketAddr, options: Options, service: App) -> Server {
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let ended = tokio::spawn(serve(listener, service.clone(), options, stopped));
    Server { address, service, stop, ended }
}

impl Server {
    pub(crate) async fn channel(&self) -> Channel {
        let at = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        at.connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel().await)
    }

    pub(crate) fn count(&self, what: Event) -> u64 {
        self.service.telemetry().count(what)
    }

    pub(crate) fn failures(&self, fault: Fault) -> u64 {
        self.service.telemetry().failures(Endpoint::ShouldRateLimit, fault)
    }

    /// Ends, once all its connections have.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        self.ended.await.unwrap().unwrap();
    }
}

pub(crate) fn request(user: &str) -> RateLimitRequest {
    let entry = Entry { key: "user".to_owned(), value: user.to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    RateLimitRequest { domain: "shop".to_owned(), descriptors: vec![descriptor], hits_addend: 1 }
}

/// The runtime's clock moves only when told to, not whenever everybody waits: they may wait for a socket.
pub(crate) struct Clock {
    _held: mpsc::Sender<()>,
}

impl Clock {
    /// For tests that start paused. As long as a blocking task runs, tokio leaves the clock alone.
    pub(crate) fn frozen() -> Self {
        let (held, until) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || until.recv());
        Self { _held: held }
    }

    pub(crate) async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
        // Whoever waited for this time has its turn before we go on.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }
}
