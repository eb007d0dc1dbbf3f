//! A route, compiled.

use std::sync::Arc;

use sluicegate_config::gateway::route::RouteConfig;

use crate::action::OwnAction;
use crate::header_changes::HeaderEdits;
use crate::metrics::RouteMetrics;

/// A route, with what it needs for each request.
#[derive(Debug)]
pub(crate) struct RouteState {
    pub(crate) config: RouteConfig,
    pub(crate) metrics: Arc<RouteMetrics>,
    /// What answers, if it is not an upstream.
    pub(crate) action: Option<OwnAction>,
    pub(crate) request_headers: Option<HeaderEdits>,
    pub(crate) response_headers: Option<HeaderEdits>,
    /// Keys of the descriptors, for the log.
    pub(crate) identity: Arc<str>,
}

impl RouteState {
    /// Compiles a route.
    ///
    /// # Errors
    /// When its action or its headers cannot be used.
    pub(crate) fn new(config: &RouteConfig, metrics: Arc<RouteMetrics>) -> Result<Self, String> {
        let descriptors = config.limit.iter().flat_map(|limit| &limit.mapping.descriptors);
        let keys = descriptors.map(|entries| {
            let keys: Vec<&str> = entries.iter().map(|(key, _)| &**key).collect();
            keys.join("+")
        });
        let identity = keys.collect::<Vec<_>>().join(",").into();
        Ok(Self {
            config: config.clone(),
            metrics,
            action: OwnAction::new(&config.action, &config.path)?,
            request_headers: HeaderEdits::new(&config.request_headers)?,
            response_headers: HeaderEdits::new(&config.response_headers)?,
            identity,
        })
    }

    /// Whether a route can be compiled.
    ///
    /// # Errors
    /// When its action or its headers cannot be used.
    pub(crate) fn check(config: &RouteConfig) -> Result<(), String> {
        Self::new(config, RouteMetrics::new(&config.name)).map(drop)
    }
}
