//! Heads of requests and responses, as a proxy passes them on (RFC 9110, section 7.6).

use std::net::IpAddr;

use http::header::{CONNECTION, COOKIE, Entry, HOST, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Version};
use sluicegate_rules::mapping::address_text;

use super::{Forwarding, path};
use crate::error::ProxyError;
use crate::limit::EXCEEDED;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

/// Headers that the gateway sets. Others must not be able to, nor to remove them.
const OWN: [HeaderName; 6] =
    [FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_REAL_IP, EXCEEDED];

/// The host that a request is for: of its target, or of its only `Host`.
pub(crate) fn host_of(head: &Parts) -> Result<&str, ProxyError> {
    let host = head.headers.get_all(HOST).iter();
    let mut lines = host.map(|host| host.to_str().ok());
    let header = lines.next();
    if lines.next().is_some() {
        return Err(ProxyError::BadRequest("The request has several Host headers."));
    }
    let host = match (head.uri.authority(), header) {
        (Some(authority), _) => Some(authority.as_str()),
        (None, Some(host)) => host,
        (None, None) if head.version == Version::HTTP_10 => Some(""),
        (None, None) => return Err(ProxyError::BadRequest("The request has no Host header.")),
    };
    let malformed = ProxyError::BadRequest("The host of the request is malformed.");
    host.filter(|host| name_of(host).is_some()).ok_or(malformed)
}

/// The name of a host, without port and final dot; `None` if it is malformed.
pub(crate) fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (&host[..address.len() + 2], port),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty()
        || port.starts_with(':') && port.bytes().skip(1).all(|byte| byte.is_ascii_digit());
    let is_name = match name.strip_prefix('[') {
        Some(address) => address.trim_end_matches(']').bytes().all(is_address_byte),
        None => name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')),
    };
    (is_port && is_name).then(|| name.strip_suffix('.').unwrap_or(name))
}

const fn is_address_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')
}

/// Refuses a body that is encoded for the connection otherwise than in chunks: it cannot be decoded
/// here, and the upstream would not know that it is encoded.
pub(crate) fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), ProxyError> {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(first) = lines.next() else { return Ok(()) };
    match first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") && lines.next().is_none() {
        true => Ok(()),
        false => Err(ProxyError::BadRequest("The transfer encoding must be chunked alone.")),
    }
}

/// Joins the pieces of `Cookie` that HTTP/2 allows (RFC 9113, section 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let Entry::Occupied(mut cookies) = headers.entry(COOKIE) else { return };
    if cookies.iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<_> = cookies.iter().map(HeaderValue::as_bytes).collect();
    // Values joined by valid bytes are valid.
    if let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        cookies.insert(joined);
    }
}

/// Removes the headers that `Connection` names, before anything reads them: what identifies and
/// limits a client is what the upstream gets.
pub(crate) fn remove_named_by_connection(headers: &mut HeaderMap) {
    let is_protected = |name: &HeaderName| {
        matches!(*name, CONNECTION | HOST | TE | TRANSFER_ENCODING | UPGRADE) || OWN.contains(name)
    };
    for name in named_by_connection(headers) {
        if !is_protected(&name) {
            headers.remove(name);
        }
    }
}

/// Makes the head of a request that of a proxy.
pub(super) fn rewrite_request(
    head: &mut Parts,
    forwarding: &Forwarding<'_>,
) -> Result<(), ProxyError> {
    // `host_of` has accepted it.
    let host = match head.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str())
            .map_err(|_| ProxyError::BadRequest("The Host is malformed."))?,
        None => head.headers.get(HOST).cloned().unwrap_or(HeaderValue::from_static("")),
    };
    if head.uri.authority().is_some() {
        let path = match head.uri.path_and_query() {
            // `http://a?x` has no path; as text it gets one.
            Some(query) if query.as_str().starts_with('?') => {
                let path = PathAndQuery::try_from(query.to_string());
                path.map_err(|_| ProxyError::BadRequest("The path is malformed."))?
            }
            Some(path) => path.clone(),
            None => PathAndQuery::from_static("/"),
        };
        head.uri = Uri::from(path);
    }
    if let Some(prefix) = forwarding.strip_prefix {
        path::strip_prefix(&mut head.uri, prefix)?;
    }
    head.version = Version::HTTP_11;
    let headers = &mut head.headers;
    let mut has_trailers = false;
    remove_where(headers, |name, value| match name.as_str() {
        // gRPC requires it to pass.
        "te" => {
            has_trailers |= value.as_bytes() == b"trailers";
            true
        }
        // The server side has answered the one; the others of a request are not forwarded.
        "expect" | "trailer" => true,
        "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto"
        | "x-real-ip" => !forwarding.is_trusted,
        _ => is_hop_by_hop(name) || is_alias(name),
    });
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
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
pub(crate) fn rewrite_response(headers: &mut HeaderMap) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    remove_where(headers, |name, _| is_hop_by_hop(name));
}

/// Removes headers. Most heads have none of them, and looking up each would hash each.
fn remove_where(
    headers: &mut HeaderMap,
    mut is_removed: impl FnMut(&HeaderName, &HeaderValue) -> bool,
) {
    while let Some((name, _)) = headers.iter().find(|(name, value)| is_removed(name, value)) {
        let name = name.clone();
        headers.remove(name);
    }
}

/// Whether a header is of one connection, also if `Connection` does not name it.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Names of headers in `Connection`; nothing is allocated without any.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter();
    let options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let options = options.map(<[u8]>::trim_ascii).filter(|option| {
        !option.eq_ignore_ascii_case(b"close") && !option.eq_ignore_ascii_case(b"keep-alive")
    });
    options.filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
}

/// Whether servers of CGI and WSGI confuse a header with one of the gateway, such as
/// `X_Forwarded_For`.
fn is_alias(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let is_same = |own: &HeaderName| {
        let own = own.as_str().as_bytes();
        own.len() == name.len()
            && own.iter().zip(name).all(|(own, byte)| own == byte || (*own, *byte) == (b'-', b'_'))
    };
    name.contains(&b'_') && OWN.iter().any(is_same)
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
    list.push_str(&address_text(peer));
    if let Ok(value) = HeaderValue::try_from(list) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_and_a_port() {
        for (host, name) in [
            ("", Some("")),
            ("shop.example", Some("shop.example")),
            ("shop.example.:8080", Some("shop.example")),
            ("[::1]:80", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("a:", Some("a")),
            ("a:b", None),
            ("a:1:2", None),
            ("user@a", None),
            ("a/b", None),
            ("a b", None),
            ("a,b", None),
            ("[::1", None),
            ("[::1]a", None),
            ("[a/b]", None),
        ] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }

    #[test]
    fn connection_names_headers_of_one_connection_except_those_of_the_gateway() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, "close, X-One".parse().unwrap());
        headers.append(CONNECTION, "X-Forwarded-For, host, upgrade".parse().unwrap());
        for name in ["x-one", "x-two", "x-forwarded-for", "host", "upgrade"] {
            headers.insert(name, "x".parse().unwrap());
        }
        remove_named_by_connection(&mut headers);
        assert_eq!(headers.get("x-one"), None);
        for name in ["x-two", "x-forwarded-for", "host", "upgrade"] {
            assert!(headers.contains_key(name), "{name}");
        }
    }

    #[test]
    fn aliases_of_own_headers_are_removed() {
        let mut headers = HeaderMap::new();
        for name in ["x_forwarded_for", "x-forwarded_proto", "x_real_ip", "api_key", "x-real-ip"] {
            headers.insert(name, "x".parse().unwrap());
        }
        remove_where(&mut headers, |name, _| is_alias(name));
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["api_key", "x-real-ip"]);
    }
}
