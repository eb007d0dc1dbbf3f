//! Answers who asks over a network: decode, check, encode.
//!
//! - [`server`] is the whole of it, as [`settings`] say: how it begins and how it ends.
//! - [`grpc`] is Envoy's way in, over HTTP/2, encrypted by [`tls`].
//! - [`http`] is for scripts and people: `/v1/check` and so on, `/json`, `/healthcheck`.
//! - [`resp`] is for clients of Redis: `CL.THROTTLE`, and `SG.CHECK` on the rules.
//! - [`admin`] is for operators: the service's state, its rules, and its [`metrics`].
//! - [`health`] knows whether the service is fit to be asked, and [`telemetry`] counts what it does.
//! - [`logs`] and [`traces`] tell operators what happens, if they want to know.
//! - [`counters`] are this node's own, or shared with others in a store.
//! - [`memory`] bounds what all clients together may take of it.
//! - [`reservations`] is what is reserved, waited for or asked again, at whatever door.
//! - [`rls`] is Envoy's rate limit service: its messages, read without a copy and written without a detour.

#![forbid(unsafe_code)]
// For the layout of nested futures.
#![recursion_limit = "256"]

/// The rules that the service begins with when it is given none.
///
/// ```
/// assert!(sluicegate::rules_of(sluicegate_server::EXAMPLE_RULES).is_ok());
/// ```
pub const EXAMPLE_RULES: &str = include_str!("../examples/rules.yaml");

pub mod admin;
pub mod app;
pub mod auth;
pub mod grpc;
pub mod health;
pub mod http;
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
mod status;
pub mod telemetry;
pub mod tls;
pub mod token;
pub mod traces;
