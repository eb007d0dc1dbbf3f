//! A load generator for rate limiters: what does an answer cost, how many are there in a second, and how long does one wait?
//!
//! It speaks Envoy's rate limit protocol, HTTP/1.1 and RESP, one thread or several, each with connections of its own. In a *closed loop* every
//! connection asks again as soon as it is answered: how much can the server do? In an *open loop* requests are due at times that the server
//! cannot move, and what one took counts from when it was due: how long do clients wait at this load?
//!
//! ```text
//!   Plan ─> run ─> a thread each: wire (connections) <─ drive (the loops) <─ keys, schedule
//!            │                                              │
//!            │  books (the server's CPU and memory)         └─> tally (by the second)
//!            └─> Report ─> text, JSON, a picture
//! ```
//!
//! Nothing here knows the server or the engine of this project: what it measures it measures from outside.

mod request;
mod procfs;
mod driver;
mod keys;
mod plot;
mod plan;
mod random;
mod report;
mod run;
mod schedule;
mod tally;
mod target;
mod template;
mod parse;
mod wire;
mod worker;
mod zipf;

pub use request::{Answer, Ask, Method, Protocol};
pub use keys::{KeyOrder, KeySpace};
pub use plot::picture;
pub use plan::{Amount, LoadError, Pace, Plan, Server};
pub use report::{Latency, Point, Progress, Report, Used};
pub use run::run;
pub use schedule::{Arrivals, Rate};
pub use target::{Place, PlaceError, Reach};
pub use parse::{count, rate, words};
