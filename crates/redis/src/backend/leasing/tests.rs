use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

use super::quota_lease::{Grant, LeaseCall, LeaseDecision, LimitView, QuotaLease, Serials, TTL};
use sluicegate::backend::UNCOUNTED;

const MS: u64 = 1_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000 + ms * MS)
}

fn granted(granted: u64) -> Grant {
    Grant { granted, ttl: TTL, is_extended: true, ends_with_window: false }
}

/// A lease that was call for at a rate, with so much bought at 0 ms.
fn holding(unspent: u64, per_second: u64, serials: &Serials) -> QuotaLease {
    let mut lease = QuotaLease::new(per_second, at(0));
    let call = lease.acquire(serials, at(0)).expect("nothing is held");
    assert_eq!(lease.complete_call(call.serial), Some(call));
    lease.apply_grant(call, granted(unspent), at(0), at(0));
    let verdict = Verdict {
        remaining: Some(1_000),
        reset_after: Span::from_secs(1),
        decided_by: Some(0),
        ..UNCOUNTED
    };
    lease.set_view(LimitView { verdict, slope: 10, at: at(0), held: unspent });
    lease
}

fn is_covered(decision: LeaseDecision) -> bool {
    matches!(decision, LeaseDecision::Covered(_))
}

#[test]
fn what_is_held_is_spent_and_no_more() {
    let serials = Serials::default();
    let mut lease = holding(3, 0, &serials);
    assert!(is_covered(lease.hit(2, at(1))));
    assert_eq!(lease.hit(2, at(1)), LeaseDecision::Uncovered);
    assert!(is_covered(lease.try_hit(1, at(1))));
    assert_eq!(lease.hit(1, at(1)), LeaseDecision::Uncovered);
    lease.undo(1, at(1));
    assert!(is_covered(lease.hit(1, at(1))), "what did not happen is held again");
    lease.undo(1, at(1));
    assert_eq!(lease.hit(1, at(1)), LeaseDecision::Uncovered, "nor is anything that happened");
}

#[test]
fn what_may_yet_not_happen_counts_as_held() {
    let serials = Serials::default();
    let mut lease = holding(10, 100, &serials);
    assert!(is_covered(lease.try_hit(4, at(1))));
    assert!(is_covered(lease.try_hit(4, at(1))));
    lease.commit(4);
    let call = lease.acquire(&serials, at(1)).expect("a quarter is left");
    assert_eq!(call.hold, 6, "two that are left, and four that may come back");
    lease.undo(4, at(2));
    assert_eq!(lease.unspent(), 6);
}

#[test]
fn nothing_is_spent_when_the_store_may_think_it_has_run_out() {
    let serials = Serials::default();
    let mut lease = QuotaLease::new(0, at(0));
    let call = lease.acquire(&serials, at(0)).unwrap();
    lease.complete_call(call.serial);
    // Sent at 0, received at 300: the store may have read its clock as early as 0.
    let bought = Grant {
        granted: 5,
        ttl: Span::from_millis(1_000),
        is_extended: true,
        ends_with_window: true,
    };
    lease.apply_grant(call, bought, at(0), at(300));
    assert!(is_covered(lease.try_hit(1, at(998))));
    assert_eq!(
        lease.hit(1, at(999)),
        LeaseDecision::Uncovered,
        "a thousandth for clocks of another pace"
    );
    lease.undo(1, at(999));
    assert_eq!(lease.unspent(), 0, "nor is anything put back then");
    assert_eq!(lease.take_expired(), 4);
}

#[test]
fn an_answer_that_comes_too_late_brings_nothing() {
    let serials = Serials::default();
    let mut lease = QuotaLease::new(0, at(0));
    let call = lease.acquire(&serials, at(0)).unwrap();
    lease.complete_call(call.serial);
    lease.apply_grant(call, granted(5), at(0), at(2_500));
    assert_eq!((lease.unspent(), lease.take_expired()), (0, 5));
}

#[test]
fn what_was_held_before_its_cell_ran_out_is_gone() {
    let serials = Serials::default();
    let mut lease = holding(10, 100, &serials);
    for _ in 0..7 {
        lease.hit(1, at(1));
    }
    assert_eq!(lease.acquire(&serials, at(2)), None, "there is enough");
    lease.hit(1, at(1));
    let call = lease.acquire(&serials, at(2)).expect("a quarter is left");
    assert_eq!((call.give, call.hold), (0, 2));
    lease.complete_call(call.serial);
    lease.apply_grant(call, Grant { is_extended: false, ..granted(7) }, at(2), at(3));
    assert_eq!((lease.unspent(), lease.take_expired()), (7, 2));
}

#[test]
fn as_much_is_bought_as_lasts_half_a_second_but_a_newcomer_begins_small() {
    let serials = Serials::default();
    let mut lease = QuotaLease::new(10_000, at(0));
    let mut wanted = Vec::new();
    let mut now = 0;
    while wanted.len() < 6 {
        let call = lease.acquire(&serials, at(now)).expect("nothing is left");
        wanted.push(call.want);
        lease.complete_call(call.serial);
        lease.apply_grant(call, granted(call.want), at(now), at(now));
        let held = lease.unspent();
        lease.set_view(LimitView { verdict: UNCOUNTED, slope: 0, at: at(now), held });
        // 10 each millisecond.
        while lease.unspent() >= 10 {
            now += 1;
            assert!(is_covered(lease.hit(10, at(now))));
        }
        lease.hit(lease.unspent(), at(now));
    }
    assert_eq!(wanted[..5], [8, 32, 128, 512, 2_048]);
    assert!((4_900..=5_100).contains(&wanted[5]), "{wanted:?}");
}

#[test]
fn one_call_at_a_time_and_an_old_answer_is_not_taken_for_it() {
    let serials = Serials::default();
    let mut lease = holding(4, 100, &serials);
    lease.hit(4, at(1));
    let first = lease.acquire(&serials, at(1)).unwrap();
    assert_eq!(lease.acquire(&serials, at(1)), None);
    assert_eq!(lease.complete_call(first.serial - 1), None);
    assert_eq!(lease.complete_call(first.serial), Some(first));
    assert_eq!(lease.complete_call(first.serial), None, "nor the same twice");
}

#[test]
fn a_call_that_failed_is_made_again_later_and_later() {
    let serials = Serials::default();
    let mut lease = QuotaLease::new(100, at(0));
    let mut now = 0;
    let mut attempts = Vec::new();
    while attempts.len() < 7 {
        if let Some(call) = lease.acquire(&serials, at(now)) {
            attempts.push(now);
            lease.complete_call(call.serial);
            lease.call_failed(call, at(now));
        }
        now += 1;
    }
    assert_eq!(attempts, [0, 50, 150, 350, 750, 1_550, 2_550]);
}

#[test]
fn a_call_without_a_reply_is_retried_and_what_it_bought_is_claimed() {
    let serials = Serials::default();
    let mut lease = QuotaLease::new(100, at(0));
    let call = lease.acquire(&serials, at(0)).unwrap();
    lease.mark_unconfirmed(call.serial, at(100));
    assert_eq!(lease.acquire(&serials, at(110)), None);
    assert_eq!(lease.renew_or_release(&serials, at(150)), Some(call), "the very same call");
    assert_eq!(lease.acquire(&serials, at(151)), None, "one at a time");
    assert_eq!(lease.complete_call(call.serial), Some(call));
    lease.apply_grant(call, granted(8), at(150), at(152));
    assert_eq!((lease.unspent(), lease.take_expired()), (8, 0));
}

#[test]
fn what_could_not_be_given_back_is_still_held() {
    let serials = Serials::default();
    let mut lease = holding(10, 100, &serials);
    let given = lease.renew_or_release(&serials, at(700)).expect("nobody asks");
    assert_eq!((given.give, lease.unspent()), (10, 0));
    lease.complete_call(given.serial);
    lease.call_failed(given, at(701));
    assert_eq!(lease.unspent(), 10);
}

#[test]
fn where_there_is_little_to_be_had_it_is_not_asked_for_all_the_time() {
    let serials = Serials::default();
    let mut lease = QuotaLease::new(1_000, at(0));
    let call = lease.acquire(&serials, at(0)).unwrap();
    lease.complete_call(call.serial);
    lease.apply_grant(call, granted(0), at(0), at(0));
    assert_eq!(lease.acquire(&serials, at(1)), None);
    assert!(lease.acquire(&serials, at(2)).is_some());
}

#[test]
fn who_is_idle_gives_everything_back_and_is_forgotten() {
    let serials = Serials::default();
    let mut lease = holding(10, 100, &serials);
    assert!(is_covered(lease.hit(1, at(100))));
    assert_eq!(lease.renew_or_release(&serials, at(200)), None, "it may be call for again");
    let given = lease.renew_or_release(&serials, at(700)).expect("nobody asks");
    assert_eq!((given.give, given.hold, given.want), (9, 0, 0));
    assert_eq!(lease.hit(1, at(701)), LeaseDecision::Uncovered, "what is given back is not spent");
    lease.complete_call(given.serial);
    lease.apply_grant(given, granted(0), at(701), at(702));
    assert!(!lease.is_removable(at(600)));
    assert!(lease.is_removable(at(1_500)));
}

#[test]
fn who_holds_far_too_much_gives_some_of_it_back() {
    let serials = Serials::default();
    let mut lease = holding(10_000, 0, &serials);
    for ms in (0..400).step_by(10) {
        lease.hit(1, at(ms));
    }
    let given =
        lease.renew_or_release(&serials, at(410)).expect("a hundred a second need no ten thousand");
    let is_extended = given.hold;
    assert!(
        (40..=60).contains(&is_extended),
        "half a second of a hundred a second, not {is_extended}"
    );
    assert_eq!(given.give + is_extended, 10_000 - 40);
}

#[test]
fn what_is_about_to_run_out_is_renewed_unless_its_window_ends() {
    let serials = Serials::default();
    let renewed = |ends_with_window: bool| {
        let mut lease = QuotaLease::new(100, at(0));
        let call = lease.acquire(&serials, at(0)).unwrap();
        lease.complete_call(call.serial);
        lease.apply_grant(call, Grant { ends_with_window, ..granted(20) }, at(0), at(0));
        for ms in (0..1_100).step_by(100) {
            lease.hit(1, at(ms));
        }
        lease.renew_or_release(&serials, at(1_100))
    };
    assert!(matches!(renewed(false), Some(LeaseCall { give: 0, hold: 9, want: 0, .. })));
    assert_eq!(renewed(true), None);
}

#[test]
fn a_denial_stands_until_its_time_has_come_and_says_how_long_that_is() {
    let serials = Serials::default();
    let mut lease = holding(0, 100, &serials);
    let denied =
        |ms| Verdict { outcome: Outcome::Deny { retry_after: Span::from_millis(ms) }, ..UNCOUNTED };
    lease.record_denial(1, denied(40), Span::from_millis(5), at(10));
    let LeaseDecision::Denied(verdict) = lease.hit(1, at(20)) else { panic!("it was denied") };
    assert_eq!(verdict.retry_after(), Some(Span::from_millis(30)));
    assert_eq!(lease.hit(2, at(20)), LeaseDecision::Uncovered, "another cost has another time");
    assert_eq!(lease.hit(1, at(50)), LeaseDecision::Uncovered, "its time has come");

    lease.record_denial(1, denied(1), Span::from_millis(5), at(60));
    let LeaseDecision::Denied(verdict) = lease.hit(1, at(61)) else {
        panic!("the store is not call again")
    };
    assert_eq!(verdict.retry_after(), Some(Span::from_millis(4)), "and that is what is decision");

    lease.record_denial(1, denied(60_000), Span::ZERO, at(100));
    assert!(matches!(lease.hit(1, at(199)), LeaseDecision::Denied(_)));
    assert_eq!(
        lease.hit(1, at(200)),
        LeaseDecision::Uncovered,
        "others may have given something back"
    );
    lease.record_denial(1, denied(60_000), Span::ZERO, at(300));
    lease.clear_denial();
    assert_eq!(lease.hit(1, at(301)), LeaseDecision::Uncovered);
}

#[test]
fn an_answer_says_what_is_left_for_everybody_and_when_it_is_full() {
    let serials = Serials::default();
    let mut lease = holding(100, 0, &serials);
    let LeaseDecision::Covered(verdict) = lease.hit(30, at(20)) else { panic!("it is held") };
    assert_eq!(verdict.remaining, Some(970));
    assert_eq!(verdict.reset_after, Span::from_micros(1_000_000 + 300 - 20 * MS));
    assert_eq!(
        (verdict.decided_by, verdict.outcome),
        (Some(0), Outcome::Allow { wait: Span::ZERO })
    );
}

#[test]
fn what_the_store_says_meanwhile_is_told_from_then_on() {
    let serials = Serials::default();
    let mut lease = holding(100, 0, &serials);
    let decision = Verdict { remaining: Some(500), reset_after: Span::from_secs(2), ..UNCOUNTED };
    lease.record_admission(&decision, at(10));
    let LeaseDecision::Covered(verdict) = lease.hit(1, at(10)) else { panic!("it is held") };
    assert_eq!(verdict.remaining, Some(599), "what others may have, and what is held here");
    assert_eq!(verdict.reset_after, Span::from_micros(2_000_000 - 99 * 10));
}

#[test]
fn what_is_too_little_for_a_hit_is_given_back_where_somebody_is_denied() {
    let serials = Serials::default();
    let mut lease = holding(2, 100, &serials);
    assert_eq!(lease.hit(3, at(1)), LeaseDecision::Uncovered);
    assert_eq!(lease.acquire(&serials, at(1)), None, "the store may have it");
    let denied = Outcome::Deny { retry_after: Span::from_millis(40) };
    lease.record_denial(3, Verdict { outcome: denied, ..UNCOUNTED }, Span::ZERO, at(2));
    let given = lease.acquire(&serials, at(3)).expect("it is of use to nobody");
    assert_eq!((given.give, given.hold, given.want), (2, 0, 0));
    lease.complete_call(given.serial);
    lease.apply_grant(given, granted(0), at(3), at(4));
    assert_eq!(lease.hit(3, at(4)), LeaseDecision::Uncovered, "now the store may have it");
    assert_eq!(lease.acquire(&serials, at(4)), None, "nor is it taken away again at once");
}
