//! Rules of the command line: paths, options and loading.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};
use sluicegate::Timestamp;
use sluicegate::clock::SystemClock;
use sluicegate::explain::rule::text::{counted, plainly};
use sluicegate::explain::rule::timing::override_line;
use sluicegate_config::files::read;
use sluicegate_config::problem::Problem;
use sluicegate_config::rules::{Loaded, Source, load};
use sluicegate_core::limit::Limit;
use sluicegate_rules::domain::Domain;
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::resolve::resolve;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::{RuleNo, RuleSet};
use sluicegate_rules::zone::moment_of;
use sluicegate_server::settings::{RulesSettings, Vars, is_database};

use crate::check::shown;

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

/// The moment that rules are shown as of.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct AtArgs {
    /// Apply schedules and overrides as of a moment, such as 2026-12-01T09:00:00+01:00 [default:
    /// now]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<Timestamp>,
}

impl AtArgs {
    /// The moment.
    pub(crate) fn moment(self) -> Timestamp {
        self.at.unwrap_or_else(|| SystemClock::get().read())
    }
}

fn moment(text: &str) -> Result<Timestamp, String> {
    moment_of(text).ok_or_else(|| {
        "it is a date and time with its offset, like `2026-12-01T09:00:00Z` or \
         `2026-12-01T09:00:00+01:00`"
            .to_owned()
    })
}

/// Options of the rule store.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Refuse changes of the rules through the API: they change where they come from, such as Git
    #[arg(long)]
    rules_read_only: bool,
    /// Require that another person approves each change of the rules through the API
    #[arg(long)]
    rules_approval: bool,
    /// Copy of the last rules of a database, for the time when it is down [default: in
    /// $STATE_DIRECTORY]
    #[arg(long, value_name = "PATH")]
    rules_cache: Option<String>,
    /// File with the password of the database of rules
    #[arg(long, value_name = "PATH")]
    rules_password_file: Option<String>,
}

impl StoreArgs {
    /// Sets the variables of the flags that are given.
    pub(crate) fn set_flags(&self, vars: &mut Vars) {
        let switches = [
            ("--rules-read-only", self.rules_read_only),
            ("--rules-approval", self.rules_approval),
        ];
        for (flag, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
            vars.set_flag(flag, "true");
        }
        let texts = [
            ("--rules-cache", &self.rules_cache),
            ("--rules-password-file", &self.rules_password_file),
        ];
        for (flag, text) in texts {
            if let Some(text) = text {
                vars.set_flag(flag, text);
            }
        }
    }
}

/// Names rules by their flag: paths, or the URL of a database.
pub(crate) fn set_rules(vars: &mut Vars, paths: &[PathBuf]) -> anyhow::Result<()> {
    let url = paths.iter().find_map(|path| path.to_str().filter(|text| is_database(text)));
    let rules = match url {
        Some(url) if paths.len() == 1 => url.to_owned(),
        Some(_) => bail!("--rules: a database holds all rules; name nothing beside it"),
        None => {
            let paths = env::join_paths(paths).context("--rules")?;
            paths.into_string().ok().context("--rules: a path must be UTF-8")?
        }
    };
    vars.set_flag("--rules", rules);
    Ok(())
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
pub(crate) fn rules(settings: &RulesSettings, now: Timestamp) -> anyhow::Result<LoadResult> {
    let RulesSettings { paths, files, options, .. } = settings;
    if let Some(database) = &settings.database {
        bail!(
            "the rules are in a database, `{database}`; `sluicegate rules export` writes them to a file"
        );
    }
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
    let mut notes = Vec::new();
    let (read, warnings): (Result<ValidRules, _>, _) = match load(&sources, options) {
        Ok(mut loaded) => {
            let warnings = std::mem::take(&mut loaded.warnings);
            notes = ended(&loaded.domains, now);
            let resolved = resolve(std::mem::take(&mut loaded.domains), now);
            loaded.domains = resolved.context("the overrides cannot be applied")?.domains;
            let set = RuleSet::new(loaded.domains.clone());
            let set = set.context("the rules cannot be compiled")?;
            (Ok(ValidRules { loaded, set }), warnings)
        }
        Err(invalid) => (Err(invalid.problems.iter().cloned().collect()), invalid.warnings),
    };
    let note = read.as_ref().ok().and_then(|good| settings.metric_values_note(&good.set));
    notes.extend(note);
    notes.extend(read.as_ref().ok().and_then(|good| estimates(&good.set)));
    Ok(LoadResult { sources, read, warnings, notes })
}

/// The domains of valid files as they are written, whatever the time; `None` if they are invalid,
/// which is reported.
pub(crate) fn valid_domains(
    reading: &ReadArgs,
    paths: &[PathBuf],
) -> anyhow::Result<Option<Vec<Domain>>> {
    let settings = reading.settings(paths)?;
    let result = rules(&settings, SystemClock::get().read())?;
    match load(&result.sources, &settings.options) {
        Ok(loaded) if result.read.is_ok() => Ok(Some(loaded.domains)),
        _ => {
            eprint!("{}", shown(&result));
            eprintln!("invalid rules: see `sluicegate check`");
            Ok(None)
        }
    }
}

/// Names the rules whose sliding window estimates, with its worst case.
fn estimates(rules: &RuleSet) -> Option<String> {
    let is_estimate = |limit: &LimitConfig| matches!(limit.at(Timestamp::EPOCH), Limit::SlidingWindow(window) if window.rate().count() > 1);
    let of_rule = |no: &RuleNo| match &rules.rule(*no).limits {
        Limits::Native(limits) => limits.iter().any(is_estimate),
        _ => false,
    };
    let mut found = rules.rules().filter(of_rule);
    let first = found.next()?;
    let (more, id) = (found.count(), rules.id(first));
    let which = match more {
        0 => format!("`{id}`"),
        more => format!("`{id}` and {more} more"),
    };
    Some(plainly(&format!(
        "`sliding_window` estimates from two counts: a rolling window holds up to twice the limit if \
         a client aims at it ({which}); under `strict`, `slices: 6` never holds more than the limit"
    )))
}

/// Ended overrides that are named.
const ENDED_SHOWN: usize = 3;

/// Overrides that have ended.
fn ended(domains: &[Domain], now: Timestamp) -> Vec<String> {
    let mut notes = Vec::new();
    for domain in domains {
        let ended: Vec<String> =
            domain.overrides.iter().filter(|one| one.until <= now).map(override_line).collect();
        if let Some(shown) = ended.get(..ended.len().min(ENDED_SHOWN)).filter(|all| !all.is_empty())
        {
            let more = match ended.len() - shown.len() {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            notes.push(plainly(&format!(
                "{} of domain `{}` ended and can be removed: {}{more}",
                counted(ended.len(), "override"),
                domain.name,
                shown.join(", ")
            )));
        }
    }
    notes
}
