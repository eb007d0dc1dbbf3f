//! The table compared with a plain map, for arbitrary writes and expiries.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use sluicegate_core::time::Timestamp;

use super::{LaneEntry, Probe, home};
use crate::memory::tests::cases;
use crate::memory::word::{Epoch, Since, Word};

/// The table of a limiter's shard.
type Table = super::Table<(), LANES>;
const LANES: usize = 4;

/// A time in microseconds after the epoch.
fn at(us: u64) -> Since {
    let epoch = Timestamp::EPOCH;
    Epoch::around(epoch).since(Timestamp::from_micros(us))
}

/// A word that expires at `until`; the number identifies it.
fn word(until: u64, number: u64) -> Word {
    Word(until << 14 | number)
}

fn entry(name: u64, word: Word) -> LaneEntry<()> {
    LaneEntry { name, word, extra: () }
}

/// Puts a word under a name as a shard does; returns whether the table was rebuilt for it.
fn put<const L: usize>(table: &mut super::Table<(), L>, name: u64, word: Word, now: Since) -> bool {
    let mut probe = table.probe(name, now);
    let full = probe == Probe::Full;
    if full {
        table.rebuild(1, now, |_| {});
        probe = table.probe(name, now);
    }
    match probe {
        Probe::Occupied(lane) | Probe::Expired(lane) | Probe::Empty(lane) => {
            table.put(lane, entry(name, word))
        }
        Probe::Full => panic!("a table just made anew has room"),
    }
    full
}

fn found<const L: usize>(table: &super::Table<(), L>, name: u64, now: Since) -> Option<Word> {
    match table.probe(name, now) {
        Probe::Occupied(lane) => {
            assert_eq!(table.entry(lane).name, name);
            Some(table.word(lane))
        }
        Probe::Expired(_) | Probe::Empty(_) | Probe::Full => None,
    }
}

impl<const L: usize> super::Table<(), L> {
    /// Lanes that are not empty, one by one.
    pub(crate) fn counted(&self) -> usize {
        self.entries().count()
    }
}

// === any operations in any order ===

/// An operation on the table.
#[derive(Debug, Clone)]
enum Deed {
    Put { name: u64, lasts: u64, number: u64 },
    Forget { name: u64 },
    Renew { more: usize },
    Shrink,
    Replace,
    Wait { us: u64 },
}

/// Colliding names: all in the first bucket, all in the last so that probing wraps around, all near
/// the middle, and those of one identity that differ in their column only.
fn hard_names() -> impl Strategy<Value = u64> {
    let identity = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) << 8;
    prop_oneof![
        0..24u64,
        (0..24u64).prop_map(|n| u64::MAX - n),
        (0..24u64).prop_map(|n| (1 << 63) - 12 + n),
        (0..3u64, 0..64u64).prop_map(move |(n, column)| identity(n + 1) | column),
        any::<u64>(),
    ]
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let lasts = prop_oneof![1..4u64, 1..40u64, 1..4_000u64];
    let put = (hard_names(), lasts, 1..1u64 << 14).prop_map(|(name, lasts, number)| Deed::Put {
        name,
        lasts,
        number,
    });
    let deed = prop_oneof![
        16 => put,
        3 => hard_names().prop_map(|name| Deed::Forget { name }),
        1 => (0..40usize).prop_map(|more| Deed::Renew { more }),
        1 => Just(Deed::Shrink),
        1 => Just(Deed::Replace),
        4 => prop_oneof![0..3u64, 0..30u64, 0..3_000u64].prop_map(|us| Deed::Wait { us }),
    ];
    prop::collection::vec(deed, 1..250)
}

/// The table and its model.
#[derive(Default)]
struct Pair<const L: usize> {
    table: super::Table<(), L>,
    model: HashMap<u64, Word>,
    /// Every name ever added.
    names: HashSet<u64>,
    now: u64,
}

impl<const L: usize> Pair<L> {
    fn carry_out(&mut self, deed: &Deed) {
        let now = at(self.now);
        match *deed {
            Deed::Put { name, lasts, number } => {
                let word = word(self.now + lasts, number);
                put(&mut self.table, name, word, now);
                self.model.insert(name, word);
                self.names.insert(name);
            }
            Deed::Forget { name } => {
                if let Probe::Occupied(lane) = self.table.probe(name, now) {
                    self.table.put(lane, entry(name, Word::GONE));
                }
                self.model.remove(&name);
                self.names.insert(name);
            }
            Deed::Renew { more } => {
                let (live, dead) =
                    self.table.entries().partition::<Vec<_>, _>(|entry| entry.word.is_live(now));
                let mut gone = Vec::new();
                self.table.rebuild(more, now, |entry| gone.push(entry));
                assert_eq!(gone, dead);
                assert_eq!(self.table.used(), live.len());
                assert!(self.table.lanes() * 4 >= (live.len() + more) * 5);
            }
            Deed::Shrink => {
                if self.table.is_sparse(now) {
                    let before = self.table.lanes();
                    self.table.rebuild(0, now, |_| {});
                    assert!(self.table.lanes() < before || before == L);
                    assert!(!self.table.is_sparse(now));
                }
            }
            Deed::Replace => {
                let next = |word: Word| Word(word.0 ^ 1);
                self.table.replace(|old| match old.word.is_live(now) {
                    true => entry(old.name, next(old.word)),
                    false => old.gone(),
                });
                self.model.retain(|_, word| word.is_live(now));
                self.model.values_mut().for_each(|word| *word = next(*word));
            }
            Deed::Wait { us } => self.now += us,
        }
    }

    fn check(&self) {
        let now = at(self.now);
        for name in &self.names {
            let expected = self.model.get(name).copied().filter(|word| word.is_live(now));
            assert_eq!(found(&self.table, *name, now), expected, "{name:#x} at {}", self.now);
        }
        let lanes: Vec<u64> = self.table.entries().map(|entry| entry.name).collect();
        let once: HashSet<u64> = lanes.iter().copied().collect();
        assert_eq!(once.len(), lanes.len(), "a name has one lane only");
        assert_eq!(self.table.used(), lanes.len());
        let live = self.model.values().filter(|word| word.is_live(now)).count();
        assert_eq!(self.table.live(now).count(), live);
        // The last insertion found it less than four fifths full.
        let tiny = self.table.lanes() <= L;
        assert!(tiny || self.table.used().saturating_sub(1) * 5 < self.table.lanes() * 4);
        assert!(tiny || self.table.used() < self.table.lanes(), "a search ends at an empty lane");
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_table_is_a_map_that_forgets_in_time(deeds in deeds()) {
        let (mut four, mut three) = (Pair::<4>::default(), Pair::<3>::default());
        for deed in &deeds {
            four.carry_out(deed);
            four.check();
            three.carry_out(deed);
            three.check();
        }
    }

    #[test]
    fn a_home_is_a_bucket_of_the_table(name: u64, buckets in 1..1usize << 40) {
        prop_assert!(home(name, buckets) < buckets);
        prop_assert!(home(name, buckets) <= home(name | 0xff, buckets), "in the order of the names");
    }
}

// === examples ===

/// Names whose probe sequence begins in the last of `buckets` buckets.
fn last_bucket(buckets: usize) -> impl Iterator<Item = u64> {
    let names = (0..).map(|n| u64::MAX - n);
    names.take_while(move |name| home(*name, buckets) == buckets - 1)
}

#[test]
fn an_empty_table_finds_nothing_and_has_no_room() {
    let table = Table::default();
    for name in [0, 1, u64::MAX] {
        assert_eq!(table.probe(name, at(0)), Probe::Full);
    }
    assert_eq!((table.used(), table.lanes()), (0, 0));
    assert!(!table.is_sparse(at(0)));
}

#[test]
fn the_name_0_is_a_name_like_any_other() {
    let mut table = Table::default();
    put(&mut table, 7, word(10, 1), at(0));
    assert_eq!(found(&table, 0, at(0)), None, "an empty lane has the name 0 and is nobody");
    put(&mut table, 0, word(20, 2), at(0));
    assert_eq!(found(&table, 0, at(0)), Some(word(20, 2)));
    assert_eq!(found(&table, 0, at(20)), None);
    assert_eq!(found(&table, 7, at(9)), Some(word(10, 1)));
}

#[test]
fn a_word_is_live_until_its_last_microsecond() {
    let mut table = Table::default();
    put(&mut table, 5, word(100, 1), at(0));
    assert_eq!(found(&table, 5, at(99)), Some(word(100, 1)));
    assert_eq!(found(&table, 5, at(100)), None);
}

#[test]
fn a_lane_that_ran_out_is_taken_by_the_next_newcomer() {
    let mut table = Table::default();
    for name in 0..4 {
        put(&mut table, name, word(10 + name, 1), at(0));
    }
    let used = table.used();
    assert!(!put(&mut table, 100, word(90, 1), at(10)), "in the place of the name 0");
    assert_eq!(table.used(), used);
    assert_eq!(found(&table, 100, at(10)), Some(word(90, 1)));
    for name in 1..4 {
        assert_eq!(found(&table, name, at(10)), Some(word(10 + name, 1)));
    }
}

#[test]
fn a_name_that_ran_out_comes_back_to_its_own_lane() {
    let mut table = Table::default();
    for name in 0..4 {
        put(&mut table, name, word(10, 1), at(0));
    }
    // All have expired, and the lane of the name 0 would be the first free one.
    put(&mut table, 3, word(90, 2), at(50));
    assert_eq!(table.entries().filter(|entry| entry.name == 3).count(), 1);
    assert_eq!(table.entries().filter(|entry| entry.name == 0).count(), 1, "nobody took it");
}

#[test]
fn a_free_lane_on_the_way_does_not_hide_who_is_behind_it() {
    let mut table = Table::default();
    table.rebuild(20, at(0), |_| {});
    // Six of one home: four in it, two in the next bucket.
    for name in 0..6 {
        put(&mut table, name, word(if name < 4 { 10 } else { 90 }, 1), at(0));
    }
    for name in 4..6 {
        assert_eq!(found(&table, name, at(50)), Some(word(90, 1)));
    }
    put(&mut table, 5, word(99, 2), at(50));
    assert_eq!(found(&table, 5, at(98)), Some(word(99, 2)));
    assert_eq!(table.entries().filter(|entry| entry.name == 5).count(), 1);
}

#[test]
fn a_search_that_begins_in_the_last_bucket_goes_on_in_the_first() {
    let mut table = Table::default();
    table.rebuild(40, at(0), |_| {});
    let buckets = table.lanes() / LANES;
    let names: Vec<u64> = last_bucket(buckets).take(11).collect();
    for (number, name) in names.iter().enumerate() {
        put(&mut table, *name, word(90, number as u64 + 1), at(0));
    }
    assert_eq!(table.lanes() / LANES, buckets);
    for (number, name) in names.iter().enumerate() {
        assert_eq!(found(&table, *name, at(0)), Some(word(90, number as u64 + 1)));
    }
    // A name of the first bucket is placed behind those that wrapped around.
    put(&mut table, 0, word(90, 77), at(0));
    assert_eq!(found(&table, 0, at(0)), Some(word(90, 77)));
}

#[test]
fn columns_of_one_identity_do_not_meet_in_a_lane() {
    let mut table = Table::default();
    let identity = 0xABCD_EF01_2345_6700;
    for column in 0..64 {
        put(&mut table, identity | column, word(90, column + 1), at(0));
    }
    for column in 0..64 {
        assert_eq!(found(&table, identity | column, at(0)), Some(word(90, column + 1)));
    }
    assert_eq!(table.used(), 64);
}

#[test]
fn a_table_grows_by_half_and_is_never_more_than_four_fifths_full() {
    let mut table = Table::default();
    let mut lanes = Vec::new();
    for n in 1..=10_000u64 {
        put(&mut table, n.wrapping_mul(0x9E37_79B9_7F4A_7C15), word(90, 1), at(0));
        if lanes.last() != Some(&table.lanes()) {
            lanes.push(table.lanes());
        }
    }
    assert_eq!(table.used(), 10_000);
    for pair in lanes.windows(2).skip(6) {
        let growth = pair[1] as f64 / pair[0] as f64;
        assert!((1.4..1.6).contains(&growth), "{pair:?}");
    }
    assert!(table.used() * 5 <= table.lanes() * 4 && table.lanes() <= table.used() * 2);
}

#[test]
fn a_flood_that_has_run_out_leaves_a_small_table() {
    let mut table = Table::default();
    for n in 1..=10_000u64 {
        let until = if n % 100 == 0 { 90 } else { 10 };
        put(&mut table, n.wrapping_mul(0x9E37_79B9_7F4A_7C15), word(until, 1), at(0));
    }
    assert!(!table.is_sparse(at(9)));
    assert!(table.is_sparse(at(10)));
    let mut gone = 0;
    table.rebuild(0, at(10), |_| gone += 1);
    assert_eq!((gone, table.used()), (9_900, 100));
    assert!(table.lanes() < 200);
}

#[test]
fn newcomers_in_place_of_those_who_ran_out_need_no_larger_table() {
    let mut table = Table::default();
    let mut renewed = 0;
    for turn in 0..100u64 {
        for n in 0..100u64 {
            let name = (turn * 100 + n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            renewed += u32::from(put(&mut table, name, word(turn + 1, 1), at(turn)));
        }
    }
    assert!(table.lanes() < 400, "{} lanes for 100 at a time", table.lanes());
    assert!(renewed < 50, "{renewed} times for 10,000 names");
}
