//! Answers who asks over a network: decode, check, encode.
//!
//! - [`grpc`] is the way to the outside, one method over HTTP/2.
//! - [`rls`] is Envoy's rate limit service: its messages, read without a copy and written without a detour.

#![forbid(unsafe_code)]

pub mod grpc;
pub mod rls;
