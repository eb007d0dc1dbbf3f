//! Small worlds, exhaustively: every short sequence of operations over tiny limits, against the models.
//!
//! Random tests meet the common cases often; here the rare coincidences (a cancel in the very microsecond
//! of its turn, a refund between two bookings) are all met, once.

mod support;

use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::limit::Limit;
use sluicegate_core::op::Op;
use support::limits;
use support::models::levels::{Drip, Queue, Stairs, Starts};
use support::models::lists::{Counts, Ledger};
use support::models::{Model, first, run};
use support::{World, acquire_as, cancel, hit};

/// How many operations in a row; `SMALL_WORLDS_DEPTH` asks for more.
fn depth() -> u64 {
    let asked = std::env::var("SMALL_WORLDS_DEPTH").ok();
    asked.and_then(|depth| depth.parse().ok()).unwrap_or(3)
}

const PAUSES: [u64; 4] = [0, 1, 2, 3];

/// A booking that can be cancelled.
#[derive(Clone)]
struct Booking<M> {
    id: u64,
    cost: u64,
    turn: u64,
    /// The model as it was before.
    before: M,
    /// What was charged since; `None` once something was given back, which muddies whose is what.
    charged_since: Option<u64>,
}

#[derive(Clone)]
struct Node<M> {
    world: World,
    model: M,
    now: u64,
    /// The first booking: the interesting one of two to cancel.
    booking: Option<Booking<M>>,
    /// The turn of the last.
    booked_until: u64,
    /// How we came here, for the report.
    path: Vec<(u64, Op)>,
}

/// What a limit gives back when a booking is cancelled that others followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cancels {
    /// The cost less what was charged after it.
    LessWhatFollowed,
    /// The same, and nothing while a booking lies in a later period: it keeps the periods before.
    LessWhatFollowedInItsPeriod,
    /// Nothing: those behind keep their turns.
    NothingFromTheMiddle,
    /// All of it: each of the others stands at its own time.
    Everything,
    /// Not modelled: nothing is given back while a booking lies ahead.
    NotWhileBooked,
}

fn explore<M: Model>(limit: Limit, model: M, cancels: Cancels) {
    let root = Node {
        world: World::hard(limit),
        model,
        now: 6,
        booking: None,
        booked_until: 0,
        path: Vec::new(),
    };
    visit(&root, cancels, depth());
}

fn visit<M: Model>(node: &Node<M>, cancels: Cancels, depth: u64) {
    if depth == 0 {
        return;
    }
    let id = depth;
    let ops = [
        hit(1),
        hit(2),
        acquire_as(1, 100, id),
        acquire_as(2, 100, id),
        Op::Refund { cost: 1 },
        Op::Charge { cost: 1 },
    ];
    for pause in PAUSES {
        let booked = node.booked_until > node.now + pause;
        let gives_not = cancels == Cancels::NotWhileBooked && booked;
        for op in ops {
            if gives_not && matches!(op, Op::Refund { .. }) {
                continue;
            }
            visit(&carried_out(node, op, pause), cancels, depth - 1);
        }
        if let Some(next) = cancelled(node, cancels, pause) {
            visit(&next, cancels, depth - 1);
        }
    }
}

fn carried_out<M: Model>(node: &Node<M>, op: Op, pause: u64) -> Node<M> {
    let mut next = node.clone();
    next.now += pause;
    next.path.push((next.now, op));
    let decision = next.world.ask(op, next.now);
    let expected = run(&mut next.model, op, next.now);
    assert_eq!(decision, expected, "{:?}: {:?}", node.world.plan[0].limit(), next.path);
    let charged = match op {
        Op::Refund { .. } => None,
        Op::Hit { cost, .. } | Op::Acquire { cost, .. } if decision.allowed() => Some(cost),
        Op::Charge { cost } => Some(cost),
        _ => Some(0),
    };
    if let Some(booking) = &mut next.booking {
        let since = booking.charged_since.zip(charged);
        booking.charged_since = since.map(|(since, more)| since + more);
    }
    if let (Op::Acquire { cost, holder: Some(holder), .. }, true) = (op, decision.allowed()) {
        let booking = Booking {
            id: holder.0,
            cost,
            turn: next.now + decision.wait(),
            before: node.model.clone(),
            charged_since: Some(0),
        };
        next.booked_until = next.booked_until.max(booking.turn);
        next.booking = Some(next.booking.unwrap_or(booking));
    }
    next
}

fn cancelled<M: Model>(node: &Node<M>, cancels: Cancels, pause: u64) -> Option<Node<M>> {
    let booking = node.booking.clone()?;
    let since = booking.charged_since?;
    let now = node.now + pause;
    let in_time = now < booking.turn;
    if cancels == Cancels::NotWhileBooked {
        return None;
    }
    let mut next = node.clone();
    (next.now, next.booking) = (now, None);
    next.path.push((now, cancel(booking.id)));
    let decision = next.world.answer(cancel(booking.id), now);
    let returned = decision.ok().and_then(|answer| answer.returned);
    let due = match (in_time, since) {
        (false, _) => 0,
        (true, 0) => {
            // As if it had never been.
            next.model = booking.before;
            booking.cost
        }
        (true, _) if cancels == Cancels::Everything => {
            next.model.strike(booking.cost, booking.turn);
            booking.cost
        }
        (true, since) => {
            let paid = first(now, |t| !next.model.debt_decisions(t)).expect("paid some day");
            let due = match cancels {
                Cancels::NothingFromTheMiddle => 0,
                Cancels::LessWhatFollowedInItsPeriod if paid > booking.turn => 0,
                _ => booking.cost.saturating_sub(since),
            };
            next.model.give(due, now);
            due
        }
    };
    assert_eq!(returned, Some(due), "{:?}: {:?}", node.world.plan[0].limit(), next.path);
    Some(carried_out(&next, Op::Peek { cost: 1 }, 0))
}

const RATES: [(u64, u64); 7] = [(1, 1), (1, 2), (1, 3), (2, 3), (3, 2), (2, 1), (3, 3)];

#[test]
fn greedy_buckets() {
    for (n, p) in RATES {
        for burst in 1..=3 {
            let model = Drip::bucket(n, p, burst);
            explore(limits::bucket(n, p, burst), model, Cancels::LessWhatFollowed);
        }
    }
}

#[test]
fn interval_buckets() {
    for (n, p) in RATES {
        for burst in 1..=3 {
            let limit = limits::stepped(n, p, burst, Refill::Interval);
            let model = Stairs::bucket(n, p, burst, Starts::WithTheFirstHit);
            explore(limit, model, Cancels::LessWhatFollowedInItsPeriod);
        }
    }
}

#[test]
fn aligned_buckets() {
    for (n, p) in RATES {
        for burst in 1..=3 {
            let limit = limits::stepped(n, p, burst, Refill::Aligned);
            let model = Stairs::bucket(n, p, burst, Starts::OnTheClock);
            explore(limit, model, Cancels::LessWhatFollowedInItsPeriod);
        }
    }
}

#[test]
fn windows_and_cycles() {
    for (n, p) in RATES {
        let clock = Stairs::window(n, p, Starts::OnTheClock);
        explore(limits::window(n, p), clock, Cancels::LessWhatFollowedInItsPeriod);
        let first_hit = Stairs::window(n, p, Starts::WithTheFirstHit);
        explore(
            limits::window_from_first_hit(n, p),
            first_hit,
            Cancels::LessWhatFollowedInItsPeriod,
        );
        if n > 1 {
            let cycle = Stairs::cycle(n, p);
            explore(limits::cycle(n, p), cycle, Cancels::LessWhatFollowedInItsPeriod);
        }
    }
}

#[test]
fn leaky_buckets() {
    for (n, p) in RATES {
        for queue in 0..=2 {
            let model = Queue::new(n, p, queue);
            explore(limits::leaky(n, p, queue), model, Cancels::NothingFromTheMiddle);
        }
    }
}

#[test]
fn sliding_logs() {
    for (n, p) in RATES {
        let limit = Limit::SlidingLog(limits::log(&[(n, p)]));
        explore(limit, Ledger::new(vec![(n, p)], 0), Cancels::Everything);
        let two = vec![(n + 1, p + 2), (n, p)];
        let limit = Limit::SlidingLog(limits::log(&two).with_min_gap(support::us(1)));
        explore(limit, Ledger::new(two, 1), Cancels::Everything);
    }
}

#[test]
fn sliding_windows_of_slices() {
    for (n, p) in RATES {
        for k in [2, 3] {
            explore(limits::slices(n, p, k), Ledger::of_slices(n, p, k), Cancels::Everything);
        }
    }
}

#[test]
fn sliding_counters() {
    for (n, p) in RATES {
        for rounding in [Rounding::Floor, Rounding::Up] {
            let model = Counts::new(n, p, rounding);
            explore(limits::counter(n, p, rounding), model, Cancels::NotWhileBooked);
        }
    }
}
