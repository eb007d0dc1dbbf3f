//! Mappings of the formats that are JSON objects or columns with known names.

use crate::mapping::Mapping;
use crate::target::Target::{
    self, AnyHeader, Bytes, ClientIp, Clock, Date, Duration, Hits, Host, Method, PeerIp, Query,
    Scheme, Status, Time, Tls, Uri, User,
};
use crate::time::TimeUnit::{Millis, Seconds};

/// The columns of CloudFront's standard logs, for a file without its head.
pub(crate) const CLOUDFRONT_FIELDS: &str = "date time x-edge-location sc-bytes c-ip cs-method \
    cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) \
    x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken \
    x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version \
    fle-status fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type \
    sc-content-type sc-content-len sc-range-start sc-range-end";

/// Envoy's JSON format has the names that its operators give it; these are those of its
/// documentation and of Istio.
pub(crate) fn envoy_json() -> Mapping {
    Mapping::of(&[
        ("start_time", Time(None)),
        ("method", Method),
        ("path", Uri),
        ("scheme", Scheme),
        (":authority", Host),
        ("authority", Host),
        ("host", Host),
        ("downstream_remote_address", PeerIp),
        ("downstream_remote_address_without_port", PeerIp),
        ("response_code", Status),
        ("status", Status),
        ("bytes_sent", Bytes),
        ("duration", Duration(Millis)),
        ("x_forwarded_for", header("x-forwarded-for")),
        ("x-forwarded-for", header("x-forwarded-for")),
        ("x_forwarded_proto", Scheme),
        ("x-forwarded-proto", Scheme),
        ("user_agent", header("user-agent")),
        ("user-agent", header("user-agent")),
        ("referer", header("referer")),
        ("request_id", header("x-request-id")),
        ("x_request_id", header("x-request-id")),
        ("x-request-id", header("x-request-id")),
    ])
}

/// Caddy; `client_ip` respects its trusted proxies, `remote_ip` is the connection's.
pub(crate) fn caddy() -> Mapping {
    Mapping::of(&[
        ("ts", Time(None)),
        ("request.client_ip", ClientIp),
        ("request.remote_ip", PeerIp),
        ("request.remote_addr", PeerIp),
        ("request.method", Method),
        ("request.host", Host),
        ("request.uri", Uri),
        ("request.tls", Tls),
        ("request.headers", AnyHeader),
        ("user_id", User),
        ("status", Status),
        ("size", Bytes),
        ("duration", Duration(Seconds)),
    ])
}

/// The gateway of this product.
pub(crate) fn gateway() -> Mapping {
    Mapping::of(&[
        ("time", Time(None)),
        ("client", ClientIp),
        ("method", Method),
        ("host", Host),
        ("path", Uri),
        ("status", Status),
        ("bytes", Bytes),
        ("duration_ms", Duration(Millis)),
        ("cost", Hits),
        ("referer", header("referer")),
        ("user_agent", header("user-agent")),
        ("request_id", header("x-request-id")),
    ])
}

/// CloudFront; `cs(Host)` is the distribution, `x-host-header` what the client sent.
pub(crate) fn cloudfront() -> Mapping {
    Mapping::of(&[
        ("date", Date),
        ("time", Clock),
        ("c-ip", ClientIp),
        ("cs-method", Method),
        ("cs-protocol", Scheme),
        ("x-host-header", Host),
        ("cs-uri-stem", Uri),
        ("cs-uri-query", Query),
        ("sc-status", Status),
        ("sc-bytes", Bytes),
        ("time-taken", Duration(Seconds)),
        ("cs(Referer)", header("referer")),
        ("cs(User-Agent)", header("user-agent")),
        ("cs(Cookie)", header("cookie")),
        ("x-forwarded-for", header("x-forwarded-for")),
    ])
}

fn header(name: &str) -> Target {
    Target::Header(name.into())
}
