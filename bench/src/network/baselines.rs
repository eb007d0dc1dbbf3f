//! The same engine and the same rules behind tonic and generated messages, as most people would write the service.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::Duration;
use sluicegate::rules::plan::Target;
use sluicegate::rules::request::{Descriptor, Entry, Request as Asked};
use sluicegate::rules::rule::Limits;
use sluicegate::{Checked, Engine, Snapshot, Status as Told, Timestamp, rules_of};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::rounds::RULES;

struct Limiting {
    engine: Engine,
}

pub(super) async fn serve() -> anyhow::Result<()> {
    let engine = Engine::new(rules_of(RULES)?)?;
    let (listener, address) = super::listener().await?;
    println!("{}", serde_json::json!({ "grpc": address.to_string() }));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = RateLimitServiceServer::new(Limiting { engine });
    Ok(Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

#[tonic::async_trait]
impl RateLimitService for Limiting {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let asked = request.into_inner();
        let entries: Vec<Vec<Entry<'_>>> = asked.descriptors.iter().map(entries_of).collect();
        let descriptors: Vec<Descriptor<'_>> =
            entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let hits = u64::from(asked.hits_addend.max(1));
        let request = Asked { domain: &asked.domain, descriptors: &descriptors, hits };
        let (rules, now) = (self.engine.snapshot(), self.engine.now());
        let mut checked = Checked::default();
        rules.check(&request, now, &mut checked);
        let statuses = checked.statuses.iter().map(|status| told(status, &rules, now)).collect();
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

fn told(status: &Told, rules: &Snapshot<'_>, now: Timestamp) -> DescriptorStatus {
    let mut told = DescriptorStatus {
        code: code(status.verdict.is_allowed()).into(),
        ..DescriptorStatus::default()
    };
    if let Target::Rule(no) = status.target
        && let rule = rules.rules().rule(no)
        && let Limits::Envoy { requests_per_unit, unit } = &rule.limits
    {
        let (span, second) = (unit.span().as_micros() / 1_000_000, now.as_micros() / 1_000_000);
        let name = rule.name.as_deref().unwrap_or_default().to_owned();
        told.current_limit =
            Some(RateLimit { name, requests_per_unit: *requests_per_unit, unit: unit.number() });
        told.limit_remaining = status.verdict.remaining.unwrap_or(0).max(0) as u32;
        told.duration_until_reset =
            Some(Duration { seconds: (span - second % span) as i64, nanos: 0 });
    }
    told
}
