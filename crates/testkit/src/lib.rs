//! Real servers for tests: Redis standalone, with Sentinel and as a Cluster, and PostgreSQL, on
//! free local ports.
//!
//! ```
//! use sluicegate_testkit::redis::Single;
//!
//! let server = Single::start();
//! assert_eq!(server.cli(&["INCR", "visits"]), "1");
//! println!("{}", server.url()); // redis://127.0.0.1:14821
//! ```
//!
//! A server ends with its value, and with the process that started it: a shell between the two
//! reads a pipe that only the test holds open. Each server has its own folder with its
//! configuration and log, which is removed with it.
//!
//! The crate has no async runtime and does not depend on the product, so that product bugs cannot
//! hide here. Server failures panic with the server's log: this crate is for tests only.

pub mod jwt;
pub mod log;
pub mod port;
pub mod postgres;
pub mod proxy;
pub mod redis;

mod folder;
mod process;
mod program;
mod wait;
mod wire;

pub use wait::until;
pub use wire::Reply;

/// Rules with every algorithm, for tests that compare two stores.
pub const RULES_OF_EVERY_ALGORITHM: &str = "
domain: shop
descriptors:
  - key: user
    limits:
      - { name: burst, algorithm: token_bucket, rate: 3/s, burst: 5 }
      - { name: minute, algorithm: fixed_window, rate: 40/m }
  - key: address
    limits: { algorithm: sliding_log, rates: [6/m, 2 per 3s], count_denied: true, min_gap: 100ms }
  - key: api_key
    limits: { algorithm: sliding_window, rate: 7/m }
  - key: queue
    limits: { algorithm: leaky_bucket, rate: 2/s, queue: 3 }
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 4 }
  - key: shared
    value: /a*
    share_threshold: true
    rate_limit: { unit: second, requests_per_unit: 2 }
  - key: quota
    quota_mode: true
    limits: { algorithm: token_bucket, rate: 1/s, burst: 3 }
  - key: other_quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 3 }
  - key: slot
    limits: { algorithm: concurrency, max: 2, lease: 2s }
  - key: softly
    mode: { soft: 50% }
    limits: { algorithm: token_bucket, rate: 1/s, burst: 4 }
  - key: watched
    mode: shadow
    limits: { algorithm: cycle, permits: 3, period: 5s }
  - key: smooth
    limits: { algorithm: smooth_bursty, rate: 2/s }
  - key: warming
    limits: { algorithm: warm_up, rate: 2/s, warm_up: 3s }
  - key: pooled
    limits: { algorithm: fixed_window, rate: 4/m }
    pools:
      - { name: bucket, limits: { algorithm: token_bucket, rate: 1/s, burst: 3 } }
      - { name: queue, limits: { algorithm: leaky_bucket, rate: 1/s, queue: 2 } }
";
