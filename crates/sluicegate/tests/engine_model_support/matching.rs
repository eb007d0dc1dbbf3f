//! Which rule, and whose counter: tried one by one, in the order of the file.

use std::net::IpAddr;

use sluicegate_rules::domain::{Counter, DescriptorConfig, Domain, ListEntry, Pattern};
use sluicegate_rules::network::Network;
use sluicegate_rules::rule::{Limits, RuleConfig};

pub type Entries = Vec<(&'static str, &'static str)>;

/// What a rule is known by when the rules are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lasting {
    /// A native one by its name; and whether it is for one identity or for many.
    Named(String, String, bool),
    /// Every other by the way to it.
    Way(String, Vec<Written>),
}

/// A node as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Written {
    pub key: String,
    pub value: WrittenValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WrittenValue {
    Any,
    Text(String),
    Regex(String),
    Networks(Vec<Network>),
}

/// What stands for an entry when it is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Counted {
    Value(String),
    Node(WrittenValue),
    Network(Network, WrittenValue),
}

/// A rule, and where it stands.
#[derive(Debug, Clone)]
pub struct Placed<'a> {
    pub rule: &'a RuleConfig,
    pub lasting: Lasting,
    /// `shop/user/path=/login*`.
    pub way: String,
}

/// A rule that somebody is under, and whose counter it is.
#[derive(Debug, Clone)]
pub struct Met<'a> {
    pub placed: Placed<'a>,
    pub counted: Vec<(String, Counted)>,
}

pub fn domain_of<'a>(domains: &'a [Domain], name: &str) -> Option<&'a Domain> {
    domains.iter().find(|domain| domain.name == name)
}

/// The rule that a descriptor is under.
pub fn meet<'a>(domain: &'a Domain, entries: &Entries) -> Option<Met<'a>> {
    let mut level = domain.descriptors.as_slice();
    let mut way: Vec<&DescriptorConfig> = Vec::new();
    for (key, value) in entries {
        let node = next(level, key, value)?;
        way.push(node);
        level = &node.descriptors;
    }
    let rule = way.last()?.rule.as_ref()?;
    let counted = way
        .iter()
        .zip(entries)
        .map(|(node, (key, value))| ((*key).to_owned(), counted(node, value)))
        .collect();
    Some(Met { placed: placed(domain, &way, rule), counted })
}

/// All rules of a set.
pub fn all(domains: &[Domain]) -> Vec<Placed<'_>> {
    let mut rules = Vec::new();
    for domain in domains {
        for way in ways(domain) {
            let rule = way.last().and_then(|node| node.rule.as_ref());
            rules.extend(rule.map(|rule| placed(domain, &way, rule)));
        }
    }
    rules
}

/// The ways to all nodes.
pub fn ways(domain: &Domain) -> Vec<Vec<&DescriptorConfig>> {
    fn below<'a>(
        domain: &'a Domain,
        way: &[&'a DescriptorConfig],
        into: &mut Vec<Vec<&'a DescriptorConfig>>,
    ) {
        let level = way.last().map_or(&domain.descriptors, |node| &node.descriptors);
        for node in level {
            let mut way = way.to_vec();
            way.push(node);
            into.push(way.clone());
            below(domain, &way, into);
        }
    }
    let mut into = Vec::new();
    below(domain, &[], &mut into);
    into
}

pub fn fits(pattern: &Pattern, value: &str) -> bool {
    matches(pattern, value).is_some()
}

pub fn is_listed(list: &[ListEntry], (key, value): (&str, &str)) -> bool {
    list.iter().any(|listed| listed.key == key && fits(&listed.value, value))
}

fn placed<'a>(domain: &Domain, way: &[&'a DescriptorConfig], rule: &'a RuleConfig) -> Placed<'a> {
    let lasting = match (&rule.name, &rule.limits) {
        (Some(name), Limits::Native(_)) => {
            let one = way.iter().all(|node| {
                let exact = matches!(node.value, Pattern::Text(_)) && !node.value.is_glob();
                node.counter == Counter::Shared || exact
            });
            Lasting::Named(domain.name.clone(), name.to_string(), one)
        }
        _ => Lasting::Way(domain.name.clone(), way.iter().map(|node| written(node)).collect()),
    };
    let mut text = domain.name.clone();
    for node in way {
        text.push('/');
        text.push_str(&node.key);
        match &node.value {
            Pattern::Any => {}
            Pattern::Text(value) => text.push_str(&format!("={value}")),
            Pattern::Regex(regex) => text.push_str(&format!("={}", regex.as_str())),
            Pattern::Networks(networks) => {
                let all: Vec<String> = networks.iter().map(ToString::to_string).collect();
                text.push_str(&format!("={}", all.join(",")));
            }
        }
    }
    Placed { rule, lasting, way: text }
}

pub fn written(node: &DescriptorConfig) -> Written {
    let value = match &node.value {
        Pattern::Any => WrittenValue::Any,
        Pattern::Text(text) => WrittenValue::Text(text.clone()),
        Pattern::Regex(regex) => WrittenValue::Regex(regex.as_str().to_owned()),
        Pattern::Networks(networks) => WrittenValue::Networks(networks.clone()),
    };
    Written { key: node.key.clone(), value }
}

fn counted(node: &DescriptorConfig, value: &str) -> Counted {
    // Of a list of networks the first stands for all: others may be added behind it.
    let stands = match written(node).value {
        WrittenValue::Networks(networks) => WrittenValue::Networks(networks[..1].to_vec()),
        other => other,
    };
    match (node.counter, value.parse::<IpAddr>()) {
        (Counter::Shared, _) => Counted::Node(stands),
        (Counter::PerNetwork(prefix), Ok(address)) => {
            Counted::Network(prefix.network_of(address), stands)
        }
        (Counter::PerNetwork(_), Err(_)) | (Counter::PerValue, _) => {
            Counted::Value(value.to_owned())
        }
    }
}

/// How well a pattern fits a value: the less, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    /// By how many bits are not told.
    Network(u8),
    Pattern,
    Any,
}

fn next<'a>(level: &'a [DescriptorConfig], key: &str, value: &str) -> Option<&'a DescriptorConfig> {
    // Of those that fit alike, the first of the file.
    level
        .iter()
        .filter(|node| node.key == key)
        .filter_map(|node| Some((matches(&node.value, value)?, node)))
        .min_by_key(|(fit, _)| *fit)
        .map(|(_, node)| node)
}

fn matches(pattern: &Pattern, value: &str) -> Option<Fit> {
    match pattern {
        Pattern::Any => Some(Fit::Any),
        Pattern::Text(text) if text == value => Some(Fit::Exact),
        Pattern::Text(text) => {
            (text.contains('*') && glob(text.as_bytes(), value.as_bytes())).then_some(Fit::Pattern)
        }
        Pattern::Regex(regex) => regex.is_match(value).then_some(Fit::Pattern),
        Pattern::Networks(networks) => {
            let address: IpAddr = value.parse().ok()?;
            let holds = networks.iter().filter(|network| network.contains(address));
            holds.map(|network| Fit::Network(128 - network.length())).min()
        }
    }
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', after)), _) => (0..=text.len()).any(|length| glob(after, &text[length..])),
        (Some((a, pattern)), Some((b, text))) => a == b && glob(pattern, text),
        _ => false,
    }
}
