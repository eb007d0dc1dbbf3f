//! `sluicegate diff`: what a reload changes, and which counters it keeps.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use sluicegate::explain::diff::{ComparedRules, DiffKind, RulesDiff, diff};

use crate::check::shown;
use crate::rules::{AtArgs, LoadResult, ReadArgs, ValidRules, rules};
use crate::written;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate diff rules.yaml new.yaml\n  \
    sluicegate diff /etc/sluicegate/rules/ rules/ --json | jq '.domains[].rules[] | select(.counters == \"restarted\")'\n  \
    git show HEAD:rules.yaml > /tmp/old.yaml; sluicegate diff /tmp/old.yaml rules.yaml\n\n\
    Both are read as `sluicegate check` reads them. An identity that another rule matches from now on has a new\n\
    counter there.\n\
    Exit codes: 0 compared, 1 invalid rules, 2 failed, such as an unreadable file.")]
pub(crate) struct DiffArgs {
    /// The rules that are in force: a file or a directory
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The rules that are to replace them
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    at: AtArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `diff`.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let now = args.at.moment();
    let load = |path: &PathBuf| rules(&args.reading.settings(std::slice::from_ref(path))?, now);
    let both = [load(&args.old)?, load(&args.new)?];
    let Some([old, new]) = valid(&both) else { return Ok(ExitCode::FAILURE) };
    let found = diff(compared(old), compared(new));
    let out = match args.json {
        true => format!("{}\n", found.to_json()),
        false => found.to_text() + &removals(&found, new),
    };
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

fn compared(rules: &ValidRules) -> ComparedRules<'_> {
    ComparedRules { set: &rules.set, domains: &rules.loaded.domains }
}

/// Both, if both are valid; otherwise their problems are reported.
fn valid(both: &[LoadResult; 2]) -> Option<[&ValidRules; 2]> {
    let [Ok(old), Ok(new)] = both.each_ref().map(|rules| rules.read.as_ref()) else {
        let invalid = both.iter().filter(|rules| rules.read.is_err());
        invalid.for_each(|rules| eprint!("{}", shown(rules)));
        eprintln!("invalid rules: see `sluicegate check`");
        return None;
    };
    Some([old, new])
}

/// Domains that are not removed at once.
fn removals(found: &RulesDiff<'_>, new: &ValidRules) -> String {
    let is_withheld = |name: &str| !new.loaded.removed.iter().any(|removed| **removed == *name);
    let removed = found.domains.iter().filter(|domain| domain.change == DiffKind::Removed);
    let withheld = removed.map(|domain| domain.name).filter(|name| is_withheld(name));
    let names: Vec<String> = withheld.map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "note: the rules of {} stay in force for the time of `--rules-removal-grace`, since no file says \
             `removed: true`\n",
            names.join(", ")
        ),
    }
}
