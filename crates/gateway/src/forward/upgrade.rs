//! Upgrades of HTTP/1.1, such as WebSocket: after the switch, bytes are copied both ways.
//!
//! Nothing in a tunnel is limited, so an upgrade to another version of HTTP is not passed on:
//! requests could hide in it. Such a request is forwarded without the upgrade, as if the upstream
//! ignored it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Version};
use sluicegate_server::http::Upgraded;
use sluicegate_server::http::http1::has_token;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy_bidirectional};
use tokio::time::sleep;

use crate::upstream::UpgradedUpstream;

/// An upgraded connection, on both sides.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(super) upstream: UpgradedUpstream,
    /// Time without data.
    pub(super) idle: Duration,
}

/// The upgrade that a request asks for, if it can be passed on.
pub(super) fn requested(head: &Parts) -> Option<HeaderValue> {
    if head.version != Version::HTTP_11 {
        return None;
    }
    let upgrade = head.headers.get(UPGRADE)?;
    let mut connection = head.headers.get_all(CONNECTION).iter();
    if !connection.any(|line| has_token(line, "upgrade")) {
        return None;
    }
    let mut lines = head.headers.get_all(UPGRADE).iter();
    let is_passed = lines.all(|line| line.to_str().is_ok_and(|line| !line.split(',').any(is_http)));
    is_passed.then(|| upgrade.clone())
}

/// Whether a protocol carries requests of HTTP.
fn is_http(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(name.as_str(), "h2" | "h2c" | "h3" | "http" | "tls")
}

/// Writes the headers of an upgrade, which are those of one connection.
pub(super) fn set_headers(headers: &mut HeaderMap, upgrade: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, upgrade);
}

impl Tunnel {
    /// Copies bytes both ways until both sides end, one fails, or none has sent for the idle time.
    pub(crate) async fn run(self, client: Upgraded) {
        let (sent, client) = client.into_parts();
        // The rest of it is held until the end.
        let UpgradedUpstream { stream, read, .. } = self.upstream;
        let activity = Arc::new(AtomicU64::new(0));
        let mut client = Counted { io: client, activity: activity.clone() };
        let mut upstream = Counted { io: stream, activity: activity.clone() };
        let is_idle = async {
            loop {
                let seen = activity.load(Relaxed);
                sleep(self.idle).await;
                if activity.load(Relaxed) == seen {
                    return;
                }
            }
        };
        tokio::select! {
            // An error ends the tunnel as an end does.
            _ = async {
                upstream.write_all(&sent).await?;
                client.write_all(&read).await?;
                copy_bidirectional(&mut client, &mut upstream).await
            } => {}
            () = is_idle => {}
        }
    }
}

/// One side of a tunnel; counts its reads.
struct Counted<T> {
    io: T,
    activity: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.activity.fetch_add(1, Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn is_requested(version: Version, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        requested(&request.body(()).unwrap().into_parts().0).is_some()
    }

    #[test]
    fn an_upgrade_needs_both_headers_and_http_1_1() {
        let websocket = [("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")];
        assert!(is_requested(Version::HTTP_11, &websocket));
        assert!(!is_requested(Version::HTTP_10, &websocket));
        assert!(!is_requested(Version::HTTP_2, &websocket));
        assert!(!is_requested(Version::HTTP_11, &websocket[..1]));
        assert!(!is_requested(Version::HTTP_11, &websocket[1..]));
    }

    #[test]
    fn an_upgrade_to_http_is_not_passed_on() {
        for upgrade in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.2, HTTP/1.1"] {
            let headers = [("upgrade", upgrade), ("connection", "upgrade")];
            assert!(!is_requested(Version::HTTP_11, &headers), "{upgrade}");
        }
        let lines = [("upgrade", "websocket"), ("upgrade", "h2c"), ("connection", "upgrade")];
        assert!(!is_requested(Version::HTTP_11, &lines));
    }
}
