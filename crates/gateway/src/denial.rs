//! The response to a denied request: JSON error, problem, the route's own body, or gRPC status.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use sluicegate::http::{Style, VerdictResponse, is_grpc};
use sluicegate::{Checked, Policy, Snapshot, Timestamp};
use sluicegate_config::gateway::route::DenialConfig;
use sluicegate_core::verdict::Verdict;
use sluicegate_server::status::{denying_status, policies};

use crate::body::ResponseBody;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// How denials look, for all routes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DenialStyle {
    pub(crate) style: Style,
    /// Whether errors are RFC 9457 problems.
    pub(crate) problem_json: bool,
}

impl DenialStyle {
    /// The response to a denied request.
    pub(crate) fn response(
        &self,
        config: &DenialConfig,
        head: &Parts,
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
    ) -> Response<ResponseBody> {
        let mut style = self.style;
        if let Some(status) = config.status.and_then(|code| StatusCode::from_u16(code).ok()) {
            style.denied = status;
        }
        let Some(status) = denying_status(&checked.statuses) else {
            return customized(listed(&style), config, head);
        };
        let policies = policies(status.target, rules);
        let (verdict, policies) = visible(&status.verdict, &policies, &config.hide);
        if verdict.decided_by.is_none() && status.verdict.decided_by.is_some() {
            (style.x_headers, style.ietf_fields) = (false, false);
        }
        let verdict = VerdictResponse { verdict: &verdict, policies: &policies, now };
        if head.version == Version::HTTP_2
            && is_grpc(&head.headers)
            && let Some(response) = verdict.grpc_denial(&style)
        {
            return response.map(|()| ResponseBody::empty());
        }
        let mut body = vec![b'{'];
        let is_written = match self.problem_json {
            true => verdict.write_problem(&style, &mut body),
            false => verdict.write_error(&mut body),
        };
        if !is_written {
            return customized(listed(&style), config, head);
        }
        body.push(b'}');
        let mut response = Response::new(ResponseBody::full(body.into()));
        *response.status_mut() = style.denied;
        verdict.write_headers(&style, response.headers_mut());
        let kind = if self.problem_json { PROBLEM } else { JSON };
        response.headers_mut().insert(CONTENT_TYPE, kind);
        customized(response, config, head)
    }

    /// The rate limit headers of a forwarded request.
    pub(crate) fn write_headers(
        &self,
        hide: &[String],
        rules: &Snapshot<'_>,
        now: Timestamp,
        checked: &Checked,
        headers: &mut HeaderMap,
    ) {
        use sluicegate::{Outcome, Span};

        let limited = checked.statuses.iter().filter(|one| one.verdict.remaining.is_some());
        let shown = limited.map(|status| {
            let policies = policies(status.target, rules);
            let (verdict, policies) = visible(&status.verdict, &policies, hide);
            (verdict, policies.into_owned())
        });
        let shown = shown.filter(|(verdict, _)| verdict.decided_by.is_some());
        let Some((mut verdict, policies)) = shown.min_by_key(|(verdict, _)| verdict.remaining)
        else {
            return;
        };
        // The request passes, although limits deny it.
        if !verdict.is_allowed() {
            verdict.outcome = Outcome::Allow { wait: Span::ZERO };
        }
        VerdictResponse { verdict: &verdict, policies: &policies, now }
            .write_headers(&self.style, headers);
    }
}

/// Verdict and policies without hidden limits. A verdict of a hidden limit names none.
pub(crate) fn visible<'a>(
    verdict: &Verdict,
    policies: &'a [Policy],
    hide: &[String],
) -> (Verdict, Cow<'a, [Policy]>) {
    let is_hidden = |policy: &Policy| hide.contains(&policy.name);
    if hide.is_empty() || !policies.iter().any(is_hidden) {
        return (*verdict, Cow::Borrowed(policies));
    }
    let decider = verdict.decided_by.filter(|at| !policies.get(*at).is_some_and(is_hidden));
    let before = |at: usize| policies.iter().take(at).filter(|policy| !is_hidden(policy)).count();
    let verdict = Verdict { decided_by: decider.map(before), ..*verdict };
    let shown = policies.iter().filter(|policy| !is_hidden(policy)).cloned().collect();
    (verdict, Cow::Owned(shown))
}

/// The response to a request that no limit denies, but a list.
fn listed(style: &Style) -> Response<ResponseBody> {
    const BODY: &[u8] =
        br#"{"error":{"code":"denied","message":"This client is not admitted.","context":{}}}"#;

    let mut response = Response::new(ResponseBody::full(BODY.into()));
    *response.status_mut() = style.denied;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Replaces the body by that of the route.
fn customized(
    mut response: Response<ResponseBody>,
    config: &DenialConfig,
    head: &Parts,
) -> Response<ResponseBody> {
    let (text, kind) = match (&config.html, &config.body) {
        (Some(html), _) if prefers_html(&head.headers) => (html, HTML),
        (_, Some(body)) => {
            let kind = config.content_type.as_deref().and_then(|kind| kind.parse().ok());
            (body, kind.unwrap_or(PLAIN))
        }
        _ => return response,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    if config.html.is_some() {
        headers.append(VARY, HeaderValue::from_static("Accept"));
    }
    response.map(|_| ResponseBody::full(Bytes::from(text.clone())))
}

/// Whether a client prefers HTML to JSON, as browsers do. Wildcards alone do not.
fn prefers_html(headers: &HeaderMap) -> bool {
    let (mut html, mut json) = (0, 0);
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    for range in lines.flat_map(|line| line.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let quality = quality.map_or(1_000, thousandths);
        match kind.as_str() {
            "text/html" | "application/xhtml+xml" => html = quality.max(html),
            "application/json" | "application/problem+json" => json = quality.max(json),
            _ => {}
        }
    }
    html > 0 && html >= json
}

/// A quality (RFC 9110, section 12.4.2) in thousandths; malformed ones count as 0.
fn thousandths(text: &str) -> u32 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{fraction:0<3}");
    match (whole, digits.get(..3).and_then(|digits| digits.parse::<u32>().ok())) {
        ("1", _) => 1_000,
        ("0", Some(digits)) => digits,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::Span;
    use sluicegate_core::verdict::judge;

    use super::*;

    #[test]
    fn browsers_get_html_and_programs_do_not() {
        let prefers =
            |accept: &str| prefers_html(&HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]));
        assert!(prefers("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(prefers("application/json;q=0.5, text/html;q=0.6"));
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "",
            "q=",
        ] {
            assert!(!prefers(accept), "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }

    #[test]
    fn a_hidden_limit_leaves_no_trace() {
        let policy = |name: &str| Policy {
            name: name.to_owned(),
            algorithm: "fixed_window",
            quota: Some(10),
            window: Some(Span::from_secs(60)),
            enforced: true,
        };
        let policies = [policy("protective"), policy("plan")];
        let hide = ["protective".to_owned()];
        let verdict = |decided_by| Verdict { decided_by, ..judge(&[]) };
        let (shown, left) = visible(&verdict(Some(0)), &policies, &hide);
        assert_eq!((shown.decided_by, left.len()), (None, 1));
        let (shown, left) = visible(&verdict(Some(1)), &policies, &hide);
        assert_eq!((shown.decided_by, &*left[0].name), (Some(0), "plan"));
        let (shown, left) = visible(&verdict(Some(1)), &policies, &[]);
        assert_eq!((shown.decided_by, left.len()), (Some(1), 2));
    }
}
