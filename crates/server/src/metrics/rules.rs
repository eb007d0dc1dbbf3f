//! Hits per rule, with the metric names and labels of envoyproxy/ratelimit.
//!
//! There `domain`, `key1` and `key2` are the first parts of a dotted name such as
//! `shop.user_id.path_/login`: further keys are left out, a dot in a key separates too, and equal
//! series are summed. The same holds here, with a further label `rule`, the rule's id. Values that
//! clients send are never a label, `detailed_metric` or not: they could create any number of
//! series.

use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Snapshot, Stats};

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
}

impl RuleRow {
    fn new(set: &RuleSet, no: RuleNo, stats: Stats) -> Self {
        let path = sanitized(&set.metric_path(no).collect::<Vec<_>>().join("."));
        let mut keys = path.split('.');
        let labels = Labels::new("domain", set.domain_of(no))
            .and("key1", keys.next().unwrap_or_default())
            .and("key2", keys.next().unwrap_or_default())
            .and("rule", &set.id(no));
        Self { labels, key: format!("{}.{path}", sanitized(set.domain_of(no))), stats }
    }

    /// A row of several rules.
    fn of_many(name: &str, stats: Stats) -> Self {
        Self { labels: Labels::new("rule", name), key: name.to_owned(), stats }
    }
}

type Number = fn(&Stats) -> u64;

const FAMILIES: [(&str, &str, Number); 5] = [
    ("ratelimit_service_rate_limit_total_hits", "Hits of the rule, allowed or denied.", |stats| {
        stats.total_hits
    }),
    ("ratelimit_service_rate_limit_over_limit", "Hits above the limit of the rule.", |stats| {
        stats.over_limit
    }),
    ("ratelimit_service_rate_limit_near_limit", "Hits near the limit of the rule.", |stats| {
        stats.near_limit
    }),
    ("ratelimit_service_rate_limit_within_limit", "Hits within the limit of the rule.", |stats| {
        stats.within_limit
    }),
    (
        "ratelimit_service_rate_limit_shadow_mode",
        "Hits above the limit of a rule in shadow mode.",
        |stats| stats.shadow_mode,
    ),
];

/// Writes the hits of each rule.
pub(super) fn put(page: &mut Page, rules: &Snapshot<'_>) {
    let rows = rows(rules);
    for (name, help, number) in FAMILIES {
        let mut family = page.counter(name, help);
        for row in &rows {
            family.labeled(&row.labels, number(&row.stats));
        }
    }
}

/// Calls `each` for the counters of each listed rule, with the key that envoyproxy/ratelimit has
/// for it in StatsD, `shop.user_id.path_/login`, and the name of the counter, `over_limit`.
pub(crate) fn each_rule_counter(rules: &Snapshot<'_>, mut each: impl FnMut(&str, &str, u64)) {
    for RuleRow { key, stats, .. } in rows(rules) {
        for (name, _, number) in FAMILIES {
            let name = name.trim_start_matches("ratelimit_service_rate_limit_");
            each(&key, name, number(&stats));
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
        let stats = rules.stats(no);
        if rows.len() == LISTED_MAX {
            // A listed rule stays listed, since counts never decrease; so this sum only grows.
            add(&mut other, &stats);
        } else if all_are_listed || stats != Stats::default() {
            rows.push(RuleRow::new(set, no, stats));
        }
    }
    rows.push(RuleRow::of_many("override", rules.override_stats()));
    if set.rules().len() > LISTED_MAX {
        rows.push(RuleRow::of_many("other", other));
    }
    merge(rows)
}

/// Sums rules with the same labels, so that no series occurs twice.
fn merge(mut rows: Vec<RuleRow>) -> Vec<RuleRow> {
    rows.sort_by(|a, b| a.labels.cmp(&b.labels));
    rows.dedup_by(|next, row| {
        let same = next.labels == row.labels;
        if same {
            add(&mut row.stats, &next.stats);
        }
        same
    });
    rows
}

fn add(sum: &mut Stats, more: &Stats) {
    let Stats { total_hits, over_limit, near_limit, within_limit, shadow_mode } = sum;
    for (sum, more) in [
        (total_hits, more.total_hits),
        (over_limit, more.over_limit),
        (near_limit, more.near_limit),
        (within_limit, more.within_limit),
        (shadow_mode, more.shadow_mode),
    ] {
        *sum = sum.wrapping_add(more);
    }
}

/// Replaces what StatsD would interpret, as envoyproxy/ratelimit does: `:`, `|`, and the dots of
/// IPv4 addresses.
fn sanitized(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        let address = address_at(rest);
        let (taken, left) = rest.split_at(address.unwrap_or(character.len_utf8()));
        for character in taken.chars() {
            match character {
                ':' | '|' => out.push('_'),
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
            ("", ""),
        ];
        for (name, shown) in table {
            assert_eq!(sanitized(name), shown, "{name}");
        }
    }
}
