//! `sluicegate serve` behind a real Envoy, as clients of that Envoy see it.
//!
//! Each test has servers of its own, on free ports; starting them takes a tenth of a second.
//! Windows are of a year, and buckets fill over years: no test depends on when it runs.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod bed;
mod config;
mod envoy;
mod upstream;

mod added;
mod failure;
mod guide;
mod headers;
mod limits;
mod path_envoy;
mod reload;
