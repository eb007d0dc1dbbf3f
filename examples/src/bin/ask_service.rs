//! Client of a remote service: checks, waits, reserves and commits. This is the program of the
//! guide, `docs/guide/clients.md`.
//!
//! ```console
//! cargo run -- serve --rules docs/examples/clients.yaml
//! cargo run -p sluicegate-examples --bin ask_service
//! ```

use std::time::Duration;

use sluicegate_client::{Client, Request, Reserved, UnavailablePolicy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = std::env::var("SLUICEGATE").unwrap_or("http://127.0.0.1:8080".to_owned());
    let client = Client::builder(service)
        .timeout(Duration::from_secs(1))
        .on_unavailable(UnavailablePolicy::Allow)
        .build()?;

    let user = Request::new("shop").descriptor([("user", "rust")]);
    for call in 1..=2 {
        let decision = client.check(&user).await?;
        if let Some(wait) = decision.retry_after {
            println!("call {call}: wait {} s", wait.as_secs_f64().ceil());
            client.until_allowed(&user, Duration::from_secs(30)).await?;
        }
        println!("call {call}: go");
    }

    let tokens = Request::new("shop").descriptor([("tokens", "rust")]).hits(800);
    if let Reserved::Held(held) = client.reserve(&tokens, Duration::from_secs(60)).await? {
        let used = 250; // as it turned out
        let settled = held.commit(used).await?;
        println!("reserved 800, used {used}, {} given back", settled.returned);
    }
    Ok(())
}
