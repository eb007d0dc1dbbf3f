//! A layer that limits any HTTP or gRPC service: axum, tonic, hyper and other tower services.
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
//! **Keys.** The [`key`] module identifies the sender of a request, and [`Missing`] selects the
//! treatment of requests without a key.
//!
//! **Denied.** The service is not called. The response is that of [the table](crate::http): 429,
//! all headers and the JSON envelope; for gRPC, `RESOURCE_EXHAUSTED`.
//!
//! **Admitted.** The response gets the headers, unless [`RateLimitLayer::without_headers`] disables
//! them.
//!
//! **Several limiters** ([`RateLimitLayer::and`]) are one decision: a denied request is charged to
//! none. Nested layers, such as those of a router and of its route, are not: a request that the
//! inner one denies stays charged at the outer one, and responses have the headers of both.
//!
//! **Counters in Redis.** A limiter of [any store](crate::CounterStore) works here. While the store
//! does not answer, the limiter's [`OnStoreFailure`](crate::OnStoreFailure) decides: under `Error`
//! the response is 503, or `UNAVAILABLE` in gRPC. Under `Local`, the default, each process enforces
//! its share, except of limiters with slots or turns, for which the response is 503 too.
//!
//! **Responses of its own.** [`RateLimitLayer::on_denied`] changes or replaces the response to a
//! request that is not passed on.
//!
//! **Waiting.** Traffic-shaping limits (`leaky_bucket`, `smooth_bursty`, `warm_up`) make requests
//! wait: the request proceeds at its turn, and is denied at once if the wait would exceed
//! [`WAIT_MAX`]. All others deny at once. With [`RateLimitLayer::within`] every limit makes
//! requests wait, up to the given time. A client that disconnects while its request waits releases
//! the turn as far as possible (those behind it keep theirs). Waiting requires a tokio runtime with
//! its timer enabled.
//!
//! **Concurrency.** A slot of a concurrency limit is held until the response body has ended or is
//! dropped, not only until the headers are sent. A lease that ends before frees the slot earlier,
//! so make it longer than the longest response. That costs nothing on a memory store, which does
//! not outlive its process; every slot is released when its response is dropped. An upgraded
//! connection no longer holds the slot of its response. A request that waits for its turn holds its
//! slots meanwhile.
//!
//! **Slots and turns in one limiter** are possible, but a turn acquired with a slot is not
//! released, and its wait uses tokio's clock, not the limiter's. Two limiters on one layer avoid
//! both.

mod admission;
mod denial;
mod guards;
pub mod key;
mod layer;
mod service;
mod shared;
mod verdict;

pub use denial::{Denial, DenialReason};
pub use layer::{MISSING_KEY, Missing, RateLimitLayer, WAIT_MAX};
pub use service::{RateLimit, ResponseBody, ResponseFuture};
