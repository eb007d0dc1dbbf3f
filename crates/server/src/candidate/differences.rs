//! Identities of requests that the candidate decides differently, the most frequent first.

use std::collections::BTreeMap;

use sluicegate::rules::request::Request;
use sluicegate::rules::set::write_plain;
use sluicegate::{Checked, HeavyHitters, IdentityHits, Snapshot};

/// Identities of one pair of outcomes, in a sketch of a fixed size.
#[derive(Debug, Default)]
pub(super) struct Differences {
    identities: HeavyHitters,
    /// Requests by the id of the rule of the candidate that denies them.
    by_rule: BTreeMap<String, u64>,
}

/// Identities with the most requests of one pair of outcomes, with their domains.
pub(crate) type DifferingIdentities = Vec<(String, IdentityHits)>;

impl Differences {
    /// Adds a request of an identity. The hash is that of the engine of the candidate.
    pub(super) fn add(&mut self, hash: u64, identity: &[u8], rule: Option<String>) {
        self.identities.add(hash, identity, 1);
        if let Some(rule) = rule {
            *self.by_rule.entry(rule).or_default() += 1;
        }
    }

    pub(super) fn identities(&self) -> DifferingIdentities {
        self.identities.top()
    }

    pub(super) fn by_rule(&self) -> BTreeMap<String, u64> {
        self.by_rule.clone()
    }
}

/// Hash and identity of a denied request: that of its first denied descriptor, else (a list, or no
/// rule) of the first.
pub(super) fn denied_identity(
    hashed_by: &Snapshot<'_>,
    request: &Request<'_>,
    checked: &Checked,
) -> Option<(u64, Vec<u8>)> {
    let denied = checked.statuses.iter().position(|status| !status.verdict.is_allowed());
    let index = denied.unwrap_or(0);
    let step = checked.plan.steps().get(index);
    let mut identity = step.map_or_else(Vec::new, |step| checked.plan.identity(step).to_vec());
    if identity.is_empty() {
        let descriptor = request.descriptors.get(index)?;
        write_plain(request.domain, descriptor.entries, &mut identity);
    }
    Some((hashed_by.traffic_hash(&identity)?, identity))
}
