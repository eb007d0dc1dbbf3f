//! Replays recorded calls of envoyproxy/ratelimit on a Redis.
//!
//! `tests/anchor/redis.jsonl` records calls of that program (module version
//! v1.4.1-0.20260122083618-3fb702589d36) with the rules of `redis.yaml` and some of its settings,
//! its answers with their second, and the keys in Redis after each, with their counts and TTLs.

use serde_json::Value;
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_core::mode::Mode;
use sluicegate_rules::plan::{Plan, Target};
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::{RuleSet, write_envoy_key};
use sluicegate_rules::unit::Unit;
use sluicegate_testkit::redis::Single;

use super::{at, kept, link};
use crate::envoy::{EnvoyCheck, EnvoyCounters, EnvoyKeys, EnvoyOp};

const CASES: &str = include_str!("../../../../../tests/anchor/redis.jsonl");
const RULES: &str = include_str!("../../../../../tests/anchor/redis.yaml");

#[tokio::test]
async fn what_it_did_we_do() {
    let steps = replay(|_| true).await;
    assert!(steps > 60, "only {steps} steps");
}

/// As in a mixed fleet: the original serves every other request, and both share its keys.
#[tokio::test]
async fn between_each_two_of_its_requests_one_is_ours() {
    let (even, odd) = (replay(|step| step % 2 == 0).await, replay(|step| step % 2 == 1).await);
    assert!(even > 25 && odd > 25, "only {even} and {odd} steps");
}

/// Replays the selected steps of all cases and applies the recorded keys of the others. Returns the
/// number of replayed steps.
async fn replay(is_ours: impl Fn(usize) -> bool) -> usize {
    let rules = rules();
    let mut done = 0;
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (name, steps) = (case["name"].as_str().unwrap(), case["steps"].as_array().unwrap());
        let all_ours = (0..steps.len()).all(&is_ours);
        if !all_ours && !case["env"]["LOCAL_CACHE_SIZE_IN_BYTES"].is_null() {
            // What one process remembers the other does not.
            continue;
        }
        let (server, second) = (Single::start(), Single::start());
        let apart = case["env"]["REDIS_PERSECOND"] == "true";
        let per_second = apart.then(|| link(second.url()));
        let keys = settings(&case["env"]);
        let counters = EnvoyCounters::new(link(server.url()), per_second, keys.clone());
        for (number, step) in steps.iter().enumerate() {
            let there = [(&server, &step["keys"]), (&second, &step["keys_per_second"])];
            if is_ours(number) {
                compare(&counters, &rules, step, name).await;
                done += 1;
                there.iter().for_each(|(server, keys)| {
                    assert_kept(server, keys, counters.keys.jitter_max_s, name);
                });
            } else {
                there.iter().for_each(|(server, keys)| take_over(server, keys));
            }
        }
    }
    done
}

fn settings(env: &Value) -> EnvoyKeys {
    let number = |name: &str| env[name].as_str().map(|text| text.parse().unwrap());
    EnvoyKeys {
        prefix: env["CACHE_KEY_PREFIX"].as_str().unwrap_or_default().into(),
        jitter_max_s: number("EXPIRATION_JITTER_MAX_SECONDS").unwrap_or(300),
        stop_increment_when_over: env["STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"] == "true",
        local_cache_bytes: number("LOCAL_CACHE_SIZE_IN_BYTES").unwrap_or(0) as usize,
    }
}

fn rules() -> RuleSet {
    let sources = [Source { name: "redis.yaml".into(), text: RULES.into() }];
    RuleSet::new(load(&sources, &Options::default()).unwrap().domains).unwrap()
}

/// Repeats a recorded call at the same second, and compares the answers.
async fn compare(counters: &EnvoyCounters, rules: &RuleSet, step: &Value, name: &str) {
    let now_s = step["now_s"].as_u64().unwrap();
    let plan = plan(rules, &step["call"]);
    let limited = plan.steps().iter().enumerate().filter_map(|(place, step)| {
        let mut text = Vec::new();
        write_envoy_key(plan.identity(step), &mut text);
        limit_of(rules, step.target).map(|limit| (place, text, limit, step.cost))
    });
    let limited: Vec<_> = limited.collect();
    let ask = |(_, text, (unit, most, shadow), cost): &'_ (usize, Vec<u8>, _, u64)| {
        (text.clone(), *unit, *most, *shadow, *cost)
    };
    let owned: Vec<(Vec<u8>, Unit, u32, bool, u64)> = limited.iter().map(ask).collect();
    let asks: Vec<EnvoyCheck<'_>> = owned
        .iter()
        .map(|(text, unit, requests_per_unit, shadow, cost)| EnvoyCheck {
            text,
            unit: *unit,
            requests_per_unit: *requests_per_unit,
            shadow: *shadow,
            cost: *cost,
        })
        .collect();
    let verdicts = counters.apply(EnvoyOp::Hit, &asks, at(now_s)).await.unwrap();
    for ((place, ..), verdict) in limited.iter().zip(verdicts) {
        let theirs = &step["answer"]["statuses"][*place];
        let code = if verdict.is_allowed() { "OK" } else { "OVER_LIMIT" };
        let left = theirs["limitRemaining"].as_i64().unwrap_or(0);
        assert_eq!(
            (theirs["code"].as_str(), Some(left)),
            (Some(code), verdict.remaining),
            "{name}: {step}"
        );
        // Where nothing was counted there is nothing to reset.
        let reset = verdict.reset_after.as_micros() / 1_000_000;
        let theirs = theirs["durationUntilReset"].as_str().unwrap();
        assert!(reset == 0 || format!("{reset}s") == theirs, "{name}: {reset}, {step}");
    }
}

fn limit_of(rules: &RuleSet, target: Target) -> Option<(Unit, u32, bool)> {
    match target {
        Target::Override(limit) => Some((limit.unit, limit.requests_per_unit, false)),
        Target::Rule(no) => match rules.rule(no) {
            RuleConfig { limits: Limits::Envoy { requests_per_unit, unit }, mode, .. } => {
                Some((*unit, *requests_per_unit, *mode == Mode::Shadow))
            }
            _ => None,
        },
        Target::None(_) | Target::Replaced(_) => None,
    }
}

fn plan(rules: &RuleSet, call: &Value) -> Plan {
    let all = call["descriptors"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pairs: Vec<Vec<(String, String)>> = all
        .iter()
        .map(|one| {
            let entries = one["entries"].as_array().unwrap().iter();
            entries.map(|entry| (text(&entry["key"]), text(&entry["value"]))).collect()
        })
        .collect();
    let entries: Vec<Vec<Entry<'_>>> = pairs
        .iter()
        .map(|one| one.iter().map(|(key, value)| Entry::new(key, value)).collect())
        .collect();
    let descriptors: Vec<Descriptor<'_>> = all
        .iter()
        .zip(&entries)
        .map(|(one, entries)| Descriptor {
            entries,
            hits: one["hitsAddend"].as_str().map(|hits| hits.parse().unwrap()),
            limit: one["limit"].as_object().map(|limit| Override {
                requests_per_unit: limit["requestsPerUnit"].as_u64().unwrap().try_into().unwrap(),
                unit: Unit::of(limit["unit"].as_str().unwrap()).unwrap(),
            }),
            ..Descriptor::of(&[])
        })
        .collect();
    let mut plan = Plan::default();
    let (domain, hits) =
        (call["domain"].as_str().unwrap(), call["hitsAddend"].as_u64().unwrap_or(1));
    rules.plan(&Request { domain, descriptors: &descriptors, hits }, &mut plan);
    plan
}

/// The server has the same keys with the same counts; each has to live for as long as theirs, but
/// for chance and a few seconds that passed.
fn assert_kept(server: &Single, keys: &Value, jitter_s: u64, name: &str) {
    let ours = kept(server);
    let counts: Vec<_> = ours.iter().map(|(key, count, _)| (key.as_str(), *count)).collect();
    let none = serde_json::Map::new();
    let all = keys.as_object().unwrap_or(&none);
    let mut theirs: Vec<_> =
        all.iter().map(|(key, kept)| (key.as_str(), kept["value"].as_u64().unwrap())).collect();
    theirs.sort_unstable();
    assert_eq!(counts, theirs, "{name}");
    for (key, _, ttl) in &ours {
        let bounds = ttl_bounds(all[key]["ttl"].as_u64().unwrap(), jitter_s);
        assert!(bounds.contains(ttl), "{name}: {key} has {ttl} s to live, not {bounds:?}");
    }
}

/// Of the one unit that both could have drawn from.
fn ttl_bounds(theirs: u64, jitter_s: u64) -> std::ops::RangeInclusive<u64> {
    const SLACK_S: u64 = 60;
    let units = Unit::ALL.into_iter().map(|unit| unit.span().as_micros() / 1_000_000);
    let unit = units.filter(|unit| unit.saturating_sub(1) <= theirs).max().unwrap();
    assert!(theirs <= unit + jitter_s, "theirs is of no unit");
    unit.saturating_sub(SLACK_S)..=unit + jitter_s.saturating_sub(1)
}

fn take_over(server: &Single, keys: &Value) {
    for (key, kept) in keys.as_object().into_iter().flatten() {
        let (count, ttl) = (kept["value"].to_string(), kept["ttl"].to_string());
        server.cli(&["SET", key, &count, "EX", &ttl]);
    }
}
