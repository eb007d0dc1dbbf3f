//! Login with a token, and logout.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::layout;
use crate::admin::AdminInner;
use crate::admin::access::{LOGIN, Refusal, is_cross_site};
use crate::admin::session::SessionId;

/// Where a login leads to.
#[derive(Debug, Deserialize)]
pub(in crate::admin) struct Target {
    #[serde(default)]
    next: String,
}

/// The form of the login.
#[derive(Deserialize)]
pub(in crate::admin) struct Login {
    token: String,
    #[serde(default)]
    next: String,
}

/// Leads a browser without a session to the login.
pub(in crate::admin) fn to_login(path: &str) -> Response {
    let next = utf8_percent_encode(path, NON_ALPHANUMERIC);
    Redirect::to(&format!("{LOGIN}?next={next}")).into_response()
}

pub(super) async fn form(
    State(admin): State<Arc<AdminInner>>,
    Query(target): Query<Target>,
) -> Response {
    match admin.access.needs_token() {
        true => page(&target.next, None).into_response(),
        false => Redirect::to("/").into_response(),
    }
}

pub(super) async fn log_in(State(admin): State<Arc<AdminInner>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if is_cross_site(&head) {
        return Refusal::OtherSite.response();
    }
    let request = Request::from_parts(head.clone(), body);
    let Ok(Form(Login { token, next })) = axum::RequestExt::extract(request).await else {
        return refused("", StatusCode::BAD_REQUEST, "The form is not complete: enter a token.");
    };
    let verified = admin.access.verify(&admin.app, &head, token.trim());
    let (caller, hash) = match verified {
        Ok(verified) => verified,
        Err(Refusal::TooManyFailures) => {
            let message = "Too many wrong tokens from this address: this one was not compared. Wait a second.";
            return refused(&next, StatusCode::TOO_MANY_REQUESTS, message);
        }
        Err(_) => {
            return refused(&next, StatusCode::UNAUTHORIZED, "This is not a token of this node.");
        }
    };
    let Some(session) = admin.access.sessions.begin(hash, admin.app.engine().ticks()) else {
        let message = "The system has no random numbers for a session.";
        return refused(&next, StatusCode::INTERNAL_SERVER_ERROR, message);
    };
    admin.audit(&caller, "session.begin", "");
    ([(header::SET_COOKIE, session.to_cookie())], Redirect::to(own_path(&next))).into_response()
}

pub(super) async fn log_out(State(admin): State<Arc<AdminInner>>, headers: HeaderMap) -> Response {
    if let Some(session) = SessionId::of_cookies(&headers) {
        admin.access.sessions.end(&session);
    }
    ([(header::SET_COOKIE, SessionId::removal())], Redirect::to(LOGIN)).into_response()
}

/// A path of this site, or the overview.
fn own_path(next: &str) -> &str {
    let is_path =
        next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']);
    if is_path { next } else { "/" }
}

fn refused(next: &str, status: StatusCode, message: &str) -> Response {
    (status, page(next, Some(message))).into_response()
}

fn page(next: &str, message: Option<&str>) -> Markup {
    layout::frame(
        "Log in",
        &html! {
            main.login {
                h1 { "Sluicegate" }
                form method="post" action=(LOGIN) {
                    label for="token" { "Token" }
                    input id="token" name="token" type="password" autocomplete="current-password"
                        required autofocus aria-describedby=[message.map(|_| "refused")];
                    input type="hidden" name="next" value=(next);
                    @if let Some(message) = message { p.problem id="refused" role="alert" { (message) } }
                    button.main { "Log in" }
                }
                p.hint { "The token of --admin-token-file, or one of the file of --admin-tokens." }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::own_path;

    #[test]
    fn a_login_leads_to_this_site_only() {
        for (next, expected) in [
            ("/console/rules?id=a%2Fb", "/console/rules?id=a%2Fb"),
            ("", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a\r\nset-cookie: x", "/"),
        ] {
            assert_eq!(own_path(next), expected, "{next}");
        }
    }
}
