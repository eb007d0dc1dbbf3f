//! Counters of `sluicegate` in a Redis or Valkey that many processes share.
//!
//! [`Redis`] is a store for limiters and engines, as `sluicegate::Memory` is. Connections are
//! opened in the background; a limiter is found by its name.
//!
//! ```
//! # use std::time::Duration;
//! # use sluicegate_testkit::redis::Single;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = Single::start();
//! # let url = server.url();
//! use sluicegate::limit::{Concurrency, FixedWindow, TokenBucket};
//! use sluicegate::{Consistency, Limiter, OnStoreFailure};
//! use sluicegate_redis::Redis;
//!
//! // "redis://127.0.0.1:6379", "rediss://…", "redis-sentinel://…" or "redis-cluster://…"
//! let redis = Redis::connect(url)?;
//! # assert!(redis.connected(Duration::from_secs(20)).await);
//!
//! // Several limits are one decision: all are charged, or none.
//! let requests = Limiter::builder()
//!     .name("requests")
//!     .limit(TokenBucket::per_second(10).burst(50))
//!     .limit(FixedWindow::per_day(10_000))
//!     .on_store_failure(OnStoreFailure::Allow)
//!     .on(&redis)?;
//! assert!(requests.hit_async("alice").await?.is_allowed());
//!
//! // A hot key, decided on this node from quota that it has leased.
//! let global = Limiter::builder()
//!     .name("global")
//!     .limit(TokenBucket::per_second(10_000))
//!     .consistency(Consistency::Leased)
//!     .on(&redis)?;
//! assert!(global.hit_async("").await?.is_allowed());
//!
//! // Slots, released on drop.
//! let exports =
//!     Limiter::builder().name("exports").limit(Concurrency::at_most(3)).on(&redis)?;
//! let slot = exports.of("team").permit_async().await?;
//! drop(slot);
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | limit an axum or tonic service | `sluicegate::tower::RateLimitLayer` with a limiter on [`Redis`] |
//! | enforce rules | `sluicegate::Engine::builder(rules).on(&redis)` |
//! | set timeouts, credentials, TLS | [`Redis::builder`] with [`LinkOptions`] |
//! | count under the keys of envoyproxy/ratelimit | [`RedisBackend::with_envoy_keys`] |
//! | release leased quota before a process ends | [`Redis::close`] |
//! | find out why Redis is not reachable | [`Redis::ready`], [`Redis::last_error`]; feature `tracing` |
//! | count failures | `timed_out`, `down`, `broken`, `refused` and `busy` of [`LinkStats`] |
//! | observe connections and the store | [`Redis::link`], [`Redis::store`] |
//! | test with a manual clock | `sluicegate::Builder::clock`, which replaces the clock of the server |
//!
//! # How it decides
//!
//! One Lua script evaluates all limits of a request where their state is, and writes only if all
//! allow (`script`). It reports the state it found and the time; the core derives the whole answer
//! from that, so that remaining quota and waiting times have one implementation for all stores.

mod backend;
mod call;
mod connection;
mod durable_queue;
mod envoy;
mod handle;
pub(crate) mod script;
mod store;
mod virtual_time;

pub use call::CallError;
pub use connection::{
    Address, AddressError, BreakerOptions, BreakerState, Link, LinkError, LinkOptions, LinkStats,
    SLOTS, Secret, ServerStats, TlsOptions,
};
pub use connection::{Transport, TransportCall, slot_of};
pub use envoy::EnvoyKeys;
pub(crate) use envoy::{EnvoyCheck, EnvoyCounters, EnvoyOp};
pub(crate) use store::{HitError, Weight};
pub use store::{Store, StoreOptions, StoreStats};
pub use virtual_time::{VirtualError, VirtualLimiter};

pub(crate) use backend::Closer;
pub use backend::{LeaseInfo, RedisBackend, RuleLevel, ThrottleHit};
pub use durable_queue::{
    DurableQueues, LISTS, Pushed, QUEUED, QueueBounds, QueueClaim, QueueEntry, QueueStats,
};
pub use handle::{Redis, RedisBuilder};
pub use sluicegate::backend::{StoreError, StoreFailure};
