//! Decisions without the store, per rule: the bound of their error beside the observed error.

use std::collections::BTreeMap;

use sluicegate::Engine;
use sluicegate::rules::rule::Consistency;
use sluicegate_redis::{RedisBackend, RuleLevel};

use super::page::{Family, Labels, Page};
use super::rules::LISTED_MAX;

/// A rule that is not always decided by the store.
#[derive(Debug)]
struct LevelRow {
    labels: Labels,
    consistency: Consistency,
    level: RuleLevel,
}

/// Rules that a family covers.
#[derive(Debug, Clone, Copy)]
enum Scope {
    All,
    /// Rules with leases.
    Leased,
    Hot,
    Eventual,
}

type LevelFamily = (PutFamily, Scope, &'static str, &'static str, fn(&RuleLevel) -> u64);
type PutFamily = for<'p> fn(&'p mut Page, &'static str, &str) -> Family<'p>;

const FAMILIES: [LevelFamily; 15] = [
    (
        Page::counter,
        Scope::All,
        "sluicegate_local_decisions_total",
        "Hits decided without the store.",
        |level| level.local,
    ),
    (
        Page::counter,
        Scope::All,
        "sluicegate_asked_decisions_total",
        "Hits decided by the store.",
        |level| level.remote,
    ),
    (
        Page::gauge,
        Scope::All,
        "sluicegate_over_bound",
        "Upper bound of the hits above the limit of one key: those that other nodes admitted between two syncs, as last pulled.",
        |level| level.over_bound,
    ),
    (
        Page::gauge,
        Scope::All,
        "sluicegate_over_observed",
        "Largest observed number of hits above the limit of one key in a window.",
        |level| level.over_observed,
    ),
    (
        Page::gauge,
        Scope::All,
        "sluicegate_short_bound",
        "Leased quota that is unspent: lost until it expires if this node crashes now.",
        |level| level.short_bound,
    ),
    (
        Page::counter,
        Scope::All,
        "sluicegate_short_observed_total",
        "Leased quota that expired unspent.",
        |level| level.short_observed,
    ),
    (Page::gauge, Scope::Leased, "sluicegate_leases", "Keys leased by this node.", |level| {
        level.leases
    }),
    (
        Page::counter,
        Scope::Leased,
        "sluicegate_lease_calls_total",
        "Calls that acquired or released leases.",
        |level| level.lease_calls,
    ),
    (
        Page::counter,
        Scope::Leased,
        "sluicegate_promoted_total",
        "Keys promoted to leases.",
        |level| level.promoted,
    ),
    (
        Page::counter,
        Scope::Leased,
        "sluicegate_demoted_total",
        "Keys demoted from leases.",
        |level| level.demoted,
    ),
    (
        Page::gauge,
        Scope::Hot,
        "sluicegate_hot_keys",
        "Leased keys of a strict rule, because they are hot.",
        |level| level.leases,
    ),
    (
        Page::gauge,
        Scope::Eventual,
        "sluicegate_synced_keys",
        "Keys whose counts are synced with other nodes.",
        |level| level.synced,
    ),
    (
        Page::counter,
        Scope::Eventual,
        "sluicegate_sync_pushes_total",
        "Pushes of counts to the store.",
        |level| level.pushes,
    ),
    (
        Page::counter,
        Scope::Eventual,
        "sluicegate_sync_push_failures_total",
        "Failed pushes of counts; they are retried.",
        |level| level.pushes_failed,
    ),
    (
        Page::gauge,
        Scope::Eventual,
        "sluicegate_sync_interval_milliseconds",
        "Sync interval of the rule.",
        |level| sync_interval_ms(level.consistency),
    ),
];

/// Writes the decisions of each rule that is not always decided by the store, and what each rule
/// admits during an outage.
pub(super) fn put(page: &mut Page, redis: &Engine<RedisBackend>) {
    put_outage_bounds(page, redis);
    let rows = rows(redis);
    for (put_family, scope, name, help, number) in FAMILIES {
        let mut family = put_family(page, name, help);
        for row in rows.iter().filter(|row| scope.covers(row.consistency)) {
            family.labeled(&row.labels, number(&row.level));
        }
    }
}

/// Rules with the same id report the largest bound.
fn put_outage_bounds(page: &mut Page, redis: &Engine<RedisBackend>) {
    let rules = redis.snapshot();
    let set = rules.rules();
    let mut bounds = BTreeMap::<String, u64>::new();
    for no in set.rules().take(LISTED_MAX) {
        if let Some(bound) = redis.backend().outage_bound(&rules, no) {
            let known = bounds.entry(set.id(no)).or_default();
            *known = bound.max(*known);
        }
    }
    let help = "Hits that this node admits at most for one key while the store is down: its share of the limit, less the usage it last observed.";
    let mut family = page.gauge("sluicegate_outage_bound", help);
    for (rule, bound) in bounds {
        family.labeled(&Labels::new("rule", &rule), bound);
    }
}

fn rows(redis: &Engine<RedisBackend>) -> Vec<LevelRow> {
    let rules = redis.snapshot();
    let set = rules.rules();
    let with_level = |no| (no, set.rule(no).effective_consistency());
    let others = set.rules().map(with_level).filter(|(_, level)| *level != Consistency::Strict);
    let mut rows: Vec<LevelRow> = others
        .take(LISTED_MAX)
        .map(|(no, consistency)| {
            let labels = Labels::new("rule", &set.id(no)).and("level", level_name(consistency));
            LevelRow { labels, consistency, level: redis.backend().level(&rules, no) }
        })
        .collect();
    // Rules with the same id are summed, so that no series occurs twice.
    rows.sort_by(|one, other| one.labels.cmp(&other.labels));
    rows.dedup_by(|next, row| {
        let same = next.labels == row.labels;
        if same {
            add(&mut row.level, &next.level);
        }
        same
    });
    rows
}

impl Scope {
    const fn covers(self, consistency: Consistency) -> bool {
        match (self, consistency) {
            (Self::All, _)
            | (Self::Leased, Consistency::Leased | Consistency::StrictUntilHot)
            | (Self::Hot, Consistency::StrictUntilHot)
            | (Self::Eventual, Consistency::Eventual { .. }) => true,
            (Self::Leased | Self::Hot | Self::Eventual, _) => false,
        }
    }
}

/// Name of a consistency level, as label value and in the log.
pub(crate) const fn level_name(consistency: Consistency) -> &'static str {
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

/// Adds counts; bounds of a single key are the maximum.
fn add(sum: &mut RuleLevel, more: &RuleLevel) {
    for (sum, more) in [
        (&mut sum.local, more.local),
        (&mut sum.remote, more.remote),
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
