//! Asks a Sluicegate service, and paces itself by what it is told.
//!
//! ```no_run
//! use sluicegate_client::{Client, Request};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), sluicegate_client::Error> {
//! let client = Client::new("http://127.0.0.1:8080")?;
//! let decision = client.check(&Request::new("shop").descriptor([("user", "42")])).await?;
//! if !decision.allowed {
//!     println!("come back in {:?}", decision.retry_after);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | to | there is |
//! |---|---|
//! | ask, one or many; look; give back | [`Client::check`], [`check_many`](Client::check_many), [`peek`](Client::peek), [`refund`](Client::refund) |
//! | ask until the answer is yes | [`Client::until_allowed`] |
//! | let the service make it wait | [`Client::wait`] |
//! | charge what is known only afterwards | [`Client::reserve`], then [`Reservation::commit`] or [`cancel`](Reservation::cancel) |
//! | call somebody else's API as fast as it lets you | [`pace`], and with the feature `tower` a layer that does it |
//!
//! **It does not ask what it knows.** Who was denied is denied until the time that the service told, without a request.
//!
//! **It does not make things worse.** What got no answer is asked again a few times, after a time that chance spreads, under a key by which the service tells that it is the same
//! question; further tries are bounded to a share of all; and after several failures in a row only one request now and then looks whether the service is back.
//!
//! **It has an answer when the service has none**: [`WhenAway`] decides, and [`Decision::source`] says that it did.

#![forbid(unsafe_code)]

mod asking;
mod breaker;
mod builder;
mod chance;
mod client;
mod connect;
mod counts;
mod decision;
mod denials;
mod error;
pub mod pace;
mod policy;
mod post;
mod request;
mod reservation;
mod retry;
mod until;
mod waiting;
mod wire;

pub use builder::Builder;
pub use client::Client;
pub use counts::Counts;
pub use decision::{Asked, Decision, Status};
pub use error::Error;
pub use policy::WhenAway;
pub use request::{Descriptor, Request, Unit};
pub use reservation::{Reservation, Reserved, Settled};
pub use waiting::Waited;
