//! Answer by answer, where a plain level or list does not tell it: logs that count denials, calendar
//! windows, slots held under an id, buckets that start short.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::algorithm::token_bucket::{Refill, TokenBucket};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::Mode;
use sluicegate_core::op::{Op, Refusal};
use sluicegate_core::verdict::Outcome;
use support::limits::{calendar, log, slots};
use support::models::first;
use support::{HOUR, Reply, World, acquire_as, cancel, cases, hit, hit_as, peek, rate, step, us};

/// Every attempt, remembered for ever: when, how much, and whether it was denied.
#[derive(Clone)]
struct Attempts {
    windows: Vec<(u64, u64)>,
    min_gap: u64,
    all: Vec<(u64, u64, bool)>,
}

impl Attempts {
    fn held(&self, window: u64, now: u64, denied_too: bool) -> i64 {
        let counts = |a: &&(u64, u64, bool)| a.0 + window > now && (denied_too || !a.2);
        self.all.iter().filter(counts).map(|a| a.1 as i64).sum()
    }

    fn fits(&self, cost: u64, now: u64) -> bool {
        let latest = self.all.iter().map(|a| a.0).max();
        let gap_over = latest.is_none_or(|latest| latest + self.min_gap <= now);
        let room =
            |&(max, window): &(u64, u64)| self.held(window, now, true) + cost as i64 <= max as i64;
        gap_over && self.windows.iter().all(room)
    }

    fn hit(&mut self, cost: u64, now: u64) -> (Outcome, i64) {
        let max = self.windows.iter().map(|w| w.0).min().unwrap_or(0);
        let outcome = if cost > max {
            Outcome::Never { max_cost: max }
        } else {
            let fits = self.fits(cost, now);
            self.all.push((now, cost, !fits));
            let then = first(now, |t| self.fits(cost, t)).expect("room some day");
            match fits {
                true => Outcome::Allow { wait: us(0) },
                false => Outcome::Deny { retry_after: us(then - now) },
            }
        };
        // Denied attempts keep out, but nobody owes them.
        let left = self.windows.iter().map(|&(max, window)| {
            let (used, all) = (self.held(window, now, false), self.held(window, now, true));
            (max as i64 - used).min((max as i64 - all).max(0))
        });
        (outcome, left.min().unwrap_or(0))
    }
}

/// Day lengths in hours as summer time makes them, and the hits: (hour of the calendar, cost).
fn days() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(23u64..=25, 8)
}

/// The calendar limit as a node would hand it in at this moment.
fn around(count: u64, edges: &[u64], now: u64) -> Limit {
    let current = edges.partition_point(|&edge| edge <= now) - 1;
    let starts = [current - 1, current, current + 1, current + 2].map(|i| edges[i]);
    calendar(count, starts, 25 * HOUR)
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn a_log_that_counts_denials_answers_as_a_list_of_all_attempts(
        windows in prop::collection::vec((1u64..5, 1u64..25), 1..4),
        min_gap in prop_oneof![Just(0u64), 0u64..9],
        hits in prop::collection::vec((0u64..12, 1u64..6), 1..60),
    ) {
        let limit = log(&windows).with_min_gap(us(min_gap)).counting_denied().expect("small");
        let mut world = World::hard(Limit::SlidingLog(limit));
        let mut model = Attempts { windows, min_gap, all: Vec::new() };
        let mut now = 100;
        for (pause, cost) in hits {
            now += pause;
            world.would(peek(cost), now);
            let decision = world.ask(hit(cost), now);
            let (outcome, left) = model.hit(cost, now);
            prop_assert_eq!((decision.outcome, decision.remaining), (outcome, Some(left)), "{} at {}", cost, now);
        }
    }

    #[test]
    fn a_calendar_day_of_23_or_25_hours_counts_from_midnight_to_midnight(
        count in 1u64..6,
        days in days(),
        hits in prop::collection::vec((0u64..400, 1u64..4), 1..40),
    ) {
        let mut edges = vec![0u64];
        for day in days {
            edges.push(edges[edges.len() - 1] + day * HOUR);
        }
        let mut world = World::of(Vec::new());
        let mut used = BTreeMap::new();
        let mut now = edges[1];
        for (quarters, cost) in hits {
            now += quarters * HOUR / 4 / 10;
            if now >= edges[6] {
                break;
            }
            let day = edges.partition_point(|&edge| edge <= now);
            let left = count - used.get(&day).unwrap_or(&0);
            world.plan = vec![step(around(count, &edges, now), Mode::Hard)];
            let decision = world.ask(hit(cost), now);
            let expected = if cost > count {
                Outcome::Never { max_cost: count }
            } else if cost <= left {
                *used.entry(day).or_insert(0) += cost;
                Outcome::Allow { wait: us(0) }
            } else {
                Outcome::Deny { retry_after: us(edges[day] - now) }
            };
            let left = count - used.get(&day).unwrap_or(&0);
            let reset = if left == count { 0 } else { edges[day] - now };
            prop_assert_eq!(decision.outcome, expected, "{} at {} h", cost, now / HOUR);
            prop_assert_eq!((decision.remaining, decision.reset_after), (Some(left as i64), reset));
        }
    }

    #[test]
    fn slots_are_held_renewed_freed_and_run_out_as_a_list_of_leases(
        max in 1u64..5,
        lease in 1u64..30,
        ops in prop::collection::vec((0u64..10, 0u8..8, 0u64..6, 0u64..5), 1..40),
    ) {
        let mut world = World::hard(slots(max, lease));
        let mut leases: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut now = 0;
        for (pause, kind, id, cost) in ops {
            now += pause;
            leases.retain(|_, &mut (_, until)| until > now);
            if kind == 0 {
                let freed = leases.remove(&id).map(|(slots, _)| slots);
                let decision = world.answer(cancel(id), now);
                prop_assert_eq!(decision.map(|a| a.returned), freed.map(Some).ok_or(Refusal::UnknownHolder));
                continue;
            }
            let op = match kind {
                1 => peek(cost),
                2 => acquire_as(cost, 50, id),
                _ => hit_as(cost, id),
            };
            let decision = world.ask(op, now);
            let held_at = |t: u64| -> u64 { leases.values().filter(|l| l.1 > t).map(|l| l.0).sum() };
            let renews = kind != 1 && leases.contains_key(&id);
            let then = first(now, |t| held_at(t) + cost <= max);
            let outcome = match (cost, then) {
                (0, _) => Outcome::Allow { wait: us(0) },
                _ if renews => Outcome::Allow { wait: us(0) },
                _ if cost > max => Outcome::Never { max_cost: max },
                (_, Some(then)) if then > now => Outcome::Deny { retry_after: us(then - now) },
                _ => Outcome::Allow { wait: us(0) },
            };
            if kind != 1 && cost > 0 && outcome.is_allowed() {
                leases.entry(id).or_insert((cost, 0)).1 = now + lease;
            }
            let held: u64 = leases.values().map(|l| l.0).sum();
            let free_at = leases.values().map(|l| l.1).max().unwrap_or(now);
            let expected = Reply {
                outcome,
                remaining: Some(max as i64 - held as i64),
                reset_after: free_at - now,
                taken: None,
            };
            prop_assert_eq!(decision, expected, "{:?} at {}", op, now);
        }
    }

    #[test]
    fn a_bucket_that_starts_short_has_what_it_starts_with_and_drips_from_then_on(
        n in 1u64..5, p in 1u64..20, burst in 1u64..8, short in 0u64..8, pause in 0u64..100,
    ) {
        let initial = burst.saturating_sub(short);
        let bucket = TokenBucket::new(rate(n, p), burst).and_then(|b| b.with_initial(initial));
        let mut world = World::hard(Limit::TokenBucket(bucket.expect("small")));
        let decision = world.ask(hit(initial), 1_000);
        prop_assert_eq!((decision.allowed(), decision.remaining), (true, Some(0)));
        let dripped = (pause * n / p).min(burst) as i64;
        let decision = world.ask(peek(0), 1_000 + pause);
        // Cost 0 left no trace: a bucket nobody took from is still as it starts.
        let expected = if initial == 0 { decision.remaining } else { Some(dripped) };
        prop_assert_eq!(decision.remaining, expected);
    }
}

#[test]
fn a_bucket_that_starts_short_is_forgotten_a_day_after_its_last_hit() {
    for refill in [Refill::Greedy, Refill::Interval, Refill::Aligned] {
        let bucket = TokenBucket::new(rate(1, 10), 5).and_then(|b| b.with_initial(2));
        let bucket = bucket.and_then(|b| b.with_forget_after(us(1_000))).expect("small");
        let limit = Limit::TokenBucket(bucket.with_refill(refill).expect("small"));
        let mut world = World::hard(limit);
        assert!(world.allows(hit(2), 0));
        assert_eq!(world.would(peek(1), 999).remaining, Some(5), "{refill:?}");
        assert_eq!(world.would(peek(1), 1_000).remaining, Some(2), "{refill:?}: as new");
    }
}

#[test]
fn a_slot_without_an_id_is_refused_and_nothing_changes() {
    let mut world = World::hard(slots(2, 100));
    assert_eq!(world.answer(hit(1), 0), Err(Refusal::NeedsHolder));
    let charge = world.answer(Op::Charge { cost: 1 }, 0);
    assert!(matches!(charge, Err(Refusal::Unsupported { .. })));
    assert!(world.account.is_new());
    let unknown = Op::Cancel { holder: Holder(9) };
    assert_eq!(world.answer(unknown, 0), Err(Refusal::UnknownHolder));
}
