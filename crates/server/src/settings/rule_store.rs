//! Settings of the rule store: its database, and who may change rules through it.

use std::fs;
use std::path::PathBuf;

use sluicegate_rulestore::PostgresUrl;

use super::vars::Reader;

/// Settings of the rule store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleStoreSettings {
    /// Whether rules change elsewhere only.
    pub read_only: bool,
    /// Whether another person than the author must approve each change.
    pub require_approval: bool,
    /// Copy of the last rules of a database.
    pub cache: Option<PathBuf>,
}

impl RuleStoreSettings {
    pub(super) fn of(read: &mut Reader<'_>) -> Self {
        Self {
            read_only: read.is_true("SLUICEGATE_RULES_READ_ONLY"),
            require_approval: read.is_true("SLUICEGATE_RULES_APPROVAL"),
            cache: read.path("SLUICEGATE_RULES_CACHE").or_else(|| {
                // That of systemd, which may have several.
                let directory = read.text("STATE_DIRECTORY")?.split(':').next()?;
                Some(PathBuf::from(directory).join("rules-cache"))
            }),
        }
    }
}

/// Whether `--rules` names a database rather than files.
#[must_use]
pub fn is_database(rules: &str) -> bool {
    rules.starts_with("postgres://") || rules.starts_with("postgresql://")
}

/// The database that `--rules` names.
pub(super) fn database(read: &mut Reader<'_>) -> Option<PostgresUrl> {
    const FILE: &str = "SLUICEGATE_RULES_PASSWORD_FILE";

    let text = read.text("SLUICEGATE_RULES").filter(|text| is_database(text))?;
    let of_file = read.check(FILE, |path| {
        let text = fs::read_to_string(path).map_err(|error| {
            format!(
                "cannot read the password from `{path}`: {error}; check the path and its permissions"
            )
        })?;
        Ok(text.trim_end_matches(['\n', '\r']).to_owned())
    });
    let password = of_file.or_else(|| read.text("PGPASSWORD").map(str::to_owned));
    let source = read.source("SLUICEGATE_RULES");
    match PostgresUrl::parse(text, password.as_deref()) {
        Ok(url) => Some(url),
        Err(error) => {
            read.errors.push(format!("{source}: {error}"));
            None
        }
    }
}
