//! Leases, case by case.

mod support;

use sluicegate_core::account::{Account, Moment};
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::change::CarryOver;
use sluicegate_core::lease::{Grant, LeaseDemand, LeaseReply, NODES_MAX, TTL_MAX};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::Op;
use sluicegate_core::record::{Found, Layout, Record};
use sluicegate_core::time::Timestamp;
use support::limits::{bucket, cycle, leaky, window, window_from_first_hit};
use support::{at, us};

const SECOND: u64 = 1_000_000;

/// What node `node` wants, in its first call.
fn wants(node: u64, want: u64) -> LeaseDemand {
    LeaseDemand { node, serial: 1, give: 0, hold: 0, want, ttl: us(10 * SECOND) }
}

fn granted(leased: LeaseReply) -> Grant {
    let LeaseReply::Granted(grant) = leased else { panic!("{leased:?}") };
    grant
}

fn left(account: &Account, plan: &[EnforcedLimit], now: Timestamp) -> i64 {
    account.evaluate(plan, 1, Moment::at(now))[0].remaining.expect("a limit")
}

/// A bucket of 100 that takes ten seconds to fill.
fn hundred() -> [EnforcedLimit; 1] {
    [EnforcedLimit::hard(bucket(10, SECOND, 100))]
}

#[test]
fn what_is_given_back_in_time_was_never_taken() {
    let (plan, mut record) = (hundred(), Record::default());
    assert_eq!(granted(record.lease(&plan, &wants(1, 500), at(0))).granted, 50);
    let all = LeaseDemand { serial: 2, give: 50, ..wants(1, 0) };
    let back = granted(record.lease(&plan, &all, at(9 * SECOND)));
    assert_eq!((back.granted, back.valid, back.remaining), (0, true, 100));
    assert_eq!(record.epoch, 1, "something was given back");
}

#[test]
fn what_runs_out_counts_from_then_on() {
    let (plan, mut record) = (hundred(), Record::default());
    let Grant { until, .. } = granted(record.lease(&plan, &wants(1, 500), at(0)));
    assert_eq!(until, at(10 * SECOND));
    let leftover = LeaseDemand { serial: 2, give: 50, ..wants(1, 0) };
    let late = granted(record.lease(&plan, &leftover, until));
    assert_eq!((late.valid, late.remaining, record.epoch), (false, 50, 0), "perhaps just used");
    assert_eq!(left(&record.account, &plan, until.after(us(SECOND))), 60);
}

#[test]
fn those_who_want_more_get_more() {
    let (plan, mut record) = (hundred(), Record::default());
    assert_eq!(granted(record.lease(&plan, &wants(1, 30), at(0))).granted, 30);
    // Of 70 that are left, half for all: a fourth of that, and then what is left of what it wants.
    assert_eq!(granted(record.lease(&plan, &wants(2, 10), at(0))).granted, 8);
    let more = LeaseDemand { serial: 2, hold: 8, ..wants(2, 30) };
    assert_eq!(granted(record.lease(&plan, &more, at(0))).granted, 15);
    assert_eq!(record.account.leases().outstanding(at(0)), 53);
}

#[test]
fn a_window_is_used_to_the_last_token() {
    let plan = [EnforcedLimit::hard(window(100, SECOND))];
    let mut record = Record::default();
    let (mut bought, mut serial) = (0, 0);
    loop {
        serial += 1;
        let request = LeaseDemand { serial, hold: bought, ..wants(1, 40) };
        match granted(record.lease(&plan, &request, at(0))).granted {
            0 => break,
            more => bought += more,
        }
    }
    let hit = Op::Hit { cost: 1, holder: None };
    let mut passes = || record.account.apply(&plan, hit, Moment::at(at(1))).unwrap();
    let asked = (0..100).filter(|_| passes().verdict.is_allowed()).count();
    assert_eq!(bought + asked as u64, 100);
}

#[test]
fn a_lease_ends_with_the_first_window() {
    let (now, mut record) = (at(700_000), Record::default());
    let plan = [window(100, SECOND), bucket(10, SECOND, 100), window(100, 60 * SECOND)];
    let plan = plan.map(EnforcedLimit::hard);
    assert_eq!(granted(record.lease(&plan, &wants(1, 10), now)).until, at(SECOND));
    let first_hit = [EnforcedLimit::hard(window_from_first_hit(100, SECOND))];
    let mut record = Record::default();
    assert_eq!(granted(record.lease(&first_hit, &wants(1, 10), now)).until, at(1_700_000));
    let forever = LeaseDemand { ttl: us(EXACT_MAX), ..wants(1, 10) };
    let mut record = Record::default();
    let Grant { until, .. } = granted(record.lease(&hundred(), &forever, now));
    assert_eq!(until, now.after(TTL_MAX));
}

#[test]
fn late_and_doubled_calls_change_nothing() {
    let (plan, mut record) = (hundred(), Record::default());
    let second = LeaseDemand { serial: 2, ..wants(1, 10) };
    let grant = granted(record.lease(&plan, &second, at(0)));
    let before = record.clone();
    assert_eq!(record.lease(&plan, &wants(1, 10), at(1)), LeaseReply::Stale);
    // A retry has the reply that may have been lost.
    let retried = granted(record.lease(&plan, &second, at(1)));
    assert_eq!((retried.granted, retried.until), (grant.granted, grant.until));
    assert_eq!(record, before);
}

#[test]
fn who_claims_more_than_it_was_given_has_nothing() {
    let (plan, mut record) = (hundred(), Record::default());
    granted(record.lease(&plan, &wants(1, 10), at(0)));
    let claims = LeaseDemand { serial: 2, give: 5, hold: 6, ..wants(1, 0) };
    let told = granted(record.lease(&plan, &claims, at(0)));
    assert!(!told.valid && !told.returned);
    assert_eq!(record.account.leases().outstanding(at(0)), 0);
}

#[test]
fn no_more_nodes_than_there_is_room_for() {
    let plan = [EnforcedLimit::hard(window(1_000_000, SECOND))];
    let mut record = Record::default();
    for node in 0..NODES_MAX as u64 {
        assert!(granted(record.lease(&plan, &wants(node, 10), at(0))).granted > 0);
    }
    let before = record.clone();
    assert_eq!(granted(record.lease(&plan, &wants(99, 10), at(0))).granted, 0);
    assert_eq!(record, before);
    assert!(granted(record.lease(&plan, &wants(99, 10), at(SECOND))).granted > 0, "all ran out");
}

#[test]
fn other_limits_and_a_new_start_leave_leases_as_they_are() {
    let (plan, mut record) = (hundred(), Record::default());
    granted(record.lease(&plan, &wants(1, 40), at(0)));
    let account = &mut record.account;
    account.apply(&plan, Op::Reset, Moment::at(at(0))).unwrap();
    assert_eq!(left(account, &plan, at(0)), 60);
    let smaller = [EnforcedLimit::hard(bucket(10, SECOND, 30))];
    account.change(&plan, &smaller, &[None], CarryOver::Nothing, at(0));
    assert_eq!(left(account, &smaller, at(0)), -10, "more is held than there is");
}

#[test]
fn what_was_added_beyond_the_bucket_is_not_leased() {
    let (plan, mut record) = (hundred(), Record::default());
    record.account.apply(&plan, Op::Add { cost: 70, force: true }, Moment::at(at(0))).unwrap();
    let Grant { granted, remaining: left, .. } =
        granted(record.lease(&plan, &wants(1, 500), at(0)));
    assert_eq!((granted, left), (50, 120));
}

#[test]
fn a_store_that_forgets_is_told_of_leases_too() {
    let (plan, mut record) = (hundred(), Record::default());
    granted(record.lease(&plan, &wants(1, 40), at(0)));
    let mut forgot = Account::default();
    forgot.reassert(&plan, &record.account, at(9 * SECOND));
    assert_eq!(left(&forgot, &plan, at(9 * SECOND)), 60);
    assert_eq!(forgot.leases(), record.account.leases());
}

#[test]
fn after_a_clock_was_set_back_a_lease_ends_all_the_same() {
    let (plan, mut record) = (hundred(), Record::default());
    let day = 86_400 * SECOND;
    granted(record.lease(&plan, &wants(1, 40), at(2 * day)));
    record.account.apply(&plan, Op::Charge { cost: 1 }, Moment::at(at(day))).unwrap();
    let over = at(day).after(TTL_MAX);
    let seconds_after = |s: u64| left(&record.account, &plan, over.after(us(s * SECOND)));
    assert_eq!([0, 1, 4].map(seconds_after), [60, 70, 100]);
}

#[test]
fn the_widest_numbers_are_shared_exactly() {
    let max = EXACT_MAX / 4;
    let plan = [EnforcedLimit::hard(window(max, SECOND))];
    let mut record = Record::default();
    let all = |node| LeaseDemand { serial: EXACT_MAX, ..wants(node, EXACT_MAX) };
    let [one, two] = [1, 2].map(|node| granted(record.lease(&plan, &all(node), at(0))).granted);
    assert_eq!((one, two), (max / 2, (max - max / 2) / 4));
    let far = Record::default().lease(&hundred(), &all(1), Timestamp::MAX);
    assert_eq!(granted(far).granted, 50);
}

#[test]
fn limits_that_cannot_be_leased_are_not() {
    for limit in [leaky(5, SECOND, 3), cycle(5, SECOND), Limit::Unlimited, Limit::Closed] {
        let plan = [EnforcedLimit::hard(limit), EnforcedLimit::hard(window(5, SECOND))];
        assert_eq!(Record::default().lease(&plan, &wants(1, 10), at(0)), LeaseReply::Unfit);
    }
    assert_eq!(Record::default().lease(&[], &wants(1, 10), at(0)), LeaseReply::Unfit);
}

#[test]
fn leases_are_a_word_of_their_own() {
    let plan = hundred();
    let layout = Layout::new(&plan);
    let mut record = Record::default();
    granted(record.lease(&plan, &wants(0xa1, 20), at(SECOND)));
    let (text, _) = record.write(&plan, &layout);
    let name = layout.fingerprint();
    assert_eq!(text, format!("{name}.0 3000000 #00000000000000a1:1:20:20:11000000"));
    let read =
        |rest: &str| Record::read(format!("{name}.0 {rest}").as_bytes(), &[], &plan, &layout);
    assert_eq!(read("3000000 #00000000000000a1:1:20:20:11000000"), Found::Record(record));
    let cell = "00000000000000a1:1:20:20:11000000";
    for bad in [
        "3000000 #",
        "3000000 #a1:1:20:20:11000000",
        "3000000 #00000000000000a1:1:20:20",
        "3000000 #00000000000000a1:1:20:20:11000000:5",
        "3000000 #00000000000000a1:1:-20:20:11000000",
        "3000000 #00000000000000a1:1:20:20:99999999999999999999",
        &format!("3000000 #{cell},{cell}"),
        &format!("3000000 #{cell} #{cell}"),
        &format!("#{cell}"),
    ] {
        assert_eq!(read(bad), Found::Garbage, "{bad}");
    }
}
