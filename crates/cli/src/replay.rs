//! `sluicegate replay`: what rules would have done to the traffic of access logs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use sluicegate::Span;
use sluicegate_config::rules::request_descriptor;
use sluicegate_config::units::span_or_zero;
use sluicegate_lab::log_input::mapping::LogMapping;
use sluicegate_lab::replay::identities::IDENTITIES_MAX;
use sluicegate_lab::replay::json::ReplayOutput;
use sluicegate_lab::replay::run::{LogReplay, ReplayResult, ReplayedRules};
use sluicegate_lab::replay::text::TOP_DEFAULT;
use sluicegate_rules::domain::Domain;
use sluicegate_rules::mapping::{DescriptorMapping, Part};
use sluicegate_rules::set::RuleSet;

use crate::logs::{LogArgs, ReadingLine, hits};
use crate::rules::{ReadArgs, valid_domains};
use crate::written;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate replay /var/log/nginx/access.log* --rules rules.yaml\n  \
    sluicegate replay access.log --rules rules.yaml --descriptor '{ remote_address: client_ip }'\n  \
    sluicegate replay access.log --rules rules.yaml --against new.yaml --report report.html\n  \
    zcat huge.log.gz | sluicegate replay - --rules rules.yaml --json | jq '.rules[0]'\n  \
    sluicegate replay tokens.csv --format csv:time=TIMESTAMP,hits=ContextTokens --rules rules.yaml\n\n\
    Requests are decided at the times of the log, by counters that start empty. They are mapped to descriptors by\n\
    `forward_auth` of the rules, or by --descriptor. See docs/guide/replay.md.\n\
    Exit codes: 0 replayed, denials included; 1 invalid rules; 2 failed, such as an unreadable log.")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    logs: LogArgs,
    /// Rules: files and directories
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    rules: Vec<PathBuf>,
    /// Other rules; shows which requests they decide differently
    #[arg(long, value_name = "PATH", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Domain of the rules [default: the only one]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Descriptor of a request, such as '{ remote_address: client_ip }'; repeat for more [default:
    /// those of `forward_auth` in the rules]
    #[arg(long, value_name = "MAPPING")]
    descriptor: Vec<String>,
    /// The part of a request that is its cost, such as `header X-Tokens or 1` [default: that of the
    /// log, else 1]
    #[arg(long, value_name = "PART", value_parser = hits)]
    hits: Option<Part>,
    /// How long requests over a limit with `on_limit: shape` wait, as in a gateway; by default they
    /// are denied, as by the service
    #[arg(long, value_name = "TIME", value_parser = wait)]
    max_wait: Option<Span>,
    /// Identities that are shown of each rule
    #[arg(long, value_name = "N", default_value_t = TOP_DEFAULT)]
    top: usize,
    /// Identities that are counted exactly, of all rules together
    #[arg(long, value_name = "N", default_value_t = IDENTITIES_MAX)]
    identities: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a report with plots (HTML)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Plot requests and denials over time (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write every decision as a JSON line; `-` is standard output
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Write every request that --against decides differently as a JSON line; `-` is standard
    /// output
    #[arg(long, value_name = "FILE", requires = "against")]
    differences: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadArgs,
}

fn wait(text: &str) -> Result<Span, String> {
    span_or_zero(text).map_err(|error| error.to_string())
}

/// Runs `replay`.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let Some(rules) = args.replayed(&args.rules, None)? else { return Ok(ExitCode::FAILURE) };
    let against = match args.against.as_slice() {
        [] => None,
        paths => match args.replayed(paths, Some(&rules.mapping))? {
            Some(rules) => Some(rules),
            None => return Ok(ExitCode::FAILURE),
        },
    };
    let threads = args.logs.threads();
    let replay = LogReplay {
        against,
        max_wait: args.max_wait.unwrap_or(Span::ZERO),
        identities_max: args.identities,
        shards: shards(threads),
        ..LogReplay::new(rules)
    };
    let mut input = args.logs.input()?;
    input.parsers = threads - shards(threads);
    let mut output = ReplayOutput {
        decisions: args.decisions.as_deref().map(create).transpose()?,
        differences: args.differences.as_deref().map(create).transpose()?,
        logs: args.logs.logs.clone(),
    };
    let mut line = ReadingLine::begin();
    let result = replay.run(&input, &mut output, |progress| line.show(progress));
    drop(line);
    let ended = output.finish();
    let result = match result {
        Err(error) if is_closed_pipe(&error) => return Ok(ExitCode::SUCCESS),
        result => result?,
    };
    written(ended)?;
    args.show(&result)?;
    Ok(ExitCode::SUCCESS)
}

/// Deciding threads: parsing takes about as long as deciding.
const fn shards(threads: usize) -> usize {
    if threads < 4 { 1 } else { threads / 2 }
}

fn is_closed_pipe(error: &sluicegate_lab::log_input::LogError) -> bool {
    use sluicegate_lab::log_input::LogError;
    matches!(error, LogError::Stopped(error) if error.kind() == io::ErrorKind::BrokenPipe)
}

fn create(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufWriter::new(io::stdout())));
    }
    let file = File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

impl ReplayArgs {
    /// Rules with their mapping; `None` if they are invalid, which is reported. Rules without
    /// `forward_auth` are mapped as the ones that they are compared with.
    fn replayed(
        &self,
        paths: &[PathBuf],
        other: Option<&LogMapping>,
    ) -> anyhow::Result<Option<ReplayedRules>> {
        let Some(domains) = valid_domains(&self.reading, paths)? else { return Ok(None) };
        let has_own = domains.iter().any(|domain| domain.forward_auth.is_some());
        let mapping = match other.filter(|_| self.descriptor.is_empty() && !has_own) {
            Some(other) => other.clone(),
            None => self.mapping(&domains)?,
        };
        Ok(Some(ReplayedRules { domains, mapping }))
    }

    fn mapping(&self, domains: &[Domain]) -> anyhow::Result<LogMapping> {
        let set = RuleSet::new(domains.to_vec()).context("the rules cannot be compiled")?;
        let domain = self.domain.as_deref();
        let read = |text: &String| request_descriptor("--descriptor", text);
        let descriptors: Vec<DescriptorMapping> =
            self.descriptor.iter().map(read).collect::<Result<_, _>>()?;
        let mapping = match descriptors.is_empty() {
            true => LogMapping::of_rules(&set, domain),
            false => LogMapping::with_descriptors(&set, domain, descriptors),
        };
        let mapping = mapping.map_err(|message| anyhow!(message))?;
        Ok(match &self.hits {
            Some(hits) => mapping.with_hits(hits.clone()),
            None => mapping,
        })
    }

    /// Prints the result and writes files.
    fn show(&self, result: &ReplayResult) -> anyhow::Result<()> {
        let logs = &self.logs.logs;
        if let Some(path) = &self.svg {
            let plot = result.to_svg().map_err(anyhow::Error::msg)?;
            write_file(path, &plot)?;
        }
        if let Some(path) = &self.report {
            let report = result.to_report(logs, &command_line()).map_err(anyhow::Error::msg)?;
            write_file(path, &report.html())?;
        }
        let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
        if is_stdout(&self.decisions) || is_stdout(&self.differences) {
            return Ok(());
        }
        let text = match self.json {
            true => format!("{}\n", result.to_json(logs)),
            false => result.to_text(logs, self.top),
        };
        written(io::stdout().lock().write_all(text.as_bytes()))?;
        Ok(())
    }
}

pub(crate) fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The command, to be run again from a shell.
pub(crate) fn command_line() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = std::env::args().skip(1).map(|argument| match argument.chars().all(is_plain) {
        true if !argument.is_empty() => argument,
        _ => format!("'{}'", argument.replace('\'', "'\\''")),
    });
    let mut line = "sluicegate".to_owned();
    quoted.for_each(|argument| line.extend([" ", &argument]));
    line
}
