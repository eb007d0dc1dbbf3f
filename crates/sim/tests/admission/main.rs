//! One admission rule for every store: requests under rules of mixed form, mode, quota mode and
//! failure policy get the answers of a naive model, and leave its counters behind, on the memory
//! store, on Redis, without Redis, and on a Redis whose replies arrive too late.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod model;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use model::{Form, Model, Policy, Reply, RuleSpec, StoreState};
use proptest::prelude::*;
use sluicegate::backend::{self, Backend};
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Operation, Span, Timestamp, new_holder, rules_of};
use sluicegate_redis::{Link, RedisBackend, Store, StoreOptions};
use transport::FakeTransport;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const VALUES: [&str; 4] = ["ada", "bob", "banned", "vip"];

/// One request: which rules it names with which values, and its cost.
#[derive(Debug, Clone)]
struct Call {
    store: StoreState,
    descriptors: Vec<(usize, usize)>,
    hits: u64,
}

fn rule() -> impl Strategy<Value = RuleSpec> {
    let form = prop_oneof![2 => Just(Form::Native), 1 => Just(Form::Envoy)];
    let policy = prop_oneof![
        3 => Just(Policy::Local),
        1 => Just(Policy::Allow),
        2 => Just(Policy::Deny),
        1 => Just(Policy::Error),
    ];
    let shadow = prop::bool::weighted(0.2);
    let quota = prop::bool::weighted(0.25);
    (form, policy, shadow, quota, 1..5u64).prop_map(|(form, policy, shadow, quota, limit)| {
        RuleSpec { form, policy, shadow, quota, limit }
    })
}

fn call(rules: usize) -> impl Strategy<Value = Call> {
    let store = prop_oneof![
        3 => Just(StoreState::Up),
        2 => Just(StoreState::Down),
        2 => Just(StoreState::Late),
    ];
    let value = prop_oneof![8 => Just(0usize), 8 => Just(1), 1 => Just(2), 1 => Just(3)];
    let descriptors = prop::collection::vec((0..rules, value), 1..5);
    let hits = prop_oneof![6 => Just(1u64), 2 => Just(2), 1 => Just(0)];
    (store, descriptors, hits).prop_map(|(store, descriptors, hits)| Call {
        store,
        descriptors,
        hits,
    })
}

fn world() -> impl Strategy<Value = (Vec<RuleSpec>, Vec<Call>)> {
    prop::collection::vec(rule(), 1..5).prop_flat_map(|rules| {
        let calls = prop::collection::vec(call(rules.len()), 1..30);
        (Just(rules), calls)
    })
}

fn yaml(rules: &[RuleSpec]) -> String {
    let mut text = "domain: shop\nallow: [{ key: rule0, value: vip }]\n\
                    deny: [{ key: rule0, value: banned }]\ndescriptors:\n"
        .to_owned();
    for (number, rule) in rules.iter().enumerate() {
        text.push_str(&rule.yaml(number));
    }
    text
}

/// Sends a request to an engine: `Ok` with the overall answer and each status, `Err` for a store
/// error.
async fn send(engine: &Engine<dyn Backend>, call: &Call, now: Timestamp) -> Reply {
    let keys: Vec<String> =
        call.descriptors.iter().map(|(rule, _)| format!("rule{rule}")).collect();
    let entries: Vec<[Entry<'_>; 1]> = keys
        .iter()
        .zip(&call.descriptors)
        .map(|(key, (_, value))| [Entry::new(key, VALUES[*value])])
        .collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
    let request = Request { domain: "shop", descriptors: &descriptors, hits: call.hits };
    let mut checked = Checked::default();
    let rules = engine.snapshot();
    let call = backend::Call::new(&rules, &request, now);
    if engine.apply(Operation::Hit, call, &mut checked).await.is_err() {
        return Reply::StoreError;
    }
    let statuses = checked.statuses.iter().map(|status| status.verdict.is_allowed()).collect();
    Reply::Decided { allowed: checked.allowed, statuses }
}

/// Rules of every failure policy, in every form that takes another path through the backend.
const MIXED: &str = "
domain: shop
descriptors:
  - { key: shut, on_store_failure: deny, limits: { algorithm: fixed_window, rate: 3/year } }
  - { key: open, on_store_failure: allow, limits: { algorithm: fixed_window, rate: 3/year } }
  - { key: share, on_store_failure: local, limits: { algorithm: fixed_window, rate: 1/year } }
  - { key: strict, on_store_failure: error, limits: { algorithm: fixed_window, rate: 3/year } }
  - { key: envoy, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: shut_quota, on_store_failure: deny, quota_mode: true, limits: { algorithm: fixed_window, rate: 3/year } }
  - { key: quota, on_store_failure: error, quota_mode: true, limits: { algorithm: fixed_window, rate: 3/year } }
  - { key: eventual, consistency: eventual, on_store_failure: error, limits: { algorithm: fixed_window, rate: 3/year } }
";

/// A request with one descriptor for each key, under an operation: the statuses of a denial.
async fn apply(
    engine: &Engine<dyn Backend>,
    operation: &str,
    keys: &str,
) -> Result<Option<Vec<bool>>, String> {
    let entries: Vec<[Entry<'_>; 1]> =
        keys.split(' ').map(|key| [Entry::new(key, "ada")]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let rules = engine.snapshot();
    let call = backend::Call::new(&rules, &request, engine.now());
    let (mut checked, second) = (Checked::default(), Span::from_secs(1));
    let result = match operation {
        "hit" => engine.apply(Operation::Hit, call, &mut checked).await.map_err(|e| e.to_string()),
        "peek" => {
            engine.apply(Operation::Peek, call, &mut checked).await.map_err(|e| e.to_string())
        }
        "reserve" => {
            let reserved = engine.reserve(call, new_holder(), second, &mut checked).await;
            reserved.map_err(|error| error.to_string())
        }
        _ => {
            let waited = engine.wait(&request, new_holder(), second).await;
            waited.map(|waited| checked = waited.checked).map_err(|error| error.to_string())
        }
    };
    let statuses = checked.statuses.iter().map(|status| status.verdict.is_allowed());
    result.map(|()| (!checked.allowed).then(|| statuses.collect()))
}

#[test]
fn a_known_denial_stands_beside_rules_that_fail() {
    const ALL: &[&str] = &["hit", "peek", "reserve", "wait"];
    const CHECKS: &[&str] = &["hit", "peek"];
    type Case<'a> = (&'a [&'a str], &'a str, Option<&'a [bool]>);
    // Statuses of a denial; none for an error.
    let table: &[Case<'_>] = &[
        (ALL, "shut", Some(&[false])),
        (ALL, "strict", None),
        (ALL, "shut strict", Some(&[false, true])),
        (ALL, "strict shut", Some(&[true, false])),
        (CHECKS, "shut envoy", Some(&[false, true])),
        (CHECKS, "envoy shut", Some(&[true, false])),
        (CHECKS, "eventual shut", Some(&[true, false])),
        (CHECKS, "shut eventual", Some(&[false, true])),
        (ALL, "open strict", None),
        (CHECKS, "eventual open", None),
        // A quota denies only if all quotas do, and that of an error is unknown.
        (ALL, "shut_quota strict", Some(&[false, true])),
        (ALL, "shut_quota quota", None),
        (ALL, "quota shut", Some(&[true, false])),
        // The share of this node is used up.
        (CHECKS, "share envoy", Some(&[false, true])),
        (CHECKS, "strict share", Some(&[true, false])),
    ];
    block_on(async {
        let clock = ManualClock::at(START);
        let transport = FakeTransport::new(START);
        let engine = Engine::builder(rules_of(MIXED).unwrap()).clock(clock.clone()).build();
        let target = on_redis(engine.unwrap(), &clock, &transport);
        assert_eq!(apply(&target, "hit", "share").await, Ok(None));
        transport.set(StoreState::Down);
        for (operations, keys, expected) in table {
            for operation in *operations {
                let answer = apply(&target, operation, keys).await;
                match expected {
                    Some(statuses) => {
                        assert_eq!(answer, Ok(Some(statuses.to_vec())), "{operation} {keys}");
                    }
                    None => assert!(answer.is_err(), "{operation} {keys}: {answer:?}"),
                }
            }
        }
    });
}

/// Remaining quota of every rule and value.
async fn remaining(
    engine: &Engine<dyn Backend>,
    rules: &[RuleSpec],
    now: Timestamp,
) -> Vec<Option<i64>> {
    let mut all = Vec::new();
    for number in 0..rules.len() {
        for value in VALUES.iter().take(2) {
            let key = format!("rule{number}");
            let entries = [Entry::new(&key, value)];
            let descriptors = [Descriptor::of(&entries)];
            let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
            let rules = engine.snapshot();
            let call = backend::Call::new(&rules, &request, now);
            let inspected = engine.inspect(call).await.unwrap();
            all.push(inspected[0].limits[0].remaining);
        }
    }
    all
}

fn engine(rules: &[RuleSpec], clock: &ManualClock) -> Engine {
    let text = yaml(rules);
    let rules = rules_of(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Engine::builder(rules).clock(clock.clone()).build().unwrap()
}

/// Replays the calls on one target. With a transport the calls' store states apply.
async fn replay(
    (rules, calls): (&[RuleSpec], &[Call]),
    target: &Engine<dyn Backend>,
    clock: &ManualClock,
    transport: Option<&FakeTransport>,
) {
    let mut model = Model::new(rules);
    for (step, call) in calls.iter().enumerate() {
        // A denial is cached for a tenth of a second.
        clock.advance(Duration::from_secs(1));
        let store = if transport.is_some() { call.store } else { StoreState::Up };
        if let Some(transport) = transport {
            transport.set(store);
        }
        let expected = model.check(&call.descriptors, call.hits, store);
        let answered = send(target, call, clock.now()).await;
        assert_eq!(answered, expected, "step {step}: {call:?}");
        if let Some(transport) = transport {
            transport.set(StoreState::Up);
            // Late replies arrive, and the journal is settled, before the next request: at the
            // latest with the next heartbeat, a second later.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let counters = remaining(target, rules, clock.now()).await;
        assert_eq!(counters, model.remaining(2), "counters after step {step}: {call:?}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(future)
}

fn shared(
    rules: &[RuleSpec],
    clock: &ManualClock,
    transport: &Arc<FakeTransport>,
) -> Engine<dyn Backend> {
    on_redis(engine(rules, clock), clock, transport)
}

fn on_redis(
    engine: Engine,
    clock: &ManualClock,
    transport: &Arc<FakeTransport>,
) -> Engine<dyn Backend> {
    let options = StoreOptions {
        clock: Some(Arc::new(clock.clone())),
        seed: Some(1),
        ..StoreOptions::default()
    };
    let store = Store::new(Link::with_transport(transport.clone()), options);
    RedisBackend::attach(engine, store).into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn memory_follows_the_model((rules, calls) in world()) {
        block_on(async {
            let clock = ManualClock::at(START);
            let target = Engine::from(engine(&rules, &clock));
            replay((&rules, &calls), &target, &clock, None).await;
        });
    }

    #[test]
    fn redis_follows_the_model((rules, calls) in world()) {
        block_on(async {
            let clock = ManualClock::at(START);
            let transport = FakeTransport::new(START);
            let target = shared(&rules, &clock, &transport);
            replay((&rules, &calls), &target, &clock, None).await;
        });
    }

    #[test]
    fn redis_with_outages_follows_the_model((rules, calls) in world()) {
        block_on(async {
            let clock = ManualClock::at(START);
            let transport = FakeTransport::new(START);
            let target = shared(&rules, &clock, &transport);
            replay((&rules, &calls), &target, &clock, Some(&transport)).await;
        });
    }
}
