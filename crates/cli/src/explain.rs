//! `sluicegate explain`: which rule is a request under, and why?

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate::Engine;
use sluicegate::explain::explain;
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};

use crate::check::shown;
use crate::output::written;
use crate::rules::{ReadArgs, rules};

use crate::descriptor::{Typed, entries, limit};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate explain --rules rules.yaml shop user_id=42\n  \
    sluicegate explain --rules rules.yaml shop user_id=42,path=/login remote_address=192.0.2.7\n  \
    sluicegate explain --rules rules.yaml --hits 60 shop user_id=42\n\n\
    A descriptor is `key=value` pairs with commas between them; several descriptors are one request. For a `,` or `\\`\n\
    that is meant, and for a `=` in a key, write a backslash before it. Nothing is counted,\n\
    and nothing has been before: what is told of `now` is what the first such request would get.\n\
    Exit codes: 0 it would be allowed, 1 it would be denied or the rules are invalid, 2 broken.")]
pub(crate) struct ExplainArgs {
    /// Whose rules
    #[arg(value_name = "DOMAIN")]
    domain: Option<String>,
    /// Who wants what: key=value,key=value
    #[arg(value_name = "DESCRIPTOR")]
    descriptors: Vec<String>,
    /// A file or directory of rules; give it again for more of the same configuration
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// How many hits the request counts
    #[arg(long, value_name = "N", default_value_t = 1)]
    hits: u64,
    /// A limit that comes with the last descriptor and stands in for the rules, such as 5/minute
    #[arg(long, value_name = "N/UNIT", value_parser = limit)]
    limit: Option<Override>,
    #[command(flatten)]
    reading: ReadArgs,
    /// Print one JSON object with everything
    #[arg(long)]
    json: bool,
}

/// Runs `explain`.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    if args.rules.is_empty() {
        bail!(
            "no rules given: name a file or directory, as in `sluicegate explain --rules rules.yaml shop user_id=42`"
        );
    }
    let Some(domain) = &args.domain else {
        bail!("no request given: name a domain and a descriptor, as in `shop user_id=42`");
    };
    if args.descriptors.is_empty() {
        let remedy = if domain.contains('=') {
            format!("`{domain}` was taken for the domain; write it behind the domain")
        } else {
            "write it behind the domain".to_owned()
        };
        bail!("no descriptor given: {remedy}, as in `shop user_id=42`");
    }
    let typed = args.descriptors.iter().map(|text| entries(text)).collect::<Result<Vec<_>, _>>();
    let typed = typed.map_err(anyhow::Error::msg)?;
    let rules = rules(&args.rules, &args.reading)?;
    if rules.read.is_err() {
        eprint!("{}", shown(&rules));
        eprintln!("invalid rules: see `sluicegate check`");
    }
    let Ok(good) = rules.read else { return Ok(ExitCode::FAILURE) };
    // What only looks wrong is the business of `check`; that there is nothing at all is not.
    rules.remarks.iter().for_each(|remark| eprintln!("warning: {remark}"));
    let engine = Engine::new(good.set).context("the rules cannot be enforced")?;
    let borrowed: Vec<Vec<Entry<'_>>> = typed.iter().map(|all| borrowed(all)).collect();
    let mut descriptors: Vec<Descriptor<'_>> =
        borrowed.iter().map(|entries| Descriptor::of(entries)).collect();
    if let Some(last) = descriptors.last_mut() {
        last.limit = args.limit;
    }
    let request = Request { domain, descriptors: &descriptors, hits: args.hits };
    let told = explain(&engine.snapshot(), &request, engine.now());
    let out = if args.json { format!("{}\n", told.to_json()) } else { told.to_text() };
    written(io::stdout().lock().write_all(out.as_bytes()))?;
    Ok(if told.allowed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn borrowed(typed: &[Typed]) -> Vec<Entry<'_>> {
    typed.iter().map(|one| Entry::new(&one.key, &one.value)).collect()
}
