//! Hints for descriptors that no rule matches.

use sluicegate_config::suggest::nearest;
use sluicegate_rules::explain::{DescriptorTrace, TraceEnd};
use sluicegate_rules::request::{Entry, Request};
use sluicegate_rules::set::{Configured, DomainNo, MatchPath, RuleSet};

use super::rule::path_of;

/// Maximum number of candidates listed in a hint.
const FOLLOWING_MAX: usize = 5;
/// Maximum number of candidates compared for a similar name, to bound the time.
const COMPARED_MAX: usize = 10_000;
/// The same for [`similar_key`].
const SIMILAR_MAX: usize = 100;

/// Explains why no rule matches; `None` if that needs no hint.
pub(crate) fn why_not(
    set: &RuleSet,
    domain: DomainNo,
    trace: &DescriptorTrace<'_>,
    entries: &[Entry<'_>],
) -> Option<String> {
    match trace.end {
        TraceEnd::Rule(_) | TraceEnd::Override | TraceEnd::UnknownDomain => return None,
        TraceEnd::NoEntries => return Some("the descriptor has no entries".to_owned()),
        TraceEnd::NoMatch | TraceEnd::NoLimit | TraceEnd::TooManyEntries => {}
    }
    let mut path = MatchPath::default();
    set.find_in(domain, entries, &mut path);
    let path: Vec<Configured<'_>> = set.followed(&path).collect();
    let matched = path.len().checked_sub(1).and_then(|last| entries.get(last));
    let matched = matched.copied().map(pair).unwrap_or_default();
    let next = entries.get(path.len()).copied();
    Some(match next {
        None => format!(
            "{matched} matched, but it has no limit of its own and the descriptor ends there{}",
            following(&below(set, domain, &path, COMPARED_MAX))
        ),
        Some(left) if trace.end == TraceEnd::TooManyEntries => format!(
            "{matched} matched, but nothing is configured below it, and {} is left over; a rule is \
             for descriptors with just as many entries",
            pair(left)
        ),
        Some(entry) => {
            let meant = meant(set, domain, &below(set, domain, &path, COMPARED_MAX), entry);
            format!("{} matched nothing {}{meant}", pair(entry), location(&path))
        }
    })
}

/// A configured key that is similar to the first one of a descriptor that matches nothing. Few
/// candidates are compared, since a client can cause it again and again.
///
/// ```
/// use sluicegate::explain::similar_key;
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::rules_of;
///
/// let rules = rules_of(
///     "
/// domain: shop
/// descriptors: [{ key: user, limits: { name: daily, algorithm: fixed_window, rate: 9/day } }]
/// ",
/// )?;
/// let entries = [Entry::new("usr", "42")];
/// let descriptors = [Descriptor::of(&entries)];
/// let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
/// assert_eq!(similar_key(&rules, &request, 0), Some("user"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn similar_key<'a>(
    set: &'a RuleSet,
    request: &Request<'_>,
    descriptor: usize,
) -> Option<&'a str> {
    let domain = set.domain(request.domain)?;
    let entries = request.descriptors.get(descriptor)?.entries;
    let mut path = MatchPath::default();
    set.find_in(domain, entries, &mut path);
    let path: Vec<Configured<'_>> = set.followed(&path).collect();
    let key = entries.get(path.len())?.key;
    let level = below(set, domain, &path, SIMILAR_MAX);
    nearest(key, level.iter().map(Configured::key)).filter(|near| *near != key)
}

/// Descriptors configured directly below `path`.
fn below<'a>(
    set: &'a RuleSet,
    domain: DomainNo,
    path: &[Configured<'a>],
    max: usize,
) -> Vec<Configured<'a>> {
    match path.last() {
        Some(last) => last.below().take(max).collect(),
        None => set.top(domain).take(max).collect(),
    }
}

fn location(path: &[Configured<'_>]) -> String {
    match path {
        [] => "at the top of the domain".to_owned(),
        path => format!("below `{}`", path_of(path)),
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

/// Suggests a correction for an entry that matched nothing.
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
    match path_to_key(set.top(domain).collect(), entry.key, &mut Vec::new()) {
        Some(path) => format!(
            "; `{}` is configured at `{path}`: entries are matched one after the other, from the top",
            entry.key
        ),
        None => format!("; no key there is `{}`", entry.key),
    }
}

/// Path of the first descriptor with this key.
fn path_to_key<'a>(
    level: Vec<Configured<'a>>,
    key: &str,
    path: &mut Vec<Configured<'a>>,
) -> Option<String> {
    for one in level {
        path.push(one);
        if one.key() == key {
            return Some(path_of(path));
        }
        if let Some(found) = path_to_key(one.below().collect(), key, path) {
            return Some(found);
        }
        path.pop();
    }
    None
}

/// Suggests a correction for an unknown domain.
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
