//! Warnings about rules without effect.

use std::collections::{BTreeSet, HashMap};

use sluicegate_core::mode::Mode;
use sluicegate_rules::domain::DescriptorConfig;
use sluicegate_rules::mapping::Part;
use sluicegate_rules::rule::{Limits, OnStoreFailure, RuleConfig};

use super::descriptor::Origin;
use super::domains::DomainSource;
use super::file::PositionedEntry;
use super::glob::covers;
use crate::problem::{Position, Report, quoted};
use crate::suggest;

/// Warns of rules without effect in a domain.
pub(super) fn check(gathered: &DomainSource, reports: &mut [Report]) {
    let listed = !gathered.allow.is_empty() || !gathered.deny.is_empty();
    // Unreadable rules are not missing.
    let read = reports.iter().all(|report| report.count() == 0);
    if read && !listed && !gathered.removed && !gathered.has_rules() {
        let message = "has no rules, so nothing in it is limited (a running service enforces the last \
                       ones during its removal grace period); add `descriptors` with limits, or only \
                       `removed: true` to remove the domain";
        if let Some(report) = reports.get_mut(gathered.source) {
            report.warn(gathered.at, "domain", message.to_owned());
        }
    }
    if listed {
        let mut lists = Lists::new(gathered, reports);
        lists.allowed(&gathered.allow);
        lists.nodes(&gathered.domain.descriptors, &gathered.origins, "");
    }
    unmatched_descriptors(gathered, reports);
    mixed_failure_policies(gathered, reports);
}

/// Maximum number of entries that rules are compared with.
const WORK_MAX: usize = 5_000_000;

struct Lists<'a, 'r> {
    deny: HashMap<&'a str, Vec<&'a PositionedEntry>>,
    allow: HashMap<&'a str, Vec<&'a PositionedEntry>>,
    reports: &'r mut [Report],
    work_left: usize,
}

impl<'a, 'r> Lists<'a, 'r> {
    fn new(gathered: &'a DomainSource, reports: &'r mut [Report]) -> Self {
        let (deny, allow) = (by_key(&gathered.deny), by_key(&gathered.allow));
        Self { deny, allow, reports, work_left: WORK_MAX }
    }

    /// Entries of `allow` that `deny` covers.
    fn allowed(&mut self, allow: &'a [PositionedEntry]) {
        for entry in allow {
            let denied = self.deny.get(&*entry.listed.key).into_iter().flatten();
            let mut denied = denied.take(self.work_left);
            let found = denied.find(|deny| covers(&deny.listed.value, &entry.listed.value));
            let compared = self.deny.get(&*entry.listed.key).map_or(0, Vec::len);
            self.work_left = self.work_left.saturating_sub(compared);
            let Some(deny) = found.copied() else { continue };
            let location = self.location_of(deny, entry.source);
            let message = format!(
                "has no effect, {location} covers it, and `deny` wins over `allow`; remove one of \
                 them"
            );
            if let Some(report) = self.reports.get_mut(entry.source) {
                report.warn(entry.at, &entry.path, message);
            }
        }
    }

    /// Rules that a list covers.
    fn nodes(&mut self, nodes: &'a [DescriptorConfig], origins: &'a [Origin], above: &str) {
        for (node, origin) in nodes.iter().zip(origins) {
            let path = || format!("{above}descriptors[{}]", origin.index);
            let (denied, allowed) = (
                listed(&self.deny, node, self.work_left),
                listed(&self.allow, node, self.work_left),
            );
            let compared = |lists: &HashMap<&str, Vec<&PositionedEntry>>| {
                lists.get(&*node.key).map_or(0, Vec::len)
            };
            let work = compared(&self.deny).saturating_add(compared(&self.allow));
            self.work_left = self.work_left.saturating_sub(work);
            let message = match (denied, allowed) {
                (Some(entry), _) => {
                    let location = self.location_of(entry, origin.source);
                    format!(
                        "has no effect, {location} denies all that it matches; remove one of them"
                    )
                }
                (None, Some(entry)) => {
                    let location = self.location_of(entry, origin.source);
                    format!(
                        "has no effect, {location} lets all that it matches pass uncounted; remove \
                         one of them"
                    )
                }
                (None, None) => {
                    if !node.descriptors.is_empty() {
                        let above = format!("{}.", path());
                        self.nodes(&node.descriptors, &origin.below, &above);
                    }
                    continue;
                }
            };
            if let Some(report) = self.reports.get_mut(origin.source) {
                report.warn(origin.at, path(), message);
            }
        }
    }

    fn location_of(&self, entry: &PositionedEntry, source: usize) -> String {
        location(&entry.path, entry.source, entry.at, (source, self.reports))
    }
}

/// A place in a file, for a message about a source.
fn location(
    path: &str,
    source: usize,
    at: Position,
    (read_in, reports): (usize, &[Report]),
) -> String {
    let line = at.line;
    match reports.get(source) {
        Some(report) if source != read_in => {
            format!("`{path}` in {} on line {line}", quoted(report.source()))
        }
        _ => format!("`{path}` on line {line}"),
    }
}

fn by_key(entries: &[PositionedEntry]) -> HashMap<&str, Vec<&PositionedEntry>> {
    let mut lists: HashMap<&str, Vec<&PositionedEntry>> = HashMap::new();
    for entry in entries {
        lists.entry(&entry.listed.key).or_default().push(entry);
    }
    lists
}

/// The entry that covers a node.
fn listed<'a>(
    lists: &HashMap<&str, Vec<&'a PositionedEntry>>,
    node: &DescriptorConfig,
    limit: usize,
) -> Option<&'a PositionedEntry> {
    let mut entries = lists.get(&*node.key)?.iter().take(limit);
    entries.find(|entry| covers(&entry.listed.value, &node.value)).copied()
}

/// Maximum number of visited nodes.
pub(crate) const NODES_VISITED_MAX: usize = 5_000_000;
/// Maximum number of keys that a message lists.
const KEYS_SHOWN: usize = 8;

/// Warns of `forward_auth` descriptors that no rule is for: probably a key is misspelt.
fn unmatched_descriptors(gathered: &DomainSource, reports: &mut [Report]) {
    // Unreadable rules are not missing, and a domain without rules has its own warning.
    let read = reports.iter().all(|report| report.count() == 0);
    let Some(written) = gathered.forward_auth.as_ref().filter(|_| read && gathered.has_rules())
    else {
        return;
    };
    let mut work_left = NODES_VISITED_MAX;
    for (one, (at, path)) in written.auth.mapping.descriptors.iter().zip(&written.descriptors) {
        let entries = &one.entries;
        let is_listed = |(key, _): &(Box<str>, Part)| {
            let mut lists = gathered.allow.iter().chain(&gathered.deny);
            lists.any(|entry| *entry.listed.key == **key)
        };
        if entries.iter().any(is_listed) {
            continue;
        }
        let nodes = &gathered.domain.descriptors;
        let Some(message) = unmatched_entry(entries, nodes, &mut work_left) else { continue };
        if let Some(report) = reports.get_mut(written.source) {
            report.warn(*at, path, message);
        }
    }
}

/// The warning for a descriptor that no rule is for.
pub(crate) fn unmatched_entry(
    entries: &[(Box<str>, Part)],
    nodes: &[DescriptorConfig],
    work_left: &mut usize,
) -> Option<String> {
    let mut level: Vec<&DescriptorConfig> = nodes.iter().collect();
    for (origin, (key, _)) in entries.iter().enumerate() {
        *work_left = work_left.checked_sub(level.len())?;
        let found: Vec<&DescriptorConfig> =
            level.iter().copied().filter(|node| *node.key == **key).collect();
        if found.is_empty() {
            let keys: BTreeSet<&str> = level.iter().map(|node| &*node.key).collect();
            return Some(no_such_key(key, origin, &keys));
        }
        if origin + 1 == entries.len() {
            let some = found.iter().any(|node| node.rule.is_some());
            return (!some).then(|| goes_on(key, &found));
        }
        level = found.into_iter().flat_map(|node| &node.descriptors).collect();
    }
    None
}

fn no_such_key(key: &str, origin: usize, keys: &BTreeSet<&str>) -> String {
    let got = quoted(key);
    let hint = suggest::hint(key, keys.iter().copied());
    let shown: Vec<&str> = keys.iter().copied().take(KEYS_SHOWN).collect();
    let continuation = match (origin, shown.as_slice()) {
        (_, []) => "leave it out, no rule goes on here".to_owned(),
        (0, shown) => format!("rules begin with {}", suggest::one_of(shown)),
        (_, shown) => format!("there rules go on with {}", suggest::one_of(shown)),
    };
    format!("has no effect, no rule is for {got} here; {hint}{continuation}")
}

fn goes_on(key: &str, found: &[&DescriptorConfig]) -> String {
    let next: BTreeSet<&str> =
        found.iter().flat_map(|node| &node.descriptors).map(|node| &*node.key).collect();
    let shown: Vec<&str> = next.into_iter().take(KEYS_SHOWN).collect();
    let got = quoted(key);
    match shown.as_slice() {
        [] => format!(
            "has no effect, the rules have no limit at {got}; add `limits` there, or remove this"
        ),
        shown => format!(
            "has no effect, the rules have no limit at {got} alone; go on with {}",
            suggest::one_of(shown)
        ),
    }
}

/// A rule, and where its failure policy is written.
struct PolicyOrigin<'a> {
    rule: &'a RuleConfig,
    path: String,
    source: usize,
    at: Position,
}

/// Warns of a failure policy beside rules with `error`: a request that matches both is an error.
fn mixed_failure_policies(gathered: &DomainSource, reports: &mut [Report]) {
    let mut first = FirstPolicies::default();
    first.find(&gathered.domain.descriptors, &gathered.origins, "");
    let FirstPolicies { explicit: Some(explicit), failing: Some(failing) } = first else { return };
    let policy = explicit.rule.on_store_failure.name();
    let PolicyOrigin { rule, path, source, at } = failing;
    let other = location(&path, source, at, (explicit.source, reports));
    let by_default = match rule.limits {
        Limits::Envoy { .. } => ", the default of `rate_limit`",
        _ => "",
    };
    let message = format!(
        "is not `error`, got `{policy}`, but that of {other} is{by_default}: while the store does not \
         answer, a request that matches both rules gets an error unless a rule denies it; write one \
         policy in all rules of the domain"
    );
    if let Some(report) = reports.get_mut(explicit.source) {
        report.warn(explicit.at, format!("{}.on_store_failure", explicit.path), message);
    }
}

/// The first rule of a domain with an explicit policy other than `error`, and the first with
/// `error`.
#[derive(Default)]
struct FirstPolicies<'a> {
    explicit: Option<PolicyOrigin<'a>>,
    failing: Option<PolicyOrigin<'a>>,
}

impl<'a> FirstPolicies<'a> {
    fn find(&mut self, nodes: &'a [DescriptorConfig], origins: &'a [Origin], above: &str) {
        for (node, origin) in nodes.iter().zip(origins) {
            if self.explicit.is_some() && self.failing.is_some() {
                return;
            }
            let path = || format!("{above}descriptors[{}]", origin.index);
            // The others decide nothing.
            let decides =
                |rule: &&RuleConfig| rule.limits != Limits::Unlimited && rule.mode != Mode::Shadow;
            if let Some(rule) = node.rule.as_ref().filter(decides) {
                let written = origin.names.as_ref().and_then(|names| names.on_store_failure);
                let first = match (rule.on_store_failure, written) {
                    (OnStoreFailure::Error, _) => Some(&mut self.failing),
                    (_, Some(_)) => Some(&mut self.explicit),
                    (_, None) => None,
                };
                if let Some(first @ None) = first {
                    let (source, at) = (origin.source, written.unwrap_or(origin.at));
                    *first = Some(PolicyOrigin { rule, path: path(), source, at });
                }
            }
            if !node.descriptors.is_empty() {
                self.find(&node.descriptors, &origin.below, &format!("{}.", path()));
            }
        }
    }
}
