//! Removals of domains that are withheld.
//!
//! An editor that saves, a mount that fails and a ConfigMap that is emptied all look like an
//! operator who removes a domain. A reading of the files that leaves a served domain without rules
//! therefore does not remove them: the last rules stay in force, and counters continue.
//!
//! ```text
//!   served -- absent, or without rules --> withheld -- rules are back ------------> served
//!      |                                      |------- `removed: true` -----------> removed
//!      |                                      `------- absent for the grace period -> removed
//!      `----- `removed: true` ------------------------------------------------------> removed
//! ```
//!
//! The grace period counts valid readings only: a file that cannot be parsed may hold the domain,
//! so it starts the period anew. This module has no clock and reads no file.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use sluicegate_config::rules::{Loaded, Options, Source, load};
use sluicegate_config::units::show_span;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::domain::{DescriptorConfig, Domain};
use sluicegate_rules::set::RuleSet;

use crate::clock::span;

/// The default grace period: how long a domain must be absent from the files until it is removed.
pub const REMOVAL_GRACE: Duration = Duration::from_secs(600);

/// How often withheld domains are reported again.
pub const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A domain whose removal is withheld: the files have no rules for it any more, and its last rules
/// stay in force. As text it names the file, the domain and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithheldDomain {
    /// Its name.
    pub domain: String,
    /// The file that has it without rules, or that had it last.
    pub file: String,
    /// Whether the files still name it.
    pub is_named: bool,
    /// When it is removed, if it stays absent.
    pub removed_in: Duration,
}

/// The domains of the files, and those that are withheld.
#[derive(Debug, Clone)]
pub(super) struct Withholding {
    grace: Span,
    /// The sources of the last valid reading.
    sources: Vec<Source>,
    /// The domains of the last valid reading, and those that are withheld.
    known: BTreeMap<String, Known>,
    absent: BTreeMap<String, Absent>,
    reported: Timestamp,
}

#[derive(Debug, Clone)]
struct Known {
    file: String,
    protection: Protection,
}

/// What a domain would lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protection {
    None,
    /// `allow` or `deny`, and no rules.
    Lists,
    Rules,
}

#[derive(Debug, Clone)]
struct Absent {
    /// The last rules.
    domain: Domain,
    file: String,
    is_named: bool,
    /// The first of the valid readings without it; none while the last reading is invalid.
    since: Option<Timestamp>,
}

impl Withholding {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace: span(grace),
            sources: Vec::new(),
            known: BTreeMap::new(),
            absent: BTreeMap::new(),
            reported: Timestamp::EPOCH,
        }
    }

    pub(super) fn set_grace(&mut self, grace: Duration) {
        self.grace = span(grace);
    }

    /// The sources of the last valid reading.
    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The state after a valid reading, and the domains that are in force then: those of the files,
    /// and those whose removal is withheld.
    pub(super) fn after(
        &self,
        (sources, options): (Vec<Source>, &Options),
        loaded: &mut Loaded,
        served: &RuleSet,
        now: Timestamp,
    ) -> Self {
        let mut next = Self { absent: BTreeMap::new(), known: BTreeMap::new(), sources, ..*self };
        for (domain, file) in loaded.domains.iter().zip(&loaded.files) {
            let known = Known { file: file.clone(), protection: Protection::of(domain) };
            next.known.insert(domain.name.clone(), known);
        }
        let mut last = None;
        for (name, before) in &self.known {
            let is_served = served.domain(name).is_some();
            let now_has = next.known.get(name).map_or(Protection::None, |known| known.protection);
            if !is_served || now_has >= before.protection || loaded.removed.contains(name) {
                continue;
            }
            let named_in = next.known.get(name).map(|known| known.file.clone());
            let mut absent = match self.absent.get(name) {
                Some(absent) if absent.is_expired(self.grace, now) => continue,
                Some(absent) => absent.clone(),
                None if self.grace == Span::from_micros(0) => continue,
                None => {
                    let last = last.get_or_insert_with(|| by_name(&self.sources, options));
                    let Some(domain) = last.remove(name) else { continue };
                    let file = before.file.clone();
                    Absent { domain, file, is_named: false, since: None }
                }
            };
            absent.since = absent.since.or(Some(now));
            absent.is_named = named_in.is_some();
            absent.file = named_in.unwrap_or(absent.file);
            let known = Known { file: absent.file.clone(), protection: before.protection };
            next.known.insert(name.clone(), known);
            match loaded.domains.iter_mut().find(|domain| domain.name == *name) {
                Some(domain) => domain.clone_from(&absent.domain),
                None => loaded.domains.push(absent.domain.clone()),
            }
            next.absent.insert(name.clone(), absent);
        }
        next.reported = now;
        next
    }

    /// Starts the grace periods anew after a reading that failed: the domains may be in it.
    pub(super) fn restart_grace(&mut self) {
        self.absent.values_mut().for_each(|absent| absent.since = None);
    }

    /// Whether the grace period of a domain is over.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.absent.values().any(|absent| absent.is_expired(self.grace, now))
    }

    /// The withheld domains, if it is time to report them again.
    pub(super) fn report_again(&mut self, now: Timestamp) -> Option<Vec<WithheldDomain>> {
        if self.absent.is_empty() || now.since(self.reported) < span(REPORT_EVERY) {
            return None;
        }
        self.reported = now;
        Some(self.report(now))
    }

    /// The withheld domains.
    pub(super) fn report(&self, now: Timestamp) -> Vec<WithheldDomain> {
        let one = |(name, absent): (&String, &Absent)| WithheldDomain {
            domain: name.clone(),
            file: absent.file.clone(),
            is_named: absent.is_named,
            removed_in: self.grace.less(absent.age(now)).to_duration(),
        };
        self.absent.iter().map(one).collect()
    }
}

impl Absent {
    fn age(&self, now: Timestamp) -> Span {
        self.since.map_or(Span::from_micros(0), |since| now.since(since))
    }

    fn is_expired(&self, grace: Span, now: Timestamp) -> bool {
        self.since.is_some() && self.age(now) >= grace
    }
}

impl Protection {
    fn of(domain: &Domain) -> Self {
        fn any_rule(nodes: &[DescriptorConfig]) -> bool {
            nodes.iter().any(|node| node.rule.is_some() || any_rule(&node.descriptors))
        }
        if any_rule(&domain.descriptors) {
            Self::Rules
        } else if domain.allow.is_empty() && domain.deny.is_empty() {
            Self::None
        } else {
            Self::Lists
        }
    }
}

/// The domains of sources that were valid before.
fn by_name(sources: &[Source], options: &Options) -> HashMap<String, Domain> {
    let domains = load(sources, options).map(|loaded| loaded.domains).unwrap_or_default();
    domains.into_iter().map(|domain| (domain.name.clone(), domain)).collect()
}

impl fmt::Display for WithheldDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, file, is_named, removed_in } = self;
        let state = if *is_named { "has no rules any more" } else { "is in no file any more" };
        let left = show_span(Span::from_secs(removed_in.as_millis().div_ceil(1_000) as u64));
        write!(
            f,
            "{file}: domain `{domain}` {state}; its last rules stay in force and the domain is \
             removed in {left}: restore the rules, or write `domain: {domain}` with `removed: true` \
             to remove it now"
        )
    }
}
