//! Client of a service: checks, waits and reservations; and calls to a third-party API, paced by
//! its rate-limit headers.
//!
//! The service runs in this process for the demonstration; usually it is `sluicegate serve` on
//! another machine. The API allows three calls and then announces the wait in a header: the layer
//! around the client waits, and the caller sees no 429.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin client
//! ```

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use sluicegate::Limiter;
use sluicegate::limit::FixedWindow;
use sluicegate::tower::RateLimitLayer;
use sluicegate::tower::key::Everybody;
use sluicegate_client::pace::PacedLayer;
use sluicegate_client::{Client, Request, Reserved};
use sluicegate_server::server::Server;
use sluicegate_server::settings::{Settings, Vars};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt};

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, limits: { name: calls, algorithm: fixed_window, rate: 2/day } }
  - { key: mail, limits: { name: mails, algorithm: token_bucket, rate: 10/s, burst: 1 } }
  - { key: tokens, limits: { name: tokens, algorithm: fixed_window, rate: 1000/day } }
";

type Anything = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Anything> {
    let client = Client::builder(service().await?).timeout(Duration::from_secs(10)).build()?;
    check(&client).await?;
    wait(&client).await?;
    reserve(&client).await?;
    call_an_api().await
}

async fn check(client: &Client) -> Result<(), Anything> {
    let alice = Request::new("shop").descriptor([("user", "alice")]);
    for _ in 0..4 {
        let decision = client.check(&alice).await?;
        let (allowed, left) = (decision.allowed, decision.remaining.unwrap_or_default());
        println!("alice: allowed {allowed}, {left} left, says {:?}", decision.source);
    }
    Ok(())
}

async fn wait(client: &Client) -> Result<(), Anything> {
    let mail = Request::new("shop").descriptor([("mail", "example.org")]);
    for _ in 0..3 {
        let waited = client.wait(&mail, Duration::from_secs(5)).await?;
        println!("mail: allowed {} after waiting its turn", waited.decision.allowed);
    }
    Ok(())
}

async fn reserve(client: &Client) -> Result<(), Anything> {
    let prompt = Request::new("shop").descriptor([("tokens", "alice")]).hits(800);
    let Reserved::Held(held) = client.reserve(&prompt, Duration::from_secs(60)).await? else {
        return Err("there are a thousand".into());
    };
    println!(
        "tokens: {} left while 800 are reserved",
        held.decision().remaining.unwrap_or_default()
    );
    let settled = held.commit(250).await?;
    println!("tokens: 250 were used, {} came back", settled.returned);
    Ok(())
}

/// A third-party API: three calls per second.
async fn call_an_api() -> Result<(), Anything> {
    let limiter = Limiter::new(FixedWindow::per_second(3))?;
    let api = axum::Router::new()
        .route("/", axum::routing::get(async || "hello"))
        .layer(RateLimitLayer::new(limiter, Everybody));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, api).into_future());

    let http = HttpClient::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    // A window of one second is announced in whole seconds, so that a call at its edge can be
    // rejected: it is retried.
    let http = PacedLayer::new().retrying(3).layer(http);
    let mut answered = 0;
    for _ in 0..7 {
        let call = http::Request::get(format!("http://{address}/")).body(Empty::new())?;
        answered += u32::from(http.clone().oneshot(call).await?.status().is_success());
    }
    println!("api: {answered} of 7 calls were answered, at its pace");
    Ok(())
}

/// Starts a service and returns its address.
async fn service() -> Result<String, Anything> {
    let rules =
        std::env::temp_dir().join(format!("sluicegate-example-{}.yaml", std::process::id()));
    std::fs::write(&rules, RULES)?;
    let any = ["SLUICEGATE_HTTP", "SLUICEGATE_GRPC", "SLUICEGATE_ADMIN"]
        .map(|name| (name, "127.0.0.1:0"));
    let mut vars = Vars::new(any);
    vars.set_flag("--rules", rules.display().to_string());
    let (settings, _) = Settings::read(&vars).map_err(|problems| format!("{problems:?}"))?;
    let server = Server::start(settings).await?;
    std::fs::remove_file(rules)?;
    let address = format!("http://{}", server.addresses().http);
    let (sender, reread) = mpsc::channel(1);
    tokio::spawn(async move {
        let _sender = sender;
        server.run(std::future::pending(), reread).await
    });
    Ok(address)
}
