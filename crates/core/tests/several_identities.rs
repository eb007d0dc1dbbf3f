//! Several identities decided as one: the answers of one account under all plans in a row, and all or
//! nothing for every one of them.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Answer, Moment, Part, apply_to_all, apply_to_each};
use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::{EnforcedLimit, Mode};
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::verdict::{Outcome, Verdict};
use support::limits::{bucket, cycle, slots, small_counting, tally, window};
use support::plans::{any_slots, deeds, mode, op, plan};
use support::{
    World, acquire_as, at, cancel, cases, commit, hit, hit_as, peek, rate, reserve, step, us,
};

/// Asks all of these worlds as the identities of one request.
fn ask_all(worlds: &mut [World], op: Op, moment: Moment) -> Result<Answer, Refusal> {
    apply_to_all(&mut parts(worlds, moment), op, moment.now)
}

/// The same, with what each of them said.
fn ask_each(
    worlds: &mut [World],
    op: Op,
    moment: Moment,
    each: &mut Vec<Verdict>,
) -> Result<Answer, Refusal> {
    apply_to_each(&mut parts(worlds, moment), op, moment.now, each)
}

fn parts(worlds: &mut [World], moment: Moment) -> Vec<Part<'_>> {
    let spare_capacity = moment.spare_capacity;
    let worlds = worlds.iter_mut();
    worlds
        .map(|World { plan, account, .. }| Part { plan, account, spare_capacity, cost: None })
        .collect()
}

/// The strictest of several outcomes; everyone waits for the last turn.
fn strictest(each: &[Verdict]) -> Outcome {
    let nevers = each.iter().filter_map(|decision| match decision.outcome {
        Outcome::Never { max_cost } => Some(max_cost),
        _ => None,
    });
    let longest = each.iter().filter_map(Verdict::retry_after).max();
    let wait = each.iter().map(Verdict::wait).max().unwrap_or_default();
    match (nevers.min(), longest) {
        (Some(max_cost), _) => Outcome::Never { max_cost },
        (None, Some(retry_after)) => Outcome::Deny { retry_after },
        (None, None) => Outcome::Allow { wait },
    }
}

fn ask(worlds: &mut [World], op: Op, now: u64) -> Result<Answer, Refusal> {
    ask_all(worlds, op, Moment::at(at(now)))
}

fn allows(worlds: &mut [World], op: Op, now: u64) -> bool {
    ask(worlds, op, now).expect("no limit here refuses it").verdict.outcome.is_allowed()
}

fn left(world: &World, now: u64) -> i64 {
    world.would(peek(1), now).remaining.expect("a number")
}

/// The plan cut into parts, none of them empty, wherever `cuts` says so.
fn split(plan: &[EnforcedLimit], cuts: &[bool]) -> Vec<World> {
    let mut worlds: Vec<World> = Vec::new();
    for (step, cut) in plan.iter().zip(cuts) {
        match worlds.last_mut() {
            Some(world) if !cut => world.plan.push(*step),
            _ => worlds.push(World::of(vec![*step])),
        }
    }
    worlds
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_plan_split_over_identities_answers_as_if_it_were_one(
        plan in plan(), cuts in prop::collection::vec(any::<bool>(), 6), deeds in deeds(40),
    ) {
        let mut whole = Account::default();
        let mut parts = split(&plan, &cuts);
        // A known difference: after an acquisition of cost 0 and a renewal, a commit is accepted by
        // one identity, and refused by those of slots only, which have no hold to renew.
        let only_slots = |part: &World| part.plan.iter().all(|step| matches!(step.limit(), Limit::Concurrency(_)));
        let renews = !parts.iter().any(only_slots);
        for deed in deeds {
            if matches!(deed.op, Op::Renew { .. }) && !renews {
                continue;
            }
            let one = whole.apply(&plan, deed.op, deed.moment);
            let many = ask_all(&mut parts, deed.op, deed.moment);
            prop_assert_eq!(one, many, "{:?}", deed);
        }
        let states = parts.iter().flat_map(|part| (0..part.plan.len()).map(|i| part.account.state(i)));
        let row: Vec<_> = states.map(|state| state.cloned().unwrap_or_default()).collect();
        let whole: Vec<_> = (0..plan.len()).map(|i| whole.state(i).cloned().unwrap_or_default()).collect();
        prop_assert_eq!(whole, row);
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn the_whole_is_as_strict_as_the_strictest_of_its_parts(
        plan in plan(), cuts in prop::collection::vec(any::<bool>(), 6), deeds in deeds(40),
    ) {
        let (mut whole, mut parts) = (split(&plan, &cuts), split(&plan, &cuts));
        let mut each = Vec::new();
        for deed in deeds {
            let joint = ask_all(&mut whole, deed.op, deed.moment);
            prop_assert_eq!(ask_each(&mut parts, deed.op, deed.moment, &mut each), joint, "{:?}", deed);
            let Ok(joint) = joint else {
                prop_assert!(each.is_empty(), "refused");
                continue;
            };
            prop_assert_eq!(each.len(), parts.len());
            // A cycle asked for more than it holds is ready for a while only, and a log that counts denials counts those of
            // others, as a tally does: together they may have to wait for longer than each of them.
            let waits_longer = |step: &EnforcedLimit| match step.limit() {
                Limit::Cycle(cycle) => deed.op.cost() > cycle.permits(),
                Limit::SlidingLog(log) => log.counts_denied(),
                limit => limit.counts_first(),
            };
            match (joint.verdict.outcome, strictest(&each)) {
                (Outcome::Deny { retry_after }, Outcome::Deny { retry_after: from_single })
                    if plan.iter().any(waits_longer) => prop_assert!(retry_after >= from_single),
                (outcome, strictest) => prop_assert_eq!(outcome, strictest, "{:?}", deed),
            }
            if joint.verdict.is_allowed() {
                prop_assert_eq!(joint.verdict.soft, each.iter().any(|decision| decision.soft));
                prop_assert_eq!(joint.verdict.elastic, each.iter().any(|decision| decision.elastic));
            }
            for (decision, part) in each.iter().zip(&parts) {
                prop_assert!(decision.decided_by.is_some_and(|index| index < part.plan.len()));
            }
        }
    }

    #[test]
    fn each_part_says_what_it_would_have_said_on_its_own(
        plan in plan(), cuts in prop::collection::vec(any::<bool>(), 6), deeds in deeds(20),
        cost in 0u64..8, peeks in any::<bool>(), open in any::<bool>(),
    ) {
        let mut parts = split(&plan, &cuts);
        let mut now = support::plans::START;
        for deed in deeds {
            now = deed.moment.now.as_micros();
            let _ = ask_all(&mut parts, deed.op, deed.moment);
        }
        let moment = Moment { now: at(now), spare_capacity: open };
        let op = if peeks { peek(cost) } else { hit_as(cost, 99) };
        let mut alone = parts.clone();
        let mut each = Vec::new();
        ask_each(&mut parts, op, moment, &mut each).expect("a hit with an id is not refused");
        for (decision, alone) in each.iter().zip(&mut alone) {
            alone.open = open;
            let own = alone.answer(op, now).expect("nor is that of one of them").verdict;
            prop_assert_eq!(decision.is_allowed(), own.is_allowed());
            // A log that counts denials does not count what can never pass, whoever says so.
            let logs = |step: &EnforcedLimit| matches!(step.limit(), Limit::SlidingLog(log) if log.counts_denied());
            if !plan.iter().any(logs) {
                prop_assert_eq!(decision.outcome, own.outcome);
            }
            // What is left tells whether it was charged, which is up to the others too.
            if peeks {
                prop_assert_eq!(*decision, own);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_denied_request_changes_no_identity(
        // Of limits for which a new identity is a full one: the life of others begins with any hit.
        limits in prop::collection::vec((small_counting(), mode()), 2..6),
        cuts in prop::collection::vec(any::<bool>(), 6), deeds in deeds(20),
        cost in 1u64..8, max_wait in prop::option::of(0u64..20), open in any::<bool>(),
    ) {
        let plan: Vec<EnforcedLimit> =
            limits.iter().filter_map(|(limit, mode)| EnforcedLimit::new(*limit, *mode).ok()).collect();
        let mut parts = split(&plan, &cuts);
        let mut now = support::plans::START;
        for deed in deeds {
            now = deed.moment.now.as_micros();
            let _ = ask_all(&mut parts, deed.op, deed.moment);
        }
        let op = max_wait.map_or(hit(cost), |max_wait| acquire_as(cost, max_wait, 99));
        let before = parts.clone();
        let answer = ask_all(&mut parts, op, Moment { now: at(now), spare_capacity: open });
        if answer.is_ok_and(|answer| answer.verdict.outcome.is_allowed()) {
            return Ok(());
        }
        for (mut before, mut after) in before.into_iter().zip(parts) {
            prop_assert_eq!(after.answer(cancel(99), now), Err(Refusal::UnknownHolder));
            for open in [false, true] {
                (before.open, after.open) = (open, open);
                prop_assert_eq!(before.probe(now, 1), after.probe(now, 1));
                prop_assert_eq!(before.probe(now, 7), after.probe(now, 7));
            }
        }
    }

    #[test]
    fn what_is_refused_changes_no_identity(
        limits in prop::collection::vec(prop_oneof![3 => small_counting(), 1 => any_slots()], 2..6),
        cuts in prop::collection::vec(any::<bool>(), 6), deeds in deeds(20),
        alone in reserve_or_acquire(), index in 0usize..6, refused in op(),
    ) {
        let plan: Vec<EnforcedLimit> = limits.iter().map(|limit| step(*limit, Mode::Hard)).collect();
        let mut parts = split(&plan, &cuts);
        let mut now = support::plans::START;
        for deed in deeds {
            now = deed.moment.now.as_micros();
            let _ = ask_all(&mut parts, deed.op, deed.moment);
        }
        // One of them may know an id that the others do not.
        let one = index % parts.len();
        let _ = parts[one].answer(alone, now);
        let before = parts.clone();
        if ask(&mut parts, refused, now).is_err() {
            for (before, after) in before.iter().zip(&parts) {
                prop_assert_eq!(before.probe(now, 1), after.probe(now, 1));
                prop_assert_eq!(before.probe(now, 7), after.probe(now, 7));
                for id in 0..4 {
                    let known = |world: &World| world.clone().answer(cancel(id), now);
                    prop_assert_eq!(known(before), known(after));
                }
            }
        }
    }
}

fn reserve_or_acquire() -> impl Strategy<Value = Op> {
    (any::<bool>(), 0u64..4).prop_map(|(reserved, id)| match reserved {
        true => reserve(1, 50, id),
        false => acquire_as(1, 50, id),
    })
}

fn hard(limit: Limit) -> World {
    World::hard(limit)
}

#[test]
fn the_limit_that_decided_is_named_by_its_place_in_the_row() {
    let mut parts = [
        World::of(vec![step(bucket(1, 10, 9), Mode::Hard), step(bucket(1, 10, 8), Mode::Hard)]),
        World::of(vec![step(bucket(1, 10, 7), Mode::Hard), step(bucket(1, 10, 2), Mode::Hard)]),
    ];
    let answer = ask(&mut parts, hit(2), 100).expect("no limit here refuses it");
    assert_eq!((answer.verdict.decided_by, answer.verdict.remaining), (Some(3), Some(0)));
    let denied = ask(&mut parts, hit(8), 100).expect("no limit here refuses it");
    assert_eq!(denied.verdict.decided_by, Some(3), "it holds the least of all");
}

#[test]
fn no_parts_are_an_empty_plan() {
    let answer = ask(&mut [], hit(1), 0).expect("nothing refuses it");
    assert!(answer.verdict.outcome.is_allowed());
    assert_eq!(answer.verdict.decided_by, None);
    assert_eq!(ask(&mut [], commit(1, 7), 0), Err(Refusal::UnknownHolder));
    assert_eq!(ask(&mut [], cancel(7), 0), Err(Refusal::UnknownHolder));
}

#[test]
fn with_taken_takes_what_the_least_of_them_has() {
    let mut parts = [hard(window(9, 100)), hard(window(4, 100)), hard(window(6, 100))];
    assert_eq!(ask(&mut parts, Op::Take { cost: 8 }, 0).map(|a| a.taken), Ok(Some(4)));
    assert_eq!(parts.each_ref().map(|part| left(part, 0)), [5, 0, 2]);
}

#[test]
fn draining_takes_what_the_least_of_them_has() {
    let mut parts = [hard(window(9, 100)), hard(window(4, 100))];
    assert_eq!(ask(&mut parts, Op::Drain, 0).map(|a| a.taken), Ok(Some(4)));
    assert_eq!(parts.each_ref().map(|part| left(part, 0)), [5, 0]);
}

#[test]
fn a_rule_in_the_shadow_is_counted_for_all_its_identities_or_for_none() {
    let shadow = |count| World::of(vec![step(window(count, 100), Mode::Shadow).of_rule(1)]);
    let mut parts = [shadow(5), shadow(1)];
    assert!(allows(&mut parts, hit(1), 0));
    assert!(allows(&mut parts, hit(1), 0), "a shadow denies nobody");
    assert_eq!(parts.each_ref().map(|part| left(part, 0)), [4, 0], "the second was not counted");
}

#[test]
fn nothing_leaves_no_trace_beside_others() {
    let short = TokenBucket::new(rate(1, 10), 4).and_then(|bucket| bucket.with_initial(0));
    let mut slow = hard(Limit::TokenBucket(short.expect("a limit within the bounds")));
    let mut other = hard(window(9, 100));
    for op in [hit(1), Op::Charge { cost: 1 }, Op::Refund { cost: 1 }] {
        let parts = [(&mut slow, Some(0)), (&mut other, None)];
        let mut parts = parts.map(|(world, cost)| Part {
            plan: &world.plan,
            account: &mut world.account,
            spare_capacity: false,
            cost,
        });
        assert!(apply_to_all(&mut parts, op, at(100)).is_ok());
        assert!(slow.account.is_new(), "{op:?}: its life has not begun");
    }
}

#[test]
fn whoever_waits_for_one_identity_uses_all_of_them_at_that_moment() {
    let mut parts = [hard(bucket(1, 1_000, 5)), hard(bucket(1, 100, 1))];
    assert!(allows(&mut parts, hit(1), 0));
    let answer = ask(&mut parts, acquire_as(1, 1_000, 7), 0).expect("no limit here refuses it");
    assert!(answer.verdict.outcome.is_allowed());
    assert_eq!(left(&parts[0], 0), 3);
    // The first had a token at once, but its turn comes with that of the second.
    let answer = ask(&mut parts, cancel(7), 99).expect("it is known");
    assert_eq!(answer.returned, Some(1));
    assert_eq!(parts.each_ref().map(|part| left(part, 99)), [4, 0]);
}

#[test]
fn a_commit_gives_back_to_each_what_was_not_used() {
    let mut parts = [hard(window(9, 100)), hard(window(6, 100))];
    assert!(allows(&mut parts, reserve(5, 60, 7), 0));
    assert_eq!(parts.each_ref().map(|part| left(part, 0)), [4, 1]);
    assert_eq!(ask(&mut parts, commit(2, 7), 10).map(|a| a.returned), Ok(Some(3)));
    assert_eq!(parts.each_ref().map(|part| left(part, 10)), [7, 4]);
    assert_eq!(ask(&mut parts, commit(2, 7), 10), Err(Refusal::UnknownHolder), "settled");
}

#[test]
fn a_commit_returns_what_the_least_generous_of_them_gave_back() {
    // The second one's window is over: what was left of it is nobody's.
    let mut parts = [hard(window(9, 100)), hard(window(6, 10))];
    assert!(allows(&mut parts, reserve(5, 60, 7), 0));
    assert_eq!(ask(&mut parts, commit(2, 7), 10).map(|a| a.returned), Ok(Some(0)));
    assert_eq!(parts.each_ref().map(|part| left(part, 10)), [7, 6]);
}

#[test]
fn a_commit_that_one_of_them_does_not_know_changes_none() {
    let mut parts = [hard(window(9, 100)), hard(window(6, 100))];
    assert!(allows(&mut parts[..1], reserve(5, 60, 7), 0));
    let before = parts.clone();
    assert_eq!(ask(&mut parts, commit(2, 7), 10), Err(Refusal::UnknownHolder));
    for (before, after) in before.iter().zip(&parts) {
        assert_eq!(before.account, after.account);
    }
    assert_eq!(ask(&mut parts[..1], commit(2, 7), 10).map(|a| a.returned), Ok(Some(3)));
}

#[test]
fn a_commit_is_unknown_where_one_of_them_has_forgotten_it() {
    let day = support::DAY;
    let mut parts = [hard(window(9, 100)), hard(window(6, 100))];
    assert!(allows(&mut parts, reserve(5, 60, 7), 0));
    // The first was reset while it was pending, so that it forgets earlier.
    assert!(allows(&mut parts[..1], Op::Reset, 30));
    assert_eq!(ask(&mut parts, commit(2, 7), day + 40), Err(Refusal::UnknownHolder));
    assert_eq!(parts.each_ref().map(|part| left(part, day + 40)), [9, 6], "nobody is charged");
}

#[test]
fn a_booking_is_not_committed() {
    let mut parts = [hard(window(9, 100)), hard(window(6, 100))];
    assert!(allows(&mut parts, acquire_as(5, 0, 7), 0));
    assert_eq!(ask(&mut parts, commit(2, 7), 0), Err(Refusal::NotReserved));
    assert!(ask(&mut parts[1..], cancel(7), 0).is_ok());
    assert_eq!(ask(&mut parts, commit(2, 7), 0), Err(Refusal::NotReserved), "by one of them");
    assert_eq!(ask(&mut parts[1..], commit(2, 7), 0), Err(Refusal::UnknownHolder));
}

#[test]
fn an_id_in_use_by_one_of_them_is_in_use() {
    let mut parts = [hard(window(9, 100)), hard(window(6, 100))];
    assert!(allows(&mut parts[1..], reserve(1, 60, 7), 0));
    assert_eq!(ask(&mut parts, reserve(1, 60, 7), 0), Err(Refusal::HolderInUse));
    assert_eq!(parts.each_ref().map(|part| left(part, 0)), [9, 5]);
}

#[test]
fn a_cancel_gives_back_wherever_it_is_known() {
    let mut parts = [hard(window(9, 100)), hard(window(6, 100)), hard(window(7, 100))];
    assert!(allows(&mut parts[..2], reserve(5, 60, 7), 0));
    let answer = ask(&mut parts, cancel(7), 10).expect("two of them know it");
    assert_eq!(answer.returned, Some(5));
    assert_eq!(parts.each_ref().map(|part| left(part, 10)), [9, 6, 7]);
    assert_eq!(ask(&mut parts, cancel(7), 10), Err(Refusal::UnknownHolder));
}

#[test]
fn a_cancel_returns_what_the_least_generous_of_them_gave_back() {
    let mut parts = [hard(window(9, 100)), hard(window(6, 10))];
    assert!(allows(&mut parts, reserve(5, 60, 7), 0));
    assert_eq!(ask(&mut parts, cancel(7), 10).map(|a| a.returned), Ok(Some(0)));
    assert_eq!(parts.each_ref().map(|part| left(part, 10)), [9, 6]);
}

#[test]
fn a_cancel_frees_the_slot_of_one_and_the_booking_of_another() {
    let mut parts = [hard(slots(3, 1_000)), hard(bucket(1, 10, 1))];
    assert!(allows(&mut parts, acquire_as(1, 0, 1), 0));
    assert!(allows(&mut parts, acquire_as(1, 50, 2), 0));
    assert_eq!(parts.each_ref().map(|part| left(part, 0)), [1, -1]);
    assert_eq!(ask(&mut parts, cancel(2), 5).map(|a| a.returned), Ok(Some(1)));
    assert_eq!(parts.each_ref().map(|part| left(part, 5)), [2, 0]);
    // The turn of the first has come: its slot is freed, its token is used.
    assert_eq!(ask(&mut parts, cancel(1), 5).map(|a| a.returned), Ok(Some(0)));
    assert_eq!(parts.each_ref().map(|part| left(part, 5)), [3, 0]);
}

#[test]
fn an_identity_with_nothing_but_slots_remembers_no_booking() {
    let mut parts = [hard(slots(3, 1_000)), hard(bucket(1, 10, 1))];
    assert!(allows(&mut parts, acquire_as(1, 0, 1), 0));
    let [slots, bucket] = parts.map(|part| part.account.into_states().is_ok());
    assert!(slots && !bucket);
}

#[test]
fn a_slot_needs_an_id_whoever_has_it() {
    let mut parts = [hard(bucket(1, 10, 1)), hard(slots(3, 1_000))];
    assert_eq!(ask(&mut parts, hit(1), 0), Err(Refusal::NeedsHolder));
    assert!(allows(&mut parts, hit_as(1, 4), 0));
}

#[test]
fn who_agreed_says_so_and_is_not_charged_when_another_denies() {
    let mut parts = [hard(window(5, 100)), hard(window(1, 100)), hard(tally(5, 100))];
    let mut each = Vec::new();
    let mut ask = |cost| {
        let answer = ask_each(&mut parts, hit(cost), Moment::at(at(7)), &mut each);
        let told: Vec<_> =
            each.iter().map(|decision| (decision.is_allowed(), decision.remaining)).collect();
        (answer.expect("no limit here refuses it").verdict.decided_by, told)
    };
    let left = |n: i64| (true, Some(n));
    assert_eq!(ask(1), (Some(1), vec![left(4), left(0), left(4)]));
    assert_eq!(ask(1), (Some(1), vec![left(4), (false, Some(0)), left(3)]));
    assert_eq!(ask(0), (Some(1), vec![left(4), left(0), left(3)]));
}

#[test]
fn the_limit_of_a_part_is_named_by_its_place_in_that_part() {
    let mut parts = [
        World::of(vec![step(bucket(1, 10, 9), Mode::Hard), step(bucket(1, 10, 8), Mode::Hard)]),
        World::of(vec![step(bucket(1, 10, 2), Mode::Hard), step(bucket(1, 10, 7), Mode::Hard)]),
    ];
    let mut each = Vec::new();
    let joint = ask_each(&mut parts, hit(2), Moment::at(at(100)), &mut each);
    assert_eq!(joint.map(|answer| answer.verdict.decided_by), Ok(Some(2)));
    assert_eq!(
        each.iter().map(|decision| decision.decided_by).collect::<Vec<_>>(),
        [Some(1), Some(0)]
    );
}

#[test]
fn a_part_asked_for_more_than_its_cycle_holds_waits_for_its_own_limits_only() {
    let claim_of = acquire_as(3, 5, 7);
    let mut parts = [hard(cycle(2, 10)), hard(bucket(1, 100, 3))];
    ask(&mut parts[1..], hit(3), 0).expect("no limit here refuses it");
    let mut each = Vec::new();
    let joint = ask_each(&mut parts, claim_of, Moment::at(at(0)), &mut each).expect("nor this");
    let own = parts
        .each_ref()
        .map(|part| part.clone().answer(claim_of, 0).map(|decision| decision.verdict));
    assert_eq!(
        own.map(|decision| decision.map(|decision| decision.outcome)),
        [Ok(each[0].outcome), Ok(each[1].outcome)]
    );
    let longest = each.iter().filter_map(Verdict::retry_after).max();
    assert!(joint.verdict.retry_after() >= longest && longest > Some(us(0)));
}

#[test]
fn what_was_said_before_is_forgotten() {
    let mut parts = [hard(window(5, 100)), hard(window(1, 100))];
    let mut each = Vec::new();
    ask_each(&mut parts, hit(1), Moment::at(at(0)), &mut each).expect("no limit here refuses it");
    assert_eq!(each.len(), 2);
    ask_each(&mut parts[..1], Op::Drain, Moment::at(at(0)), &mut each).expect("nor this");
    assert_eq!((each.len(), each[0].remaining), (1, Some(0)));
    let refused = ask_each(&mut parts, cancel(7), Moment::at(at(0)), &mut each);
    assert_eq!((refused, each.len()), (Err(Refusal::UnknownHolder), 0));
}
