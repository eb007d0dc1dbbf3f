//! Limits by plan: free accounts may send two requests per hour, paying ones four.
//!
//! Each plan has a limiter, and a request has a key at the limiter of its plan only. Requests
//! without an account are under the free plan, all together: no request is without a limit. A limit
//! by address applies on every plan. `Missing::Pass` belongs to the keys of the plans alone: on the
//! whole layer, it would disable the limit by address where the server provides no address.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin plans
//! cargo run -p sluicegate-examples --bin plans -- --serve 127.0.0.1:8080
//! curl -i -H 'x-api-key: k-alice' http://127.0.0.1:8080/hello
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use http::HeaderValue;
use http::request::Parts;
use sluicegate::limit::TokenBucket;
use sluicegate::tower::key::{Identify, peer_ip};
use sluicegate::tower::{DenialReason, Missing, RateLimitLayer};
use sluicegate::{CounterStore, LimitError, Limiter, Memory};
use sluicegate_examples::{Lifetime, listen};

/// An account, as the authentication finds it.
#[derive(Debug, Clone, Copy)]
struct Account {
    id: &'static str,
    plan: Plan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Free,
    Pro,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // With `sluicegate_redis::Redis::connect("redis://…")?` all processes count together.
    let store = Memory::new();
    let app = Router::new()
        .route("/hello", get(async || "hello\n"))
        .layer(limits(&store)?)
        // Outside of the limits: it runs before them.
        .layer(from_fn(authenticate));

    let (listener, stay) = listen().await?;
    let address = listener.local_addr()?;
    // With the peer's address; without it, all requests would share one limit by address.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
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

fn limits(store: &impl CounterStore) -> Result<RateLimitLayer, LimitError> {
    let limiter = |name: &str, per_hour: u64| {
        Limiter::builder().name(name).limit(TokenBucket::per_hour(per_hour).named(name)).on(store)
    };
    // The limiter of a plan ignores the requests of other plans.
    let on_plan = |plan| key_on_plan(plan).on_missing(Missing::Pass);
    let address = peer_ip(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0));
    Ok(RateLimitLayer::new(limiter("free", 2)?, on_plan(Plan::Free))
        .and(limiter("pro", 4)?, on_plan(Plan::Pro))
        .and(limiter("address", 10)?, address)
        .on_denied(|denial, mut response| {
            if matches!(denial.reason, DenialReason::Limit { .. })
                && plan_of(denial.request) == Plan::Free
            {
                response.headers_mut().insert("x-upgrade", HeaderValue::from_static("/plans"));
            }
            response
        }))
}

/// The key of requests on this plan.
fn key_on_plan(plan: Plan) -> impl Fn(&Parts) -> Option<&'static str> + Send + Sync {
    move |request| {
        let account = request.extensions.get::<Account>();
        let id = account.map_or("anonymous", |account| account.id);
        (plan_of(request) == plan).then_some(id)
    }
}

fn plan_of(request: &Parts) -> Plan {
    request.extensions.get::<Account>().map_or(Plan::Free, |account| account.plan)
}

/// A service has a database of API keys.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let account = match request.headers().get("x-api-key").map(HeaderValue::as_bytes) {
        Some(b"k-alice") => Some(Account { id: "alice", plan: Plan::Free }),
        Some(b"k-bob") => Some(Account { id: "bob", plan: Plan::Pro }),
        _ => None,
    };
    if let Some(account) = account {
        request.extensions_mut().insert(account);
    }
    next.run(request).await
}

/// Calls the API with several keys.
async fn show(api: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    let keys = [
        "k-alice", "k-alice", "k-alice", "k-bob", "k-bob", "k-bob", "k-bob", "k-bob", "forged-1",
        "forged-2", "forged-3",
    ];
    for key in keys {
        let reply = sluicegate_examples::get(api, "/hello", &[("x-api-key", key)]).await?;
        let (left, upgrade) = (reply.header("x-ratelimit-remaining"), reply.header("x-upgrade"));
        println!("{key}: {}, {left} left, upgrade {upgrade}", reply.status);
    }
    Ok(())
}
