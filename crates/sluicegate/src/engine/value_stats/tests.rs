use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn within(hits: u64) -> HitCounts {
    HitCounts { within: hits, ..HitCounts::default() }
}

fn read(counters: &ValueCounters) -> ValueStats {
    ValueStats::new(Some(counters), HitCounts::default())
}

fn add(counters: &ValueCounters, key: &str, hits: u64) {
    counters.table.lock().add(key, within(hits));
}

fn keys(counters: &ValueCounters) -> Vec<String> {
    read(counters).values.into_iter().map(|value| value.key).collect()
}

fn fields(stats: Stats) -> [u64; 5] {
    let Stats { total_hits, over_limit, near_limit, within_limit, shadow_mode } = stats;
    [total_hits, over_limit, near_limit, within_limit, shadow_mode]
}

fn counts() -> impl Strategy<Value = HitCounts> {
    (0..5_u64, 0..3_u64, 0..3_u64, 0..3_u64, 0..3_u64).prop_map(
        |(within, over, below, near, shadow)| HitCounts { within, over, below, near, shadow },
    )
}

proptest! {
    /// Compared with the exact counts of every value.
    #[test]
    fn values_and_other_are_the_total(
        per_rule in 1..8_usize,
        hits in prop::collection::vec((0..20_u8, counts()), 0..300),
    ) {
        let counters = ValueCounters::new(&ValueBudget::new(per_rule));
        let mut exact: BTreeMap<String, HitCounts> = BTreeMap::new();
        let mut last = ValueStats::default();
        for (value, counts) in hits {
            let key = format!("d.user_{value}");
            let sum = exact.entry(key.clone()).or_default();
            *sum = sum.plus(counts);
            counters.table.lock().add(&key, counts);
            let stats = read(&counters);
            let total = exact.values().fold(HitCounts::default(), |sum, one| sum.plus(*one));
            prop_assert_eq!(stats.total, Stats::from(total));
            for field in 0..5 {
                let values = stats.values.iter().map(|value| fields(value.stats)[field]);
                let sum = values.sum::<u64>() + fields(stats.other)[field];
                prop_assert_eq!(sum, fields(stats.total)[field]);
                prop_assert!(fields(stats.other)[field] >= fields(last.other)[field]);
            }
            prop_assert!(stats.values.len() <= per_rule);
            for value in &stats.values {
                let known = fields(Stats::from(exact[&value.key]));
                let old = last.values.iter().find(|old| old.serial == value.serial);
                let before = old.map_or([0; 5], |old| fields(old.stats));
                for ((now, known), before) in fields(value.stats).iter().zip(known).zip(before) {
                    prop_assert!((before..=known).contains(now));
                }
                if exact.len() <= per_rule {
                    prop_assert_eq!(fields(value.stats), known);
                }
            }
            last = stats;
        }
    }

    /// A value with most of the hits is listed, wherever its hits are among the others.
    #[test]
    fn the_most_frequent_value_is_listed(per_rule in 1..8_usize, hits in frequent()) {
        let counters = ValueCounters::new(&ValueBudget::new(per_rule));
        hits.iter().for_each(|key| add(&counters, key, 1));
        // As often again, without the others: nothing outweighs it any more.
        hits.iter().for_each(|_| add(&counters, FREQUENT, 1));
        prop_assert!(keys(&counters).iter().any(|key| key == FREQUENT));
    }
}

const FREQUENT: &str = "d.user_frequent";

/// Hits of which more than half are of one value.
fn frequent() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any::<u16>(), 0..200).prop_flat_map(|others| {
        let frequent = std::iter::repeat_n(FREQUENT.to_owned(), others.len() + 1);
        let others = others.iter().map(|other| format!("d.user_{other}"));
        Just(others.chain(frequent).collect::<Vec<_>>()).prop_shuffle()
    })
}

#[test]
fn values_that_occur_once_replace_nothing() {
    let counters = ValueCounters::new(&ValueBudget::new(3));
    for key in ["d.user_a", "d.user_b", "d.user_c"] {
        add(&counters, key, 2);
    }
    (0..100_000).for_each(|number| add(&counters, &format!("d.user_{number}"), 1));
    assert_eq!(keys(&counters), ["d.user_a", "d.user_b", "d.user_c"]);
    assert_eq!(read(&counters).other.total_hits, 100_000);
    assert!(counters.table.lock().candidates.0.len() <= CANDIDATES);
}

#[test]
fn a_value_with_more_hits_replaces_the_one_with_the_least() {
    let counters = ValueCounters::new(&ValueBudget::new(2));
    add(&counters, "d.user_a", 5);
    add(&counters, "d.user_b", 3);
    (0..3).for_each(|_| add(&counters, "d.user_c", 1));
    assert_eq!(keys(&counters), ["d.user_a", "d.user_b"], "as many are not more");
    add(&counters, "d.user_c", 1);
    let stats = read(&counters);
    let hits: Vec<_> =
        stats.values.iter().map(|value| (&*value.key, value.stats.total_hits)).collect();
    assert_eq!(hits, [("d.user_a", 5), ("d.user_c", 1)], "from the hit that listed it");
    assert_eq!((stats.other.total_hits, stats.total.total_hits), (6, 12));
    (0..4).for_each(|_| add(&counters, "d.user_b", 1));
    assert_eq!(keys(&counters), ["d.user_a", "d.user_c"], "its hits as a candidate count too");
}

#[test]
fn long_names_are_not_listed() {
    let counters = ValueCounters::new(&ValueBudget::new(2));
    add(&counters, &"x".repeat(KEY_BYTES_MAX + 1), 9);
    add(&counters, &"x".repeat(KEY_BYTES_MAX), 1);
    assert_eq!(keys(&counters), ["x".repeat(KEY_BYTES_MAX)]);
    assert_eq!(read(&counters).other.total_hits, 9);
}

#[test]
fn all_rules_together_list_a_bounded_number() {
    let budget = ValueBudget::new(LISTED_MAX);
    let (first, second) = (ValueCounters::new(&budget), ValueCounters::new(&budget));
    (0..LISTED_MAX + 5).for_each(|number| add(&first, &format!("d.a_{number}"), 1));
    add(&second, "d.b_1", 7);
    assert_eq!((keys(&first).len(), keys(&second).len()), (LISTED_MAX, 0));
    assert_eq!(read(&second).other.total_hits, 7);
    drop(first);
    add(&second, "d.b_1", 1);
    assert_eq!(keys(&second), ["d.b_1"], "a removed rule returns its share");
}
