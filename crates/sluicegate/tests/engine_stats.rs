//! What became of hits, counted by rule. (`engine_model.rs` compares the counts with naive ones, `tests/anchor.rs` with those of
//! envoyproxy/ratelimit.)

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::time::Duration;

use engine_support::{check, engine, peek, refund, rules};
use sluicegate::clock::ManualClock;
use sluicegate::{Engine, Memory, Stats};

/// What was counted under the rule that this way leads to.
fn stats(engine: &Engine, way: &str) -> Stats {
    let snapshot = engine.snapshot();
    let no = snapshot.rules().rules().find(|no| snapshot.rules().path_of(*no) == way).unwrap();
    snapshot.stats(no)
}

/// In the order in which they are declared.
const fn counts(all: [u64; 5]) -> Stats {
    let [total_hits, over_limit, near_limit, within_limit, shadow_mode] = all;
    Stats { total_hits, over_limit, near_limit, within_limit, shadow_mode }
}

const ENVOY: &str = "
domain: shop
deny: [{ key: user, value: mallory }]
allow: [{ key: user, value: monitor }]
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: shadow
    rate_limit: { unit: minute, requests_per_unit: 10 }
    shadow_mode: true
  - key: free
    rate_limit: { unlimited: true }
  - key: old
    rate_limit: { unit: minute, requests_per_unit: 10, name: old }
  - key: new
    rate_limit: { unit: minute, requests_per_unit: 10, replaces: [{ name: old }] }
";

#[test]
fn a_hit_across_a_limit_is_over_it_with_the_part_above() {
    let (engine, clock) = engine(ENVOY);
    assert_eq!(stats(&engine, "shop/user"), Stats::default(), "nobody came");
    check(&engine, "user=a x7");
    assert_eq!(stats(&engine, "shop/user"), counts([7, 0, 0, 7, 0]));
    check(&engine, "user=a x2");
    assert_eq!(stats(&engine, "shop/user"), counts([9, 0, 1, 9, 0]), "the ninth is near");
    check(&engine, "user=a x5");
    assert_eq!(stats(&engine, "shop/user"), counts([14, 4, 2, 9, 0]), "the tenth is near too");
    check(&engine, "user=a x30");
    assert_eq!(stats(&engine, "shop/user"), counts([44, 34, 2, 9, 0]), "never again");
    check(&engine, "user=a x0");
    assert_eq!(stats(&engine, "shop/user").total_hits, 44, "nothing is nothing");
    check(&engine, "user=b x10");
    assert_eq!(stats(&engine, "shop/user"), counts([54, 34, 4, 19, 0]), "all users");
    clock.advance(Duration::from_secs(60));
    check(&engine, "user=a x30");
    assert_eq!(stats(&engine, "shop/user"), counts([84, 54, 6, 19, 0]), "more than ever passes");
}

#[test]
fn in_the_shadow_what_is_over_is_counted_as_that_too() {
    let (engine, _) = engine(ENVOY);
    assert_eq!(check(&engine, "shadow=a x12"), "yes 0");
    assert_eq!(stats(&engine, "shop/shadow"), counts([12, 2, 2, 0, 2]));
    assert_eq!(check(&engine, "shadow=a"), "yes 0");
    assert_eq!(stats(&engine, "shop/shadow"), counts([13, 3, 2, 0, 3]));
}

#[test]
fn only_hits_under_a_limit_count() {
    let (engine, _) = engine(ENVOY);
    peek(&engine, "user=a x20");
    refund(&engine, "user=a x3");
    check(&engine, "user=mallory");
    check(&engine, "user=monitor | shadow=a");
    check(&engine, "free=a | nobody=a");
    check(&engine, "old=a | new=a");
    for way in ["shop/user", "shop/shadow", "shop/free", "shop/old"] {
        assert_eq!(stats(&engine, way), Stats::default(), "{way}");
    }
    assert_eq!(stats(&engine, "shop/new").total_hits, 1);
    assert_eq!(engine.snapshot().override_stats(), Stats::default());
}

#[test]
fn limits_that_come_with_requests_count_together() {
    let (engine, _) = engine(ENVOY);
    check(&engine, "user=a x4 limit=5/minute | user=b x9 limit=5/hour");
    check(&engine, "user=a x3 limit=5/minute");
    assert_eq!(stats(&engine, "shop/user"), Stats::default());
    assert_eq!(engine.snapshot().override_stats(), counts([16, 6, 2, 4, 0]));
}

const NATIVE: &str = "
domain: shop
descriptors:
  - key: user
    limits:
      - { algorithm: fixed_window, rate: 10/day }
      - { algorithm: fixed_window, rate: 1000/week }
  - key: tenant
    limits: { algorithm: fixed_window, rate: 5/day }
  - key: shadow
    limits: { algorithm: fixed_window, rate: 5/day }
    mode: shadow
  - key: weighty
    cost: 3
    limits: { algorithm: fixed_window, rate: 10/day }
  - key: envoy
    rate_limit: { unit: day, requests_per_unit: 0 }
";

#[test]
fn where_all_or_nothing_is_charged_a_hit_is_one_or_the_other() {
    let (engine, _) = engine(NATIVE);
    check(&engine, "user=a x8");
    assert_eq!(stats(&engine, "shop/user"), counts([8, 0, 0, 8, 0]));
    check(&engine, "user=a x5");
    assert_eq!(stats(&engine, "shop/user"), counts([13, 5, 0, 8, 0]), "all of it");
    check(&engine, "user=a x2");
    assert_eq!(stats(&engine, "shop/user"), counts([15, 5, 2, 10, 0]), "nothing is left");
    check(&engine, "weighty=a x4");
    assert_eq!(stats(&engine, "shop/weighty"), counts([12, 12, 0, 0, 0]), "as often as it costs");
    assert_eq!(check(&engine, "shadow=a x6"), "yes 5");
    assert_eq!(stats(&engine, "shop/shadow"), counts([6, 6, 0, 0, 6]));
}

#[test]
fn what_a_rule_said_counts_whatever_others_say() {
    let (engine, _) = engine(NATIVE);
    assert_eq!(check(&engine, "user=a x2 | tenant=t x9"), "no 10 5!");
    assert_eq!(stats(&engine, "shop/user"), counts([2, 0, 0, 2, 0]));
    assert_eq!(stats(&engine, "shop/tenant"), counts([9, 9, 0, 0, 0]));
    assert_eq!(check(&engine, "user=a x2 | envoy=e"), "no 10 0!", "only looked at");
    assert_eq!(stats(&engine, "shop/user"), counts([4, 0, 0, 4, 0]));
    assert_eq!(check(&engine, "user=a x2 | user=a x3"), "yes 7 7");
    assert_eq!(stats(&engine, "shop/user"), counts([7, 0, 0, 7, 0]), "once, as it is charged");
}

#[test]
fn whoever_has_no_room_counts_by_what_is_said_instead() {
    let text = "
domain: shop
descriptors:
  - { key: denied, overflow: deny, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: allowed, overflow: allow, limits: { algorithm: fixed_window, rate: 5/day } }
";
    let memory = Memory::with_entries(1);
    let builder = Engine::builder(rules(text)).memory(&memory).clock(ManualClock::new());
    let engine = builder.build().unwrap();
    check(&engine, "denied=first");
    assert_eq!(check(&engine, "denied=second x3 | allowed=third x9"), "no -! -");
    assert_eq!(stats(&engine, "shop/denied"), counts([4, 3, 0, 1, 0]));
    assert_eq!(stats(&engine, "shop/allowed"), counts([9, 0, 0, 9, 0]));
}

#[test]
fn how_near_is_near_can_be_said() {
    let near = |ratio| {
        let builder = Engine::builder(rules(ENVOY)).near_limit_ratio(ratio);
        let engine = builder.clock(ManualClock::new()).build().unwrap();
        check(&engine, "user=a x10");
        stats(&engine, "shop/user").near_limit
    };
    assert_eq!([near(0.0), near(0.5), near(0.99), near(1.0), near(-3.0)], [10, 5, 1, 0, 10]);
}

#[test]
fn a_rule_that_goes_on_goes_on_counting() {
    let text = |rest: &str| format!("domain: shop\ndescriptors:\n  - key: user\n    {rest}\n");
    let (engine, _) = engine(&text("rate_limit: { unit: day, requests_per_unit: 10 }"));
    check(&engine, "user=a x10");
    let before = engine.snapshot();
    engine.reload(rules(&text("rate_limit: { unit: day, requests_per_unit: 20 }"))).unwrap();
    assert_eq!(stats(&engine, "shop/user"), counts([10, 0, 2, 10, 0]));
    check(&engine, "user=a x5");
    assert_eq!(stats(&engine, "shop/user"), counts([15, 0, 2, 15, 0]), "of 20");
    let no = before.rules().rules().next().unwrap();
    assert_eq!(before.stats(no).total_hits, 15, "also for who still looks at the old rules");

    engine.reload(rules("domain: shop")).unwrap();
    engine.reload(rules(&text("rate_limit: { unit: day, requests_per_unit: 20 }"))).unwrap();
    assert_eq!(stats(&engine, "shop/user"), Stats::default(), "another rule in its place");
}

#[test]
fn threads_add_up() {
    const THREADS: u64 = 12;
    const EACH: u64 = 500;
    let (engine, _) = engine(NATIVE);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                (0..EACH).for_each(|_| {
                    check(&engine, "user=a | envoy=e x2 | tenant=t limit=100/day");
                });
            });
        }
    });
    let all = THREADS * EACH;
    let user = stats(&engine, "shop/user");
    assert_eq!((user.total_hits, user.within_limit + user.over_limit), (all, all));
    assert_eq!(stats(&engine, "shop/envoy"), counts([2 * all, 2 * all, 0, 0, 0]));
    assert_eq!(engine.snapshot().override_stats(), counts([all, all - 100, 20, 100, 0]));
}

const VALUES: &str = "
domain: shop
descriptors:
  - { key: user, value_to_metric: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: team, detailed_metric: true, limits: { algorithm: fixed_window, rate: 2/m } }
  - { key: plain, rate_limit: { unit: minute, requests_per_unit: 2 } }
";

fn by_value(engine: &Engine, path: &str) -> Option<(Vec<(String, Stats)>, Stats)> {
    let snapshot = engine.snapshot();
    let no = snapshot.rules().rules().find(|no| snapshot.rules().path_of(*no) == path).unwrap();
    let all = snapshot.value_stats(no)?;
    assert_eq!(all.total, snapshot.stats(no));
    Some((all.values.into_iter().map(|value| (value.key, value.stats)).collect(), all.other))
}

#[test]
fn hits_by_value() {
    let clock = ManualClock::new();
    let build = |values| {
        let builder = Engine::builder(rules(VALUES)).clock(clock.clone());
        builder.metric_values(values).build().unwrap()
    };
    let engine = build(2);
    for descriptors in ["user=a x3", "user=b x1", "user=c x1", "team=a x1", "plain=a x1"] {
        check(&engine, descriptors);
    }
    let (values, other) = by_value(&engine, "shop/user").unwrap();
    let expected =
        [("shop.user_a", counts([3, 1, 1, 0, 0])), ("shop.user_b", counts([1, 0, 0, 1, 0]))];
    assert_eq!(values, expected.map(|(key, stats)| (key.to_owned(), stats)));
    assert_eq!(other, counts([1, 0, 0, 1, 0]));
    let (values, _) = by_value(&engine, "shop/team").unwrap();
    assert_eq!(values[0].0, "shop.team_a", "native limits too");
    assert_eq!(by_value(&engine, "shop/plain"), None);
    let disabled = build(0);
    check(&disabled, "user=a x3");
    assert_eq!(by_value(&disabled, "shop/user"), None);
    assert_eq!(stats(&disabled, "shop/user").total_hits, 3);
}

#[test]
fn hits_by_value_add_up_over_reloads() {
    let clock = ManualClock::new();
    let plain = VALUES.replace("value_to_metric: true, ", "");
    let engine = Engine::builder(rules(&plain)).clock(clock).metric_values(5).build().unwrap();
    check(&engine, "user=a x1");
    engine.reload(rules(VALUES)).unwrap();
    check(&engine, "user=a x1");
    let (values, other) = by_value(&engine, "shop/user").unwrap();
    assert_eq!((values[0].1.total_hits, other.total_hits), (1, 1), "those before are others");
    engine.reload(rules(&plain)).unwrap();
    check(&engine, "user=a x1");
    assert_eq!(by_value(&engine, "shop/user"), None);
    assert_eq!(stats(&engine, "shop/user").total_hits, 3);
    engine.reload(rules(VALUES)).unwrap();
    let (values, other) = by_value(&engine, "shop/user").unwrap();
    assert_eq!((values[0].1.total_hits, other.total_hits), (1, 2));
}
