//! A rate limiter to embed.
//!
//! *May this go through now, and if not, when?* Three lines, no async runtime, no server:
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

pub mod clock;
mod denied;
#[cfg(feature = "http")]
pub mod http;
pub mod limit;
mod limiter;
mod listener;
mod memory;
mod plan;
mod policy;
pub mod snapshot;
#[cfg(feature = "tower")]
pub mod tower;

pub use sluicegate_core::account::Answer;
pub use sluicegate_core::change::Keep;
pub use sluicegate_core::mode::{GateLevels, Mode};
pub use sluicegate_core::op::{Op, OpKind, Refusal};
pub use sluicegate_core::time::{Span, Timestamp};
pub use sluicegate_core::verdict::{Outcome, Verdict};

pub use denied::Denied;
pub use limit::LimitError;
pub use limiter::{Ask, Booking, Builder, Limiter, Permit, Reservation, TOGETHER_MAX, Together};
pub use listener::{Event, Listener};
pub use memory::{ENTRIES_MAX, Memory, Overflow};
pub use plan::LIMITS_MAX;
pub use policy::Policy;
pub use snapshot::{Saved, SnapshotError};
