//! `/v1/forward-auth`: a proxy asks about a request that it holds, by the head of that request alone. For nginx' `auth_request`, Caddy's
//! `forward_auth` and Traefik's `forwardAuth`.
//!
//! What the request is, the proxy tells in headers; what is made of it, the rules say (`forward_auth`). Only proxies that the rules trust are believed:
//! to everybody else the answer is 403, whatever the limits.

mod asked;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluicegate::http::{Style, VerdictResponse};
use sluicegate::{Checked, Snapshot, Timestamp};

use self::asked::{Lines, attributes, chosen, untrusted};
use super::Answering;
use super::error::{JSON, PROBLEM, Refusal};
use super::options::Body;
use super::response::write_checked;
use super::schema::{Denied, Refused};
use crate::reservations::Kept;
use crate::rls::response::Code;
use crate::status::{policies, spokesman};
use crate::telemetry::Door;
use crate::traces::Span;

/// Where it is; a domain may stand behind it.
pub(super) const PATH: &str = "/v1/forward-auth";

/// Who is at the other end of the connection, as an extension of a request. Without it nobody is believed.
///
/// ```
/// use sluicegate_server::http::Peer;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// The error of a denial once more, for proxies that drop bodies.
const X_ERROR: HeaderName = HeaderName::from_static("x-sluicegate-error");
/// With so many bytes a proxy takes it for sure; nginx has 4 KiB for all headers.
const ERROR_BYTES_MAX: usize = 1 << 10;

/// May the request go that a proxy tells of in headers? If so, everything that it is under is charged.
///
/// Any method will do. The domain stands behind the path, as in `/v1/forward-auth/web`, if more than one has `forward_auth` in the rules. `X-Original-URI`
/// and `X-Original-Method` mean the same as `X-Forwarded-Uri` and `X-Forwarded-Method`.
#[utoipa::path(
    get, path = "/v1/forward-auth", tag = "proxies",
    params(
        ("X-Forwarded-For" = Option<String>, Header, description = "Who asks, and by which proxies; `Forwarded` and `X-Real-IP` will do."),
        ("X-Forwarded-Method" = Option<String>, Header, description = "The method of the request."),
        ("X-Forwarded-Proto" = Option<String>, Header, description = "`http` or `https`."),
        ("X-Forwarded-Host" = Option<String>, Header, description = "The host that it is for."),
        ("X-Forwarded-Uri" = Option<String>, Header, description = "Its path and query."),
    ),
    responses(
        (status = 200, description = "It may; the headers are those of `/v1/check`."),
        (status = 429, description = "It may not; the rules may choose another status. The headers are those of `/v1/check`.", body = Denied),
        (status = 400, description = "The headers contradict each other or cannot be read, or it is not clear which domain is meant.", body = Refused),
        (status = 403, description = "This proxy is not trusted.", body = Refused),
        (status = 503, description = "No rules are loaded, or too many ask at once.", body = Refused),
    ),
)]
pub(super) async fn forward_auth(
    State(app): State<Arc<Answering>>,
    request: HttpRequest,
) -> Response {
    app.forward(Ok(None), request).await
}

/// The same of a domain that stands behind the path.
pub(super) async fn forward_auth_of(
    State(app): State<Arc<Answering>>,
    domain: Result<Path<String>, PathRejection>,
    request: HttpRequest,
) -> Response {
    let no_text = |_| Refusal::invalid("the domain in the path is no text; write it in UTF-8");
    app.forward(domain.map(|Path(domain)| Some(domain)).map_err(no_text), request).await
}

impl Answering {
    async fn forward(
        &self,
        domain: Result<Option<String>, Refusal>,
        request: HttpRequest,
    ) -> Response {
        // A body is not for those who wait.
        let (head, _) = request.into_parts();
        let mut span = self.service.begin_span(PATH, &head.headers);
        let begun = self.service.engine().now();
        let answered = match domain {
            Ok(domain) => {
                let peer = head.extensions.get::<Peer>().map(|Peer(address)| *address);
                let asked = (domain.as_deref(), &head.headers, peer);
                self.forwarded(asked, begun, span.as_mut()).await
            }
            Err(refusal) => Err(refusal),
        };
        self.leave(Endpoint::ForwardAuth, begun, answered, span)
    }

    async fn forwarded(
        &self,
        (domain, headers, peer): (Option<&str>, &HeaderMap, Option<IpAddr>),
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<Kept, Refusal> {
        if !self.service.health().has_rules() {
            return Err(Refusal::no_rules());
        }
        let rules = self.service.engine().snapshot();
        let (domain, auth) = chosen(&rules, domain)?;
        let peer = peer.filter(|peer| auth.trusted_proxies.trust(*peer)).ok_or_else(|| {
            let peer = peer.map_or_else(|| "nowhere".to_owned(), |p| p.to_canonical().to_string());
            untrusted(&peer, domain)
        })?;
        let lines = Lines(headers);
        let told = attributes(&lines, auth, peer)?;
        let described = auth.mapping.describe(&told).map_err(|error| {
            Refusal::invalid(format!("{error}; a request must be clear to be counted, correct it or have the proxy refuse it"))
        })?;
        let mut checked = Checked::default();
        let entries = described.entries();
        let descriptors = described.descriptors(&entries);
        let asked = described.request(domain, &descriptors);
        let counters = self.service.counters();
        counters.check(&rules, &asked, now, &mut checked).await.map_err(Refusal::store)?;
        let code = self.service.code_of(&rules, &checked);
        if let Some(span) = span {
            span.set("ratelimit.domain", domain);
            self.service.tell_span(span, &rules, &checked, code);
        }
        let mut answer = Kept::default();
        let denied = code == Code::OverLimit;
        self.tell(denied, &rules, now, &checked, &mut answer.headers);
        if denied {
            let status = auth.deny_status.and_then(|status| StatusCode::from_u16(status).ok());
            let style = &self.options.style;
            let style = Style { denied: status.unwrap_or(style.denied), ..*style };
            self.deny(&style, &rules, now, &checked, &mut answer);
        }
        Ok(answer)
    }

    /// Makes it a denial, with the body of one of `/v1/check`.
    fn deny(
        &self,
        style: &Style,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        answer: &mut Kept,
    ) {
        let mut out = vec![b'{'];
        let mut content_type = JSON;
        let bodiless = matches!(style.denied, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let Some(status) = spokesman(false, &checked.statuses) {
            let policies = policies(status.target, rules);
            let told = VerdictResponse { verdict: &status.verdict, policies: &policies, now };
            let written = match self.options.body {
                Body::Envelope => told.write_error(&mut out),
                Body::Problem => {
                    content_type = PROBLEM;
                    told.write_problem(style, &mut out)
                }
            };
            if written {
                out.push(b',');
            }
            if bodiless {
                answer.headers.insert(X_ERROR, error_of(&told));
            }
        }
        write_checked(false, checked, rules, &mut out);
        out.push(b'}');
        answer.status = style.denied;
        answer.headers.insert(CONTENT_TYPE, content_type);
        answer.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer.body = out.into();
    }
}

/// The error of a denial as the value of a header: JSON in ASCII.
fn error_of(told: &VerdictResponse<'_>) -> HeaderValue {
    let mut out = Vec::new();
    told.write_error(&mut out);
    let json = String::from_utf8(out).unwrap_or_default();
    let mut ascii = String::with_capacity(json.len());
    for letter in json.strip_prefix("\"error\":").unwrap_or_default().chars() {
        match letter {
            ' '..='~' => ascii.push(letter),
            // Outside of texts there are none.
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
