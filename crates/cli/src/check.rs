//! `sluicegate check`: validates rules and the file of a gateway, and shows what they enforce.

pub(crate) mod gateway;
mod json;
mod summary;

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use sluicegate::explain::rule::text::counted;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::problem::{PROBLEMS_MAX, Problem, excerpt};
use sluicegate_config::schema::{gateway_schema, schema};

use crate::rules::{AtArgs, LoadResult, ReadArgs, rules};
use crate::written;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate check rules.yaml                  one file\n  \
    sluicegate check /srv/runtime/config         every file of a directory, as envoyproxy/ratelimit reads it\n  \
    sluicegate check --strict --json rules/ | jq '.domains[].rules[].id'\n  \
    sluicegate check gateway.yaml                a gateway and its rules\n  \
    sluicegate check --schema > rules.schema.json    for editors: completion and validation\n  \
    sluicegate check --schema gateway > gateway.schema.json\n\n\
    Several paths are one configuration; without any, SLUICEGATE_RULES or RUNTIME_ROOT names it, as for `serve`.\n\
    Problems go to standard error, as `file:line:column: path: message`.\n\
    Exit codes: 0 valid, 1 invalid (with --strict also on warnings), 2 failed, such as an unreadable file.")]
pub(crate) struct CheckArgs {
    /// Files and directories of rules, or the file of a gateway [default: those of `serve`]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    at: AtArgs,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Show every rule
    #[arg(long)]
    all: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of a format, for editors: rules or gateway [default: rules]
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "rules")]
    #[arg(hide_possible_values = true, conflicts_with_all = ["paths", "strict", "all", "json"])]
    schema: Option<SchemaFormat>,
}

/// A format with a schema.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum SchemaFormat {
    Rules,
    Gateway,
}

/// Runs `check`.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if let Some(format) = args.schema {
        let schema = match format {
            SchemaFormat::Rules => schema(),
            SchemaFormat::Gateway => gateway_schema(),
        };
        written(io::stdout().lock().write_all(schema.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (rules, gateway) = match gateway::find(&args.paths)? {
        Some((source, paths)) => gateway::load(source, &paths, &args.reading, args.at.moment())?,
        None => (load(args)?, None),
    };
    let valid = rules.read.is_ok() && (!args.strict || rules.warnings.is_empty());
    let (out, remarks) = match args.json {
        true => (json::checked(&rules, gateway.as_ref(), valid), String::new()),
        false => text(&rules, gateway.as_ref(), args),
    };
    eprint!("{remarks}");
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rules of the paths.
fn load(args: &CheckArgs) -> anyhow::Result<LoadResult> {
    let settings = args.reading.settings(&args.paths)?;
    if settings.paths.is_empty() {
        bail!(
            "no rules given: name files or directories, as in `sluicegate check rules.yaml`, or set \
             SLUICEGATE_RULES or RUNTIME_ROOT as for `sluicegate serve`"
        );
    }
    rules(&settings, args.at.moment())
}

/// Human-readable output: for standard output, and for standard error.
fn text(rules: &LoadResult, gateway: Option<&GatewayConfig>, args: &CheckArgs) -> (String, String) {
    let mut remarks = shown(rules);
    let warned = rules.warnings.len();
    match &rules.read {
        Ok(good) => {
            let detail = if args.all { summary::Detail::All } else { summary::Detail::Some };
            let mut out = gateway.map(|config| gateway::summary(config) + "\n").unwrap_or_default();
            out.push_str(&summary::summary(good, detail));
            let warnings = match warned {
                0 => String::new(),
                _ => format!(", {}", counted(warned, "warning")),
            };
            remarks.extend(rules.notes.iter().map(|note| format!("note: {note}\n")));
            let verdict = if args.strict && warned > 0 { "invalid by --strict" } else { "valid" };
            let gateway = gateway.map(|config| gateway::totals(config) + ", ").unwrap_or_default();
            let totals = gateway + &summary::totals(good);
            out.push_str(&format!("{verdict}: {totals}{warnings}\n"));
            (out, remarks)
        }
        Err(problems) => {
            let files = counted(rules.sources.len(), "file");
            // The last problem only reports that there are more.
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

/// Severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Problem,
    Warning,
}

/// Problems and warnings with excerpts, in the order of the files.
pub(crate) fn shown(rules: &LoadResult) -> String {
    let mut all = String::new();
    let problems = rules.read.as_ref().err().into_iter().flatten();
    let problems = problems.map(|problem| (Severity::Problem, problem));
    let warnings = rules.warnings.iter().map(|problem| (Severity::Warning, problem));
    let mut both: Vec<(Severity, &Problem)> = problems.chain(warnings).collect();
    let indices: HashMap<&str, usize> =
        rules.sources.iter().zip(0..).map(|(source, index)| (&*source.name, index)).collect();
    let index = |problem: &Problem| indices.get(problem.source()).copied();
    both.sort_by_key(|(_, one)| (index(one), one.line(), one.column()));
    // Each file is split into lines once.
    let (mut read, mut lines) = (None, Vec::new());
    for (kind, problem) in both {
        if let Some(found) = index(problem).filter(|found| read != Some(*found)) {
            lines =
                rules.sources.get(found).map_or_else(Vec::new, |one| one.text.lines().collect());
            read = Some(found);
        }
        let number = problem.line().checked_sub(1);
        let line = number.and_then(|number| lines.get(number).copied());
        all.push_str(&one(kind, problem, line));
    }
    all
}

fn one(kind: Severity, problem: &Problem, text: Option<&str>) -> String {
    let (file, line, column) = (problem.source(), problem.line(), problem.column());
    let kind = if kind == Severity::Warning { "warning: " } else { "" };
    let path = match problem.path() {
        "" => String::new(),
        path => format!("{path}: "),
    };
    let excerpt = text.map(|text| excerpt(problem, text)).unwrap_or_default();
    format!("{file}:{line}:{column}: {kind}{path}{}\n{excerpt}", problem.message())
}
