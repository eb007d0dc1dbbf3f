//! `sluicegate explain`: which rule matches a request, and why.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate::Engine;
use sluicegate::clock::ManualClock;
use sluicegate::explain::explain;
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::typed::{TypedEntry, entries};

use crate::check::shown;
use crate::rules::{AtArgs, ReadArgs, rules};
use crate::written;

use crate::limit_override::limit;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate explain --rules rules.yaml shop user_id=42\n  \
    sluicegate explain --rules rules.yaml shop user_id=42,path=/login remote_address=192.0.2.7\n  \
    sluicegate explain --rules rules.yaml --hits 60 shop user_id=42\n\n\
    A descriptor is a comma-separated list of `key=value`; several descriptors are one request. A backslash escapes\n\
    `,`, `\\` and, in a key, `=`. Nothing is counted, and counters are empty: the verdict is that of the first request.\n\
    Exit codes: 0 allowed, 1 denied or invalid rules, 2 failed.")]
pub(crate) struct ExplainArgs {
    /// Domain of the rules
    #[arg(value_name = "DOMAIN")]
    domain: Option<String>,
    /// Descriptor: key=value,key=value
    #[arg(value_name = "DESCRIPTOR")]
    descriptors: Vec<String>,
    /// File or directory of rules; repeat for more of the same configuration [default: those of
    /// `serve`]
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// Cost of the request
    #[arg(long, value_name = "N", default_value_t = 1)]
    hits: u64,
    /// Limit override of the last descriptor, such as 5/minute
    #[arg(long, value_name = "N/UNIT", value_parser = limit)]
    limit: Option<Override>,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    at: AtArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `explain`.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let settings = args.reading.settings(&args.rules)?;
    if settings.paths.is_empty() {
        bail!(
            "no rules given: name a file or directory, as in `sluicegate explain --rules rules.yaml shop user_id=42`, \
             or set SLUICEGATE_RULES or RUNTIME_ROOT as for `sluicegate serve`"
        );
    }
    let Some(domain) = &args.domain else {
        bail!("no request given: name a domain and a descriptor, as in `shop user_id=42`");
    };
    if args.descriptors.is_empty() {
        let remedy = if domain.contains('=') {
            format!("`{domain}` was taken for the domain; write it after the domain")
        } else {
            "write it after the domain".to_owned()
        };
        bail!("no descriptor given: {remedy}, as in `shop user_id=42`");
    }
    let typed = args.descriptors.iter().map(|text| entries(text)).collect::<Result<Vec<_>, _>>();
    let typed = typed.map_err(anyhow::Error::msg)?;
    let now = args.at.moment();
    let rules = rules(&settings, now)?;
    if rules.read.is_err() {
        eprint!("{}", shown(&rules));
        eprintln!("invalid rules: see `sluicegate check`");
    }
    let Ok(good) = rules.read else { return Ok(ExitCode::FAILURE) };
    let engine = Engine::builder(good.set).clock(ManualClock::at(now)).build();
    let engine = engine.context("the rules cannot be enforced")?;
    let borrowed: Vec<Vec<Entry<'_>>> = typed.iter().map(|all| borrowed(all)).collect();
    let mut descriptors: Vec<Descriptor<'_>> =
        borrowed.iter().map(|entries| Descriptor::of(entries)).collect();
    if let Some(last) = descriptors.last_mut() {
        last.limit = args.limit;
    }
    let request = Request { domain, descriptors: &descriptors, hits: args.hits };
    let explanation = explain(&engine.snapshot(), &request, engine.now());
    let out =
        if args.json { format!("{}\n", explanation.to_json()) } else { explanation.to_text() };
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    Ok(if explanation.allowed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn borrowed(typed: &[TypedEntry]) -> Vec<Entry<'_>> {
    typed.iter().map(TypedEntry::entry).collect()
}
