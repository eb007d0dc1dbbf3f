//! Envoy's rate limit service, version 3: what is asked, and what is answered.
//!
//! Messages are read and written here by hand: a request borrows from the bytes that it came in, and an answer goes straight into those that
//! leave. `tests/wire.rs` compares both with generated code, on good messages and on broken ones.

pub mod answer;
pub mod ask;
mod denial;
mod descriptors;
mod failure;
mod headers;
pub mod json;
mod mend;
mod metadata;
pub mod options;
mod refund;
pub mod service;
mod told;
pub(crate) mod wire;
