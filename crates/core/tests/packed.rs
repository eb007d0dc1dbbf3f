//! The short way through a decision gives the answers of the long one, and leaves the same states.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::fixed_window::Align;
use sluicegate_core::limit::{Limit, State};
use sluicegate_core::mode::Mode;
use sluicegate_core::packed::Packed;
use sluicegate_core::time::NOW_MAX;
use sluicegate_core::verdict::Verdict;
use support::plans::{any_limit, any_tally};
use support::{anything, at, cases, hit, limits, step};

/// The state of the only step as a store keeps it: packed, if there is anything to keep.
fn packed(limit: &Limit, account: &Account) -> Result<Option<Packed>, ()> {
    match account.state(0) {
        None | Some(State::New) => Ok(None),
        Some(state) => limit.pack(state).map(Some).ok_or(()),
    }
}

/// Runs hits on an account, and wherever there is a short way, that too.
fn agree(limit: Limit, hits: impl IntoIterator<Item = (u64, u64)>) -> Result<(), TestCaseError> {
    let plan = [step(limit, Mode::Hard)];
    let max = plan[0].fast_cost_max().unwrap_or(0);
    let mut account = Account::default();
    for (now, cost) in hits {
        let now = at(now).min(NOW_MAX);
        let kept = packed(&limit, &account);
        let live = kept.map(|kept| kept.filter(|packed| packed.expires_at > now));
        let short = match live {
            Ok(kept) if (1..=max).contains(&cost) => plan[0].hit_fast(kept, cost, now),
            _ => None,
        };
        if let Ok(Some(kept)) = kept {
            prop_assert_eq!(Some(&limit.unpack(kept)), account.state(0), "unpacked");
        }
        let decision =
            account.apply(&plan, hit(cost), Moment::at(now)).map(|answer| answer.verdict);
        let Some(short) = short else { continue };
        prop_assert_eq!(
            Ok(Verdict::from_single(&short.decision())),
            decision,
            "{} at {:?}",
            cost,
            now
        );
        // A denial is kept by nobody but a tally.
        prop_assert!(short.allowed || limit.counts_first() || short.stored.is_none());
        if let Some(stored) = short.stored {
            prop_assert_eq!(
                Ok(Some(stored)),
                packed(&limit, &account),
                "stored of {} at {:?}",
                cost,
                now
            );
        }
    }
    Ok(())
}

/// A calendar is handed in anew as time goes on, which nobody does here: the store's own tests compare those.
fn is_calendar(limit: &Limit) -> bool {
    matches!(limit, Limit::FixedWindow(window) if matches!(window.align(), Align::Calendar(_)))
}

/// Hits in the course of time, which now and then goes back.
fn hits() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let step = prop_oneof![4 => 0i64..4, 2 => 0i64..40, 1 => -30i64..0, 1 => 0i64..1_000];
    prop::collection::vec((step, 0u64..9), 1..40).prop_map(|hits| {
        let mut now = 1_000i64;
        let hit = |(step, cost): (i64, u64)| {
            now = (now + step).max(0);
            (now as u64, cost)
        };
        hits.into_iter().map(hit).collect()
    })
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn both_ways_agree_on_any_small_limit(limit in any_limit(), hits in hits()) {
        if !is_calendar(&limit) {
            agree(limit, hits)?;
        }
    }

    #[test]
    fn both_ways_agree_on_a_tally(limit in any_tally(), hits in hits()) {
        agree(limit, hits)?;
    }

    #[test]
    fn both_ways_agree_on_numbers_of_any_size(
        limit in anything::limit(),
        hits in prop::collection::vec((anything::number(), anything::number()), 1..12),
    ) {
        let told = |limit: &Limit| !is_calendar(limit) && !matches!(limit, Limit::Concurrency(_));
        if let Some(limit) = limit.filter(told) {
            agree(limit, hits)?;
        }
    }

    #[test]
    fn any_two_numbers_are_a_state_that_can_be_used(
        max in 0u64..9, period in 1u64..2_000,
        until in anything::number(), number in anything::number(),
        now in anything::number(), cost in anything::number(),
    ) {
        let limit = limits::tally(max, period);
        let kept = Packed { expires_at: at(until), number };
        let mut account = Account::from_states([(limit.unpack(kept), State::New)]);
        let plan = [step(limit, Mode::Hard)];
        prop_assert!(account.apply(&plan, hit(cost), Moment::at(at(now))).is_ok());
        let _ = plan[0].hit_fast(Some(kept), cost, at(now));
    }
}
