//! A layer that limits any HTTP or gRPC service: axum, tonic, hyper, or whatever else is a tower
//! service.
//!
//! ```
//! use sluicegate::Limiter;
//! use sluicegate::limit::{FixedWindow, TokenBucket};
//! use sluicegate::tower::RateLimitLayer;
//! use sluicegate::tower::key::{Everybody, header};
//!
//! let per_user = Limiter::new(TokenBucket::per_second(10).burst(50).named("user"))?;
//! let global = Limiter::new(TokenBucket::per_second(10_000).named("global"))?;
//! let layer = RateLimitLayer::new(per_user, header("x-api-key"))
//!     .and(global, Everybody)
//!     .cost(|request| if request.uri.path() == "/search" { 5 } else { 1 })
//!     .skip(|request| request.uri.path() == "/health");
//! // axum: Router::new().route(…).layer(layer)
//! // tonic: Server::builder().layer(layer).add_service(…)
//! # Ok::<(), sluicegate::LimitError>(())
//! ```
//!
//! **Who.** The [`key`] module says how a request is told whose it is, and [`Missing`] what happens
//! if it is not.
//!
//! **Denied.** The service is not called. The answer is that of [the one table](crate::http): 429,
//! all headers and the JSON envelope; for gRPC, `RESOURCE_EXHAUSTED`.
//!
//! **Admitted.** The response gets the headers, unless [`RateLimitLayer::without_headers`] says no.
//!
//! **Several limiters** ([`RateLimitLayer::and`]) agree, or nobody charges the request.
//!
//! **Waiting.** Limits that are there to make requests wait (`leaky_bucket`, `smooth_bursty`,
//! `warm_up`) do: the request goes on when its turn has come, and is denied at once if that would
//! take longer than [`WAIT_MAX`]. All others deny at once. With [`RateLimitLayer::within`] every
//! limit makes requests wait, for so long at most. A client that goes away while its request waits
//! gives back the turn, as far as a turn can be given back (those behind it keep theirs). This
//! needs a tokio runtime with its timer enabled; without waiting, none is needed.
//!
//! **At a time.** A slot of a concurrency limit is held until the response body has ended or is
//! dropped, not only until its headers are there. A lease that ends before frees the slot earlier:
//! let it be longer than the longest response. That costs nothing on a memory store, which does not
//! outlive its process; every slot is given back when its response is dropped. An upgraded
//! connection has left its response behind, and with it its slot. A request that waits for its turn
//! holds its slots meanwhile.
//!
//! **Slots and turns in one limiter** are possible, but a turn that comes with a slot is not given
//! back, and is waited for on tokio's clock, not the limiter's. Two limiters on one layer have
//! neither flaw.

mod admission;
mod guards;
pub mod key;
mod layer;
mod service;
mod verdict;

pub use layer::{MISSING_KEY, Missing, RateLimitLayer, WAIT_MAX};
pub use service::{RateLimit, ResponseBody, ResponseFuture};
