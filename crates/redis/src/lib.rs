//! Redis or Valkey as the store that many nodes share.
//!
//! A decision is made where the state lies: one script evaluates every limit of a request and writes only if all agree
//! (`script`). It tells what it found and by which time, and the answer is the core's own, worked out from just that; so what is left, how
//! long to wait and everything else is said by one piece of code, whatever the store.

mod backend;
mod call;
mod connection;
mod envoy;
pub(crate) mod script;
mod store;
pub(crate) mod sync;
mod virtual_time;

pub use call::CallError;
pub use connection::{
    Address, AddressError, BreakerOptions, BreakerState, Link, LinkError, LinkOptions, LinkStats,
    Secret, ServerStats, TlsOptions,
};
pub use connection::{Transport, TransportCall};
pub use envoy::EnvoyKeys;
pub(crate) use envoy::{EnvoyCheck, EnvoyCounters, EnvoyOp};
pub(crate) use store::{HitError, OperationError, Weight};
pub use store::{Store, StoreOptions, StoreStats};
pub use virtual_time::{VirtualError, VirtualLimiter};

pub use backend::{Leased, RuleLevel, SharedEngine};
pub use sluicegate::backend::{StoreError, StoreFailure};
