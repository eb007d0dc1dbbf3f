//! The slab beside a plain map.

use std::collections::HashMap;

use proptest::prelude::*;
use sluicegate_core::limit::State;

use super::{Slab, Whole};
use crate::memory::tests::cases;

fn whole(number: u64) -> Whole {
    Whole::State(State::Spent(number))
}

fn number(whole: Option<&Whole>) -> Option<u64> {
    match whole {
        Some(Whole::State(State::Spent(number))) => Some(*number),
        Some(other) => panic!("never kept here: {other:?}"),
        None => None,
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_slab_is_a_map_that_chooses_its_keys(
        turns in prop::collection::vec((0..5u8, 0..64u32), 1..300),
    ) {
        let mut slab = Slab::default();
        let mut model: HashMap<u32, u64> = HashMap::new();
        let mut max = 0;
        for (turn, (deed, index)) in turns.into_iter().enumerate() {
            if deed < 3 {
                let kept = slab.insert(whole(turn as u64));
                prop_assert_eq!(model.insert(kept, turn as u64), None, "the place was free");
            } else {
                let taken = slab.take(index);
                prop_assert_eq!(number(taken.as_ref()), model.remove(&index));
            }
            max = max.max(model.len());
            prop_assert_eq!(slab.len(), model.len());
            for index in 0..70 {
                prop_assert_eq!(number(slab.get(index)), model.get(&index).copied());
            }
            prop_assert!(model.keys().all(|index| (*index as usize) < max), "no place is wasted");
        }
    }
}

#[test]
fn a_place_given_up_is_used_again() {
    let mut slab = Slab::default();
    let indices: Vec<u32> = (0..5).map(|n| slab.insert(whole(n))).collect();
    assert_eq!(number(slab.take(indices[2]).as_ref()), Some(2));
    assert_eq!(slab.insert(whole(9)), indices[2]);
    assert_eq!(slab.len(), 5);
}

#[test]
fn a_place_is_given_up_once() {
    let mut slab = Slab::default();
    let (first, second) = (slab.insert(whole(1)), slab.insert(whole(2)));
    assert!(slab.take(first).is_some());
    assert!(slab.take(first).is_none());
    assert!(slab.take(7_000_000).is_none());
    assert_eq!(number(slab.get(second)), Some(2));
    assert_eq!(slab.len(), 1);
}

#[test]
fn an_empty_slab_holds_no_memory() {
    let mut slab = Slab::default();
    let indices: Vec<u32> = (0..1_000).map(|n| slab.insert(whole(n))).collect();
    for index in indices {
        slab.take(index);
    }
    assert_eq!((slab.len(), slab.slots.capacity(), slab.free.capacity()), (0, 0, 0));
}

#[test]
fn a_slab_is_sparse_when_most_of_it_is_free() {
    let mut slab = Slab::default();
    let indices: Vec<u32> = (0..100).map(|n| slab.insert(whole(n))).collect();
    for index in &indices[..50] {
        slab.take(*index);
    }
    assert!(!slab.is_sparse(), "half of it is in use");
    slab.take(indices[50]);
    assert!(slab.is_sparse());
}

#[test]
fn a_slab_grows_by_a_quarter() {
    let mut slab = Slab::default();
    for n in 0..10_000 {
        slab.insert(whole(n));
        assert!(slab.slots.capacity() <= slab.len() + slab.len() / 4 + 4);
    }
}
