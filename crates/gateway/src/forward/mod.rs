//! Forwards a request to an upstream.

mod headers;

use std::net::IpAddr;

use http::{Request, Response, Version};

pub(crate) use self::headers::host_of;
use crate::body::{RequestBody, ResponseBody};
use crate::error::ProxyError;
use crate::upstream::Upstream;

/// What the upstream is told about the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarded {
    /// Address of the client's connection.
    pub(crate) peer: Option<IpAddr>,
    /// Whether what it says about the clients behind it is true.
    pub(crate) is_trusted: bool,
}

/// Sends a request to an upstream; the response streams.
pub(crate) async fn forward(
    upstream: &Upstream,
    worker: usize,
    mut request: Request<RequestBody>,
    forwarded: Forwarded,
) -> Result<Response<ResponseBody>, ProxyError> {
    headers::rewrite_request(&mut request, forwarded)?;
    let mut response = upstream.send(worker, request).await?;
    headers::rewrite_response(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    Ok(response.map(ResponseBody::upstream))
}
