//! `sluicegate check`: are these rules valid, and what would they enforce?

mod json;
mod problems;
mod summary;

pub(crate) use problems::shown;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use sluicegate::explain::rule::text::counted;
use sluicegate_config::problem::PROBLEMS_MAX;
use sluicegate_config::schema::schema;

use crate::output::written;
use crate::rules::{ReadArgs, Rules, rules};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate check rules.yaml                  one file\n  \
    sluicegate check /srv/runtime/config         every file of a directory, as envoyproxy/ratelimit reads it\n  \
    sluicegate check --strict --json rules/ | jq '.domains[].rules[].id'\n  \
    sluicegate check --schema > rules.schema.json    for an editor that completes and checks\n\n\
    Several paths are one configuration. What is wrong goes to standard error, as `file:line:column: place: message`.\n\
    Exit codes: 0 valid, 1 invalid (with --strict also if there are warnings), 2 broken, such as a file that cannot be read.")]
pub(crate) struct CheckArgs {
    /// Files and directories of rules
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadArgs,
    /// Warnings make the rules invalid
    #[arg(long)]
    strict: bool,
    /// Show every rule, however many there are
    #[arg(long)]
    all: bool,
    /// Print one JSON object with everything
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of the format, for editors
    #[arg(long, conflicts_with_all = ["paths", "strict", "all", "json"])]
    schema: bool,
}

/// Runs `check`.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if args.schema {
        written(io::stdout().lock().write_all(schema().as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.paths.is_empty() {
        bail!(
            "no rules given: name files or directories, as in `sluicegate check rules.yaml`; \
             those of envoyproxy/ratelimit are in `$RUNTIME_ROOT/$RUNTIME_SUBDIRECTORY/config`"
        );
    }
    let rules = rules(&args.paths, &args.reading)?;
    let warned = rules.warnings.len() + rules.remarks.len();
    let valid = rules.read.is_ok() && !(args.strict && warned > 0);
    let (out, remarks) = match args.json {
        true => (json::checked(&rules, valid), String::new()),
        false => text(&rules, args),
    };
    eprint!("{remarks}");
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is printed for a person: on standard output, and on standard error.
fn text(rules: &Rules, args: &CheckArgs) -> (String, String) {
    let mut remarks = shown(rules);
    let warned = rules.warnings.len() + rules.remarks.len();
    match &rules.read {
        Ok(good) => {
            let how_much = if args.all { summary::HowMuch::All } else { summary::HowMuch::Some };
            let mut out = summary::summary(good, how_much);
            let warnings = match warned {
                0 => String::new(),
                _ => format!(", {}", counted(warned, "warning")),
            };
            let verdict = if args.strict && warned > 0 { "invalid by --strict" } else { "valid" };
            let totals = summary::totals(good);
            out.push_str(&format!("{verdict}: {totals}{warnings}\n"));
            (out, remarks)
        }
        Err(problems) => {
            let files = counted(rules.sources.len(), "file");
            // The last of very many only says that there are more.
            let problems = match problems.len() > PROBLEMS_MAX {
                true => format!("more than {}", counted(PROBLEMS_MAX, "problem")),
                false => counted(problems.len(), "problem"),
            };
            remarks.push_str(&format!(
                "invalid: {problems} in {files}; nothing of it would be loaded\n"
            ));
            (String::new(), remarks)
        }
    }
}
