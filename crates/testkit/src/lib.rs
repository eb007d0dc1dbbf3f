//! Real servers for tests: Redis alone, under Sentinels and as a Cluster, on free ports of this
//! machine.
//!
//! ```
//! use sluicegate_testkit::redis::Single;
//!
//! let server = Single::start();
//! assert_eq!(server.cli(&["INCR", "visits"]), "1");
//! println!("{}", server.url()); // redis://127.0.0.1:14821
//! ```
//!
//! A server ends with its value, and with the process that started it, however that one ends: a
//! shell stands between the two, and reads a pipe that only the test holds open. Each lives in a
//! folder of its own, with its configuration and what it said; the folder goes with it.
//!
//! There is no async runtime here and nothing of the product: whatever is wrong with the product
//! cannot hide here. What goes wrong with a server is a panic that shows what the server said: this
//! crate is for tests only.

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
