//! Everything there is to tell about a request, before it is written down.

use sluicegate_core::mode::Mode;
use sluicegate_rules::domain::Domain;
use sluicegate_rules::explain::{End, Explained, Look};
use sluicegate_rules::plan::{DomainIs, List, Plan, Under};
use sluicegate_rules::request::{Override, Request};
use sluicegate_rules::rule::{Limits, Rule};
use sluicegate_rules::set::{RuleNo, RuleSet};

use super::hints::{followed, unknown_domain, why_not};
use super::judging::{First, first};
use crate::reading::Good;
use crate::rule::place::Placed;

/// A request, explained.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) domain: &'a str,
    pub(crate) hits: u64,
    /// What may have been meant, if nobody knows the domain.
    pub(crate) unknown_domain: Option<String>,
    pub(crate) listed: Option<OnList>,
    pub(crate) descriptors: Vec<One<'a>>,
    pub(crate) verdict: Answer,
}

/// An entry that is on a list.
#[derive(Debug)]
pub(crate) struct OnList {
    pub(crate) list: List,
    pub(crate) descriptor: usize,
    pub(crate) entry: String,
}

/// What a first request would get.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) why: String,
}

/// A descriptor, explained.
#[derive(Debug)]
pub(crate) struct One<'a> {
    pub(crate) text: &'a str,
    pub(crate) looks: Vec<Look<'a>>,
    pub(crate) end: End,
    /// Why there is no rule.
    pub(crate) why_not: Option<String>,
    pub(crate) under: Option<UnderRule<'a>>,
    pub(crate) cost: u64,
}

/// The rule that a descriptor is under.
#[derive(Debug)]
pub(crate) struct UnderRule<'a> {
    pub(crate) id: String,
    /// What came with the request, in place of a rule.
    pub(crate) came_with: Option<Override>,
    pub(crate) placed: Option<Placed<'a>>,
    /// Whose counter it is, part by part; nothing without one.
    pub(crate) counter: Vec<String>,
    /// The rule because of which it does not count.
    pub(crate) replaced_by: Option<String>,
    pub(crate) quota_mode: bool,
    /// What it would say, if it is asked.
    pub(crate) first: Option<First>,
}

/// Explains a request, of which `texts` are the descriptors as they were typed.
pub(crate) fn told<'a>(good: &'a Good, request: &Request<'a>, texts: &'a [String]) -> Told<'a> {
    let set = &good.set;
    let domain = good.loaded.domains.iter().find(|domain| domain.name == request.domain);
    let mut plan = Plan::default();
    set.plan(request, &mut plan);
    let mut descriptors = Vec::new();
    for (place, explained) in set.explain(request).into_iter().enumerate() {
        let (Some(step), Some(text)) = (plan.steps().get(place), texts.get(place)) else { break };
        let entries = request.descriptors[place].entries;
        let why_not = why_not(domain, &explained, entries);
        let under = match step.under {
            Under::Nothing => None,
            Under::Override(limit) => Some(came_with(limit, step.cost, request, place)),
            Under::Rule(no) | Under::Replaced(no) => {
                let mut under = by_rule(set, no, domain, &explained, step.cost);
                if matches!(step.under, Under::Replaced(_)) {
                    under.replaced_by = replaced_by(set, &plan, place, set.rule(no));
                    under.first = None;
                }
                Some(under)
            }
        };
        // A list decides before any limit is asked.
        let under = under.map(|under| match plan.listed() {
            Some(_) => UnderRule { first: None, ..under },
            None => under,
        });
        let Explained { looks, end } = explained;
        descriptors.push(One { text, looks, end, why_not, under, cost: step.cost });
    }
    let listed = plan.listed().map(|listed| {
        let (descriptor, place) = listed.at;
        let entry = request.descriptors[descriptor].entries[place];
        OnList { list: listed.list, descriptor, entry: format!("{}={}", entry.key, entry.value) }
    });
    let known = good.loaded.domains.iter().map(|domain| domain.name.as_str());
    let unknown_domain = match plan.domain() {
        DomainIs::Known => None,
        DomainIs::Unknown => Some(unknown_domain(request.domain, known)),
    };
    let verdict = verdict(listed.as_ref(), &descriptors);
    let (domain, hits) = (request.domain, request.hits);
    Told { domain, hits, unknown_domain, listed, descriptors, verdict }
}

fn by_rule<'a>(
    set: &'a RuleSet,
    no: RuleNo,
    domain: Option<&'a Domain>,
    explained: &Explained<'_>,
    cost: u64,
) -> UnderRule<'a> {
    let rule = set.rule(no);
    let placed = domain.map(|domain| Placed {
        domain: &domain.name,
        nodes: followed(domain, &explained.looks),
        rule,
    });
    let counter = match rule.limits {
        Limits::Unlimited => Vec::new(),
        _ => counter(set.domain_of(no), &explained.looks),
    };
    UnderRule {
        id: set.id(no),
        came_with: None,
        placed,
        counter,
        replaced_by: None,
        quota_mode: rule.quota_mode,
        first: Some(first(&rule.limits, rule.mode, cost)),
    }
}

fn came_with<'a>(limit: Override, cost: u64, request: &Request<'a>, place: usize) -> UnderRule<'a> {
    let Override { requests_per_unit, unit } = limit;
    let mut counter = vec![request.domain.to_owned()];
    let entries = request.descriptors[place].entries.iter();
    counter.extend(entries.map(|entry| format!("{}={}", entry.key, entry.value)));
    UnderRule {
        id: "the limit that came with it".to_owned(),
        came_with: Some(limit),
        placed: None,
        counter,
        replaced_by: None,
        quota_mode: false,
        first: Some(first(&Limits::Envoy { requests_per_unit, unit }, Mode::Hard, cost)),
    }
}

/// Whose counter it is, as far as a person wants to know.
fn counter(domain: &str, looks: &[Look<'_>]) -> Vec<String> {
    let mut parts = vec![domain.to_owned()];
    for look in looks {
        let (key, value) = (look.entry.key, look.entry.value);
        let part = match look.met.as_ref().map(|met| (&met.counted_as, &met.node)) {
            Some((Some(shared), node)) if shared == node => format!("{node} (shared by all of it)"),
            Some((Some(network), _)) => format!("{key} in {network}"),
            _ => format!("{key}={value}"),
        };
        parts.push(part);
    }
    parts
}

/// The rule of the request that replaces this one.
fn replaced_by(set: &RuleSet, plan: &Plan, place: usize, rule: &Rule) -> Option<String> {
    let name = rule.name.as_ref()?;
    let others = plan.steps().iter().enumerate().filter(|(other, _)| *other != place);
    let mut rules = others.filter_map(|(_, step)| match step.under {
        Under::Rule(no) | Under::Replaced(no) => Some(no),
        Under::Nothing | Under::Override(_) => None,
    });
    rules.find(|no| set.rule(*no).replaces().contains(name)).map(|no| set.id(no))
}

/// All must agree; those in quota mode deny together or not at all.
fn verdict(listed: Option<&OnList>, descriptors: &[One<'_>]) -> Answer {
    match listed {
        Some(OnList { list: List::Deny, entry, .. }) => {
            let why = format!("denied: `{entry}` is on the deny list");
            return Answer { allowed: false, why };
        }
        Some(OnList { list: List::Allow, entry, .. }) => {
            let why = format!("allowed, not counted: `{entry}` is on the allow list");
            return Answer { allowed: true, why };
        }
        None => {}
    }
    let asked = || {
        let under = descriptors.iter().filter_map(|one| one.under.as_ref());
        under.filter_map(|under| Some((under, under.first.as_ref()?)))
    };
    let mut quotas = asked().filter(|(under, _)| under.quota_mode);
    let all_quotas_deny = quotas.all(|(_, first)| !first.allowed);
    let mut denials = asked().filter(|(_, first)| !first.allowed);
    if let Some((under, first)) = denials.find(|(under, _)| !under.quota_mode || all_quotas_deny) {
        let why = format!("{} by {}: {}", first.word, under.id, first.more);
        return Answer { allowed: false, why };
    }
    let counted = asked().any(|(_, first)| first.remaining.is_some());
    let why = match (counted, asked().next()) {
        (true, _) => "allowed",
        (false, Some(_)) => "allowed, not counted: it is unlimited",
        (false, None) => "allowed, not counted: nothing limits it",
    };
    Answer { allowed: true, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate::Engine;
    use sluicegate::clock::ManualClock;
    use sluicegate_config::rules::{Options, Source, load};
    use sluicegate_core::time::Timestamp;
    use sluicegate_rules::request::{Descriptor, Entry};

    const QUOTAS: &str = "domain: quotas\ndescriptors:\n\
        - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }\n\
        - { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 5 } }\n\
        - { key: c, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }\n\
        - { key: d, rate_limit: { unlimited: true } }\n";

    fn good() -> Good {
        let texts = [
            include_str!("../../../../docs/examples/shop.yaml"),
            include_str!("../../../../docs/examples/envoy.yaml"),
            QUOTAS,
        ];
        let source = |text: &str| Source { name: "test".to_owned(), text: text.to_owned() };
        let loaded = load(&texts.map(source), &Options::default()).unwrap();
        let set = RuleSet::new(loaded.domains.clone()).unwrap();
        Good { loaded, set }
    }

    /// What is said about a first request is what the engine says to it.
    #[test]
    fn a_first_request_gets_what_is_promised() {
        let good = good();
        let table: [(&str, &[&str], u64, bool); 16] = [
            ("shop", &["report=7"], 1, true),
            ("shop", &["user_id=42"], 1, true),
            ("shop", &["user_id=42"], 50, true),
            ("shop", &["user_id=42"], 51, false),
            ("shop", &["user_id=mallory"], 1, false),
            ("shop", &["user_id=mallory", "remote_address=10.0.0.1"], 1, false),
            ("shop", &["user_id=42", "remote_address=10.0.0.1"], 60, true),
            ("shop", &["remote_address=192.0.2.7"], 660, true),
            ("shop", &["remote_address=192.0.2.7"], 661, false),
            ("shop", &["unknown=1"], 1, true),
            ("nowhere", &["user_id=42"], 1, true),
            ("edge", &["remote_address=192.0.2.7", "user_id=42"], 101, false),
            ("quotas", &["a=1"], 1, false),
            ("quotas", &["a=1", "b=1"], 1, true),
            ("quotas", &["c=1"], 1, true),
            ("quotas", &["d=1"], 1_000, true),
        ];
        for (domain, texts, hits, allowed) in table {
            let pairs: Vec<[Entry<'_>; 1]> = texts
                .iter()
                .map(|text| text.split_once('=').unwrap())
                .map(|(key, value)| [Entry::new(key, value)])
                .collect();
            let descriptors: Vec<Descriptor<'_>> =
                pairs.iter().map(|entries| Descriptor::of(entries)).collect();
            let request = Request { domain, descriptors: &descriptors, hits };
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let told = told(&good, &request, &texts);
            let set = RuleSet::new(good.loaded.domains.clone()).unwrap();
            let clock = ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000));
            let checked = Engine::builder(set).clock(clock).build().unwrap().check(&request);
            let all = (told.verdict.allowed, checked.allowed);
            assert_eq!(all, (allowed, allowed), "{domain} {texts:?} {hits}: {}", told.verdict.why);
            for (one, status) in told.descriptors.iter().zip(&checked.statuses) {
                let first = one.under.as_ref().and_then(|under| under.first.as_ref());
                if let Some(first) = first.filter(|_| allowed) {
                    assert_eq!(first.remaining, status.verdict.remaining, "{texts:?}");
                }
            }
        }
    }
}
