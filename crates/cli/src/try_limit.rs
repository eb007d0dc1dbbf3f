//! `sluicegate try`: operations against a limit on virtual time.

use std::fs::File;
use std::io::{self, BufRead, LineWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate_config::limit::limits;
use sluicegate_config::mode::mode;
use sluicegate_core::mode::Mode;
use sluicegate_lab::answer::{TrialAnswer, error_json};
use sluicegate_lab::examples::{EXAMPLES, Example};
use sluicegate_lab::line::Line;
use sluicegate_lab::redis::RedisTrial;
use sluicegate_lab::script::Script;
use sluicegate_lab::timeline::Recorder;
use sluicegate_lab::trial::Trial;
use sluicegate_rules::limit::LimitConfig;

use crate::written;

/// Bound of an input line.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `try`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    echo '{\"at_us\":0,\"op\":\"hit\"}' | sluicegate try --limit '{ algorithm: token_bucket, rate: 5/s, burst: 3 }'\n\n\
    The same on a Redis: add `--store redis://127.0.0.1:6379`.\n\
    `--help` has an example for each algorithm.")]
pub(crate) struct TryArgs {
    /// The limit in YAML: one mapping, or a list of them (one identity, all or nothing)
    #[arg(long, value_name = "YAML", conflicts_with_all = ["limit_file", "script", "example"])]
    limit: Option<String>,
    /// File with the limit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["script", "example"])]
    limit_file: Option<PathBuf>,
    /// Enforcement mode: `hard`, `shadow`, `{ soft: 10% }`,
    /// `{ elastic: { up_to: 2x, below: 70%, above: 85% } }`
    #[arg(long, value_name = "YAML", conflicts_with_all = ["script", "example"])]
    mode: Option<String>,
    /// Run a script: operations with their expected answers
    #[arg(long, value_name = "FILE", conflicts_with = "example")]
    script: Option<PathBuf>,
    /// Run the example of an algorithm: token_bucket, leaky_bucket, fixed_window, sliding_log,
    /// sliding_window, sliding_slices, smooth_bursty, warm_up, cycle, concurrency, tally, unlimited
    #[arg(long, value_name = "ALGORITHM")]
    example: Option<String>,
    /// Plot demand, admitted and remaining quota into this file (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Keep the counters in a Redis, such as `redis://127.0.0.1:6379`. Its keys begin with
    /// `sluicegate:try:` and are deleted at the end
    #[arg(long, value_name = "URL", conflicts_with_all = ["svg", "example"])]
    store: Option<String>,
}

/// Runs `try`.
pub(crate) fn run(args: &TryArgs) -> anyhow::Result<ExitCode> {
    if let Some(algorithm) = &args.example {
        return run_example(algorithm, args.svg.as_deref());
    }
    if let Some(path) = &args.script {
        let (name, text) = (path.display().to_string(), read(path)?);
        return match &args.store {
            Some(url) => run_script_on_redis(&name, &text, url),
            None => run_script(&name, &text, args.svg.as_deref()),
        };
    }
    let (source, text) = match (&args.limit, &args.limit_file) {
        (Some(text), _) => ("--limit".to_owned(), text.clone()),
        (None, Some(path)) => (path.display().to_string(), read(path)?),
        (None, None) => bail!(
            "no limit given: use `--limit '{{ algorithm: token_bucket, rate: 5/s }}'`, \
             `--limit-file FILE`, or `--example token_bucket` for an example"
        ),
    };
    let trial = under_trial(&source, &text, args.mode.as_deref()).and_then(|(limits, mode)| {
        // Validates the limits for every store.
        Trial::new(limits.clone(), mode).map(|trial| (trial, limits, mode))
    });
    let (mut trial, limits, mode) = match trial {
        Ok(trial) => trial,
        Err(problems) => {
            eprintln!("{problems}");
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Some(url) = &args.store {
        let mut redis = on_redis(url, limits, mode)?;
        return Ok(run_lines(&mut |line| redis.run(line))?.code());
    }
    let mut recorder = args.svg.as_ref().map(|_| Recorder::default());
    let ended = run_lines(&mut |line| execute(&mut trial, &mut recorder, line))?;
    if ended != Ended::Unread {
        draw(recorder, &trial, text.trim(), args.svg.as_deref())?;
    }
    Ok(ended.code())
}

/// A trial in a Redis, in a namespace of its own.
fn on_redis(url: &str, limits: Vec<LimitConfig>, mode: Mode) -> anyhow::Result<RedisTrial> {
    use std::hash::{BuildHasher, RandomState};

    let namespace = format!("sluicegate:try:{:016x}:", RandomState::new().hash_one(url));
    RedisTrial::new(url, &namespace, limits, mode).map_err(anyhow::Error::msg)
}

fn under_trial(
    source: &str,
    text: &str,
    mode_text: Option<&str>,
) -> Result<(Vec<LimitConfig>, Mode), String> {
    let limits = limits(source, text);
    let mode = mode_text.map_or(Ok(Mode::Hard), |text| mode("--mode", text));
    match (limits, mode) {
        (Ok(limits), Ok(mode)) => Ok((limits, mode)),
        (limits, mode) => {
            let problems = [limits.err().map(|p| p.to_string()), mode.err().map(|p| p.to_string())];
            Err(problems.into_iter().flatten().collect::<Vec<_>>().join("\n"))
        }
    }
}

/// How the input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// All lines were answered.
    Answered,
    /// Some lines were invalid.
    WithErrors,
    /// The reader of the output has closed it.
    Unread,
}

impl Ended {
    const fn code(self) -> ExitCode {
        match self {
            Self::Answered | Self::Unread => ExitCode::SUCCESS,
            Self::WithErrors => ExitCode::FAILURE,
        }
    }
}

/// JSON lines in, JSON lines out, until the input ends.
fn run_lines(
    answer: &mut dyn FnMut(&Line) -> Result<TrialAnswer, String>,
) -> anyhow::Result<Ended> {
    let mut input = io::stdin().lock();
    let mut output = LineWriter::new(io::stdout().lock());
    let mut all_answered = true;
    let mut number = 0u64;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let mut limited = input.by_ref().take(LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut buffer).context("cannot read standard input")? == 0 {
            break;
        }
        number += 1;
        let cut = buffer.len() as u64 == LINE_BYTES_MAX && buffer.last() != Some(&b'\n');
        if cut {
            skip_line(&mut input).context("cannot read standard input")?;
        }
        let text = String::from_utf8_lossy(&buffer);
        if text.trim().is_empty() {
            continue;
        }
        let parsed = if cut {
            Err(format!("longer than {LINE_BYTES_MAX} bytes"))
        } else {
            Line::parse(&text)
        };
        let printed = match parsed.and_then(|line| answer(&line)) {
            Ok(answer) => answer.to_json(),
            Err(error) => {
                all_answered = false;
                error_json(&format!("line {number}: {error}"))
            }
        };
        if !written(writeln!(output, "{printed}"))? {
            return Ok(Ended::Unread);
        }
    }
    Ok(if all_answered { Ended::Answered } else { Ended::WithErrors })
}

/// Executes a line and records it for the plot.
fn execute(
    trial: &mut Trial,
    recorder: &mut Option<Recorder>,
    line: &Line,
) -> Result<TrialAnswer, String> {
    if let Some(recorder) = recorder {
        recorder.before(trial, line);
    }
    let answer = trial.run(line)?;
    if let Some(recorder) = recorder {
        recorder.after(trial, line, &answer);
    }
    Ok(answer)
}

/// Drops the rest of a line that is too long.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let available = input.fill_buf()?;
        if available.is_empty() {
            return Ok(());
        }
        let (used, done) = match available.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (available.len(), false),
        };
        input.consume(used);
        if done {
            return Ok(());
        }
    }
}

fn run_script(name: &str, text: &str, svg: Option<&Path>) -> anyhow::Result<ExitCode> {
    let Some(script) = parsed(name, text) else { return Ok(ExitCode::FAILURE) };
    let mut trial = script.trial().map_err(anyhow::Error::msg)?;
    let mut recorder = svg.map(|_| Recorder::default());
    play(&script, &mut |line| execute(&mut trial, &mut recorder, line))?;
    draw(recorder, &trial, &script.title, svg)?;
    Ok(report_differences(name, &script.check()))
}

fn run_script_on_redis(name: &str, text: &str, url: &str) -> anyhow::Result<ExitCode> {
    let Some(script) = parsed(name, text) else { return Ok(ExitCode::FAILURE) };
    let trial = || on_redis(url, script.limits.clone(), script.mode);
    let mut redis = trial()?;
    play(&script, &mut |line| redis.run(line))?;
    let mut redis = trial()?;
    Ok(report_differences(name, &script.check_with(|line| redis.run(line))))
}

fn parsed(name: &str, text: &str) -> Option<Script> {
    let script = Script::parse(name, text);
    script.map_err(|errors| eprintln!("{}", errors.join("\n"))).ok()
}

/// Reports answers that differ from the expected ones.
fn report_differences(name: &str, differences: &[String]) -> ExitCode {
    if differences.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("{name}: {} of the answers are not as expected", differences.len());
    eprintln!("{}", differences.join("\n"));
    ExitCode::FAILURE
}

fn run_example(algorithm: &str, svg: Option<&Path>) -> anyhow::Result<ExitCode> {
    let Some(example) = Example::of(algorithm) else {
        let names: Vec<&str> = EXAMPLES.iter().map(|example| example.algorithm).collect();
        eprintln!("no example `{algorithm}`: choose one of {}", names.join(", "));
        return Ok(ExitCode::FAILURE);
    };
    run_script(algorithm, example.text, svg)
}

/// Prints a script with its answers.
fn play(
    script: &Script,
    answer: &mut dyn FnMut(&Line) -> Result<TrialAnswer, String>,
) -> anyhow::Result<()> {
    let mut text = format!("{}\nlimit {}\n", script.title, script.limit_text);
    if let Some(mode) = &script.mode_text {
        text.push_str(&format!("mode {mode}\n"));
    }
    for entry in &script.lines {
        let answered = entry.line.clone().and_then(|line| answer(&line));
        let printed = answered.map_or_else(|error| error_json(&error), |answer| answer.to_json());
        let operation = entry.text.split("->").next().unwrap_or_default().trim_end();
        text.push_str(&format!("\n  {operation}\n    {printed}\n"));
    }
    written(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(())
}

fn draw(
    recorder: Option<Recorder>,
    trial: &Trial,
    title: &str,
    svg: Option<&Path>,
) -> anyhow::Result<()> {
    let (Some(recorder), Some(path)) = (recorder, svg) else {
        return Ok(());
    };
    let plot = recorder.draw(trial, title).map_err(anyhow::Error::msg)?;
    std::fs::write(path, plot).with_context(|| format!("cannot write `{}`", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("cannot open `{}`", path.display()))?;
    file.take(1 << 26)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(text)
}

/// An example for each algorithm, with its real answers.
pub(crate) fn long_help() -> String {
    let mut help = String::from(
        "Standard input is one JSON object a line:\n  \
         {\"at_us\":0,\"op\":\"hit\",\"cost\":1,\"key\":\"a\"}\n\
         `at_us` is virtual time in microseconds; `op` is hit (the default), acquire, peek, take, charge,\n\
         refund, add, drain, reset, reserve, commit, renew, cancel or set_limit; `cost` is 1 unless given; `key` may\n\
         be left out. Further fields: `timeout_us` (acquire), `id` (acquire, reserve, commit, renew, cancel; hit on\n\
         a concurrency limit), `ttl_us` (reserve, renew), `partial` (commit), `force` (add), `limit` and `keep`\n\
         (set_limit: used, remaining, proportion, nothing), `load` (any, for an elastic mode). One JSON line is\n\
         printed for each.\n\
         Exit code: 0 if every line was answered, denials included; 1 if the limit or a line was invalid.\n",
    );
    for example in EXAMPLES {
        help.push('\n');
        match worked(&example) {
            Ok(text) => help.push_str(&text),
            Err(error) => help.push_str(&error),
        }
    }
    help
}

fn worked(example: &Example) -> Result<String, String> {
    let script = example.script().map_err(|errors| errors.join("\n"))?;
    let mut trial = script.trial()?;
    let (title, limit) = (&script.title, &script.limit_text);
    let algorithm = example.algorithm;
    let mut text = format!("{algorithm}: {title}\nsluicegate try --limit '{limit}' <<'END'\n");
    let mut answers = String::new();
    for entry in &script.lines {
        text.push_str(&format!("{}\n", entry.json));
        let answer = trial.run(&entry.line.clone()?)?;
        answers.push_str(&format!("{}\n", answer.to_json()));
    }
    Ok(text + "END\n" + &answers)
}
