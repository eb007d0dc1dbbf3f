//! `sluicegate serve --resp`, as clients of Redis meet it: redis-cli, redis-benchmark, a library
//! for Rust and one for Python, and strangers.
//!
//! Each test has a service of its own, on free ports. Buckets fill over days and windows are of a
//! year: no test depends on when it runs.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "../support/mod.rs"]
mod support;

mod benchmark;
mod cli;
mod ends;
mod guide;
mod hostile;
mod library;

use support::Folder;
use support::service::Service;

pub const RULES: &str = "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 3/year }
  - key: plan
    descriptors:
      - key: user
        limits: { algorithm: fixed_window, rate: 2/year }
";

/// A service with rules, and these variables.
pub fn service(environment: &[(&str, &str)]) -> (Service, Folder) {
    let folder = Folder::new();
    let rules = folder.file("rules.yaml", RULES);
    let service = Service::with(&["--rules", &rules, "--resp", "127.0.0.1:0"], environment);
    (service, folder)
}

pub fn port(service: &Service) -> &str {
    service.resp.rsplit_once(':').unwrap().1
}
