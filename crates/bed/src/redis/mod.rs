//! Redis as people run it.

mod options;
mod single;
mod tls;

pub use options::{Memory, Options, User};
pub use single::Single;
pub use tls::{Tls, TlsFiles};
