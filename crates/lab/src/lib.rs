//! Experiments with limits.
//!
//! - [`trial`]: a limit on virtual time: operations in, answers out; the engine of
//!   `sluicegate try`.
//! - [`line`](mod@line) and [`answer`]: the JSON lines it reads and writes.
//! - [`script`]: operations with the answers they must get, as text. Scripts are the specification:
//!   the same files run against every store.
//! - [`log_input`]: access logs as requests in the order of time.
//! - [`replay`]: recorded requests through a set of rules.
//! - [`arrival`]: requests of clients over time, recorded or generated.
//! - [`traffic`]: built-in traffic.
//! - [`report`]: HTML reports.
//! - [`compare`](mod@compare): the same traffic through every algorithm.
//! - [`examples`]: one short script for each algorithm, shown by `try --example` and `--help`.
//! - [`timeline`]: a plot of requests, decisions and the remaining quota.
//! - [`accuracy`]: wrong decisions and rate errors of windows that approximate a log.
//! - [`tune`]: limits from recorded traffic.
//! - [`levels`]: a plot of accuracy against latency of the consistency levels.

pub mod accuracy;
pub mod answer;
pub mod arrival;
pub mod compare;
pub mod examples;
pub mod levels;
pub mod line;
pub mod log_input;
pub mod memory;
pub mod redis;
pub mod replay;
pub mod report;
pub mod script;
pub mod timeline;
pub mod traffic;
pub mod trial;
pub mod tune;
