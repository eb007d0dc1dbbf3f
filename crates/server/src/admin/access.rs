//! Who may do what on the admin endpoint.
//!
//! ```text
//!   Authorization: Bearer …   the token of `--admin-token-file`, or one of `--admin-tokens`
//!   session cookie            a browser that has logged in with one of them
//!   neither                   loopback without any token: everything; elsewhere: see below
//! ```
//!
//! A browser sends cookies, and reaches loopback, on behalf of any site. So a request that is
//! authorized by a session or by loopback must name this host, and must not come from a page of
//! another origin. An endpoint off loopback without tokens has its read-only pages, as a scraper
//! needs them, and neither the console nor the API.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use ring::digest;
use sluicegate::config::admin_tokens::AdminTokenConfig;
pub use sluicegate::config::admin_tokens::Role;

use super::session::{SessionId, Sessions};
use super::{AdminInner, error, wants_html};
use crate::app::App;
use crate::auth::{AuthEndpoint, AuthError};
use crate::http::Peer;
use crate::token::{Token, bearer};

/// The client of a request, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the token: `admin` for that of `--admin-token-file`, `local` without one.
    pub name: Arc<str>,
    /// Its role.
    pub role: Role,
}

/// Tokens and sessions of the admin endpoint.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// The token of `--admin-token-file`, of the role `edit`.
    token: Option<Token>,
    /// Those of `--admin-tokens`.
    tokens: AdminTokens,
    pub(super) sessions: Sessions,
    /// Whether requests need a token; also while the file of tokens is empty.
    needs_token: bool,
    is_loopback: bool,
}

/// Tokens of the file of `--admin-tokens`, which may change.
pub(crate) type AdminTokens = Arc<ArcSwap<Vec<AdminTokenConfig>>>;

const NO_TOKEN: &str = "the header `Authorization: Bearer …` with a configured token (SLUICEGATE_ADMIN_TOKEN, \
     SLUICEGATE_ADMIN_TOKENS) is required; /live and /ready need none";
const WRONG_TOKEN: &str = "this is not a token of this node; use that of SLUICEGATE_ADMIN_TOKEN, or one of the file \
     of SLUICEGATE_ADMIN_TOKENS";

/// Login page, and where its form is sent to.
pub(crate) const LOGIN: &str = "/console/login";
/// Style and scripts of the console, which hold no secret.
pub(super) const ASSETS: &str = "/console/assets/";

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    NoToken,
    WrongToken,
    TooManyFailures,
    OtherSite,
    Closed,
}

/// What a path is, for the decision who may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    /// Probes, the login, style and scripts.
    Open,
    /// Pages of numbers, and paths of other parts of the process.
    Pages,
    /// The console and the API.
    Console,
}

impl Access {
    pub(super) fn new(
        token: Option<Token>,
        tokens: Option<AdminTokens>,
        is_loopback: bool,
    ) -> Self {
        let needs_token = token.is_some() || tokens.is_some();
        let (tokens, sessions) = (tokens.unwrap_or_default(), Sessions::default());
        Self { token, tokens, sessions, needs_token, is_loopback }
    }

    /// Whether requests need a token.
    pub(super) const fn needs_token(&self) -> bool {
        self.needs_token
    }

    /// The caller of a request; none for probes.
    pub(super) fn caller(&self, app: &App, head: &Parts) -> Result<Option<Caller>, Refusal> {
        let area = Area::of(head);
        if area == Area::Open {
            return Ok(None);
        }
        let headers = &head.headers;
        if headers.contains_key(header::AUTHORIZATION) {
            let secret = bearer(headers).unwrap_or_default();
            return self.verify(app, head, secret).map(|(caller, _)| Some(caller));
        }
        if !self.needs_token {
            return self.caller_without_tokens(area, head).map(Some);
        }
        let session = SessionId::of_cookies(headers).ok_or(Refusal::NoToken)?;
        let hash = self.sessions.resume(&session, app.engine().ticks()).ok_or(Refusal::NoToken)?;
        let caller = self.by_hash(&hash).ok_or(Refusal::NoToken)?;
        if is_cross_site(head) { Err(Refusal::OtherSite) } else { Ok(Some(caller)) }
    }

    fn caller_without_tokens(&self, area: Area, head: &Parts) -> Result<Caller, Refusal> {
        let local = |role| Caller { name: "local".into(), role };
        match area {
            _ if self.is_loopback && is_cross_site(head) => Err(Refusal::OtherSite),
            // A name that resolves to loopback may belong to any site.
            Area::Console if self.is_loopback && !names_loopback(head) => Err(Refusal::OtherSite),
            _ if self.is_loopback => Ok(local(Role::Edit)),
            Area::Console => Err(Refusal::Closed),
            Area::Open | Area::Pages => Ok(local(Role::Edit)),
        }
    }

    /// Verifies a secret: the caller, and the hash that a session refers to.
    pub(super) fn verify(
        &self,
        app: &App,
        head: &Parts,
        secret: &str,
    ) -> Result<(Caller, TokenHash), Refusal> {
        let peer = head.extensions.get::<Peer>().map(|Peer(address)| *address);
        self.verify_from(app, peer, secret)
    }

    fn verify_from(
        &self,
        app: &App,
        peer: Option<IpAddr>,
        secret: &str,
    ) -> Result<(Caller, TokenHash), Refusal> {
        let hash = TokenHash::of(secret);
        let caller = self.by_hash(&hash);
        match app.authenticate(AuthEndpoint::Admin, peer, || caller.is_some()) {
            Ok(()) => caller.map(|caller| (caller, hash)).ok_or(Refusal::NoToken),
            Err(AuthError::Wrong) => Err(Refusal::WrongToken),
            Err(AuthError::TooMany) => Err(Refusal::TooManyFailures),
        }
    }

    /// The caller of a token. Hashes are compared, so the time depends on no secret.
    fn by_hash(&self, hash: &TokenHash) -> Option<Caller> {
        let single = self.token.as_ref().filter(|token| TokenHash::of(token.secret()) == *hash);
        if single.is_some() {
            return Some(Caller { name: "admin".into(), role: Role::Edit });
        }
        let tokens = self.tokens.load();
        let found = tokens.iter().find(|token| token.sha256 == hash.0)?;
        Some(Caller { name: found.name.as_ref().into(), role: found.role })
    }
}

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(secret: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
        Self(hash)
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(hidden)")
    }
}

impl Caller {
    /// Requires a role.
    ///
    /// # Errors
    /// A response with status 403 that names the role.
    pub fn require(&self, role: Role) -> Result<(), Box<Response>> {
        if self.role >= role {
            return Ok(());
        }
        let message = format!(
            "this needs the role `{}`, and the token `{}` has `{}`; use another token, or change its role in the \
             file of `--admin-tokens`",
            role.name(),
            self.name,
            self.role.name()
        );
        Err(Box::new(error(StatusCode::FORBIDDEN, "forbidden", &message)))
    }
}

impl FromRequestParts<Arc<AdminInner>> for Caller {
    type Rejection = Response;

    async fn from_request_parts(
        head: &mut Parts,
        _: &Arc<AdminInner>,
    ) -> Result<Self, Self::Rejection> {
        head.extensions.get().cloned().ok_or_else(|| Refusal::NoToken.response())
    }
}

impl Refusal {
    pub(super) fn response(self) -> Response {
        match self {
            Self::NoToken => super::unauthorized(NO_TOKEN),
            Self::WrongToken => super::unauthorized(WRONG_TOKEN),
            Self::TooManyFailures => super::too_many_failures(),
            Self::OtherSite => {
                let message = "the request comes from a page of another site, or names another host; open the \
                               console under its own address, such as http://127.0.0.1:6070/";
                error(StatusCode::FORBIDDEN, "other_site", message)
            }
            Self::Closed => {
                let message = "the console and its API need a token on this address: set --admin-token-file or \
                               --admin-tokens, or bind the admin endpoint to loopback";
                error(StatusCode::FORBIDDEN, "no_tokens", message)
            }
        }
    }
}

impl Area {
    fn of(head: &Parts) -> Self {
        match head.uri.path() {
            "/live" | "/ready" | LOGIN => Self::Open,
            path if path.starts_with(ASSETS) => Self::Open,
            "/" if wants_html(&head.headers) => Self::Console,
            path if path.starts_with("/api/") || path.starts_with("/console") => Self::Console,
            _ => Self::Pages,
        }
    }
}

/// Whether a page of another site has sent the request, other than by a link to follow.
pub(super) fn is_cross_site(head: &Parts) -> bool {
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let is_navigation = head.method == Method::GET
        && text(header::HeaderName::from_static("sec-fetch-mode")) == Some("navigate");
    if is_navigation {
        return false;
    }
    if let Some(site) = text(header::HeaderName::from_static("sec-fetch-site")) {
        return !matches!(site, "same-origin" | "none");
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    let of_origin = origin.split_once("://").map(|(_, authority)| authority);
    of_origin.is_none() || of_origin != host(head)
}

fn host(head: &Parts) -> Option<&str> {
    let host = head.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    host.or_else(|| head.uri.authority().map(Authority::as_str))
}

/// Whether the request names loopback, by address or as `localhost`; one without a host is not of
/// a browser.
fn names_loopback(head: &Parts) -> bool {
    let Some(authority) = host(head) else { return true };
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
