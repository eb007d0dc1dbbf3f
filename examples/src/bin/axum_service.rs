//! The axum service of `docs/guide/embedding.md`: limits by API key and by address, counted in this
//! process, or in Redis with `REDIS_URL`.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin axum_service -- 127.0.0.1:8080
//! curl -i -H 'x-api-key: alice' http://127.0.0.1:8080/hello
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use sluicegate::clock::{Clock, SystemClock};
use sluicegate::limit::TokenBucket;
use sluicegate::tower::key::{Proxies, header, peer_ip};
use sluicegate::tower::{Missing, RateLimitLayer};
use sluicegate::{CounterStore, Limiter, Memory};
use sluicegate_redis::{LinkError, Redis};

type Error = Box<dyn std::error::Error>;

/// The routes. Tests pass a manual clock.
fn app(store: &impl CounterStore, clock: impl Clock + Clone + 'static) -> Result<Router, Error> {
    let limiter = |name: &str, per_minute: u64| {
        let limit = TokenBucket::per_minute(per_minute).named(name);
        Limiter::builder().name(name).limit(limit).clock(clock.clone()).on(store)
    };
    // The client's address: from headers of these proxies, otherwise that of the peer.
    let peer = peer_ip(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0));
    let client = peer.behind(Proxies::parse(["127.0.0.1", "10.0.0.0/8"])?);
    let limits = RateLimitLayer::new(limiter("key", 20)?, header("x-api-key"))
        .and(limiter("address", 60)?, client)
        .on_missing(Missing::Reject);
    Ok(Router::new().route("/hello", get(async || "hello\n")).layer(limits))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let clock = SystemClock::get();
    let app = match std::env::var("REDIS_URL") {
        Ok(url) => {
            let redis = Redis::connect(&url)?;
            match redis.ready(Duration::from_secs(5)).await {
                // Meanwhile this process enforces its share.
                Err(LinkError::Unreachable(reason)) => eprintln!("no connection yet: {reason}"),
                result => result?,
            }
            app(&redis, clock)?
        }
        Err(_) => app(&Memory::new(), clock)?,
    };
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("serving on {}", listener.local_addr()?);
    // With the peer's address, which the limit by address needs.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use sluicegate::clock::ManualClock;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_key_has_twenty_requests_per_minute() -> Result<(), Error> {
        let clock = ManualClock::new();
        let app = app(&Memory::new(), clock.clone())?;
        let send = async || -> Result<StatusCode, Error> {
            let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 50_000)));
            let request = Request::get("/hello").header("x-api-key", "alice").extension(peer);
            Ok(app.clone().oneshot(request.body(Body::empty())?).await?.status())
        };
        for _ in 0..20 {
            assert_eq!(send().await?, StatusCode::OK);
        }
        assert_eq!(send().await?, StatusCode::TOO_MANY_REQUESTS);
        clock.advance(Duration::from_secs(3));
        assert_eq!(send().await?, StatusCode::OK);
        Ok(())
    }
}
