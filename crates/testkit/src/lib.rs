//! Real servers for tests: Redis standalone, with Sentinel and as a Cluster, on free local ports.
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

pub mod proxy;
pub mod redis;

mod folder;
mod port;
mod process;
mod program;
mod wait;
mod wire;

pub use wait::until;
pub use wire::Reply;
