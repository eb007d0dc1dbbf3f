//! Redis as people run it.

mod options;
mod sentinel;
mod single;
mod tls;

pub use options::{Memory, Options, User};
pub use sentinel::{Secrets, Sentinel};
pub use single::Single;
pub use tls::{Tls, TlsFiles};
