//! Demand rounds as nodes receive them, and shares that never exceed the whole.

use super::*;
use proptest::prelude::*;

const RULE: u64 = 7;

/// The state of a node that received two rounds.
fn known(rounds: [&[u64]; 2], number: u64, node: usize, live: u64) -> Known {
    let round = |number, demands: &[u64]| DemandRound {
        number,
        nodes: demands.len() as u64,
        own: Some(HashMap::from([(RULE, demands[node])])),
        sums: HashMap::from([(RULE, demands.iter().sum())]),
    };
    let [before, last] = rounds;
    let rounds = [Some(round(number + 1, last)), Some(round(number, before))];
    Known { rounds, live, ..Known::default() }
}

proptest! {
    /// The store fails when only some nodes have received the third round.
    #[test]
    fn nodes_that_are_a_round_apart_have_no_more_than_the_whole(
        demands in prop::collection::vec(prop::array::uniform3(0..1_000_000_u64), 1..12),
        is_late in prop::collection::vec(any::<bool>(), 12),
    ) {
        let live = demands.len() as u64;
        let round = |index: usize| demands.iter().map(|three| three[index]).collect::<Vec<u64>>();
        let (first, second, third) = (round(0), round(1), round(2));
        let whole = 1_i64 << 50;
        let mut shares = 0;
        for (node, is_late) in is_late.iter().enumerate().take(demands.len()) {
            let known = match is_late {
                true => known([&first, &second], 1, node, live),
                false => known([&second, &third], 2, node, live),
            };
            let share = known.weight_of(RULE).part_of(whole);
            prop_assert!(share >= whole / 4 / live as i64 - 1, "a quarter of an even share is everybody's");
            shares += share;
        }
        prop_assert!(shares <= whole);
    }

    #[test]
    fn whatever_a_store_says_is_read_or_refused(numbers in prop::collection::vec(any::<i64>(), 0..6), text in ".{0,60}") {
        let text = Value::BulkString(text.into_bytes());
        let mut parts: Vec<Value> = numbers.into_iter().map(Value::Int).collect();
        parts.push(text.clone());
        let _ = DemandRound::decode(&parts);
        let ints = [Value::Int(1), Value::Int(2)];
        let sums = Value::Array(vec![text.clone(), text.clone(), text.clone()]);
        let said = [&ints[..], &[text, sums]].concat();
        prop_assert!(DemandRound::decode(&said).is_some());
    }
}

#[test]
fn the_busiest_are_told_smoothed_and_whoever_is_gone_is_not() {
    let demands = Demands::default();
    let counts: Vec<Arc<AtomicU64>> = (0..100).map(|_| Arc::default()).collect();
    for (id, count) in (0..).zip(&counts) {
        let count = Arc::downgrade(count);
        demands.watch(id, move || Some(count.upgrade()?.load(Ordering::Relaxed)));
    }
    let at = |second: u64| Timestamp::from_micros(second * 1_000_000);
    assert_eq!(demands.measure(at(1)), [], "nobody knows since when");
    assert_eq!(demands.measure(at(2)), [], "nobody came");
    (1..).zip(&counts).for_each(|(hits, count)| count.store(hits, Ordering::Relaxed));
    let told = demands.measure(at(3));
    assert_eq!(told.len(), RULES_MAX);
    // A quarter of 100 hits a second, in thousandths, and so on downwards.
    assert_eq!(told[..2], [(99, 25_000), (98, 24_750)]);
    assert_eq!(demands.measure(at(3)), told, "at the same time nothing has changed");
    assert_eq!(demands.measure(at(4))[0], (99, 18_750));
    drop(counts);
    assert_eq!(demands.measure(at(5)), []);
    assert!(demands.known.lock().rules.is_empty());
}

#[test]
fn demand_is_by_the_second_whatever_a_heartbeat_took() {
    let demands = Demands::default();
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    demands.watch(1, move || Some(counted.load(Ordering::Relaxed)));
    demands.watch(1, || Some(0));
    let start = Timestamp::from_micros(1);
    assert_eq!(demands.measure(start), []);
    count.store(500, Ordering::Relaxed);
    assert_eq!(demands.measure(start.after(Span::from_secs(5))), [(1, 100_000)]);
}

#[test]
fn what_little_is_asked_for_is_split_evenly() {
    let weight = |demands: [u64; 2]| known([&demands, &demands], 1, 0, 2).weight_of(RULE);
    assert_eq!(weight([SUM_MIN - 1, 0]), Weight::even(2));
    assert!(weight([SUM_MIN, 0]) < Weight::even(2));
    assert!(weight([0, SUM_MIN]) > Weight::even(2));
}

#[test]
fn who_has_heard_of_one_round_only_has_no_more_than_an_even_share() {
    let mut one = known([&[9, 1], &[90_000, 10_000]], 1, 0, 2);
    assert_eq!(one.weight_of(RULE), Weight::even(2), "the round before is one of little demand");
    one.rounds[1] = None;
    assert_eq!(one.weight_of(RULE), Weight::even(2));
    one = known([&[90_000, 10_000], &[90_000, 10_000]], 1, 0, 2);
    assert!(one.weight_of(RULE) < Weight::even(2));
    // A round between them was missed: peers may use it.
    one.rounds[1] = one.rounds[1].take().map(|before| DemandRound { number: 0, ..before });
    assert_eq!(one.weight_of(RULE), Weight::even(2));
    // A node that joined since has a share too.
    assert!(known([&[9, 1], &[90_000, 10_000]], 1, 0, 5).weight_of(RULE) >= Weight::even(5));
}
