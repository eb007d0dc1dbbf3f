//! Human-readable summary: a table for each domain.

use sluicegate::explain::rule::text::{
    counted, counters, grouped, limits, memory, plainly, settings,
};
use sluicegate::explain::rule::timing::{override_line, timing};
use sluicegate::explain::rule::{LocatedRule, contents, text};
use sluicegate_rules::domain::ForwardAuth;
use sluicegate_rules::domain::{Domain, ListEntry};
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::RuleSet;

use crate::rules::ValidRules;

/// Domains with more rules than this are shortened.
const RULES_MANY: usize = 50;
const RULES_SHOWN: usize = 20;
/// Shown entries of lists and exempt descriptors.
const LISTED_SHOWN: usize = 8;
/// A longer path is on its own line.
const PATH_WIDTH_MAX: usize = 32;
/// Maximum width of a line.
const LINE_WIDTH_MAX: usize = 84;

/// Whether long lists are shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Some,
    All,
}

/// Numbers of domains, rules and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) domains: usize,
    pub(crate) rules: usize,
    pub(crate) limits: usize,
}

/// A table for each domain, and a legend.
pub(crate) fn summary(good: &ValidRules, detail: Detail) -> String {
    let mut out = String::new();
    for domain in &good.loaded.domains {
        out.push_str(&table(&good.set, domain, detail));
        out.push('\n');
    }
    for domain in &good.loaded.removed {
        out.push_str(&format!("domain {}: removed\n\n", plainly(domain)));
    }
    if good.set.rules().len() > 0 {
        out.push_str(
            "MB: memory of a million keys of a rule in the memory store, typical and maximum\n",
        );
    }
    out
}

/// "1 domain, 2 rules, 3 limits".
pub(crate) fn totals(good: &ValidRules) -> String {
    let Totals { domains, rules, limits } = Totals::of(good);
    let (domains, rules) = (counted(domains, "domain"), counted(rules, "rule"));
    format!("{domains}, {rules}, {}", counted(limits, "limit"))
}

fn table(set: &RuleSet, domain: &Domain, detail: Detail) -> String {
    let contents = contents(set, &domain.name);
    let all = contents.rules.len();
    let rules = match detail {
        Detail::Some if all > RULES_MANY => &contents.rules[..RULES_SHOWN],
        _ => contents.rules.as_slice(),
    };
    let mut rows: Vec<(String, Vec<String>)> = rules.iter().map(row).collect();
    if rules.len() < all {
        let more = format!("and {} more (`--all` shows them)", grouped((all - rules.len()) as u64));
        rows.push((more, Vec::new()));
    }
    let lists = [
        ("no limit", contents.exempt.iter().map(|path| plainly(path)).collect()),
        ("allow list", listed(&domain.allow)),
        ("deny list", listed(&domain.deny)),
        ("overrides", domain.overrides.iter().map(|one| plainly(&override_line(one))).collect()),
        ("forward auth", domain.forward_auth.as_ref().map_or_else(Vec::new, forward_auth)),
    ];
    for (name, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        rows.push((name.to_owned(), shortened(items, detail)));
    }
    let mut out = format!("domain {}: {}\n\n", plainly(&domain.name), counted(all, "rule"));
    let fits = |(left, right): &&(String, Vec<String>)| {
        left.chars().count() <= PATH_WIDTH_MAX && !right.is_empty()
    };
    let width = rows.iter().filter(fits).map(|(left, _)| left.chars().count()).max().unwrap_or(0);
    rows.iter().for_each(|(left, right)| push_row(&mut out, left, right, width));
    out
}

fn push_row(out: &mut String, left: &str, right: &[String], width: usize) {
    let mut left = left;
    if left.chars().count() > width {
        out.push_str(&format!("  {left}\n"));
        left = "";
    }
    for line in right {
        out.push_str(&format!("  {left:width$}  {line}\n"));
        left = "";
    }
}

/// Returns the path of a rule and its properties.
fn row(located: &LocatedRule<'_>) -> (String, Vec<String>) {
    let mut lines = limits(&located.rule().limits);
    lines.extend(timing(located.rule()));
    let mut more = match &located.rule().name {
        Some(name) => vec![format!("named `{name}`")],
        None => Vec::new(),
    };
    if !matches!(located.rule().limits, Limits::Unlimited) {
        more.extend(settings(located.rule()));
        let estimate = located.estimate();
        // The memory estimate is meaningful only next to the counters.
        more.push(match located.is_one_counter() || estimate.max == 0 {
            true => counters(located),
            false => format!("{} · {}", counters(located), memory(estimate)),
        });
    }
    lines.extend(joined(more));
    (plainly(&located.path()), lines.iter().map(|line| plainly(line)).collect())
}

/// Some remarks, as many on a line as fit.
fn joined(remarks: Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for remark in remarks {
        match lines.last_mut() {
            Some(line) if line.chars().count() + remark.chars().count() < LINE_WIDTH_MAX => {
                line.push_str(&format!(" · {remark}"));
            }
            _ => lines.push(remark),
        }
    }
    lines
}

fn listed(list: &[ListEntry]) -> Vec<String> {
    list.iter().map(|one| plainly(&one.to_string())).collect()
}

/// Describes forward-auth: one descriptor per line, and the trusted proxies.
fn forward_auth(auth: &ForwardAuth) -> Vec<String> {
    let (mut lines, remarks) = text::forward_auth(auth);
    lines.extend(joined(remarks));
    lines.iter().map(|line| plainly(line)).collect()
}

fn shortened(mut items: Vec<String>, detail: Detail) -> Vec<String> {
    let more = items.len().saturating_sub(LISTED_SHOWN);
    if detail == Detail::Some && more > 0 {
        items.truncate(LISTED_SHOWN);
        items.push(format!("and {} more (`--all` shows them)", grouped(more as u64)));
    }
    items
}

impl Totals {
    pub(crate) fn of(good: &ValidRules) -> Self {
        let each = good.set.rules().map(|no| limits(&good.set.rule(no).limits).len());
        Self { domains: good.set.domains().len(), rules: each.len(), limits: each.sum() }
    }
}
