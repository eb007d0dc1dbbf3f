//! Nodes that buy ahead never admit more than if each had asked every time, however late they use it.
//!
//! Each node has real tokens, and uses them whenever it likes as long as its lease lasts, at best in the last microsecond. Calls get lost
//! on the way back or come twice; nodes die; and the store forgets a record as soon as it says that nobody needs it.

mod support;

use proptest::prelude::*;
use sluicegate_core::account::{Account, Moment};
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::lease::{Grant, LeaseDemand, LeaseReply};
use sluicegate_core::limit::Limit;
use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::op::Op;
use sluicegate_core::record::{Found, Layout, Record};
use sluicegate_core::time::Timestamp;
use support::limits::{bucket, calendar, counter, window, window_from_first_hit};
use support::uses::{Uses, dripped, in_every_span, per_period};
use support::{at, cases, rate, us};

const NODES: usize = 3;

/// What happens, so long after what happened before.
#[derive(Debug, Clone)]
struct Turn {
    on: u64,
    event: Event,
}

#[derive(Debug, Clone)]
enum Event {
    Hit(u64),
    Refund(u64),
    /// Nobody ever says what it was used for: it runs out, and nothing was used.
    Reserve(u64, u64),
    Lease {
        node: usize,
        give: u64,
        want: u64,
        ttl: u64,
        fate: Fate,
    },
    /// A node uses some of what it holds, now or in the last moment.
    Use {
        node: usize,
        max: u64,
        late: bool,
    },
    Dies(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Heard,
    /// The reply does not come back, and the call is retried instead of the node's next one.
    Lost,
    /// It comes a second time, much later.
    Twice,
}

/// A node, and what it believes to hold.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    held: u64,
    until: Timestamp,
    /// A call without a reply.
    unanswered: Option<LeaseDemand>,
}

struct World {
    plan: Vec<EnforcedLimit>,
    record: Record,
    nodes: [Node; NODES],
    now: u64,
    serial: u64,
    again: Vec<LeaseDemand>,
    uses: Uses,
    refunds: Uses,
}

fn turns(longest: u64) -> impl Strategy<Value = Vec<Turn>> {
    let on = prop_oneof![3 => Just(0), 3 => 0..longest / 4 + 1, 1 => 0..longest];
    let fate = prop_oneof![6 => Just(Fate::Heard), 1 => Just(Fate::Lost), 1 => Just(Fate::Twice)];
    let lease = (0..NODES, 0..101u64, 0..12u64, 1..longest, fate)
        .prop_map(|(node, give, want, ttl, fate)| Event::Lease { node, give, want, ttl, fate });
    let event = prop_oneof![
        6 => (1..6u64).prop_map(Event::Hit),
        1 => (1..6u64).prop_map(Event::Refund),
        1 => (1..6u64, 1..longest).prop_map(|(cost, ttl)| Event::Reserve(cost, ttl)),
        8 => lease,
        8 => (0..NODES, 1..9u64, any::<bool>())
            .prop_map(|(node, max, late)| Event::Use { node, max, late }),
        1 => (0..NODES).prop_map(Event::Dies),
    ];
    prop::collection::vec((on, event).prop_map(|(on, event)| Turn { on, event }), 1..60)
}

impl World {
    fn of(limits: impl IntoIterator<Item = Limit>) -> Self {
        Self {
            plan: limits.into_iter().map(EnforcedLimit::hard).collect(),
            record: Record::default(),
            nodes: Default::default(),
            now: 1_000,
            serial: 0,
            again: Vec::new(),
            uses: Uses::new(),
            refunds: Uses::new(),
        }
    }

    fn run(mut self, turns: &[Turn]) -> Result<Self, TestCaseError> {
        for turn in turns {
            self.now += turn.on;
            self.forget();
            self.take(&turn.event);
            self.check_outstanding()?;
            self.check_text()?;
        }
        Ok(self)
    }

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Hit(cost) => {
                if self.apply(Op::Hit { cost, holder: None }) {
                    self.uses.push((self.now, cost));
                }
            }
            Event::Refund(cost) => {
                self.apply(Op::Refund { cost });
                self.refunds.push((self.now, cost));
            }
            Event::Reserve(cost, ttl) => {
                self.serial += 1;
                self.apply(Op::Reserve { cost, ttl: us(ttl), holder: Holder(self.serial) });
            }
            Event::Lease { node, give, want, ttl, fate } => self.lease(node, give, want, ttl, fate),
            Event::Use { node, max, late } => {
                let Node { held, until, .. } = self.nodes[node];
                if late && at(self.now) < until {
                    self.now = until.as_micros() - 1;
                    self.forget();
                }
                let used = held.min(max);
                if used > 0 && at(self.now) < until {
                    self.nodes[node].held -= used;
                    self.uses.push((self.now, used));
                }
            }
            Event::Dies(node) => self.nodes[node] = Node::default(),
        }
    }

    fn apply(&mut self, op: Op) -> bool {
        let answer = self.record.account.apply(&self.plan, op, Moment::at(at(self.now)));
        answer.is_ok_and(|answer| answer.verdict.is_allowed())
    }

    fn lease(&mut self, index: usize, give: u64, want: u64, ttl: u64, fate: Fate) {
        self.serial += 1;
        // Whether it has run out is not for the node to say.
        let node = &mut self.nodes[index];
        let request = node.unanswered.take().unwrap_or_else(|| {
            let give = node.held * give / 100;
            node.held -= give;
            let (serial, hold, ttl) = (self.serial, node.held, us(ttl));
            LeaseDemand { node: index as u64, serial, give, hold, want, ttl }
        });
        let leased = self.record.lease(&self.plan, &request, at(self.now));
        let LeaseReply::Granted(Grant { granted, until, valid: kept, .. }) = leased else {
            panic!("{leased:?}");
        };
        if fate == Fate::Lost {
            node.unanswered = Some(request);
        } else {
            // Some of what was held may have been used since the call was sent first.
            let held = if kept { node.held } else { 0 };
            *node = Node { held: held + granted, until, unanswered: None };
        }
        if fate == Fate::Twice {
            self.again.push(request);
        }
        // Something that was on its way for long arrives now.
        if self.again.len() > 2 {
            let late = self.again.remove(0);
            self.record.lease(&self.plan, &late, at(self.now));
        }
    }

    /// The store keeps a record for as long as it has to.
    fn forget(&mut self) {
        if self.record.account.expires_at(&self.plan) <= at(self.now) {
            self.record.account = Account::default();
        }
    }

    /// At no time is there more, left and outstanding together, than the limit holds; nor just when a lease has run out.
    fn check_outstanding(&self) -> Result<(), TestCaseError> {
        let account = &self.record.account;
        let cells = account.leases().nodes();
        let ends = cells.iter().flat_map(|cell| [cell.until.before(us(1)), cell.until]);
        for moment in ends.chain([at(self.now)]).filter(|moment| *moment >= at(self.now)) {
            let is_kept = account.expires_at(&self.plan) > moment;
            let kept = if is_kept { account } else { &Account::default() };
            let decision = kept.evaluate(&self.plan, 1, Moment::at(moment));
            for (step, decision) in self.plan.iter().zip(decision) {
                let ending = cells.iter().filter(|cell| cell.until == moment);
                let is_bucket = matches!(step.limit(), Limit::TokenBucket(_));
                let ended: u64 = ending.map(|cell| cell.amount).filter(|_| is_bucket).sum();
                let held = account.leases().outstanding(moment) + ended;
                let (Some(left), Some(max)) = (decision.remaining, step.limit().capacity()) else {
                    return Err(TestCaseError::fail("no limit"));
                };
                prop_assert!(
                    left + held as i64 <= max as i64,
                    "{left} left and {held} held of {max} at {moment:?}: {account:?}"
                );
            }
        }
        Ok(())
    }

    /// What is written is read again.
    fn check_text(&self) -> Result<(), TestCaseError> {
        let layout = Layout::new(&self.plan);
        let (text, sets) = self.record.write(&self.plan, &layout);
        prop_assert!(sets.is_empty());
        let mut wanted = self.record.clone();
        // Cells of which nothing is known are not there, or new: that is the same.
        let states = self.plan.iter().enumerate().map(|(index, _)| {
            (wanted.account.state(index).cloned().unwrap_or_default(), Default::default())
        });
        if wanted.account.clone().into_states().is_ok() {
            wanted.account = Account::from_states(states);
        }
        let Found::Record(read) = Record::read(text.as_bytes(), &[], &self.plan, &layout) else {
            return Err(TestCaseError::fail(format!("cannot be read: {text}")));
        };
        prop_assert_eq!(&read.account, &wanted.account, "{}", text);
        prop_assert_eq!(read.epoch, wanted.epoch);
        Ok(())
    }

    /// What was given back by callers from one moment to another: so much more may have been used.
    fn refunded(&self, from: u64, to: u64) -> u64 {
        let clamp_signed = self.refunds.iter().filter(|(moment, _)| (from..=to).contains(moment));
        clamp_signed.map(|(_, cost)| cost).sum()
    }

    fn check_drip(&self, n: u64, p: u64, burst: u64) -> Result<(), TestCaseError> {
        in_every_span(&self.uses, |from, to, used| {
            dripped(n, p, burst + self.refunded(from, to), to - from, used)
        })
    }

    fn check_windows(&self, count: u64, period: u64) -> Result<(), TestCaseError> {
        for (window, used) in per_period(&self.uses, period) {
            let refunded = self.refunded(window * period, (window + 1) * period - 1);
            prop_assert!(used <= count + refunded, "{used} used in {window}: {:?}", self.uses);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_bucket_passes_at_most_its_burst_and_what_drips_in_any_span(
        n in 1u64..9, p in 1u64..50, burst in 1u64..20, initial in 0u64..20, turns in turns(60),
    ) {
        let short = TokenBucket::new(rate(n, p), burst).unwrap().with_initial(initial.min(burst));
        for limit in [bucket(n, p, burst), Limit::TokenBucket(short.unwrap())] {
            World::of([limit]).run(&turns)?.check_drip(n, p, burst)?;
        }
    }

    #[test]
    fn a_window_passes_at_most_its_number(
        count in 1u64..20, period in 1u64..50, turns in turns(60),
    ) {
        World::of([window(count, period)]).run(&turns)?.check_windows(count, period)?;
        for rounding in [Rounding::Floor, Rounding::Up] {
            let sliding = counter(count, period, rounding);
            World::of([sliding]).run(&turns)?.check_windows(count, period)?;
        }
    }

    #[test]
    fn a_window_that_begins_with_the_first_hit_passes_at_most_its_number(
        count in 1u64..20, period in 1u64..50, turns in turns(60),
    ) {
        let world = World::of([window_from_first_hit(count, period)]).run(&turns)?;
        in_every_span(&world.uses, |from, to, used| {
            // Two windows at most meet in less than the length of one.
            to - from >= period || used <= 2 * count + world.refunded(from, to)
        })?;
    }

    #[test]
    fn a_day_of_the_calendar_passes_at_most_its_number(count in 1u64..20, turns in turns(60)) {
        let starts = [0, 1_000, 1_700, 9_000];
        let world = World::of([calendar(count, starts, 9_000)]).run(&turns)?;
        for day in starts.windows(2) {
            let uses = world.uses.iter().filter(|(moment, _)| (day[0]..day[1]).contains(moment));
            let used: u64 = uses.map(|(_, cost)| cost).sum();
            prop_assert!(used <= count + world.refunded(day[0], day[1] - 1));
        }
    }

    #[test]
    fn all_limits_of_a_plan_keep_their_bounds(
        n in 1u64..9, p in 1u64..50, burst in 1u64..20,
        count in 1u64..20, period in 1u64..50, turns in turns(60),
    ) {
        let all = [bucket(n, p, burst), window(count, period), counter(count, period, Rounding::Floor)];
        let world = World::of(all).run(&turns)?;
        world.check_drip(n, p, burst)?;
        world.check_windows(count, period)?;
    }
}
