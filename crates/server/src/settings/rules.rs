//! Where rules come from: `serve`, `check` and `explain` read the same settings.

use std::path::PathBuf;

use sluicegate::config::files::ReadOptions;
use sluicegate::config::rules::Options;

use super::SettingsError;
use super::vars::{Reader, Vars};

/// Files of rules, and how they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesSettings {
    /// Files and directories; empty for the example rules.
    pub paths: Vec<PathBuf>,
    /// Which files of a directory are read.
    pub files: ReadOptions,
    /// How they are loaded.
    pub options: Options,
}

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
        if reader.errors.is_empty() { Ok(rules) } else { Err(SettingsError(reader.errors)) }
    }

    pub(super) fn of(read: &mut Reader<'_>, given: &[PathBuf]) -> Self {
        let merge_domains = read.is_true("MERGE_DOMAIN_CONFIG");
        let merge_domains = read.boolean("SLUICEGATE_MERGE_DOMAINS").unwrap_or(merge_domains);
        let ignored = read.boolean("RUNTIME_IGNOREDOTFILES").unwrap_or(true);
        let included = read.boolean("SLUICEGATE_INCLUDE_DOT_FILES").unwrap_or(!ignored);
        Self {
            paths: if given.is_empty() { paths(read) } else { given.to_vec() },
            files: ReadOptions { ignore_dot_files: !included },
            options: Options { merge_domains, quota_mode: read.is_true("QUOTA_MODE") },
        }
    }
}

/// Our own paths, separated by `:`; or the directory of envoyproxy/ratelimit.
fn paths(read: &mut Reader<'_>) -> Vec<PathBuf> {
    if let Some(paths) = read.text("SLUICEGATE_RULES") {
        return std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect();
    }
    let expected = "`FILE`: rules come from files here, and not from a control plane over xDS. Write them to files and \
                    name these with SLUICEGATE_RULES (or RUNTIME_ROOT), and set CONFIG_TYPE to `FILE` or remove it";
    let is_file =
        read.read("CONFIG_TYPE", expected, |text| text.eq_ignore_ascii_case("file").then_some(()));
    if is_file.is_none() && ENVOY_PATH.iter().all(|(name, _)| read.text(name).is_none()) {
        return Vec::new();
    }
    vec![ENVOY_PATH.iter().map(|(name, default)| read.text(name).unwrap_or(default)).collect()]
}
