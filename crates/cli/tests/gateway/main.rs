//! `sluicegate gateway`, running, as its clients see it.
//!
//! Each test has servers of its own, on free ports. Windows are of a year: no test depends on when
//! it runs.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod access_log;
mod acme;
mod actions;
mod addresses;
mod alerts;
mod answers;
mod api_keys;
mod browser;
mod certificates;
mod clients;
mod config;
mod dashboards;
mod deferred;
mod deferred_crashes;
mod expressions;
mod frames;
mod gateway;
mod guides;
mod http2;
mod identity;
mod lifecycle;
mod llm;
mod llm_provider;
mod mistakes;
mod overload;
mod paths;
mod pebble;
mod prometheus;
mod replay;
mod responses;
mod settle;
mod shaping;
mod slow;
mod smuggling;
mod tls;
mod tls_identity;
mod tokens;
mod verdicts;
mod webhook;
mod wire;
