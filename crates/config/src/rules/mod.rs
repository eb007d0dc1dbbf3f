//! Rule files: YAML to domains.
//!
//! A file without native keys is read exactly as envoyproxy/ratelimit reads it: the same files are
//! accepted and refused, and messages contain its words. A likely mistake that it accepts is a
//! warning; in a file with native keys it is an error.

mod compatibility;
mod conflicts;
pub(crate) mod descriptor;
mod domains;
pub(crate) mod file;
pub(crate) mod forward_auth;
pub(crate) mod glob;
pub(crate) mod keys;
pub(crate) mod lint;
mod metadata;
mod notify;
pub(crate) mod overrides;
pub(crate) mod pattern;
pub(crate) mod plans;
pub(crate) mod pools;
mod rate_limit;
pub(crate) mod reader;
pub(crate) mod rule;
pub(crate) mod scalar;
pub(crate) mod schedule;

use std::fmt::{self, Display};

use sluicegate_rules::domain::{DescriptorConfig, Domain, Pattern};

use self::domains::DomainSource;
pub use self::forward_auth::{request_descriptor, request_hits, request_part};
use crate::problem::{self, Problem, Problems, Report};

/// The longest key, and the longest name of a domain, in characters.
pub const KEY_CHARS_MAX: usize = 1_024;
/// The longest value, in characters.
pub const VALUE_CHARS_MAX: usize = 1_024;
/// Maximum nesting of descriptors in the native form; in Envoy's form the bound is that of YAML, 31
/// levels.
pub const DEPTH_MAX: usize = 16;

/// One file.
///
/// ```
/// use sluicegate_config::rules::Source;
///
/// let source = Source { name: "shop.yaml".to_owned(), text: "domain: shop".to_owned() };
/// assert_eq!(source.name, "shop.yaml");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name in messages.
    pub name: String,
    /// The content.
    pub text: String,
}

/// Options that are not in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Whether several files may hold rules of one domain (`MERGE_DOMAIN_CONFIG`).
    pub merge_domains: bool,
    /// Whether every rule is in quota mode (`QUOTA_MODE`).
    pub quota_mode: bool,
}

/// The loaded rules.
///
/// ```
/// use sluicegate_config::rules::{Options, Source, load};
///
/// let text = "domain: shop\ndescriptors: [{ key: user_id, rate_limit: { unit: minute } }]\n";
/// let source = Source { name: "shop.yaml".to_owned(), text: text.to_owned() };
/// let loaded = load(&[source], &Options::default())?;
/// assert_eq!(loaded.domains[0].name, "shop");
/// assert_eq!(
///     loaded.warnings[0].message(),
///     "`requests_per_unit` is missing, which is 0, so every request is denied; write how many may \
///      pass, or `unlimited: true`"
/// );
/// # Ok::<(), sluicegate_config::rules::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The domains, in the order in which they are first met.
    pub domains: Vec<Domain>,
    /// The file that each domain is first met in, in the same order.
    pub files: Vec<String>,
    /// The domains that a file removes (`removed: true`).
    pub removed: Vec<String>,
    /// Likely mistakes, in file order.
    pub warnings: Vec<Problem>,
}

/// The problems of the files.
///
/// ```
/// use sluicegate_config::rules::{Options, Source, load};
///
/// let source = Source { name: "shop.yaml".to_owned(), text: "domian: shop".to_owned() };
/// let invalid = load(&[source], &Options::default()).unwrap_err();
/// assert_eq!(invalid.problems.iter().count(), 1);
/// assert!(invalid.to_string().contains("did you mean `domain`?"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// All errors, in file order.
    pub problems: Problems,
    /// Likely mistakes, in file order.
    pub warnings: Vec<Problem>,
}

/// Reads rules.
///
/// ```
/// use sluicegate_config::rules::{Options, Source, load};
///
/// let text = "
/// domain: shop
/// descriptors:
///   - key: user_id
///     limits:
///       - { name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }
///       - { name: daily, algorithm: fixed_window, rate: 10000/day }
///     consistency: leased
///   - key: path
///     value: /login*
///     rate_limit: { unit: minute, requests_per_unit: 5 }
/// ";
/// let source = Source { name: "shop.yaml".to_owned(), text: text.to_owned() };
/// let loaded = load(&[source], &Options::default())?;
/// assert_eq!(loaded.domains[0].descriptors.len(), 2);
/// assert!(loaded.warnings.is_empty());
/// # Ok::<(), sluicegate_config::rules::Invalid>(())
/// ```
///
/// # Errors
/// All problems of all files.
pub fn load(sources: &[Source], options: &Options) -> Result<Loaded, Invalid> {
    let mut reports: Vec<Report> = sources.iter().map(|source| Report::new(&source.name)).collect();
    let files: Vec<_> = sources
        .iter()
        .zip(&mut reports)
        .enumerate()
        .filter_map(|(index, (source, report))| Some((index, file::read(index, source, report)?)))
        .collect();
    let mut gathered = domains::gathered(files.into_iter(), options, &mut reports);
    gathered.iter_mut().for_each(|domain| domain.complete(&mut reports));
    let (removed, limited): (Vec<_>, Vec<_>) = gathered.into_iter().partition(|one| one.removed);
    let file_of = |source: usize| sources.get(source).map_or_else(String::new, |s| s.name.clone());
    let files = limited.iter().map(|one| file_of(one.source)).collect();
    let mut domains: Vec<Domain> = limited.into_iter().map(DomainSource::finish).collect();
    let removed = removed.into_iter().map(|one| one.domain.name).collect();
    if options.quota_mode {
        domains.iter_mut().for_each(|domain| put_into_quota_mode(&mut domain.descriptors));
    }
    match problem::gathered(reports) {
        (None, warnings) => Ok(Loaded { domains, files, removed, warnings }),
        (Some(problems), warnings) => Err(Invalid { problems, warnings }),
    }
}

fn put_into_quota_mode(nodes: &mut [DescriptorConfig]) {
    for node in nodes {
        if let Some(rule) = &mut node.rule {
            rule.quota_mode = true;
        }
        put_into_quota_mode(&mut node.descriptors);
    }
}

/// The composite key of a descriptor in envoyproxy/ratelimit.
fn composite(key: &str, value: &Pattern) -> String {
    match value {
        Pattern::Any => key.to_owned(),
        Pattern::Text(value) => format!("{key}_{value}"),
        Pattern::Regex(regex) => format!("{key}_{}", regex.as_str()),
        Pattern::Networks(networks) => {
            let shown: Vec<String> = networks.iter().take(8).map(ToString::to_string).collect();
            format!("{key}_{}", shown.join(","))
        }
    }
}

/// The problems, one a line.
impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.fmt(f)
    }
}

impl std::error::Error for Invalid {}

#[cfg(test)]
mod tests;
