//! Names of the limits of each domain, as responses show them: `hide` must name these.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_core::time::Timestamp;
use sluicegate_rules::limit::names;
use sluicegate_rules::resolve::resolve;
use sluicegate_rules::rule::Limits;
use sluicegate_rules::set::RuleSet;

use crate::problem::quoted;
use crate::rules::Loaded;
use crate::suggest;

/// Maximum number of names that a message lists.
const SHOWN_MAX: usize = 8;

/// Names of limits, by domain.
#[derive(Debug)]
pub(super) struct LimitNames(BTreeMap<String, BTreeSet<String>>);

impl LimitNames {
    pub(super) fn new(rules: &Loaded) -> Self {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // Rules that cannot be compiled have their own errors.
        let resolved = resolve(rules.domains.clone(), Timestamp::EPOCH);
        let domains = resolved.map(|resolved| resolved.domains).unwrap_or_default();
        let set = RuleSet::new(domains).unwrap_or_default();
        for no in set.rules() {
            let rule = set.rule(no);
            // Limits at other times have names too.
            let scheduled = rule.schedule().into_iter().flat_map(|schedule| {
                schedule.parts.iter().map(|part| &part.limits).chain([&schedule.otherwise])
            });
            for limits in [&rule.limits].into_iter().chain(scheduled) {
                let shown = match limits {
                    Limits::Unlimited => Vec::new(),
                    Limits::Native(limits) => names(limits),
                    Limits::Envoy { .. } => {
                        let name = rule.name.as_deref().map(str::to_owned);
                        vec![name.unwrap_or_else(|| set.path_of(no))]
                    }
                };
                all.entry(set.domain_of(no).to_owned()).or_default().extend(shown);
            }
        }
        Self(all)
    }

    /// The warning about a name that no limit of the domain has.
    pub(super) fn unknown(&self, name: &str, domain: &str) -> Option<String> {
        let known = self.0.get(domain);
        if known.is_some_and(|known| known.contains(name)) {
            return None;
        }
        let known: Vec<&str> = known.into_iter().flatten().map(String::as_str).collect();
        let hint = suggest::hint(name, known.iter().copied());
        let remedy = match known.get(..known.len().min(SHOWN_MAX)) {
            None | Some([]) => "the domain has no limit".to_owned(),
            Some(shown) => format!("the limits are {}", suggest::all_of(shown)),
        };
        let (got, domain) = (quoted(name), quoted(domain));
        Some(format!(
            "hides nothing, no limit of the domain {domain} has this name, got {got}; {hint}{remedy}"
        ))
    }
}
