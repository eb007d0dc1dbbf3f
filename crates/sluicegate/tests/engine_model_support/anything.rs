//! Rule sets and requests of few letters, so that they meet.

use proptest::prelude::*;
use proptest::sample::Index;
use regex::Regex;
use sluicegate_core::algorithm::concurrency::Concurrency;
use sluicegate_core::algorithm::cycle::Cycle;
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::leaky_bucket::LeakyBucket;
use sluicegate_core::algorithm::sliding_log::SlidingLog;
use sluicegate_core::algorithm::sliding_window::{Rounding, SlidingWindow};
use sluicegate_core::algorithm::smooth::SmoothBursty;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::algorithm::warm_up::WarmUp;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, GateLevels, Mode};
use sluicegate_core::quota::Rate;
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_rules::calendar::{Calendar, CalendarUnit};
use sluicegate_rules::domain::{Counter, DescriptorConfig, Domain, ListEntry, Pattern};
use sluicegate_rules::limit::LimitConfig;
use sluicegate_rules::network::Prefix;
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig, RuleExtras};
use sluicegate_rules::set::RuleSet;
use sluicegate_rules::unit::Unit;

use super::matching::{Entries, WrittenValue, domain_of, fits, ways, written};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub domain: &'static str,
    pub hits: u64,
    pub descriptors: Vec<Described>,
}

#[derive(Debug, Clone)]
pub struct Described {
    /// The rule that it is to be under, if there are any, and the values for that.
    aim: Option<(Index, Index)>,
    pub entries: Entries,
    pub hits: Option<u64>,
    pub limit: Option<Override>,
}

impl Asked {
    /// The same, with entries that rules of these may match.
    pub fn aimed(&self, domains: &[Domain]) -> Self {
        let mut asked = self.clone();
        if self.domain == "two" && domains.len() == 1 {
            asked.domain = "one";
        }
        let Some(domain) = domain_of(domains, asked.domain) else { return asked };
        let mut ways = ways(domain);
        ways.retain(|way| way.last().is_some_and(|node| node.rule.is_some()));
        for one in &mut asked.descriptors {
            let Some((rule, value)) = one.aim.filter(|_| !ways.is_empty()) else { continue };
            let entry = |node: &&DescriptorConfig| {
                let key = KEYS.into_iter().find(|key| **key == node.key).unwrap();
                let fit: Vec<_> =
                    VALUES.into_iter().filter(|value| fits(&node.value, value)).collect();
                (key, fit[value.index(fit.len().min(2))])
            };
            one.entries = ways[rule.index(ways.len())].iter().map(entry).collect();
        }
        asked
    }

    /// The same as a request.
    pub fn with<R>(&self, ask: impl FnOnce(&Request<'_>) -> R) -> R {
        let entries: Vec<Vec<Entry<'_>>> = self
            .descriptors
            .iter()
            .map(|one| one.entries.iter().map(|(key, value)| Entry::new(key, value)).collect())
            .collect();
        let descriptors: Vec<Descriptor<'_>> = self
            .descriptors
            .iter()
            .zip(&entries)
            .map(|(one, entries)| Descriptor {
                hits: one.hits,
                limit: one.limit,
                ..Descriptor::of(entries)
            })
            .collect();
        ask(&Request { domain: self.domain, descriptors: &descriptors, hits: self.hits })
    }
}

// === requests ===

pub fn asked() -> impl Strategy<Value = Asked> {
    let descriptors = prop::collection::vec(described(), 1..=3);
    // Sometimes the first once more, with as many hits or with others.
    let again = prop_oneof![4 => Just(None), 1 => prop::option::of(hits()).prop_map(Some)];
    let domain = prop_oneof![8 => Just("one"), 4 => Just("two"), 1 => Just("none")];
    (domain, hits(), descriptors, again).prop_map(|(domain, hits, mut descriptors, again)| {
        if let Some(hits) = again {
            descriptors.push(Described { hits, ..descriptors[0].clone() });
        }
        Asked { domain, hits, descriptors }
    })
}

fn described() -> impl Strategy<Value = Described> {
    let entries = (1usize..=9).prop_flat_map(|length| {
        let length = [1, 1, 1, 1, 1, 2, 2, 2, 3][length - 1];
        prop::collection::vec((key(), prop::sample::select(VALUES.to_vec())), length)
    });
    let aim = prop::option::weighted(0.9, any::<(Index, Index)>());
    let limit = (0u32..4, unit())
        .prop_map(|(requests_per_unit, unit)| Override { requests_per_unit, unit });
    let limit = prop_oneof![15 => Just(None), 1 => limit.prop_map(Some)];
    let hits = prop_oneof![3 => Just(None), 1 => hits().prop_map(Some)];
    (aim, entries, hits, limit).prop_map(|(aim, entries, hits, limit)| Described {
        aim,
        entries,
        hits,
        limit,
    })
}

pub fn hits() -> impl Strategy<Value = u64> {
    prop_oneof![
        12 => Just(1u64),
        6 => 2u64..6,
        2 => Just(0),
        1 => Just(u64::MAX),
        1 => Just((1 << 53) - 1),
        1 => Just(1 << 53),
    ]
}

const KEYS: [&str; 3] = ["a", "b", "ip"];

const VALUES: [&str; 14] = [
    "x",
    "y",
    "xy",
    "10.0.0.1",
    "10.0.0.9",
    "2001:db8::1",
    "xxy",
    "",
    "x*",
    "10.1.0.1",
    "::ffff:10.0.0.1",
    "2001:db8:0:1::1",
    "192.0.2.1",
    "2001:db8::2",
];

fn key() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(KEYS[0]), 2 => Just(KEYS[1]), 2 => Just(KEYS[2])]
}

fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![
        3 => Just(Unit::Second),
        2 => Just(Unit::Minute),
        1 => prop::sample::select(Unit::ALL.to_vec()),
    ]
}

// === rules ===

pub fn rule_set() -> impl Strategy<Value = Vec<Domain>> {
    let lists = || prop::collection::vec((key(), pattern()), 0..=1);
    let listed = |list: Vec<(&str, Pattern)>| -> Vec<ListEntry> {
        list.into_iter().map(|(key, value)| ListEntry { key: key.to_owned(), value }).collect()
    };
    let lists = prop_oneof![
        5 => Just((Vec::new(), Vec::new())),
        1 => (lists(), lists()).prop_map(move |(allow, deny)| (listed(allow), listed(deny))),
    ];
    let domain = (prop::collection::vec(node(2), 1..=4), lists);
    let two = (domain.clone(), prop::option::of(domain));
    two.prop_map(|(one, two)| {
        let named = |name, (descriptors, (allow, deny))| Domain {
            descriptors,
            allow,
            deny,
            ..Domain::new(name)
        };
        let mut domains = vec![named("one", one)];
        domains.extend(two.map(|two| named("two", two)));
        tidy(domains)
    })
}

pub fn node(depth: usize) -> BoxedStrategy<DescriptorConfig> {
    let below = match depth {
        1 => Just(Vec::new()).boxed(),
        _ => prop_oneof![
            2 => Just(Vec::new()),
            1 => prop::collection::vec(node(depth - 1), 1..=2)
        ]
        .boxed(),
    };
    let rule = prop_oneof![1 => Just(None), 7 => rule().prop_map(Some)];
    (key(), pattern(), counter(), rule, below)
        .prop_map(|(key, value, counter, rule, descriptors)| DescriptorConfig {
            counter,
            rule,
            descriptors,
            ..DescriptorConfig::new(key, value)
        })
        .boxed()
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let text = prop::sample::select(vec!["x", "x", "y", "xy", "*", "x*", "*y", "x*y", "10.0.0.1"]);
    let regex = prop::sample::select(vec!["^x", "y$", "x+y"]);
    let network = prop::sample::select(vec![
        "10.0.0.0/8",
        "10.0.0.0/24",
        "10.1.0.0/16",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/32",
    ]);
    prop_oneof![
        4 => Just(Pattern::Any),
        4 => text.prop_map(|text| Pattern::Text(text.to_owned())),
        1 => regex.prop_map(|regex| Pattern::Regex(Regex::new(regex).unwrap())),
        2 => prop::collection::vec(network, 1..=2)
            .prop_map(|all| Pattern::Networks(all.iter().map(|n| n.parse().unwrap()).collect())),
    ]
}

pub fn counter() -> impl Strategy<Value = Counter> {
    prop_oneof![
        4 => Just(Counter::PerValue),
        1 => Just(Counter::Shared),
        1 => Just(Counter::PerNetwork(Prefix { v4: 24, v6: 48 })),
    ]
}

pub fn rule() -> impl Strategy<Value = RuleConfig> {
    let replaces = prop_oneof![
        5 => Just(Vec::new()),
        1 => prop::collection::vec(name(), 1..=2),
    ];
    let cost = prop_oneof![8 => Just(1u64), 1 => Just(2), 1 => Just(1 << 60)];
    (
        limits(),
        mode(),
        cost,
        prop::bool::weighted(0.25),
        prop::option::weighted(0.3, name()),
        replaces,
    )
        .prop_map(|(limits, mode, cost, quota_mode, name, replaces)| {
            let rare = (!replaces.is_empty())
                .then(|| Box::new(RuleExtras { replaces, ..RuleExtras::default() }));
            RuleConfig { mode, cost, quota_mode, name, rare, ..RuleConfig::new(limits) }
        })
}

pub fn name() -> impl Strategy<Value = Box<str>> {
    prop::sample::select(vec!["n1", "n2", "n3"]).prop_map(Into::into)
}

pub fn limits() -> impl Strategy<Value = Limits> {
    let native = prop_oneof![
        3 => prop::collection::vec(limit(), 1),
        2 => prop::collection::vec(limit(), 2..=3),
    ];
    prop_oneof![
        1 => Just(Limits::Unlimited),
        6 => (0u32..6, unit())
            .prop_map(|(requests_per_unit, unit)| Limits::Envoy { requests_per_unit, unit }),
        9 => native.prop_map(|limits| Limits::Native(limits.into())),
    ]
}

fn limit() -> impl Strategy<Value = LimitConfig> {
    let name = prop::option::weighted(0.3, prop::sample::select(vec!["l1", "l2"]));
    (name, 0usize..16, numbers()).prop_map(|(name, algorithm, numbers)| {
        limit_of(name.map(str::to_owned), algorithm, numbers)
    })
}

pub type Numbers = (u64, u64, u64);

pub fn numbers() -> impl Strategy<Value = Numbers> {
    let period = prop::sample::select(vec![7, 10_000, 100_000, 1_000_000, 7_000_000, 60_000_000]);
    (1u64..5, period, 1u64..8)
}

pub fn limit_of(name: Option<String>, algorithm: usize, (n, p, b): Numbers) -> LimitConfig {
    let (rate, span) = (Rate::new(n, Span::from_micros(p)).unwrap(), Span::from_micros(p));
    let bucket = TokenBucket::new(rate, b).unwrap();
    // A new one need not be a full one.
    let bucket = if b < 4 { bucket } else { bucket.with_initial(b - 4).unwrap() };
    let stepped = |refill| Limit::TokenBucket(bucket.with_refill(refill).unwrap());
    let window = |align| Limit::FixedWindow(FixedWindow::new(rate, align));
    let counter = |rounding| Limit::SlidingWindow(SlidingWindow::new(rate, rounding));
    let log = SlidingLog::new(&[rate]).unwrap();
    let limit = match algorithm {
        0 => Limit::TokenBucket(bucket),
        1 => stepped(Refill::Interval),
        2 => stepped(Refill::Aligned),
        3 => Limit::LeakyBucket(LeakyBucket::new(rate, b).unwrap()),
        4 => window(Align::Clock),
        5 => window(Align::FirstHit),
        6 => counter(Rounding::Floor),
        7 => counter(Rounding::Up),
        8 => Limit::SlidingLog(log),
        9 => Limit::SlidingLog(log.with_min_gap(Span::from_micros(p / 7))),
        10 => Limit::SmoothBursty(SmoothBursty::new(rate, span).unwrap()),
        11 => Limit::WarmUp(WarmUp::new(rate, span, 3_000).unwrap()),
        12 => Limit::Cycle(Cycle::new(b, span).unwrap()),
        13 => Limit::Concurrency(Concurrency::new(b, span).unwrap()),
        14 => {
            let day = Rate::new(b, Span::from_secs(86_400)).unwrap();
            let berlin = Calendar::new("Europe/Berlin", CalendarUnit::Day).unwrap();
            return LimitConfig::calendar(name, day, berlin);
        }
        _ if b % 2 == 0 => return LimitConfig::closed(name, "token_bucket"),
        _ => Limit::Tally(Tally::new(n, span).unwrap()),
    };
    LimitConfig::fixed(name, limit)
}

pub fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        5 => Just(Mode::Hard),
        2 => Just(Mode::Shadow),
        3 => prop::sample::select(vec![34, 100]).prop_map(|percent| Mode::Soft { percent }),
        4 => (0u64..2).prop_map(|wide| Mode::Elastic {
            up_to: 2_000,
            gate: GateLevels::new(300, 600 + 200 * wide).unwrap(),
        }),
    ]
}

// === what cannot be ===

/// Without what no loader would hand over: descriptors and names that there are twice, modes that do not fit.
pub fn tidy(mut domains: Vec<Domain>) -> Vec<Domain> {
    for domain in &mut domains {
        tidy_level(&mut domain.descriptors, &mut Vec::new());
    }
    assert!(RuleSet::new(domains.clone()).is_ok(), "{domains:?}");
    domains
}

fn tidy_level(level: &mut Vec<DescriptorConfig>, names: &mut Vec<Box<str>>) {
    let mut seen: Vec<(String, WrittenValue)> = Vec::new();
    level.retain_mut(|node| {
        let value = written(node).value;
        let each = match value {
            WrittenValue::Networks(networks) => {
                networks.into_iter().map(|n| WrittenValue::Networks(vec![n])).collect()
            }
            other => vec![other],
        };
        let each: Vec<_> = each.into_iter().map(|value| (node.key.clone(), value)).collect();
        if each.iter().any(|one| seen.contains(one)) {
            return false;
        }
        seen.extend(each);
        true
    });
    for node in level {
        if let Some(rule) = &mut node.rule {
            tidy_rule(rule, names);
        }
        tidy_level(&mut node.descriptors, names);
    }
}

fn tidy_rule(rule: &mut RuleConfig, names: &mut Vec<Box<str>>) {
    let Limits::Native(limits) = &mut rule.limits else {
        if matches!(rule.mode, Mode::Elastic { .. }) {
            rule.mode = Mode::Hard;
        }
        return;
    };
    match &rule.name {
        Some(name) if names.contains(name) => rule.name = None,
        Some(name) => names.push(name.clone()),
        None => {}
    }
    let mut named: Vec<String> = Vec::new();
    let mut keep = |limit: &LimitConfig| match limit.name() {
        Some(name) if named.iter().any(|known| known == name) => false,
        Some(name) => {
            named.push(name.to_owned());
            true
        }
        None => true,
    };
    *limits = limits.iter().filter(|limit| keep(limit)).cloned().collect();
    let fits =
        |limit: &LimitConfig| EnforcedLimit::new(limit.at(Timestamp::EPOCH), rule.mode).is_ok();
    if !limits.iter().all(fits) {
        rule.mode = Mode::Hard;
    }
}
