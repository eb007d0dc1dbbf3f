//! Descriptors of `forward_auth` that no rule is for: probably a key is misspelt.

use std::collections::BTreeSet;

use sluicegate_rules::domain::Node;
use sluicegate_rules::mapping::Part;

use super::domains::Gathered;
use crate::problem::{Report, quoted};
use crate::suggest;

/// The most nodes that are looked at.
const WORK_MAX: usize = 5_000_000;
/// The most keys that a message lists.
const KEYS_SHOWN: usize = 8;

/// Warns of descriptors under which nothing can ever be limited.
pub(super) fn check(gathered: &Gathered, reports: &mut [Report]) {
    // What could not be read is not missing, and without rules there is something else to say.
    let read = reports.iter().all(|report| report.count() == 0);
    let Some(written) = gathered.forward_auth.as_ref().filter(|_| read && gathered.has_rules())
    else {
        return;
    };
    let mut work_left = WORK_MAX;
    for (entries, (at, path)) in written.auth.mapping.descriptors.iter().zip(&written.descriptors) {
        let is_listed = |(key, _): &(Box<str>, Part)| {
            let mut lists = gathered.allow.iter().chain(&gathered.deny);
            lists.any(|entry| *entry.listed.key == **key)
        };
        if entries.iter().any(is_listed) {
            continue;
        }
        let nodes = &gathered.domain.descriptors;
        let Some(message) = leads_nowhere(entries, nodes, &mut work_left) else { continue };
        if let Some(report) = reports.get_mut(written.source) {
            report.warn(*at, path, message);
        }
    }
}

/// What is wrong with a descriptor, if no rule is for it.
fn leads_nowhere(
    entries: &[(Box<str>, Part)],
    nodes: &[Node],
    work_left: &mut usize,
) -> Option<String> {
    let mut level: Vec<&Node> = nodes.iter().collect();
    for (place, (key, _)) in entries.iter().enumerate() {
        *work_left = work_left.checked_sub(level.len())?;
        let found: Vec<&Node> = level.iter().copied().filter(|node| *node.key == **key).collect();
        if found.is_empty() {
            let keys: BTreeSet<&str> = level.iter().map(|node| &*node.key).collect();
            return Some(no_such_key(key, place, &keys));
        }
        if place + 1 == entries.len() {
            let some = found.iter().any(|node| node.rule.is_some());
            return (!some).then(|| goes_on(key, &found));
        }
        level = found.into_iter().flat_map(|node| &node.descriptors).collect();
    }
    None
}

fn no_such_key(key: &str, place: usize, keys: &BTreeSet<&str>) -> String {
    let got = quoted(key);
    let hint = suggest::hint(key, keys.iter().copied());
    let shown: Vec<&str> = keys.iter().copied().take(KEYS_SHOWN).collect();
    let there = match (place, shown.as_slice()) {
        (_, []) => "leave it out, no rule goes on here".to_owned(),
        (0, shown) => format!("rules begin with {}", suggest::one_of(shown)),
        (_, shown) => format!("there rules go on with {}", suggest::one_of(shown)),
    };
    format!("has no effect, no rule is for {got} here; {hint}{there}")
}

fn goes_on(key: &str, found: &[&Node]) -> String {
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
