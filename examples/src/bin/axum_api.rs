//! An axum API with limits per user and in total.
//!
//! Clients are identified by their API key, or by their address without one, and may send three
//! requests per hour each and five in total. A request is charged to both limits or to neither:
//! Bob, denied by the global limit, keeps his quota. `/health` is not limited.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin axum_api
//! cargo run -p sluicegate-examples --bin axum_api -- --serve 127.0.0.1:8080
//! curl -i -H 'x-api-key: alice' http://127.0.0.1:8080/hello
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use sluicegate::limit::TokenBucket;
use sluicegate::tower::RateLimitLayer;
use sluicegate::tower::key::{Everybody, first_of, header, peer_ip};
use sluicegate::{LimitError, Limiter};
use sluicegate_examples::{Lifetime, listen};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Router::new()
        .route("/hello", get(async || "hello\n"))
        .route("/health", get(async || "fine\n"))
        .layer(limits()?)
        // Makes the peer address available to axum's extractors.
        .into_make_service_with_connect_info::<SocketAddr>();

    let (listener, stay) = listen().await?;
    let address = listener.local_addr()?;
    let server = axum::serve(listener, app).into_future();
    match stay {
        Lifetime::Service => server.await?,
        Lifetime::Demo => tokio::select! {
            ended = server => ended?,
            shown = show(address) => shown?,
        },
    }
    Ok(())
}

fn limits() -> Result<RateLimitLayer, LimitError> {
    let per_user = Limiter::new(TokenBucket::per_hour(3).named("user"))?;
    let global = Limiter::new(TokenBucket::per_hour(5).named("global"))?;
    let by_address = peer_ip(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0));
    let user = first_of((header("x-api-key"), by_address));
    Ok(RateLimitLayer::new(per_user, user)
        .and(global, Everybody)
        .skip(|request| request.uri.path() == "/health"))
}

/// Calls the API as several users.
async fn show(api: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    for user in ["alice", "alice", "alice", "alice", "somebody", "bob", "bob"] {
        let key = Some(("x-api-key", user)).filter(|_| user != "somebody");
        let reply = sluicegate_examples::get(api, "/hello", key.as_slice()).await?;
        let remaining = reply.header("x-ratelimit-remaining");
        println!("{user}: {} {}, {remaining} left", reply.status, reply.body.trim());
    }
    let health = sluicegate_examples::get(api, "/health", &[]).await?;
    println!("health: {} {}", health.status, health.body.trim());
    Ok(())
}
