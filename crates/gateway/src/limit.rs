//! Decides whether a request of a route is admitted, by the rules.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, Version};
use sluicegate::backend::Call;
use sluicegate::http::{HeaderLines, Style, VerdictResponse, is_grpc};
use sluicegate::rules::mapping::Attributes;
use sluicegate::{Checked, Operation, Snapshot};
use sluicegate_config::gateway::route::LimitConfig;
use sluicegate_server::app::App;
use sluicegate_server::rls::response::Code;
use sluicegate_server::status::{denying_status, policies, write_limit_headers};

use crate::body::ResponseBody;
use crate::error::ProxyError;
use crate::identity::ClientIdentity;

/// The verdict of all limits of a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It is admitted; the headers of its response.
    Admitted(HeaderMap),
    /// It is denied, with this response.
    Denied(Response<ResponseBody>),
}

/// Decides a request, and charges its limits if it is admitted.
pub(crate) async fn decide(
    app: &App,
    style: &Style,
    limit: &LimitConfig,
    head: &Parts,
    attributes: &Attributes<'_>,
) -> Result<Decision, ProxyError> {
    let engine = app.engine();
    let (rules, now) = (engine.snapshot(), engine.now());
    let described = limit.mapping.describe(attributes);
    let described = described
        .map_err(|_| ProxyError::BadRequest("A part of the request is not valid text."))?;
    let entries = described.entries();
    let descriptors = described.descriptors(&entries);
    let request = described.request(&limit.domain, &descriptors);
    let call = Call::new(&rules, &request, now);
    let mut checked = Checked::default();
    if !engine.check_now(&call, &mut checked) {
        let decided = engine.apply(Operation::Hit, call, &mut checked).await;
        decided.map_err(|_| ProxyError::StoreAway)?;
    }
    app.record_unmatched(&rules, &request, &checked).map_err(|_| ProxyError::StoreAway)?;
    if app.code_of(&rules, &request, &checked) == Code::OverLimit {
        return Ok(Decision::Denied(denial(style, &rules, head, call, &checked)));
    }
    let mut headers = HeaderMap::new();
    write_limit_headers(style, false, &rules, now, &checked, &mut headers);
    Ok(Decision::Admitted(headers))
}

/// The response to a denied request.
fn denial(
    style: &Style,
    rules: &Snapshot<'_>,
    head: &Parts,
    call: Call<'_>,
    checked: &Checked,
) -> Response<ResponseBody> {
    let status = denying_status(&checked.statuses);
    let Some(status) = status else { return listed(style) };
    let policies = policies(status.target, rules);
    let verdict = VerdictResponse { verdict: &status.verdict, policies: &policies, now: call.now };
    let grpc = (head.version == Version::HTTP_2 && is_grpc(&head.headers))
        .then(|| verdict.grpc_denial(style))
        .flatten();
    match grpc {
        Some(response) => response.map(|()| ResponseBody::empty()),
        None => match verdict.denial(style) {
            Some(response) => response.map(|body| ResponseBody::full(body.into())),
            None => listed(style),
        },
    }
}

/// The response to a request that no limit denies, but a list.
fn listed(style: &Style) -> Response<ResponseBody> {
    const BODY: &[u8] =
        br#"{"error":{"code":"denied","message":"This client is not admitted.","context":{}}}"#;

    let mut response = Response::new(ResponseBody::full(BODY.into()));
    *response.status_mut() = style.denied;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The attributes of a request that descriptors are made of.
pub(crate) fn attributes<'a>(
    head: &'a Parts,
    lines: &'a HeaderLines<'a>,
    host: &'a str,
    client: Option<std::net::IpAddr>,
    identity: &'a ClientIdentity<'a>,
) -> Attributes<'a> {
    let uri = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Attributes {
        client_ip: client,
        method: Some(head.method.as_str().as_bytes()),
        scheme: Some(b"http"),
        host: Some(host.as_bytes()),
        uri: Some(uri.as_bytes()),
        headers: lines,
        identity: Some(identity),
    }
}
