//! Traces how a request matches the rules, without counting. The lookups are those of
//! [`RuleSet::find_in`](crate::set::RuleSet::find_in) itself.

use crate::request::{Entry, Request};
use crate::set::{Configured, MatchKind, MatchPath, RuleNo, RuleSet};

/// The trace of one descriptor.
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
/// let traces = rules.explain(&Request { domain: "shop", descriptors: &descriptors, hits: 1 });
/// assert_eq!(traces[0].end, TraceEnd::NoLimit);
/// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorTrace<'a> {
    /// A lookup for each entry, up to the first without a match.
    pub looks: Vec<Lookup<'a>>,
    /// How it ended.
    pub end: TraceEnd,
}

/// The lookup of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup<'a> {
    /// The entry.
    pub entry: Entry<'a>,
    /// The match, if any.
    pub met: Option<LookupMatch>,
    /// The first few descriptors configured at this level, and the number of further ones.
    pub configured: (Vec<String>, usize),
}

/// The node that an entry matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupMatch {
    /// The node, as it is written: `path=/login*`.
    pub node: String,
    /// The kind of match.
    pub kind: MatchKind,
    /// What replaces the value in the identity, if anything does.
    pub counted_as: Option<String>,
}

/// How the trace of a descriptor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEnd {
    /// At a rule.
    Rule(RuleNo),
    /// At a limit that came with the request, which bypasses the rules.
    Override,
    /// The domain has no rules.
    UnknownDomain,
    /// The descriptor has no entries.
    NoEntries,
    /// An entry matched nothing.
    NoMatch,
    /// All entries matched a node without a limit.
    NoLimit,
    /// Entries remain below a leaf.
    TooManyEntries,
}

/// Maximum number of configured descriptors listed for a lookup.
const CONFIGURED_MAX: usize = 8;

impl RuleSet {
    /// Traces each descriptor of a request.
    #[must_use]
    pub fn explain<'a>(&self, request: &Request<'a>) -> Vec<DescriptorTrace<'a>> {
        let trace = |descriptor: &crate::request::Descriptor<'a>| {
            let ended = |end| DescriptorTrace { looks: Vec::new(), end };
            match self.domain(request.domain) {
                None => ended(TraceEnd::UnknownDomain),
                Some(_) if descriptor.limit.is_some() => ended(TraceEnd::Override),
                Some(_) if descriptor.entries.is_empty() => ended(TraceEnd::NoEntries),
                Some(domain) => {
                    let mut path = MatchPath::default();
                    let rule = self.find_in(domain, descriptor.entries, &mut path);
                    let looks = self.looks(domain, descriptor.entries, &path);
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
        request.descriptors.iter().map(trace).collect()
    }

    fn looks<'a>(
        &self,
        domain: crate::set::DomainNo,
        entries: &[Entry<'a>],
        path: &MatchPath,
    ) -> Vec<Lookup<'a>> {
        let mut looks = Vec::new();
        let mut level = Some(self.first_level(domain));
        let mut joined = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let Some(current) = level else { break };
            let found = self.step(current, entry, &mut joined);
            debug_assert_eq!(found.map(|(node, _)| node), path.node(index));
            let met = found.map(|(node, kind)| LookupMatch {
                node: self.written_at(node),
                kind,
                counted_as: self.counted_as(node, entry.value),
            });
            let configured =
                match index.checked_sub(1).and_then(|before| self.followed(path).nth(before)) {
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
