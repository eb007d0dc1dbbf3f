//! Metric names of rules, identical to envoyproxy/ratelimit.

use super::*;
use crate::domain::Counter;

fn stat_key(set: &RuleSet, written: &str) -> String {
    let entries = entries(written);
    let found = set.find("d", &entries).expect("no rule");
    let (mut identity, mut key) = (Vec::new(), String::new());
    set.write_identity(set.domain("d").expect("no domain"), &entries, &found.path, &mut identity);
    set.write_stat_key(found.no, &identity, &mut key);
    key
}

fn with_value(node: DescriptorConfig) -> DescriptorConfig {
    DescriptorConfig { value_to_metric: true, ..node }
}

fn shared(node: DescriptorConfig) -> DescriptorConfig {
    DescriptorConfig { counter: Counter::Shared, ..node }
}

fn detailed(mut node: DescriptorConfig) -> DescriptorConfig {
    node.rule.as_mut().expect("no rule").detailed_metric = true;
    node
}

/// The key of one descriptor of two entries, the first `a` and the second `b`.
fn key(first: DescriptorConfig, second: DescriptorConfig, written: &str) -> String {
    let set = compiled(Joint::Joined, vec![above(first, vec![second])]);
    stat_key(&set, written)
}

#[test]
fn the_words_of_the_file() {
    let key = |first, second, written| key(first, limited(1, second), written);
    assert_eq!(key(any("a"), any("b"), "a=1 b=2"), "d.a.b");
    assert_eq!(key(text("a", "1"), text("b", "2*"), "a=1 b=22"), "d.a_1.b_2*");
    assert_eq!(key(any("a"), any("b"), "a= b="), "d.a.b");
}

#[test]
fn the_value_of_an_entry() {
    let key = |first, second, written| key(first, limited(1, second), written);
    assert_eq!(key(with_value(any("a")), any("b"), "a=1 b=2"), "d.a_1.b");
    assert_eq!(key(any("a"), with_value(any("b")), "a=1 b=2"), "d.a.b_2");
    assert_eq!(key(any("a"), with_value(text("b", "2*")), "a=1 b=22"), "d.a.b_22");
    assert_eq!(key(with_value(any("a")), any("b"), "a= b=2"), "d.a.b");
}

#[test]
fn the_value_of_every_entry() {
    let detailed = |node| detailed(limited(1, node));
    assert_eq!(key(any("a"), detailed(any("b")), "a=1 b=2"), "d.a_1.b_2");
    assert_eq!(key(text("a", "1*"), detailed(text("b", "2")), "a=11 b=2"), "d.a_11.b_2");
    assert_eq!(key(with_value(any("a")), detailed(any("b")), "a=1 b=2"), "d.a_1.b_2");
    assert_eq!(key(any("a"), detailed(any("b")), "a= b="), "d.a_.b_", "the joint stays");
}

#[test]
fn the_pattern_of_those_who_share() {
    let shares = || shared(with_value(text("a", "1*")));
    assert_eq!(key(shares(), limited(1, any("b")), "a=11 b=2"), "d.a_1*.b");
    assert_eq!(key(shares(), detailed(limited(1, any("b"))), "a=11 b=2"), "d.a_1*.b_2");
    assert_eq!(key(shares(), detailed(limited(1, any("b"))), "a=11 b="), "d.a_1*.b");
    let last = shared(detailed(limited(1, text("b", "2*"))));
    assert_eq!(key(any("a"), last, "a=1 b=22"), "d.a_1.b_2*");
}

#[test]
fn names_depend_on_values_only_where_values_differ() {
    let names_values = |first, second| {
        let set = compiled(Joint::Joined, vec![above(first, vec![second])]);
        set.names_values(set.rules().next().expect("no rule"))
    };
    let leaf = |node| limited(1, node);
    assert!(!names_values(any("a"), leaf(any("b"))));
    assert!(names_values(with_value(any("a")), leaf(text("b", "2"))));
    assert!(names_values(any("a"), leaf(with_value(text("b", "2*")))));
    assert!(!names_values(any("a"), leaf(with_value(text("b", "2")))), "one value");
    assert!(!names_values(shared(with_value(text("a", "1*"))), leaf(any("b"))), "one counter");
    assert!(names_values(any("a"), detailed(leaf(text("b", "2")))));
    assert!(!names_values(text("a", "1"), detailed(leaf(text("b", "2")))));
}
