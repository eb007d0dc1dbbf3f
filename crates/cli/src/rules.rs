//! Rules of the command line: paths, options and loading.

use std::path::PathBuf;

use anyhow::{Context, bail};
use sluicegate_config::files::{ReadOptions, read};
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Loaded, Options, Source, load};
use sluicegate_config::units::truth;
use sluicegate_rules::set::RuleSet;

/// Options of reading rules.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// Allow several files for one domain (also: MERGE_DOMAIN_CONFIG=true)
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// Include files and directories whose names begin with a dot
    #[arg(long)]
    pub(crate) include_dot_files: bool,
}

/// Files and the result of loading them.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) sources: Vec<Source>,
    pub(crate) read: Result<ValidRules, Vec<Problem>>,
    pub(crate) warnings: Vec<Problem>,
    /// Warnings without a position in a file.
    pub(crate) remarks: Vec<String>,
}

/// Valid rules.
#[derive(Debug)]
pub(crate) struct ValidRules {
    pub(crate) loaded: Loaded,
    pub(crate) set: RuleSet,
}

impl ReadArgs {
    /// Options of reading files.
    pub(crate) fn files(&self) -> ReadOptions {
        ReadOptions { ignore_dot_files: !self.include_dot_files }
    }

    /// Whether several files may configure one domain.
    pub(crate) fn merges(&self) -> anyhow::Result<bool> {
        Ok(self.merge_domains || merged_by_environment()?)
    }
}

/// Loads all files of the paths as one configuration. Invalid rules are part of the result, not an
/// error.
pub(crate) fn rules(paths: &[PathBuf], args: &ReadArgs) -> anyhow::Result<LoadResult> {
    let options = args.files();
    let (mut sources, mut broken, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        match read(path, &options) {
            Ok(found) if found.is_empty() => remarks.push(no_files(path, args)),
            Ok(found) => sources.extend(found),
            Err(error) => broken.push(error.to_string()),
        }
    }
    if !broken.is_empty() {
        bail!("{}", broken.join("\nsluicegate: "));
    }
    let merge_domains = args.merges()?;
    let (read, warnings) = match load(&sources, &Options { merge_domains, ..Options::default() }) {
        Ok(mut loaded) => {
            let warnings = std::mem::take(&mut loaded.warnings);
            let set = RuleSet::new(loaded.domains.clone());
            let set = set.context("the rules cannot be compiled")?;
            (Ok(ValidRules { loaded, set }), warnings)
        }
        Err(invalid) => (Err(invalid.problems.iter().cloned().collect()), invalid.warnings),
    };
    Ok(LoadResult { sources, read, warnings, remarks })
}

fn no_files(path: &std::path::Path, args: &ReadArgs) -> String {
    let path = path.display();
    let hint = match args.include_dot_files {
        true => "",
        false => "; names that begin with a dot are ignored without `--include-dot-files`",
    };
    format!("{path}: no files, so nothing is limited{hint}")
}

fn merged_by_environment() -> anyhow::Result<bool> {
    const NAME: &str = "MERGE_DOMAIN_CONFIG";
    match std::env::var(NAME) {
        Ok(text) if text.is_empty() => Ok(false),
        // As envoyproxy/ratelimit reads it.
        Ok(text) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "FALSE" | "False" => Ok(false),
            text => truth(text).map_err(|error| anyhow::anyhow!("{NAME}: {error}")),
        },
        Err(std::env::VarError::NotPresent) => Ok(false),
        Err(error) => Err(error).context(NAME),
    }
}
