//! Client of a Sluicegate service, and pacing of calls to rate-limited APIs.
//!
//! ```no_run
//! use sluicegate_client::{Client, Request};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), sluicegate_client::Error> {
//! let client = Client::new("http://127.0.0.1:8080")?;
//! let decision = client.check(&Request::new("shop").descriptor([("user", "42")])).await?;
//! if !decision.allowed {
//!     println!("retry after {:?}", decision.retry_after);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | task | method |
//! |---|---|
//! | check one or many, peek, refund | [`Client::check`], [`check_many`](Client::check_many), [`peek`](Client::peek), [`refund`](Client::refund) |
//! | wait at the client | [`Client::until_allowed`] |
//! | wait at the service | [`Client::wait`] |
//! | reserve a cost that is known only afterwards | [`Client::reserve`], then [`Reservation::commit`] or [`cancel`](Reservation::cancel) |
//! | call an API within its limits | [`pace`], and with the feature `tower` a layer |
//!
//! **Cached denials**: a denial holds until its `retry_after`, without a request.
//!
//! **Bounded retries**: unanswered calls are retried with backoff, jitter and an idempotency key,
//! within a budget; after several consecutive failures a circuit breaker opens and only probes are
//! sent.
//!
//! **A decision without the service**: [`UnavailablePolicy`] decides, and [`Decision::source`]
//! shows it.

#![forbid(unsafe_code)]

mod breaker;
mod builder;
mod client;
mod connect;
mod decision;
mod denials;
mod dispatch;
mod error;
pub mod pace;
mod request;
mod reservation;
mod retry;
mod transport;
mod wait;
mod wire;

pub use builder::Builder;
pub use client::{Client, Counts};
pub use decision::{Decision, DecisionSource, Status, UnavailablePolicy};
pub use error::Error;
pub use request::{Descriptor, Request, Unit};
pub use reservation::{Reservation, Reserved, Settled};
pub use wait::Waited;
