//! Overrides against a naive resolver: the narrowest that matches decides, for every request.

use proptest::prelude::*;

use super::*;
use crate::domain::DescriptorConfig;
use crate::request::Entry;
use crate::resolve::resolve;
use crate::rule::RuleConfig;
use crate::set::RuleSet;
use crate::unit::Unit;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn per_hour(requests_per_unit: u32) -> Limits {
    Limits::Envoy { requests_per_unit, unit: Unit::Hour }
}

fn limited(number: u32, node: DescriptorConfig) -> DescriptorConfig {
    DescriptorConfig { rule: Some(RuleConfig::new(per_hour(number))), ..node }
}

fn text(key: &str, value: &str) -> ListEntry {
    ListEntry { key: key.to_owned(), value: Pattern::Text(value.to_owned()) }
}

fn network(key: &str, value: &str) -> ListEntry {
    ListEntry { key: key.to_owned(), value: Pattern::Networks(vec![value.parse().unwrap()]) }
}

fn change(matches: Vec<ListEntry>, change: OverrideChange) -> TemporaryOverride {
    let until = NOW.after(sluicegate_core::time::Span::from_secs(60));
    TemporaryOverride { matches, rule: None, change, until, note: "test".into() }
}

fn limits(matches: ListEntry, number: u32) -> TemporaryOverride {
    change(vec![matches], OverrideChange::Limits(per_hour(number)))
}

fn shop(descriptors: Vec<DescriptorConfig>, overrides: Vec<TemporaryOverride>) -> Domain {
    Domain { descriptors, overrides, ..Domain::new("shop") }
}

fn compiled(domain: Domain) -> RuleSet {
    RuleSet::new(resolve(vec![domain], NOW).unwrap().domains).unwrap()
}

fn number(rules: &RuleSet, entries: &[(&str, &str)]) -> Option<u32> {
    let entries: Vec<Entry<'_>> = entries.iter().map(|(k, v)| Entry::new(k, v)).collect();
    match &rules.find("shop", &entries)?.rule.limits {
        Limits::Envoy { requests_per_unit, .. } => Some(*requests_per_unit),
        Limits::Unlimited => Some(0),
        Limits::Native(_) => panic!(),
    }
}

#[test]
fn a_factor_reaches_everything_below_and_the_narrower_override_wins() {
    let search = limited(10, DescriptorConfig::text("path", "/search"));
    let users = DescriptorConfig {
        descriptors: vec![search],
        ..limited(100, DescriptorConfig::any("user"))
    };
    let wide = change(vec![text("user", "acme*")], OverrideChange::Factor(2_000));
    let narrow = change(vec![text("user", "acme-1")], OverrideChange::Factor(500));
    let rules = compiled(shop(vec![users], vec![narrow, wide]));
    for (user, factor) in [("bob", 2), ("acme", 4), ("acme-2", 4), ("acme-1", 1)] {
        assert_eq!(number(&rules, &[("user", user)]), Some(50 * factor), "{user}");
        let search = [("user", user), ("path", "/search")];
        assert_eq!(number(&rules, &search), Some(5 * factor), "{user}");
    }
}

#[test]
fn one_rule_can_be_meant() {
    let path = limited(10, DescriptorConfig::text("path", "/search"));
    let users =
        DescriptorConfig { descriptors: vec![path], ..limited(100, DescriptorConfig::any("user")) };
    for (rule, expected) in
        [("user", (0, 0)), ("shop/user/path=/search", (100, 0)), ("use", (100, 10))]
    {
        let mut one = change(vec![text("user", "acme")], OverrideChange::Unlimited);
        one.rule = Some(rule.into());
        let domain = shop(vec![users.clone()], vec![one.clone()]);
        assert_eq!(affected(&domain, [&one])[0].as_ref().unwrap().is_empty(), rule == "use");
        let rules = compiled(domain);
        let both = (
            number(&rules, &[("user", "acme")]),
            number(&rules, &[("user", "acme"), ("path", "/search")]),
        );
        assert_eq!(both, (Some(expected.0), Some(expected.1)), "{rule}");
    }
}

#[test]
fn lists_hold_blocks_and_exemptions_until_they_end() {
    let users = limited(100, DescriptorConfig::any("user"));
    let block = change(vec![text("user", "mallory")], OverrideChange::Block);
    let free = change(vec![text("user", "probe*")], OverrideChange::Unlimited);
    let domain = shop(vec![users], vec![block.clone(), block.clone(), free]);
    let resolved = resolve(vec![domain.clone()], NOW).unwrap();
    assert_eq!((resolved.domains[0].deny.len(), resolved.domains[0].allow.len()), (1, 1));
    assert_eq!(resolved.next, Some(block.until));
    let after = resolve(vec![domain], block.until).unwrap();
    assert!(after.domains[0].deny.is_empty() && after.domains[0].overrides.is_empty());
    assert_eq!(after.next, None);
    assert!(block.matches_entry("user", "mallory") && !block.matches_entry("user", "mallory2"));
}

#[test]
fn what_is_half_meant_is_refused() {
    let node = |node| limited(1, node);
    let regex = DescriptorConfig::new("user", Pattern::Regex(regex::Regex::new("^a").unwrap()));
    let shared = DescriptorConfig {
        counter: crate::domain::Counter::Shared,
        ..DescriptorConfig::any("user")
    };
    let cases = [
        (node(DescriptorConfig::text("user", "ac*me")), text("user", "acm*"), "only some values"),
        (node(regex), text("user", "acme*"), "only some values"),
        (node(DescriptorConfig::any("user")), text("user", "*acme"), "one value, a prefix"),
        (node(shared), text("user", "acme"), "counts all its values together"),
    ];
    for (node, entry, begins) in cases {
        let one = limits(entry, 5);
        let error = affected(&shop(vec![node], Vec::new()), [&one]).remove(0).unwrap_err();
        assert!(error.to_string().contains(begins), "{error}");
    }
}

#[test]
fn copies_have_names_of_their_own_and_are_replaced_like_the_original() {
    use crate::limit::LimitConfig;
    use crate::rule::RuleExtras;
    use sluicegate_core::limit::Limit;

    let unlimited = || Limits::Native(Box::new([LimitConfig::fixed(None, Limit::Unlimited)]));
    let mut users = DescriptorConfig::any("user");
    users.rule = Some(RuleConfig { name: Some("users".into()), ..RuleConfig::new(unlimited()) });
    let mut paths = DescriptorConfig::any("path");
    let rare = RuleExtras { replaces: vec!["users".into()], ..RuleExtras::default() };
    paths.rule = Some(RuleConfig { rare: Some(Box::new(rare)), ..RuleConfig::new(unlimited()) });
    let one = change(vec![text("user", "acme*")], OverrideChange::Limits(unlimited()));
    let rules = compiled(shop(vec![users, paths], vec![one]));
    let ids: Vec<String> = rules.rules().map(|no| rules.id(no)).collect();
    assert_eq!(ids, ["shop/users@acme*", "shop/users", "shop/path"]);
    let replaced = rules.rules().map(|no| rules.rule(no).replaces().len()).collect::<Vec<_>>();
    assert_eq!(replaced, [0, 0, 2]);
}

#[test]
fn several_networks_and_several_keys_are_all_meant() {
    let users = limited(10, DescriptorConfig::any("user"));
    let both = DescriptorConfig { descriptors: vec![users], ..DescriptorConfig::any("ip") };
    let networks =
        Pattern::Networks(["10.0.0.0/8", "192.0.2.0/24"].map(|one| one.parse().unwrap()).to_vec());
    let ip = ListEntry { key: "ip".to_owned(), value: networks };
    let rules = compiled(shop(
        vec![both],
        vec![change(vec![ip, text("user", "acme*")], OverrideChange::Factor(3_000))],
    ));
    let table = [
        ("10.1.1.1", "acme-1", 30),
        ("192.0.2.9", "acme", 30),
        ("192.0.3.9", "acme", 10),
        ("10.1.1.1", "bob", 10),
    ];
    for (ip, user, expected) in table {
        assert_eq!(number(&rules, &[("ip", ip), ("user", user)]), Some(expected), "{ip} {user}");
    }
}

#[test]
fn a_thousand_overrides_of_ten_thousand_rules_are_checked_and_applied() {
    let nodes = (0..10_000).map(|no| limited(1, DescriptorConfig::text("user", format!("u{no}"))));
    let mut nodes: Vec<_> = nodes.collect();
    nodes.push(limited(5, DescriptorConfig::any("user")));
    let overrides = (0..OVERRIDES_MAX).map(|no| limits(text("user", &format!("x{no}*")), 7));
    let domain = shop(nodes, overrides.collect());
    assert!(affected(&domain, &domain.overrides).iter().all(Result::is_ok));
    let rules = compiled(domain);
    assert_eq!(number(&rules, &[("user", "x999-1")]), Some(7));
}

fn any_value() -> impl Strategy<Value = String> {
    "[ab]{1,3}"
}

fn any_node() -> impl Strategy<Value = ListEntry> {
    prop_oneof![
        3 => any_value().prop_map(|value| text("user", &value)),
        2 => any_value().prop_map(|value| text("user", &format!("{value}*"))),
        1 => Just(ListEntry { key: "user".to_owned(), value: Pattern::Any }),
    ]
}

/// Narrower patterns first; of equal ones the first.
fn first_match<'a>(entries: &'a [(ListEntry, u32)], value: &str) -> Option<&'a (ListEntry, u32)> {
    let matching = entries.iter().filter(|(entry, _)| holds(&entry.value, value));
    matching.max_by_key(|(entry, _)| match &entry.value {
        Pattern::Text(text) if text.contains('*') => text.len(),
        Pattern::Text(_) => usize::MAX,
        _ => 0,
    })
}

proptest! {
    #[test]
    fn the_narrowest_override_of_a_value_decides(
        nodes in prop::collection::vec(any_node(), 1..6),
        overrides in prop::collection::vec(any_node(), 0..6),
        values in prop::collection::vec("[ab]{1,4}", 16),
    ) {
        let mut seen = std::collections::HashSet::new();
        let mut nodes: Vec<ListEntry> =
            nodes.into_iter().filter(|one| seen.insert(one.to_string())).collect();
        // Longer prefixes first, so that every node is the first that matches some value.
        nodes.sort_by_key(|one| std::cmp::Reverse(one.to_string().len()));
        let nodes: Vec<(ListEntry, u32)> = nodes.into_iter().zip(1..).collect();
        let mut seen = std::collections::HashSet::new();
        let overrides: Vec<(ListEntry, u32)> = overrides
            .into_iter()
            .filter(|one| !matches!(one.value, Pattern::Any) && seen.insert(one.to_string()))
            .zip(100..)
            .collect();
        let tree = nodes.iter().map(|(one, no)| {
            limited(*no, DescriptorConfig::new(one.key.clone(), one.value.clone()))
        });
        let list = overrides.iter().map(|(one, no)| limits(one.clone(), *no)).collect();
        let rules = compiled(shop(tree.collect(), list));
        for value in values {
            let rule = first_match(&nodes, &value).map(|(_, no)| *no);
            let expected = rule.map(|no| first_match(&overrides, &value).map_or(no, |(_, no)| *no));
            prop_assert_eq!(number(&rules, &[("user", &value)]), expected, "{}", value);
        }
    }

    #[test]
    fn the_longest_network_of_an_address_decides(
        overrides in prop::collection::vec((0_u8..4, 25_u8..33), 0..5),
        nodes in prop::collection::vec((0_u8..4, 25_u8..32), 0..4),
    ) {
        let net = |(part, length): &(u8, u8)| {
            crate::network::Network::of([10, 0, 0, part * 64].into(), *length).to_string()
        };
        let distinct = |all: Vec<(u8, u8)>| {
            let mut seen = std::collections::HashSet::new();
            all.iter().map(net).filter(|one| seen.insert(one.clone())).collect::<Vec<_>>()
        };
        let (nodes, overrides) = (distinct(nodes), distinct(overrides));
        let mut tree = vec![limited(1, DescriptorConfig::any("ip"))];
        tree.extend(nodes.iter().zip(2..).map(|(one, no)| {
            limited(no, DescriptorConfig::new("ip", network("ip", one).value))
        }));
        let list = overrides.iter().zip(100..).map(|(one, no)| limits(network("ip", one), no));
        let rules = compiled(shop(tree, list.collect()));
        let longest = |all: &[String], address: std::net::IpAddr| {
            let nets = all.iter().map(|one| one.parse::<crate::network::Network>().unwrap());
            let inside = nets.enumerate().filter(|(_, one)| one.contains(address));
            inside.max_by_key(|(_, one)| one.length()).map(|(index, _)| index as u32)
        };
        for last in (0..=255_u8).step_by(3) {
            let address: std::net::IpAddr = [10, 0, 0, last].into();
            let base = longest(&nodes, address).map_or(1, |index| 2 + index);
            let expected = longest(&overrides, address).map_or(base, |index| 100 + index);
            let found = number(&rules, &[("ip", &address.to_string())]);
            prop_assert_eq!(found, Some(expected), "{}", address);
        }
    }
}
