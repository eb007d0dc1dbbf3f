//! Rules with pools: a request that one pool denies draws from the next.

#![cfg(feature = "config")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_support;

use engine_support::{ask, check, engine, peek, rules};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sluicegate::backend::ready;
use sluicegate::rules::request::{Descriptor, Request};
use sluicegate::{Checked, Engine, HoldError, Holder, LimitError, Outcome, Span};

const RULES: &str = "
domain: shop
descriptors:
  - key: team
    id: included
    limits: { name: month, algorithm: fixed_window, rate: 100/30d }
    pools:
      - { name: credits, limits: { name: year, algorithm: fixed_window, rate: 50/360d } }
      - { name: gifts, limits: { name: day, algorithm: fixed_window, rate: 10/day } }
  - key: user
    limits: { algorithm: fixed_window, rate: 60/day }
  - key: address
    rate_limit: { unit: day, requests_per_unit: 200 }
  - key: attempts
    limits: { algorithm: sliding_log, rates: [200/day], count_denied: true }
  - key: watched
    mode: shadow
    limits: { algorithm: fixed_window, rate: 5/day }
    pools:
      - { name: more, limits: { algorithm: fixed_window, rate: 5/day } }
";

/// What the engine decides, with the rule and the remaining quota of each descriptor.
fn drawn(engine: &Engine, checked: &Checked) -> String {
    let rules = engine.snapshot();
    let mut text = if checked.allowed { "yes" } else { "no" }.to_owned();
    for status in &checked.statuses {
        let sluicegate::rules::plan::Target::Rule(no) = status.target else { continue };
        let left = status.verdict.remaining.unwrap_or(0);
        text.push_str(&format!(" {}={left}", rules.rules().id(no).trim_start_matches("shop/")));
    }
    text
}

fn draw(engine: &Engine, text: &str) -> String {
    drawn(engine, &ask(text, |request| engine.check(request)))
}

fn of_pool(engine: &Engine, pool: &str, then: impl FnOnce(&Request<'_>) -> Checked) -> String {
    let checked = ask("team=a x5", |request| {
        let descriptors = [Descriptor { pool: Some(pool), ..request.descriptors[0] }];
        then(&Request { descriptors: &descriptors, ..*request })
    });
    drawn(engine, &checked)
}

#[test]
fn a_pool_that_is_used_up_is_followed_by_the_next() {
    let (engine, _) = engine(RULES);
    assert_eq!(draw(&engine, "team=a x90"), "yes included=10");
    assert_eq!(draw(&engine, "team=a x20"), "yes included:credits=30", "all of it from one pool");
    assert_eq!(draw(&engine, "team=a x10"), "yes included=0", "the rest is for smaller requests");
    assert_eq!(draw(&engine, "team=a x30"), "yes included:credits=0");
    assert_eq!(draw(&engine, "team=a x4"), "yes included:gifts=6");
    assert_eq!(draw(&engine, "team=b x4"), "yes included=96", "another team has its own");
    // The shortest wait: that of a day, not of a month or a year.
    let denied = ask("team=a x7", |request| engine.check(request));
    assert_eq!(drawn(&engine, &denied), "no included:gifts=6");
    let wait = denied.statuses[0].verdict.retry_after().unwrap();
    assert!(wait <= Span::from_secs(86_400), "{wait:?}");
    assert_eq!(denied.statuses[0].verdict.decided_by, Some(0));
}

#[test]
fn a_cost_that_only_one_pool_can_hold_waits_for_that_one() {
    let (engine, clock) = engine(RULES);
    assert_eq!(draw(&engine, "team=a x100"), "yes included=0");
    let denied = ask("team=a x60", |request| engine.check(request));
    assert_eq!(drawn(&engine, &denied), "no included=0");
    let wait = denied.statuses[0].verdict.retry_after().unwrap();
    clock.advance(wait.to_duration());
    assert_eq!(draw(&engine, "team=a x60"), "yes included=40", "and passes then");
    let never = ask("team=a x101", |request| engine.check(request));
    assert_eq!(never.statuses[0].verdict.outcome, Outcome::Never { max_cost: 100 });
}

#[test]
fn a_request_is_charged_in_one_pool_and_in_all_other_rules_or_nowhere() {
    let (engine, _) = engine(RULES);
    assert_eq!(draw(&engine, "team=a x50 | user=u x50"), "yes included=50 user=10");
    assert_eq!(draw(&engine, "team=a x50"), "yes included=0");
    // The user denies: no pool is charged, and the team's status is that of its next pool.
    let denied = ask("team=a x20 | user=u x20", |request| engine.check(request));
    assert_eq!(drawn(&engine, &denied), "no included:credits=50 user=10");
    assert!(denied.statuses[0].verdict.is_allowed());
    assert_eq!(draw(&engine, "team=a x10 | user=u x10"), "yes included:credits=40 user=0");
}

#[test]
fn limits_that_count_denied_hits_count_a_request_once() {
    let (engine, _) = engine(RULES);
    assert_eq!(draw(&engine, "team=a x100"), "yes included=0");
    let both = "team=a x10 | address=1.2.3.4 x10 | attempts=1.2.3.4 x10";
    assert_eq!(draw(&engine, both), "yes included:credits=40 address=190 attempts=190");
    let denied = "team=a x60 | address=1.2.3.4 x60 | attempts=1.2.3.4 x60";
    let denied = ask(denied, |request| engine.check(request));
    assert!(!denied.allowed);
    assert_eq!(check(&engine, "address=1.2.3.4 x1"), "yes 129");
    assert_eq!(check(&engine, "attempts=1.2.3.4 x1"), "yes 129");
}

#[test]
fn statistics_count_the_pool_that_decided() {
    let (engine, _) = engine(RULES);
    for hits in [90, 20, 60] {
        draw(&engine, &format!("team=a x{hits}"));
    }
    let rules = engine.snapshot();
    let stats: Vec<_> = rules.rules().rules().take(3).map(|no| rules.stats(no)).collect();
    let counts: Vec<_> = stats.iter().map(|one| (one.within_limit, one.over_limit)).collect();
    // A denial counts once, for the pool with the shortest wait.
    assert_eq!(counts, [(90, 60), (20, 0), (0, 0)]);
}

#[test]
fn a_peek_answers_as_the_hit_would() {
    let (engine, _) = engine(RULES);
    draw(&engine, "team=a x95");
    let peeked = ask("team=a x20", |request| engine.peek(request));
    assert_eq!(drawn(&engine, &peeked), "yes included:credits=50");
    assert_eq!(draw(&engine, "team=a x5"), "yes included=0", "nothing was charged");
}

#[test]
fn a_refund_and_a_credit_name_their_pool_and_a_reset_applies_to_all() {
    let (engine, _) = engine(RULES);
    draw(&engine, "team=a x100");
    draw(&engine, "team=a x50");
    assert_eq!(of_pool(&engine, "credits", |one| engine.refund(one)), "yes included:credits=5");
    assert_eq!(of_pool(&engine, "included", |one| engine.refund(one)), "yes included=5");
    let only = of_pool(&engine, "gifts", |one| engine.check(one));
    assert_eq!(only, "yes included:gifts=5", "although others have more");
    assert_eq!(of_pool(&engine, "credits", |one| engine.reset(one)), "yes included:credits=50");
    assert_eq!(peek(&engine, "team=a x6"), "yes 50", "the first is as it was");
    let reset = ask("team=a", |request| engine.reset(request));
    assert_eq!(
        (drawn(&engine, &reset).as_str(), reset.plan.steps().len()),
        ("yes included=100", 1)
    );
    assert_eq!(of_pool(&engine, "gifts", |one| engine.peek(one)), "yes included:gifts=10");
}

#[test]
fn every_pool_is_inspected() {
    let (engine, _) = engine(RULES);
    draw(&engine, "team=a x60");
    draw(&engine, "team=a x45");
    ask("team=a | user=u", |request| {
        let rules = engine.snapshot();
        let all = ready(engine.inspect(engine.call(&rules, request))).unwrap().unwrap();
        let left = |one: &sluicegate::Inspected| one.limits[0].remaining;
        assert_eq!(left(&all[0]), Some(40));
        assert_eq!(all[0].pools.iter().map(left).collect::<Vec<_>>(), [Some(5), Some(10)]);
        assert_eq!((left(&all[1]), all[1].pools.len()), (Some(60), 0));
        Checked::default()
    });
}

#[test]
fn a_rule_in_shadow_mode_would_draw_from_its_pools() {
    let (engine, _) = engine(RULES);
    assert_eq!(draw(&engine, "watched=a x4"), "yes watched=1");
    assert_eq!(draw(&engine, "watched=a x4"), "yes watched:more=1");
    let over = ask("watched=a x4", |request| engine.check(request));
    assert!(over.allowed && over.statuses[0].verdict.shadow.is_some_and(|one| !one.is_allowed()));
    let rules = engine.snapshot();
    let shadows: Vec<_> =
        rules.rules().rules().map(|no| rules.stats(no).shadow_mode).filter(|n| *n > 0).collect();
    assert_eq!(shadows, [4]);
}

// === reservations ===

fn with(
    text: &str,
    hits: u64,
    then: impl FnOnce(&Request<'_>, &mut Checked) -> Result<u64, HoldError>,
) -> (Result<u64, HoldError>, Checked) {
    let mut result = Ok(0);
    let checked = ask(text, |request| {
        let mut checked = Checked::default();
        result = then(&Request { hits, ..*request }, &mut checked);
        checked
    });
    (result, checked)
}

fn reserve(engine: &Engine, text: &str, hits: u64, id: u64) -> String {
    let (result, checked) = with(text, hits, |request, checked| {
        let (rules, ttl) = (engine.snapshot(), Span::from_secs(60));
        let call = engine.call(&rules, request);
        ready(engine.reserve(call, Holder(id), ttl, checked)).unwrap().map(|()| 0)
    });
    result.unwrap();
    drawn(engine, &checked)
}

fn commit(engine: &Engine, text: &str, hits: u64, id: u64) -> (Result<u64, HoldError>, String) {
    let (result, checked) = with(text, hits, |request, checked| {
        ready(engine.commit(engine.call(&engine.snapshot(), request), Holder(id), checked)).unwrap()
    });
    (result, drawn(engine, &checked))
}

#[test]
fn a_reservation_is_settled_at_the_pool_that_holds_it() {
    let (engine, _) = engine(RULES);
    assert_eq!(reserve(&engine, "team=a", 80, 1), "yes included=20");
    assert_eq!(reserve(&engine, "team=a | user=u", 40, 2), "yes included:credits=10 user=20");
    assert_eq!(reserve(&engine, "team=a", 40, 3), "no included=20", "the first has room soonest");
    let renewed = with("team=a | user=u", 0, |request, checked| {
        let (rules, ttl) = (engine.snapshot(), Span::from_secs(60));
        let call = engine.call(&rules, request);
        let renewed = ready(engine.renew(call, Holder(2), ttl, checked)).unwrap();
        assert_eq!(renewed, Ok(ttl));
        Ok(0)
    });
    assert_eq!(drawn(&engine, &renewed.1), "yes included:credits=10 user=20");
    let part = with("team=a | user=u", 10, |request, checked| {
        let call = engine.snapshot();
        ready(engine.commit_part(engine.call(&call, request), Holder(2), checked)).unwrap()
    });
    assert_eq!(part.0, Ok(30));
    let settled = commit(&engine, "team=a | user=u", 5, 2);
    assert_eq!(settled, (Ok(25), "yes included:credits=35 user=45".to_owned()));
    assert_eq!(commit(&engine, "team=a", 120, 1), (Ok(0), "yes included=-20".to_owned()));
    assert_eq!(commit(&engine, "team=a", 1, 1).0, Err(HoldError::Unknown));
    let (cancelled, checked) = with("team=a", 1, |request, checked| {
        let rules = engine.snapshot();
        let (call, ttl) = (engine.call(&rules, request), Span::from_secs(60));
        ready(engine.reserve(call, Holder(4), ttl, checked)).unwrap()?;
        assert_eq!(drawn(&engine, checked), "yes included:credits=34");
        ready(engine.cancel(call, Holder(4), checked)).unwrap()
    });
    assert_eq!((cancelled, drawn(&engine, &checked)), (Ok(1), "yes included:credits=35".into()));
    assert_eq!(checked.returned.len(), 1);
}

// === changes ===

#[test]
fn a_pool_continues_by_its_name_after_a_reload() {
    let (engine, _) = engine(RULES);
    draw(&engine, "team=a x90");
    draw(&engine, "team=a x20");
    let other = RULES.replace("rate: 50/360d", "rate: 70/360d").replace(
        "      - { name: gifts, limits: { name: day, algorithm: fixed_window, rate: 10/day } }\n",
        "",
    );
    let reordered = other.replace(
        "    pools:\n      - { name: credits",
        "    pools:\n      - { name: first, limits: { algorithm: fixed_window, rate: 1/day } }\n      - { name: credits",
    );
    let reloaded = engine.reload(rules(&reordered)).unwrap();
    assert_eq!((reloaded.added, reloaded.removed), (1, 1));
    assert_eq!(draw(&engine, "team=a x11"), "yes included:credits=39");
    assert_eq!(draw(&engine, "team=a x10"), "yes included=0");
}

#[test]
fn what_cannot_be_a_pool_is_refused() {
    let bad = [
        ("key: team, rate_limit: { unit: day, requests_per_unit: 5 }", "Envoy's form"),
        (
            "key: team, quota_mode: true, limits: { algorithm: fixed_window, rate: 5/day }",
            "quota_mode",
        ),
        ("key: team, limits: { algorithm: concurrency, max: 5, lease: 5s }", "concurrency"),
        (
            "key: team, on_limit: shape, limits: { algorithm: token_bucket, rate: 5/s }",
            "`shape` stands beside `pools`",
        ),
        ("key: team", "has no effect without"),
        (
            "key: team, consistency: leased, limits: { algorithm: token_bucket, rate: 5/s }",
            "consistency",
        ),
    ];
    for (rule, reason) in bad {
        let pool = match reason {
            "consistency" => "{ algorithm: sliding_log, rates: [5/day] }",
            _ => "{ algorithm: fixed_window, rate: 5/day }",
        };
        let pools = format!("[{{ name: credits, limits: {pool} }}]");
        let text = format!("domain: shop\ndescriptors: [{{ {rule}, pools: {pools} }}]\n");
        let error = sluicegate::rules_of(&text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let twice = RULES.replace("name: gifts", "name: credits");
    let error = sluicegate::rules_of(&twice).unwrap_err().to_string();
    assert!(error.contains("two pools are named `credits`"), "{error}");
    let slots = RULES.replace(
        "limits: { name: day, algorithm: fixed_window, rate: 10/day }",
        "limits: { algorithm: concurrency, max: 1, lease: 5s }",
    );
    let error = sluicegate::rules_of(&slots).unwrap_err().to_string();
    assert!(error.contains("slots are released, not drawn"), "{error}");
}

#[test]
fn an_engine_refuses_pools_that_no_file_can_have() {
    use sluicegate::rules::domain::{DescriptorConfig, Domain};
    use sluicegate::rules::rule::{Limits, PoolConfig, RuleConfig, RuleExtras};
    use sluicegate::rules::set::RuleSet;
    use sluicegate::rules::unit::Unit;

    let mut rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 1, unit: Unit::Day });
    let pools = vec![PoolConfig { name: "credits".into(), limits: Box::new([]) }];
    rule.rare = Some(Box::new(RuleExtras { pools, ..RuleExtras::default() }));
    let team = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("team") };
    let set =
        RuleSet::new(vec![Domain { descriptors: vec![team], ..Domain::new("shop") }]).unwrap();
    let error = Engine::new(set).unwrap_err();
    let LimitError::InRule { error, .. } = error else { panic!("{error}") };
    assert!(matches!(*error, LimitError::Pools { .. }), "{error}");
}

// === against a naive model ===

/// Pools of one team, and the quota of one user: a request takes from the first pool with enough.
#[derive(Debug)]
struct Model {
    pools: [[u64; 3]; 2],
    users: [u64; 2],
}

impl Model {
    fn check(&mut self, team: usize, user: Option<usize>, hits: u64) -> bool {
        let pool = self.pools[team].iter().position(|left| *left >= hits);
        let fits = user.is_none_or(|user| self.users[user] >= hits);
        let (Some(pool), true) = (pool, fits) else { return false };
        self.pools[team][pool] -= hits;
        if let Some(user) = user {
            self.users[user] -= hits;
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn decisions_are_those_of_a_naive_model(
        asked in prop::collection::vec((0usize..2, prop::option::of(0usize..2), 0u64..60), 1..60),
    ) {
        let (engine, _) = engine(RULES);
        let mut model = Model { pools: [[100, 50, 10]; 2], users: [60; 2] };
        for (team, user, hits) in asked {
            let mut text = format!("team={team} x{hits}");
            if let Some(user) = user {
                text.push_str(&format!(" | user={user} x{hits}"));
            }
            let peeked = ask(&text, |request| engine.peek(request));
            let checked = ask(&text, |request| engine.check(request));
            prop_assert_eq!(checked.allowed, model.check(team, user, hits), "{}", text);
            prop_assert_eq!(peeked.allowed, checked.allowed);
            prop_assert_eq!(peeked.statuses[0].target, checked.statuses[0].target);
            // The remaining quota of every pool is that of the model.
            let left = ask(&format!("team={team}"), |request| {
                let rules = engine.snapshot();
                let all = ready(engine.inspect(engine.call(&rules, request))).unwrap().unwrap();
                let pools = std::iter::once(&all[0]).chain(&all[0].pools);
                let left: Vec<_> = pools.map(|one| one.limits[0].remaining).collect();
                let model: Vec<_> = model.pools[team].iter().map(|left| Some(*left as i64)).collect();
                assert_eq!(left, model, "{text}");
                Checked::default()
            });
            drop(left);
        }
    }
}
