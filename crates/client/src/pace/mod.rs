//! Calls to an API as fast as its limits allow.
//!
//! [`ServerHints`] parses the rate-limit headers of responses, in several dialects. [`Pace`]
//! computes from them when the next call may be sent: a sans-I/O state machine. With the feature
//! `tower`, `PacedLayer` applies both to a client.
//!
//! ```
//! use std::time::Duration;
//! use http::{HeaderMap, StatusCode};
//! use sluicegate_client::pace::{Pace, ServerHints, SendTime};
//! use tokio::time::Instant;
//!
//! let (mut pace, now) = (Pace::new(), Instant::now());
//! assert_eq!(pace.when(now), SendTime::Now);
//! let call = pace.sent(now);
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("ratelimit", r#""default";r=0;t=30"#.parse()?);
//! pace.answered(call, &ServerHints::of(StatusCode::OK, &headers), now);
//! assert_eq!(pace.when(now), SendTime::At(now + Duration::from_secs(30)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fields;
mod hints;
#[cfg(feature = "tower")]
mod layer;
#[cfg(feature = "tower")]
mod queue;
mod state;
#[cfg(test)]
mod tests;
mod windows;

pub use hints::{ServerHints, Window};
#[cfg(feature = "tower")]
pub use layer::{NoRetry, Paced, PacedError, PacedLayer, Retries, RetryPolicy};
#[cfg(feature = "tower")]
pub use queue::WouldWait;
pub use state::{Pace, SendTime, SentCall};
