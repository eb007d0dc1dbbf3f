//! A recommendation as a rules file: the limit, the mapping of requests, and the figures as
//! comments. It is loaded before it is returned, as `sluicegate check` loads it.

use sluicegate_config::rule_limits::RuleLimits;
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_core::time::Span;

use super::shape::LimitShape;
use super::{TuneResult, Tuning};

/// Names in the rules file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleNames {
    /// The domain.
    pub domain: String,
    /// The key of the descriptor entry that has the client.
    pub key: String,
    /// The part of a request that is its client, as `forward_auth` names it.
    pub client: String,
}

/// The key and the value of the rule that counts all clients together.
const SCOPE: [&str; 2] = ["scope", "all"];
const COLUMNS: usize = 100;

impl Tuning {
    /// The rules file; `None` without a recommendation.
    ///
    /// # Errors
    /// When the rules are not valid, because of the names.
    pub fn rules_file(&self, names: &RuleNames, command: &str) -> Result<Option<String>, String> {
        let Some(limits) = self.limits(names) else { return Ok(None) };
        let mut text = comment(&format!("Goal: {}. Examined: {}.", self.goal, self.subject()));
        for finding in self.findings() {
            text += &comment(&format!("- {}", finding.replace('`', "")));
        }
        text += &comment(&format!("Made by: {command}"));
        text += &format!("domain: {}\nforward_auth:\n  descriptors:\n", quoted(&names.domain));
        for limit in &limits {
            let constant = limit.value.as_ref().map(|value| format!("text {value}"));
            let part = constant.unwrap_or_else(|| names.client.clone());
            text += &format!("    - {{ {}: {} }}\n", quoted(&limit.key), quoted(&part));
        }
        text += "descriptors:\n";
        for limit in limits {
            text += &format!("  - key: {}\n", quoted(&limit.key));
            if let Some(value) = limit.value {
                text += &format!("    value: {}\n", quoted(&value));
            }
            text += &format!("    limits: {}\n", limit.limits);
        }
        let source = Source { name: "the rules file".to_owned(), text: text.clone() };
        match load(&[source], &Options::default()) {
            Ok(_) => Ok(Some(text)),
            Err(invalid) => Err(invalid.to_string()),
        }
    }

    /// The recommended limits as rules, that of the clients first; `None` without one.
    #[must_use]
    pub fn limits(&self, names: &RuleNames) -> Option<Vec<RuleLimits>> {
        let rule = |key: &str, value: Option<&str>, shape: LimitShape, size| RuleLimits {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            limits: shape.rule(size),
        };
        match &self.result {
            TuneResult::Shortage(_) => None,
            TuneResult::Limit(limit) => Some(vec![rule(&names.key, None, limit.shape, limit.size)]),
            TuneResult::Protection(protection) => {
                let overall = protection.overall;
                let per_client = protection.per_client.iter();
                let mut limits: Vec<RuleLimits> = per_client
                    .map(|limit| rule(&names.key, None, limit.shape, limit.size))
                    .collect();
                limits.push(rule(SCOPE[0], Some(SCOPE[1]), overall.shape, overall.size));
                Some(limits)
            }
        }
    }

    /// What the recommendation is, and what it is based on: the note of a revision.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let (shape, size) = match &self.result {
            TuneResult::Shortage(_) => return None,
            TuneResult::Limit(limit) => (limit.shape, limit.size),
            TuneResult::Protection(protection) => {
                let limit = protection.per_client.unwrap_or(protection.overall);
                (limit.shape, limit.size)
            }
        };
        let days = self.facts.last.since(self.facts.first);
        let days = super::findings::rounded(Span::from_micros(days.as_micros()));
        Some(format!("tuned on {days} of requests: {} ({})", shape.words(size), self.goal))
    }
}

/// A YAML text; plain where that is unambiguous.
fn quoted(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_- ".contains(c))
        && !text.ends_with(' ');
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// Lines of a comment, wrapped.
fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "#".to_owned());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS && line.len() > 1 {
            lines += &format!("{line}\n");
            line = "# ".to_owned();
        }
        line += &format!(" {word}");
    }
    lines + &line + "\n"
}
