//! Rules of several shapes, and descriptors that lead to them.

use std::fmt::Write as _;

use sluicegate_rules::domain::{Counter, DescriptorConfig, Domain, Joint, Pattern};
use sluicegate_rules::request::Entry;
use sluicegate_rules::rule::{Limits, RuleConfig};
use sluicegate_rules::unit::Unit;

/// A generator of rules and of descriptors that lead to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// Numbers of rules.
    pub(crate) counts: &'static [usize],
    pub(crate) domain: fn(usize) -> Domain,
    /// Writes the three entries that lead to rule `number` of `count`.
    pub(crate) probe: fn(usize, usize, &mut Probe),
}

/// The values of three entries; the keys are always the same.
#[derive(Debug, Default)]
pub(crate) struct Probe([String; 3]);

const KEYS: [&str; 3] = ["tenant", "user_id", "path"];
const ALL: &[usize] = &[10, 1_000, 10_000, 100_000];

/// Every shape.
pub(crate) const SHAPES: [Shape; 4] = [
    // Ten tenants: shared nodes stay in the cache.
    Shape { name: "exact", counts: ALL, domain: exact, probe: probe_exact },
    // A path of its own for every rule: nothing is shared, three nodes for each.
    Shape { name: "exact-apart", counts: ALL, domain: apart, probe: probe_apart },
    // Exact values, globs, networks, expressions and any value.
    Shape { name: "mixture", counts: ALL, domain: mixture, probe: probe_mixture },
    // All on one level.
    Shape { name: "globs", counts: &[10, 1_000, 10_000], domain: globs, probe: probe_globs },
];

// === impl Probe ===

impl Probe {
    /// The entries.
    #[inline]
    pub(crate) fn entries(&self) -> [Entry<'_>; 3] {
        let [tenant, user, path] = &self.0;
        [Entry::new(KEYS[0], tenant), Entry::new(KEYS[1], user), Entry::new(KEYS[2], path)]
    }

    /// Formats a number into each value, in time independent of the number.
    #[inline]
    fn write(&mut self, words: [(&str, usize, &str); 3]) {
        for (text, (before, number, after)) in self.0.iter_mut().zip(words) {
            text.clear();
            let mut digits = *b"00000";
            let mut rest = number;
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            text.push_str(before);
            text.extend(digits.iter().map(|digit| char::from(*digit)));
            text.push_str(after);
        }
    }
}

fn limited(node: DescriptorConfig) -> DescriptorConfig {
    let limits = Limits::Envoy { requests_per_unit: 100, unit: Unit::Minute };
    DescriptorConfig { rule: Some(RuleConfig::new(limits)), ..node }
}

fn value(before: &str, number: usize, after: &str) -> String {
    let mut text = String::new();
    let _ = write!(text, "{before}{number:05}{after}");
    text
}

fn above(node: DescriptorConfig, descriptors: Vec<DescriptorConfig>) -> DescriptorConfig {
    DescriptorConfig { descriptors, ..node }
}

fn domain(descriptors: Vec<DescriptorConfig>) -> Domain {
    Domain { joint: Joint::Joined, descriptors, ..Domain::new("shop") }
}

// === exact ===

/// Tenant, user and path of a rule.
fn coordinates(number: usize) -> (usize, usize, usize) {
    (number % 10, number / 10 % 10, number / 100)
}

fn exact(count: usize) -> Domain {
    let path = |number| {
        limited(DescriptorConfig::text(KEYS[2], value("/area/", coordinates(number).2, "/item")))
    };
    let user = |tenant: usize, user: usize| {
        let numbers =
            (0..count).filter(|n| coordinates(*n).0 == tenant && coordinates(*n).1 == user);
        above(DescriptorConfig::text(KEYS[1], value("user", user, "")), numbers.map(path).collect())
    };
    let tenant = |tenant: usize| {
        let users = (0..10).map(|number| user(tenant, number)).collect();
        above(DescriptorConfig::text(KEYS[0], value("tenant", tenant, "")), users)
    };
    domain((0..10).map(tenant).collect())
}

fn probe_exact(number: usize, _count: usize, probe: &mut Probe) {
    let (tenant, user, path) = coordinates(number);
    probe.write([("tenant", tenant, ""), ("user", user, ""), ("/area/", path, "/item")]);
}

// === exact, with nothing in common ===

fn apart(count: usize) -> Domain {
    let chain = |number| {
        let path = limited(DescriptorConfig::text(KEYS[2], value("/area/", number, "/item")));
        let user = above(DescriptorConfig::text(KEYS[1], value("user", number, "")), vec![path]);
        above(DescriptorConfig::text(KEYS[0], value("tenant", number, "")), vec![user])
    };
    domain((0..count).map(chain).collect())
}

fn probe_apart(number: usize, _count: usize, probe: &mut Probe) {
    probe.write([("tenant", number, ""), ("user", number, ""), ("/area/", number, "/item")]);
}

// === a mixture ===

/// Of ten rules: five exact, two for any user, one glob, one expression, one network; a quarter of
/// them shares a level.
fn mixture(count: usize) -> Domain {
    let rule = |number: usize| {
        let path = |text: String| limited(DescriptorConfig::text(KEYS[2], text));
        let exactly = path(value("/area/", number, "/item"));
        let (user, path) = match number % 10 {
            0..5 => (DescriptorConfig::text(KEYS[1], value("user", number, "")), exactly),
            5 | 6 => (DescriptorConfig::any(KEYS[1]), exactly),
            7 => (DescriptorConfig::any(KEYS[1]), path(value("/area/", number, "/*"))),
            8 => {
                let regex = regex::Regex::new("^/area/[0-9]+/item$").expect("an expression");
                (
                    DescriptorConfig::any(KEYS[1]),
                    limited(DescriptorConfig::new(KEYS[2], Pattern::Regex(regex))),
                )
            }
            _ => {
                let network = "10.0.0.0/8".parse().expect("a network");
                let shared =
                    DescriptorConfig { counter: Counter::Shared, ..DescriptorConfig::any(KEYS[1]) };
                (shared, limited(DescriptorConfig::new(KEYS[2], Pattern::Networks(vec![network]))))
            }
        };
        above(
            DescriptorConfig::text(KEYS[0], value("tenant", number, "")),
            vec![above(user, vec![path])],
        )
    };
    Domain { joint: Joint::Apart, ..domain((0..count).map(rule).collect()) }
}

fn probe_mixture(number: usize, _count: usize, probe: &mut Probe) {
    let path = if number % 10 == 9 { ("10.1.2.", 0, "") } else { ("/area/", number, "/item") };
    probe.write([("tenant", number, ""), ("user", number, ""), path]);
    if number % 10 == 9 {
        probe.0[2].truncate("10.1.2.0".len());
    }
}

// === globs ===

fn globs(count: usize) -> Domain {
    let path = |number| limited(DescriptorConfig::text(KEYS[2], value("/area/", number, "/*")));
    let user = above(DescriptorConfig::any(KEYS[1]), (0..count).map(path).collect());
    domain(vec![above(DescriptorConfig::any(KEYS[0]), vec![user])])
}

fn probe_globs(number: usize, _count: usize, probe: &mut Probe) {
    probe.write([("tenant", number % 7, ""), ("user", number, ""), ("/area/", number, "/item")]);
}
