//! Why a descriptor is under no rule, and what may have been meant.

use sluicegate_config::suggest::nearest;
use sluicegate_rules::domain::{Domain, Node, Pattern};
use sluicegate_rules::explain::{End, Explained, Look};
use sluicegate_rules::request::Entry;

use crate::rule::place::{way_of, written};

/// How much is told of what may follow.
const FOLLOWING_MAX: usize = 5;

/// The descriptors of the file that some looks led to.
pub(crate) fn followed<'a>(domain: &'a Domain, looks: &[Look<'_>]) -> Vec<&'a Node> {
    let mut level = domain.descriptors.as_slice();
    let mut way = Vec::new();
    for met in looks.iter().filter_map(|look| look.met.as_ref()) {
        let is_met = |node: &&Node| written(&node.key, &node.value) == met.node;
        let Some(node) = level.iter().find(is_met) else { break };
        way.push(node);
        level = &node.descriptors;
    }
    way
}

/// Why there is no rule, if there is none.
pub(crate) fn why_not(
    domain: Option<&Domain>,
    told: &Explained<'_>,
    entries: &[Entry<'_>],
) -> Option<String> {
    let domain = domain?;
    let way = followed(domain, &told.looks);
    let below =
        way.last().map_or(domain.descriptors.as_slice(), |node| node.descriptors.as_slice());
    let last = told.looks.iter().rev().find(|look| look.met.is_some()).map(|look| pair(look.entry));
    let last = last.unwrap_or_default();
    match told.end {
        End::Rule(_) | End::Override | End::UnknownDomain => None,
        End::NoEntries => Some("the descriptor has no entries".to_owned()),
        End::NoLimit => Some(format!(
            "{last} matched, but it has no limit of its own and the descriptor ends there{}",
            following(below)
        )),
        End::TooManyEntries => {
            let left = entries.get(told.looks.len()).copied().map(pair).unwrap_or_default();
            Some(format!(
                "{last} matched, but nothing is configured below it, and {left} is left over; a \
                 rule is for descriptors with just as many entries"
            ))
        }
        End::NoMatch => {
            let entry = told.looks.last()?.entry;
            let meant = meant(domain, below, entry);
            Some(format!("{} matched nothing {}{meant}", pair(entry), place(&way)))
        }
    }
}

fn place(way: &[&Node]) -> String {
    match way {
        [] => "at the top of the domain".to_owned(),
        way => format!("below `{}`", way_of(way)),
    }
}

fn pair(entry: Entry<'_>) -> String {
    format!("`{}={}`", entry.key, entry.value)
}

fn following(nodes: &[Node]) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let shown = nodes
        .iter()
        .take(FOLLOWING_MAX)
        .map(|node| format!("`{}`", written(&node.key, &node.value)));
    let shown: Vec<String> = shown.collect();
    let more = if nodes.len() > FOLLOWING_MAX { " and more" } else { "" };
    format!("; {}{more} could follow", shown.join(", "))
}

/// What may have been meant by an entry that matched nothing.
fn meant(domain: &Domain, level: &[Node], entry: Entry<'_>) -> String {
    let same_key = || level.iter().filter(|node| node.key == entry.key);
    if same_key().next().is_some() {
        let values = same_key().filter_map(|node| match &node.value {
            Pattern::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let near = nearest(entry.value, values);
        let near = near.map(|value| format!(": did you mean `{}={value}`?", entry.key));
        let near = near.unwrap_or_default();
        return format!("; `{}` is configured there, but not for this value{near}", entry.key);
    }
    if let Some(key) = nearest(entry.key, level.iter().map(|node| node.key.as_str())) {
        return format!("; no key there is `{}`: did you mean `{key}`?", entry.key);
    }
    match way_to_key(&domain.descriptors, entry.key, &mut Vec::new()) {
        Some(way) => format!(
            "; `{}` is configured at `{way}`: entries are matched one after the other, from the top",
            entry.key
        ),
        None => format!("; no key there is `{}`", entry.key),
    }
}

/// Where else a key stands.
fn way_to_key<'a>(nodes: &'a [Node], key: &str, way: &mut Vec<&'a Node>) -> Option<String> {
    for node in nodes {
        way.push(node);
        if node.key == key {
            return Some(way_of(way));
        }
        if let Some(found) = way_to_key(&node.descriptors, key, way) {
            return Some(found);
        }
        way.pop();
    }
    None
}

/// What may have been meant by a domain that nobody knows.
pub(crate) fn unknown_domain<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    if let Some(near) = nearest(name, known.clone()) {
        return format!("no domain is called `{name}`: did you mean `{near}`?");
    }
    let mut shown: Vec<String> =
        known.clone().take(FOLLOWING_MAX).map(|name| format!("`{name}`")).collect();
    if known.count() > FOLLOWING_MAX {
        shown.push("others".to_owned());
    }
    match shown.is_empty() {
        true => format!("no domain is called `{name}`, and there is no other either"),
        false => format!("no domain is called `{name}`; there are rules for {}", shown.join(", ")),
    }
}
