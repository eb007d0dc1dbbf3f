//! Why a request is under the rules that it is under, step by step, without counting anything.
//!
//! The looks are those of [`RuleSet::find_in`](crate::set::RuleSet::find_in) itself, so what is told here is what happens.

use crate::request::{Entry, Request};
use crate::set::{Configured, MatchKind, MatchPath, RuleNo, RuleSet};

/// What became of one descriptor.
///
/// ```
/// use sluicegate_rules::domain::{Domain, DescriptorConfig};
/// use sluicegate_rules::explain::TraceEnd;
/// use sluicegate_rules::request::{Descriptor, Entry, Request};
/// use sluicegate_rules::set::RuleSet;
///
/// let domain = Domain { descriptors: vec![DescriptorConfig::any("user_id")], ..Domain::new("shop") };
/// let rules = RuleSet::new(vec![domain])?;
/// let entries = [Entry::new("user_id", "42")];
/// let descriptors = [Descriptor::of(&entries)];
/// let told = rules.explain(&Request { domain: "shop", descriptors: &descriptors, hits: 1 });
/// assert_eq!(told[0].end, TraceEnd::NoLimit);
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorTrace<'a> {
    /// A look for each entry, until one led nowhere.
    pub looks: Vec<Lookup<'a>>,
    /// Where that ended.
    pub end: TraceEnd,
}

/// The look for one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup<'a> {
    /// The entry.
    pub entry: Entry<'a>,
    /// What it led to.
    pub met: Option<LookupMatch>,
    /// What is configured at this place, as it is written: the first few, and how many more there are.
    pub configured: (Vec<String>, usize),
}

/// What an entry led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupMatch {
    /// The node, as it is written: `path=/login*`.
    pub node: String,
    /// Why it was taken.
    pub how: MatchKind,
    /// What stands for the value in the identity, if that is not the value itself.
    pub counted_as: Option<String>,
}

/// Where the way of a descriptor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEnd {
    /// At a rule.
    Rule(RuleNo),
    /// At a limit that came with the request: the rules were not asked.
    Override,
    /// Nobody has rules for this domain.
    UnknownDomain,
    /// The descriptor has no entries.
    NoEntries,
    /// An entry matched nothing.
    NoMatch,
    /// All entries matched, and what they led to has no limit.
    NoLimit,
    /// There were entries left, and nothing follows where the others led to.
    TooManyEntries,
}

/// How much is told of what is configured at a place.
const CONFIGURED_MAX: usize = 8;

impl RuleSet {
    /// Tells for each descriptor of a request which way it takes.
    #[must_use]
    pub fn explain<'a>(&self, request: &Request<'a>) -> Vec<DescriptorTrace<'a>> {
        let told = |descriptor: &crate::request::Descriptor<'a>| {
            let ended = |end| DescriptorTrace { looks: Vec::new(), end };
            match self.domain(request.domain) {
                None => ended(TraceEnd::UnknownDomain),
                Some(_) if descriptor.limit.is_some() => ended(TraceEnd::Override),
                Some(_) if descriptor.entries.is_empty() => ended(TraceEnd::NoEntries),
                Some(domain) => {
                    let mut way = MatchPath::default();
                    let rule = self.find_in(domain, descriptor.entries, &mut way);
                    let looks = self.looks(domain, descriptor.entries, &way);
                    let all_met = looks.iter().all(|look| look.met.is_some());
                    let end = match rule {
                        Some(no) => TraceEnd::Rule(no),
                        None if !all_met => TraceEnd::NoMatch,
                        None if looks.len() < descriptor.entries.len() => TraceEnd::TooManyEntries,
                        None => TraceEnd::NoLimit,
                    };
                    DescriptorTrace { looks, end }
                }
            }
        };
        request.descriptors.iter().map(told).collect()
    }

    fn looks<'a>(
        &self,
        domain: crate::set::DomainNo,
        entries: &[Entry<'a>],
        way: &MatchPath,
    ) -> Vec<Lookup<'a>> {
        let mut looks = Vec::new();
        let mut level = Some(self.first_level(domain));
        let mut joined = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let Some(here) = level else { break };
            let found = self.step(here, entry, &mut joined);
            debug_assert_eq!(found.map(|(node, _)| node), way.node(place));
            let met = found.map(|(node, how)| LookupMatch {
                node: self.written_at(node),
                how,
                counted_as: self.counted_as(node, entry.value),
            });
            let configured =
                match place.checked_sub(1).and_then(|before| self.followed(way).nth(before)) {
                    Some(before) => first_few(before.below()),
                    None => first_few(self.top(domain)),
                };
            let gone_on = met.is_some();
            looks.push(Lookup { entry: *entry, met, configured });
            if !gone_on {
                break;
            }
            level = found.and_then(|(node, _)| self.level_after(node));
        }
        looks
    }
}

/// The first few as they are written, and how many more there are.
fn first_few<'a>(mut all: impl Iterator<Item = Configured<'a>>) -> (Vec<String>, usize) {
    let some = all.by_ref().take(CONFIGURED_MAX).map(|one| one.to_string()).collect();
    (some, all.count())
}
