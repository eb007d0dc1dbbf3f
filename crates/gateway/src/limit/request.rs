//! A request to decide: its parts, the descriptors that they make, and how it may wait.

use http::request::Parts;
use sluicegate::http::HeaderLines;
use sluicegate::rules::mapping::{Attributes, Described, Few};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate_config::gateway::route::{LimitConfig, OnLimit, OnMissing, RouteConfig};

use crate::error::ProxyError;
use crate::forward::LoosePath;
use crate::identity::ClientIdentity;
use crate::route_state::RouteState;
use crate::shape::{Queues, Shaping};
use crate::upstream::stable_hash;

/// A request to decide.
#[derive(Clone, Copy)]
pub(crate) struct LimitedRequest<'a> {
    pub(crate) route: &'a RouteState,
    pub(crate) limit: &'a LimitConfig,
    pub(crate) head: &'a Parts,
    pub(crate) attributes: &'a Attributes<'a>,
    pub(crate) identity: &'a ClientIdentity<'a>,
}

impl<'a> LimitedRequest<'a> {
    /// Whether it may wait for its turn. What is settled later is denied at once.
    pub(super) fn may_wait(self) -> bool {
        let RouteState { config, settle, .. } = self.route;
        settle.is_none() && matches!(config.on_limit, OnLimit::Rules | OnLimit::Shape)
    }

    pub(super) fn shaping(self, queues: &'a Queues) -> Shaping<'a> {
        let RouteConfig { on_limit, shape, .. } = &self.route.config;
        // A part that is no text is treated as missing: the limits have judged it.
        let client = shape.fair_by.value(self.attributes).ok().flatten();
        let client = client.map_or(0, |client| stable_hash(client.as_bytes()));
        Shaping { queues, on_limit: *on_limit, config: shape, client }
    }

    /// Its descriptors.
    pub(crate) fn describe(self) -> Result<Described<'a>, ProxyError> {
        let described = self.limit.mapping.describe(self.attributes);
        let described = described
            .map_err(|_| ProxyError::BadRequest("A part of the request is not valid text."))?;
        match described.missing() {
            Some(part) if self.limit.on_missing == OnMissing::Reject => {
                Err(self.identity.missing(part))
            }
            _ => Ok(described),
        }
    }

    /// A client that names a cost must not name none; a request without tokens has none.
    pub(crate) fn descriptors<'e>(
        self,
        described: &Described<'_>,
        entries: &'e [Entry<'e>],
    ) -> Few<Descriptor<'e>> {
        let mut descriptors = described.descriptors(entries);
        let mappings = &self.limit.mapping.descriptors;
        let may_be_free = |index: usize| {
            self.limit.tokens.is_some()
                && mappings.get(index).is_some_and(|one| one.usage_unit().is_some())
        };
        for (one, index) in descriptors.iter_mut().zip(described.indices()) {
            let least = u64::from(!may_be_free(index));
            one.hits = one.hits.map(|hits| hits.max(least));
        }
        descriptors
    }

    pub(crate) fn request<'d>(
        self,
        described: &Described<'_>,
        descriptors: &'d [Descriptor<'d>],
    ) -> Request<'d>
    where
        'a: 'd,
    {
        let mut request = described.request(&self.limit.domain, descriptors);
        // A client that names its cost must not name none.
        request.hits = request.hits.max(1);
        request
    }
}

/// The attributes of a request that descriptors are made of.
pub(crate) fn attributes<'a>(
    head: &'a Parts,
    lines: &'a HeaderLines<'a>,
    host: &'a str,
    client: Option<std::net::IpAddr>,
    identity: &'a ClientIdentity<'a>,
) -> Attributes<'a> {
    let uri = match head.extensions.get::<LoosePath>() {
        Some(LoosePath(uri)) => uri,
        None => head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
    };
    Attributes {
        client_ip: client,
        method: Some(head.method.as_str().as_bytes()),
        scheme: Some(if identity.is_tls() { b"https" } else { b"http" }),
        host: Some(host.as_bytes()),
        uri: Some(uri.as_bytes()),
        headers: lines,
        identity: Some(identity),
    }
}
