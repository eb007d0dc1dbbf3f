//! What envoyproxy/ratelimit answered, asked of us.
//!
//! `anchor/cases.jsonl` holds 769 configurations of ours, the requests that were asked of each, and what that program made of them when it was run
//! (module version v1.4.1-0.20260122083618-3fb702589d36, with its own Redis code on a store in memory and the clock at 1,000,000,000 s): whether it took the
//! files and what it said if not, which rule it found for each request, which of them shared a counter, and what it answered to calls.
//! Where we differ on purpose, `departures` says why; a departure that is none any more fails too.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, Outcome, Stats};
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_rules::plan::Target;
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::{MatchedRule, RuleNo, RuleSet};
use sluicegate_rules::unit::Unit;

mod departures;

/// The clock stood here.
const NOW_S: u64 = 1_000_000_000;

#[test]
fn we_answer_as_it_did_or_say_why_not() {
    let text = include_str!("../anchor/cases.jsonl");
    let mut differences: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        count += 1;
        let found = differences_of(&case);
        if !found.is_empty() {
            differences.insert(case["name"].as_str().unwrap().to_owned(), found);
        }
    }
    assert!(count > 700, "only {count} cases");
    let mut wrong = Vec::new();
    for (name, found) in &differences {
        if departures::reason(name).is_none() {
            wrong.push(format!("{name}:\n    {}", found.join("\n    ")));
        }
    }
    for name in departures::names() {
        if !differences.contains_key(name) {
            wrong.push(format!("{name}: is no departure any more; take it off the list"));
        }
    }
    let few = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} cases differ:\n{few}", wrong.len());
}

/// `anchor/stats.jsonl` holds what it counted meanwhile, by the names of its metrics.
#[test]
fn we_count_as_it_did_or_say_why_not() {
    let counted: HashMap<String, Value> = include_str!("../anchor/stats.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|case| (case["name"].as_str().unwrap().to_owned(), case["counted"].clone()))
        .collect();
    let (mut count, mut wrong) = (0, Vec::new());
    for line in include_str!("../anchor/cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let Some(theirs) = counted.get(name) else { continue };
        count += 1;
        let (ours, theirs) = counts_of(&case, theirs);
        if ours != theirs && departures::reason(name).is_none() {
            wrong.push(format!("{name}: they {theirs:?}, we {ours:?}"));
        }
    }
    assert_eq!(count, counted.len(), "every case is known");
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn differences_of(case: &Value) -> Vec<String> {
    let merge_domains = case["merge"].as_bool().unwrap_or(false);
    let loaded = load(&sources_of(case), &Options { merge_domains, ..Options::default() });
    match (case.get("errors"), loaded) {
        (Some(errors), Err(invalid)) => message_difference(errors, &invalid.to_string()),
        (Some(errors), Ok(_)) => vec![format!("we take it, they said {errors}")],
        (None, Err(invalid)) => vec![format!("they take it, we say {invalid}")],
        (None, Ok(loaded)) => {
            let rules = RuleSet::new(loaded.domains).unwrap();
            let mut found = request_differences(case, &rules);
            found.extend(call_differences(case, rules));
            found
        }
    }
}

fn sources_of(case: &Value) -> Vec<Source> {
    let files = case["files"].as_object().unwrap().iter();
    files
        .map(|(name, text)| Source { name: name.clone(), text: text.as_str().unwrap().to_owned() })
        .collect()
}

/// One of their texts must be found in ours; of what their parser of YAML said, that it was that.
fn message_difference(errors: &Value, ours: &str) -> Vec<String> {
    let theirs: Vec<&str> =
        errors.as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    let found = |their: &&str| {
        let text = their.split_once(": ").map_or(*their, |(_, text)| text);
        let parser = "error loading config file: yaml";
        ours.contains(if text.starts_with(parser) { "error loading config file" } else { text })
    };
    if theirs.iter().any(found) {
        return Vec::new();
    }
    vec![format!("they said {theirs:?}, we say {ours}")]
}

// === which rule ===

fn request_differences(case: &Value, rules: &RuleSet) -> Vec<String> {
    let mut found = Vec::new();
    // Whose counter it is, by us and by them: who shares one here must share one there.
    let mut counters: HashMap<Vec<u8>, Value> = HashMap::new();
    for asked in case["requests"].as_array().into_iter().flatten() {
        let (domain, texts) = (asked["domain"].as_str().unwrap(), entries_of(&asked["entries"]));
        let entries: Vec<Entry<'_>> = texts.iter().map(|(k, v)| Entry::new(k, v)).collect();
        if asked.get("override").is_some() {
            continue;
        }
        let ours = rules.find(domain, &entries).map(|found| {
            let stat = stat_key(rules, domain, &entries, &found);
            (described(found.rule, &stat), found.path)
        });
        let theirs = asked["rule"].as_object().map(|rule| {
            let mut rule = rule.clone();
            let counter = rule.remove("counter");
            (Value::Object(rule).to_string(), counter)
        });
        let same = match (&ours, &theirs) {
            (None, None) => true,
            (Some((ours, _)), Some((theirs, _))) => sorted(ours) == sorted(theirs),
            _ => false,
        };
        if !same {
            let ours = ours.as_ref().map(|(text, _)| text);
            found.push(format!("{domain} {texts:?}: they {theirs:?}, we {ours:?}"));
            continue;
        }
        if let (Some((_, way)), Some((_, Some(counter)))) = (&ours, &theirs) {
            let mut identity = Vec::new();
            rules.write_identity(rules.domain(domain).unwrap(), &entries, way, &mut identity);
            let known = counters.entry(identity).or_insert_with(|| counter.clone());
            if known != counter {
                found.push(format!("{domain} {texts:?}: shares a counter with us, not with them"));
            }
        }
    }
    found
}

fn entries_of(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    value.as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn described(rule: &RuleConfig, stat: &str) -> String {
    let mut told = serde_json::Map::new();
    told.insert("stat".into(), stat.into());
    match &rule.limits {
        Limits::Unlimited => told.insert("unlimited".into(), true.into()),
        Limits::Envoy { requests_per_unit, unit } => {
            let unit = unit.name().to_uppercase();
            told.insert("limit".into(), format!("{requests_per_unit}/{unit}").into())
        }
        Limits::Native(_) => told.insert("native".into(), true.into()),
    };
    let flags = [
        ("shadow_mode", rule.mode == sluicegate::Mode::Shadow),
        ("quota_mode", rule.quota_mode),
        ("detailed_metric", rule.detailed_metric),
    ];
    for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
        told.insert(name.into(), true.into());
    }
    if let Some(name) = &rule.name {
        told.insert("name".into(), (**name).into());
    }
    if !rule.replaces().is_empty() {
        let names: Vec<Value> = rule.replaces().iter().map(|name| (**name).into()).collect();
        told.insert("replaces".into(), names.into());
    }
    Value::Object(told).to_string()
}

fn sorted(text: &str) -> BTreeMap<String, Value> {
    serde_json::from_str(text).unwrap()
}

// === what is answered ===

fn call_differences(case: &Value, rules: RuleSet) -> Vec<String> {
    let Some(calls) = case["calls"].as_array() else { return Vec::new() };
    // Settings of the process are not the rules' business.
    if case.get("env").is_some() {
        return Vec::new();
    }
    let clock = ManualClock::new();
    clock.set(sluicegate::Timestamp::from_micros(NOW_S * 1_000_000));
    let engine = Engine::builder(rules).clock(clock).build().unwrap();
    let mut found = Vec::new();
    for (place, both) in calls.iter().enumerate() {
        let (call, theirs) = (&both["call"], &both["answer"]["response"]);
        // An error of the service, or a crash.
        if theirs.is_null() {
            continue;
        }
        match answer(&engine, call) {
            Some(ours) if ours == expected(theirs) => {}
            ours => found.push(format!("call {place}: they {:?}, we {ours:?}", expected(theirs))),
        }
    }
    found
}

/// The code of the whole and of each descriptor, with what is left and until when.
type Told = (String, Vec<(String, u64, u64)>);

fn expected(response: &Value) -> Told {
    let status = |status: &Value| {
        let left = status["limitRemaining"].as_u64().unwrap_or(0);
        let until = status["durationUntilReset"].as_str().unwrap_or("0s").trim_end_matches('s');
        (status["code"].as_str().unwrap().to_owned(), left, until.parse().unwrap())
    };
    let statuses = response["statuses"].as_array().into_iter().flatten().map(status).collect();
    (response["overallCode"].as_str().unwrap().to_owned(), statuses)
}

fn answer(engine: &Engine, call: &Value) -> Option<Told> {
    let described: Vec<&Value> = call["descriptors"].as_array().into_iter().flatten().collect();
    let texts: Vec<Vec<(String, String)>> =
        described.iter().map(|one| entries_of(&one["entries"])).collect();
    let entries: Vec<Vec<Entry<'_>>> = texts
        .iter()
        .map(|one| one.iter().map(|(key, value)| Entry::new(key, value)).collect())
        .collect();
    let mut descriptors = Vec::new();
    for (one, entries) in described.iter().zip(&entries) {
        let limit = match one.get("override") {
            None | Some(Value::Null) => None,
            Some(limit) => Some(Override {
                requests_per_unit: u32::try_from(limit["requests_per_unit"].as_u64()?).ok()?,
                unit: Unit::of_number(i32::try_from(limit["unit"].as_i64()?).ok()?)?,
            }),
        };
        descriptors.push(Descriptor {
            hits: one["hits_addend"].as_u64(),
            limit,
            ..Descriptor::of(entries)
        });
    }
    let hits = call["hits_addend"].as_u64().filter(|hits| *hits > 0).unwrap_or(1);
    let domain = call["domain"].as_str().unwrap();
    let checked = engine.check(&Request { domain, descriptors: &descriptors, hits });
    let rules = engine.snapshot();
    let code = |allowed: bool| if allowed { "OK" } else { "OVER_LIMIT" }.to_owned();
    let statuses = checked.statuses.iter().map(|status| {
        let unlimited = match status.target {
            Target::Rule(no) | Target::Replaced(no) => {
                rules.rules().rule(no).limits == Limits::Unlimited
            }
            Target::None(_) | Target::Override(_) => false,
        };
        let counted = status.verdict.remaining.is_some();
        let left = match status.verdict.remaining {
            Some(left) => u64::try_from(left).unwrap_or(0),
            None if unlimited => u64::from(u32::MAX),
            None => 0,
        };
        let until = if counted { unit_of(status.target, rules.rules()) } else { 0 };
        (
            code(!matches!(status.verdict.outcome, Outcome::Deny { .. } | Outcome::Never { .. })),
            left,
            until,
        )
    });
    Some((code(checked.allowed), statuses.collect()))
}

/// How long until the unit is over, in whole seconds.
fn unit_of(target: Target, rules: &RuleSet) -> u64 {
    let unit = match target {
        Target::Rule(no) => match &rules.rule(no).limits {
            Limits::Envoy { unit, .. } => *unit,
            _ => return 0,
        },
        Target::Override(limit) => limit.unit,
        Target::None(_) | Target::Replaced(_) => return 0,
    };
    let length = Duration::from_micros(unit.span().as_micros()).as_secs();
    length - NOW_S % length
}

// === what is counted ===

/// What we count of a case, and what they did: by rule, and together under the last key what no rule of ours is called.
fn counts_of(case: &Value, theirs: &Value) -> (Counts, Counts) {
    let rules =
        RuleSet::new(load(&sources_of(case), &Options::default()).unwrap().domains).unwrap();
    let clock = ManualClock::new();
    clock.set(sluicegate::Timestamp::from_micros(NOW_S * 1_000_000));
    let engine = Engine::builder(rules).clock(clock).build().unwrap();
    let mut called: HashMap<String, RuleNo> = HashMap::new();
    for both in case["calls"].as_array().unwrap() {
        let _ = answer(&engine, &both["call"]);
        called.extend(stat_names(&both["call"], engine.snapshot().rules()));
    }
    let snapshot = engine.snapshot();
    let mut ours = Counts::new();
    for no in snapshot.rules().rules() {
        add(&mut ours, Some(no.index()), snapshot.stats(no));
    }
    add(&mut ours, None, snapshot.override_stats());
    let mut due = Counts::new();
    for (name, counted) in theirs.as_object().unwrap() {
        let count = |name| counted[name].as_u64().unwrap_or(0);
        let stats = Stats {
            total_hits: count("total_hits"),
            over_limit: count("over_limit"),
            near_limit: count("near_limit"),
            within_limit: count("within_limit"),
            shadow_mode: count("shadow_mode"),
        };
        add(&mut due, called.get(name).map(|no| no.index()), stats);
    }
    (ours, due)
}

type Counts = BTreeMap<Option<usize>, [u64; 5]>;

fn add(counts: &mut Counts, place: Option<usize>, stats: Stats) {
    let Stats { total_hits, over_limit, near_limit, within_limit, shadow_mode } = stats;
    let all = [total_hits, over_limit, near_limit, within_limit, shadow_mode];
    if all.iter().any(|count| *count > 0) {
        let sums = counts.entry(place).or_default();
        sums.iter_mut().zip(all).for_each(|(sum, count)| *sum += count);
    }
}

/// The name of a rule and of values in metrics.
fn stat_key(
    rules: &RuleSet,
    domain: &str,
    entries: &[Entry<'_>],
    found: &MatchedRule<'_>,
) -> String {
    let (mut identity, mut key) = (Vec::new(), String::new());
    rules.write_identity(rules.domain(domain).unwrap(), entries, &found.path, &mut identity);
    rules.write_stat_key(found.no, &identity, &mut key);
    key
}

/// What their metrics call the rules that a call is under.
fn stat_names(call: &Value, rules: &RuleSet) -> Vec<(String, RuleNo)> {
    let mut names = Vec::new();
    let plain = |one: &&Value| matches!(one.get("override"), None | Some(Value::Null));
    for one in call["descriptors"].as_array().into_iter().flatten().filter(plain) {
        let texts = entries_of(&one["entries"]);
        let entries: Vec<Entry<'_>> = texts.iter().map(|(k, v)| Entry::new(k, v)).collect();
        let domain = call["domain"].as_str().unwrap();
        if let Some(found) = rules.find(domain, &entries) {
            let name = stat_key(rules, domain, &entries, &found);
            names.push((name.replace([':', '|'], "_"), found.no));
        }
    }
    names
}
