//! Loads a gateway's file, with the positions that later checks report at.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::listener::CertificateFiles;
use super::{GatewayConfig, reader};
use crate::files::FileError;
use crate::problem::{self, Position, Problem, Report, quoted};
use crate::rules::lint::unmatched_entry;
use crate::rules::{Invalid, Loaded, Source};
use crate::suggest;
use sluicegate_rules::rule::RuleConfig;

use super::limit_names::LimitNames;
use super::route::OnLimit;
use super::rules_of_limit::{rules_of, undeferred, unfit_budget, unsettled};

/// A valid file of a gateway.
#[derive(Debug, Clone)]
pub struct LoadedGateway {
    /// The configuration.
    pub config: GatewayConfig,
    /// Likely mistakes, in file order.
    pub warnings: Vec<Problem>,
    origins: Origins,
}

/// Positions of the parts of a file.
#[derive(Debug, Clone)]
pub(super) struct Origins {
    source: String,
    pub(super) listen: Option<Position>,
    pub(super) routes: Vec<RouteOrigin>,
    /// Whether `rules` is written, also if it has problems.
    pub(super) has_rules: bool,
    /// Files, in the order of the text.
    pub(super) files: Vec<FileReference>,
    /// Which of them each listener names.
    pub(super) listeners: Vec<Range<usize>>,
    /// What is configured, also if it has problems.
    pub(super) has_jwt: bool,
    pub(super) has_api_keys: bool,
    pub(super) has_tls: bool,
    pub(super) has_client_ca: bool,
    pub(super) has_asn: bool,
    pub(super) has_country: bool,
    pub(super) has_deferred: bool,
}

/// Positions of a route.
#[derive(Debug, Clone)]
pub(super) struct RouteOrigin {
    /// Of its `path`.
    pub(super) path_at: Position,
    /// The place inside the document.
    path: String,
    pub(super) limit: Option<LimitOrigin>,
    /// Values that later checks report about: the key below the route, position and path.
    places: Vec<(String, Position, String)>,
    /// The names in `hide`.
    pub(super) hide: Vec<(Position, String)>,
    /// Of `settle`, and of `tokens`.
    pub(super) settle: Option<(Position, String)>,
    pub(super) tokens: Option<(Position, String)>,
}

/// Positions of a limit.
#[derive(Debug, Clone)]
pub(super) struct LimitOrigin {
    /// Of its domain.
    pub(super) at: Position,
    pub(super) path: String,
    pub(super) descriptors: Vec<(Position, String)>,
}

/// A file that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct FileReference {
    pub(super) at: Position,
    pub(super) path: String,
    pub(super) file: PathBuf,
    /// Whether the gateway creates it, so that it need not exist.
    pub(super) is_created: bool,
}

/// What a check beyond the keys of a file has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Reasons not to use the file.
    pub problems: Vec<Problem>,
    /// Likely mistakes.
    pub warnings: Vec<Problem>,
}

/// Loads a text; paths in it are relative to `base`. Files that it names need not exist.
///
/// ```
/// use sluicegate_config::gateway::load;
/// use sluicegate_config::rules::Source;
///
/// let text = "upstreams: { api: http://127.0.0.1:3000 }\nroutes: [{ path: /*, upstream: apo }]\n";
/// let source = Source { name: "gateway.yaml".to_owned(), text: text.to_owned() };
/// let invalid = load(&source, "/etc/sluicegate".as_ref()).unwrap_err();
/// assert_eq!(
///     invalid.to_string(),
///     "gateway.yaml:2:32: routes[0].upstream: unknown upstream, got `apo`; did you mean `api`? the \
///      upstreams are `api`"
/// );
/// ```
///
/// # Errors
/// All problems of the text.
pub fn load(source: &Source, base: &Path) -> Result<LoadedGateway, Invalid> {
    let mut report = Report::new(&source.name);
    let read = reader::read(&source.text, base, &mut report);
    finish(read.map(LoadedGateway::from), report)
}

/// Loads a text, and checks that the files it names exist.
///
/// # Errors
/// All problems of the text.
pub fn load_with_files(source: &Source, base: &Path) -> Result<LoadedGateway, Invalid> {
    load_checked(source, base, |_| Findings::default())
}

/// The same with a further check, whose findings are reported together with those of the text. It
/// also gets a configuration with problems: values that cannot be read are left out.
///
/// # Errors
/// All problems.
pub fn load_checked(
    source: &Source,
    base: &Path,
    check: impl FnOnce(&LoadedGateway) -> Findings,
) -> Result<LoadedGateway, Invalid> {
    let mut report = Report::new(&source.name);
    let read = reader::read(&source.text, base, &mut report);
    let files = read.iter().flat_map(|read| &read.origins.files);
    for reference in files.filter(|reference| !reference.is_created) {
        if let Err(cause) = fs::metadata(&reference.file) {
            let error = FileError::io(&reference.file, cause);
            report.add(reference.at, &reference.path, error.to_string());
        }
    }
    let read = read.map(LoadedGateway::from);
    let found = read.as_ref().map(check).unwrap_or_default();
    found.problems.into_iter().for_each(|problem| report.add_later(problem));
    found.warnings.into_iter().for_each(|warning| report.warn_later(warning));
    finish(read, report)
}

fn finish(read: Option<LoadedGateway>, report: Report) -> Result<LoadedGateway, Invalid> {
    match (problem::gathered(vec![report]), read) {
        ((None, warnings), Some(loaded)) => Ok(LoadedGateway { warnings, ..loaded }),
        ((Some(problems), warnings), _) => Err(Invalid { problems, warnings }),
        // Every reason not to read a file is a problem.
        ((None, warnings), None) => {
            Err(Invalid { problems: problem::Problems::default(), warnings })
        }
    }
}

/// Whether a text is a file of a gateway and not of rules: by its keys.
///
/// ```
/// use sluicegate_config::gateway::is_gateway;
///
/// assert!(is_gateway("routes: []"));
/// assert!(is_gateway("listen: 0.0.0.0:80\nruotes: []"));
/// assert!(!is_gateway("domain: shop"));
/// ```
#[must_use]
pub fn is_gateway(text: &str) -> bool {
    let Ok((Some(root), _)) = crate::yaml::first_document(text) else { return false };
    let crate::yaml::Content::Mapping(pairs) = &root.content else { return false };
    let has = |names: &[&str]| {
        pairs.iter().any(|pair| match &pair.key.content {
            crate::yaml::Content::Scalar { text, .. } => names.contains(&&**text),
            _ => false,
        })
    };
    has(&["routes", "upstreams", "listen"]) && !has(&["domain", "descriptors"])
}

impl Origins {
    pub(super) const fn new(source: String) -> Self {
        Self {
            source,
            listen: None,
            routes: Vec::new(),
            has_rules: false,
            files: Vec::new(),
            listeners: Vec::new(),
            has_jwt: false,
            has_api_keys: false,
            has_tls: false,
            has_client_ca: false,
            has_asn: false,
            has_country: false,
            has_deferred: false,
        }
    }
}

impl RouteOrigin {
    pub(super) const fn new(at: Position, path: String) -> Self {
        Self {
            path_at: at,
            path,
            limit: None,
            places: Vec::new(),
            hide: Vec::new(),
            settle: None,
            tokens: None,
        }
    }

    /// Records the place of a value, by its key below the route.
    pub(super) fn record(&mut self, key: impl Into<String>, at: Position, path: String) {
        self.places.push((key.into(), at, path));
    }
}

impl From<reader::Read> for LoadedGateway {
    fn from(reader::Read { config, origins }: reader::Read) -> Self {
        Self { config, warnings: Vec::new(), origins }
    }
}

impl LoadedGateway {
    /// Whether `rules` is written.
    #[must_use]
    pub const fn has_rules(&self) -> bool {
        self.origins.has_rules
    }

    /// The place of a route inside the document, such as `routes[1]`.
    #[must_use]
    pub fn route_path(&self, route: usize) -> &str {
        self.origins.routes.get(route).map_or("routes", |origin| &origin.path)
    }

    /// A problem of a key of a route, such as `redirect`; at its path if the key has no place.
    #[must_use]
    pub fn route_problem(&self, route: usize, key: &str, message: String) -> Problem {
        let origin = self.origins.routes.get(route);
        let mut places = origin.iter().flat_map(|origin| &origin.places);
        if let Some((_, at, path)) = places.find(|(known, ..)| known == key) {
            return Problem::new(&self.origins.source, *at, path.clone(), message);
        }
        let at = origin.map_or(Position { line: 1, column: 1 }, |origin| origin.path_at);
        let path = origin.map_or_else(|| "routes".to_owned(), |one| format!("{}.path", one.path));
        Problem::new(&self.origins.source, at, path, message)
    }

    /// A problem of the content of a file that a section of this one names, such as
    /// `upstreams.api.`
    #[must_use]
    pub fn file_problem(&self, section: &str, file: &Path, message: String) -> Problem {
        let mut named = self.origins.files.iter().filter(|one| one.file == file);
        let first = named.clone().next();
        self.problem_at(named.find(|one| one.path.starts_with(section)).or(first), message)
    }

    /// The same of a file that a listener names; of its last mention there.
    #[must_use]
    pub fn listener_problem(&self, listener: usize, file: &Path, message: String) -> Problem {
        let mut files = self.files_of(listener).iter().rev();
        self.problem_at(files.find(|one| one.file == file), message)
    }

    /// A problem of a certificate of a listener, or of its key. Of the same pair twice, it is the
    /// last one that has no effect.
    #[must_use]
    pub fn certificate_problem(
        &self,
        listener: usize,
        pair: &CertificateFiles,
        is_key: bool,
        message: String,
    ) -> Problem {
        let is_pair = |two: &&[FileReference]| matches!(two, [cert, key] if cert.file == pair.cert && key.file == pair.key);
        // The certificate is read before its key.
        let two = self.files_of(listener).windows(2).rev().find(is_pair);
        self.problem_at(two.and_then(|two| two.get(usize::from(is_key))), message)
    }

    fn files_of(&self, listener: usize) -> &[FileReference] {
        let range = self.origins.listeners.get(listener).cloned();
        range.and_then(|range| self.origins.files.get(range)).unwrap_or_default()
    }

    fn problem_at(&self, reference: Option<&FileReference>, message: String) -> Problem {
        let at = reference.map_or(Position { line: 1, column: 1 }, |reference| reference.at);
        let path = reference.map_or_else(String::new, |reference| reference.path.clone());
        Problem::new(&self.origins.source, at, path, message)
    }

    /// A problem of the limit of a route.
    #[must_use]
    pub fn limit_problem(&self, route: usize, message: String) -> Problem {
        let limit = self.origins.routes.get(route).and_then(|origin| origin.limit.as_ref());
        match limit {
            Some(limit) => {
                Problem::new(&self.origins.source, limit.at, limit.path.clone(), message)
            }
            None => self.route_problem(route, "limit", message),
        }
    }

    /// Compares the limits of routes with the rules. Warnings are about limits that the rules do
    /// not have: their requests are not limited, or their numbers are not hidden.
    #[must_use]
    pub fn check_rules(&self, rules: &Loaded) -> Findings {
        let mut report = Report::new(&self.origins.source);
        let mut work_left = crate::rules::lint::NODES_VISITED_MAX;
        let mut limit_names = None;
        for (route, places) in self.config.routes.iter().zip(&self.origins.routes) {
            let (Some(limit), Some(origin)) = (&route.limit, &places.limit) else { continue };
            let found = rules.domains.iter().find(|domain| domain.name == limit.domain);
            let Some(domain) = found else {
                let names: Vec<&str> = rules.domains.iter().map(|one| &*one.name).collect();
                let message = unknown_domain(&limit.domain, &names);
                report.warn(origin.at, format_args!("{}.domain", origin.path), message);
                continue;
            };
            for (one, (at, path)) in limit.mapping.descriptors.iter().zip(&origin.descriptors) {
                let entries = &one.entries;
                let mut lists = domain.allow.iter().chain(&domain.deny);
                if lists.any(|one| entries.iter().any(|(key, _)| *one.key == **key)) {
                    continue;
                }
                let unmatched = unmatched_entry(entries, &domain.descriptors, &mut work_left);
                if let Some(message) = unmatched {
                    report.warn(*at, path, message);
                }
                if self.config.deferred.is_none() && route.on_limit == OnLimit::Rules {
                    let rules = rules_of(one, &domain.descriptors, &mut work_left);
                    if let Some(message) = rules.iter().find_map(|rule| undeferred(one, rule)) {
                        report.warn(*at, path, message);
                    }
                }
                let settled = [(&places.settle, "settle"), (&places.tokens, "tokens")];
                let settled = settled.into_iter().find_map(|(at, key)| Some((at.as_ref()?, key)));
                let Some(((settle_at, settle_path), key)) = settled else { continue };
                let rules = rules_of(one, &domain.descriptors, &mut work_left);
                if let Some(message) = rules.iter().find_map(|rule| unsettled(one, rule, key)) {
                    report.add(*settle_at, settle_path, message);
                }
                let budget = |rule: &&RuleConfig| unfit_budget(one, rule, limit.tokens.as_ref()?);
                if let Some(message) = rules.iter().find_map(budget) {
                    report.warn(*at, path, message);
                }
            }
            let hide = &route.denial.hide;
            if hide.is_empty() {
                continue;
            }
            let names = limit_names.get_or_insert_with(|| LimitNames::new(rules));
            for (name, (at, path)) in hide.iter().zip(&places.hide) {
                if let Some(message) = names.unknown(name, &limit.domain) {
                    report.warn(*at, path, message);
                }
            }
        }
        let (errors, warnings) = problem::gathered(vec![report]);
        Findings { problems: errors.iter().flat_map(|all| all.iter().cloned()).collect(), warnings }
    }
}

fn unknown_domain(name: &str, known: &[&str]) -> String {
    let hint = suggest::hint(name, known.iter().copied());
    let remedy = match known.get(..known.len().min(8)) {
        None | Some([]) => "the rules have no domain".to_owned(),
        Some(known) => format!("the rules have {}", suggest::all_of(known)),
    };
    let got = quoted(name);
    format!("nothing is limited here, the rules have no such domain, got {got}; {hint}{remedy}")
}
