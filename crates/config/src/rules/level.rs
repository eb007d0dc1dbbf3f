//! The descriptors of one level beside each other: none twice, and none that can never match.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet, hash_map};
use std::fmt::{self, Display};

use sluicegate_rules::domain::{DescriptorConfig, Joint, Pattern};
use sluicegate_rules::network::Network;

use super::descriptor::Place;
use super::domains::Gathered;
use super::file::Entry;
use super::glob;
use super::keys::Form;
use crate::problem::{Position, Report, quoted, shortened};
use crate::suggest;

/// Tells what is wrong with the descriptors of a domain beside each other.
pub(super) fn check(gathered: &Gathered, reports: &mut [Report]) {
    let mut check = Check {
        joint: gathered.domain.joint,
        form: gathered.form,
        reports,
        work_left: WORK_MAX,
        names: HashSet::new(),
        ids: HashMap::new(),
        replaces: Vec::new(),
    };
    let domain = Way::Domain(&gathered.domain.name);
    check.level(&gathered.domain.descriptors, &gathered.places, &domain);
    check.targets();
    check.lists(&gathered.allow);
    check.lists(&gathered.deny);
}

/// The most comparisons of characters, roughly, to find patterns that can never match.
const WORK_MAX: usize = 20_000_000;

/// The most names that one is compared with to find what was meant.
const NAMES_COMPARED_MAX: usize = 100;

struct Check<'a, 'r> {
    joint: Joint,
    form: Form,
    reports: &'r mut [Report],
    work_left: usize,
    /// What rules are called.
    names: HashSet<&'a str>,
    /// The rules with an id.
    ids: HashMap<&'a str, (usize, Position)>,
    /// The names of rules that rules name, in which source, and where.
    replaces: Vec<(&'a str, usize, Position, String)>,
}

/// The way to a level.
enum Way<'w> {
    Domain(&'w str),
    Below(&'w Self, &'w DescriptorConfig, &'w Place),
}

/// What makes a descriptor the only one of its level.
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
    fn level(&mut self, nodes: &'a [DescriptorConfig], places: &'a [Place], way: &Way<'_>) {
        self.duplicates(nodes, places, way);
        self.covered(nodes, places, way);
        for (node, place) in nodes.iter().zip(places) {
            self.name(node, place, way);
            self.no_star(node, place, way);
            if !node.descriptors.is_empty() {
                let below = Way::Below(way, node, place);
                self.level(&node.descriptors, &place.below, &below);
            }
        }
    }

    fn duplicates(&mut self, nodes: &'a [DescriptorConfig], places: &'a [Place], way: &Way<'_>) {
        let alone = nodes.len() < 2
            && !matches!(nodes, [DescriptorConfig { value: Pattern::Networks(_), .. }]);
        if alone {
            return;
        }
        let mut firsts: HashMap<Identity<'a>, &'a Place> = HashMap::with_capacity(nodes.len());
        for (node, place) in nodes.iter().zip(places) {
            identities(&node.key, &node.value, self.joint, |identity| {
                match firsts.entry(identity) {
                    hash_map::Entry::Vacant(vacant) => {
                        vacant.insert(place);
                    }
                    hash_map::Entry::Occupied(first) => {
                        self.duplicate(node, place, first.get(), first.key(), way);
                    }
                }
            });
        }
    }

    fn duplicate(
        &mut self,
        node: &DescriptorConfig,
        place: &Place,
        first: &Place,
        identity: &Identity<'_>,
        way: &Way<'_>,
    ) {
        let message = if let Identity::Network(_, network) = identity {
            let where_else = self.elsewhere(first, place);
            format!(
                "the network `{network}` is matched twice, first {where_else}; remove one of them"
            )
        } else {
            let composite = shortened(&way.composite(node));
            let where_else = self.elsewhere(first, place);
            format!(
                "duplicate descriptor composite key '{composite}', the first is {where_else}; remove \
                 one of them, or give them different values"
            )
        };
        let path = way.path(place);
        if let Some(report) = self.reports.get_mut(place.source) {
            report.add(place.at, path, message);
        }
    }

    /// Where another place is: its line, and its file if that is another.
    fn elsewhere(&self, other: &Place, this: &Place) -> String {
        let line = other.at.line;
        match self.reports.get(other.source) {
            Some(report) if other.source != this.source => {
                format!("in {} on line {line}", quoted(report.source()))
            }
            _ => format!("on line {line}"),
        }
    }

    /// Tells of entries that a list has twice.
    fn lists(&mut self, entries: &'a [Entry]) {
        let mut firsts: HashMap<Identity<'a>, &'a Entry> = HashMap::with_capacity(entries.len());
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

    /// In a domain of our own form a key is compared as it is, also in its files of Envoy's form.
    fn no_star(&mut self, node: &DescriptorConfig, place: &Place, way: &Way<'_>) {
        if self.joint == Joint::Joined || !node.key.contains('*') {
            return;
        }
        let got = quoted(&node.key);
        let message = format!(
            "must not contain `*` in a domain with keys of our own form, got {got}; write the `*` in \
             `value`"
        );
        let path = format!("{}.key", way.path(place));
        if let Some(report) = self.reports.get_mut(place.source) {
            report.add(place.at, path, message);
        }
    }

    // === names ===

    fn name(&mut self, node: &'a DescriptorConfig, place: &'a Place, way: &Way<'_>) {
        let Some(rule) = &node.rule else { return };
        if let Some(name) = rule.name.as_deref() {
            self.names.insert(name);
        }
        let Some(names) = &place.names else { return };
        for (name, at) in rule.replaces().iter().zip(&names.replaces) {
            let path = format!("{}.replaces", way.path(place));
            self.replaces.push((name, place.source, *at, path));
        }
        let (Some(at), Some(id)) = (names.id, rule.name.as_deref()) else { return };
        match self.ids.entry(id) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert((place.source, at));
            }
            hash_map::Entry::Occupied(first) => {
                let (source, line) = (first.get().0, first.get().1.line);
                let file = self.reports.get(source).map(|report| quoted(report.source()));
                let file = file.filter(|_| source != place.source);
                let file = file.map_or_else(String::new, |file| format!(" of {file}"));
                let got = quoted(id);
                let message = format!(
                    "must differ from the id on line {line}{file}, got {got}; rules are told apart by \
                     it, choose another"
                );
                let path = format!("{}.id", way.path(place));
                if let Some(report) = self.reports.get_mut(place.source) {
                    report.add(at, path, message);
                }
            }
        }
    }

    /// Tells of names in `replaces` that no rule has.
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
    /// Warns of patterns of which an earlier one takes everything. An earlier one that does so begins as this one does,
    /// up to its first `*`; so only those are compared.
    fn covered(&mut self, nodes: &'a [DescriptorConfig], places: &'a [Place], way: &Way<'_>) {
        if nodes.len() < 2 {
            return;
        }
        let globs: Vec<(String, &'a Place)> = nodes
            .iter()
            .zip(places)
            .filter_map(|(node, place)| Some((self.glob(node)?, place)))
            .collect();
        if globs.is_empty() {
            return;
        }
        let mut earlier = Beginnings::default();
        for (text, place) in &globs {
            if let Some(first) = self.covering(text, &earlier) {
                self.never(place, first, way);
            }
            earlier.add(text, place);
        }
        // Any value comes last, wherever it is written.
        for (node, place) in nodes.iter().zip(places).filter(|(node, _)| is_default(node)) {
            let text = self.text(&node.key, "*");
            if let Some(first) = self.covering(&text, &earlier) {
                self.never(place, first, way);
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

    fn covering(&mut self, text: &str, earlier: &Beginnings<'_, 'a>) -> Option<&'a Place> {
        let beginning = beginning(text);
        for length in &earlier.lengths {
            let Some(begin) = beginning.get(..*length) else { continue };
            self.work_left = self.work_left.checked_sub(length / 16 + 1)?;
            for (wide, place) in earlier.globs.get(begin).into_iter().flatten() {
                let work = wide.len().saturating_mul(text.len()) / 16 + 1;
                self.work_left = self.work_left.checked_sub(work)?;
                if glob::matches(wide, text) {
                    return Some(place);
                }
            }
        }
        None
    }

    fn never(&mut self, place: &Place, first: &Place, way: &Way<'_>) {
        let where_else = self.elsewhere(first, place);
        let remedy = if first.at < place.at || first.source != place.source {
            "move this one before it, or remove one of them"
        } else {
            "remove one of them"
        };
        let message = format!(
            "can never match, the pattern {where_else} takes every value that this one would; {remedy}"
        );
        let path = way.path(place);
        if let Some(report) = self.reports.get_mut(place.source) {
            report.warn(place.at, path, message);
        }
    }
}

/// Patterns by what they begin with, up to their first `*`.
#[derive(Default)]
struct Beginnings<'t, 'a> {
    globs: HashMap<&'t str, Vec<(&'t str, &'a Place)>>,
    /// How long the beginnings are, in bytes.
    lengths: BTreeSet<usize>,
}

impl<'t, 'a> Beginnings<'t, 'a> {
    fn add(&mut self, text: &'t str, place: &'a Place) {
        let beginning = beginning(text);
        self.lengths.insert(beginning.len());
        self.globs.entry(beginning).or_default().push((text, place));
    }
}

fn beginning(text: &str) -> &str {
    text.split('*').next().unwrap_or_default()
}

fn is_default(node: &DescriptorConfig) -> bool {
    matches!(node.value, Pattern::Any) && !node.key.contains('*')
}

/// What a descriptor is the only one to be; of a list of networks each.
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

// === impl Way ===

impl Way<'_> {
    /// The place in the file of a descriptor at the end of the way.
    fn path(&self, place: &Place) -> String {
        match self {
            Self::Domain(_) => format!("descriptors[{}]", place.index),
            Self::Below(above, _, parent) => {
                format!("{}.descriptors[{}]", above.path(parent), place.index)
            }
        }
    }

    /// What envoyproxy/ratelimit calls a descriptor at the end of the way.
    fn composite(&self, node: &DescriptorConfig) -> String {
        format!("{self}.{}", super::composite(&node.key, &node.value))
    }
}

impl Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(name) => f.write_str(name),
            Self::Below(above, node, _) => {
                write!(f, "{above}.{}", super::composite(&node.key, &node.value))
            }
        }
    }
}
