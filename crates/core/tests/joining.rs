//! What two stores know of one identity, put together, never leaves more than either of them.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::Op;
use sluicegate_core::time::{Span, Timestamp};
use support::limits::small;

/// Hits of a cost, each so long after the one before.
fn hits() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..6, 1u64..4), 0..12)
}

fn hit_all(plan: &[EnforcedLimit], hits: &[(u64, u64)]) -> (Account, Timestamp) {
    let (mut account, mut now) = (Account::default(), Timestamp::from_micros(1_000));
    for (later, cost) in hits {
        now = now.after(Span::from_micros(*later));
        account
            .apply(plan, Op::Hit { cost: *cost, holder: None }, Moment::at(now))
            .expect("a hit needs no id");
    }
    (account, now)
}

fn left(account: &Account, plan: &[EnforcedLimit], now: Timestamp) -> Option<i64> {
    account.evaluate(plan, 1, Moment::at(now))[0].remaining
}

proptest! {
    #[test]
    fn neither_ever_leaves_more(limit in small(), one in hits(), other in hits()) {
        let plan = [EnforcedLimit::hard(limit)];
        let ((mut account, then), (seen, later)) = (hit_all(&plan, &one), hit_all(&plan, &other));
        let now = then.max(later);
        let (own, theirs) = (left(&account, &plan, now), left(&seen, &plan, now));
        let mut absorbed = account.clone();
        account.reassert(&plan, &seen, now);
        let both = left(&account, &plan, now);
        prop_assert!(both <= own, "{both:?} of {own:?}");
        // Of a log with several windows it cannot be told which entries are missing from which; the longest has no less.
        if !matches!(limit, Limit::SlidingLog(_)) {
            prop_assert!(both <= theirs, "{both:?} of {theirs:?}");
        }
        absorbed.absorb(&plan, &seen, now);
        prop_assert!(left(&absorbed, &plan, now) <= own);
    }

    #[test]
    fn what_was_seen_already_changes_nothing(limit in small(), one in hits()) {
        let plan = [EnforcedLimit::hard(limit)];
        let (account, now) = hit_all(&plan, &one);
        let mut again = account.clone();
        again.reassert(&plan, &account, now);
        prop_assert_eq!(left(&again, &plan, now), left(&account, &plan, now));
    }
}
