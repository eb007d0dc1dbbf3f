//! Shows what a limit does.
//!
//! - [`trial`]: a limit on virtual time: operations in, answers out; the engine of
//!   `sluicegate try`.
//! - [`line`](mod@line) and [`answer`]: the JSON lines it reads and writes.
//! - [`script`]: operations with the answers they must get, as text. Scripts are the specification:
//!   the same files run against every store.
//! - [`examples`]: one short script for each algorithm, shown by `try --example` and `--help`.
//! - [`picture`]: an SVG of what was asked, admitted, and left.
//! - [`levels`]: one of how far nodes that share a limit are off, against how long they take.

pub mod answer;
pub mod examples;
mod ids;
pub mod levels;
pub mod line;
pub mod on_memory;
pub mod on_redis;
pub mod picture;
pub mod script;
mod svg;
pub mod trial;
