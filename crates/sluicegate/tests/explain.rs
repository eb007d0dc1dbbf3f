//! What is explained is what happens: to the next request, by the rules and the counters as they are.

#![cfg(feature = "explain")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_model_support;
mod engine_support;

use std::collections::BTreeSet;

use engine_model_support::anything::{Asked, rule_set};
use engine_model_support::changes::{Deed, deeds, edited};
use engine_model_support::model::Want;
use engine_support::{ask_in, check, engine, told};
use proptest::prelude::*;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use serde_json::Value;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::config::rules::{Options, Source, load};
use sluicegate::explain::explain;
use sluicegate::rules::domain::Domain;
use sluicegate::rules::request::Request;
use sluicegate::rules::set::RuleSet;
use sluicegate::{Checked, Engine, Span, Verdict};

const MORE: &str = "domain: quotas\ndescriptors:\n\
    - { key: a, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }\n\
    - { key: b, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 5 } }\n\
    - { key: c, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }\n\
    - { key: d, rate_limit: { unlimited: true } }\n\
    - { key: e, rate_limit: { name: e, unit: day, requests_per_unit: 0 } }\n\
    - { key: f, rate_limit: { unit: day, requests_per_unit: 9, replaces: [{ name: e }] } }\n";

/// The rules of the documentation, and what is not among them.
fn examples() -> Vec<Domain> {
    let texts = [
        include_str!("../../../docs/examples/shop.yaml"),
        include_str!("../../../docs/examples/envoy.yaml"),
        MORE,
    ];
    let source = |text: &str| Source { name: "test".to_owned(), text: text.to_owned() };
    load(&texts.map(source), &Options::default()).unwrap().domains
}

fn engine_of(domains: &[Domain], clock: &ManualClock) -> Engine {
    let rules = RuleSet::new(domains.to_vec()).unwrap();
    Engine::builder(rules).clock(clock.clone()).build().unwrap()
}

fn explained(engine: &Engine, request: &Request<'_>) -> Value {
    let told = explain(&engine.snapshot(), request, engine.now());
    let json = told.to_json();
    assert_eq!((&json["allowed"], &json["why"]), (&told.allowed().into(), &told.why().into()));
    assert!(told.to_text().ends_with(&format!("now: {}\n", json["why"].as_str().unwrap())));
    json
}

/// Explains a request and then makes it: the answer is the one that was told, for all of it and for each descriptor.
fn explain_and_check(engine: &Engine, request: &Request<'_>) -> Checked {
    let told = explained(engine, request);
    let checked = engine.check(request);
    assert_eq!(told["allowed"], checked.allowed, "{request:?}: {told:#}");
    let word = if checked.allowed { "allowed" } else { "denied" };
    assert!(told["why"].as_str().unwrap().contains(word), "{request:?}: {told:#}");
    for (one, status) in told["descriptors"].as_array().unwrap().iter().zip(&checked.statuses) {
        let now = &one["under"]["now"];
        if !now.is_null() {
            assert_eq!(now["allowed"], status.verdict.is_allowed(), "{request:?}: {told:#}");
            let says = |words: &str| now["in_words"].as_str().unwrap().contains(words);
            // Who asks for nothing goes above nothing, whatever was asked for the same counter before.
            if checked.allowed && one["cost"] != 0 {
                let Verdict { soft, elastic, .. } = status.verdict;
                assert_eq!(says("it is soft"), soft, "{request:?}: {told:#} {status:?}");
                // Not the other way round: spare capacity may also bring a turn forward, within the limit.
                assert!(elastic || !says("spare capacity"), "{request:?}: {told:#} {status:?}");
            }
        }
    }
    checked
}

/// So many cases, the same ones every time; `PROPTEST_CASES` asks for more, and for others each time.
fn cases(at_least: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(5) } else { RngSeed::Random },
        ..ProptestConfig::default()
    }
}

/// A domain, and descriptors as `ask_in` reads them; what time passes before it.
fn asked() -> impl Strategy<Value = (&'static str, String, u64)> {
    let shop = vec![
        "user_id=42",
        "user_id=43",
        "user_id=mallory",
        "user_id=42,path=/login",
        "user_id=42,path=/other",
        "api_key=partner-a",
        "api_key=partner-b",
        "remote_address=10.0.0.1",
        "remote_address=192.0.2.7",
        "remote_address=2001:db8::1",
        "report=7",
        "unknown=1",
    ];
    let edge = vec![
        "remote_address=192.0.2.7",
        "remote_address=10.0.0.1",
        "user_id=42",
        "user_id=42,path=/login",
        "user_id=42,path=/",
        "user_id=42,path=/ limit=3/second",
        "user_id=42,path=/ limit=2/second",
    ];
    let quotas = vec!["a=1", "b=1", "c=1", "d=1", "e=1", "f=1"];
    let request = |domain: &'static str, all: Vec<&'static str>| {
        let hits = prop_oneof![6 => Just(1u64), 2 => 0u64..4, 1 => 40u64..700];
        let one =
            (prop::sample::select(all), hits).prop_map(|(one, hits)| format!("{one} x{hits}"));
        prop::collection::vec(one, 1..4).prop_map(move |all| (domain, all.join("|")))
    };
    let request = prop_oneof![
        4 => request("shop", shop),
        3 => request("edge", edge),
        2 => request("quotas", quotas),
        1 => request("nowhere", vec!["user_id=42"]),
    ];
    let passes = prop_oneof![4 => Just(0u64), 2 => 0u64..500, 1 => 0u64..90_000];
    (request, passes).prop_map(|((domain, all), passes)| (domain, all, passes))
}

proptest! {
    #![proptest_config(cases(64))]

    /// One engine is asked before every check and another never: both give the same answers, so nothing was counted.
    #[test]
    fn the_next_request_gets_what_was_told(all in prop::collection::vec(asked(), 1..60)) {
        let (clock, domains) = (ManualClock::new(), examples());
        let (engine, other) = (engine_of(&domains, &clock), engine_of(&domains, &clock));
        for (domain, text, millis) in all {
            clock.set(clock.now().after(Span::from_millis(millis)));
            let said = ask_in(domain, &text, |request| explain_and_check(&engine, request));
            let unasked = ask_in(domain, &text, |request| other.check(request));
            prop_assert_eq!(&said.statuses, &unasked.statuses, "{} {}", domain, text);
        }
    }

    /// The same with any rules, while they change.
    #[test]
    fn also_under_rules_that_nobody_would_write(domains in rule_set(), deeds in deeds()) {
        let clock = ManualClock::new();
        let (engine, other) = (engine_of(&domains, &clock), engine_of(&domains, &clock));
        let mut domains = domains;
        for deed in deeds {
            match deed {
                Deed::Ask(want, asked) => compare(&engine, &other, want, &asked.aimed(&domains)),
                Deed::Advance(us) => clock.set(clock.now().after(Span::from_micros(us))),
                Deed::Load(load) => [&engine, &other].into_iter().for_each(|one| one.set_load(load)),
                Deed::Edit(edits) => {
                    domains = edited(domains, &edits);
                    for one in [&engine, &other] {
                        one.reload(RuleSet::new(domains.clone()).unwrap()).unwrap();
                    }
                }
                Deed::Back(_) | Deed::Replace(_) | Deed::Sweep | Deed::Restart(_) => {}
            }
        }
    }
}

fn compare(engine: &Engine, other: &Engine, want: Want, asked: &Asked) {
    let (said, unasked) = match want {
        Want::Refund => {
            let refund = |engine: &Engine| asked.with(|request| engine.refund(request));
            (refund(engine), refund(other))
        }
        Want::Reset => {
            let reset = |engine: &Engine| asked.with(|request| engine.reset(request));
            (reset(engine), reset(other))
        }
        Want::Check | Want::Peek => (
            asked.with(|request| explain_and_check(engine, request)),
            asked.with(|request| other.check(request)),
        ),
    };
    assert_eq!(said.statuses, unasked.statuses, "{asked:?}");
}

#[test]
fn nothing_is_counted() {
    let (engine, _clock) = engine(
        "domain: shop\ndescriptors:\n\
         - { key: user, limits: { algorithm: fixed_window, rate: 1/year } }\n\
         - { key: ip, rate_limit: { unit: year, requests_per_unit: 1 } }\n",
    );
    for _ in 0..10 {
        ask_in("shop", "user=1|ip=1", |request| {
            assert_eq!(explained(&engine, request)["allowed"], true);
            Checked::default()
        });
    }
    assert_eq!(engine.memory().entries(), 0);
    assert_eq!(check(&engine, "user=1|ip=1"), "yes 0 0");
}

#[test]
fn a_running_engine_tells_what_stands_there() {
    let (engine, clock) = engine(
        "domain: shop\ndescriptors:\n\
         - key: user\n  \
           limits: { name: burst, algorithm: token_bucket, rate: 1/s, burst: 2 }\n",
    );
    let now = |hits: &str| {
        let mut told = Value::Null;
        ask_in("shop", &format!("user=1 {hits}"), |request| {
            told = explained(&engine, request);
            Checked::default()
        });
        told
    };
    assert_eq!(check(&engine, "user=1 x2"), "yes 0");
    let told = now("x1");
    assert_eq!(told["why"], "denied by shop/user: 0 left, and `burst` lets it pass after 1s");
    let said = &told["descriptors"][0]["under"]["now"];
    assert_eq!((&said["allowed"], &said["remaining"]), (&false.into(), &0.into()));
    assert_eq!((&said["retry_after_ms"], &said["reset_after_ms"]), (&1_000.into(), &2_000.into()));
    clock.advance(std::time::Duration::from_millis(999));
    assert_eq!(now("x1")["descriptors"][0]["under"]["now"]["retry_after_ms"], 1);
    clock.advance(std::time::Duration::from_millis(1));
    let told = now("x1");
    assert_eq!(told["allowed"], true);
    let said = &told["descriptors"][0]["under"]["now"];
    assert_eq!(said["in_words"], "allowed, 1 left of `burst` before it");
    assert_eq!(now("x3")["descriptors"][0]["under"]["now"]["max_cost"], 2);
}

#[test]
fn a_counter_that_is_named_twice_is_told_for_both() {
    let (engine, _clock) = engine(
        "domain: shop\ndescriptors:\n\
         - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }\n",
    );
    let text = "user=1 x2|user=1 x2|user=2 x2";
    let checked = ask_in("shop", text, |request| explain_and_check(&engine, request));
    assert_eq!(told(&checked), "no 1 0! 1");
    let (fresh, _clock) = self::engine(
        "domain: shop\ndescriptors:\n\
         - { key: user, rate_limit: { unit: year, requests_per_unit: 3 } }\n",
    );
    ask_in("shop", text, |request| {
        let told = explained(&fresh, request);
        let why = "always denied by shop/user: it costs 4, and the limit can hold at most 3";
        assert_eq!((&told["why"], &told["descriptors"][1]["cost"]), (&why.into(), &2.into()));
        Checked::default()
    });
}

/// Programs read this: nothing of it is renamed by chance.
#[test]
fn the_fields_of_the_json() {
    fn names(prefix: &str, value: &Value, all: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let name = format!("{prefix}.{name}");
                names(&name, value, all);
                all.insert(name);
            }),
            Value::Array(list) => list.iter().for_each(|one| names(prefix, one, all)),
            _ => {}
        }
    }
    let (engine, _clock) = engine(
        "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 3 } }]\n\
         ",
    );
    let mut all = BTreeSet::new();
    ask_in("shop", "user=1", |request| {
        let mut told = explained(&engine, request);
        // The rule is described elsewhere, and by `check` alike.
        told["descriptors"][0]["under"]["rule"] = Value::Null;
        names("", &told, &mut all);
        Checked::default()
    });
    let of = |prefix: &str, names: &str| {
        names.split(' ').map(|name| format!("{prefix}.{name}")).collect::<Vec<_>>()
    };
    let expected = [
        of("", "domain hits known_domain hint descriptors listed allowed why"),
        of(".descriptors", "descriptor looks end why_not cost under"),
        of(".descriptors.looks", "key value configured configured_more met"),
        of(".descriptors.looks.met", "node how counted_as"),
        of(".descriptors.under", "rule pools promise outage override counter replaced_by now"),
        of(
            ".descriptors.under.now",
            "allowed remaining wait_ms retry_after_ms estimated max_cost reset_after_ms in_words",
        ),
    ];
    assert_eq!(all, expected.into_iter().flatten().collect());
}
