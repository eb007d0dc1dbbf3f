//! The console: pages for operators, rendered here, that work without a script.
//!
//! Nothing is loaded from elsewhere, and the content security policy allows no inline script or
//! style. With a script, regions with `data-fragment` follow the node's events: the page of the
//! region is fetched again and replaces it, so that there is one renderer.

mod audit;
mod candidate;
mod chart;
mod editor;
mod explain;
mod identities;
mod identity;
mod identity_actions;
mod layout;
mod login;
mod nodes;
mod overview;
mod parts;
mod revisions;
mod rule;
mod rules;
mod trial;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

pub(super) use self::login::to_login;
pub(super) use self::overview::index;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use sluicegate::rules::typed::TypedEntry;

use super::AdminInner;

/// Policy of all pages: own scripts, styles and connections only, and no frame around them.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Bytes of a form: the largest set of files, encoded.
const BODY_BYTES_MAX: usize = 12 << 20;

/// An embedded file.
struct Asset {
    content_type: &'static str,
    text: &'static str,
}

const STYLE: Asset =
    Asset { content_type: "text/css; charset=utf-8", text: include_str!("assets/console.css") };
const LIVE: Asset =
    Asset { content_type: "text/javascript; charset=utf-8", text: include_str!("assets/live.js") };
const EDITOR: Asset = Asset {
    content_type: "text/javascript; charset=utf-8",
    text: include_str!("assets/editor.js"),
};

/// Routes of all pages but `/`.
pub(super) fn routes() -> Router<Arc<AdminInner>> {
    let router = Router::new()
        .route("/console/login", get(login::form).post(login::log_in))
        .route("/console/logout", post(login::log_out))
        .route("/console/rules", get(rules::list))
        .route("/console/rule", get(rule::page))
        .route("/console/identities", get(identities::page))
        .route("/console/identity", get(identity::page).post(identity::submit))
        .route("/console/edit", get(editor::page).post(editor::submit))
        .route("/console/revisions", get(revisions::list))
        .route("/console/revision", get(revisions::show).post(revisions::submit))
        .route("/console/explain", get(explain::page))
        .route("/console/nodes", get(nodes::page))
        .route("/console/audit", get(audit::page))
        .route("/api/v1/audit", get(audit::list))
        .route("/console/assets/console.css", get(async || STYLE))
        .route("/console/assets/live.js", get(async || LIVE))
        .route("/console/assets/editor.js", get(async || EDITOR));
    router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).layer(from_fn(add_security_headers))
}

/// A part of a descriptor as people type it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, ',' | '\\') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// An entry as people type it.
fn typed_entry(entry: &TypedEntry) -> String {
    format!("{}={}", escaped(&entry.key).replace('=', "\\="), escaped(&entry.value))
}

/// A parameter of a query.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn add_security_headers(request: Request, next: Next) -> Response {
    secured(next.run(request).await)
}

/// Adds the headers that protect a page.
pub(super) fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

impl IntoResponse for Asset {
    fn into_response(self) -> Response {
        // The next version of the binary may have another one.
        let headers =
            [(header::CONTENT_TYPE, self.content_type), (header::CACHE_CONTROL, "no-cache")];
        (headers, self.text).into_response()
    }
}
