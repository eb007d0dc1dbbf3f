//! Why a descriptor is under no rule, and what may have been meant.

use sluicegate_config::suggest::nearest;
use sluicegate_rules::explain::{DescriptorTrace, TraceEnd};
use sluicegate_rules::request::Entry;
use sluicegate_rules::set::{Configured, DomainNo, MatchPath, RuleSet};

use super::rule::way_of;

/// How much is told of what may follow.
const FOLLOWING_MAX: usize = 5;
/// Among how many a similar one is looked for: comparing takes its time, and a running engine has other things to do.
const COMPARED_MAX: usize = 10_000;

/// Why there is no rule, if there is none.
pub(crate) fn why_not(
    set: &RuleSet,
    domain: DomainNo,
    told: &DescriptorTrace<'_>,
    entries: &[Entry<'_>],
) -> Option<String> {
    match told.end {
        TraceEnd::Rule(_) | TraceEnd::Override | TraceEnd::UnknownDomain => return None,
        TraceEnd::NoEntries => return Some("the descriptor has no entries".to_owned()),
        TraceEnd::NoMatch | TraceEnd::NoLimit | TraceEnd::TooManyEntries => {}
    }
    let mut way = MatchPath::default();
    set.find_in(domain, entries, &mut way);
    let way: Vec<Configured<'_>> = set.followed(&way).collect();
    let matched = way.len().checked_sub(1).and_then(|last| entries.get(last));
    let matched = matched.copied().map(pair).unwrap_or_default();
    let next = entries.get(way.len()).copied();
    Some(match next {
        None => format!(
            "{matched} matched, but it has no limit of its own and the descriptor ends there{}",
            following(&below(set, domain, &way))
        ),
        Some(left) if told.end == TraceEnd::TooManyEntries => format!(
            "{matched} matched, but nothing is configured below it, and {} is left over; a rule is \
             for descriptors with just as many entries",
            pair(left)
        ),
        Some(entry) => {
            let meant = meant(set, domain, &below(set, domain, &way), entry);
            format!("{} matched nothing {}{meant}", pair(entry), place(&way))
        }
    })
}

/// What may come next.
fn below<'a>(set: &'a RuleSet, domain: DomainNo, way: &[Configured<'a>]) -> Vec<Configured<'a>> {
    match way.last() {
        Some(last) => last.below().take(COMPARED_MAX).collect(),
        None => set.top(domain).take(COMPARED_MAX).collect(),
    }
}

fn place(way: &[Configured<'_>]) -> String {
    match way {
        [] => "at the top of the domain".to_owned(),
        way => format!("below `{}`", way_of(way)),
    }
}

fn pair(entry: Entry<'_>) -> String {
    format!("`{}={}`", entry.key, entry.value)
}

fn following(level: &[Configured<'_>]) -> String {
    if level.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        level.iter().take(FOLLOWING_MAX).map(|one| format!("`{one}`")).collect();
    let more = if level.len() > FOLLOWING_MAX { " and more" } else { "" };
    format!("; {}{more} could follow", shown.join(", "))
}

/// What may have been meant by an entry that matched nothing.
fn meant(set: &RuleSet, domain: DomainNo, level: &[Configured<'_>], entry: Entry<'_>) -> String {
    let same_key = || level.iter().filter(|one| one.key() == entry.key);
    if same_key().next().is_some() {
        let values = same_key().filter(|one| one.is_text()).filter_map(Configured::value);
        let near = nearest(entry.value, values);
        let near = near.map(|value| format!(": did you mean `{}={value}`?", entry.key));
        let near = near.unwrap_or_default();
        return format!("; `{}` is configured there, but not for this value{near}", entry.key);
    }
    if let Some(key) = nearest(entry.key, level.iter().map(Configured::key)) {
        return format!("; no key there is `{}`: did you mean `{key}`?", entry.key);
    }
    match way_to_key(set.top(domain).collect(), entry.key, &mut Vec::new()) {
        Some(way) => format!(
            "; `{}` is configured at `{way}`: entries are matched one after the other, from the top",
            entry.key
        ),
        None => format!("; no key there is `{}`", entry.key),
    }
}

/// Where else a key stands.
fn way_to_key<'a>(
    level: Vec<Configured<'a>>,
    key: &str,
    way: &mut Vec<Configured<'a>>,
) -> Option<String> {
    for one in level {
        way.push(one);
        if one.key() == key {
            return Some(way_of(way));
        }
        if let Some(found) = way_to_key(one.below().collect(), key, way) {
            return Some(found);
        }
        way.pop();
    }
    None
}

/// What may have been meant by a domain that nobody knows.
pub(crate) fn unknown_domain(set: &RuleSet, name: &str) -> String {
    let known = || set.domains();
    if let Some(near) = nearest(name, known().take(COMPARED_MAX)) {
        return format!("no domain is called `{name}`: did you mean `{near}`?");
    }
    let mut shown: Vec<String> =
        known().take(FOLLOWING_MAX).map(|name| format!("`{name}`")).collect();
    if known().len() > FOLLOWING_MAX {
        shown.push("others".to_owned());
    }
    match shown.is_empty() {
        true => format!("no domain is called `{name}`, and there is no other either"),
        false => format!("no domain is called `{name}`; there are rules for {}", shown.join(", ")),
    }
}
