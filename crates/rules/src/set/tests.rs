//! What matches what: statement by statement, and against a naive matcher.

mod agree;
mod envoy;
mod naive;
mod native;
mod plans;
mod random;
mod stat_keys;
mod trees;

// The naive matcher is compiled into the fuzzer too, where this crate has another name.
use crate as rules;
use crate::domain::{DescriptorConfig, Domain, Joint, Pattern};
use crate::request::Entry;
use crate::rule::{Limits, RuleConfig};
use crate::set::{RuleSet, RuleSetError};
use crate::unit::Unit;

fn any(key: &str) -> DescriptorConfig {
    DescriptorConfig::any(key)
}

fn text(key: &str, value: &str) -> DescriptorConfig {
    DescriptorConfig::text(key, value)
}

fn regex(key: &str, expression: &str) -> DescriptorConfig {
    DescriptorConfig::new(key, Pattern::Regex(regex::Regex::new(expression).unwrap()))
}

fn networks(key: &str, networks: &str) -> DescriptorConfig {
    let all = networks.split(' ').map(|network| network.parse().unwrap());
    DescriptorConfig::new(key, Pattern::Networks(all.collect()))
}

/// A rule that is known by its number.
fn rule(number: u32) -> RuleConfig {
    RuleConfig::new(Limits::Envoy { requests_per_unit: number, unit: Unit::Minute })
}

/// The node with a rule that is known by its number.
fn limited(number: u32, node: DescriptorConfig) -> DescriptorConfig {
    DescriptorConfig { rule: Some(rule(number)), ..node }
}

/// The node with these below it.
fn above(node: DescriptorConfig, descriptors: Vec<DescriptorConfig>) -> DescriptorConfig {
    DescriptorConfig { descriptors, ..node }
}

fn domain(joint: Joint, descriptors: Vec<DescriptorConfig>) -> Domain {
    Domain { joint, descriptors, ..Domain::new("d") }
}

fn compiled(joint: Joint, descriptors: Vec<DescriptorConfig>) -> RuleSet {
    RuleSet::new(vec![domain(joint, descriptors)]).unwrap()
}

fn refused(joint: Joint, descriptors: Vec<DescriptorConfig>) -> String {
    let error: RuleSetError = RuleSet::new(vec![domain(joint, descriptors)]).unwrap_err();
    error.to_string()
}

/// `user_id=42 path=/login` as entries.
fn entries(written: &str) -> Vec<Entry<'_>> {
    let pairs = written.split(' ').filter_map(|entry| entry.split_once('='));
    pairs.map(|(key, value)| Entry { key, value }).collect()
}

/// The number of the rule that these entries are under.
fn under(set: &RuleSet, written: &str) -> Option<u32> {
    let found = set.find("d", &entries(written))?;
    let Limits::Envoy { requests_per_unit, .. } = found.rule.limits else { panic!("another rule") };
    Some(requests_per_unit)
}

/// The identity of the counter.
fn identity(set: &RuleSet, written: &str) -> Vec<u8> {
    let entries = entries(written);
    let way = set.find("d", &entries).expect("no rule").path;
    let mut identity = Vec::new();
    set.write_identity(set.domain("d").unwrap(), &entries, &way, &mut identity);
    identity
}

/// Checks entries against the expected rules; 0 means no rule.
fn check(set: &RuleSet, table: &[(&str, u32)]) {
    for (written, number) in table {
        assert_eq!(under(set, written).unwrap_or(0), *number, "{written}");
    }
}

#[test]
fn a_set_without_domains_knows_nothing() {
    for set in [RuleSet::default(), RuleSet::new(Vec::new()).unwrap()] {
        assert!(set.find("d", &entries("a=1")).is_none());
        assert_eq!((set.rules().len(), set.domains().len()), (0, 0));
    }
}

#[test]
fn a_domain_is_found_among_many() {
    let name = |no: u32| format!("domain{no}");
    let of = |no: u32| {
        let descriptors = vec![limited(no + 1, any("a"))];
        Domain { descriptors, ..Domain::new(name(no)) }
    };
    let set = RuleSet::new((0..500).map(of).collect()).unwrap();
    for no in 0..500 {
        let found = set.find(&name(no), &entries("a=1")).unwrap();
        assert_eq!(found.rule.limits, rule(no + 1).limits);
        assert_eq!(set.domain_of(found.no), name(no));
        assert_eq!(set.path_of(found.no), format!("domain{no}/a"));
    }
    assert!(set.find("domain500", &entries("a=1")).is_none());
}

#[test]
fn the_depth_has_a_limit() {
    let chain = |depth: usize| (1..depth).fold(any("a"), |node, _| above(any("a"), vec![node]));
    assert!(RuleSet::new(vec![domain(Joint::Apart, vec![chain(32)])]).is_ok());
    let told = refused(Joint::Apart, vec![chain(33)]);
    assert_eq!(told, "more than 32 descriptors inside each other in `a`");
}

#[test]
fn names_tell_rules_apart() {
    let mut named = limited(2, text("a", "1"));
    named.rule.as_mut().unwrap().name = Some("first".into());
    let set =
        compiled(Joint::Apart, vec![above(any("b"), vec![limited(1, text("c", "x*"))]), named]);
    let ids: Vec<String> = set.rules().map(|no| set.id(no)).collect();
    assert_eq!(ids, ["d/b/c=x*", "d/first"]);
}

#[test]
fn what_a_rule_is_known_by_is_its_own() {
    let expression =
        || DescriptorConfig::new("a", Pattern::Regex(regex::Regex::new("^x").unwrap()));
    let told = refused(Joint::Apart, vec![expression(), expression()]);
    assert_eq!(told, "duplicate descriptor `a=^x`");
    let other = DescriptorConfig { key: "b".to_owned(), ..expression() };
    assert!(RuleSet::new(vec![domain(Joint::Apart, vec![expression(), other])]).is_ok());

    let named = |key: &str, limits: Limits| {
        let rule = RuleConfig { name: Some("first".into()), ..RuleConfig::new(limits) };
        DescriptorConfig { rule: Some(rule), ..any(key) }
    };
    let native = |key| named(key, Limits::Native(Box::default()));
    let told = refused(Joint::Apart, vec![native("a"), native("b")]);
    assert_eq!(told, "two rules are called `first`");
    let envoy = |key| named(key, Limits::Envoy { requests_per_unit: 1, unit: Unit::Hour });
    assert!(RuleSet::new(vec![domain(Joint::Apart, vec![envoy("a"), envoy("b")])]).is_ok());
}

#[test]
fn texts_of_any_length_are_told_apart() {
    // Short values fit in the node; of longer ones it holds a prefix.
    let value = |length: usize, last: char| format!("{}{last}", "v".repeat(length));
    let lengths = || (0..60).zip(1..);
    let level =
        lengths().map(|(length, number)| limited(number, text("k", &value(length, 'a')))).collect();
    let set = compiled(Joint::Apart, level);
    for (length, number) in lengths() {
        assert_eq!(under(&set, &format!("k={}", value(length, 'a'))), Some(number));
        assert_eq!(under(&set, &format!("k={}", value(length, 'b'))), None);
    }
}

#[test]
fn many_twins_are_refused_at_once() {
    let level = || (0..200_000).map(|_| text("a", "b")).collect();
    for joint in [Joint::Apart, Joint::Joined] {
        assert_eq!(refused(joint, level()), "duplicate descriptor `a=b`");
    }
}
