//! Where rules come from: `serve`, `check` and `explain` read the same settings.

use std::path::PathBuf;

use sluicegate::RulesError;
use sluicegate::config::files::ReadOptions;
use sluicegate::config::rules::Options;
use sluicegate::config::watch::SourceError;
use sluicegate::rules::set::RuleSet;
use sluicegate_rulestore::PostgresUrl;

use super::rule_store::{database, is_database};
use super::vars::{Reader, Vars};
use super::{SettingsError, misspelt, unknown, xds};
use crate::xds::XdsOptions;

/// Files of rules, or another source of them, and how they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesSettings {
    /// Files and directories; empty for `text`, or the example rules.
    pub paths: Vec<PathBuf>,
    /// A database that has the rules, instead of files.
    pub database: Option<PostgresUrl>,
    /// The control plane that sends the rules, in place of files.
    pub xds: Option<XdsOptions>,
    /// Rules without a file.
    pub text: Option<String>,
    /// Which files of a directory are read.
    pub files: ReadOptions,
    /// How they are loaded.
    pub options: Options,
    /// Variables of envoyproxy/ratelimit that form the path, for errors about it.
    pub path_source: Option<String>,
    /// Values of a rule that metrics list; 0 for none.
    pub metric_values: usize,
}

/// Maximum number of values of a rule that metrics list.
const METRIC_VALUES_MAX: u64 = 1_000;

/// Where envoyproxy/ratelimit finds its rules: a directory below a root.
const ENVOY_PATH: [(&str, &str); 3] = [
    ("RUNTIME_ROOT", "/srv/runtime_data/current"),
    ("RUNTIME_SUBDIRECTORY", ""),
    ("RUNTIME_APPDIRECTORY", "config"),
];

impl RulesSettings {
    /// Reads these settings alone. Paths that are given have precedence over all variables.
    ///
    /// ```
    /// use sluicegate_server::settings::{RulesSettings, Vars};
    ///
    /// let vars = Vars::new([("SLUICEGATE_RULES", "/etc/sluicegate"), ("MERGE_DOMAIN_CONFIG", "true")]);
    /// let rules = RulesSettings::read(&vars, &[])?;
    /// assert_eq!(rules.paths, ["/etc/sluicegate"].map(std::path::PathBuf::from));
    /// assert!(rules.options.merge_domains);
    /// # Ok::<(), sluicegate_server::settings::SettingsError>(())
    /// ```
    ///
    /// # Errors
    /// All errors at once. Rules of a control plane are one: only the service has them.
    pub fn read(vars: &Vars, paths: &[PathBuf]) -> Result<Self, SettingsError> {
        let mut reader = Reader::new(vars);
        let rules = Self::of(&mut reader, paths);
        let mut errors = Vec::new();
        if paths.is_empty() {
            errors.extend(misspelt::errors(vars, misspelt::RULES));
        }
        errors.extend(reader.errors);
        errors.extend(unknown::errors(vars));
        errors.extend(rules.xds.as_ref().map(|xds| {
            format!(
                "CONFIG_TYPE: rules come from the control plane `{}`, which only `sluicegate serve` \
                 connects to; name files or directories here",
                xds.server
            )
        }));
        if errors.is_empty() { Ok(rules) } else { Err(SettingsError(errors)) }
    }

    /// Whether rules are configured at all: otherwise the example rules are served.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.paths.is_empty() || self.database.is_some() || self.xds.is_some()
    }

    /// Where the rules are, without secrets.
    #[must_use]
    pub fn location(&self) -> String {
        let paths = self.paths.iter().map(|path| path.display().to_string());
        let database = self.database.iter().map(ToString::to_string);
        let control_plane = self.xds.iter().map(ToString::to_string);
        paths.chain(database).chain(control_plane).collect::<Vec<_>>().join(",")
    }

    /// An error about the paths, with the variables that form them.
    #[must_use]
    pub fn with_source(&self, error: String) -> String {
        match &self.path_source {
            Some(source) => format!("{error} ({source})"),
            None => error,
        }
    }

    /// An error of loading the rules; one about their paths names the variables.
    #[must_use]
    pub fn describe(&self, error: &RulesError) -> String {
        match error {
            RulesError::Unreadable(SourceError::File(error)) => self.with_source(error.to_string()),
            error => error.to_string(),
        }
    }

    /// A note about rules whose `detailed_metric` or `value_to_metric` has no effect: values in
    /// metrics are off. Files of envoyproxy/ratelimit have them for good reason, so it is no
    /// warning.
    #[must_use]
    pub fn metric_values_note(&self, rules: &RuleSet) -> Option<String> {
        let mut named = rules.rules().filter(|no| rules.names_values(*no));
        let first = named.next().filter(|_| self.metric_values == 0)?;
        let (count, id) = (named.count() + 1, rules.id(first));
        let rules = if count == 1 { "1 rule asks" } else { &format!("{count} rules ask") };
        Some(format!(
            "{rules} for values in metrics (`detailed_metric`, `value_to_metric`), such as `{id}`, which are off: \
             `--metric-values 100` (SLUICEGATE_METRIC_VALUES=100) lists the most frequent values of each rule"
        ))
    }

    pub(super) fn of(read: &mut Reader<'_>, given: &[PathBuf]) -> Self {
        let merge_domains = read.is_true("MERGE_DOMAIN_CONFIG");
        let merge_domains = read.boolean("SLUICEGATE_MERGE_DOMAINS").unwrap_or(merge_domains);
        let ignored = read.boolean("RUNTIME_IGNOREDOTFILES").unwrap_or(true);
        let included = read.boolean("SLUICEGATE_INCLUDE_DOT_FILES").unwrap_or(!ignored);
        let has_own = !given.is_empty() || read.text("SLUICEGATE_RULES").is_some();
        let xds = if has_own { None } else { xds::read(read) };
        let database = if given.is_empty() { database(read) } else { None };
        let (paths, path_source) = match given {
            [] if database.is_some() || xds.is_some() => (Vec::new(), None),
            [] => paths(read),
            given => (given.to_vec(), None),
        };
        let metric_values = read.number("SLUICEGATE_METRIC_VALUES", 0, METRIC_VALUES_MAX);
        let metric_values = metric_values.unwrap_or(0) as usize;
        Self {
            paths,
            database,
            path_source,
            xds,
            text: None,
            files: ReadOptions { ignore_dot_files: !included },
            options: Options { merge_domains, quota_mode: read.is_true("QUOTA_MODE") },
            metric_values,
        }
    }
}

/// Our own paths, separated by `:`; or the directory of envoyproxy/ratelimit, with its variables.
fn paths(read: &mut Reader<'_>) -> (Vec<PathBuf>, Option<String>) {
    if let Some(paths) = read.text("SLUICEGATE_RULES").filter(|text| !is_database(text)) {
        let paths = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
        return (paths.collect(), None);
    }
    let is_named = ENVOY_PATH.iter().any(|(name, _)| read.text(name).is_some());
    let path: PathBuf =
        ENVOY_PATH.iter().map(|(name, default)| read.text(name).unwrap_or(default)).collect();
    if read.text("CONFIG_TYPE").is_none() && !is_named {
        return (Vec::new(), None);
    }
    let parts = ENVOY_PATH.map(|(name, default)| match (read.text(name), default) {
        (Some(text), _) => format!("{name}=`{text}`"),
        (None, "") => format!("{name} is not set"),
        (None, default) => format!("{name} is not set, by default `{default}`"),
    });
    (vec![path], Some(format!("the path is formed by {}", parts.join("; "))))
}
