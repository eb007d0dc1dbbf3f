//! Redis in its common deployments.

mod cluster;
mod migration;
mod options;
mod sentinel;
mod single;
pub(crate) mod tls;

pub use cluster::Cluster;
pub use migration::Migration;
pub use options::{Memory, Options, User};
pub use sentinel::{Secrets, Sentinel};
pub use single::Single;
pub use tls::{Tls, TlsFiles};
