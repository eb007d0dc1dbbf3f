//! What became of hits, rule by rule, under the names that envoyproxy/ratelimit has for it.
//!
//! There `domain`, `key1` and `key2` are the first parts of a name with dots, `shop.user_id.path_/login`: what is beyond the second key is
//! left out, a dot in a key counts as one between two, and series that come out the same are added up. Here it is the same, so that what
//! asks for them finds them, with one label more: `rule` has what the rule is called everywhere else. Values that clients send are
//! never part of it, `detailed_metric` or not: whoever chooses them could make as many series as he likes.

use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{Snapshot, Stats};

use super::page::{Labels, Page};
use super::stat_name::sanitised;

/// Up to how many rules all are listed, hit or not: a series that begins with its first hit hides that hit from `rate()`.
pub(super) const UNHIT_MAX: usize = 1_000;

/// How many rules are listed at most; others are added up.
pub(super) const LISTED_MAX: usize = 10_000;

/// A line of each family.
#[derive(Debug)]
struct Row {
    labels: Labels,
    stats: Stats,
}

type Number = fn(&Stats) -> u64;

const FAMILIES: [(&str, &str, Number); 5] = [
    (
        "ratelimit_service_rate_limit_total_hits",
        "Hits that came under the rule, whatever became of them.",
        |stats| stats.total_hits,
    ),
    ("ratelimit_service_rate_limit_over_limit", "Hits above the limit of the rule.", |stats| {
        stats.over_limit
    }),
    (
        "ratelimit_service_rate_limit_near_limit",
        "Hits below the limit of the rule, and near it.",
        |stats| stats.near_limit,
    ),
    ("ratelimit_service_rate_limit_within_limit", "Hits that the rule let pass.", |stats| {
        stats.within_limit
    }),
    (
        "ratelimit_service_rate_limit_shadow_mode",
        "Hits above the limit of a rule that only watches.",
        |stats| stats.shadow_mode,
    ),
];

/// Writes what became of hits under each rule.
pub(super) fn put(page: &mut Page, rules: &Snapshot<'_>) {
    let rows = rows(rules);
    for (name, help, number) in FAMILIES {
        let mut family = page.counter(name, help);
        for row in &rows {
            family.of(&row.labels, number(&row.stats));
        }
    }
}

fn rows(rules: &Snapshot<'_>) -> Vec<Row> {
    let set = rules.rules();
    let all_are_listed = set.rules().len() <= UNHIT_MAX;
    let mut rows = Vec::new();
    let mut other = Stats::default();
    // What is unlimited is not counted.
    for no in set.rules().filter(|no| !matches!(set.rule(*no).limits, Limits::Unlimited)) {
        let stats = rules.stats(no);
        if rows.len() == LISTED_MAX {
            // Whoever is here stays here: a rule before it may be hit for the first time, but none is ever hit less. So what is
            // added up only grows.
            add(&mut other, &stats);
        } else if all_are_listed || stats != Stats::default() {
            rows.push(Row { labels: labels(set, no), stats });
        }
    }
    rows.push(Row { labels: Labels::new("rule", "override"), stats: rules.override_stats() });
    if set.rules().len() > LISTED_MAX {
        rows.push(Row { labels: Labels::new("rule", "other"), stats: other });
    }
    added_up(rows)
}

/// Rules that are called the same count together: no series is there twice.
fn added_up(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| a.labels.cmp(&b.labels));
    rows.dedup_by(|next, kept| {
        let same = next.labels == kept.labels;
        if same {
            add(&mut kept.stats, &next.stats);
        }
        same
    });
    rows
}

fn labels(set: &RuleSet, no: RuleNo) -> Labels {
    let mut name = String::new();
    for text in set.metric_path(no) {
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(text);
    }
    let name = sanitised(&name);
    let mut keys = name.split('.');
    Labels::new("domain", set.domain_of(no))
        .and("key1", keys.next().unwrap_or_default())
        .and("key2", keys.next().unwrap_or_default())
        .and("rule", &set.id(no))
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
