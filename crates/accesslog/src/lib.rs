//! Access logs as records: what a proxy, load balancer or CDN has written of each request.
//!
//! - [`record`]: a request, as far as its line describes it.

pub mod record;

pub use record::Record;
