//! Renders the differences of two sets of rules as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{CounterChange, DiffKind, DomainDiff, RuleDiff, RulesDiff, SettingDiff};
use crate::explain::rule::text::{counted, counters, limits, plainly, settings};
use crate::explain::rule::timing::timing;
use crate::explain::rule::{LocatedRule, json};

impl RulesDiff<'_> {
    /// For people: each rule that differs, its limits before and after, and what becomes of its
    /// counters.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for domain in &self.domains {
            domain.write(&mut out);
            out.push('\n');
        }
        out.push_str(&self.totals());
        out.push('\n');
        out
    }

    /// "2 rules changed, 1 added, 1 removed; counters of 1 rule start anew".
    #[must_use]
    pub fn totals(&self) -> String {
        if self.is_empty() {
            return "no difference".to_owned();
        }
        let rules = || self.domains.iter().flat_map(|domain| &domain.rules);
        let count = |change| rules().filter(|rule| rule.change() == change).count();
        let (changed, added) = (count(DiffKind::Changed), count(DiffKind::Added));
        let removed = count(DiffKind::Removed);
        let settings: usize = self.domains.iter().map(|domain| domain.settings.len()).sum();
        let restarted = rules().filter(|rule| rule.counters.restarts()).count();
        let mut parts: Vec<String> = [(changed, "changed"), (added, "added"), (removed, "removed")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, how)| format!("{} {how}", counted(count, "rule")))
            .collect();
        if settings > 0 {
            parts.push(format!("{} changed", counted(settings, "setting")));
        }
        if restarted > 0 {
            parts.push(format!("counters of {} start anew", counted(restarted, "rule")));
        }
        parts.join(", ")
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "same": self.is_empty(),
            "domains": self.domains.iter().map(DomainDiff::to_json).collect::<Value>(),
            "unchanged_domains": self.same,
        })
    }
}

impl DomainDiff<'_> {
    fn write(&self, out: &mut String) {
        let name = plainly(self.name);
        let what = self.change.name();
        let same = match self.same {
            0 => String::new(),
            same => format!(", {} unchanged", counted(same, "rule")),
        };
        let _ = writeln!(out, "domain {name}: {what}{same}\n");
        self.rules.iter().for_each(|rule| rule.write(out));
        self.settings.iter().for_each(|setting| setting.write(out));
    }

    fn to_json(&self) -> Value {
        let setting = |setting: &SettingDiff| {
            let SettingDiff { name, removed, added } = setting;
            json!({ "setting": name.replace(' ', "_"), "removed": removed, "added": added })
        };
        json!({
            "domain": self.name,
            "change": self.change.name(),
            "rules": self.rules.iter().map(RuleDiff::to_json).collect::<Value>(),
            "unchanged_rules": self.same,
            "settings": self.settings.iter().map(setting).collect::<Value>(),
        })
    }
}

impl RuleDiff<'_> {
    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "  {} {}", self.change().sign(), plainly(&self.id()));
        let mut line = |what: &str, text: &str| {
            let _ = writeln!(out, "    {what:9} {}", plainly(text));
        };
        let (old, new) = (self.old.as_ref().map(in_words), self.new.as_ref().map(in_words));
        match (old, new) {
            (Some(old), Some(new)) => {
                let only = |some: &[String], others: &[String]| -> Vec<String> {
                    some.iter().filter(|one| !others.contains(one)).cloned().collect()
                };
                only(&old, &new).iter().for_each(|text| line("was", text));
                only(&new, &old).iter().for_each(|text| line("is", text));
            }
            (None, Some(new)) => new.iter().for_each(|text| line("is", text)),
            (Some(old), None) => old.iter().for_each(|text| line("was", text)),
            (None, None) => {}
        }
        line("counters", self.counters.in_words());
        for (name, change) in &self.limits {
            line("", &format!("{name}: {}", change.in_words()));
        }
        if self.restarts_in_redis {
            line(
                "",
                "in Redis they start anew, since those of `eventual` rules are stored elsewhere",
            );
        }
    }

    fn to_json(&self) -> Value {
        let change = |(name, change): &(String, CounterChange)| json!({ "limit": name, "counters": change.name() });
        json!({
            "rule": self.id(),
            "change": self.change().name(),
            "old": self.old.as_ref().map(json::rule),
            "new": self.new.as_ref().map(json::rule),
            "counters": self.counters.name(),
            "limits": self.limits.iter().map(change).collect::<Value>(),
            "restarts_in_redis": self.restarts_in_redis,
        })
    }
}

impl SettingDiff {
    fn write(&self, out: &mut String) {
        let _ = writeln!(out, "  ~ {}", self.name);
        let mut lines = |what: &str, all: &[String]| {
            for one in all {
                let _ = writeln!(out, "    {what:9} {}", plainly(one));
            }
        };
        lines("without", &self.removed);
        lines("with", &self.added);
    }
}

/// The limits of a rule, how they are enforced, and its counters.
fn in_words(rule: &LocatedRule<'_>) -> Vec<String> {
    let mut all = limits(&rule.rule().limits);
    all.extend(timing(rule.rule()));
    all.extend(settings(rule.rule()));
    all.push(counters(rule));
    all
}

impl DiffKind {
    const fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed => '~',
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        }
    }
}

impl CounterChange {
    /// Whether usage is lost that the old rules have counted.
    const fn restarts(self) -> bool {
        matches!(self, Self::Partly | Self::OtherAlgorithm | Self::OtherCounters)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Dropped => "dropped",
            Self::Continued => "continued",
            Self::Converted => "converted",
            Self::Partly => "partly",
            Self::OtherAlgorithm | Self::OtherCounters => "restarted",
        }
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Dropped => "dropped",
            Self::Continued => "continue",
            Self::Converted => "continue: what was used stays used",
            Self::Partly => "continue in part",
            Self::OtherAlgorithm => "start anew: the algorithm differs",
            Self::OtherCounters => {
                "start anew: requests are counted by other keys, or share counters otherwise"
            }
        }
    }
}
