//! A paced client never receives a 429.
//!
//! An API accepts 200 requests per second from each client, with a burst of ten. One client sends
//! as fast as it can and is mostly denied. The other consults a local limiter before each request:
//! `acquire` books a slot and waits for it. It is not slower, since no client gets more than 200
//! per second.
//!
//! The paced client leaves the API's burst unused, as a reserve for requests that the network
//! bunches. The API still enforces its limit, since not every client is paced.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin pacing_client
//! ```

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use sluicegate::Limiter;
use sluicegate::limit::TokenBucket;
use sluicegate::tower::key::header;
use sluicegate::tower::{RateLimit, RateLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

const RATE: u64 = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(TokenBucket::per_second(RATE).burst(10))?;
    let api = RateLimitLayer::new(limiter, header("x-client")).layer(service_fn(answer));

    let mut denied = 0;
    for _ in 0..200 {
        denied += usize::from(is_denied(&api, "hasty").await?);
    }
    println!("hasty: 200 requests, {denied} denied");

    let pace = Limiter::new(TokenBucket::per_second(RATE).burst(1))?;
    let mut denied = 0;
    for _ in 0..40 {
        pace.of("api").acquire().await?;
        denied += usize::from(is_denied(&api, "polite").await?);
    }
    println!("polite: 40 requests, {denied} denied");
    Ok(())
}

async fn answer(_: Request<()>) -> Result<Response<Empty<Bytes>>, Infallible> {
    Ok(Response::new(Empty::new()))
}

async fn is_denied<S>(api: &RateLimit<S>, client: &str) -> Result<bool, Box<dyn std::error::Error>>
where
    S: Service<Request<()>, Response = Response<Empty<Bytes>>, Error = Infallible> + Clone,
{
    let request = Request::builder().header("x-client", client).body(())?;
    let response = api.clone().oneshot(request).await?;
    Ok(response.status() == StatusCode::TOO_MANY_REQUESTS)
}
