//! Answers who asks over a network: decode, check, encode.
//!
//! - [`rls`] is Envoy's rate limit service: its messages, read without a copy and written without a detour.

#![forbid(unsafe_code)]

pub mod rls;
