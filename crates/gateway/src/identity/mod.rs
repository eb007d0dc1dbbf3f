//! Who sends a request: what limits know of a client beyond its address.
//!
//! ```text
//!   request ── require ── 401 without a valid credential
//!                │
//!                └ parts of descriptors: jwt, api_key, json, form, geo, ja4, … ── limit
//! ```
//!
//! Nothing is verified or read for a route that does not use it. A credential that is not valid is
//! none: its parts are missing.

mod api_key;
mod body_fields;
mod buffered_body;
mod client_hello;
mod follow;
mod form;
mod geo;
mod ja4;
mod json;
mod jwt;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::request::Parts;
use sluicegate_config::gateway::api_keys::ApiKeyConfig;
use sluicegate_config::gateway::route::{Action, Credential, RouteConfig};
use sluicegate_config::gateway::upstream::{Balance, UpstreamConfig};
use sluicegate_config::gateway::{
    BodyFieldsConfig, GatewayConfig, GeoConfig, IdentityConfig, JwksSource,
};
use sluicegate_rules::mapping::{Identity, Part, Source};
use tokio::sync::Semaphore;

use self::api_key::ApiKeys;
pub use self::api_key::{KEY_BYTES_MAX, generate_key, hash_key};
pub(crate) use self::body_fields::is_json;
use self::body_fields::{BodyError, FieldValues, RequestBytes};
pub(crate) use self::buffered_body::BufferedBody;
pub(crate) use self::client_hello::ClientHelloRecorder;
pub(crate) use self::follow::FollowedFiles;
use self::follow::TaskGuard;
use self::geo::Geo;
pub(crate) use self::json::folded;
use self::jwt::{JwtVerifier, Token, TokenError};
use sluicegate_server::metrics::{Labels, MetricsSource, Page};

use crate::body::RequestBody;
use crate::error::{Challenge, ProxyError};
use crate::handler::ConnectionContext;
use crate::tokens::{TokenPlan, TokenRequest, is_metered};

/// Permits for the memory of all requests to models in flight, of 64 KiB each: 256 MiB.
const MODEL_REQUEST_PERMITS: usize = 4_096;

/// Why identities cannot be verified as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdentityError {
    /// What failed.
    pub(crate) step: String,
    /// The reason, with the remedy.
    pub(crate) reason: String,
}

/// Identifies clients.
#[derive(Debug)]
pub(crate) struct Identities {
    api_keys: Option<ApiKeys>,
    jwt: Option<JwtVerifier>,
    geo: Geo,
    body: BodyFieldsConfig,
    /// By route.
    needs: Vec<Needs>,
    uses_ja4: bool,
    /// Memory of the requests to models that are in flight.
    memory: Arc<Semaphore>,
    counts: Arc<IdentityCounts>,
    _files: Option<TaskGuard>,
}

/// What a route needs to know of a client.
#[derive(Debug, Default)]
struct Needs {
    api_key: bool,
    jwt: bool,
    /// Fields of the body.
    fields: Box<[Source]>,
    required: Option<Credential>,
    /// How its tokens are counted.
    tokens: Option<Arc<TokenPlan>>,
}

/// Counters of credentials and bodies that had no effect.
#[derive(Debug, Default)]
pub(crate) struct IdentityCounts {
    /// Tokens that are not valid.
    pub(crate) tokens_refused: AtomicU64,
    /// Requests without a required credential.
    pub(crate) unauthorized: AtomicU64,
    /// Bodies longer than the bound.
    pub(crate) bodies_too_long: AtomicU64,
    /// Bodies that are malformed, or that servers read differently.
    pub(crate) bodies_malformed: AtomicU64,
}

/// What is known of a client.
#[derive(Debug)]
pub(crate) struct ClientIdentity<'a> {
    identities: &'a Identities,
    route: &'a RouteConfig,
    connection: &'a ConnectionContext,
    client: Option<IpAddr>,
    needs: Option<&'a Needs>,
    api_key: Option<Arc<ApiKeyConfig>>,
    /// The verified token.
    token: Result<Arc<Token>, TokenError>,
    /// Values of the fields that the route needs.
    fields: FieldValues,
    /// The request to a model.
    tokens: Option<Arc<TokenRequest>>,
}

/// Files of identities that cannot be used, each with the reason.
#[must_use]
pub(crate) fn unusable_files(config: &IdentityConfig) -> Vec<(PathBuf, String)> {
    let mut files = FollowedFiles::default();
    let mut unusable = Vec::new();
    let mut check = |path: &PathBuf, loaded: Result<(), IdentityError>| {
        unusable.extend(loaded.err().map(|error| (path.clone(), error.reason)));
    };
    if let Some(keys) = &config.api_keys {
        check(&keys.file, ApiKeys::new(keys, &mut files).map(drop));
    }
    if let Some(jwt) = &config.jwt
        && let JwksSource::File(path) = &jwt.jwks
    {
        check(path, JwtVerifier::new(jwt, Vec::new(), 1, None, &mut files).map(drop));
    }
    if let Some(path) = &config.geo.asn {
        let asn = GeoConfig { asn: Some(path.clone()), country: None };
        check(path, Geo::new(&asn, &mut files).map(drop));
    }
    if let Some(path) = &config.geo.country {
        let country = GeoConfig { asn: None, country: Some(path.clone()) };
        check(path, Geo::new(&country, &mut files).map(drop));
    }
    unusable
}

impl Identities {
    /// Loads keys and databases. Must be called within a Tokio runtime.
    /// Keys of a URL that the previous ones have too are not fetched again.
    pub(crate) fn new(
        config: &GatewayConfig,
        workers: usize,
        previous: Option<&Self>,
    ) -> Result<Self, IdentityError> {
        let mut files = FollowedFiles::default();
        let identity = &config.identity;
        let api_keys = identity.api_keys.as_ref();
        let api_keys = api_keys.map(|config| ApiKeys::new(config, &mut files)).transpose()?;
        let claims = claims(config);
        let jwt = identity.jwt.as_ref();
        let loaded = previous.and_then(|previous| previous.jwt.as_ref());
        let jwt = jwt.map(|config| JwtVerifier::new(config, claims, workers, loaded, &mut files));
        let jwt = jwt.transpose()?;
        let geo = Geo::new(&identity.geo, &mut files)?;
        let needs = |route| {
            let tokens = TokenPlan::new(route, &mut files)?;
            Ok(Needs { tokens, ..Needs::new(route, &config.upstreams) })
        };
        let needs = config.routes.iter().map(needs).collect::<Result<_, _>>()?;
        let memory = previous.map(|previous| previous.memory.clone());
        let this = Self {
            api_keys,
            jwt,
            geo,
            body: identity.body,
            needs,
            uses_ja4: all_sources(config).any(|source| *source == Source::Ja4),
            memory: memory.unwrap_or_else(|| Arc::new(Semaphore::new(MODEL_REQUEST_PERMITS))),
            counts: previous.map(|previous| previous.counts.clone()).unwrap_or_default(),
            _files: files.start(),
        };
        this.check(&config.routes)?;
        Ok(this)
    }

    /// Refuses sources that identify no client.
    fn check(&self, routes: &[RouteConfig]) -> Result<(), IdentityError> {
        for (needs, route) in self.needs.iter().zip(routes) {
            let missing = match () {
                () if needs.api_key && self.api_keys.is_none() => "identity.api_keys",
                () if needs.jwt && self.jwt.is_none() => "identity.jwt",
                () => continue,
            };
            return Err(IdentityError {
                step: format!("compile the route `{}`", route.name),
                reason: format!("it uses what is not configured; add `{missing}`"),
            });
        }
        Ok(())
    }

    /// Whether a route uses JA4.
    pub(crate) const fn uses_ja4(&self) -> bool {
        self.uses_ja4
    }

    /// Counters of all routes.
    pub(crate) fn counts(&self) -> Arc<IdentityCounts> {
        self.counts.clone()
    }

    /// Identifies the client of a request to the route of this index.
    pub(crate) async fn identify<'a>(
        &'a self,
        (index, route): (usize, &'a RouteConfig),
        head: &Parts,
        body: &mut RequestBody,
        connection: &'a ConnectionContext,
        client: Option<IpAddr>,
        worker: usize,
    ) -> Result<ClientIdentity<'a>, ProxyError> {
        let needs = self.needs.get(index).filter(|needs| !needs.is_empty());
        let mut identity = ClientIdentity {
            identities: self,
            route,
            connection,
            client,
            needs,
            api_key: None,
            token: Err(TokenError::Missing),
            fields: Box::default(),
            tokens: None,
        };
        if let Some(needs) = needs {
            // Boxed, so that the future of other requests stays small.
            Box::pin(self.verify(needs, &mut identity, head, body, worker)).await?;
        }
        Ok(identity)
    }

    async fn verify(
        &self,
        needs: &Needs,
        identity: &mut ClientIdentity<'_>,
        head: &Parts,
        body: &mut RequestBody,
        worker: usize,
    ) -> Result<(), ProxyError> {
        if needs.api_key {
            identity.api_key = self.api_keys.as_ref().and_then(|keys| keys.find(head));
        }
        if needs.jwt
            && let Some(jwt) = &self.jwt
        {
            identity.token = jwt.verify(worker, &head.headers).await;
            if matches!(identity.token, Err(TokenError::Expired | TokenError::Invalid)) {
                self.counts.tokens_refused.fetch_add(1, Relaxed);
            }
        }
        if let Some(required) = needs.required {
            self.require(required, identity)?;
        }
        let mut bytes = RequestBytes::Unread;
        if let Some(plan) = &needs.tokens
            && is_metered(plan, head, body)
        {
            let read = body_fields::read_model_request(head, body, plan, &self.memory).await?;
            identity.tokens = Some(Arc::new(TokenRequest::new(plan, head, &read)?));
            bytes = RequestBytes::Read(read);
        }
        if !needs.fields.is_empty() {
            let fields =
                body_fields::read_fields(head, body, bytes, self.body, &needs.fields).await;
            identity.fields = self.fields_or_none(fields)?;
        }
        Ok(())
    }

    fn require(
        &self,
        required: Credential,
        identity: &ClientIdentity<'_>,
    ) -> Result<(), ProxyError> {
        let challenge = match (required, &identity.token) {
            (Credential::ApiKey, _) if identity.api_key.is_none() => Challenge::ApiKey,
            (Credential::Jwt, Err(TokenError::KeysUnavailable)) => {
                return Err(ProxyError::KeysUnavailable);
            }
            (Credential::Jwt, Err(TokenError::Missing)) => Challenge::Token,
            (Credential::Jwt, Err(TokenError::Expired)) => Challenge::ExpiredToken,
            (Credential::Jwt, Err(TokenError::Invalid)) => Challenge::InvalidToken,
            (Credential::ClientCertificate, _) if identity.connection.certificate.is_none() => {
                Challenge::ClientCertificate
            }
            _ => return Ok(()),
        };
        self.counts.unauthorized.fetch_add(1, Relaxed);
        Err(ProxyError::Unauthorized(challenge))
    }

    fn fields_or_none(
        &self,
        fields: Result<FieldValues, BodyError>,
    ) -> Result<FieldValues, ProxyError> {
        let count = match fields {
            Ok(fields) => return Ok(fields),
            Err(BodyError::Timeout) => return Err(ProxyError::BodyTimeout),
            Err(BodyError::Aborted) => {
                return Err(ProxyError::BadRequest("The body of the request is incomplete."));
            }
            Err(BodyError::OtherType) => return Ok(Box::default()),
            Err(BodyError::TooLong) => &self.counts.bodies_too_long,
            Err(BodyError::Malformed) => &self.counts.bodies_malformed,
        };
        count.fetch_add(1, Relaxed);
        Ok(Box::default())
    }
}

impl ClientIdentity<'_> {
    /// The request to a model, if its tokens are counted.
    pub(crate) const fn tokens(&self) -> Option<&Arc<TokenRequest>> {
        self.tokens.as_ref()
    }

    /// Whether the connection is encrypted.
    pub(crate) const fn is_tls(&self) -> bool {
        self.connection.is_tls
    }

    /// The error for a request without a part of its limit.
    pub(crate) fn missing(&self, part: &Part) -> ProxyError {
        let credential = match &part.source {
            Source::Jwt(_) => Some(Credential::Jwt),
            Source::ApiKey | Source::ApiKeyAttribute(_) => Some(Credential::ApiKey),
            Source::ClientCertificate => Some(Credential::ClientCertificate),
            _ => None,
        };
        let required = credential.map(|one| self.identities.require(one, self));
        // A valid credential may lack the claim or attribute.
        required.and_then(Result::err).unwrap_or(ProxyError::IdentityMissing)
    }

    /// Removes the credentials that are for the gateway alone.
    pub(crate) fn strip(&self, head: &mut Parts) {
        if self.needs.is_some_and(|needs| needs.api_key)
            && let Some(keys) = &self.identities.api_keys
        {
            keys.strip(head);
        }
    }
}

impl Identity for ClientIdentity<'_> {
    fn value<'a>(&'a self, source: &Source) -> Option<Cow<'a, str>> {
        let borrowed = |text: &'a str| Some(Cow::Borrowed(text));
        match source {
            Source::Jwt(claim) => {
                let (jwt, token) = (self.identities.jwt.as_ref()?, self.token.as_ref().ok()?);
                borrowed(jwt.claim(token, claim)?)
            }
            Source::ApiKey => borrowed(&self.api_key.as_ref()?.name),
            Source::ApiKeyAttribute(name) => {
                let mut attributes = self.api_key.as_ref()?.attributes.iter();
                borrowed(&attributes.find(|(key, _)| key == name)?.1)
            }
            Source::Json(_) | Source::Form(_) => {
                let index = self.needs?.fields.iter().position(|field| field == source)?;
                borrowed(self.fields.get(index)?.as_deref()?)
            }
            // A request without a body costs nothing.
            Source::Usage(unit) => {
                let cost = self.tokens.as_ref().map_or(0, |tokens| tokens.estimated_cost(*unit));
                Some(Cow::Owned(cost.to_string()))
            }
            Source::Asn => self.identities.geo.asn(self.client?).map(Cow::Owned),
            Source::Country => self.identities.geo.country(self.client?).map(Cow::Owned),
            Source::PathTemplate => borrowed(&self.route.path),
            Source::Route => borrowed(&self.route.name),
            Source::Ja4 => borrowed(self.connection.ja4.as_deref()?),
            Source::ClientCertificate => borrowed(self.connection.client_certificate()?),
            _ => None,
        }
    }
}

impl MetricsSource for IdentityCounts {
    fn put(&self, page: &mut Page) {
        let help = "Requests without the credential that their route requires.";
        page.counter("sluicegate_gateway_unauthorized_total", help)
            .value(self.unauthorized.load(Relaxed));
        let help = "Tokens that are not valid or have expired.";
        page.counter("sluicegate_gateway_tokens_refused_total", help)
            .value(self.tokens_refused.load(Relaxed));
        let help = "Bodies whose fields are missing to limits, by reason.";
        let mut bodies = page.counter("sluicegate_gateway_bodies_unread_total", help);
        for (reason, count) in
            [("too_long", &self.bodies_too_long), ("malformed", &self.bodies_malformed)]
        {
            bodies.labeled(&Labels::new("reason", reason), count.load(Relaxed));
        }
    }
}

impl Needs {
    fn new(route: &RouteConfig, upstreams: &[UpstreamConfig]) -> Self {
        let mut needs = Self { required: route.require, ..Self::default() };
        let mut fields: Vec<Source> = Vec::new();
        for source in sources(route, upstreams) {
            match source {
                Source::ApiKey | Source::ApiKeyAttribute(_) => needs.api_key = true,
                Source::Jwt(_) => needs.jwt = true,
                field if body_fields::is_field(field) && !fields.contains(field) => {
                    fields.push(field.clone());
                }
                _ => {}
            }
        }
        needs.fields = fields.into();
        needs.api_key |= needs.required == Some(Credential::ApiKey);
        needs.jwt |= needs.required == Some(Credential::Jwt);
        needs
    }

    fn is_empty(&self) -> bool {
        let Self { api_key, jwt, fields, required, tokens } = self;
        !api_key && !jwt && fields.is_empty() && required.is_none() && tokens.is_none()
    }
}

/// The sources of a route's limit, and of the hash that its upstream is balanced by.
fn sources<'a>(
    route: &'a RouteConfig,
    upstreams: &'a [UpstreamConfig],
) -> impl Iterator<Item = &'a Source> {
    let parts = route.limit.iter().flat_map(|limit| limit.mapping.parts());
    let upstream = match route.action {
        Action::Forward { upstream, .. } => upstreams.get(upstream),
        _ => None,
    };
    let hash = upstream.and_then(|upstream| match &upstream.balance {
        Balance::Hash(part) => Some(part),
        Balance::RoundRobin | Balance::LeastConnections => None,
    });
    parts.chain(hash).map(|part: &Part| &part.source)
}

fn all_sources(config: &GatewayConfig) -> impl Iterator<Item = &Source> {
    config.routes.iter().flat_map(|route| sources(route, &config.upstreams))
}

/// The claims that any route uses.
fn claims(config: &GatewayConfig) -> Vec<Box<str>> {
    let mut claims: Vec<Box<str>> = Vec::new();
    for source in all_sources(config) {
        if let Source::Jwt(claim) = source
            && !claims.contains(claim)
        {
            claims.push(claim.clone());
        }
    }
    claims
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.reason)
    }
}

impl std::error::Error for IdentityError {}
