//! The least that an axum server can do.

use axum::Router;
use axum::routing::get;

pub(super) async fn serve() -> anyhow::Result<()> {
    let (listener, address) = super::listener().await?;
    println!("{}", serde_json::json!({ "http": address.to_string() }));
    let router = Router::new().route("/", get(async || "Hello, World!"));
    Ok(axum::serve(listener, router).await?)
}
