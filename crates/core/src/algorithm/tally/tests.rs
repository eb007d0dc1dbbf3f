use super::*;

const MINUTE: u64 = 60_000_000;

fn tally(limit: u64, period: u64) -> Tally {
    Tally::new(limit, Span::from_micros(period)).unwrap()
}

fn at(us: u64) -> Timestamp {
    Timestamp::from_micros(us)
}

fn counted(start: u64, count: u64) -> TallyState {
    TallyState { start: at(start), count }
}

#[test]
fn a_cost_passes_if_the_count_is_within_the_limit_with_it() {
    let ten = tally(10, MINUTE);
    let now = at(MINUTE + 5);
    let slot = |count, cost| ten.slot(&counted(MINUTE, count), cost, now);
    assert_eq!(slot(8, 2), Slot::At(now));
    assert_eq!(slot(8, 3), Slot::At(at(2 * MINUTE)));
    assert_eq!(slot(0, 11), Slot::Never { max_cost: 10 });
    assert_eq!(slot(10, 0), Slot::At(now), "at the limit nothing still passes");
    assert_eq!(slot(11, 0), Slot::At(at(2 * MINUTE)));
}

#[test]
fn a_limit_of_nothing_lets_only_nothing_pass() {
    let none = tally(0, MINUTE);
    assert_eq!(none.slot(&counted(0, 0), 0, at(1)), Slot::At(at(1)));
    assert_eq!(none.slot(&counted(0, 0), 1, at(1)), Slot::Never { max_cost: 0 });
    assert_eq!(none.slot(&counted(0, 1), 0, at(1)), Slot::At(at(MINUTE)));
}

#[test]
fn the_count_is_cut_at_the_exact_bound_and_the_limit_still_holds() {
    let highest = tally(EXACT_MAX, MINUTE);
    let mut state = counted(0, 0);
    highest.spend(&mut state, EXACT_MAX, at(0), at(0));
    highest.spend(&mut state, u64::MAX, at(0), at(0));
    assert_eq!(state.count, EXACT_MAX);
    assert_eq!(highest.slot(&state, 1, at(0)), Slot::At(at(MINUTE)));
}

#[test]
fn what_lies_beyond_the_limit_is_no_debt_and_ends_with_the_window() {
    let ten = tally(10, MINUTE);
    let mut state = counted(0, 25);
    assert_eq!(ten.remaining(&state, at(1)), 0);
    assert_eq!(ten.debt_paid_at(&state, at(1)), at(1));
    assert_eq!(ten.full_at(&state, at(1)), at(MINUTE));
    ten.advance(&mut state, at(MINUTE - 1));
    assert_eq!(state, counted(0, 25));
    ten.advance(&mut state, at(MINUTE));
    assert_eq!(state, counted(MINUTE, 0));
}

#[test]
fn what_is_given_back_is_at_most_what_was_counted() {
    let ten = tally(10, MINUTE);
    let mut state = counted(0, 12);
    ten.refund(&mut state, 3, at(1));
    assert_eq!(state.count, 9);
    ten.refund(&mut state, u64::MAX, at(1));
    assert_eq!((state.count, ten.expires_at(&state)), (0, Timestamp::EPOCH));
}

#[test]
fn a_clock_that_steps_back_is_waited_out_and_one_that_was_set_is_followed() {
    let ten = tally(10, MINUTE);
    let mut state = counted(3 * MINUTE, 12);
    ten.advance(&mut state, at(2 * MINUTE));
    assert_eq!(state, counted(3 * MINUTE, 12), "within a period");
    assert_eq!(ten.slot(&state, 1, at(2 * MINUTE)), Slot::At(at(4 * MINUTE)));
    ten.advance(&mut state, at(2 * MINUTE - 1));
    assert_eq!(state, counted(MINUTE, 12), "moved to the new time, with its count");
}

#[test]
fn a_changed_limit_keeps_what_it_is_told_to() {
    let (old, new) = (tally(10, MINUTE), tally(20, MINUTE));
    let carried = |count, carry| new.carry(&old, &counted(0, count), carry, at(7)).count;
    assert_eq!(carried(8, CarryOver::Used), 8);
    assert_eq!(carried(8, CarryOver::Remaining), 18);
    assert_eq!(carried(13, CarryOver::Remaining), 23, "beyond the limit stays beyond it");
    assert_eq!(carried(8, CarryOver::Proportion), 16);
    assert_eq!(carried(8, CarryOver::Nothing), 0);
    let less = |count, carry| old.carry(&new, &counted(0, count), carry, at(7)).count;
    assert_eq!(less(5, CarryOver::Remaining), 0, "no more is left than there is");
    assert_eq!(less(5, CarryOver::Proportion), 3, "rounded against the client");
    let none = tally(0, MINUTE);
    assert_eq!(old.carry(&none, &counted(0, 3), CarryOver::Proportion, at(7)).count, 10);
}

#[test]
fn a_changed_unit_keeps_the_count_in_the_window_of_now() {
    let (minute, hour) = (tally(10, MINUTE), tally(10, 60 * MINUTE));
    let now = at(61 * MINUTE + 5);
    let state = counted(61 * MINUTE, 4);
    assert_eq!(hour.carry(&minute, &state, CarryOver::Used, now), counted(60 * MINUTE, 4));
    let state = counted(60 * MINUTE, 4);
    assert_eq!(minute.carry(&hour, &state, CarryOver::Used, now), counted(61 * MINUTE, 4));
}
