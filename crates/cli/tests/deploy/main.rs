//! The deploy kit: the tools of its users check each file, and the binary runs as the file says.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)] // A test that is stuck should fail.

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)]
#[path = "../envoy/envoy.rs"]
mod envoy;

#[allow(dead_code)]
#[path = "../gateway/gateway.rs"]
mod gateway;

mod tools;

mod compose;
mod gateways;
mod image;
mod kubernetes;
mod readme;
mod systemd;
