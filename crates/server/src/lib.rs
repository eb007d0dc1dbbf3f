//! The service: gRPC, HTTP and RESP endpoints over one engine.
//!
//! - [`server`] starts the service by its [`settings`] and shuts it down.
//! - [`app`] is the state that all endpoints share: engine, options, health, telemetry, tracer.
//! - [`listen`] accepts connections for all of them; [`memory`] bounds the memory of all clients.
//! - [`grpc`] is the gRPC endpoint for Envoy, over HTTP/2 with optional [`tls`]; [`rls`] is the
//!   codec and handler of its rate limit service.
//! - [`http`] is the HTTP endpoint: `/v1/check` and so on, `/json`, `/healthcheck`.
//! - [`resp`] is the endpoint for Redis clients: `CL.THROTTLE`, and `SG.CHECK` on the rules.
//! - [`status`] selects the status that a response is about.
//! - [`reservations`] and [`idempotency`] are the same at every endpoint.
//! - [`admin`] is the endpoint for operators: [`health`], rules and [`metrics`].
//! - [`auth`] limits wrong secrets; a [`token`] is the secret of operators.
//! - [`telemetry`] counts events, [`logs`] writes log lines, [`traces`] exports spans, [`statsd`]
//!   sends counters.

#![forbid(unsafe_code)]
// For the layout of nested futures.
#![recursion_limit = "256"]

/// Example rules, used if no rules are configured.
///
/// ```
/// assert!(sluicegate::rules_of(sluicegate_server::EXAMPLE_RULES).is_ok());
/// ```
pub const EXAMPLE_RULES: &str = include_str!("../examples/rules.yaml");

pub mod admin;
pub mod app;
pub mod auth;
pub mod candidate;
pub mod grpc;
pub mod health;
pub mod http;
pub mod https_client;
pub mod idempotency;
pub mod listen;
pub mod logs;
pub mod memory;
pub mod metrics;
pub mod reservations;
pub mod resp;
pub mod rls;
pub mod server;
pub mod settings;
pub mod statsd;
pub mod status;
pub mod telemetry;
pub mod tls;
pub mod token;
pub mod traces;
pub mod traffic;
pub mod unmatched;
pub mod usage;
pub mod webhook;
pub mod xds;
