//! `/v1/forward-auth`: a proxy asks about a request that it holds, by the head of that request alone. For nginx' `auth_request`, Caddy's
//! `forward_auth` and Traefik's `forwardAuth`.
//!
//! What the request is, the proxy tells in headers; what is made of it, the rules say (`forward_auth`). Only proxies that the rules trust are believed:
//! to everybody else the answer is 403, whatever the limits.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluicegate::http::{Style, Told};
use sluicegate::rules::forward_auth::ForwardAuth;
use sluicegate::rules::mapping::{Attributes, Headers};
use sluicegate::{Checked, Snapshot, Timestamp};

use super::Answering;
use super::answer::write_checked;
use super::check::Want;
use super::options::Body;
use super::refusal::{JSON, PROBLEM, Refusal};
use super::shapes::{Denied, Refused};
use super::told::{policies, spokesman};
use crate::rls::answer::Code;
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
    app.forward(&request)
}

impl Answering {
    fn forward(&self, request: &HttpRequest) -> Response {
        let engine = self.service.engine();
        let mut span = self.service.begin_span(PATH, request.headers());
        let begun = engine.now();
        let answered = self.forwarded(request, begun, span.as_mut());
        if let Some(span) = span {
            span.end(engine.now());
        }
        let telemetry = self.service.telemetry();
        match answered {
            Ok(response) => {
                telemetry.answered(Door::ForwardAuth, engine.now().since(begun));
                response
            }
            Err(refusal) => {
                telemetry.failed(Door::ForwardAuth, refusal.fault);
                refusal.response(self.options.body)
            }
        }
    }

    fn forwarded(
        &self,
        request: &HttpRequest,
        now: Timestamp,
        span: Option<&mut Span>,
    ) -> Result<Response, Refusal> {
        if !self.service.health().has_rules() {
            return Err(Refusal::no_rules());
        }
        let rules = self.service.engine().snapshot();
        let named = domain_of(request.uri().path())?;
        let (domain, auth) = chosen(&rules, named.as_deref())?;
        let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
        let peer = peer.filter(|peer| auth.trusted_proxies.trust(*peer)).ok_or_else(|| {
            let peer = peer.map_or_else(|| "nowhere".to_owned(), |p| p.to_canonical().to_string());
            untrusted(&peer, domain)
        })?;
        let lines = Lines(request.headers());
        let told = attributes(&lines, auth, peer)?;
        let described = auth.mapping.describe(&told).map_err(|error| {
            Refusal::invalid(format!("{error}; a request must be clear to be counted, correct it or have the proxy refuse it"))
        })?;
        let mut checked = Checked::default();
        described.ask(domain, |request| rules.check(request, now, &mut checked));
        let code = self.service.code_of(&rules, &checked);
        if let Some(span) = span {
            span.set("ratelimit.domain", domain);
            self.service.tell_span(span, &rules, &checked, code);
        }
        let mut response = Response::default();
        let denied = code == Code::OverLimit;
        self.tell(Want::Check, denied, &rules, now, &checked, response.headers_mut());
        if denied {
            let status = auth.deny_status.and_then(|status| StatusCode::from_u16(status).ok());
            let style = &self.options.style;
            let style = Style { denied: status.unwrap_or(style.denied), ..*style };
            self.deny(&style, &rules, now, &checked, &mut response);
        }
        Ok(response)
    }

    /// Makes it a denial, with the body of one of `/v1/check`.
    fn deny(
        &self,
        style: &Style,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        response: &mut Response,
    ) {
        let mut out = vec![b'{'];
        let mut content_type = JSON;
        let bodiless = matches!(style.denied, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let Some(status) = spokesman(false, &checked.statuses) {
            let policies = policies(status.under, rules);
            let told = Told { verdict: &status.verdict, policies: &policies, now };
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
                response.headers_mut().insert(X_ERROR, error_of(&told));
            }
        }
        write_checked(false, checked, rules, &mut out);
        out.push(b'}');
        *response.status_mut() = style.denied;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        *response.body_mut() = out.into();
    }
}

// === which domain ===

/// The domain in a path, if there is one.
fn domain_of(path: &str) -> Result<Option<String>, Refusal> {
    let Some(escaped) = path.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('/')) else {
        return Ok(None);
    };
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escape = digits.filter(|digits| *byte == b'%' && !digits.starts_with('+'));
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    match String::from_utf8(bytes) {
        Ok(domain) => Ok(Some(domain).filter(|domain| !domain.is_empty())),
        Err(_) => Err(Refusal::invalid("the domain in the path is no text; write it in UTF-8")),
    }
}

/// The domain that is meant, and how it answers proxies.
fn chosen<'r>(
    rules: &'r Snapshot<'_>,
    named: Option<&str>,
) -> Result<(&'r str, &'r ForwardAuth), Refusal> {
    /// The most domains that a message lists.
    const SHOWN: usize = 10;

    let rules = rules.rules();
    let found = match named {
        Some(domain) => rules.forward_auth(domain),
        None => {
            let mut all = rules.forward_auths();
            all.next().filter(|_| all.next().is_none())
        }
    };
    found.ok_or_else(|| {
        let routes: Vec<String> =
            rules.forward_auths().take(SHOWN).map(|(domain, _)| format!("{PATH}/{domain}")).collect();
        let message = match (routes.as_slice(), named) {
            ([], _) => "no domain of the rules has `forward_auth`, so it is not known who asks; add it to one, such as \
                        `forward_auth: { descriptors: [{ remote_address: client_ip }] }`"
                .to_owned(),
            (routes, Some(domain)) => {
                let domain: String = domain.chars().take(100).collect();
                format!("domain `{domain}` has no `forward_auth` in the rules; there are {}", routes.join(", "))
            }
            (routes, None) => {
                format!("several domains have `forward_auth`; ask one of them: {}", routes.join(", "))
            }
        };
        Refusal::invalid(message)
    })
}

fn untrusted(peer: &str, domain: &str) -> Refusal {
    let message = format!(
        "a proxy at {peer} is not believed about its clients; if it is yours, add its network to `trusted_proxies` in \
         `forward_auth` of domain `{domain}`"
    );
    Refusal::new(StatusCode::FORBIDDEN, "untrusted_proxy", message)
}

// === what the proxy tells ===

/// Headers as rules look at them.
struct Lines<'a>(&'a HeaderMap);

impl Headers for Lines<'_> {
    fn each_line<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.0.get_all(name).iter().for_each(|value| each(value.as_bytes()));
    }
}

fn attributes<'a>(
    lines: &'a Lines<'_>,
    auth: &ForwardAuth,
    peer: IpAddr,
) -> Result<Attributes<'a>, Refusal> {
    Ok(Attributes {
        client_ip: Some(auth.trusted_proxies.client_ip(peer, lines)),
        method: told(lines, &["X-Forwarded-Method", "X-Original-Method"])?,
        scheme: told(lines, &["X-Forwarded-Proto"])?,
        host: told(lines, &["X-Forwarded-Host"])?,
        uri: told(lines, &["X-Forwarded-Uri", "X-Original-URI"])?,
        headers: lines,
    })
}

/// What headers of one meaning say.
///
/// A proxy sets those that it knows, and hands on what a client made up of the others: if they differ, nobody can tell which is the proxy's.
fn told<'a>(lines: &'a Lines<'_>, names: &[&str]) -> Result<Option<&'a [u8]>, Refusal> {
    let mut said: Option<&[u8]> = None;
    let mut differ = false;
    for name in names {
        lines.each_line(name, &mut |line| {
            differ |= *said.get_or_insert(line) != line;
        });
    }
    if differ {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let message = format!(
            "{} came more than once and not with one value, so it is not known which is the proxy's; have the proxy set one and remove the rest",
            names.join(" or ")
        );
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "conflicting_headers", message));
    }
    Ok(said)
}

/// The error of a denial as the value of a header: JSON in ASCII.
fn error_of(told: &Told<'_>) -> HeaderValue {
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
