//! The verdict of each identity of a request, beside the combined one.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Part, apply_to_each};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::time::Span;
use sluicegate_core::verdict::Verdict;
use sluicegate_rules::limit::LimitConfig;

use super::{Answered, NOON, Overflow, SECOND, World, at, limit, rule, together, who};
use crate::limit::{Concurrency, Cycle, FixedWindow, SlidingLog, TokenBucket};
use crate::memory::shards::{Target, apply_together_to_each};
use crate::memory::tests::cases;

fn tally(max: u64) -> LimitConfig {
    LimitConfig::fixed(None, Limit::Tally(Tally::new(max, Span::from_secs(60)).unwrap()))
}

fn to_each(all: &[(&World, u64)], op: Op, now: u64) -> (Result<Answered, Refusal>, Vec<Verdict>) {
    let targets: Vec<Target<'_>> = all
        .iter()
        .map(|(world, hash)| Target {
            shards: &world.shards,
            hash: *hash,
            spare_capacity: false,
            rule: None,
            cost: None,
        })
        .collect();
    // Arbitrary previous contents.
    let mut each = vec![super::UNCOUNTED; 9];
    let answered = apply_together_to_each(&targets, op, at(now), &mut each);
    (answered, each)
}

fn hit(cost: u64) -> Op {
    Op::Hit { cost, holder: Some(Holder(1)) }
}

fn told(each: &[Verdict]) -> Vec<(bool, Option<i64>)> {
    each.iter().map(|said| (said.is_allowed(), said.remaining)).collect()
}

#[test]
fn each_says_its_own_and_only_tallies_count_what_is_denied() {
    let charged = World::roomy(vec![limit(FixedWindow::per_day(5))]);
    let (strict, lax) = (World::roomy(vec![tally(1)]), World::roomy(vec![tally(9), tally(3)]));
    let all = [(&charged, who(1, 1)), (&strict, who(1, 1)), (&lax, who(1, 1))];
    let said = |now| {
        let (answered, each) = to_each(&all, hit(1), now);
        (answered.unwrap().answer.verdict.decided_by, told(&each), each[2].decided_by)
    };
    let left = |n: i64| (true, Some(n));
    assert_eq!(said(NOON), (Some(1), vec![left(4), left(0), left(2)], Some(1)));
    assert_eq!(said(NOON), (Some(1), vec![left(4), (false, Some(0)), left(1)], Some(1)));
    assert_eq!(said(NOON), (Some(1), vec![left(4), (false, Some(0)), left(0)], Some(1)));
    assert_eq!(said(NOON + 60 * SECOND), (Some(1), vec![left(3), left(0), left(2)], Some(1)));
}

#[test]
fn an_identity_named_twice_is_charged_once_and_says_the_same_twice() {
    let (one, two) = (World::roomy(vec![tally(9)]), World::roomy(vec![tally(5)]));
    let all = [(&one, who(1, 1)), (&one, who(1, 1)), (&two, who(1, 1)), (&one, who(1, 1))];
    let (answered, each) = to_each(&all, hit(2), NOON);
    let answer = answered.unwrap().answer.verdict;
    assert_eq!(told(&each), [(true, Some(7)), (true, Some(7)), (true, Some(3)), (true, Some(7))]);
    assert_eq!((answer.remaining, answer.decided_by), (Some(3), Some(2)));
}

#[test]
fn who_has_no_room_says_what_the_policy_says_and_the_others_speak_for_themselves() {
    let roomy = World::roomy(vec![tally(5)]);
    let full = |overflow| {
        let world = World::new(vec![tally(5)], 1, overflow);
        world.hit(who(1, 1), 1, NOON);
        world
    };
    let ask = |world: &World| {
        let (answered, each) = to_each(&[(world, who(2, 2)), (&roomy, who(1, 1))], hit(1), NOON);
        let answered = answered.unwrap();
        assert!(answered.overflowed);
        (answered.answer.verdict.is_allowed(), told(&each))
    };
    assert_eq!(ask(&full(Overflow::Allow)), (true, vec![(true, None), (true, Some(4))]));
    assert_eq!(ask(&full(Overflow::Shared)), (true, vec![(true, Some(4)), (true, Some(3))]));
    assert_eq!(ask(&full(Overflow::Deny)), (false, vec![(false, None), (true, Some(3))]));
    assert_eq!(roomy.peek(who(1, 1), 1, NOON).remaining, Some(3), "nobody was asked then");
    // All of them without room.
    for (overflow, passes) in [(Overflow::Allow, true), (Overflow::Deny, false)] {
        let world = full(overflow);
        let (answered, each) = to_each(&[(&world, who(2, 2)), (&world, who(3, 3))], hit(1), NOON);
        assert_eq!(answered.unwrap().answer.verdict.is_allowed(), passes);
        assert_eq!(told(&each), [(passes, None); 2]);
    }
}

#[test]
fn what_is_refused_is_said_by_nobody() {
    let worlds = [World::roomy(vec![tally(9)]), World::roomy(vec![limit(TokenBucket::per_day(5))])];
    let all = [(&worlds[0], who(1, 1)), (&worlds[1], who(1, 1))];
    let (answered, each) = to_each(&all, Op::Cancel { holder: Holder(7) }, NOON);
    assert!(matches!(answered, Err(Refusal::Unsupported { algorithm: "tally", .. })));
    assert!(each.is_empty());
    let (answered, each) = to_each(&[], hit(1), NOON);
    assert!(answered.unwrap().answer.verdict.is_allowed() && each.is_empty());
}

fn limits() -> Vec<LimitConfig> {
    let ten = Duration::from_secs(10);
    vec![
        tally(5),
        tally(9),
        tally(0),
        limit(TokenBucket::per_second(3).burst(9)),
        limit(FixedWindow::per(5, ten)),
        limit(SlidingLog::per(3, ten).count_denied()),
        limit(Cycle::of(5).every(ten)),
        limit(Concurrency::at_most(3)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    (0u8..12, 0u64..8, 0u64..4).prop_map(|(kind, cost, id)| match kind {
        0..7 => Op::Hit { cost, holder: Some(Holder(id)) },
        7..9 => Op::Peek { cost },
        9 => Op::Charge { cost },
        10 => Op::Refund { cost },
        _ => Op::Take { cost },
    })
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn each_says_what_the_core_says(
        plans in prop::collection::vec(prop::collection::vec(prop::sample::select(limits()), 1..4), 3),
        turns in prop::collection::vec((0..20 * SECOND, op(), prop::collection::vec(0..3usize, 1..4)), 1..40),
    ) {
        let worlds: Vec<World> = plans.iter().cloned().map(World::roomy).collect();
        let twins: Vec<World> = plans.iter().cloned().map(World::roomy).collect();
        let plans: Vec<_> = plans.into_iter().map(|limits| rule(limits, Mode::Hard).plan_at(at(NOON))).collect();
        let mut accounts = [Account::default(), Account::default(), Account::default()];
        let mut now = NOON;
        let mut due = Vec::new();
        for (step, op, mut named) in turns {
            now += step;
            // In the order of the accounts, each once: duplicates have a separate test.
            named.sort_unstable();
            named.dedup();
            let all: Vec<_> = named.iter().map(|index| (&worlds[*index], who(7, *index as u64))).collect();
            let (answered, each) = to_each(&all, op, now);
            let mut parts: Vec<Part<'_>> = accounts
                .iter_mut()
                .enumerate()
                .filter(|(index, _)| named.contains(index))
                .map(|(index, account)| Part { plan: &plans[index].steps, account, spare_capacity: false, cost: None })
                .collect();
            let answer = apply_to_each(&mut parts, op, at(now), &mut due);
            let said = answered.map(|answered| answered.answer);
            prop_assert_eq!(said, answer, "{:?} at {}", op, now);
            prop_assert_eq!(&each, &due, "{:?} at {}", op, now);
            // The combined verdict is the same as without them.
            let all: Vec<_> = named.iter().map(|index| (&twins[*index], who(7, *index as u64))).collect();
            prop_assert_eq!(together(&all, op, now).map(|answered| answered.answer), said);
        }
    }
}
