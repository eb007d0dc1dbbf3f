//! Paths of the admin endpoint that another part of the process adds.

use std::fmt;

use async_trait::async_trait;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};

/// Further paths of the admin endpoint, with its token.
#[async_trait]
pub trait AdminExtension: fmt::Debug + Send + Sync {
    /// Paths, with their descriptions.
    fn paths(&self) -> &'static [(&'static str, &'static str)];

    /// Answers a request; `None` if the path is not one of these.
    async fn call(&self, request: &AdminRequest<'_>) -> Option<AdminResponse>;
}

/// A request to an extension; its body is not read.
#[derive(Debug, Clone, Copy)]
pub struct AdminRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path.
    pub path: &'a str,
    query: &'a str,
    /// Whether a page of a browser has sent it, which could be one of another site.
    pub is_from_page: bool,
}

/// The response of an extension.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminResponse {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl<'a> AdminRequest<'a> {
    pub(super) fn new(head: &'a Parts) -> Self {
        Self {
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query().unwrap_or_default(),
            is_from_page: head.headers.contains_key(header::ORIGIN),
        }
    }

    /// The decoded value of a parameter of the query.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

impl AdminResponse {
    /// 200 with this body.
    #[must_use]
    pub const fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body }
    }

    /// An error in the envelope of all endpoints.
    #[must_use]
    pub fn error(status: StatusCode, code: &str, message: &str) -> Self {
        Self { status, body: json!({ "error": { "code": code, "message": message } }) }
    }
}
