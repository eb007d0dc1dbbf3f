//! Rules of the command line: paths, options and loading.

use std::path::PathBuf;

use anyhow::{Context, bail};
use sluicegate_config::files::read;
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Loaded, Source, load};
use sluicegate_rules::set::RuleSet;
use sluicegate_server::settings::{RulesSettings, Vars};

/// Options of reading rules.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    /// Allow several files for one domain (also: MERGE_DOMAIN_CONFIG=true)
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// Include files and directories whose names begin with a dot
    #[arg(long)]
    pub(crate) include_dot_files: bool,
    /// List so many values of each rule with `detailed_metric` or `value_to_metric` in metrics, up
    /// to 1000 (also: SLUICEGATE_METRIC_VALUES) [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) metric_values: Option<String>,
}

/// Files and the result of loading them.
#[derive(Debug)]
pub(crate) struct LoadResult {
    pub(crate) sources: Vec<Source>,
    pub(crate) read: Result<ValidRules, Vec<Problem>>,
    pub(crate) warnings: Vec<Problem>,
    /// Facts about valid rules that are no likely mistakes.
    pub(crate) notes: Vec<String>,
}

/// Valid rules.
#[derive(Debug)]
pub(crate) struct ValidRules {
    pub(crate) loaded: Loaded,
    pub(crate) set: RuleSet,
}

impl LoadResult {
    /// No files, and no rules.
    pub(crate) fn empty() -> Self {
        let loaded = Loaded {
            domains: Vec::new(),
            files: Vec::new(),
            removed: Vec::new(),
            warnings: Vec::new(),
        };
        let read = Ok(ValidRules { loaded, set: RuleSet::default() });
        Self { sources: Vec::new(), read, warnings: Vec::new(), notes: Vec::new() }
    }
}

impl ReadArgs {
    /// The settings of `serve` about rules: these options, then variables. Paths that are given
    /// have precedence.
    pub(crate) fn settings(&self, paths: &[PathBuf]) -> anyhow::Result<RulesSettings> {
        let mut vars = Vars::from_env();
        self.set_flags(&mut vars);
        Ok(RulesSettings::read(&vars, paths)?)
    }

    /// Sets the variables of the flags that are given.
    pub(crate) fn set_flags(&self, vars: &mut Vars) {
        let switches = [
            ("--merge-domains", self.merge_domains),
            ("--include-dot-files", self.include_dot_files),
        ];
        for (flag, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
            vars.set_flag(flag, "true");
        }
        if let Some(metric_values) = &self.metric_values {
            vars.set_flag("--metric-values", metric_values);
        }
    }
}

/// Loads all files of the paths as one configuration. Invalid rules are part of the result, not an
/// error.
pub(crate) fn rules(settings: &RulesSettings) -> anyhow::Result<LoadResult> {
    let RulesSettings { paths, files, options, .. } = settings;
    let (mut sources, mut broken) = (Vec::new(), Vec::new());
    for path in paths {
        match read(path, files) {
            Ok(found) => sources.extend(found),
            Err(error) => broken.push(settings.with_source(error.to_string())),
        }
    }
    if !broken.is_empty() {
        bail!("{}", broken.join("\n"));
    }
    let (read, warnings): (Result<ValidRules, _>, _) = match load(&sources, options) {
        Ok(mut loaded) => {
            let warnings = std::mem::take(&mut loaded.warnings);
            let set = RuleSet::new(loaded.domains.clone());
            let set = set.context("the rules cannot be compiled")?;
            (Ok(ValidRules { loaded, set }), warnings)
        }
        Err(invalid) => (Err(invalid.problems.iter().cloned().collect()), invalid.warnings),
    };
    let note = read.as_ref().ok().and_then(|good| settings.metric_values_note(&good.set));
    Ok(LoadResult { sources, read, warnings, notes: note.into_iter().collect() })
}
