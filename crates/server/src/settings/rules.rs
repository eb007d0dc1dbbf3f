//! Where rules come from: `serve`, `check` and `explain` read the same settings.

use std::path::PathBuf;

use sluicegate::RulesError;
use sluicegate::config::files::ReadOptions;
use sluicegate::config::rules::Options;
use sluicegate::rules::set::RuleSet;

use super::vars::{Reader, Vars};
use super::{SettingsError, misspelt, unknown};

/// Files of rules, and how they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesSettings {
    /// Files and directories; empty for `text`, or the example rules.
    pub paths: Vec<PathBuf>,
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
    /// All errors at once.
    pub fn read(vars: &Vars, paths: &[PathBuf]) -> Result<Self, SettingsError> {
        let mut reader = Reader::new(vars);
        let rules = Self::of(&mut reader, paths);
        let mut errors = Vec::new();
        if paths.is_empty() {
            errors.extend(misspelt::errors(vars, misspelt::RULES));
        }
        errors.extend(reader.errors);
        errors.extend(unknown::errors(vars));
        if errors.is_empty() { Ok(rules) } else { Err(SettingsError(errors)) }
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
            RulesError::Unreadable(error) => self.with_source(error.to_string()),
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
        let (paths, path_source) =
            if given.is_empty() { paths(read) } else { (given.to_vec(), None) };
        let metric_values = read.number("SLUICEGATE_METRIC_VALUES", 0, METRIC_VALUES_MAX);
        let metric_values = metric_values.unwrap_or(0) as usize;
        Self {
            paths,
            path_source,
            text: None,
            files: ReadOptions { ignore_dot_files: !included },
            options: Options { merge_domains, quota_mode: read.is_true("QUOTA_MODE") },
            metric_values,
        }
    }
}

/// Our own paths, separated by `:`; or the directory of envoyproxy/ratelimit, with its variables.
fn paths(read: &mut Reader<'_>) -> (Vec<PathBuf>, Option<String>) {
    if let Some(paths) = read.text("SLUICEGATE_RULES") {
        let paths = std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty());
        return (paths.collect(), None);
    }
    let is_named = ENVOY_PATH.iter().any(|(name, _)| read.text(name).is_some());
    let path: PathBuf =
        ENVOY_PATH.iter().map(|(name, default)| read.text(name).unwrap_or(default)).collect();
    let is_file = read.check("CONFIG_TYPE", |text| match text.eq_ignore_ascii_case("file") {
        true => Ok(()),
        false => Err(config_type_error(text, is_named.then_some(&path))),
    });
    if is_file.is_none() && !is_named {
        return (Vec::new(), None);
    }
    let parts = ENVOY_PATH.map(|(name, default)| match (read.text(name), default) {
        (Some(text), _) => format!("{name}=`{text}`"),
        (None, "") => format!("{name} is not set"),
        (None, default) => format!("{name} is not set, by default `{default}`"),
    });
    (vec![path], Some(format!("the path is formed by {}", parts.join("; "))))
}

/// The error of a `CONFIG_TYPE` other than `FILE`; `path` is the directory that variables name.
fn config_type_error(text: &str, path: Option<&PathBuf>) -> String {
    let remedy = match path {
        Some(path) => format!(
            "write them to files in `{}`, and set CONFIG_TYPE to `FILE` or remove it",
            path.display()
        ),
        None => "write them to files, name these with SLUICEGATE_RULES (or RUNTIME_ROOT), and set \
                 CONFIG_TYPE to `FILE` or remove it"
            .to_owned(),
    };
    format!(
        "must be `FILE`, got `{text}`: rules come from files here, and not from a control plane \
         over xDS; {remedy}"
    )
}
