//! Load generator for rate limiters: throughput, latency, and the server's CPU time per request.
//!
//! It speaks Envoy's rate limit protocol, HTTP/1.1 and RESP from one or more threads. A *closed
//! loop* sends again as soon as a request is answered and measures throughput. An *open loop* sends
//! at scheduled times and measures latency from the scheduled time.
//!
//! ```text
//!   Plan ─> run ─> worker threads: wire (connections) <─ driver (loops) <─ keys, schedule
//!            │                                             │
//!            │  procfs (the server's CPU and memory)       └─> tally (by second)
//!            └─> Report ─> text, JSON, plot
//! ```
//!
//! The crate depends on neither the server nor the engine: it measures from outside.

mod driver;
mod keys;
mod parse;
mod plan;
mod plot;
mod procfs;
mod report;
mod request;
mod run;
mod schedule;
mod tally;
mod target;
mod wire;
mod worker;

pub use keys::{KeyOrder, KeySpace};
pub use parse::{count, rate, words};
pub use plan::{Amount, LoadError, Pace, Plan, Server, Timer};
pub use plot::plot;
pub use report::{Latency, Point, Progress, Report, ServerUsage};
pub use request::{Answer, Protocol, RequestSpec, Template, UnaryMethod};
pub use run::run;
pub use schedule::{Arrivals, Rate, RateStep};
pub use target::{AllowedHosts, Target, TargetError};
