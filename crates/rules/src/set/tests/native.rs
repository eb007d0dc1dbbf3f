//! Features of the native form: networks, regular expressions, lists, and counters by network.

use super::*;
use crate::domain::{Counter, ListEntry};
use crate::network::Prefix;
use crate::plan::{List, Plan};
use crate::request::{Descriptor, Request};

fn native(descriptors: Vec<DescriptorConfig>) -> RuleSet {
    compiled(Joint::Apart, descriptors)
}

fn shared(node: DescriptorConfig) -> DescriptorConfig {
    DescriptorConfig { counter: Counter::Shared, ..node }
}

fn grouped(v4: u8, v6: u8, node: DescriptorConfig) -> DescriptorConfig {
    DescriptorConfig { counter: Counter::PerNetwork(Prefix { v4, v6 }), ..node }
}

#[test]
fn the_longest_network_wins_whatever_the_order() {
    let mut level = vec![
        limited(1, networks("ip", "10.0.0.0/8 2001:db8::/32")),
        limited(2, networks("ip", "10.1.0.0/16")),
        limited(3, networks("ip", "10.1.2.3 ::/0")),
        limited(4, networks("other", "0.0.0.0/0")),
    ];
    for _ in 0..2 {
        check(
            &native(level.clone()),
            &[
                ("ip=10.9.0.1", 1),
                ("ip=10.1.9.9", 2),
                ("ip=10.1.2.3", 3),
                ("ip=::ffff:10.1.2.3", 3),
                ("ip=2001:db8::1", 1),
                ("ip=::1", 3),
                ("ip=11.0.0.1", 0),
                ("ip=no_address", 0),
                ("other=11.0.0.1", 4),
            ],
        );
        level.reverse();
    }
}

#[test]
fn exactly_then_networks_then_patterns_then_any_value() {
    let set = native(vec![
        limited(1, any("ip")),
        limited(2, text("ip", "10.*")),
        limited(3, regex("ip", "^1")),
        limited(4, networks("ip", "10.0.0.0/8")),
        limited(5, text("ip", "10.0.0.1")),
    ]);
    check(
        &set,
        &[
            ("ip=10.0.0.1", 5),
            ("ip=10.0.0.2", 4),
            ("ip=10.x", 2),
            ("ip=1x", 3),
            ("ip=x", 1),
            ("ip=", 1),
        ],
    );
}

#[test]
fn globs_and_expressions_are_tried_in_the_order_of_the_file() {
    for fillers in [0, 20] {
        let filler = |no: u32| limited(100 + no, text("p", &format!("f{no}*")));
        let mut level = vec![
            limited(1, regex("p", "^/a")),
            limited(2, text("p", "/a*")),
            limited(3, text("p", "/b*")),
            limited(4, regex("p", "^/[bc]")),
            limited(5, text("p", "/c*")),
        ];
        level.extend((0..fillers).map(filler));
        level.push(limited(6, regex("p", "")));
        let set = native(level);
        check(&set, &[("p=/a1", 1), ("p=/b1", 3), ("p=/c1", 4), ("p=f", 6), ("q=/a1", 0)]);
        if fillers > 0 {
            check(&set, &[("p=f7x", 107)]);
        }
    }
}

#[test]
fn an_expression_is_about_the_value_alone() {
    let level = || vec![limited(1, regex("a", "^b$")), limited(2, regex("a_b", "c"))];
    for joint in [Joint::Apart, Joint::Joined] {
        check(&compiled(joint, level()), &[("a=b", 1), ("a=b_c", 0), ("a_b=c", 2), ("b=b", 0)]);
    }
}

#[test]
fn a_network_is_there_once() {
    let told =
        refused(Joint::Apart, vec![networks("ip", "10.0.0.0/8"), networks("ip", "10.0.0.0/8")]);
    assert_eq!(told, "duplicate descriptor `ip=10.0.0.0/8`");
    native(vec![networks("ip", "10.0.0.0/8 10.0.0.0/8"), networks("other", "10.0.0.0/8")]);
}

#[test]
fn lists_decide_before_limits_and_deny_before_allow() {
    let listed = |key: &str, value: Pattern| ListEntry { key: key.to_owned(), value };
    let net = |text: &str| Pattern::Networks(vec![text.parse().unwrap()]);
    let set = RuleSet::new(vec![Domain {
        allow: vec![
            listed("ip", net("10.0.0.0/8")),
            listed("user", Pattern::Text("admin".to_owned())),
            listed("token", Pattern::Any),
        ],
        deny: vec![
            listed("ip", net("10.6.6.0/24")),
            listed("user", Pattern::Text("bad*".to_owned())),
        ],
        // Lists use the native form in every domain.
        ..domain(Joint::Joined, vec![limited(1, any("user"))])
    }])
    .unwrap();
    let on_list = |descriptors: &[&str]| {
        let entries: Vec<_> = descriptors.iter().map(|written| entries(written)).collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
        let mut plan = Plan::default();
        set.plan(&Request { domain: "d", descriptors: &descriptors, hits: 1 }, &mut plan);
        plan.listed().map(|listed| (listed.list, listed.at))
    };
    assert_eq!(on_list(&["user=1"]), None);
    assert_eq!(on_list(&["user=admin"]), Some((List::Allow, (0, 0))));
    assert_eq!(on_list(&["x=1", "y=1 ip=10.1.1.1"]), Some((List::Allow, (1, 1))));
    assert_eq!(on_list(&["user=admin", "ip=10.6.6.6"]), Some((List::Deny, (1, 0))));
    assert_eq!(on_list(&["ip=10.6.6.6"]), Some((List::Deny, (0, 0))), "the longest is no matter");
    assert_eq!(on_list(&["user=bad1"]), Some((List::Deny, (0, 0))));
    assert_eq!(on_list(&["user_bad=1"]), None);
    assert_eq!(on_list(&["token="]), Some((List::Allow, (0, 0))));
}

#[test]
fn addresses_of_a_network_share_a_counter() {
    let set = native(vec![grouped(24, 56, limited(1, any("ip")))]);
    let same = |one: &str, other: &str| identity(&set, one) == identity(&set, other);
    assert!(same("ip=192.0.2.1", "ip=192.0.2.254"));
    assert!(same("ip=192.0.2.1", "ip=::ffff:192.0.2.7"));
    assert!(!same("ip=192.0.2.1", "ip=192.0.3.1"));
    assert!(same("ip=2001:db8:0:1200::1", "ip=2001:DB8:0:12ff:0::2"));
    assert!(!same("ip=2001:db8:0:1200::1", "ip=2001:db8:0:1300::1"));
    assert!(!same("ip=192.0.2.0", "ip=192.0.2.0/24"), "what is no address stands for itself");
}

#[test]
fn a_counter_is_never_under_two_rules() {
    // Both halves of 10.0.0.0/24 count by that network, each under its own rule; so do a glob and
    // an expression of one text.
    let set = native(vec![
        grouped(24, 64, limited(1, networks("ip", "10.0.0.0/25"))),
        grouped(24, 64, limited(2, networks("ip", "10.0.0.128/25"))),
        grouped(24, 64, limited(3, text("ip", "10.0.0.7"))),
        grouped(8, 64, limited(4, any("ip"))),
        shared(limited(5, text("p", "a*"))),
        shared(limited(6, regex("p", "a*"))),
        shared(limited(7, text("n", "10.0.0.0/8"))),
        shared(limited(8, networks("n", "10.0.0.0/8"))),
    ]);
    for (one, other) in [
        ("ip=10.0.0.1", "ip=10.0.0.200"),
        ("ip=10.0.0.1", "ip=10.0.0.7"),
        ("ip=10.0.0.1", "ip=10.9.9.9"),
        ("p=ab", "p=xx"),
        ("n=10.0.0.0/8", "n=10.0.0.1"),
    ] {
        assert_ne!(under(&set, one), under(&set, other));
        assert_ne!(identity(&set, one), identity(&set, other), "{one} {other}");
    }
    assert_eq!(identity(&set, "ip=10.0.0.1"), identity(&set, "ip=10.0.0.2"));
}

#[test]
fn a_network_added_to_a_list_leaves_its_counters_alone() {
    let before = native(vec![shared(limited(1, networks("ip", "10.0.0.0/8")))]);
    let after = native(vec![shared(limited(1, networks("ip", "10.0.0.0/8 11.0.0.0/8")))]);
    assert_eq!(identity(&before, "ip=10.1.1.1"), identity(&after, "ip=11.1.1.1"));
}

#[test]
fn identities_never_meet_by_concatenation() {
    let below =
        |node: DescriptorConfig| above(node, vec![limited(2, any("b")), limited(3, any("bb"))]);
    let set = native(vec![below(limited(1, any("a"))), below(any("aa")), below(any("ab"))]);
    let all = [
        "a=1", "a=11", "a=b", "a=1b2", "a=1 b=2", "a=1b b=2", "a=1 b=b2", "a=1 bb=2", "aa=1 b=2",
        "ab=1 b=2", "a= b=", "a= b=b", "a=b b=",
    ];
    for (place, one) in all.iter().enumerate() {
        for other in &all[..place] {
            assert_ne!(identity(&set, one), identity(&set, other), "{one} | {other}");
        }
    }
}

#[test]
fn one_identity_or_many() {
    let one = |joint, node: DescriptorConfig| {
        let set = compiled(joint, vec![above(text("x", "1"), vec![limited(1, node)])]);
        let no = set.rules().next().unwrap();
        set.is_one_identity(no)
    };
    assert!(one(Joint::Apart, text("a", "b")));
    assert!(one(Joint::Apart, text("a*", "b")), "a star in a key is a letter");
    assert!(one(Joint::Apart, shared(any("a"))));
    assert!(!one(Joint::Apart, any("a")));
    assert!(!one(Joint::Apart, text("a", "b*")));
    assert!(!one(Joint::Apart, regex("a", "b")));
    assert!(!one(Joint::Apart, networks("a", "10.0.0.1")));
    assert!(!one(Joint::Joined, text("a", "b_c")), "by `a_b` and `c` too");
    assert!(!one(Joint::Joined, shared(text("a", "*"))), "by `a_b` too");
}
