//! What this node decided by itself, rule by rule: how far it may be off stands beside how far it was.

use std::collections::BTreeMap;

use sluicegate::rules::rule::Consistency;
use sluicegate_redis::{RuleLevel, SharedEngine};

use super::page::{Labels, Page};
use super::rules::LISTED_MAX;

/// A rule that does not always ask the store.
#[derive(Debug)]
struct Row {
    labels: Labels,
    consistency: Consistency,
    level: RuleLevel,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// Whose rules a family is about.
#[derive(Debug, Clone, Copy)]
enum Of {
    All,
    /// Those that have leases.
    Leased,
    Hot,
    Eventual,
}

type Family = (Kind, Of, &'static str, &'static str, fn(&RuleLevel) -> u64);

const FAMILIES: [Family; 15] = [
    (
        Kind::Counter,
        Of::All,
        "sluicegate_local_decisions_total",
        "Hits that were decided without asking the store.",
        |level| level.local,
    ),
    (
        Kind::Counter,
        Of::All,
        "sluicegate_asked_decisions_total",
        "Hits that the store was asked for all the same.",
        |level| level.asked,
    ),
    (
        Kind::Gauge,
        Of::All,
        "sluicegate_over_bound",
        "The most that may pass above the limit of one key: what others admitted between two syncs, as last heard.",
        |level| level.over_bound,
    ),
    (
        Kind::Gauge,
        Of::All,
        "sluicegate_over_observed",
        "The most that has passed above the limit of one key in a window, as heard.",
        |level| level.over_observed,
    ),
    (
        Kind::Gauge,
        Of::All,
        "sluicegate_short_bound",
        "What this node holds unspent: as much less passes if it dies now.",
        |level| level.short_bound,
    ),
    (
        Kind::Counter,
        Of::All,
        "sluicegate_short_observed_total",
        "What ran out unspent: as much less has passed.",
        |level| level.short_observed,
    ),
    (Kind::Gauge, Of::Leased, "sluicegate_leases", "Keys that this node has leased.", |level| {
        level.leases
    }),
    (
        Kind::Counter,
        Of::Leased,
        "sluicegate_lease_calls_total",
        "How often leases were bought or given back.",
        |level| level.lease_calls,
    ),
    (
        Kind::Counter,
        Of::Leased,
        "sluicegate_promoted_total",
        "Keys that came to be leased.",
        |level| level.promoted,
    ),
    (
        Kind::Counter,
        Of::Leased,
        "sluicegate_demoted_total",
        "Keys that ceased to be leased.",
        |level| level.demoted,
    ),
    (
        Kind::Gauge,
        Of::Hot,
        "sluicegate_hot_keys",
        "Keys of a strict rule that are leased, since they are asked for very often.",
        |level| level.leases,
    ),
    (
        Kind::Gauge,
        Of::Eventual,
        "sluicegate_synced_keys",
        "Keys whose counts are told to the others, and theirs heard.",
        |level| level.synced,
    ),
    (
        Kind::Counter,
        Of::Eventual,
        "sluicegate_sync_pushes_total",
        "How often counts were told to the others.",
        |level| level.pushes,
    ),
    (
        Kind::Counter,
        Of::Eventual,
        "sluicegate_sync_push_failures_total",
        "How often that failed, and was said again.",
        |level| level.pushes_failed,
    ),
    (
        Kind::Gauge,
        Of::Eventual,
        "sluicegate_sync_interval_milliseconds",
        "How often nodes tell each other, as the rule says.",
        |level| sync_interval_ms(level.consistency),
    ),
];

/// Writes what was decided under each rule that does not always ask the store, and what each rule
/// admits without it.
pub(super) fn put(page: &mut Page, shared: &SharedEngine) {
    put_outage_bounds(page, shared);
    let rows = rows(shared);
    for (kind, of, name, help, number) in FAMILIES {
        let mut family = match kind {
            Kind::Counter => page.counter(name, help),
            Kind::Gauge => page.gauge(name, help),
        };
        for row in rows.iter().filter(|row| of.has(row.consistency)) {
            family.of(&row.labels, number(&row.level));
        }
    }
}

/// Of rules that are called the same, the largest.
fn put_outage_bounds(page: &mut Page, shared: &SharedEngine) {
    let rules = shared.engine().snapshot();
    let set = rules.rules();
    let mut bounds = BTreeMap::<String, u64>::new();
    for no in set.rules().take(LISTED_MAX) {
        if let Some(bound) = shared.outage_bound(&rules, no) {
            let known = bounds.entry(set.id(no)).or_default();
            *known = bound.max(*known);
        }
    }
    let help = "The most that this node admits for one key while the store does not answer: its share of the limit, less what it last observed as used.";
    let mut family = page.gauge("sluicegate_outage_bound", help);
    for (rule, bound) in bounds {
        family.of(&Labels::new("rule", &rule), bound);
    }
}

fn rows(shared: &SharedEngine) -> Vec<Row> {
    let rules = shared.engine().snapshot();
    let set = rules.rules();
    let kept = |no| (no, set.rule(no).effective_consistency());
    let others = set.rules().map(kept).filter(|(_, level)| *level != Consistency::Strict);
    let mut rows: Vec<Row> = others
        .take(LISTED_MAX)
        .map(|(no, consistency)| {
            let labels = Labels::new("rule", &set.id(no)).and("level", word(consistency));
            Row { labels, consistency, level: shared.level(&rules, no) }
        })
        .collect();
    // Rules that are called the same count together: no series is there twice.
    rows.sort_by(|one, other| one.labels.cmp(&other.labels));
    rows.dedup_by(|next, kept| {
        let same = next.labels == kept.labels;
        if same {
            add(&mut kept.level, &next.level);
        }
        same
    });
    rows
}

impl Of {
    const fn has(self, consistency: Consistency) -> bool {
        match (self, consistency) {
            (Self::All, _)
            | (Self::Leased, Consistency::Leased | Consistency::StrictUntilHot)
            | (Self::Hot, Consistency::StrictUntilHot)
            | (Self::Eventual, Consistency::Eventual { .. }) => true,
            (Self::Leased | Self::Hot | Self::Eventual, _) => false,
        }
    }
}

const fn word(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Strict | Consistency::StrictUntilHot => "strict",
        Consistency::Leased => "leased",
        Consistency::Eventual { .. } => "eventual",
    }
}

const fn sync_interval_ms(consistency: Consistency) -> u64 {
    match consistency {
        Consistency::Eventual { sync_interval } => sync_interval.as_micros().div_ceil(1_000),
        _ => 0,
    }
}

/// Sums, and of what is the most of any key the most.
fn add(sum: &mut RuleLevel, more: &RuleLevel) {
    for (sum, more) in [
        (&mut sum.local, more.local),
        (&mut sum.asked, more.asked),
        (&mut sum.leases, more.leases),
        (&mut sum.short_bound, more.short_bound),
        (&mut sum.short_observed, more.short_observed),
        (&mut sum.lease_calls, more.lease_calls),
        (&mut sum.promoted, more.promoted),
        (&mut sum.demoted, more.demoted),
        (&mut sum.synced, more.synced),
        (&mut sum.pushes, more.pushes),
        (&mut sum.pushes_failed, more.pushes_failed),
    ] {
        *sum = sum.wrapping_add(more);
    }
    sum.over_bound = sum.over_bound.max(more.over_bound);
    sum.over_observed = sum.over_observed.max(more.over_observed);
}
