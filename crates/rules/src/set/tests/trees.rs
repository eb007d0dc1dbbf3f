//! Builds a small rule tree and likely matching requests from bytes: random ones for property
//! tests, chosen ones for the fuzzer. The vocabulary is small, so that collisions are frequent.

use regex::Regex;

use super::naive::drop_twins;
use super::rules::domain::{Counter, DescriptorConfig, Domain, Joint, ListEntry, Pattern};
use super::rules::network::Prefix;
use super::rules::rule::{Limits, RuleConfig};

/// Bytes, taken one after the other; behind their end there are zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

/// The entries of one descriptor: keys and values.
pub(super) type Entries = Vec<(String, String)>;

const KEYS: [&str; 9] = ["a", "b", "a_b", "_", "a*", "*", "ip", "a_", ""];
const LETTERS: [&str; 6] = ["a", "b", "_", "*", "aa", "é"];
const EXPRESSIONS: [&str; 7] = ["a", "^a+$", "b_", "", "^.b", "(?i)A_", r"^\d+\."];
const NETWORKS: [&str; 10] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3",
    "10.1.2.128/25",
    "0.0.0.0/0",
    "::/0",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "11.0.0.0/8",
];
const ADDRESSES: [&str; 9] = [
    "10.1.2.3",
    "10.1.2.200",
    "10.1.9.9",
    "10.9.9.9",
    "11.1.1.1",
    "::ffff:10.1.2.3",
    "2001:db8:1::7",
    "2001:DB8:2:0::7",
    "::1",
];
const DEPTH_MAX: usize = 4;

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, many: usize) -> usize {
        usize::from(self.byte()) % many
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == many - 1
    }

    fn of<'b>(&mut self, words: &[&'b str]) -> &'b str {
        words[self.below(words.len())]
    }

    /// A domain whose rules have distinct costs.
    pub(super) fn domain(&mut self) -> Domain {
        let joint = if self.one_in(2) { Joint::Joined } else { Joint::Apart };
        let tolerant = self.one_in(8);
        let mut rules = 0;
        let descriptors = self.level(joint, 1, tolerant, &mut rules);
        let (allow, deny) = (self.list(tolerant), self.list(tolerant));
        Domain { joint, allow, deny, descriptors, ..Domain::new("d") }
    }

    fn level(
        &mut self,
        joint: Joint,
        depth: usize,
        tolerant: bool,
        rules: &mut u64,
    ) -> Vec<DescriptorConfig> {
        // Now and then enough globs for the index.
        let many = self.one_in(4);
        let count = if many { 9 + self.below(16) } else { self.below(6) };
        let (key, counter) = (self.of(&KEYS), self.counter());
        let mut level = Vec::new();
        for _ in 0..count {
            let mut node = match many && !self.one_in(6) {
                true => DescriptorConfig::text(key, self.glob()),
                // Often the same key, so that nodes compete, and often the same counter.
                false => {
                    let key = if self.one_in(3) { self.of(&KEYS) } else { key };
                    DescriptorConfig::new(key, self.pattern())
                }
            };
            node.counter = if self.one_in(3) { self.counter() } else { counter };
            node.value_to_metric = self.one_in(3);
            if !self.one_in(4) {
                *rules += 1;
                let mut rule = RuleConfig::new(Limits::Unlimited);
                rule.cost = *rules;
                node.rule = Some(rule);
            }
            if depth < DEPTH_MAX && self.one_in(3) {
                node.descriptors = self.level(joint, depth + 1, tolerant, rules);
            }
            level.push(node);
        }
        if !tolerant {
            drop_twins(&mut level, joint);
        }
        level
    }

    fn list(&mut self, tolerant: bool) -> Vec<ListEntry> {
        let count = if self.one_in(3) { self.below(4) } else { 0 };
        let mut nodes: Vec<DescriptorConfig> = (0..count)
            .map(|_| {
                let key = self.of(&KEYS);
                DescriptorConfig::new(key, self.pattern())
            })
            .collect();
        if !tolerant {
            drop_twins(&mut nodes, Joint::Apart);
        }
        nodes.into_iter().map(|node| ListEntry { key: node.key, value: node.value }).collect()
    }

    fn counter(&mut self) -> Counter {
        match self.below(5) {
            0 => Counter::Shared,
            1 => Counter::PerNetwork(Prefix { v4: 24, v6: 48 }),
            2 => Counter::PerNetwork(Prefix { v4: 4, v6: 0 }),
            _ => Counter::PerValue,
        }
    }

    fn pattern(&mut self) -> Pattern {
        match self.below(9) {
            0 | 1 => Pattern::Any,
            2 => Pattern::Regex(Regex::new(self.of(&EXPRESSIONS)).expect("an expression")),
            3 | 8 => Pattern::Networks(
                (0..=self.below(3))
                    .map(|_| self.of(&NETWORKS).parse().expect("a network"))
                    .collect(),
            ),
            4 => Pattern::Text(self.glob()),
            // A text that looks like a network or an expression.
            5 if self.one_in(2) => Pattern::Text(self.of(&NETWORKS).to_owned()),
            5 => Pattern::Text(self.of(&EXPRESSIONS).to_owned()),
            _ => Pattern::Text(self.text(4)),
        }
    }

    fn glob(&mut self) -> String {
        // Occasionally longer than the indexed prefix.
        let long = if self.one_in(12) { "a".repeat(90 + self.below(12)) } else { String::new() };
        let (before, after) = (self.text(3), self.text(3));
        if self.one_in(2) {
            format!("{long}{before}*{after}")
        } else {
            format!("{before}*{after}{long}")
        }
    }

    fn text(&mut self, most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.of(&LETTERS)).collect()
    }

    /// Entries for a request to a domain: some by following the tree, some by chance.
    pub(super) fn entries(&mut self, domain: &Domain) -> Entries {
        let mut entries = Entries::new();
        let mut level = domain.descriptors.as_slice();
        for _ in 0..self.below(DEPTH_MAX + 2) {
            if level.is_empty() || self.one_in(4) {
                entries.push((self.of(&KEYS).to_owned(), self.value()));
                continue;
            }
            let node = &level[self.below(level.len())];
            let (key, value) =
                (node.key.replace('*', self.of(&["*", "a", ""])), self.like(&node.value));
            entries.push(self.split_elsewhere(key, value));
            level = &node.descriptors;
        }
        entries
    }

    /// The same entries with one value changed, to compare their counters.
    pub(super) fn varied(&mut self, entries: &Entries) -> Entries {
        let mut varied = entries.clone();
        let place = self.below(entries.len().max(1));
        if let Some((_, value)) = varied.get_mut(place) {
            let is_address = ADDRESSES.contains(&value.as_str());
            *value = if is_address { self.of(&ADDRESSES).to_owned() } else { self.value() };
        }
        varied
    }

    /// The same joined text now and then, with another key and another value.
    fn split_elsewhere(&mut self, key: String, value: String) -> (String, String) {
        let joined = format!("{key}_{value}");
        let places: Vec<usize> = joined.match_indices('_').map(|(place, _)| place).collect();
        if !self.one_in(3) {
            return (key, value);
        }
        let place = places[self.below(places.len())];
        (joined[..place].to_owned(), joined[place + 1..].to_owned())
    }

    fn like(&mut self, pattern: &Pattern) -> String {
        match pattern {
            Pattern::Text(text) if self.one_in(6) => text.clone(),
            Pattern::Text(text) => {
                let pieces: Vec<&str> = text.split('*').collect();
                let filling = self.text(3);
                pieces.join(&filling)
            }
            Pattern::Networks(_) => self.of(&ADDRESSES).to_owned(),
            Pattern::Any | Pattern::Regex(_) => self.value(),
        }
    }

    fn value(&mut self) -> String {
        if self.one_in(3) { self.of(&ADDRESSES).to_owned() } else { self.text(5) }
    }
}
