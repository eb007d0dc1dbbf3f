//! Forwards a request to an upstream.

mod headers;
mod path;
mod upgrade;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::request::Parts;
use http::{Response, StatusCode, Version};

pub(crate) use self::headers::{
    check_transfer_encoding, host_of, join_cookies, name_of, remove_named_by_connection,
    rewrite_response,
};
pub(crate) use self::path::{LoosePath, matched_form, normalize};
pub(crate) use self::upgrade::Tunnel;
use crate::body::ResponseBody;
use crate::error::ProxyError;
use crate::header_changes::{HeaderEdits, Placeholders};
use crate::upstream::{Delivery, Server, Upstream, UpstreamRequest};

/// How a request is forwarded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarding<'a> {
    /// Address of the client's connection.
    pub(crate) peer: Option<IpAddr>,
    /// Whether what it says about the clients behind it is true.
    pub(crate) is_trusted: bool,
    /// Whether its connection is encrypted.
    pub(crate) is_tls: bool,
    /// Removed from the path.
    pub(crate) strip_prefix: Option<&'a str>,
    /// Sent in place of the client's host.
    pub(crate) host: Option<&'a str>,
    /// The worker.
    pub(crate) worker: usize,
    /// Hash of the value that the server is chosen by.
    pub(crate) key: Option<u64>,
    /// Importance of the request, and its client, while it waits for the upstream.
    pub(crate) priority: u8,
    pub(crate) client: u64,
    /// Time for a tunnel without data.
    pub(crate) tunnel_idle: Duration,
    /// Changes to its headers.
    pub(crate) edits: Option<(&'a HeaderEdits, Placeholders<'a>)>,
}

/// Makes the head of a request that which the upstream gets.
pub(crate) fn rewrite(head: &mut Parts, forwarding: &Forwarding<'_>) -> Result<(), ProxyError> {
    headers::rewrite_request(head, forwarding)?;
    if let Some((edits, values)) = forwarding.edits {
        edits.apply(&mut head.headers, values);
    }
    Ok(())
}

/// Sends a request to an upstream; the response streams. `server` is the one that got it.
pub(crate) async fn forward(
    upstream: &Upstream,
    request: &mut UpstreamRequest,
    forwarding: Forwarding<'_>,
    server: &mut Option<Arc<Server>>,
) -> Result<Response<ResponseBody>, ProxyError> {
    let upgrade = upgrade::requested(&request.head);
    rewrite(&mut request.head, &forwarding)?;
    let delivery = Delivery {
        worker: forwarding.worker,
        key: forwarding.key,
        is_upgrade: upgrade.is_some(),
        priority: forwarding.priority,
        client: forwarding.client,
    };
    if let Some(upgrade) = upgrade {
        upgrade::set_headers(&mut request.head.headers, upgrade);
    }
    let mut response = upstream.send(delivery, request, server).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let protocol = response.headers().get(UPGRADE).cloned();
        let (head, body) = response.into_parts();
        let mut response = Response::from_parts(head, ());
        let upstream = body.into_upgraded().ok_or(ProxyError::BadGateway)?;
        let tunnel = Tunnel { upstream, idle: forwarding.tunnel_idle };
        rewrite_response(response.headers_mut());
        if let Some(protocol) = protocol {
            upgrade::set_headers(response.headers_mut(), protocol);
        }
        return Ok(response.map(|()| ResponseBody::tunnel(tunnel)));
    }
    rewrite_response(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(ResponseBody::upstream))
}
