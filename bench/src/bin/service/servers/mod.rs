//! Servers to compare with. Each prints where it listens, as `sluicegate serve --json` does, and serves until it is killed.

mod hello;
mod stub;
mod tonic;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::bail;
use tokio::net::TcpListener;

/// The child's side: becomes one of them.
pub(crate) fn child(name: &str) -> anyhow::Result<ExitCode> {
    match name {
        "stub" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(stub::serve())?;
        }
        // As `#[tokio::main]` has it, and as `sluicegate` does: a worker for each core that it may use.
        "tonic" => tokio::runtime::Runtime::new()?.block_on(tonic::serve())?,
        "hello" => tokio::runtime::Runtime::new()?.block_on(hello::serve())?,
        _ => bail!("there is no server `{name}`"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn listener() -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
