//! What requests must pass: overrides, replaced rules, costs.

use super::*;
use crate::plan::{DomainStatus, NoRule, Plan, Target};
use crate::request::{Descriptor, Override, Request};
use crate::rule::RuleExtras;

fn planned(set: &RuleSet, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Plan {
    let mut plan = Plan::default();
    set.plan(&Request { domain, descriptors, hits }, &mut plan);
    plan
}

/// The target of each descriptor: the name of a rule, in brackets if it is replaced.
fn told(set: &RuleSet, asked: &[&str]) -> Vec<String> {
    let entries: Vec<_> = asked.iter().map(|written| entries(written)).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
    let name = |no| set.rule(no).name.as_deref().unwrap_or("nameless").to_owned();
    let under = |under| match under {
        Target::None(_) => "-".to_owned(),
        Target::Rule(no) => name(no),
        Target::Replaced(no) => format!("({})", name(no)),
        Target::Override(_) => "override".to_owned(),
    };
    planned(set, "d", &descriptors, 1).steps().iter().map(|step| under(step.target)).collect()
}

fn named(name: &str, replaces: &[&str], limits: Limits) -> DescriptorConfig {
    let mut rule = RuleConfig::new(limits);
    rule.name = (!name.is_empty()).then(|| name.into());
    let replaces: Vec<Box<str>> = replaces.iter().map(|name| (*name).into()).collect();
    rule.rare =
        (!replaces.is_empty()).then(|| Box::new(RuleExtras { replaces, ..RuleExtras::default() }));
    DescriptorConfig { rule: Some(rule), ..any(if name.is_empty() { "nameless" } else { name }) }
}

fn replacing() -> RuleSet {
    let limits = || rule(1).limits;
    compiled(
        Joint::Joined,
        vec![
            named("plain", &[], limits()),
            named("other", &[], limits()),
            named("stronger", &["plain"], limits()),
            named("strongest", &["stronger", "other"], limits()),
            named("free", &["plain", "other"], Limits::Unlimited),
            named("this", &["that"], limits()),
            named("that", &["this"], limits()),
            named("", &["plain"], limits()),
        ],
    )
}

#[test]
fn a_rule_replaces_others_of_the_same_request() {
    let set = replacing();
    for (asked, expected) in [
        (vec!["plain=1", "other=1"], vec!["plain", "other"]),
        (vec!["plain=1", "stronger=1"], vec!["(plain)", "stronger"]),
        (vec!["stronger=1", "plain=1", "plain=2"], vec!["stronger", "(plain)", "(plain)"]),
        (vec!["plain=1", "free=1", "other=1"], vec!["(plain)", "free", "(other)"]),
        (vec!["plain=1", "nameless=1"], vec!["(plain)", "nameless"]),
        (vec!["this=1", "that=1"], vec!["(this)", "(that)"]),
        (vec!["this=1"], vec!["this"]),
        (vec!["plain=1", "none=1"], vec!["plain", "-"]),
        // A replaced rule still replaces others.
        (vec!["plain=1", "stronger=1", "strongest=1"], vec!["(plain)", "(stronger)", "strongest"]),
        (vec!["strongest=1", "stronger=1", "plain=1"], vec!["strongest", "(stronger)", "(plain)"]),
        (vec!["free=1", "free=2"], vec!["free", "free"]),
        // A rule that no entry leads to replaces nothing.
        (vec!["plain=1", "stronger=1 x=1"], vec!["plain", "-"]),
    ] {
        assert_eq!(told(&set, &asked), expected, "{asked:?}");
    }
}

#[test]
fn a_limit_that_comes_along_stands_in_place_of_all_rules() {
    let set = replacing();
    let limit = Override { requests_per_unit: 7, unit: Unit::Hour };
    let (known, nobody) = (entries("stronger=1"), entries("never=1 heard=2"));
    let with = |entries| Descriptor { limit: Some(limit), ..Descriptor::of(entries) };
    let plain = entries("plain=1");
    let asked = [with(&known), with(&nobody), with(&[]), Descriptor::of(&plain)];
    let plan = planned(&set, "d", &asked, 3);
    let unders: Vec<Target> = plan.steps().iter().map(|step| step.target).collect();
    assert_eq!(unders[..3], [Target::Override(limit); 3]);
    assert!(
        matches!(unders[3], Target::Rule(_)),
        "it replaces nothing, whatever it would have been"
    );
    assert!(plan.steps().iter().all(|step| step.cost == 3));
    assert_ne!(plan.identity(&plan.steps()[0]), plan.identity(&plan.steps()[1]));
    assert!(!plan.identity(&plan.steps()[2]).is_empty(), "the domain as a whole");

    let plan = planned(&set, "unknown", &asked, 1);
    assert_eq!(plan.domain(), DomainStatus::Unknown);
    let unknown = Target::None(NoRule::UnknownDomain);
    assert!(plan.steps().iter().all(|step| step.target == unknown));
    assert_eq!(plan.unmatched(), Some((0, NoRule::UnknownDomain)));
}

#[test]
fn a_descriptor_may_say_how_many_hits() {
    let mut heavy = limited(1, any("a"));
    heavy.rule.as_mut().unwrap().cost = 5;
    let set = compiled(Joint::Apart, vec![heavy]);
    let entries = entries("a=1");
    let with = |hits| Descriptor { hits, ..Descriptor::of(&entries) };
    let plan =
        planned(&set, "d", &[with(None), with(Some(0)), with(Some(7)), with(Some(u64::MAX))], 2);
    let costs: Vec<u64> = plan.steps().iter().map(|step| step.cost).collect();
    assert_eq!(costs, [10, 0, 35, u64::MAX]);
}

#[test]
fn a_plan_that_is_used_again_forgets() {
    let set = replacing();
    let mut plan = Plan::default();
    let (one, other) = (entries("plain=1"), entries("plain=22"));
    for (entries, domain) in [(&one, "d"), (&other, "d"), (&one, "d"), (&other, "unknown")] {
        let descriptors = [Descriptor::of(entries)];
        let request = Request { domain, descriptors: &descriptors, hits: 1 };
        set.plan(&request, &mut plan);
        let fresh = planned(&set, domain, &descriptors, 1);
        assert_eq!(plan.steps(), fresh.steps());
        assert_eq!(plan.domain(), fresh.domain());
        assert_eq!(plan.identity(&plan.steps()[0]), fresh.identity(&fresh.steps()[0]));
    }
}

#[test]
fn a_set_that_was_never_loaded_limits_nothing() {
    let entries = entries("a=1");
    let plan = planned(&RuleSet::default(), "d", &[Descriptor::of(&entries)], 1);
    assert_eq!((plan.domain(), plan.listed()), (DomainStatus::Unknown, None));
    assert_eq!(plan.steps()[0].target, Target::None(NoRule::UnknownDomain));
}

#[test]
fn a_leaf_without_a_limit_is_an_exemption_and_anything_else_is_unmatched() {
    let parent = above(any("parent"), vec![limited(1, any("child")), any("free")]);
    let set = compiled(Joint::Apart, vec![limited(1, any("user")), text("user", "vip"), parent]);
    let target = |text: &str| {
        let entries = entries(text);
        planned(&set, "d", &[Descriptor::of(&entries)], 1).steps()[0].target
    };
    assert!(matches!(target("user=alice"), Target::Rule(_)));
    assert_eq!(target("user=vip"), Target::None(NoRule::Exempt));
    assert_eq!(target("parent=1 free=2"), Target::None(NoRule::Exempt));
    for text in ["", "path=/", "parent=1", "user=vip more=1", "parent=1 other=2"] {
        assert_eq!(target(text), Target::None(NoRule::Unmatched), "{text:?}");
    }
    let (vip, path) = (entries("user=vip"), entries("path=/"));
    let plan = planned(&set, "d", &[Descriptor::of(&vip), Descriptor::of(&path)], 1);
    assert_eq!(plan.unmatched(), Some((1, NoRule::Unmatched)));
}
