//! One comparison of the compiled set with the naive matcher: for property tests and for the
//! fuzzer.

use std::collections::HashMap;

use super::naive::{self, Counted};
use super::rules::domain::{DescriptorConfig, Domain, ListEntry};
use super::rules::explain::TraceEnd;
use super::rules::plan::{Plan, Target};
use super::rules::request::{Descriptor, Entry, Request};
use super::rules::set::{Configured, RuleNo, RuleSet};
use super::trees::{Bytes, Entries};

const REQUESTS: usize = 8;

/// Panics if the set and the naive matcher disagree.
pub(super) fn check(bytes: &[u8]) {
    // Bytes of their own for the requests: a large tree would leave none.
    let (asking, written) = bytes.split_at(bytes.len() / 4);
    let (mut asking, mut written) = (Bytes(asking), Bytes(written));
    let domain = written.domain();
    let mut asked: Vec<Entries> = Vec::new();
    for _ in 0..REQUESTS {
        let entries = asking.entries(&domain);
        asked.push(asking.varied(&entries));
        asked.push(entries);
    }
    let set = match RuleSet::new(vec![domain.clone()]) {
        Ok(set) => set,
        Err(error) => {
            assert!(naive::has_twins(&domain), "{error}, but there are none in {domain:#?}");
            return;
        }
    };
    assert!(!naive::has_twins(&domain), "twins in {domain:#?}");

    let top: Vec<Configured<'_>> = set.domain("d").into_iter().flat_map(|d| set.top(d)).collect();
    compare_trees(&set, &domain.descriptors, &top);
    let asked: Vec<Vec<Entry<'_>>> = asked.iter().map(borrowed).collect();
    for entries in &asked {
        compare_ways(&domain, &set, entries);
    }
    compare_plans(&domain, &set, &asked);
}

fn borrowed(entries: &Entries) -> Vec<Entry<'_>> {
    entries.iter().map(|(key, value)| Entry::new(key, value)).collect()
}

/// The compiled tree reproduces the configured one.
fn compare_trees(set: &RuleSet, written: &[DescriptorConfig], read: &[Configured<'_>]) {
    assert_eq!(written.len(), read.len(), "{written:#?} {read:#?}");
    for (node, one) in written.iter().zip(read) {
        let listed = ListEntry { key: node.key.clone(), value: node.value.clone() };
        assert_eq!(one.to_string(), listed.to_string());
        assert_eq!((one.key(), one.counter()), (node.key.as_str(), node.counter));
        assert_eq!(one.rule().map(|no| set.rule(no)), node.rule.as_ref());
        if let Some(no) = one.rule() {
            let way = set.descriptors_to(no);
            assert_eq!(way.last().map(ToString::to_string), Some(one.to_string()));
            let way: Vec<String> = way.iter().map(ToString::to_string).collect();
            assert_eq!(set.path_of(no), format!("d/{}", way.join("/")));
        }
        compare_trees(set, &node.descriptors, &one.below().collect::<Vec<_>>());
    }
}

/// The same rule, and for each entry the same node for the same reason.
fn compare_ways(domain: &Domain, set: &RuleSet, entries: &[Entry<'_>]) {
    let expected = naive::find(domain, entries);
    let found = set.find("d", entries);
    let cost = |rule: &super::rules::rule::RuleConfig| rule.cost;
    assert_eq!(
        found.as_ref().map(|found| cost(found.rule)),
        expected.and_then(|node| node.rule.as_ref().map(cost)),
        "{entries:?} in {domain:#?}"
    );

    let descriptors = [Descriptor::of(entries)];
    let told = &set.explain(&Request { domain: "d", descriptors: &descriptors, hits: 1 })[0];
    let way = naive::way(domain, entries);
    let met: Vec<_> = told.looks.iter().filter_map(|look| look.met.as_ref()).collect();
    let kinds: Vec<_> = met.iter().map(|met| met.kind).collect();
    let expected_hows: Vec<_> = way.iter().map(|taken| taken.how).collect();
    assert_eq!(kinds, expected_hows, "{entries:?} in {domain:#?}");
    for (met, taken) in met.iter().zip(&way) {
        assert!(met.node.starts_with(&taken.node.key), "{met:?} is not {taken:?}");
    }
    let end = match (found.map(|found| found.no), entries.len(), way.last()) {
        (Some(no), ..) => TraceEnd::Rule(no),
        (None, 0, _) => TraceEnd::NoEntries,
        (None, all, Some(_)) if way.len() == all => TraceEnd::NoLimit,
        (None, _, Some(last)) if last.node.descriptors.is_empty() => TraceEnd::TooManyEntries,
        (None, ..) => TraceEnd::NoMatch,
    };
    assert_eq!(told.end, end, "{entries:?} in {domain:#?}");
}

/// As one request: the same lists, and exactly the counters of the naive matcher.
fn compare_plans(domain: &Domain, set: &RuleSet, asked: &[Vec<Entry<'_>>]) {
    let descriptors: Vec<_> = asked.iter().map(|entries| Descriptor::of(entries)).collect();
    let mut plan = Plan::default();
    set.plan(&Request { domain: "d", descriptors: &descriptors, hits: 1 }, &mut plan);
    let listed = plan.listed().map(|listed| (listed.list, listed.at));
    assert_eq!(listed, naive::listed(domain, asked), "{asked:?} in {domain:#?}");

    let mut by_bytes: HashMap<&[u8], (Vec<Counted>, RuleNo)> = HashMap::new();
    let mut by_rule: HashMap<RuleNo, Vec<Counted>> = HashMap::new();
    let mut seen: Vec<(Vec<Counted>, &[u8])> = Vec::new();
    for (step, entries) in plan.steps().iter().zip(asked) {
        let Some(counted) = naive::identity(domain, entries) else {
            assert!(matches!(step.target, Target::None(_)), "{entries:?} in {domain:#?}");
            continue;
        };
        let Target::Rule(no) = step.target else { panic!("{entries:?} in {domain:#?}") };
        let bytes = plan.identity(step);
        let known = by_bytes.entry(bytes).or_insert_with(|| (counted.clone(), no));
        assert_eq!(*known, (counted.clone(), no), "one identity for {entries:?} in {domain:#?}");
        for (other, identity) in &seen {
            assert_eq!(*other == counted, *identity == bytes, "{entries:?} in {domain:#?}");
        }
        if set.is_one_identity(no) {
            let one = by_rule.entry(no).or_insert_with(|| counted.clone());
            assert_eq!(*one, counted, "more than one identity for {entries:?} in {domain:#?}");
        }
        seen.push((counted, bytes));
    }
}
