//! An embeddable rate limiter.
//!
//! *May this request pass now, and if not, when?* Three lines, no async runtime, no server:
//!
//! ```
//! use sluicegate::Limiter;
//! use sluicegate::limit::TokenBucket;
//!
//! let limiter = Limiter::new(TokenBucket::per_second(10).burst(50))?;
//! let verdict = limiter.hit("user:42");
//! assert!(verdict.is_allowed());
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! # A tour
//!
//! **A denial contains the wait.** A client that waits exactly `retry_after` and has no competitor
//! is admitted ([first steps](guide::first_steps): algorithms, verdicts, costs).
//!
//! ```
//! use sluicegate::limit::FixedWindow;
//! use sluicegate::{Limiter, Outcome, Span};
//!
//! let limiter = Limiter::new(FixedWindow::per_hour(5))?;
//! limiter.of("alice").cost(5).hit();
//! match limiter.hit("alice").outcome {
//!     Outcome::Deny { retry_after } => assert!(retry_after <= Span::from_secs(3_600)),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! **Several limits are one decision**, and so are several limiters: all are charged, or none
//! ([several](guide::several)).
//!
//! ```
//! use sluicegate::limit::{FixedWindow, TokenBucket};
//! use sluicegate::{Limiter, Together};
//!
//! let per_user = Limiter::builder()
//!     .limit(TokenBucket::per_second(10).burst(50))
//!     .limit(FixedWindow::per_day(10_000))
//!     .build()?;
//! let everybody = Limiter::new(TokenBucket::per_second(10_000))?;
//! assert!(Together::new().and(&per_user, "alice").and(&everybody, "").hit().is_allowed());
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! **Guards release on drop**: a slot ([waiting](guide::waiting)), an unsettled reservation
//! ([settling](guide::settling)).
//!
//! ```
//! use sluicegate::Limiter;
//! use sluicegate::limit::{Concurrency, TokenBucket};
//!
//! let calls = Limiter::new(Concurrency::at_most(10))?;
//! let tokens = Limiter::new(TokenBucket::per_day(10_000))?;
//!
//! let slot = calls.of("team").permit()?;
//! let estimate = tokens.of("team").cost(4_000).reserve()?;
//! assert_eq!(estimate.commit(1_250)?.remaining, Some(8_750));
//! drop(slot);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Counters in Redis** have the same API ([stores](guide::stores)): `.on(&store)` takes
//! [`Memory`], or `Redis` of the crate `sluicegate-redis`.
//!
//! The [guide] continues with [rules](guide::rules), which map requests to limits, [live
//! changes](guide::changing), [testing and metrics](guide::testing), [batches, memory and
//! snapshots](guide::many), and a layer for axum and tonic.
//!
//! # Features
//!
//! No feature is on by default: the limiter itself needs no async runtime.
//!
//! | feature | brings |
//! |---|---|
//! | `tokio` | waiting without blocking a thread: `acquire().await`, `permit_async().await` |
//! | `http` | the table from a verdict to a status, headers and a body |
//! | `tower` | a layer for axum, tonic and other tower services; enables `http` and `tokio` |
//! | `metrics` | decisions as counters of the `metrics` facade: `MetricsListener` |
//! | `tracing` | a DEBUG event for each denial: `TracingListener` |
//! | `config` | limits and rules from YAML, and reloading of changed files: `Limiter::from_yaml`, `rules_of`, `Engine::follow` |
//! | `explain` | the rules that match a request and the verdict it would get now, as text and JSON; enables `config` |
//!
//! # Cost
//!
//! Memory: 20 to 30 bytes for each limit of an identity, and nothing for identities whose state has
//! expired ([many](guide::many)). Time: a decision takes one lock, which an identity shares with
//! one in 256 others. `bench/` in the repository measures both and compares other limiters.
//!
//! The first limiter of a process calibrates the clock, which takes up to 200 ms
//! ([`SystemClock`](clock::SystemClock)).

pub mod adaptive;
mod answer;
pub mod clock;
mod engine;
pub mod estimate;
#[cfg(feature = "explain")]
pub mod explain;
pub mod guide;
mod hold_time;
#[cfg(feature = "http")]
pub mod http;
pub mod limit;
mod limiter;
mod listener;
mod memory;
mod plan;
pub mod snapshot;
mod store;
#[doc(hidden)] // For the service: not part of the public interface.
pub mod striped;
pub mod throttle;
#[cfg(feature = "tower")]
pub mod tower;

#[cfg(feature = "config")]
pub use sluicegate_config as config;
pub use sluicegate_core::account::Answer;
pub use sluicegate_core::algorithm::concurrency::Holder;
pub use sluicegate_core::change::CarryOver;
pub use sluicegate_core::mode::{GateLevels, Mode};
pub use sluicegate_core::op::{Op, OpKind, Refusal};
pub use sluicegate_core::time::{Span, Timestamp};
pub use sluicegate_core::verdict::{Outcome, Verdict};
pub use sluicegate_rules as rules;
pub use sluicegate_rules::rule::{Consistency, OnStoreFailure};

pub use answer::{Denied, Level, Policy, Promise};
#[doc(hidden)] // For the service: not part of the public interface.
pub use engine::HeavyHitters;
#[cfg(feature = "tokio")]
pub use engine::Waited;
pub use engine::backend;
#[cfg(feature = "config")]
pub use engine::{
    Change, FollowWaker, Follower, Following, REMOVAL_GRACE, REPORT_EVERY, RULES_POLL_INTERVAL,
    RulesError, WithheldDomain, rules_of,
};
pub use engine::{
    Checked, DISTINCT_STANDARD_ERROR, DistinctIdentities, Engine, EngineBuilder, HoldError,
    IdentityHits, Inspected, LimitState, ListedValue, MemoryBackend, MeteredUsage, Operation,
    REMEMBERED_MAX, RULES_OBSERVED_MAX, Reloaded, Returned, RuleTraffic, SKETCHED_PER_SECOND,
    Snapshot, Stats, Status, TRACKED_IDENTITIES, ThresholdReached, TopIdentities, UsageKind,
    UsageListener, UsageMeter, ValueStats, descriptor_text,
};
pub use limit::LimitError;
pub use limiter::{Booking, Builder, KeyedOps, Limiter, Permit, Reservation, Together, new_holder};
#[cfg(feature = "metrics")]
pub use listener::MetricsListener;
#[cfg(feature = "tracing")]
pub use listener::TracingListener;
pub use listener::{Event, Listener};
pub use memory::{ENTRIES_MAX, Memory, Overflow};
pub use plan::LIMITS_MAX;
pub use snapshot::{Saved, SnapshotError};
pub use store::CounterStore;
