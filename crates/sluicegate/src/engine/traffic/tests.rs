//! Windows of observed traffic on a virtual clock, and figures equal to what was sent.

use sluicegate_rules::domain::{DescriptorConfig, Domain};
use sluicegate_rules::request::{Descriptor, Entry, Request};
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::set::RuleSet;
use sluicegate_rules::unit::Unit;

use super::*;
use crate::clock::ManualClock;

const NOON: u64 = 1_794_744_000;

struct Observed {
    engine: Engine,
    clock: ManualClock,
}

impl Observed {
    /// A limit of 3 a year for each user.
    fn new() -> Self {
        let rules = (0..1).map(|_| domain("shop")).collect();
        Self::of(RuleSet::new(rules).unwrap())
    }

    fn of(rules: RuleSet) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(NOON * 1_000_000));
        let builder = Engine::builder(rules).clock(clock.clone());
        Self { engine: builder.observe_traffic(true).build().unwrap(), clock }
    }

    /// Moves on to a second after noon, by a tick for each.
    fn at(&self, second: u64) {
        let now = self.engine.now().as_micros() / 1_000_000 - NOON;
        for second in now..=second {
            self.clock.set(Timestamp::from_micros((NOON + second) * 1_000_000));
            self.engine.tick_traffic();
        }
    }

    fn hit(&self, domain: &str, user: &str, hits: u64) -> bool {
        let entries = [Entry::new("user", user)];
        let descriptors = [Descriptor::of(&entries)];
        self.engine.check(&Request { domain, descriptors: &descriptors, hits }).allowed
    }

    fn traffic(&self) -> RuleTraffic {
        let rules = self.engine.snapshot();
        let no = rules.rules().rules().next().unwrap();
        rules.traffic(no).unwrap()
    }
}

fn domain(name: &str) -> Domain {
    let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 3, unit: Unit::Year });
    let users = DescriptorConfig { rule: Some(rule), ..DescriptorConfig::any("user") };
    Domain { descriptors: vec![users], ..Domain::new(name) }
}

fn noon(second: u64) -> Timestamp {
    Timestamp::from_micros((NOON + second) * 1_000_000)
}

fn hits(all: &[IdentityHits]) -> Vec<(&str, u64, u64)> {
    all.iter().map(|one| (&*one.descriptor, one.hits, one.over_estimate)).collect()
}

#[test]
fn figures_are_those_that_were_sent() {
    let observed = Observed::new();
    observed.at(0);
    for (user, cost) in [("alice", 2), ("bob", 1), ("alice", 2), ("carol", 1), ("alice", 4)] {
        observed.hit("shop", user, cost);
    }
    observed.at(7);
    assert!(observed.hit("shop", "dora", 1));
    let traffic = observed.traffic();
    assert_eq!((traffic.distinct.identities, traffic.distinct.denied), (4, 1));
    assert_eq!((traffic.last_hit, traffic.last_denied), (Some(noon(7)), Some(noon(0))));
    assert_eq!(traffic.last_shadow_denied, None);
    assert_eq!(traffic.observed_since, noon(0));
    let top = traffic.top;
    assert_eq!(hits(&top.talkers)[0], ("user=alice", 8, 0));
    assert_eq!((top.talkers.len(), top.hits), (4, 11));
    assert_eq!(hits(&top.denied), [("user=alice", 6, 0)]);
    assert_eq!((top.denied_hits, top.sample_interval, top.unsketched_hits), (6, 1, 0));
}

#[test]
fn the_last_minutes_are_shown_and_not_all() {
    let observed = Observed::new();
    observed.at(0);
    observed.hit("shop", "alice", 9);
    observed.at(299);
    assert_eq!(hits(&observed.traffic().top.denied), [("user=alice", 9, 0)]);
    observed.at(300);
    observed.hit("shop", "bob", 8);
    let top = observed.traffic().top;
    assert_eq!(
        (hits(&top.denied), top.since),
        (vec![("user=alice", 9, 0), ("user=bob", 8, 0)], noon(0))
    );
    observed.at(600);
    let top = observed.traffic().top;
    assert_eq!((hits(&top.denied), top.since), (vec![("user=bob", 8, 0)], noon(300)));
    observed.at(900);
    let traffic = observed.traffic();
    assert_eq!((hits(&traffic.top.denied), traffic.top.hits), (vec![], 0));
    assert_eq!(traffic.last_denied, Some(noon(300)), "but when it denied is known");
    assert_eq!(traffic.distinct.denied, 2);
    observed.at(3_599);
    let distinct = observed.traffic().distinct;
    assert_eq!((distinct.denied, distinct.since), (2, noon(0)));
    observed.at(3_600);
    let distinct = observed.traffic().distinct;
    assert_eq!((distinct.denied, distinct.since), (0, noon(600)));
}

#[test]
fn a_rule_in_shadow_mode_counts_what_it_would_deny() {
    let mut shop = domain("shop");
    if let Some(rule) = &mut shop.descriptors[0].rule {
        rule.mode = sluicegate_core::mode::Mode::Shadow;
    }
    let observed = Observed::of(RuleSet::new(vec![shop]).unwrap());
    assert!(observed.hit("shop", "alice", 4));
    let traffic = observed.traffic();
    assert_eq!((traffic.last_denied, traffic.last_shadow_denied), (None, Some(noon(0))));
    assert_eq!(
        (traffic.distinct.denied, hits(&traffic.top.denied)),
        (1, vec![("user=alice", 4, 0)])
    );
}

#[test]
fn a_high_load_is_sampled_and_the_estimate_is_close() {
    let observed = Observed::new();
    observed.at(0);
    for _ in 0..40_000 {
        observed.hit("shop", "alice", 1);
    }
    observed.at(1);
    for turn in 0..200_000u32 {
        observed.hit("shop", if turn % 4 == 0 { "alice" } else { "bob" }, 1);
    }
    let top = observed.traffic().top;
    assert_eq!(top.sample_interval, 4);
    // 90,000 and 150,000; the standard error of the sampled part is 450 and 670.
    let all = hits(&top.talkers);
    let of = |name| all.iter().find(|one| one.0 == name).unwrap().1 as i64;
    assert!((of("user=alice") - 90_000).abs() < 3_000, "{all:?}");
    assert!((of("user=bob") - 150_000).abs() < 4_000, "{all:?}");
    observed.at(3);
    observed.hit("shop", "carol", 1);
    assert!(hits(&observed.traffic().top.talkers).contains(&("user=carol", 1, 0)), "exact again");
}

#[test]
fn observed_rules_are_bounded_and_removed_ones_make_room() {
    let domains = |from: usize, count: usize| {
        let names = (from..from + count).map(|no| domain(&format!("d{no}")));
        RuleSet::new(names.collect()).unwrap()
    };
    let observed = Observed::of(domains(0, RULES_OBSERVED_MAX + 1));
    for no in 0..=RULES_OBSERVED_MAX {
        assert!(observed.hit(&format!("d{no}"), "alice", 1));
    }
    let unobserved = |engine: &Engine| {
        let rules = engine.snapshot();
        rules.rules().rules().filter(|no| !rules.has_traffic_room(*no)).count()
    };
    assert_eq!(unobserved(&observed.engine), 1);
    observed.engine.reload(domains(1_000, 1)).unwrap();
    observed.hit("d1000", "alice", 1);
    assert_eq!(unobserved(&observed.engine), 0);
    assert_eq!(observed.traffic().distinct.identities, 1);
}

#[test]
fn an_engine_that_does_not_observe_has_nothing() {
    let engine = Engine::new(RuleSet::new(vec![domain("shop")]).unwrap()).unwrap();
    engine.tick_traffic();
    let rules = engine.snapshot();
    let no = rules.rules().rules().next().unwrap();
    assert_eq!((rules.traffic(no), rules.traffic_observed_since()), (None, None));
}
