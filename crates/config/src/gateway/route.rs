//! Routes: which requests, and what happens to them.

use std::path::PathBuf;
use std::time::Duration;

use sluicegate_rules::mapping::{Mapping, Part, Source};

use super::deferred::QueueConfig;
use super::settle::SettleCase;
use super::tokens::TokensConfig;

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// `name` in logs and metrics; the path by default.
    pub name: String,
    /// `hosts` in lower case, `*.example.com` for all below; any if there are none.
    pub hosts: Vec<String>,
    /// `path`: `/exact`, `/users/{id}`, or `/prefix/*`.
    pub path: String,
    /// `methods` in capitals; any if there are none.
    pub methods: Vec<String>,
    /// What answers: `upstream`, `redirect`, `files` or `respond`.
    pub action: Action,
    /// `require`: what a client must prove; others get 401.
    pub require: Option<Credential>,
    /// `limit`.
    pub limit: Option<LimitConfig>,
    /// `on_limit`.
    pub on_limit: OnLimit,
    /// `shape`: how requests wait.
    pub shape: ShapeConfig,
    /// `queue`: bounds of the requests that are processed later.
    pub queue: QueueConfig,
    /// `denial`: the response to a denied request.
    pub denial: DenialConfig,
    /// `request_headers`.
    pub request_headers: HeaderChanges,
    /// `response_headers`.
    pub response_headers: HeaderChanges,
}

/// What answers the requests of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `upstream`: a group of servers.
    Forward {
        /// Index of the group.
        upstream: usize,
        /// `strip_prefix`: removed from the path.
        strip_prefix: Option<String>,
        /// `host`: sent in place of the client's.
        host: Option<String>,
    },
    /// `redirect: { to, status }`.
    Redirect {
        /// The target, with [placeholders](super::placeholder::REDIRECT_PLACEHOLDERS).
        to: String,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// `files: { root, index }`.
    Files {
        /// The directory.
        root: PathBuf,
        /// File of a directory.
        index: Option<String>,
    },
    /// `respond: { status, body, content_type }`.
    Respond {
        /// The status.
        status: u16,
        /// The body.
        body: String,
        /// Its type.
        content_type: String,
    },
}

/// What a client must prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// `api_key`: one of the file.
    ApiKey,
    /// `jwt`: a valid token.
    Jwt,
    /// `client_certificate`.
    ClientCertificate,
}

/// How the requests of a route are limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitConfig {
    /// `domain` of the rules.
    pub domain: String,
    /// `descriptors` and `hits` of a request.
    pub mapping: Mapping,
    /// `on_missing`.
    pub on_missing: OnMissing,
    /// `settle`: the cost by the response. The first case that fits applies.
    pub settle: Vec<SettleCase>,
    /// `tokens`: requests to a language model.
    pub tokens: Option<TokensConfig>,
}

/// What happens to a request without a part of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissing {
    /// `reject`: it gets 401 without a credential, otherwise 400.
    #[default]
    Reject,
    /// `pass`: the descriptor is left out, so that its limits do not apply.
    Pass,
}

/// What happens to a request over its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLimit {
    /// What the rules that deny it say.
    #[default]
    Rules,
    /// `deny`: it gets 429.
    Deny,
    /// `mark`: it is forwarded with a header.
    Mark,
    /// `shape`: it waits for its turn.
    Shape,
    /// `queue`: it is stored, answered with 202, and processed later.
    Queue,
}

/// How requests over a limit wait for their turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeConfig {
    /// `queue`: requests that wait for one limit of one identity.
    pub queue_max: usize,
    /// `max_wait`: those that would wait longer are denied at once.
    pub max_wait: Duration,
    /// `fair_by`: the clients that get equal shares.
    pub fair_by: Part,
}

impl Default for ShapeConfig {
    fn default() -> Self {
        let fair_by = Part { source: Source::ClientIp, or: None };
        Self { queue_max: 100, max_wait: Duration::from_secs(10), fair_by }
    }
}

/// The response to a denied request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DenialConfig {
    /// `status`; 429 by default.
    pub status: Option<u16>,
    /// `body`, in place of the JSON error.
    pub body: Option<String>,
    /// `content_type` of that body.
    pub content_type: Option<String>,
    /// `html`: body for browsers, which accept HTML.
    pub html: Option<String>,
    /// `hide`: limits whose numbers clients do not see.
    pub hide: Vec<String>,
}

/// Headers that are set and removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderChanges {
    /// `set`: names and values, with [placeholders](super::placeholder::HEADER_PLACEHOLDERS).
    pub set: Vec<(String, String)>,
    /// `remove`: names.
    pub remove: Vec<String>,
}

impl LimitConfig {
    /// Whether what a request costs is known at its end only.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        !self.settle.is_empty() || self.tokens.is_some()
    }

    /// Limits requests by the rules of a domain.
    #[must_use]
    pub fn new(domain: impl Into<String>, mapping: Mapping) -> Self {
        let domain = domain.into();
        let (on_missing, settle) = (OnMissing::default(), Vec::new());
        Self { domain, mapping, on_missing, settle, tokens: None }
    }
}

impl RouteConfig {
    /// Forwards the requests of a path to an upstream.
    #[must_use]
    pub fn forward(path: &str, upstream: usize) -> Self {
        Self {
            name: path.to_owned(),
            hosts: Vec::new(),
            path: path.to_owned(),
            methods: Vec::new(),
            action: Action::Forward { upstream, strip_prefix: None, host: None },
            require: None,
            limit: None,
            on_limit: OnLimit::default(),
            shape: ShapeConfig::default(),
            queue: QueueConfig::default(),
            denial: DenialConfig::default(),
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
        }
    }
}
