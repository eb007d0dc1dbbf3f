//! Calling somebody else's API as fast as it lets you, and no faster.
//!
//! APIs say in their answers how much one has left and until when: [`Told`] reads that from headers, whichever of the dialects they speak. [`Pace`] works out from it
//! when the next call may go: a plain state machine that sends nothing and knows no time but what it is given. With the feature `tower`, `PacedLayer`
//! brings both together around a client.
//!
//! ```
//! use std::time::Duration;
//! use http::{HeaderMap, StatusCode};
//! use sluicegate_client::pace::{Pace, Told, When};
//! use tokio::time::Instant;
//!
//! let (mut pace, now) = (Pace::new(), Instant::now());
//! assert_eq!(pace.when(now), When::Now);
//! let call = pace.sent(now);
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("ratelimit", r#""default";r=0;t=30"#.parse()?);
//! pace.answered(call, &Told::of(StatusCode::OK, &headers), now);
//! assert_eq!(pace.when(now), When::At(now + Duration::from_secs(30)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod date;
mod fields;
#[cfg(feature = "tower")]
mod lane;
#[cfg(feature = "tower")]
mod layer;
mod state;
#[cfg(test)]
mod tests;
mod told;
mod windows;

#[cfg(feature = "tower")]
pub use lane::WouldWait;
#[cfg(feature = "tower")]
pub use layer::{Again, Once, Paced, PacedError, PacedLayer, Retrying};
pub use state::{Pace, Sent, When};
pub use told::{Told, Window};
