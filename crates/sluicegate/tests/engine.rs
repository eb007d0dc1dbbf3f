//! Rules at work: what a request gets, and what it costs whom.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use std::time::Duration;

use engine_support::{ask, ask_in, check, engine, peek, refund, rules, told};
use sluicegate::rules::plan::{DomainStatus, List, Target};
use sluicegate::{Engine, Outcome};

const ENVOY: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: user
    value: root
    rate_limit: { unlimited: true }
  - key: user
    value: nobody
    rate_limit: { unit: day, requests_per_unit: 0 }
";

const NATIVE: &str = "
domain: shop
descriptors:
  - key: user
    limits:
      - { name: burst, algorithm: token_bucket, rate: 2/m, burst: 3 }
      - { name: daily, algorithm: fixed_window, rate: 10/day }
  - key: tenant
    limits: { algorithm: fixed_window, rate: 5/day }
";

#[test]
fn in_envoys_form_a_denied_request_counts_and_so_do_its_siblings() {
    let (engine, clock) = engine(ENVOY);
    assert_eq!(check(&engine, "user=a x2"), "yes 1");
    assert_eq!(check(&engine, "user=a x5"), "no 0!", "7 of 3");
    assert_eq!(check(&engine, "user=a | tenant=t"), "no 0! 99", "the tenant is charged");
    assert_eq!(check(&engine, "user=b | tenant=t"), "yes 2 98");
    assert_eq!(check(&engine, "user=a x0"), "no 0!", "a look at what is used up");
    clock.advance(Duration::from_secs(60));
    assert_eq!(check(&engine, "user=a x3"), "yes 0");
    assert_eq!(check(&engine, "user=a x0"), "yes 0", "at the limit, not above it");
}

#[test]
fn unlimited_is_free_and_zero_is_closed() {
    let (engine, _) = engine(ENVOY);
    assert_eq!(check(&engine, "user=root x1000000"), "yes -");
    assert_eq!(check(&engine, "user=nobody x0"), "yes 0");
    assert_eq!(check(&engine, "user=nobody"), "no 0!");
    assert_eq!(engine.memory().entries(), 1, "of `nobody` alone");
}

#[test]
fn what_no_rule_matches_passes() {
    let (engine, _) = engine(ENVOY);
    assert_eq!(check(&engine, "path=/"), "yes -");
    assert_eq!(check(&engine, "user=a,path=/"), "yes -", "deeper than any rule");
    let checked = ask_in("nowhere", "user=a", |request| engine.check(request));
    assert_eq!((told(&checked).as_str(), checked.domain()), ("yes -", DomainStatus::Unknown));
    assert_eq!(engine.memory().entries(), 0);
}

#[test]
fn native_limits_are_charged_all_or_none() {
    let (engine, _) = engine(NATIVE);
    assert_eq!(check(&engine, "user=a | tenant=t"), "yes 2 4");
    assert_eq!(check(&engine, "user=a x3 | tenant=t"), "no 2! 4", "three of two left");
    assert_eq!(check(&engine, "user=a x2 | tenant=t"), "yes 0 3");
    assert_eq!(check(&engine, "user=a | tenant=t"), "no 0! 3");
    assert_eq!(check(&engine, "user=b | tenant=t x3"), "yes 2 0", "each its own cost");
    assert_eq!(check(&engine, "user=b | tenant=t"), "no 2 0!");
    assert_eq!(check(&engine, "user=b x2"), "yes 0", "was not charged");
}

#[test]
fn the_limit_that_denied_is_named() {
    let (engine, _) = engine(NATIVE);
    check(&engine, "user=a x3");
    let denied = ask("user=a", |request| engine.check(request));
    let status = denied.statuses[0];
    assert_eq!(status.verdict.decided_by, Some(0), "the burst");
    assert!(matches!(status.verdict.outcome, Outcome::Deny { .. }));
    let Target::Rule(no) = status.target else { panic!("{status:?}") };
    assert_eq!(engine.snapshot().rules().id(no), "shop/user");
}

#[test]
fn where_both_forms_meet_the_native_one_waits_for_the_other() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: tenant
    limits: { algorithm: fixed_window, rate: 2/day }
",
    );
    assert_eq!(check(&engine, "user=a | tenant=t"), "yes 1 1");
    assert_eq!(check(&engine, "user=a x5 | tenant=t"), "no 0! 1", "the tenant is not charged");
    assert_eq!(check(&engine, "user=b | tenant=t x2"), "no 1 1!", "the user is charged");
    assert_eq!(check(&engine, "user=b | tenant=t"), "yes 0 0");
}

#[test]
fn shadow_counts_and_lets_pass() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - key: user
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: tenant
    mode: shadow
    limits: { algorithm: fixed_window, rate: 1/day }
",
    );
    assert_eq!(check(&engine, "user=a | tenant=t"), "yes 0 0");
    let again = ask("user=a | tenant=t", |request| engine.check(request));
    assert_eq!(told(&again), "yes 0 0");
    for status in &again.statuses {
        assert!(!status.verdict.shadow.unwrap().is_allowed(), "{status:?}");
    }
}

#[test]
fn rules_in_quota_mode_deny_only_together() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: c, rate_limit: { unit: day, requests_per_unit: 3 } }
",
    );
    assert_eq!(check(&engine, "a=1 | b=1 | c=1"), "yes 0 1 2");
    assert_eq!(check(&engine, "a=1 | b=1 | c=1"), "yes 0! 0 1");
    assert_eq!(check(&engine, "a=1 | b=1 | c=1"), "no 0! 0! 0");
    assert_eq!(check(&engine, "a=1 | c=2"), "no 0! 2", "the only one of its kind");
    assert_eq!(check(&engine, "a=2 | c=1"), "no 0 0!", "the plain one denies by itself");
}

#[test]
fn a_rule_replaces_others_of_the_request() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: all, rate_limit: { name: all, unit: day, requests_per_unit: 1 } }
  - { key: gold, rate_limit: { name: gold, unit: day, requests_per_unit: 5, replaces: [{ name: all }] } }
",
    );
    assert_eq!(check(&engine, "all=1"), "yes 0");
    assert_eq!(check(&engine, "all=1 | gold=1"), "yes - 4", "not asked, not counted");
    assert_eq!(check(&engine, "all=1"), "no 0!");
}

#[test]
fn a_limit_that_comes_with_the_request_has_a_counter_of_its_own() {
    let (engine, clock) = engine(ENVOY);
    assert_eq!(check(&engine, "user=a limit=5/minute x4"), "yes 1");
    assert_eq!(check(&engine, "user=a limit=5/minute x2"), "no 0!");
    assert_eq!(check(&engine, "user=a limit=9/minute"), "yes 2", "6 were counted, one more");
    assert_eq!(check(&engine, "user=a limit=9/hour"), "yes 8", "another unit");
    assert_eq!(check(&engine, "user=a"), "yes 2", "the rule knows nothing of it");
    assert_eq!(check(&engine, "user=a limit=0/minute x0"), "no 0!", "7 of 0");
    assert_eq!(peek(&engine, "user=a limit=9/minute x2"), "yes 2");
    assert_eq!(peek(&engine, "user=a limit=9/minute x3"), "no 2!");
    let never = ask("user=a limit=3/day x4", |request| engine.check(request));
    assert_eq!(never.statuses[0].verdict.outcome, Outcome::Never { max_cost: 3 });
    clock.advance(Duration::from_secs(60));
    assert_eq!(check(&engine, "user=a limit=5/minute"), "yes 4");
    let unknown = ask_in("nowhere", "user=a limit=0/minute", |request| engine.check(request));
    assert_eq!(told(&unknown), "yes -");
}

#[test]
fn lists_win_before_any_limit() {
    let (engine, _) = engine(
        "
domain: shop
allow:
  - { key: ip, cidr: 10.0.0.0/8 }
  - { key: user, value: admin }
deny:
  - { key: ip, cidr: [10.66.0.0/16, '2001:db8::/32'] }
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 1/day }
  - key: ip
    rate_limit: { unit: day, requests_per_unit: 1 }
",
    );
    for _ in 0..3 {
        assert_eq!(check(&engine, "user=a | ip=10.1.2.3"), "yes - -");
    }
    let denied = ask("user=admin | ip=10.66.1.1", |request| engine.check(request));
    assert_eq!(told(&denied), "no - -!", "the one wins over the other");
    assert_eq!(denied.listed().map(|listed| (listed.list, listed.at)), Some((List::Deny, (1, 0))));
    assert_eq!(check(&engine, "ip=2001:db8::7"), "no -!");
    assert_eq!(engine.memory().entries(), 0, "nobody was counted");
    assert_eq!(check(&engine, "user=a | ip=192.0.2.1"), "yes 0 0");
}

#[test]
fn a_look_leaves_no_trace_and_a_refund_gives_back() {
    for rules in [ENVOY, NATIVE] {
        let (engine, _) = engine(rules);
        let before = peek(&engine, "user=a");
        assert_eq!(engine.memory().entries(), 0);
        assert_eq!(before, "yes 3");
        check(&engine, "user=a x3");
        assert_eq!(peek(&engine, "user=a"), "no 0!");
        assert_eq!(refund(&engine, "user=a x2"), "yes 2");
        assert_eq!(check(&engine, "user=a x2"), "yes 0");
        assert_eq!(refund(&engine, "user=a x100"), "yes 3", "never beyond the limit");
    }
}

#[test]
fn who_shares_a_counter() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: path, value: '/api/*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: path, value: '/web/*', rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: ip, prefix: { v4: 24, v6: 64 }, limits: { algorithm: fixed_window, rate: 3/day } }
",
    );
    assert_eq!(check(&engine, "path=/api/a"), "yes 2");
    assert_eq!(check(&engine, "path=/api/b"), "yes 1");
    assert_eq!(check(&engine, "path=/web/a"), "yes 2");
    assert_eq!(check(&engine, "path=/web/b"), "yes 2");
    assert_eq!(check(&engine, "ip=192.0.2.1"), "yes 2");
    assert_eq!(check(&engine, "ip=192.0.2.99"), "yes 1");
    assert_eq!(check(&engine, "ip=::ffff:192.0.2.5"), "yes 0");
    assert_eq!(check(&engine, "ip=192.0.3.1"), "yes 2");
    assert_eq!(check(&engine, "ip=2001:db8::1"), "yes 2");
    assert_eq!(check(&engine, "ip=2001:db8:0:0:ffff::1"), "yes 1");
}

#[test]
fn identities_do_not_meet_by_the_way_they_are_written() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: a, descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 1 } }] }
  - { key: a_b, rate_limit: { unit: day, requests_per_unit: 1 } }
",
    );
    assert_eq!(check(&engine, "a=1_b,b=2"), "yes 0");
    assert_eq!(check(&engine, "a=1,b=b_2"), "yes 0");
    assert_eq!(check(&engine, "a=1_b,b=2"), "no 0!");
}

#[test]
fn a_rules_cost_is_the_weight_of_a_hit() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: user, cost: 10, limits: { algorithm: fixed_window, rate: 100/day } }
",
    );
    assert_eq!(check(&engine, "user=a x3"), "yes 70");
    assert_eq!(check(&engine, "user=a x18446744073709551615"), "no 70!", "saturates, never wraps");
    assert_eq!(check(&engine, "user=a x0"), "yes 70");
}

// === regressions: from the comparison in `engine_model.rs`, and from reading for it ===

#[test]
fn rules_in_the_shadow_are_counted_apart() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: user, mode: shadow, limits: { algorithm: fixed_window, rate: 1/day } }
  - { key: tenant, mode: shadow, limits: { algorithm: fixed_window, rate: 9/day } }
",
    );
    for left in ["0 8", "0 7", "0 6"] {
        assert_eq!(check(&engine, "user=a | tenant=t"), format!("yes {left}"));
    }
}

#[test]
fn who_is_named_twice_is_charged_once_and_for_the_most() {
    for quota in ["", "quota_mode: true, "] {
        let (engine, _) = engine(&format!(
            "
domain: shop
descriptors:
  - {{ key: user, {quota}limits: {{ algorithm: fixed_window, rate: 9/day }} }}
  - {{ key: path, value: /*, {quota}share_threshold: true, limits: {{ algorithm: fixed_window, rate: 9/day }} }}
"
        ));
        assert_eq!(
            check(&engine, "user=a x0 | user=a x3"),
            "yes 6 6",
            "nothing hides behind nothing"
        );
        assert_eq!(check(&engine, "user=a x10 | user=a x1"), "no 6! 6!");
        assert_eq!(check(&engine, "path=/1 x1 | path=/2 x4 | user=a"), "yes 5 5 5");
        assert_eq!(refund(&engine, "user=a x1 | user=a x2"), "yes 7 7");
    }
}

#[test]
fn who_cannot_take_a_refund_does_not_keep_others_from_theirs() {
    let (engine, _) = engine(
        "
domain: shop
descriptors:
  - { key: user, limits: { algorithm: fixed_window, rate: 9/day } }
  - { key: slot, limits: { algorithm: concurrency, max: 9, lease: 1m } }
",
    );
    assert_eq!(check(&engine, "user=a x5 | slot=s"), "yes 4 8");
    assert_eq!(refund(&engine, "user=a x5 | slot=s"), "yes 9 -");
}

#[test]
fn nothing_leaves_no_trace_beside_others() {
    let (engine, clock) = engine(
        "
domain: shop
descriptors:
  - { key: slow, limits: { algorithm: token_bucket, rate: 1/m, burst: 4, initial: 0 } }
  - { key: user, limits: { algorithm: fixed_window, rate: 9/day } }
",
    );
    assert_eq!(check(&engine, "slow=s x0 | user=a"), "yes 0 8");
    assert_eq!(engine.memory().entries(), 1);
    clock.advance(Duration::from_secs(60));
    assert_eq!(check(&engine, "slow=s"), "no 0!", "its life begins here");
}

#[test]
fn who_asks_for_nothing_needs_no_room() {
    let text = "
domain: shop
descriptors:
  - { key: user, overflow: deny, limits: { algorithm: fixed_window, rate: 9/day } }
";
    let memory = sluicegate::Memory::with_entries(1);
    let engine = Engine::builder(rules(text)).memory(&memory).build().unwrap();
    assert_eq!(check(&engine, "user=a"), "yes 8");
    assert_eq!(check(&engine, "user=b x0"), "yes -");
    assert_eq!(check(&engine, "user=a | user=b x0"), "yes 7 -");
    assert_eq!(check(&engine, "user=a | user=b"), "no 7 -!");
}

/// What was counted is known to the wait, also where it is another limit that denies.
#[test]
fn a_tally_beside_another_limit_of_a_rule() {
    use sluicegate::Span;
    use sluicegate::rules::domain::{DescriptorConfig, Domain};
    use sluicegate::rules::limit::LimitConfig;
    use sluicegate::rules::rule::{Limits, RuleConfig};
    use sluicegate::rules::set::RuleSet;
    use sluicegate_core::algorithm::concurrency::Concurrency;
    use sluicegate_core::algorithm::tally::Tally;
    use sluicegate_core::limit::Limit;

    let tally = Limit::Tally(Tally::new(2, Span::from_secs(3_600)).unwrap());
    let slots = Limit::Concurrency(Concurrency::new(1, Span::from_secs(60)).unwrap());
    let limits = [tally, slots].map(|limit| LimitConfig::fixed(None, limit));
    let rule = RuleConfig::new(Limits::Native(limits.into()));
    let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user") };
    let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }]);
    let engine = Engine::builder(rules.unwrap())
        .clock(sluicegate::clock::ManualClock::new())
        .build()
        .unwrap();
    assert!(ask("user=a", |request| engine.check(request)).allowed);
    let denied = ask("user=a", |request| engine.check(request)).statuses[0].verdict.outcome;
    assert_eq!(denied, Outcome::Deny { retry_after: Span::from_secs(3_600) }, "not 60");
}

#[test]
fn a_rule_without_limits_is_refused() {
    use sluicegate::rules::domain::{DescriptorConfig, Domain};
    use sluicegate::rules::rule::{Limits, RuleConfig};
    use sluicegate::rules::set::RuleSet;

    let rule = RuleConfig::new(Limits::Native([].into()));
    let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user") };
    let domain = Domain { descriptors: vec![users], ..Domain::new("shop") };
    let refused = Engine::new(RuleSet::new(vec![domain]).unwrap()).unwrap_err().to_string();
    assert_eq!(refused, "rule `shop/user`: the number of limits must be from `1` to `32`, got `0`");
}
