//! `sluicegate serve` behind nginx and Caddy as their guides configure them, as clients of those
//! see it; and as Traefik asks.
//!
//! The pages in `docs/guide` are the source: their rules and configurations are run, with nothing
//! changed but addresses. Buckets fill over hours: no test depends on when it runs.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod bed;
mod client;
mod page;
mod ports;
mod upstream;

mod caddy;
mod nginx;
mod traefik;
