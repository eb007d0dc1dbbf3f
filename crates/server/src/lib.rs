//! Answers who asks over a network: decode, check, encode.
//!
//! - [`grpc`] is the way to the outside, one method over HTTP/2.
//! - [`http`] is `/json` and `/healthcheck`.
//! - [`rls`] is Envoy's rate limit service: its messages, read without a copy and written without a detour.

#![forbid(unsafe_code)]

/// The rules that the service begins with when it is given none.
///
/// ```
/// assert!(sluicegate::rules_of(sluicegate_server::EXAMPLE_RULES).is_ok());
/// ```
pub const EXAMPLE_RULES: &str = include_str!("../examples/rules.yaml");

pub mod grpc;
pub mod http;
pub mod rls;
