//! The keys that envoyproxy/ratelimit counts on, worked out from our identities: see `anchor.rs` for where the cases come from.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod departures;

use serde_json::Value;
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::set::{RuleSet, write_envoy_key};
use sluicegate_rules::unit::Unit;

#[test]
fn every_counter_has_the_name_that_it_had_there() {
    let (mut count, mut shared, mut wrong) = (0, 0, Vec::new());
    for line in include_str!("../anchor/cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let Some(rules) = rules(&case).filter(|_| departures::reason(name).is_none()) else {
            continue;
        };
        for asked in case["requests"].as_array().into_iter().flatten() {
            let Some(theirs) = asked["rule"]["counter"].as_str() else { continue };
            count += 1;
            shared += usize::from(theirs.contains('*'));
            let ours = key(&rules, asked);
            if ours.as_deref() != Some(theirs) {
                wrong.push(format!("{name}: they `{theirs}`, we {ours:?}"));
            }
        }
    }
    assert!(departures::names().count() > 10);
    assert!(count > 600 && shared > 50, "only {count} keys, {shared} of them shared");
    assert!(wrong.is_empty(), "{} of {count} keys differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn rules(case: &Value) -> Option<RuleSet> {
    let merge_domains = case["merge"].as_bool().unwrap_or(false);
    let files = case["files"].as_object().unwrap().iter();
    let source = |(name, text): (&String, &Value)| Source {
        name: name.clone(),
        text: text.as_str().unwrap().to_owned(),
    };
    let sources: Vec<Source> = files.map(source).collect();
    let loaded = load(&sources, &Options { merge_domains, ..Options::default() });
    RuleSet::new(loaded.ok()?.domains).ok()
}

fn key(rules: &RuleSet, asked: &Value) -> Option<String> {
    let pairs = asked["entries"].as_array().unwrap();
    let texts: Vec<_> =
        pairs.iter().map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect();
    let entries: Vec<Entry<'_>> = texts.iter().map(|(key, value)| Entry::new(key, value)).collect();
    let unit = asked.get("override").map(|_| Override { requests_per_unit: 1, unit: Unit::Minute });
    let descriptor = Descriptor { limit: unit, ..Descriptor::of(&entries) };
    let (domain, mut plan) = (asked["domain"].as_str().unwrap(), Plan::default());
    rules.plan(&Request { domain, descriptors: &[descriptor], hits: 1 }, &mut plan);
    let step = plan.steps().first().filter(|step| !matches!(step.target, Target::None(_)))?;
    let mut key = Vec::new();
    write_envoy_key(plan.identity(step), &mut key);
    Some(String::from_utf8(key).unwrap())
}
