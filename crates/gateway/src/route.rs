//! Finds the route of a request by host, path and method.
//!
//! A path is exact (`/login`), a template (`/users/{id}`) or a prefix (`/static/*`). The most
//! specific one applies, in any order: exact before template before prefix, and a named host
//! before `*.example.com` before any host.

use std::collections::HashMap;
use std::fmt;

use http::Method;
use matchit::{InsertError, Router};
use sluicegate_config::gateway::route::RouteConfig;

use crate::forward::matched_form;

/// Routes by host, path and method.
#[derive(Debug)]
pub struct RouteTable {
    hosts: HashMap<Box<str>, Paths>,
    /// Below `*.`: by the part after the star, with its dot.
    wildcards: Vec<(Box<str>, Paths)>,
    any: Paths,
}

/// Routes of one host.
#[derive(Debug, Default)]
struct Paths {
    router: Router<usize>,
    /// The routes of each pattern of the router.
    candidates: Vec<(String, Vec<Candidate>)>,
}

/// A route of one path.
#[derive(Debug, Clone)]
struct Candidate {
    methods: Vec<Method>,
    route: usize,
    is_prefix: bool,
}

/// Why routes cannot be combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteError {
    /// Index of the route.
    pub route: usize,
    /// The key below the route, such as `path` or `request_headers.set.Host`.
    pub key: String,
    /// The reason.
    pub reason: RouteProblem,
}

/// The reason why a route cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteProblem {
    /// Another route has its path.
    Overlap {
        /// The path.
        path: String,
        /// Index of the other route.
        other: usize,
    },
    /// Another reason, with the remedy.
    Invalid(String),
}

impl RouteError {
    /// The reason with the remedy; `path_of` gives the place of a route in the file.
    #[must_use]
    pub fn message(&self, path_of: impl Fn(usize) -> String) -> String {
        match &self.reason {
            RouteProblem::Overlap { path, other } => format!(
                "`{path}` is the path of {} too; remove one, or give them different hosts or methods",
                path_of(*other)
            ),
            RouteProblem::Invalid(message) => message.clone(),
        }
    }
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The route of this index.
    Route(usize),
    /// The path has routes, but none for the method.
    OtherMethod,
    /// No route.
    None,
}

impl RouteTable {
    /// Compiles the routes.
    ///
    /// # Errors
    /// All routes whose path is malformed, or that apply to the requests of another one.
    pub fn new(routes: &[RouteConfig]) -> Result<Self, Vec<RouteError>> {
        let mut table =
            Self { hosts: HashMap::new(), wildcards: Vec::new(), any: Paths::default() };
        let mut errors = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            let mut inserted = Ok(());
            if route.hosts.is_empty() {
                inserted = table.any.insert(index, route);
            }
            for host in &route.hosts {
                // One problem of a path for all hosts.
                inserted = inserted.and_then(|()| table.paths(host).insert(index, route));
            }
            let refuse = |reason| RouteError { route: index, key: "path".to_owned(), reason };
            errors.extend(inserted.err().map(refuse));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let wildcards = table.wildcards.iter_mut().map(|(_, paths)| paths);
        for paths in table.hosts.values_mut().chain(wildcards).chain([&mut table.any]) {
            paths.add_general();
        }
        // The longest first: the most specific.
        table.wildcards.sort_by_key(|(host, _)| std::cmp::Reverse(host.len()));
        Ok(table)
    }

    fn paths(&mut self, host: &str) -> &mut Paths {
        match host.strip_prefix('*') {
            Some(below) => {
                let known = self.wildcards.iter().position(|(host, _)| **host == *below);
                let index = known.unwrap_or_else(|| {
                    self.wildcards.push((below.into(), Paths::default()));
                    self.wildcards.len() - 1
                });
                &mut self.wildcards[index].1
            }
            None => self.hosts.entry(host.into()).or_default(),
        }
    }

    /// Finds the route of a request. The host is in lower case and without a port, the path in
    /// normal form.
    #[must_use]
    pub fn find(&self, host: &str, path: &str, method: &Method) -> Found {
        let named = self.hosts.get(host).into_iter();
        let below = self.wildcards.iter().filter(|(below, _)| host.ends_with(&**below));
        let mut found = Found::None;
        for paths in named.chain(below.map(|(_, paths)| paths)).chain([&self.any]) {
            match paths.find(path, method) {
                Found::None => {}
                Found::OtherMethod => found = Found::OtherMethod,
                route => return route,
            }
        }
        found
    }
}

/// Indices of the routes in the order in which they match: hosts and paths from the most specific
/// to the least.
#[must_use]
pub fn matching_order(routes: &[RouteConfig]) -> Vec<usize> {
    let rank = |route: &RouteConfig| {
        let host = match route.hosts.first() {
            Some(host) if !host.starts_with('*') => 0,
            Some(_) => 1,
            None => 2,
        };
        let path = match &route.path {
            path if path.ends_with("/*") => 2,
            path if path.contains('{') => 1,
            _ => 0,
        };
        let host_length = route.hosts.first().map_or(0, String::len);
        let lengths = (std::cmp::Reverse(host_length), std::cmp::Reverse(route.path.len()));
        (host, lengths.0, route.hosts.first().cloned(), path, lengths.1)
    };
    let mut order: Vec<usize> = (0..routes.len()).collect();
    order.sort_by_cached_key(|index| routes.get(*index).map(rank));
    order
}

impl Paths {
    fn insert(&mut self, index: usize, route: &RouteConfig) -> Result<(), RouteProblem> {
        let method = |name: &String| {
            let method = Method::from_bytes(name.as_bytes());
            let message = || format!("`{name}` is not a method; write it like `GET`");
            method.map_err(|_| RouteProblem::Invalid(message()))
        };
        check_pattern(&route.path).map_err(RouteProblem::Invalid)?;
        let methods = route.methods.iter().map(method).collect::<Result<_, _>>()?;
        let is_prefix = route.path.ends_with("/*");
        let candidate = Candidate { methods, route: index, is_prefix };
        for pattern in patterns(&route.path) {
            let known = self.candidates.iter_mut().find(|(known, _)| *known == pattern);
            if let Some((_, candidates)) = known {
                if let Some(other) = candidates.iter().find(|one| one.overlaps(&candidate)) {
                    return Err(RouteProblem::Overlap {
                        path: route.path.clone(),
                        other: other.route,
                    });
                }
                // A path is more specific than a prefix that is equal to it.
                let at = if is_prefix { candidates.len() } else { 0 };
                candidates.insert(at, candidate.clone());
                continue;
            }
            let inserted = self.router.insert(&pattern, self.candidates.len());
            inserted.map_err(|error| RouteProblem::Invalid(describe(&route.path, &error)))?;
            self.candidates.push((pattern, vec![candidate.clone()]));
        }
        Ok(())
    }

    /// Adds to each pattern the routes of more general ones: they get the methods that its own
    /// routes do not have.
    fn add_general(&mut self) {
        let mut general = self.candidates.clone();
        let is_literal = |segment: &&str| !segment.starts_with('{');
        general.sort_by_cached_key(|(pattern, _)| {
            let literals = pattern.split('/').filter(is_literal).count();
            (std::cmp::Reverse(literals), pattern.contains("{*"))
        });
        for (pattern, candidates) in &mut self.candidates {
            let more = general.iter().filter(|(other, _)| other != pattern);
            let more = more.filter(|(other, _)| covers(other, pattern));
            candidates.extend(more.flat_map(|(_, candidates)| candidates.iter().cloned()));
        }
    }

    fn find(&self, path: &str, method: &Method) -> Found {
        let Ok(found) = self.router.at(path) else { return Found::None };
        let (_, candidates) = &self.candidates[*found.value];
        let fits = |one: &&Candidate| one.methods.is_empty() || one.methods.contains(method);
        match candidates.iter().find(fits) {
            Some(candidate) => Found::Route(candidate.route),
            None => Found::OtherMethod,
        }
    }
}

impl Candidate {
    fn overlaps(&self, other: &Self) -> bool {
        self.is_prefix == other.is_prefix
            && (self.methods.is_empty()
                || other.methods.is_empty()
                || self.methods.iter().any(|method| other.methods.contains(method)))
    }
}

/// Refuses a path that no request has, since requests are matched in normal form.
fn check_pattern(path: &str) -> Result<(), String> {
    if path.strip_suffix("/*").unwrap_or(path).contains('*') {
        return Err(format!(
            "`{path}` has a `*` that matches only itself; a prefix ends in `/*`, like `/static/*`"
        ));
    }
    // Names in braces are not text of a path.
    let literal = |segment| if str::contains(segment, '{') { "x" } else { segment };
    let literals: Vec<_> = path.split('/').map(literal).collect();
    let literals = literals.join("/");
    match matched_form(&literals) {
        Some(form) if form == literals => Ok(()),
        Some(form) if literals == path => Err(format!(
            "no request has the path `{path}`, since paths are normalized; write `{form}`"
        )),
        _ => Err(format!(
            "no request has the path `{path}`, since paths are normalized; write it without `;`, \
             `%2F`, `%5C`, empty and dot segments"
        )),
    }
}

/// The patterns of a path: a prefix is itself, and everything below it.
fn patterns(path: &str) -> Vec<String> {
    match path.strip_suffix("/*") {
        Some("") => vec!["/".to_owned(), "/{*rest}".to_owned()],
        Some(prefix) => {
            vec![prefix.to_owned(), format!("{prefix}/"), format!("{prefix}/{{*rest}}")]
        }
        None => vec![path.to_owned()],
    }
}

/// Whether every path of a pattern has the form of another one.
fn covers(general: &str, pattern: &str) -> bool {
    let mut segments = pattern.split('/');
    for wanted in general.split('/') {
        let Some(segment) = segments.next() else { return false };
        if wanted.starts_with("{*") {
            return !segment.is_empty();
        }
        let is_covered = match wanted.starts_with('{') {
            true => !segment.is_empty() && !segment.starts_with("{*"),
            false => wanted == segment,
        };
        if !is_covered {
            return false;
        }
    }
    segments.next().is_none()
}

fn describe(path: &str, error: &InsertError) -> String {
    match error {
        InsertError::Conflict { with } => format!(
            "`{path}` is ambiguous beside `{with}`: they name the same segment differently; use one name"
        ),
        _ => format!(
            "`{path}` is not a path; write it like `/login`, `/users/{{id}}` or `/static/*`"
        ),
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message(|other| format!("routes[{other}]"));
        write!(f, "routes[{}].{}: {message}", self.route, self.key)
    }
}

impl std::error::Error for RouteError {}
