//! Accounts taken apart and put together, and when one need not be kept any more.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::smooth::SmoothBursty;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::Op;
use sluicegate_core::time::{NOW_MAX, Timestamp};
use support::limits::{bucket, counter, log, slots, smooth, window};
use support::plans::{Deed, deeds, plan};
use support::{
    DAY, World, acquire, acquire_as, anything, at, cancel, cases, commit, hit, hit_as, peek, rate,
    reserve, us,
};

fn played(plan: &[EnforcedLimit], deeds: &[Deed]) -> Account {
    let mut account = Account::default();
    for deed in deeds {
        let _ = account.apply(plan, deed.op, deed.moment);
    }
    account
}

/// Whether this account and a new one give the same answers from `then` on.
fn as_good_as_new(
    account: &Account,
    plan: &[EnforcedLimit],
    then: Timestamp,
) -> Result<(), TestCaseError> {
    let id = Some(Holder(2));
    for later in [0, 1, 7, DAY] {
        let now = then.after(us(later));
        for spare_capacity in [false, true] {
            for cost in [1, 3, 1_000] {
                let asked = [
                    hit(cost),
                    Op::Hit { cost, holder: id },
                    peek(cost),
                    acquire(cost, 25),
                    Op::Acquire { cost, max_wait: us(25), holder: id },
                    Op::Acquire { cost, max_wait: us(u64::MAX), holder: id },
                ];
                for op in asked {
                    let moment = Moment { now, spare_capacity };
                    let (mut old, mut new) = (account.clone(), Account::default());
                    let answers = (old.apply(plan, op, moment), new.apply(plan, op, moment));
                    prop_assert_eq!(answers.0, answers.1, "{:?} at {:?}", op, moment);
                    // And so does what it leaves behind.
                    let next = (old.apply(plan, hit(1), moment), new.apply(plan, hit(1), moment));
                    prop_assert_eq!(next.0, next.1, "after {:?} at {:?}", op, moment);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn after_it_has_expired_an_account_is_as_good_as_new(plan in plan(), deeds in deeds(30)) {
        let account = played(&plan, &deeds);
        let expires = account.expires_at(&plan);
        // What is spent of a closed limit is remembered for ever.
        if expires < NOW_MAX {
            as_good_as_new(&account, &plan, expires)?;
        }
    }

    #[test]
    fn whatever_was_asked_an_account_that_has_expired_is_as_good_as_new(
        plan in anything::plan(),
        deeds in prop::collection::vec((anything::op(), anything::number(), any::<bool>()), 1..20),
    ) {
        let deed = |(op, now, spare_capacity)| Deed { op, moment: Moment { now: at(now), spare_capacity } };
        let account = played(&plan, &deeds.into_iter().map(deed).collect::<Vec<_>>());
        let expires = account.expires_at(&plan);
        if expires < NOW_MAX {
            as_good_as_new(&account, &plan, expires)?;
        }
    }

    #[test]
    fn once_it_has_expired_nothing_under_an_id_is_known(plan in plan(), deeds in deeds(30)) {
        let account = played(&plan, &deeds);
        let expires = account.expires_at(&plan);
        for id in 0..4 {
            for later in [0, 9] {
                let then = Moment::at(expires.after(us(later)));
                let told = account.clone().apply(&plan, cancel(id), then);
                prop_assert_eq!(told, Account::default().apply(&plan, cancel(id), then));
            }
        }
    }

    #[test]
    fn an_account_with_nothing_pending_is_its_states(plan in plan(), deeds in deeds(30)) {
        let account = played(&plan, &deeds);
        match account.clone().into_states() {
            Ok(states) => prop_assert_eq!(Account::from_states(states), account),
            Err(same) => {
                prop_assert_eq!(&same, &account);
                // Something under an id, and that is remembered for a day at least.
                prop_assert!(account.expires_at(&plan) >= at(DAY));
            }
        }
    }
}

fn expires(world: &World) -> u64 {
    world.account.expires_at(&world.plan).as_micros()
}

#[test]
fn a_new_account_has_expired_already() {
    let mut world = World::hard(bucket(1, 10, 5));
    assert_eq!(expires(&world), 0);
    world.ask(peek(1), 1_000);
    world.ask(hit(9), 1_000);
    assert_eq!(expires(&world), 0, "neither a peek nor a denial is remembered");
    assert!(world.account.is_new());
}

#[test]
fn an_account_expires_when_its_last_limit_is_full() {
    let full = |limit| {
        let mut world = World::hard(limit);
        world.ask(hit(3), 1_000);
        expires(&world)
    };
    assert_eq!(full(bucket(1, 10, 5)), 1_030);
    assert_eq!(full(window(5, 300)), 1_200);
    assert_eq!(full(Limit::SlidingLog(log(&[(5, 70)]))), 1_070);
    assert_eq!(full(counter(5, 300, Rounding::Floor)), 1_500, "one window more");
    let mut both =
        World::of([bucket(1, 10, 5), window(5, 300)].map(|l| World::hard(l).plan[0]).into());
    both.ask(hit(3), 1_000);
    assert_eq!(expires(&both), 1_200);
}

#[test]
fn a_slot_expires_with_its_lease() {
    let mut world = World::hard(slots(2, 500));
    world.ask(hit_as(1, 7), 1_000);
    assert_eq!(expires(&world), 1_500);
}

#[test]
fn a_limiter_that_starts_with_nothing_stored_is_remembered_for_a_day() {
    let mut world = World::hard(smooth(1, 10, 50));
    world.ask(hit(1), 1_000);
    assert_eq!(expires(&world), 1_000 + DAY);
}

#[test]
fn a_booking_is_remembered_for_a_day_after_its_turn() {
    let mut world = World::hard(bucket(1, 10, 1));
    world.ask(hit(1), 1_000);
    world.ask(acquire_as(1, 50, 7), 1_000);
    assert_eq!(expires(&world), 1_010 + DAY);
}

#[test]
fn a_reservation_is_remembered_for_a_day_after_its_time() {
    let mut world = World::hard(bucket(1, 10, 5));
    world.ask(reserve(1, 60, 7), 1_000);
    assert_eq!(expires(&world), 1_060 + DAY);
    let then = 1_060 + DAY;
    assert!(world.clone().answer(commit(1, 7), then - 1).is_ok(), "late, but known");
    assert!(world.clone().answer(commit(1, 7), then).is_err());
    // Settled, nothing is pending, and the bucket is all that counts.
    world.ask(commit(2, 7), 1_030);
    assert_eq!(expires(&world), 1_040);
}

#[test]
fn a_reservation_given_back_is_a_use() {
    // The limiter is remembered for longer than a reservation, counted from when that is given back.
    let smooth = SmoothBursty::new(rate(1, 10), us(50)).expect("a small limiter");
    let smooth = smooth.with_forget_after(us(3 * DAY)).expect("three days");
    let mut world = World::hard(Limit::SmoothBursty(smooth));
    world.ask(reserve(1, 600, 7), 1_000);
    assert_eq!(expires(&world), 1_600 + 3 * DAY);
}

#[test]
fn the_last_reservation_of_many_tells_and_each_costs_one_look() {
    let mut world = World::hard(window(10_000, 3 * DAY));
    world.ask(hit(1), 1_000);
    for id in 0..1_000 {
        world.ask(reserve(1, 600 + id, id), 1_000);
        // A store asks after every operation.
        assert_eq!(expires(&world), 3 * DAY);
    }
    // One that charges nothing runs out last, and the others before it in a window of their own.
    world.ask(reserve(0, 3 * DAY, 1_000), 1_000);
    assert_eq!(expires(&world), 1_000 + 4 * DAY);
}

#[test]
fn what_is_spent_of_a_closed_limit_is_remembered_for_ever() {
    let account = Account::from_states([(State::Spent(3), State::New)]);
    let plan = World::hard(Limit::Closed).plan;
    assert_eq!(account.expires_at(&plan), Timestamp::MAX);
    assert_eq!(account.expires_at(&World::hard(bucket(1, 10, 5)).plan), Timestamp::EPOCH);
}

#[test]
fn an_account_is_not_taken_apart_while_something_is_pending() {
    let mut world = World::hard(bucket(1, 10, 5));
    world.ask(reserve(1, 60, 7), 1_000);
    let account = world.account.clone();
    assert_eq!(account.clone().into_states(), Err(account));
    world.ask(commit(1, 7), 1_000);
    assert!(world.account.into_states().is_ok());
}
