//! Conflicts between descriptors of one level: duplicates, and patterns that can never match.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet, hash_map};
use std::fmt::{self, Display};

use sluicegate_core::limit::Limit;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::domain::{DescriptorConfig, Joint, Pattern};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::network::Network;
use sluicegate_rules::rule::Limits;

use super::descriptor::Origin;
use super::domains::DomainSource;
use super::file::PositionedEntry;
use super::glob;
use super::keys::Form;
use crate::problem::{Position, Report, quoted, shortened};
use crate::suggest;
use crate::units::show_span;

/// Reports the conflicts of a domain.
pub(super) fn check(gathered: &DomainSource, reports: &mut [Report]) {
    let mut check = Check {
        joint: gathered.domain.joint,
        form: gathered.form,
        reports,
        work_left: WORK_MAX,
        names: HashSet::new(),
        ids: HashMap::new(),
        replaces: Vec::new(),
        has_envoy_form: false,
        slots: Vec::new(),
    };
    let domain = NodePath::Domain(&gathered.domain.name);
    check.level(&gathered.domain.descriptors, &gathered.origins, &domain);
    check.targets();
    check.warn_slots();
    check.lists(&gathered.allow);
    check.lists(&gathered.deny);
}

/// Approximate maximum number of character comparisons to find patterns that can never match.
const WORK_MAX: usize = 20_000_000;

/// The maximum number of names compared to suggest one.
const NAMES_COMPARED_MAX: usize = 100;

struct Check<'a, 'r> {
    joint: Joint,
    form: Form,
    reports: &'r mut [Report],
    work_left: usize,
    /// The names of rules.
    names: HashSet<&'a str>,
    /// The rules with an id.
    ids: HashMap<&'a str, (usize, Position)>,
    /// The names in `replaces`, with source, position and path.
    replaces: Vec<(&'a str, usize, Position, String)>,
    /// Whether a rule is in Envoy's form.
    has_envoy_form: bool,
    /// Rules with a concurrency limit, with source, position, path and lease.
    slots: Vec<(usize, Position, String, Span)>,
}

/// The path to a level.
enum NodePath<'w> {
    Domain(&'w str),
    Below(&'w Self, &'w DescriptorConfig, &'w Origin),
}

/// What must be unique on a level.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'a> {
    /// Key and value as one text.
    Joined(Cow<'a, str>),
    Any(&'a str),
    Text(&'a str, &'a str),
    Regex(&'a str, &'a str),
    Network(&'a str, Network),
}

impl<'a> Check<'a, '_> {
    fn level(&mut self, nodes: &'a [DescriptorConfig], origins: &'a [Origin], path: &NodePath<'_>) {
        self.duplicates(nodes, origins, path);
        self.covered(nodes, origins, path);
        for (node, origin) in nodes.iter().zip(origins) {
            self.name(node, origin, path);
            self.gather_slots(node, origin, path);
            self.check_key_star(node, origin, path);
            if !node.descriptors.is_empty() {
                let below = NodePath::Below(path, node, origin);
                self.level(&node.descriptors, &origin.below, &below);
            }
        }
    }

    fn duplicates(
        &mut self,
        nodes: &'a [DescriptorConfig],
        origins: &'a [Origin],
        path: &NodePath<'_>,
    ) {
        let alone = nodes.len() < 2
            && !matches!(nodes, [DescriptorConfig { value: Pattern::Networks(_), .. }]);
        if alone {
            return;
        }
        let mut firsts: HashMap<Identity<'a>, &'a Origin> = HashMap::with_capacity(nodes.len());
        for (node, origin) in nodes.iter().zip(origins) {
            identities(&node.key, &node.value, self.joint, |identity| {
                match firsts.entry(identity) {
                    hash_map::Entry::Vacant(vacant) => {
                        vacant.insert(origin);
                    }
                    hash_map::Entry::Occupied(first) => {
                        self.duplicate(node, origin, first.get(), first.key(), path);
                    }
                }
            });
        }
    }

    fn duplicate(
        &mut self,
        node: &DescriptorConfig,
        origin: &Origin,
        first: &Origin,
        identity: &Identity<'_>,
        path: &NodePath<'_>,
    ) {
        let message = if let Identity::Network(_, network) = identity {
            let location = self.location_of(first, origin);
            format!(
                "the network `{network}` is matched twice, first {location}; remove one of them"
            )
        } else {
            let composite = shortened(&path.composite(node));
            let location = self.location_of(first, origin);
            format!(
                "duplicate descriptor composite key '{composite}', the first is {location}; remove \
                 one of them, or give them different values"
            )
        };
        let path = path.path(origin);
        if let Some(report) = self.reports.get_mut(origin.source) {
            report.add(origin.at, path, message);
        }
    }

    /// The line of another origin, and its file if that is another.
    fn location_of(&self, other: &Origin, this: &Origin) -> String {
        let line = other.at.line;
        match self.reports.get(other.source) {
            Some(report) if other.source != this.source => {
                format!("in {} on line {line}", quoted(report.source()))
            }
            _ => format!("on line {line}"),
        }
    }

    /// Reports duplicate list entries.
    fn lists(&mut self, entries: &'a [PositionedEntry]) {
        let mut firsts: HashMap<Identity<'a>, &'a PositionedEntry> =
            HashMap::with_capacity(entries.len());
        for entry in entries {
            let listed = &entry.listed;
            identities(&listed.key, &listed.value, Joint::Apart, |identity| {
                let first = *firsts.entry(identity).or_insert(entry);
                if std::ptr::eq(first, entry) {
                    return;
                }
                let line = first.at.line;
                let file = self.reports.get(first.source).map(|report| quoted(report.source()));
                let file = file.filter(|_| first.source != entry.source);
                let file = file.map_or_else(String::new, |file| format!(" of {file}"));
                let message =
                    format!("is listed twice, first on line {line}{file}; remove one of them");
                if let Some(report) = self.reports.get_mut(entry.source) {
                    report.add(entry.at, &entry.path, message);
                }
            });
        }
    }

    /// A native domain compares keys literally, also in its files of Envoy's form.
    fn check_key_star(&mut self, node: &DescriptorConfig, origin: &Origin, path: &NodePath<'_>) {
        if self.joint == Joint::Joined || !node.key.contains('*') {
            return;
        }
        let got = quoted(&node.key);
        let message = format!(
            "must not contain `*` in a domain with keys of our own form, got {got}; write the `*` in \
             `value`"
        );
        let path = format!("{}.key", path.path(origin));
        if let Some(report) = self.reports.get_mut(origin.source) {
            report.add(origin.at, path, message);
        }
    }

    // === slots ===

    fn gather_slots(&mut self, node: &DescriptorConfig, origin: &Origin, path: &NodePath<'_>) {
        match node.rule.as_ref().map(|rule| &rule.limits) {
            Some(Limits::Envoy { .. }) => self.has_envoy_form = true,
            Some(Limits::Native(limits)) => {
                let lease = |limit: &LimitConfig| match limit.at(Timestamp::EPOCH) {
                    Limit::Concurrency(slots) => Some(slots.lease()),
                    _ => None,
                };
                if let Some(lease) = limits.iter().find_map(lease) {
                    self.slots.push((origin.source, origin.at, path.path(origin), lease));
                }
            }
            Some(Limits::Unlimited) | None => {}
        }
    }

    /// Warns of concurrency limits in a domain with rules in Envoy's form: its protocol has no
    /// message that releases a slot.
    fn warn_slots(&mut self) {
        for (source, at, path, lease) in std::mem::take(&mut self.slots) {
            let Some(report) = self.reports.get_mut(source).filter(|_| self.has_envoy_form) else {
                continue;
            };
            let lease = show_span(lease);
            let message = format!(
                "has a concurrency limit, and Envoy's protocol releases no slot: each request from Envoy \
                 holds one for the whole lease, `{lease}`; use a rate limit for Envoy, or a domain of its \
                 own for clients over HTTP or RESP"
            );
            report.warn(at, path, message);
        }
    }

    // === names ===

    fn name(&mut self, node: &'a DescriptorConfig, origin: &'a Origin, path: &NodePath<'_>) {
        let Some(rule) = &node.rule else { return };
        if let Some(name) = rule.name.as_deref() {
            self.names.insert(name);
        }
        let Some(names) = &origin.names else { return };
        for (name, at) in rule.replaces().iter().zip(&names.replaces) {
            let path = format!("{}.replaces", path.path(origin));
            self.replaces.push((name, origin.source, *at, path));
        }
        let (Some(at), Some(id)) = (names.id, rule.name.as_deref()) else { return };
        match self.ids.entry(id) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert((origin.source, at));
            }
            hash_map::Entry::Occupied(first) => {
                let (source, line) = (first.get().0, first.get().1.line);
                let file = self.reports.get(source).map(|report| quoted(report.source()));
                let file = file.filter(|_| source != origin.source);
                let file = file.map_or_else(String::new, |file| format!(" of {file}"));
                let got = quoted(id);
                let message = format!(
                    "must differ from the id on line {line}{file}, got {got}; rules are told apart by \
                     it, choose another"
                );
                let path = format!("{}.id", path.path(origin));
                if let Some(report) = self.reports.get_mut(origin.source) {
                    report.add(at, path, message);
                }
            }
        }
    }

    /// Reports names in `replaces` that no rule has.
    fn targets(&mut self) {
        for (name, source, at, path) in std::mem::take(&mut self.replaces) {
            if self.names.contains(name) {
                continue;
            }
            let Some(report) = self.reports.get_mut(source) else { continue };
            let full = match self.form {
                Form::Envoy => report.is_full_of_warnings(),
                Form::Native => report.is_full(),
            };
            if full {
                continue;
            }
            let hint = suggest::hint(name, self.names.iter().copied().take(NAMES_COMPARED_MAX));
            let got = quoted(name);
            let message = format!(
                "no rule of this domain is called so, got {got}; {hint}name one that exists, or \
                 remove it"
            );
            match self.form {
                Form::Envoy => report.warn(at, path, message),
                Form::Native => {
                    report.add(at, path, message);
                }
            }
        }
    }
}

// === patterns that can never match ===

impl<'a> Check<'a, '_> {
    /// Warns of patterns that an earlier one shadows. Such a one has a literal prefix of this
    /// one's, so only those are compared.
    fn covered(
        &mut self,
        nodes: &'a [DescriptorConfig],
        origins: &'a [Origin],
        path: &NodePath<'_>,
    ) {
        if nodes.len() < 2 {
            return;
        }
        let globs: Vec<(String, &'a Origin)> = nodes
            .iter()
            .zip(origins)
            .filter_map(|(node, origin)| Some((self.glob(node)?, origin)))
            .collect();
        if globs.is_empty() {
            return;
        }
        let mut earlier = PrefixIndex::default();
        for (text, origin) in &globs {
            if let Some(first) = self.covering(text, &earlier) {
                self.never(origin, first, path);
            }
            earlier.add(text, origin);
        }
        // Any value comes last, wherever it is written.
        for (node, origin) in nodes.iter().zip(origins).filter(|(node, _)| is_default(node)) {
            let text = self.text(&node.key, "*");
            if let Some(first) = self.covering(&text, &earlier) {
                self.never(origin, first, path);
            }
        }
    }

    /// The pattern of a node with a `*`, as one text.
    fn glob(&self, node: &DescriptorConfig) -> Option<String> {
        match &node.value {
            Pattern::Text(value) if value.contains('*') => Some(self.text(&node.key, value)),
            Pattern::Text(value) if self.joint == Joint::Joined && node.key.contains('*') => {
                Some(self.text(&node.key, value))
            }
            Pattern::Any if self.joint == Joint::Joined && node.key.contains('*') => {
                Some(node.key.clone())
            }
            _ => None,
        }
    }

    fn text(&self, key: &str, value: &str) -> String {
        match self.joint {
            Joint::Joined => format!("{key}_{value}"),
            // No key has such a character in common with another's value.
            Joint::Apart => format!("{key}\0{value}"),
        }
    }

    fn covering(&mut self, text: &str, earlier: &PrefixIndex<'_, 'a>) -> Option<&'a Origin> {
        let literal_prefix = literal_prefix(text);
        for length in &earlier.lengths {
            let Some(begin) = literal_prefix.get(..*length) else { continue };
            self.work_left = self.work_left.checked_sub(length / 16 + 1)?;
            for (wide, origin) in earlier.globs.get(begin).into_iter().flatten() {
                let work = wide.len().saturating_mul(text.len()) / 16 + 1;
                self.work_left = self.work_left.checked_sub(work)?;
                if glob::matches(wide, text) {
                    return Some(origin);
                }
            }
        }
        None
    }

    fn never(&mut self, origin: &Origin, first: &Origin, path: &NodePath<'_>) {
        let location = self.location_of(first, origin);
        let remedy = if first.at < origin.at || first.source != origin.source {
            "move this one before it, or remove one of them"
        } else {
            "remove one of them"
        };
        let message = format!(
            "can never match, the pattern {location} takes every value that this one would; {remedy}"
        );
        let path = path.path(origin);
        if let Some(report) = self.reports.get_mut(origin.source) {
            report.warn(origin.at, path, message);
        }
    }
}

/// Patterns by their literal prefix.
#[derive(Default)]
struct PrefixIndex<'t, 'a> {
    globs: HashMap<&'t str, Vec<(&'t str, &'a Origin)>>,
    /// The lengths of the prefixes, in bytes.
    lengths: BTreeSet<usize>,
}

impl<'t, 'a> PrefixIndex<'t, 'a> {
    fn add(&mut self, text: &'t str, origin: &'a Origin) {
        let literal_prefix = literal_prefix(text);
        self.lengths.insert(literal_prefix.len());
        self.globs.entry(literal_prefix).or_default().push((text, origin));
    }
}

fn literal_prefix(text: &str) -> &str {
    text.split('*').next().unwrap_or_default()
}

fn is_default(node: &DescriptorConfig) -> bool {
    matches!(node.value, Pattern::Any) && !node.key.contains('*')
}

/// The unique identities of a descriptor: one, or one for each network.
fn identities<'a>(
    key: &'a str,
    value: &'a Pattern,
    joint: Joint,
    mut each: impl FnMut(Identity<'a>),
) {
    match (joint, value) {
        (Joint::Joined, Pattern::Any) => each(Identity::Joined(Cow::Borrowed(key))),
        (Joint::Joined, Pattern::Text(value)) => {
            each(Identity::Joined(Cow::Owned(format!("{key}_{value}"))));
        }
        (Joint::Apart, Pattern::Any) => each(Identity::Any(key)),
        (Joint::Apart, Pattern::Text(value)) => each(Identity::Text(key, value)),
        (_, Pattern::Regex(regex)) => each(Identity::Regex(key, regex.as_str())),
        (_, Pattern::Networks(networks)) => {
            networks.iter().for_each(|network| each(Identity::Network(key, *network)));
        }
    }
}

impl NodePath<'_> {
    /// The path of a descriptor in its file.
    fn path(&self, origin: &Origin) -> String {
        match self {
            Self::Domain(_) => format!("descriptors[{}]", origin.index),
            Self::Below(above, _, parent) => {
                format!("{}.descriptors[{}]", above.path(parent), origin.index)
            }
        }
    }

    /// The composite key of a descriptor in envoyproxy/ratelimit.
    fn composite(&self, node: &DescriptorConfig) -> String {
        format!("{self}.{}", super::composite(&node.key, &node.value))
    }
}

impl Display for NodePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(name) => f.write_str(name),
            Self::Below(above, node, _) => {
                write!(f, "{above}.{}", super::composite(&node.key, &node.value))
            }
        }
    }
}
