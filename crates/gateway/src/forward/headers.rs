//! Heads of requests and responses, as a proxy passes them on (RFC 9110, section 7.6).

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{
    CONNECTION, EXPECT, Entry, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Request, Version};

use super::{Forwarding, path};
use crate::body::RequestBody;
use crate::error::ProxyError;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

/// Headers of one connection, whatever `Connection` says.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The host that a request is for: of its target, or of its only `Host`.
pub(crate) fn host_of(request: &Request<impl Sized>) -> Result<&str, ProxyError> {
    let host = request.headers().get_all(HOST).iter();
    let mut lines = host.map(|host| host.to_str().ok());
    let header = lines.next();
    if lines.next().is_some() {
        return Err(ProxyError::BadRequest("The request has several Host headers."));
    }
    match (request.uri().authority(), header) {
        (Some(authority), _) => Ok(authority.as_str()),
        (None, Some(Some(host))) => Ok(host),
        (None, Some(None)) => Err(ProxyError::BadRequest("The Host header is malformed.")),
        (None, None) if request.version() == Version::HTTP_10 => Ok(""),
        (None, None) => Err(ProxyError::BadRequest("The request has no Host header.")),
    }
}

/// Makes the head of a request that of a proxy.
pub(super) fn rewrite_request(
    request: &mut Request<RequestBody>,
    forwarding: &Forwarding<'_>,
) -> Result<(), ProxyError> {
    let malformed = |_| ProxyError::BadRequest("The Host is malformed.");
    let host = HeaderValue::from_str(host_of(request)?).map_err(malformed)?;
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    if let Some(prefix) = forwarding.strip_prefix {
        path::strip_prefix(request.uri_mut(), prefix)?;
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    // gRPC requires it to pass.
    let has_trailers = headers.get(TE).is_some_and(|te| te.as_bytes() == b"trailers");
    headers.remove(TE);
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // The server side has answered it.
    headers.remove(EXPECT);
    if !forwarding.is_trusted {
        for name in [FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP] {
            headers.remove(name);
        }
    }
    if let Some(peer) = forwarding.peer {
        append_address(headers, peer.to_canonical());
    }
    if let Entry::Vacant(vacant) = headers.entry(X_FORWARDED_PROTO) {
        let scheme = if forwarding.is_tls { "https" } else { "http" };
        vacant.insert(HeaderValue::from_static(scheme));
    }
    if let Entry::Vacant(vacant) = headers.entry(X_FORWARDED_HOST) {
        vacant.insert(host.clone());
    }
    let host = match forwarding.host {
        Some(host) => HeaderValue::from_str(host)
            .map_err(|_| ProxyError::BadRequest("The host of the route is malformed."))?,
        None => host,
    };
    headers.insert(HOST, host);
    Ok(())
}

/// Makes the head of a response that of a proxy.
pub(super) fn rewrite_response(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn append_address(headers: &mut HeaderMap, peer: IpAddr) {
    let mut list = String::new();
    for line in headers.get_all(X_FORWARDED_FOR) {
        // Addresses are ASCII; anything else cannot be one.
        if let Ok(line) = line.to_str() {
            list.push_str(line);
            list.push_str(", ");
        }
    }
    // Writing to a string cannot fail.
    let _ = write!(list, "{peer}");
    if let Ok(value) = HeaderValue::try_from(list) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}
