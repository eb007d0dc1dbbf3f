//! A route, compiled.

use std::sync::Arc;

use sluicegate_config::gateway::route::{Action, RouteConfig};

use crate::action::OwnAction;
use crate::header_changes::HeaderEdits;
use crate::metrics::RouteMetrics;
use crate::route::{RouteError, RouteProblem};
use crate::settle::SettlePlan;

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
    /// How its requests are charged by their responses.
    pub(crate) settle: Option<Arc<SettlePlan>>,
}

impl RouteState {
    /// Compiles the route of an index.
    ///
    /// # Errors
    /// All keys that cannot be used.
    pub(crate) fn new(
        index: usize,
        config: &RouteConfig,
        metrics: Arc<RouteMetrics>,
    ) -> Result<Self, Vec<RouteError>> {
        let descriptors = config.limit.iter().flat_map(|limit| &limit.mapping.descriptors);
        let identity = descriptors.map(|one| one.name()).collect::<Vec<_>>().join(",").into();
        let mut errors = Vec::new();
        let mut refuse = |key: String, message| {
            errors.push(RouteError { route: index, key, reason: RouteProblem::Invalid(message) });
        };
        let action = OwnAction::new(&config.action, &config.path).unwrap_or_else(|message| {
            refuse(action_key(&config.action).to_owned(), message);
            None
        });
        let mut edits = |key: &str, changes| {
            HeaderEdits::new(changes).unwrap_or_else(|problems| {
                for (place, message) in problems {
                    refuse(format!("{key}.{place}"), message);
                }
                None
            })
        };
        let request_headers = edits("request_headers", &config.request_headers);
        let response_headers = edits("response_headers", &config.response_headers);
        if !errors.is_empty() {
            return Err(errors);
        }
        let settle = config.limit.as_ref().and_then(SettlePlan::new);
        let config = config.clone();
        Ok(Self { config, metrics, action, request_headers, response_headers, identity, settle })
    }

    /// All keys of routes that cannot be used.
    pub(crate) fn check(routes: &[RouteConfig]) -> Vec<RouteError> {
        let check = |(index, config): (usize, &RouteConfig)| {
            Self::new(index, config, RouteMetrics::new(&config.name)).err().unwrap_or_default()
        };
        routes.iter().enumerate().flat_map(check).collect()
    }
}

const fn action_key(action: &Action) -> &'static str {
    match action {
        Action::Forward { .. } => "upstream",
        Action::Redirect { .. } => "redirect",
        Action::Files { .. } => "files",
        Action::Respond { .. } => "respond",
    }
}
