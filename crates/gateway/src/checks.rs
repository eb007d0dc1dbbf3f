//! Checks of a gateway's file beyond its own keys: what routes are compiled to, and the files that
//! it names. All problems are found at once, with their places.

use std::path::{Path, PathBuf};

use sluicegate::clock::{Clock, SystemClock};
use sluicegate_config::gateway::listener::ListenerConfig;
use sluicegate_config::gateway::{Findings, GatewayConfig, LoadedGateway, load_checked};
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Invalid, Source};
use sluicegate_server::tls::TlsCheck;

use crate::access_log;
use crate::identity;
use crate::listener::access::AccessList;
use crate::listener::tls_files;
use crate::route::{RouteError, RouteTable};
use crate::route_state::RouteState;
use crate::tokens;
use crate::upstream::{file_roots, unusable_tls_files};

/// Checks a file beyond its own keys: the routes must not overlap, files must exist and be usable,
/// and limits need rules, which may be named elsewhere (`has_own_rules`). Files that only parts
/// name which are the same in the configuration in force are not opened again.
///
/// # Errors
/// All problems.
pub fn checked(
    source: &Source,
    has_own_rules: bool,
    active: Option<&GatewayConfig>,
) -> Result<LoadedGateway, Invalid> {
    let base = Path::new(&source.name).parent().unwrap_or(Path::new(""));
    load_checked(source, base, |loaded| {
        let mut found = listener_findings(loaded, active);
        found.problems.extend(route_problems(loaded, has_own_rules));
        let unusable = unusable_files(&loaded.config, active).into_iter();
        found.problems.extend(
            unusable.map(|(section, file, reason)| loaded.file_problem(&section, &file, reason)),
        );
        found
    })
}

/// Problems of routes beyond their own keys.
fn route_problems(loaded: &LoadedGateway, has_own_rules: bool) -> Vec<Problem> {
    let routes = &loaded.config.routes;
    let mut errors = RouteTable::new(routes).err().unwrap_or_default();
    errors.extend(RouteState::check(routes));
    let problem = |error: RouteError| {
        let message = error.message(|route| loaded.route_path(route).to_owned());
        loaded.route_problem(error.route, &error.key, message)
    };
    let mut problems: Vec<Problem> = errors.into_iter().map(problem).collect();
    let limited = routes.iter().position(|route| route.limit.is_some());
    if let Some(route) = limited.filter(|_| !has_own_rules && !loaded.has_rules()) {
        let message = "no rules are named, so nothing would be limited; add `rules: rules.yaml`, or \
                       give `--rules`";
        problems.push(loaded.limit_problem(route, message.to_owned()));
    }
    problems
}

/// Problems and warnings of the certificates of listeners.
fn listener_findings(loaded: &LoadedGateway, active: Option<&GatewayConfig>) -> Findings {
    let now = SystemClock::get().now();
    let mut found = Findings::default();
    for (index, listener) in loaded.config.listeners.iter().enumerate() {
        let is_active = |active: &GatewayConfig| active.listeners.contains(listener);
        let ListenerConfig { tls: Some(tls), .. } = listener else { continue };
        if active.is_some_and(is_active) {
            continue;
        }
        let TlsCheck { problems, warnings } = tls_files(tls).check(now);
        for (pair, error) in problems {
            let message = error.to_string();
            let pair = pair.and_then(|pair| tls.certificates.get(pair));
            found.problems.extend(match (pair, &tls.client_ca) {
                (Some(pair), _) => {
                    let is_key = error.path() != Some(&pair.cert);
                    Some(loaded.certificate_problem(index, pair, is_key, message))
                }
                (None, Some(ca)) => Some(loaded.listener_problem(index, ca, message)),
                (None, None) => None,
            });
        }
        found.warnings.extend(warnings.into_iter().filter_map(|(pair, message)| {
            let pair = tls.certificates.get(pair)?;
            Some(loaded.certificate_problem(index, pair, false, message))
        }));
        let ca = tls.acme.as_ref().and_then(|acme| acme.directory_ca.as_ref());
        if let Some((path, Err(reason))) = ca.map(|path| (path, file_roots(path))) {
            found.problems.push(loaded.listener_problem(index, path, reason));
        }
    }
    found
}

/// Other files that cannot be used, each with the section that names it and the reason.
fn unusable_files(
    config: &GatewayConfig,
    active: Option<&GatewayConfig>,
) -> Vec<(String, PathBuf, String)> {
    let mut unusable = Vec::new();
    let mut add = |section: &str, files: Vec<(PathBuf, String)>| {
        unusable.extend(files.into_iter().map(|(file, why)| (section.to_owned(), file, why)));
    };
    if active.is_none_or(|active| active.identity != config.identity) {
        add("identity.", identity::unusable_files(&config.identity));
    }
    if active.is_none_or(|active| active.access != config.access) {
        add("access.", AccessList::unusable_files(&config.access));
    }
    if active.is_none_or(|active| active.access_log != config.access_log) {
        let log = config.access_log.as_ref().and_then(access_log::unusable_file);
        add("access_log.", log.into_iter().collect());
    }
    let tokens_of = |config: &GatewayConfig| {
        let limits = config.routes.iter().map(|route| route.limit.as_ref());
        limits.map(|limit| limit.and_then(|limit| limit.tokens.clone())).collect::<Vec<_>>()
    };
    if active.is_none_or(|active| tokens_of(active) != tokens_of(config)) {
        add("routes", tokens::unusable_files(&config.routes));
    }
    for upstream in &config.upstreams {
        if active.is_none_or(|active| !active.upstreams.contains(upstream)) {
            let section = format!("upstreams.{}.", upstream.name);
            add(&section, unusable_tls_files(&upstream.tls));
        }
    }
    unusable
}
