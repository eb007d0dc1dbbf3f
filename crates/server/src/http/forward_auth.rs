//! `/v1/forward-auth`, for nginx' `auth_request`, Caddy's `forward_auth` and Traefik's
//! `forwardAuth`.
//!
//! The proxy describes a request in headers; `forward_auth` in the rules maps it to descriptors.
//! Peers that the rules do not trust get 403.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluicegate::backend::Call;
use sluicegate::http::{HeaderLines, Style};
use sluicegate::rules::domain::ForwardAuth;
use sluicegate::rules::mapping::{Attributes, Headers};
use sluicegate::{Checked, Operation, Snapshot, Timestamp};

use super::check::write_denial;
use super::code::ErrorCode;
use super::error::{ApiError, JSON};
use super::idempotency::ApiResponse;
use super::response::write_checked;
use super::schema::{DeniedResponse, ErrorResponse};
use super::{Api, ErrorFormat};
use crate::rls::response::Code;
use crate::telemetry::Endpoint;
use crate::traces::Span;

/// Path, which a domain may follow.
pub(super) const PATH: &str = "/v1/forward-auth";

/// Address of the peer, as an extension of a request. Without it no proxy is trusted.
///
/// ```
/// use sluicegate_server::http::Peer;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Error of a denial, for proxies that drop bodies.
const X_ERROR: HeaderName = HeaderName::from_static("x-sluicegate-error");
/// Every proxy accepts this much; nginx has 4 KiB for all headers.
const ERROR_BYTES_MAX: usize = 1 << 10;

/// Decides the request that a proxy describes in headers, and charges its limits if it is admitted.
///
/// Any method works. The domain follows the path, as in `/v1/forward-auth/web`, if more than one
/// has `forward_auth` in the rules. `X-Original-URI` and `X-Original-Method` are aliases of
/// `X-Forwarded-Uri` and `X-Forwarded-Method`.
#[utoipa::path(
    get, path = "/v1/forward-auth", tag = "proxies",
    params(
        ("X-Forwarded-For" = Option<String>, Header, description = "The client and its proxies; or `Forwarded`, or `X-Real-IP`."),
        ("X-Forwarded-Method" = Option<String>, Header, description = "The method of the request."),
        ("X-Forwarded-Proto" = Option<String>, Header, description = "`http` or `https`."),
        ("X-Forwarded-Host" = Option<String>, Header, description = "The host of the request."),
        ("X-Forwarded-Uri" = Option<String>, Header, description = "The path and query of the request."),
    ),
    responses(
        (status = 200, description = "Admitted; the headers are those of `/v1/check`."),
        (status = 429, description = "Denied; the rules may choose another status. The headers are those of `/v1/check`.", body = DeniedResponse),
        (status = 400, description = "The headers conflict or are malformed, or the domain is ambiguous.", body = ErrorResponse),
        (status = 403, description = "This proxy is not trusted.", body = ErrorResponse),
        (status = 503, description = "No rules are loaded, or too many requests are in flight.", body = ErrorResponse),
    ),
)]
pub(super) async fn forward_auth(State(api): State<Arc<Api>>, request: HttpRequest) -> Response {
    api.forward(Ok(None), request).await
}

/// The same for the domain in the path.
pub(super) async fn forward_auth_for(
    State(api): State<Arc<Api>>,
    domain: Result<Path<String>, PathRejection>,
    request: HttpRequest,
) -> Response {
    let not_utf8 = |_| ApiError::invalid("the domain in the path is not UTF-8");
    api.forward(domain.map(|Path(domain)| Some(domain)).map_err(not_utf8), request).await
}

impl Api {
    async fn forward(
        &self,
        domain: Result<Option<String>, ApiError>,
        request: HttpRequest,
    ) -> Response {
        // The body is ignored.
        let (head, _) = request.into_parts();
        let mut span = self.app.begin_span(PATH, &head.headers);
        let begun = self.app.engine().now();
        let result = match domain {
            Ok(domain) => {
                let peer = head.extensions.get::<Peer>().map(|Peer(address)| *address);
                let forwarded = (domain.as_deref(), &head.headers, peer);
                self.decide_forwarded(forwarded, begun, span.as_mut()).await
            }
            Err(error) => Err(error),
        };
        self.finish(Endpoint::ForwardAuth, begun, result, span)
    }

    async fn decide_forwarded(
        &self,
        (domain, headers, peer): (Option<&str>, &HeaderMap, Option<IpAddr>),
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<ApiResponse, ApiError> {
        self.require_rules()?;
        let rules = self.app.engine().snapshot();
        let (domain, auth) = select_domain(&rules, domain)?;
        let peer = peer.filter(|peer| auth.trusted_proxies.trust(*peer)).ok_or_else(|| {
            let peer = peer.map_or_else(|| "nowhere".to_owned(), |p| p.to_canonical().to_string());
            untrusted(&peer, domain)
        })?;
        let lines = HeaderLines(headers);
        let attributes = attributes(&lines, auth, peer)?;
        let described = auth.mapping.describe(&attributes).map_err(|error| {
            ApiError::invalid(format!("{error}; correct the request, or reject it in the proxy"))
        })?;
        let mut checked = Checked::default();
        let entries = described.entries();
        let descriptors = described.descriptors(&entries);
        let request = described.request(domain, &descriptors);
        let call = Call::new(&rules, &request, now);
        let decided = self.app.engine().apply(Operation::Hit, call, &mut checked).await;
        decided.map_err(ApiError::store)?;
        self.app.record_unmatched(&rules, &request, &checked)?;
        let code = self.app.code_of(&rules, &request, &checked);
        if let Some(span) = span {
            span.set("ratelimit.domain", domain);
            self.app.record_in_span(span, &rules, &checked, code);
        }
        let mut response = ApiResponse::default();
        let is_denied = code == Code::OverLimit;
        self.write_limit_headers(is_denied, &rules, now, &checked, &mut response.headers);
        if is_denied {
            let status = auth.deny_status.and_then(|status| StatusCode::from_u16(status).ok());
            let style = &self.options.style;
            let style = Style { denied: status.unwrap_or(style.denied), ..*style };
            self.deny(&style, call, &checked, &mut response);
        }
        Ok(response)
    }

    /// Makes the response a denial, with the body of `/v1/check`.
    fn deny(&self, style: &Style, call: Call<'_>, checked: &Checked, response: &mut ApiResponse) {
        let (mut out, mut content_type) = (vec![b'{'], JSON);
        let drops_body = matches!(style.denied, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if write_denial(self.options.error_format, style, call, checked, &mut out) {
            out.push(b',');
            content_type = self.denial_type();
            if drops_body {
                let mut error = Vec::new();
                write_denial(ErrorFormat::Envelope, style, call, checked, &mut error);
                response.headers.insert(X_ERROR, error_header(error));
            }
        }
        write_checked(false, checked, &[], call.rules, &mut out);
        out.push(b'}');
        response.status = style.denied;
        response.headers.insert(CONTENT_TYPE, content_type);
        response.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.body = out.into();
    }
}

/// The error of a denial as the value of a header: JSON in ASCII.
fn error_header(error: Vec<u8>) -> HeaderValue {
    let json = String::from_utf8(error).unwrap_or_default();
    let mut ascii = String::with_capacity(json.len());
    for letter in json.strip_prefix("\"error\":").unwrap_or_default().chars() {
        match letter {
            ' '..='~' => ascii.push(letter),
            // Only strings contain other characters.
            letter => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    ascii.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    let short = HeaderValue::from_static(
        r#"{"code":"rate_limited","message":"Request quota exceeded.","context":{}}"#,
    );
    match HeaderValue::try_from(ascii) {
        Ok(value) if !value.is_empty() && value.len() <= ERROR_BYTES_MAX => value,
        _ => short,
    }
}

/// The domain of a request, and its forward auth.
fn select_domain<'r>(
    rules: &'r Snapshot<'_>,
    named: Option<&str>,
) -> Result<(&'r str, &'r ForwardAuth), ApiError> {
    /// Domains that a message lists.
    const LISTED_MAX: usize = 10;

    let rules = rules.rules();
    let found = match named {
        Some(domain) => rules.forward_auth(domain),
        None => {
            let mut all = rules.forward_auths();
            all.next().filter(|_| all.next().is_none())
        }
    };
    found.ok_or_else(|| {
        let routes: Vec<String> = rules
            .forward_auths()
            .take(LISTED_MAX)
            .map(|(domain, _)| format!("{PATH}/{domain}"))
            .collect();
        let message = match (routes.as_slice(), named) {
            ([], _) => "no domain of the rules has `forward_auth`; add it to one, such as \
                        `forward_auth: { descriptors: [{ remote_address: client_ip }] }`"
                .to_owned(),
            (routes, Some(domain)) => {
                let domain: String = domain.chars().take(100).collect();
                format!(
                    "domain `{domain}` has no `forward_auth` in the rules; there are {}",
                    routes.join(", ")
                )
            }
            (routes, None) => {
                format!(
                    "several domains have `forward_auth`; use one of them: {}",
                    routes.join(", ")
                )
            }
        };
        ApiError::invalid(message)
    })
}

fn untrusted(peer: &str, domain: &str) -> ApiError {
    let message = format!(
        "the proxy at {peer} is not trusted; if it is yours, add its network to `trusted_proxies` in \
         `forward_auth` of domain `{domain}`"
    );
    ApiError::new(ErrorCode::UntrustedProxy, message)
}

// === headers of the proxy ===

fn attributes<'a>(
    lines: &'a HeaderLines<'_>,
    auth: &ForwardAuth,
    peer: IpAddr,
) -> Result<Attributes<'a>, ApiError> {
    Ok(Attributes {
        client_ip: Some(auth.trusted_proxies.client_ip(peer, lines)),
        method: header_value(lines, &["X-Forwarded-Method", "X-Original-Method"])?,
        scheme: header_value(lines, &["X-Forwarded-Proto"])?,
        host: header_value(lines, &["X-Forwarded-Host"])?,
        uri: header_value(lines, &["X-Forwarded-Uri", "X-Original-URI"])?,
        headers: lines,
        identity: None,
    })
}

/// The value of headers with the same meaning.
///
/// A proxy sets those that it knows and forwards the others from the client: if they differ, it is
/// unknown which is the proxy's.
fn header_value<'a>(
    lines: &'a HeaderLines<'_>,
    names: &[&str],
) -> Result<Option<&'a [u8]>, ApiError> {
    let mut value: Option<&[u8]> = None;
    let mut differ = false;
    for name in names {
        lines.each_line(name, &mut |line| {
            differ |= *value.get_or_insert(line) != line;
        });
    }
    if differ {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let message = format!(
            "{} have different values, so it is unknown which is the proxy's; have the proxy set one and remove the rest",
            names.join(" or ")
        );
        return Err(ApiError::new(ErrorCode::ConflictingHeaders, message));
    }
    Ok(value)
}
