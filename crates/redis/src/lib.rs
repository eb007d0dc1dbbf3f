//! Redis or Valkey as the store that many nodes share.
//!
//! One Lua script evaluates all limits of a request where their state is, and writes only if all
//! allow (`script`). It reports the state it found and the time; the core derives the whole answer
//! from that, so that remaining quota and waiting times have one implementation for all stores.

mod backend;
mod call;
mod connection;
mod envoy;
mod handle;
pub(crate) mod script;
mod store;
mod virtual_time;

pub use call::CallError;
pub use connection::{
    Address, AddressError, BreakerOptions, BreakerState, Link, LinkError, LinkOptions, LinkStats,
    Secret, ServerStats, TlsOptions,
};
pub use connection::{Transport, TransportCall};
pub use envoy::EnvoyKeys;
pub(crate) use envoy::{EnvoyCheck, EnvoyCounters, EnvoyOp};
pub(crate) use store::{HitError, Weight};
pub use store::{Store, StoreOptions, StoreStats};
pub use virtual_time::{VirtualError, VirtualLimiter};

pub use backend::{LeaseInfo, RedisBackend, RuleLevel, ThrottleHit};
pub use handle::{Redis, RedisBuilder};
pub use sluicegate::backend::{StoreError, StoreFailure};
