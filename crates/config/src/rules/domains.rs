//! Joins files to domains.

use std::collections::HashMap;

use sluicegate_rules::domain::{DescriptorConfig, Domain, Joint, ListEntry};

use super::Options;
use super::descriptor::Origin;
use super::file::FileRead;
use super::file::PositionedEntry;
use super::forward_auth::ForwardAuthSource;
use super::keys::Form;
use super::overrides::PositionedOverride;
use super::plans::PlanName;
use super::{conflicts, lint, overrides, plans};
use crate::problem::{Position, Report, quoted, shortened};

/// A domain with the origins of its content.
pub(super) struct DomainSource {
    pub(super) domain: Domain,
    pub(super) allow: Vec<PositionedEntry>,
    pub(super) deny: Vec<PositionedEntry>,
    pub(super) forward_auth: Option<ForwardAuthSource>,
    pub(super) origins: Vec<Origin>,
    pub(super) plans: Vec<PlanName>,
    pub(super) overrides: Vec<PositionedOverride>,
    /// Whether its files have overrides and nothing else: another file may have the rules.
    has_only_overrides: bool,
    /// The source of its first file, and the position.
    pub(super) source: usize,
    pub(super) at: Position,
    /// Native if any of its files is.
    pub(super) form: Form,
    /// Whether its file removes it.
    pub(super) removed: bool,
}

/// Joins the files of each domain and checks its rules for conflicts.
pub(super) fn gathered(
    files: impl Iterator<Item = (usize, FileRead)>,
    options: &Options,
    reports: &mut [Report],
) -> Vec<DomainSource> {
    let mut domains: Vec<DomainSource> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (source, file) in files {
        let first = known.get(&file.domain).and_then(|index| domains.get_mut(*index));
        match first {
            Some(first)
                if options.merge_domains
                    || first.has_only_overrides
                    || file.has_only_overrides() =>
            {
                first.merge(source, file, reports);
            }
            first => {
                if let Some(first) = first {
                    duplicate(first, source, &file, reports);
                }
                known.entry(file.domain.clone()).or_insert(domains.len());
                domains.push(DomainSource::new(source, file));
            }
        }
    }
    for domain in &domains {
        conflicts::check(domain, reports);
        lint::check(domain, reports);
    }
    domains
}

impl FileRead {
    /// Whether it has overrides of a domain, and nothing else.
    fn has_only_overrides(&self) -> bool {
        let has_lists = !self.allow.is_empty() || !self.deny.is_empty();
        let has_others = self.removed || self.forward_auth.is_some() || !self.plans.is_empty();
        !self.overrides.is_empty() && self.descriptors.is_empty() && !has_lists && !has_others
    }
}

impl DomainSource {
    fn new(source: usize, file: FileRead) -> Self {
        let has_only_overrides = file.has_only_overrides();
        let mut domain = Domain::new(file.domain);
        domain.joint = joint(file.form);
        domain.descriptors = file.descriptors;
        let (at, form) = (file.at, file.form);
        let (allow, deny, origins) = (file.allow, file.deny, file.origins);
        let forward_auth = file.forward_auth;
        let (removed, plans, overrides) = (file.removed, file.plans, file.overrides);
        Self {
            domain,
            allow,
            deny,
            forward_auth,
            origins,
            plans,
            overrides,
            has_only_overrides,
            source,
            at,
            form,
            removed,
        }
    }

    fn merge(&mut self, source: usize, file: FileRead, reports: &mut [Report]) {
        if self.has_only_overrides && !file.has_only_overrides() {
            // The file of the rules is the one that other files are compared with.
            (self.source, self.at, self.has_only_overrides) = (source, file.at, false);
        }
        if self.removed != file.removed {
            refuse_mixed_removal(self, source, &file, reports);
        }
        if file.form == Form::Native {
            self.form = Form::Native;
            self.domain.joint = joint(Form::Native);
        }
        self.domain.descriptors.extend(file.descriptors);
        self.origins.extend(file.origins);
        self.plans.extend(file.plans);
        self.overrides.extend(file.overrides);
        self.allow.extend(file.allow);
        self.deny.extend(file.deny);
        match (&self.forward_auth, file.forward_auth) {
            (Some(first), Some(second)) => refuse_second(first, &second, reports),
            (None, second) => self.forward_auth = second,
            (Some(_), None) => {}
        }
    }

    /// Expands the limits by plan, and checks the overrides, when all files are read.
    pub(super) fn complete(&mut self, reports: &mut [Report]) {
        let nodes = std::mem::take(&mut self.domain.descriptors);
        let joint = self.domain.joint;
        self.domain.descriptors = plans::expand(nodes, &self.origins, &self.plans, joint, reports);
        overrides::check(&self.domain, &self.overrides, reports);
    }

    pub(super) fn finish(mut self) -> Domain {
        let listed = |entries: Vec<PositionedEntry>| -> Vec<ListEntry> {
            entries.into_iter().map(|entry| entry.listed).collect()
        };
        self.domain.allow = listed(self.allow);
        self.domain.deny = listed(self.deny);
        self.domain.overrides = self.overrides.into_iter().map(|written| written.one).collect();
        self.domain.forward_auth = self.forward_auth.map(|written| written.auth);
        self.domain
    }

    /// Whether anything is limited.
    pub(super) fn has_rules(&self) -> bool {
        fn any(nodes: &[DescriptorConfig]) -> bool {
            nodes.iter().any(|node| node.rule.is_some() || any(&node.descriptors))
        }
        any(&self.domain.descriptors)
    }
}

const fn joint(form: Form) -> Joint {
    match form {
        Form::Envoy => Joint::Joined,
        Form::Native => Joint::Apart,
    }
}

fn duplicate(first: &DomainSource, source: usize, file: &FileRead, reports: &mut [Report]) {
    let other = reports.get(first.source).map(|report| quoted(report.source()));
    let (other, line) = (other.unwrap_or_default(), first.at.line);
    let name = shortened(&file.domain);
    let message = format!(
        "duplicate domain '{name}' in config file, it is in {other} on line {line} too; name one of \
         them differently, or set `MERGE_DOMAIN_CONFIG=true` to merge them"
    );
    if let Some(report) = reports.get_mut(source) {
        report.add(file.at, "domain", message);
    }
}

/// Some files of a domain remove it and others have rules for it.
fn refuse_mixed_removal(
    first: &DomainSource,
    source: usize,
    file: &FileRead,
    reports: &mut [Report],
) {
    let other = reports.get(first.source).map(|report| quoted(report.source()));
    let (other, line) = (other.unwrap_or_default(), first.at.line);
    let message = match file.removed {
        true => format!(
            "is removed here and has rules in {other} on line {line}; delete one of the files"
        ),
        false => format!(
            "has rules here and is removed in {other} on line {line}; delete one of the files"
        ),
    };
    if let Some(report) = reports.get_mut(source) {
        report.add(file.at, "domain", message);
    }
}

/// A domain may have one `forward_auth`.
fn refuse_second(first: &ForwardAuthSource, second: &ForwardAuthSource, reports: &mut [Report]) {
    let other = reports.get(first.source).map(|report| quoted(report.source()));
    let (other, line) = (other.unwrap_or_default(), first.at.line);
    let message = format!("is given twice, first in {other} on line {line}; remove one");
    if let Some(report) = reports.get_mut(second.source) {
        report.add(second.at, "forward_auth", message);
    }
}
