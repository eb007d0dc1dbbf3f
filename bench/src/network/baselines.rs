//! Servers that show the cost of a protocol and its libraries alone: a gRPC stub, tonic, and axum's
//! hello.
//!
//! Each prints its address as `sluicegate serve --json` does, and serves until it is killed.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::bail;
use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::Duration;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, HeaderValue, header};
use sluicegate::backend::Call;
use sluicegate::rules::plan::Target;
use sluicegate::rules::request::{Descriptor, Entry, Request as LimitRequest};
use sluicegate::rules::rule::Limits;
use sluicegate::{Checked, Engine, Snapshot, Status as StepStatus, Timestamp, rules_of};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use tokio::net::{TcpListener, TcpStream};

use super::requests::RULES;

/// The child's side: runs a baseline.
pub(crate) fn serve(name: &str) -> anyhow::Result<()> {
    match name {
        "stub" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(stub())
        }
        // As `#[tokio::main]` and `sluicegate` do: a worker per core.
        "tonic" => tokio::runtime::Runtime::new()?.block_on(tonic_service()),
        "hello" => tokio::runtime::Runtime::new()?.block_on(hello()),
        _ => bail!("there is no server `{name}`"),
    }
}

async fn listen(endpoint: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address: SocketAddr = listener.local_addr()?;
    println!("{}", serde_json::json!({ endpoint: address.to_string() }));
    Ok(listener)
}

// === axum ===

async fn hello() -> anyhow::Result<()> {
    let router = Router::new().route("/", get(async || "Hello, World!"));
    Ok(axum::serve(listen("http").await?, router).await?)
}

// === the stub: reads no request and always sends the same response ===

/// A message of 18 bytes: code 1 and one status: code 1, 3 per minute, 2 remaining, reset in 42 s.
const RESPONSE: &[u8] =
    b"\0\0\0\0\x12\x08\x01\x12\x0e\x08\x01\x12\x04\x08\x03\x10\x02\x18\x02\x22\x02\x08\x2a";

async fn stub() -> anyhow::Result<()> {
    let listener = listen("grpc").await?;
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(connection(socket));
    }
}

async fn connection(socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
    builder.max_concurrent_streams(1_000);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(async move { _ = call(request, respond).await });
    }
}

async fn call(
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let mut body = request.into_body();
    while let Some(piece) = body.data().await {
        body.flow_control().release_capacity(piece?.len())?;
    }
    let mut response = http::Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    let mut sending = respond.send_response(response, false)?;
    sending.send_data(Bytes::from_static(RESPONSE), false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    sending.send_trailers(trailers)
}

// === tonic: the same engine and rules behind generated messages ===

struct TonicService {
    engine: Engine,
}

async fn tonic_service() -> anyhow::Result<()> {
    let engine = Engine::new(rules_of(RULES)?)?;
    let listener = listen("grpc").await?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = RateLimitServiceServer::new(TonicService { engine });
    Ok(Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

#[tonic::async_trait]
impl RateLimitService for TonicService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let message = request.into_inner();
        let entries: Vec<Vec<Entry<'_>>> = message.descriptors.iter().map(entries_of).collect();
        let descriptors: Vec<Descriptor<'_>> =
            entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let hits = u64::from(message.hits_addend.max(1));
        let request = LimitRequest { domain: &message.domain, descriptors: &descriptors, hits };
        let (rules, now) = (self.engine.snapshot(), self.engine.now());
        let mut checked = Checked::default();
        self.engine.check_now(&Call::new(&rules, &request, now), &mut checked);
        let statuses =
            checked.statuses.iter().map(|status| descriptor_status(status, &rules, now)).collect();
        let overall_code = code(checked.allowed).into();
        Ok(Response::new(RateLimitResponse { overall_code, statuses, ..Default::default() }))
    }
}

fn entries_of(descriptor: &RateLimitDescriptor) -> Vec<Entry<'_>> {
    descriptor.entries.iter().map(|entry| Entry::new(&entry.key, &entry.value)).collect()
}

const fn code(allowed: bool) -> Code {
    if allowed { Code::Ok } else { Code::OverLimit }
}

fn descriptor_status(
    status: &StepStatus,
    rules: &Snapshot<'_>,
    now: Timestamp,
) -> DescriptorStatus {
    let mut message = DescriptorStatus {
        code: code(status.verdict.is_allowed()).into(),
        ..DescriptorStatus::default()
    };
    if let Target::Rule(no) = status.target
        && let rule = rules.rules().rule(no)
        && let Limits::Envoy { requests_per_unit, unit } = &rule.limits
    {
        let (span, second) = (unit.span().as_micros() / 1_000_000, now.as_micros() / 1_000_000);
        let name = rule.name.as_deref().unwrap_or_default().to_owned();
        message.current_limit =
            Some(RateLimit { name, requests_per_unit: *requests_per_unit, unit: unit.number() });
        message.limit_remaining = status.verdict.remaining.unwrap_or(0).max(0) as u32;
        message.duration_until_reset =
            Some(Duration { seconds: (span - second % span) as i64, nanos: 0 });
    }
    message
}
