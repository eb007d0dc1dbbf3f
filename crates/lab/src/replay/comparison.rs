//! Where two sets of rules decide the same requests differently.
//!
//! A request that waits passes, and so does one that a rule in shadow mode would deny.

use std::collections::BTreeMap;

use sluicegate::rules::request::Request;
use sluicegate::rules::set::write_plain;
use sluicegate::{Checked, Snapshot, descriptor_text};
use sluicegate_core::time::Timestamp;

use super::identities::IdentityTable;
use super::tally::Place;
use super::verdict::{Decided, ReplayVerdict};

/// Examples of each difference.
pub const EXAMPLES_MAX: usize = 10;

/// Requests that two sets of rules decide.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Both allow them.
    pub both_allow: u64,
    /// Both deny them.
    pub both_deny: u64,
    /// Only the other rules deny them.
    pub newly_denied: DifferenceTally,
    /// Only the first rules deny them.
    pub newly_allowed: DifferenceTally,
}

/// Requests that one of two sets of rules denies.
#[derive(Debug, Default)]
pub struct DifferenceTally {
    /// Their number.
    pub requests: u64,
    /// By the rule that denies; lists and missing rules have none.
    pub rules: BTreeMap<Option<String>, u64>,
    /// By the identity that this rule counts.
    pub identities: IdentityTable,
    /// The first ones.
    pub examples: Vec<Difference>,
}

/// A request that is decided differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where it is.
    pub place: Place,
    /// Under the first rules.
    pub before: NamedVerdict,
    /// Under the other ones.
    pub after: NamedVerdict,
    /// The identity that the denying rule counts, else the first descriptor.
    pub identity: String,
    /// The cost of the request.
    pub hits: u64,
}

/// An outcome and the rule that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedVerdict {
    /// The outcome.
    pub verdict: ReplayVerdict,
    /// The id of the rule that denies, or would.
    pub rule: Option<String>,
}

/// A request as one set of rules decides it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) rules: &'a Snapshot<'a>,
    pub(super) request: &'a Request<'a>,
    pub(super) checked: &'a Checked,
    pub(super) decided: Decided,
}

impl Comparison {
    /// Counts a request; the difference, if there is one and it is wanted or an example.
    pub(super) fn add(
        &mut self,
        place: Place,
        before: Side<'_>,
        after: Side<'_>,
        is_wanted: bool,
    ) -> Option<Difference> {
        let (denying, tally) = match (before.passes(), after.passes()) {
            (true, true) => {
                self.both_allow += 1;
                return None;
            }
            (false, false) => {
                self.both_deny += 1;
                return None;
            }
            (true, false) => (after, &mut self.newly_denied),
            (false, true) => (before, &mut self.newly_allowed),
        };
        let identity = denying.identity();
        tally.requests += 1;
        *tally.rules.entry(denying.named().rule).or_default() += 1;
        let has_room = tally.identities.len() < super::identities::IDENTITIES_MAX;
        let counted = (place.at, denying.request.hits);
        tally.identities.add(&identity, counted, ReplayVerdict::Denied, has_room);
        let is_example = tally.examples.len() < EXAMPLES_MAX;
        (is_wanted || is_example).then(|| {
            let difference = Difference {
                place,
                before: before.named(),
                after: after.named(),
                identity: descriptor_text(&identity),
                hits: denying.request.hits,
            };
            if is_example {
                tally.examples.push(difference.clone());
            }
            difference
        })
    }

    /// All requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.both_allow + self.both_deny + self.newly_denied.requests + self.newly_allowed.requests
    }

    /// Adds those of another shard.
    pub(super) fn merge(&mut self, other: Self) {
        self.both_allow += other.both_allow;
        self.both_deny += other.both_deny;
        self.newly_denied.merge(other.newly_denied);
        self.newly_allowed.merge(other.newly_allowed);
    }
}

impl DifferenceTally {
    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        for (rule, requests) in other.rules {
            *self.rules.entry(rule).or_default() += requests;
        }
        self.identities.merge(other.identities);
        self.examples.extend(other.examples);
        self.examples.sort_by_key(|example| example.place);
        self.examples.truncate(EXAMPLES_MAX);
    }

    /// When the first one was.
    #[must_use]
    pub fn first(&self) -> Option<Timestamp> {
        self.examples.first().map(|example| example.place.at)
    }
}

impl Side<'_> {
    const fn passes(&self) -> bool {
        self.decided.verdict.passes()
    }

    fn named(&self) -> NamedVerdict {
        NamedVerdict {
            verdict: self.decided.verdict,
            rule: self.decided.rule.map(|no| self.rules.rules().id(no)),
        }
    }

    /// The identity that the denying rule counts, else (a list) the first descriptor.
    fn identity(&self) -> Vec<u8> {
        let plan = &self.checked.plan;
        let index = self.decided.step.unwrap_or(0);
        let step = plan.steps().get(index);
        let mut identity = step.map_or_else(Vec::new, |step| plan.identity(step).to_vec());
        if identity.is_empty()
            && let Some(descriptor) = self.request.descriptors.get(index)
        {
            write_plain(self.request.domain, descriptor.entries, &mut identity);
        }
        identity
    }
}
