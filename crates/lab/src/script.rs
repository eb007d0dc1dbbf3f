//! Scripts: operations with their expected answers, as text.
//!
//! ```text
//! # Bursts pass while tokens last.
//! limit { algorithm: token_bucket, rate: 5/s, burst: 2 }
//!
//! 0ms    hit          -> allow remaining=1
//! 0ms    hit cost=2   -> deny retry=200ms remaining=1
//! 200ms  hit cost=2   -> allow remaining=0
//! ```
//!
//! A line is a time, an operation with its options, and the expected answer after the arrow. Times
//! are durations (`90s`, `1m+30s`) or clock times (`1:00:30`); `0s..2s/100ms` repeats the line
//! every 100 ms, end excluded. Only the fields after the arrow are compared: `allow`, `deny`,
//! `never`, `error` or `any`, then any of `remaining=` `retry=` `reset=` `wait=` `taken=`
//! `returned=` `held=` `max_cost=` `limit=` `soft` `elastic` `would=allow` `would=deny`; after
//! `error`, words that the message must contain.

use serde_json::{Map, Value, json};
use sluicegate_config::limit::limits;
use sluicegate_config::mode::mode;
use sluicegate_config::units::{show_span, span_or_zero};
use sluicegate_core::mode::Mode;
use sluicegate_core::time::Span;
use sluicegate_rules::limit::LimitConfig;

use crate::answer::TrialAnswer;
use crate::line::Line;
use crate::trial::Trial;

/// A parsed script.
#[derive(Debug, Clone)]
pub struct Script {
    /// The comment at its top.
    pub title: String,
    /// Source text of the limit.
    pub limit_text: String,
    /// The limits.
    pub limits: Vec<LimitConfig>,
    /// Source text of the mode, if present.
    pub mode_text: Option<String>,
    /// The mode.
    pub mode: Mode,
    /// The operations.
    pub lines: Vec<ScriptLine>,
}

/// One operation of a script.
#[derive(Debug, Clone)]
pub struct ScriptLine {
    /// Line number in the file, from 1.
    pub line_number: usize,
    /// Source text of the line.
    pub text: String,
    /// The operation as a line of JSON, or its error (which a script may expect).
    pub line: Result<Line, String>,
    /// The JSON of the operation.
    pub json: String,
    /// Expected answer.
    pub expected: Expected,
}

/// Expected answer; `None` fields are not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    outcome: Outcome,
    fields: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Allow,
    Deny,
    Never,
    Error,
    Any,
}

/// Maximum number of lines of one repetition.
const REPEATS_MAX: u64 = 10_000;

impl Script {
    /// Parses a script. `name` is the prefix of error messages.
    ///
    /// ```
    /// use sluicegate_lab::script::Script;
    ///
    /// let text = "limit { algorithm: fixed_window, rate: 1/m }\n59s hit -> allow\n59s hit -> deny retry=1s\n";
    /// let script = Script::parse("edge.txt", text).unwrap();
    /// assert_eq!(script.check(), Vec::<String>::new());
    /// ```
    ///
    /// # Errors
    /// A message per invalid line.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<String>> {
        let mut title = String::new();
        let mut limit = None;
        let mut mode_line = None;
        let mut lines = Vec::new();
        let mut errors = Vec::new();
        for (index, raw) in text.lines().enumerate() {
            let line_number = index + 1;
            let line = raw.trim();
            if let Some(comment) = line.strip_prefix('#') {
                if limit.is_none() {
                    title = format!("{title} {}", comment.trim()).trim().to_owned();
                }
            } else if let Some(rest) = line.strip_prefix("limit ") {
                limit = Some((line_number, rest.trim().to_owned()));
            } else if let Some(rest) = line.strip_prefix("mode ") {
                mode_line = Some((line_number, rest.trim().to_owned()));
            } else if !line.is_empty() {
                match ScriptLine::parse(line_number, line) {
                    Ok(more) => lines.extend(more),
                    Err(error) => errors.push(format!("{name}:{line_number}: {error}")),
                }
            }
        }
        let limits = match &limit {
            Some((at, text)) => limits(&format!("{name}:{at}"), text).map_err(|e| e.to_string()),
            None => Err(format!(
                "{name}: no limit: begin with a line such as `limit {{ algorithm: token_bucket, rate: 5/s }}`"
            )),
        };
        let mode = match &mode_line {
            Some((at, text)) => mode(&format!("{name}:{at}"), text).map_err(|e| e.to_string()),
            None => Ok(Mode::Hard),
        };
        errors.extend(limits.as_ref().err().cloned());
        errors.extend(mode.as_ref().err().cloned());
        match (limits, mode, limit) {
            (Ok(limits), Ok(mode), Some((_, limit_text))) if errors.is_empty() => {
                let mode_text = mode_line.map(|(_, text)| text);
                Ok(Self { title, limit_text, limits, mode_text, mode, lines })
            }
            _ => Err(errors),
        }
    }

    /// Runs the script on virtual time; returns the mismatches.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        match self.trial() {
            Ok(mut trial) => self.check_with(|line| trial.run(line)),
            Err(error) => vec![error],
        }
    }

    /// Runs the script against any executor of lines, such as a store or a server.
    pub fn check_with(
        &self,
        mut answer: impl FnMut(&Line) -> Result<TrialAnswer, String>,
    ) -> Vec<String> {
        let mut differences = Vec::new();
        for entry in &self.lines {
            let got = entry.line.clone().and_then(|line| answer(&line));
            differences.extend(entry.differences(&got));
        }
        differences
    }

    /// A trial of the script's limit.
    ///
    /// # Errors
    /// When its mode does not fit its limit.
    pub fn trial(&self) -> Result<Trial, String> {
        Trial::new(self.limits.clone(), self.mode)
    }
}

impl ScriptLine {
    fn parse(line_number: usize, text: &str) -> Result<Vec<Self>, String> {
        let Some((request, expected)) = text.split_once("->") else {
            return Err(format!("`{text}` has no `->`: write the expected answer after it"));
        };
        let mut rest = request.trim();
        let time = next_word(&mut rest);
        let expected = Expected::parse(expected.trim())?;
        let mut lines = Vec::new();
        for at in moments(time)? {
            let text = text.replacen(time, &show_span(at), usize::from(time.contains("..")));
            lines.push(Self::at(at, rest, expected.clone(), line_number, text)?);
        }
        Ok(lines)
    }

    fn at(
        at: Span,
        request: &str,
        expected: Expected,
        line_number: usize,
        text: String,
    ) -> Result<Self, String> {
        let mut rest = request;
        let mut fields = Map::new();
        fields.insert("at_us".to_owned(), json!(at.as_micros()));
        fields.insert("op".to_owned(), json!(next_word(&mut rest)));
        while !rest.is_empty() {
            // A limit is YAML with spaces, and therefore comes last.
            if let Some(limit) = rest.strip_prefix("limit=") {
                fields.insert("limit".to_owned(), json!(limit.trim()));
                break;
            }
            let (name, value) = option(next_word(&mut rest))?;
            fields.insert(name, value);
        }
        let json = Value::Object(fields).to_string();
        let line = Line::parse(&json);
        if let (Err(error), false) = (&line, expected.outcome == Outcome::Error) {
            return Err(error.clone());
        }
        Ok(Self { line_number, text, line, json, expected })
    }

    fn differences(&self, got: &Result<TrialAnswer, String>) -> Vec<String> {
        let differences = self.expected.differences(got);
        let at = self.line_number;
        let actual = match got {
            Ok(answer) => answer.to_json(),
            Err(error) => crate::answer::error_json(error),
        };
        let text = &self.text;
        differences
            .into_iter()
            .map(|d| format!("line {at}: {d}\n    {text}\n    {actual}"))
            .collect()
    }
}

/// An option of an operation, as a JSON field.
fn option(word: &str) -> Result<(String, Value), String> {
    if matches!(word, "force" | "partial") {
        return Ok((word.to_owned(), json!(true)));
    }
    let Some((name, value)) = word.split_once('=') else {
        return Err(format!("`{word}` is not an option: write `name=value`, such as `cost=2`"));
    };
    let number = || value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
    Ok(match name {
        "timeout" | "ttl" => (format!("{name}_us"), json!(moment(value)?.as_micros())),
        "cost" => (name.to_owned(), number()),
        _ => (name.to_owned(), json!(value)),
    })
}

impl Expected {
    fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text;
        let outcome = match next_word(&mut rest) {
            "allow" => Outcome::Allow,
            "deny" => Outcome::Deny,
            "never" => Outcome::Never,
            "error" => Outcome::Error,
            "any" => Outcome::Any,
            other => {
                return Err(format!(
                    "`{other}` is not an answer: use `allow`, `deny`, `never`, `error` or `any`"
                ));
            }
        };
        if outcome == Outcome::Error {
            let fields = if rest.is_empty() { vec![] } else { vec![("error".into(), rest.into())] };
            return Ok(Self { outcome, fields });
        }
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let field = next_word(&mut rest);
            let (name, value) = field.split_once('=').unwrap_or((field, "true"));
            let value = match name {
                "retry" | "reset" | "wait" => show_span(moment(value)?),
                "remaining" | "taken" | "returned" | "held" | "max_cost" | "limit" | "soft"
                | "elastic" | "would" => value.to_owned(),
                _ => return Err(format!("an answer has no `{name}`")),
            };
            fields.push((name.to_owned(), value));
        }
        Ok(Self { outcome, fields })
    }

    fn differences(&self, got: &Result<TrialAnswer, String>) -> Vec<String> {
        let answer = match got {
            Ok(answer) => answer,
            Err(error) => {
                let wanted = self.fields.iter().all(|(_, words)| error.contains(words.as_str()));
                if self.outcome == Outcome::Error && wanted {
                    return Vec::new();
                }
                return vec![format!("expected {}, got an error", self.shown())];
            }
        };
        let outcome = match (answer.allowed, answer.never) {
            (true, _) => Outcome::Allow,
            (false, true) => Outcome::Never,
            (false, false) => Outcome::Deny,
        };
        let mut differences = Vec::new();
        if outcome != self.outcome && self.outcome != Outcome::Any {
            differences
                .push(format!("expected {:?}, got {outcome:?}", self.outcome).to_lowercase());
        }
        for (name, wanted) in &self.fields {
            let actual = field(answer, name);
            if actual != *wanted {
                differences.push(format!("expected {name}={wanted}, got {name}={actual}"));
            }
        }
        differences
    }

    fn shown(&self) -> String {
        let fields = self.fields.iter().map(|(name, value)| format!(" {name}={value}"));
        format!("{:?}{}", self.outcome, fields.collect::<String>()).to_lowercase()
    }
}

fn field(answer: &TrialAnswer, name: &str) -> String {
    let span = |us: u64| show_span(Span::from_micros(us));
    let number = |n: Option<u64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
    match name {
        "retry" => answer.retry_after_us.map_or_else(|| "none".to_owned(), span),
        "reset" => span(answer.reset_after_us),
        "wait" => span(answer.wait_us),
        "remaining" => answer.remaining.map_or_else(|| "none".to_owned(), |n| n.to_string()),
        "taken" => number(answer.taken),
        "returned" => number(answer.returned),
        "held" => number(answer.held),
        "max_cost" => number(answer.max_cost),
        "limit" => answer.limit.clone().unwrap_or_else(|| "none".to_owned()),
        "soft" => answer.soft.to_string(),
        "elastic" => answer.elastic.to_string(),
        "would" => match answer.would_allow {
            Some(true) => "allow".to_owned(),
            Some(false) => "deny".to_owned(),
            None => "none".to_owned(),
        },
        _ => String::new(),
    }
}

/// The times of a line: one, or those of `0s..2s/100ms`.
fn moments(text: &str) -> Result<Vec<Span>, String> {
    let Some((from, rest)) = text.split_once("..") else {
        return Ok(vec![moment(text)?]);
    };
    let Some((to, step)) = rest.split_once('/') else {
        return Err(format!("`{text}` has no step: write `0s..2s/100ms`"));
    };
    let (from, to, step) =
        (moment(from)?.as_micros(), moment(to)?.as_micros(), moment(step)?.as_micros());
    let count = to.saturating_sub(from).div_ceil(step.max(1));
    if step == 0 || count > REPEATS_MAX {
        return Err(format!("`{text}` repeats too often: at most {REPEATS_MAX} times"));
    }
    Ok((0..count).map(|n| Span::from_micros(from + n * step)).collect())
}

/// Parses a time or duration: `90s`, `1m+30s`, `1:00:30`, `0`.
fn moment(text: &str) -> Result<Span, String> {
    if text.contains(':') {
        return clock(text)
            .ok_or_else(|| format!("`{text}` is not a time: write `1:00:30` or `90s`"));
    }
    let mut sum = 0u64;
    for part in text.split('+') {
        let read = || span_or_zero(part).map_err(|error| error.to_string());
        let span = if part == "0" { Span::ZERO } else { read()? };
        sum = sum.saturating_add(span.as_micros());
    }
    Ok(Span::from_micros(sum))
}

/// Hours, minutes and seconds, with up to six decimals.
fn clock(text: &str) -> Option<Span> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (seconds, decimals) = seconds.split_once('.').unwrap_or((seconds, ""));
    if parts.next().is_some() || decimals.len() > 6 {
        return None;
    }
    let micros: u64 = format!("{decimals:0<6}").parse().ok()?;
    let (hours, minutes, seconds): (u64, u64, u64) =
        (hours.parse().ok()?, minutes.parse().ok()?, seconds.parse().ok()?);
    let whole =
        hours.checked_mul(3_600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)?;
    Some(Span::from_micros(whole.checked_mul(1_000_000)?.checked_add(micros)?))
}

fn next_word<'a>(rest: &mut &'a str) -> &'a str {
    let (word, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    *rest = more.trim_start();
    word
}
