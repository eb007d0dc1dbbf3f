//! Envoy's rate limit service, version 3: what is asked, and what is answered.
//!
//! Messages are read and written here by hand: a request borrows from the bytes that it came in, and an answer goes straight into those that
//! leave. `tests/wire.rs` compares both with generated code, on good messages and on broken ones.

mod denial;
mod descriptors;
mod failure;
pub mod handler;
mod headers;
pub mod json;
mod metadata;
pub mod options;
mod refund;
pub mod request;
pub mod response;
mod status;
mod utf8_repair;
pub(crate) mod wire;
