//! States, accounts, limits and modes as bytes: what was written is read, and whatever else is read does no
//! harm.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::{Account, HOLDS_MAX, Moment};
use sluicegate_core::algorithm::concurrency::SLOTS_MAX;
use sluicegate_core::algorithm::periodic::Edges;
use sluicegate_core::algorithm::sliding_log::LOG_ENTRIES_MAX;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::{EnforcedLimit, GateLevels, Mode};
use sluicegate_core::op::Refusal;
use support::anything::{self, number};
use support::limits::{bucket, calendar, log, slots, small};
use support::plans::{self, Deed, any_limit, any_slots};
use support::{DAY, EXACT_MAX, HOUR, World, at, cancel, cases, hit, hit_as, reserve, step, us};

fn bytes_of(account: &Account) -> Vec<u8> {
    let mut bytes = Vec::new();
    account.write(&mut bytes);
    bytes
}

/// The account in these bytes, all of them.
fn read_whole(mut bytes: &[u8]) -> Option<Account> {
    Account::read(&mut bytes).filter(|_| bytes.is_empty())
}

/// Numbers as they are written: seven bits a byte, lowest first.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let mut rest = *number;
        while rest > 0x7f {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// Any number, most often one that is held exactly.
fn field() -> impl Strategy<Value = u64> {
    let exact = number().prop_map(|number| number % (EXACT_MAX + 1));
    prop_oneof![8 => 0u64..7, 8 => exact, 1 => number()]
}

fn anything_asked() -> impl Strategy<Value = Vec<Deed>> {
    let deed = (anything::op(), number(), any::<bool>()).prop_map(|(op, now, spare_capacity)| {
        Deed { op, moment: Moment { now: at(now), spare_capacity } }
    });
    prop::collection::vec(deed, 1..25)
}

/// Uses an account in every way there is.
fn used(mut account: Account, plan: &[EnforcedLimit], other: &[EnforcedLimit], deeds: &[Deed]) {
    let _ = (account.expires_at(plan), account.is_new());
    for deed in deeds {
        if let Ok(answer) = account.apply(plan, deed.op, deed.moment) {
            let left = answer.verdict.remaining;
            assert!(left.is_none_or(|left| left.unsigned_abs() <= EXACT_MAX), "{answer:?}");
        }
    }
    let from: Vec<_> = (0..other.len()).map(Some).collect();
    account.change(plan, other, &from, CarryOver::Used, deeds[0].moment.now);
    for deed in deeds {
        let _ = account.apply(other, deed.op, deed.moment);
    }
    let again = read_whole(&bytes_of(&account));
    assert_eq!(again, Some(account), "written by whoever used it");
}

/// Bytes that may once have been an account, and what to do with whatever they are now.
fn read_and_used(bytes: &[u8], plan: &[EnforcedLimit], other: &[EnforcedLimit], deeds: &[Deed]) {
    let mut rest = bytes;
    if let Some(account) = Account::read(&mut rest) {
        assert_eq!(read_whole(&bytes_of(&account)).as_ref(), Some(&account));
        used(account, plan, other, deeds);
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn an_account_is_read_as_it_was_written(plan in plans::plan(), deeds in plans::deeds(40)) {
        let mut account = Account::default();
        for deed in deeds {
            let _ = account.apply(&plan, deed.op, deed.moment);
            let bytes = bytes_of(&account);
            let read = read_whole(&bytes);
            prop_assert_eq!(read.as_ref(), Some(&account));
            prop_assert_eq!(read.map(|read| bytes_of(&read)), Some(bytes));
        }
    }

    #[test]
    fn an_account_is_read_as_it_was_written_whatever_was_asked(
        plan in anything::plan(), next in anything::plan(), deeds in anything_asked(),
    ) {
        let mut account = Account::default();
        for deed in &deeds {
            let _ = account.apply(&plan, deed.op, deed.moment);
            prop_assert_eq!(read_whole(&bytes_of(&account)), Some(account.clone()));
        }
        let from: Vec<_> = (0..next.len()).map(Some).collect();
        account.change(&plan, &next, &from, CarryOver::Used, deeds[0].moment.now);
        for deed in &deeds {
            let _ = account.apply(&next, deed.op, deed.moment);
            prop_assert_eq!(read_whole(&bytes_of(&account)), Some(account.clone()));
        }
    }

    #[test]
    fn states_are_read_one_after_the_other(plan in plans::plan(), deeds in plans::deeds(40)) {
        let mut account = Account::default();
        for deed in deeds {
            let _ = account.apply(&plan, deed.op, deed.moment);
        }
        let states: Vec<State> =
            (0..plan.len()).map(|index| account.state(index).cloned().unwrap_or_default()).collect();
        let mut bytes = Vec::new();
        for state in &states {
            state.write(&mut bytes);
        }
        let mut rest = &bytes[..];
        for state in states {
            prop_assert_eq!(State::read(&mut rest), Some(state));
        }
        prop_assert_eq!(rest, &[][..]);
    }

    #[test]
    fn a_limit_is_read_as_it_was_written(
        limit in prop_oneof![
            small().prop_map(Some),
            any_limit().prop_map(Some),
            any_slots().prop_map(Some),
            anything::limit(),
        ],
        behind in any::<u8>(),
    ) {
        if let Some(limit) = limit {
            let mut bytes = Vec::new();
            limit.write(&mut bytes);
            bytes.push(behind);
            let mut rest = &bytes[..];
            prop_assert_eq!(Limit::read(&mut rest), Some(limit));
            prop_assert_eq!(rest, &[behind][..]);
        }
    }

    #[test]
    fn a_mode_is_read_as_it_was_written_if_any_limit_could_have_it(mode in anything::mode()) {
        let mut bytes = Vec::new();
        mode.write(&mut bytes);
        let mut rest = &bytes[..];
        let read = Mode::read(&mut rest);
        if EnforcedLimit::new(bucket(1, 1, 1), mode).is_ok() {
            prop_assert_eq!((read, rest), (Some(mode), &[][..]));
        } else {
            prop_assert_eq!(read, None);
        }
    }

    #[test]
    fn a_part_of_what_was_written_is_nothing(plan in plans::plan(), deeds in plans::deeds(20)) {
        let mut account = Account::default();
        for deed in deeds {
            let _ = account.apply(&plan, deed.op, deed.moment);
        }
        let bytes = bytes_of(&account);
        for end in 0..bytes.len() {
            prop_assert_eq!(Account::read(&mut &bytes[..end]), None);
        }
        for step in plan {
            let mut bytes = Vec::new();
            step.limit().write(&mut bytes);
            for end in 0..bytes.len() {
                prop_assert_eq!(Limit::read(&mut &bytes[..end]), None);
            }
        }
    }

    #[test]
    fn an_account_that_was_tampered_with_does_no_harm(
        plan in plans::plan(), other in plans::plan(), deeds in plans::deeds(20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut account = Account::default();
        for deed in &deeds {
            let _ = account.apply(&plan, deed.op, deed.moment);
        }
        let mut bytes = bytes_of(&account);
        for (index, byte) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= byte;
            read_and_used(&bytes, &plan, &other, &deeds);
        }
    }

    #[test]
    fn an_account_of_any_limits_that_was_tampered_with_does_no_harm(
        plan in anything::plan(), other in anything::plan(), deeds in anything_asked(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut account = Account::default();
        for deed in &deeds {
            let _ = account.apply(&plan, deed.op, deed.moment);
        }
        let mut bytes = bytes_of(&account);
        for (index, byte) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= byte;
            read_and_used(&bytes, &plan, &other, &deeds);
        }
    }
}

proptest! {
    #![proptest_config(cases(2_500))]

    #[test]
    fn any_bytes_are_read_or_not(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = (Account::read(&mut &bytes[..]), State::read(&mut &bytes[..]));
        let _ = Mode::read(&mut &bytes[..]);
        if let Some(limit) = Limit::read(&mut &bytes[..]) {
            let mut again = Vec::new();
            limit.write(&mut again);
            prop_assert_eq!(Limit::read(&mut &again[..]), Some(limit));
        }
    }

    #[test]
    fn a_state_of_any_numbers_under_its_limit_does_no_harm(
        limit in anything::limit(), mode in anything::mode(), now in number(),
        numbers_of in prop::collection::vec(field(), 12), deeds in anything_asked(),
    ) {
        let Some(step) = limit.and_then(|limit| EnforcedLimit::new(limit, mode).ok()) else { return Ok(()) };
        let (mut fresh, mut bytes) = (State::New, Vec::new());
        step.limit().open(&mut fresh, at(now));
        fresh.write(&mut bytes);
        // A state of the kind that the limit keeps, and of any numbers.
        bytes.truncate(1);
        bytes.extend(numbers(&numbers_of));
        if let Some(state) = State::read(&mut &bytes[..]) {
            used(Account::from_states([(state.clone(), state)]), &[step], &[step], &deeds);
        }
    }

    #[test]
    fn what_is_pending_of_any_numbers_does_no_harm(
        traces in prop::collection::vec((0u64..6, prop::collection::vec(number(), 6)), 1..3),
        kind in 0u64..3, hold in prop::collection::vec(number(), 3), now in number(),
        limit in anything::limit(), deeds in anything_asked(), op in anything::op(),
    ) {
        let Some(step) = limit.and_then(|limit| EnforcedLimit::new(limit, Mode::Hard).ok()) else {
            return Ok(());
        };
        let mut account = Account::default();
        let _ = account.apply(&[step], op, Moment::at(at(now)));
        let Ok(states) = account.into_states() else { return Ok(()) };
        // A real state, if any, and one hold with a receipt of one ticket for it.
        let mut bytes = vec![states.len() as u8];
        for (plain, boost) in states {
            plain.write(&mut bytes);
            boost.write(&mut bytes);
        }
        bytes.extend(numbers(&[1, deeds.len() as u64 % 5, kind]));
        let bound = |number: u64| number % (EXACT_MAX + 1);
        let times = [2, 2, 1][kind as usize];
        bytes.extend(numbers(&hold[..times].iter().map(|n| bound(*n)).collect::<Vec<_>>()));
        bytes.extend(numbers(&[hold[2], traces.len() as u64]));
        for (trace, fields) in &traces {
            bytes.extend(numbers(&[1, fields[0], bound(fields[1]), *trace]));
            let width = [0, 2, 4, 2, 1, 6][*trace as usize];
            bytes.extend(numbers(&fields[..width].iter().map(|n| bound(*n)).collect::<Vec<_>>()));
        }
        prop_assert!(read_whole(&bytes).is_some(), "{:?}", bytes);
        read_and_used(&bytes, &[step], &[step], &deeds);
    }
}

#[test]
fn a_small_account_takes_few_bytes() {
    let now = 1_700_000_000_000_000;
    let mut world = World::hard(bucket(10, 1_000_000, 50));
    assert_eq!(bytes_of(&world.account).len(), 2);
    world.ask(hit(3), now);
    assert_eq!(bytes_of(&world.account).len(), 16);
    let mut log = World::hard(Limit::SlidingLog(log(&[(500, HOUR)])));
    for hits in 0..500 {
        log.ask(hit(1), now + hits * 7_000_000);
    }
    assert!(bytes_of(&log.account).len() < 500 * 4 + 40, "about four bytes a hit");
}

#[test]
fn equal_logs_are_written_alike_however_they_came_about() {
    let limit = Limit::SlidingLog(log(&[(5, 100)]));
    let (mut long, mut short) = (World::hard(limit), World::hard(limit));
    for now in [1_000, 1_010, 1_020, 1_090, 1_095] {
        long.ask(hit(1), now);
    }
    for now in [1_090, 1_095] {
        short.ask(hit(1), now);
    }
    for world in [&mut long, &mut short] {
        world.ask(hit(1), 1_125);
    }
    assert_eq!(long.account, short.account);
    assert_eq!(bytes_of(&long.account), bytes_of(&short.account));
}

#[test]
fn a_calendar_is_read_with_all_its_edges() {
    let days = [0, 24, 47, 71, 95, 120, 144, 168].map(|hour| at(hour * HOUR));
    for count in 4..=8 {
        let edges = Edges::new(&days[..count], us(25 * HOUR)).expect("they ascend");
        let rate = support::rate(9, DAY);
        let align = sluicegate_core::algorithm::fixed_window::Align::Calendar(edges);
        let window = sluicegate_core::algorithm::fixed_window::FixedWindow::new(rate, align);
        let mut bytes = Vec::new();
        Limit::FixedWindow(window).write(&mut bytes);
        assert_eq!(Limit::read(&mut &bytes[..]), Some(Limit::FixedWindow(window)));
    }
    let mut bytes = Vec::new();
    calendar(3, [0, 10, 20, 30], 10).write(&mut bytes);
    let last = bytes.len() - 1;
    bytes[last] = 11;
    assert_eq!(Limit::read(&mut &bytes[..]), None, "further apart than the longest");
    bytes[last] = 0;
    assert_eq!(Limit::read(&mut &bytes[..]), None, "not ascending");
}

#[test]
fn a_limit_that_no_constructor_lets_pass_is_not_read() {
    let refused: [&[u64]; 10] = [
        &[2, 0, 1_000, 5, 5, 0, 1],            // a rate of nothing
        &[2, 1, 1_000, 5, 6, 0, 1],            // more at first than it holds
        &[2, 1, 1_000, 5, 5, 3, 1],            // no such refill
        &[2, 1, 1_000, 5, 5, 0, 0],            // remembered for no time
        &[3, 1, EXACT_MAX, 5],                 // a period that is too long
        &[5, 0, 0, 0],                         // a log without a window
        &[5, 1, LOG_ENTRIES_MAX + 1, 9, 0, 0], // a log that is too long
        &[5, 1, LOG_ENTRIES_MAX, 9, 1, 0],     // too long to count denials
        &[8, 1, 1_000, 5, 999],                // a cold factor below one
        &[10, SLOTS_MAX + 1, 9],               // too many slots
    ];
    for fields in refused {
        assert_eq!(Limit::read(&mut &numbers(fields)[..]), None, "{fields:?}");
    }
    assert!(Limit::read(&mut &numbers(&[2, 1, 1_000, 5, 5, 0, 1])[..]).is_some());
    assert!(Mode::read(&mut &numbers(&[2, 2_000, 800, 700])[..]).is_none(), "never open");
}

#[test]
fn what_is_announced_and_not_there_gets_no_memory() {
    let many = 1 << 40;
    for fields in [&[many][..], &[0, many], &[1, 4, 0, many, 0, 0], &[1, 6, 0, many, 0, 0]] {
        assert_eq!(Account::read(&mut &numbers(fields)[..]), None);
    }
    // Also not if it is there, but more than there can be.
    let mut holds = numbers(&[0, HOLDS_MAX as u64 + 1]);
    for id in 0..=HOLDS_MAX as u64 {
        holds.extend(numbers(&[id, 0, 1, 1, 0, 0]));
    }
    assert_eq!(Account::read(&mut &holds[..]), None);
}

#[test]
fn nobody_holds_twice_what_is_held_once() {
    let mut world = World::of(vec![step(bucket(1, 10, 5), Mode::Hard)]);
    world.ask(reserve(1, 60, 7), 1_000);
    world.ask(reserve(1, 60, 8), 1_000);
    let bytes = bytes_of(&world.account);
    let twice: Vec<u8> = bytes.iter().map(|byte| if *byte == 8 { 7 } else { *byte }).collect();
    assert!(read_whole(&bytes).is_some() && bytes != twice);
    assert_eq!(read_whole(&twice), None);

    let mut world = World::hard(slots(5, 1_000));
    world.ask(hit_as(1, 7), 1_000);
    world.ask(hit_as(1, 8), 1_000);
    let bytes = bytes_of(&world.account);
    let twice: Vec<u8> = bytes.iter().map(|byte| if *byte == 8 { 7 } else { *byte }).collect();
    assert!(read_whole(&bytes).is_some() && bytes != twice);
    assert_eq!(read_whole(&twice), None);
}

#[test]
fn an_account_as_full_as_it_gets_is_read() {
    let mut holds = numbers(&[0, HOLDS_MAX as u64]);
    for id in 0..HOLDS_MAX as u64 {
        holds.extend(numbers(&[id, 1, DAY, DAY, 1, 0]));
    }
    let account = read_whole(&holds).expect("no more than there can be");
    assert_eq!(bytes_of(&account), holds);
    let mut world = World { account, ..World::hard(bucket(1, 1, 10)) };
    let one_more = world.answer(reserve(1, DAY, 1 << 40), 1_000);
    assert_eq!(one_more, Err(Refusal::TooManyHolds { max: HOLDS_MAX }));
    assert!(world.answer(cancel(9_999), 1_000).is_ok());

    // Each of weight 1, a microsecond after the one before.
    let mut state = numbers(&[4, LOG_ENTRIES_MAX, LOG_ENTRIES_MAX]);
    state.extend(numbers(&[1 << 2; LOG_ENTRIES_MAX as usize]));
    let Some(State::Log(log)) = State::read(&mut &state[..]) else { panic!("not a log") };
    assert_eq!((log.entries.len() as u64, log.entries.sum()), (LOG_ENTRIES_MAX, LOG_ENTRIES_MAX));
    assert_eq!(log.entries.last(), Some(at(LOG_ENTRIES_MAX)));
}

#[test]
fn gates_of_any_levels_are_read() {
    for (below, above) in [(0, 0), (700, 850), (0, u64::MAX)] {
        let gate = GateLevels::new(below, above).expect("in order");
        let mode = Mode::Elastic { up_to: 2_000, gate };
        let mut bytes = Vec::new();
        mode.write(&mut bytes);
        assert_eq!(Mode::read(&mut &bytes[..]), Some(mode));
    }
}
