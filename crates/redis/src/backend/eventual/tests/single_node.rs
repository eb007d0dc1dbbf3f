//! A single node decides exactly as the core does.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::op::Op;
use sluicegate_rules::calendar::{Calendar, CalendarUnit};

use super::*;
use crate::backend::eventual::key_replica::{KeyReplica, supports};
use crate::script::SyncReply;

#[derive(Debug, Clone, Copy)]
enum Turn {
    Hit(u64),
    Peek(u64),
    Refund(u64),
    Reset,
    /// Other limits, of the same windows.
    Change,
}

fn limit() -> impl Strategy<Value = LimitConfig> {
    let length = prop_oneof![Just(1_000_000_u64), Just(7_000_000), 1_u64..20_000_000];
    let length = length.prop_map(Span::from_micros);
    let count = prop_oneof![1_u64..20, 1_u64..2_000];
    let (up, floor) = (Rounding::Up, Rounding::Floor);
    let unnamed = |limit| LimitConfig::fixed(None, limit);
    prop_oneof![
        4 => (count.clone(), length.clone()).prop_map(move |(n, l)| unnamed(fixed(n, l))),
        2 => (count.clone(), length.clone()).prop_map(move |(n, l)| unnamed(sliding(n, l, up))),
        2 => (count.clone(), length).prop_map(move |(n, l)| unnamed(sliding(n, l, floor))),
        2 => count.prop_map(|count| {
            let berlin = Calendar::new("Europe/Berlin", CalendarUnit::Day).unwrap();
            LimitConfig::calendar(None, Rate::new(count, Span::from_secs(86_400)).unwrap(), berlin)
        }),
        1 => Just(unnamed(Limit::Unlimited)),
    ]
}

fn turn() -> impl Strategy<Value = (u64, Turn)> {
    let on = prop_oneof![
        3 => Just(0_u64),
        3 => 0_u64..100_000,
        3 => 0_u64..3_000_000,
        1 => 0_u64..50_000_000,
        1 => 0_u64..100_000_000_000,
    ];
    let cost = || prop_oneof![4 => 1_u64..4, 2 => 0_u64..30, 1 => 0_u64..3_000];
    let turn = prop_oneof![
        12 => cost().prop_map(Turn::Hit),
        2 => cost().prop_map(Turn::Peek),
        2 => cost().prop_map(Turn::Refund),
        1 => Just(Turn::Reset),
        1 => Just(Turn::Change),
    ];
    (on, turn)
}

#[test]
fn a_node_that_is_alone_answers_what_the_core_answers() {
    let start = prop_oneof![200_000_000_000_u64..400_000_000_000, Just(1_792_895_000_000_000)];
    let input = (start, prop::collection::vec(limit(), 1..6), prop::collection::vec(turn(), 1..60));
    let interval = Span::from_millis(100);
    let checked = TestRunner::new(config(1_000)).run(&input, |(mut now, limits, turns)| {
        let make = || Arc::new(Rule::new(limits.clone(), Mode::Hard).unwrap());
        let mut rule = make();
        prop_assert!(supports(&rule));
        let (mut replica, mut core, mut epoch) = (KeyReplica::new(&rule), Account::default(), 0);
        for (on, turn) in turns {
            now += on;
            // Any beginning will do.
            let tick = at(now - 100_000_000_000);
            if let Turn::Reset = turn {
                epoch += 1;
            }
            let reply = SyncReply { at: at(now), epoch, own: Vec::new(), others: Vec::new() };
            replica.merge(&reply, 0, (tick, tick));
            let op = match turn {
                Turn::Hit(cost) => Op::Hit { cost, holder: None },
                Turn::Peek(cost) => Op::Peek { cost },
                Turn::Refund(cost) => Op::Refund { cost },
                Turn::Reset => Op::Reset,
                Turn::Change => Op::Peek { cost: 1 },
            };
            let plan = rule.plan_at(at(now));
            let expected = core.apply(&plan.steps, op, Moment::at(at(now))).unwrap().verdict;
            if let Turn::Change = turn {
                rule = make();
            }
            let found = match turn {
                Turn::Hit(cost) => replica.hit(&rule, cost, interval, tick),
                Turn::Peek(cost) => replica.peek(&rule, cost, interval, tick),
                Turn::Refund(cost) => replica.refund(&rule, cost, tick),
                Turn::Reset => replica.refund(&rule, 0, tick),
                Turn::Change => replica.peek(&rule, 1, interval, tick),
            };
            prop_assert_eq!(found, Some(expected), "{:?} at {}", turn, now);
            prop_assert_eq!(replica.overshoot_bound(), 0);
        }
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

#[test]
fn what_no_window_holds_is_not_served() {
    let rate = Rate::new(5, Span::from_secs(1)).unwrap();
    let by_first_hit = Limit::FixedWindow(FixedWindow::new(rate, Align::FirstHit));
    let bucket = sluicegate_core::algorithm::token_bucket::TokenBucket::new(rate, 5).unwrap();
    assert!(!supports(&rule(vec![by_first_hit])));
    assert!(!supports(&rule(vec![Limit::TokenBucket(bucket)])));
    let soft = vec![LimitConfig::fixed(None, fixed(5, YEARS))];
    assert!(!supports(&Rule::new(soft, Mode::Shadow).unwrap()));
}
