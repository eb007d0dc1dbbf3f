//! Sends results to the URLs that clients have named, and the configuration allows.
//!
//! An attempt is booked in the store before it is made, so that one node makes it. Redirects are
//! not followed, and names that resolve to private addresses are not called.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::connect::dns::Name;
use sluicegate::Timestamp;
use tokio::time::timeout;
use tower_service::Service;
use tracing::{debug, warn};

use super::Deferrals;
use super::accept::IDEMPOTENCY_KEY;
use super::request::{DeferredRequest, millis};
use super::send::due_at;
use super::store::DeferredStore;
use super::tickets::ticket_json;
use crate::upstream::system_roots;
use sluicegate_server::https_client::{HttpsClient, describe, https_client_resolving};

/// Attempts to send a result.
const ATTEMPTS_MAX: u32 = 6;
/// Time for one.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An attempt that is not recorded in this time is repeated.
const LEASE: Duration = Duration::from_secs(60);

/// The client that sends results.
#[derive(Debug, Default)]
pub(super) struct CallbackSender {
    client: OnceLock<Option<CallbackClient>>,
}

type CallbackClient = HttpsClient<Full<Bytes>, PublicResolver>;

impl CallbackSender {
    /// Sends the result of a request in the background.
    pub(super) async fn send(
        &self,
        store: Arc<dyn DeferredStore>,
        deferrals: Arc<Deferrals>,
        mut request: DeferredRequest,
        now: Timestamp,
    ) {
        let client = self.client.get_or_init(|| {
            let client =
                system_roots().and_then(|roots| https_client_resolving(roots, PublicResolver));
            client.inspect_err(|error| warn!(error, "callbacks cannot be sent")).ok()
        });
        let (Some(client), Some(callback)) = (client.clone(), &mut request.callback) else {
            return;
        };
        callback.attempts = callback.attempts.saturating_add(1);
        let attempts = callback.attempts;
        callback.due_at = due_at_lease(now);
        request.version += 1;
        // Otherwise another node sends it, or the store fails.
        if !store.save(&request, None).await.unwrap_or(false) {
            return;
        }
        tokio::spawn(async move {
            let sent = post(&client, &request).await;
            let Some(callback) = &mut request.callback else { return };
            callback.is_delivered = sent.is_ok();
            callback.due_at = match &sent {
                Err(_) if attempts < ATTEMPTS_MAX => Some(due_at(now, attempts, None)),
                _ => None,
            };
            if let Err(error) = &sent {
                debug!(id = request.id, attempts, error, "callback failed");
                if callback.due_at.is_none() {
                    deferrals.metrics.callbacks_failed.fetch_add(1, Relaxed);
                    warn!(id = request.id, error, "callback given up: no attempt succeeded");
                }
            }
            request.version += 1;
            // If it fails, the result is sent again.
            let _ = store.save(&request, None).await;
        });
    }
}

fn due_at_lease(now: Timestamp) -> Option<u64> {
    let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    Some(millis(now).saturating_add(lease))
}

async fn post(client: &CallbackClient, request: &DeferredRequest) -> Result<(), String> {
    let url = request.callback.as_ref().map(|callback| callback.url.as_str()).unwrap_or_default();
    let ticket = format!("{}\n", ticket_json(request, 0, None));
    // The key of the result, not that of the request: a receiver recognizes repetitions by it. A
    // redriven request has another result.
    let key = format!("{}-{}", request.id, request.state.name());
    let posted = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("sluicegate/", env!("CARGO_PKG_VERSION")))
        .header(IDEMPOTENCY_KEY, key)
        .body(Full::new(Bytes::from(ticket)))
        .map_err(|error| error.to_string())?;
    let response = timeout(TIMEOUT, client.request(posted)).await.map_err(|_| "timed out")?;
    let status = response.map_err(|error| describe(&error))?.status();
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("status {}", status.as_u16())),
    }
}

/// Resolves names to public addresses. An address in a URL is not resolved: it is on the list.
#[derive(Debug, Clone)]
pub(super) struct PublicResolver;

impl Service<Name> for PublicResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<_> = addresses.filter(|address| is_public(address.ip())).collect();
            match public.is_empty() {
                true => Err(io::Error::other("the name has no public address")),
                false => Ok(public.into_iter()),
            }
        })
    }
}

/// Whether an address is one of the internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            let is_benchmark = first == 198 && (18..20).contains(&second);
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || address.is_documentation()
                || first == 0
                || first >= 240
                || is_shared
                || is_benchmark)
        }
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            // Global unicast is 2000::/3; 2002::/16 and 64:ff9b::/96 carry addresses of IPv4.
            first & 0xe000 == 0x2000 && first != 0x2002
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_not_public() {
        for address in [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "192.168.1.1",
            "172.16.0.1",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "2002:a00:1::",
            "64:ff9b::a00:1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
