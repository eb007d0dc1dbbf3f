//! Hits per rule, with the metric names and labels of envoyproxy/ratelimit.
//!
//! There `domain`, `key1` and `key2` are the first parts of a dotted name such as
//! `shop.user_id.path_/login`: further keys are left out, a dot in a key separates too, and equal
//! series are summed. The same holds here, with a further label `rule`, the rule's id.
//!
//! Values that clients send are in families of their own, for rules with `detailed_metric` or
//! `value_to_metric`, if the settings enable them; the engine bounds their number. Labels have all
//! characters of a value. In StatsD values replace the counters of their rule, sanitized, as there.

use std::cmp::Ordering;

use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::RuleNo;
use sluicegate::{ListedValue, Snapshot, Stats};

use super::OTHER;
use super::page::{Labels, Page};

/// Up to this many rules, all are listed: a series that starts with its first hit hides it from
/// `rate()`.
pub(super) const UNHIT_MAX: usize = 1_000;

/// Rules that are listed; the others are summed.
pub(super) const LISTED_MAX: usize = 10_000;

/// A sample of each family.
#[derive(Debug)]
struct RuleRow {
    labels: Labels,
    /// Key in StatsD.
    key: String,
    stats: Stats,
    by_value: Option<ByValue>,
}

/// Hits of a rule by value. What is missing to those of the rule is `other`.
#[derive(Debug)]
struct ByValue {
    values: Vec<ValueRow>,
    other: Labels,
}

#[derive(Debug)]
struct ValueRow {
    labels: Labels,
    key: String,
    serial: u64,
    stats: Stats,
}

impl RuleRow {
    fn new(rules: &Snapshot<'_>, no: RuleNo) -> Self {
        let set = rules.rules();
        let mut path = sanitized(&set.metric_path(no).collect::<Vec<_>>().join("."));
        if let Some(pool) = set.pool_of(no) {
            path.push('.');
            path.push_str(&sanitized(pool));
        }
        let mut keys = path.split('.');
        let (domain, rule) = (set.domain_of(no), set.id(no));
        let labels = Labels::new("domain", domain)
            .and("key1", keys.next().unwrap_or_default())
            .and("key2", keys.next().unwrap_or_default())
            .and("rule", &rule);
        let of_value = |key: &str| Labels::new("domain", domain).and("rule", &rule).and("key", key);
        let stat_domain = sanitized(domain);
        let key = format!("{stat_domain}.{path}");
        let Some(stats) = rules.value_stats(no) else {
            return Self { labels, key, stats: rules.stats(no), by_value: None };
        };
        let row = |ListedValue { key, serial, stats }: ListedValue| {
            let path = key.strip_prefix(domain).and_then(|key| key.strip_prefix('.'));
            let path = path.unwrap_or(&key);
            ValueRow {
                labels: of_value(path),
                key: format!("{stat_domain}.{}", sanitized(path)),
                serial,
                stats,
            }
        };
        let values = stats.values.into_iter().map(row).collect();
        let by_value = Some(ByValue { values, other: of_value(OTHER) });
        Self { labels, key, stats: stats.total, by_value }
    }

    /// A row of several rules.
    fn of_many(name: &str, stats: Stats) -> Self {
        let labels = Labels::new("rule", name);
        Self { labels, key: name.to_owned(), stats, by_value: None }
    }

    /// Adds a row with the same name.
    fn merge(&mut self, next: &mut Self) {
        combine(&mut self.stats, &next.stats, u64::wrapping_add);
        match (&mut self.by_value, next.by_value.take()) {
            (Some(by_value), Some(next)) => by_value.values.extend(next.values),
            (None, next) => self.by_value = next,
            (Some(_), None) => {}
        }
    }
}

/// A number of each rule.
struct RuleFamily {
    name: &'static str,
    /// The family of the same number by value.
    by_value: &'static str,
    help: &'static str,
    number: fn(&Stats) -> u64,
}

const FAMILIES: [RuleFamily; 5] = [
    RuleFamily {
        name: "ratelimit_service_rate_limit_total_hits",
        by_value: "sluicegate_rule_values_total_hits",
        help: "Hits of the rule, allowed or denied.",
        number: |stats| stats.total_hits,
    },
    RuleFamily {
        name: "ratelimit_service_rate_limit_over_limit",
        by_value: "sluicegate_rule_values_over_limit",
        help: "Hits above the limit of the rule.",
        number: |stats| stats.over_limit,
    },
    RuleFamily {
        name: "ratelimit_service_rate_limit_near_limit",
        by_value: "sluicegate_rule_values_near_limit",
        help: "Hits near the limit of the rule.",
        number: |stats| stats.near_limit,
    },
    RuleFamily {
        name: "ratelimit_service_rate_limit_within_limit",
        by_value: "sluicegate_rule_values_within_limit",
        help: "Hits within the limit of the rule.",
        number: |stats| stats.within_limit,
    },
    RuleFamily {
        name: "ratelimit_service_rate_limit_shadow_mode",
        by_value: "sluicegate_rule_values_shadow_mode",
        help: "Hits above the limit of a rule in shadow mode.",
        number: |stats| stats.shadow_mode,
    },
];

/// Writes the hits of each rule, and those by value.
pub(super) fn put(page: &mut Page, rules: &Snapshot<'_>) {
    let rows = merge(rows(rules), |a, b| a.labels.cmp(&b.labels));
    for RuleFamily { name, help, number, .. } in FAMILIES {
        let mut family = page.counter(name, help);
        for row in &rows {
            family.labeled(&row.labels, number(&row.stats));
        }
    }
    let samples = value_samples(&rows);
    if samples.is_empty() {
        return;
    }
    for RuleFamily { by_value, help, number, .. } in FAMILIES {
        let mut family = page.counter(by_value, &format!("{help} By value; `other` has the rest."));
        for (labels, stats) in &samples {
            family.labeled(labels, number(stats));
        }
    }
}

/// Hits by value, with one sample for values whose names are equal, such as `a`=`b_c` and
/// `a_b`=`c`.
fn value_samples(rows: &[RuleRow]) -> Vec<(&Labels, Stats)> {
    let mut samples = Vec::new();
    for row in rows {
        let Some(ByValue { values, other }) = &row.by_value else { continue };
        let mut rest = row.stats;
        for value in values {
            combine(&mut rest, &value.stats, u64::wrapping_sub);
            samples.push((&value.labels, value.stats));
        }
        samples.push((other, rest));
    }
    samples.sort_by_key(|(labels, _)| *labels);
    samples.dedup_by(|(next, stats), (labels, sum)| {
        let is_same = next == labels;
        if is_same {
            combine(sum, stats, u64::wrapping_add);
        }
        is_same
    });
    samples
}

/// A counter of a rule for StatsD, which adds up counts of one name.
#[derive(Debug)]
pub(crate) struct RuleCounter<'a> {
    /// The key of the rule in envoyproxy/ratelimit: `shop.user_id.path_/login`.
    pub(crate) key: &'a str,
    /// The name of the counter: `over_limit`.
    pub(crate) name: &'static str,
    /// The count of the rule.
    pub(crate) count: u64,
    /// The part of it that each value has, with its key and serial; `None` if the rule is not
    /// counted by value.
    pub(crate) values: Option<Vec<(&'a str, u64, u64)>>,
}

/// Calls `each` for the counters of each listed rule.
pub(crate) fn each_rule_counter(rules: &Snapshot<'_>, mut each: impl FnMut(RuleCounter<'_>)) {
    for RuleRow { key, stats, by_value, .. } in &merge(rows(rules), |a, b| a.key.cmp(&b.key)) {
        for RuleFamily { name, number, .. } in FAMILIES {
            let values = by_value.as_ref().map(|by_value| {
                let values = by_value.values.iter();
                values.map(|row| (&*row.key, row.serial, number(&row.stats))).collect()
            });
            let name = name.trim_start_matches("ratelimit_service_rate_limit_");
            each(RuleCounter { key, name, count: number(stats), values });
        }
    }
}

fn rows(rules: &Snapshot<'_>) -> Vec<RuleRow> {
    let set = rules.rules();
    let all_are_listed = set.rules().len() <= UNHIT_MAX;
    let mut rows = Vec::new();
    let mut other = Stats::default();
    // Unlimited rules are not counted.
    for no in set.rules().filter(|no| !matches!(set.rule(*no).limits, Limits::Unlimited)) {
        if rows.len() == LISTED_MAX {
            // A listed rule stays listed, since counts never decrease; so this sum only grows.
            combine(&mut other, &rules.stats(no), u64::wrapping_add);
        } else if all_are_listed || rules.stats(no) != Stats::default() {
            rows.push(RuleRow::new(rules, no));
        }
    }
    rows.push(RuleRow::of_many("override", rules.override_stats()));
    if set.rules().len() > LISTED_MAX {
        rows.push(RuleRow::of_many(OTHER, other));
    }
    rows
}

/// Sums rules with the same name, so that no series occurs twice.
fn merge(mut rows: Vec<RuleRow>, order: fn(&RuleRow, &RuleRow) -> Ordering) -> Vec<RuleRow> {
    rows.sort_by(order);
    rows.dedup_by(|next, row| {
        let is_same = order(next, row).is_eq();
        if is_same {
            row.merge(next);
        }
        is_same
    });
    rows
}

fn combine(sum: &mut Stats, other: &Stats, operation: fn(u64, u64) -> u64) {
    let Stats { total_hits, over_limit, near_limit, within_limit, shadow_mode } = sum;
    for (sum, other) in [
        (total_hits, other.total_hits),
        (over_limit, other.over_limit),
        (near_limit, other.near_limit),
        (within_limit, other.within_limit),
        (shadow_mode, other.shadow_mode),
    ] {
        *sum = operation(*sum, other);
    }
}

/// Replaces what StatsD would interpret, as envoyproxy/ratelimit does: `:`, `|`, and the dots of
/// IPv4 addresses; and control characters, since a line ends a metric.
fn sanitized(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        let address = address_at(rest);
        let (taken, left) = rest.split_at(address.unwrap_or(character.len_utf8()));
        for character in taken.chars() {
            match character {
                ':' | '|' => out.push('_'),
                control if control.is_control() => out.push('_'),
                '.' if address.is_some() => out.push('_'),
                other => out.push(other),
            }
        }
        rest = left;
    }
    out
}

/// Length of the IPv4 address at the start: four numbers of up to three digits.
fn address_at(text: &str) -> Option<usize> {
    let mut rest = text.as_bytes();
    for part in 0..4 {
        if part > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        rest = &rest[digits..];
    }
    Some(text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sanitized_as_by_envoyproxy_ratelimit() {
        let table = [
            ("user_id.path_/login", "user_id.path_/login"),
            ("det_x:y|z", "det_x_y_z"),
            ("ip_1.2.3.4", "ip_1_2_3_4"),
            ("ip_10.0.0.0/8.next", "ip_10_0_0_0/8.next"),
            ("1234.5.6.7890", "1234_5_6_7890"),
            ("1.2.3", "1.2.3"),
            ("1.2.3.", "1.2.3."),
            ("1.2..3.4", "1.2..3.4"),
            ("1.2.3.4.5.6.7.8", "1_2_3_4.5_6_7_8"),
            ("é.ü_1", "é.ü_1"),
            ("a\nb:1|c\r", "a_b_1_c_"),
            ("", ""),
        ];
        for (name, shown) in table {
            assert_eq!(sanitized(name), shown, "{name}");
        }
    }
}
