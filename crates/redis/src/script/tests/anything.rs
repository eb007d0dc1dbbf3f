//! Any limits, and any questions to them.

use proptest::prelude::*;
use sluicegate_config::limit::limits;
use sluicegate_config::mode::mode;
use sluicegate_core::algorithm::concurrency::Holder;
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::change::CarryOver;
use sluicegate_core::op::Op;
use sluicegate_core::time::Span;

use crate::script::{Combine, ScriptOp};
use sluicegate::backend::Rule;

/// How many identities there are. Each has limits of its own.
pub(super) const KEYS: usize = 3;

const LIMITS: [&str; 38] = [
    "{ algorithm: token_bucket, rate: 5/s, burst: 2 }",
    "{ algorithm: token_bucket, rate: 3/s, burst: 9 }",
    "{ algorithm: token_bucket, rate: 7/m }",
    "{ algorithm: token_bucket, rate: 1234567/day, burst: 40 }",
    "{ algorithm: token_bucket, rate: 3000000/s, burst: 10 }",
    "{ algorithm: token_bucket, rate: 1000000000000/1day, burst: 1000000000000 }",
    "{ algorithm: token_bucket, rate: 5/s, burst: 10, initial: 3 }",
    "{ algorithm: token_bucket, rate: 4 per 10s, burst: 9, refill: interval }",
    "{ algorithm: token_bucket, rate: 4 per 10s, burst: 4, initial: 1, refill: interval }",
    "{ algorithm: token_bucket, rate: 4 per 10s, burst: 4, refill: aligned }",
    "{ algorithm: leaky_bucket, rate: 10/s, queue: 3 }",
    "{ algorithm: leaky_bucket, rate: 3/s, queue: 0 }",
    "{ algorithm: fixed_window, rate: 5 per 10s }",
    "{ algorithm: fixed_window, rate: 100000 per 1500us }",
    "{ algorithm: fixed_window, rate: 20000000000/day }",
    "{ algorithm: fixed_window, rate: 5 per 10s, align: first_hit }",
    "{ algorithm: fixed_window, rate: 5/day, align: calendar, zone: Europe/Berlin }",
    "{ algorithm: fixed_window, rate: 5 per 1month, align: calendar, zone: America/Sao_Paulo }",
    "{ algorithm: sliding_log, rate: 5 per 10s }",
    "{ algorithm: sliding_log, rate: 40 per 10s }",
    "{ algorithm: sliding_log, rates: [10/m, 2 per 3s], min_gap: 200ms }",
    "{ algorithm: sliding_log, rates: [9/m, 6 per 20s, 4 per 5s] }",
    "{ algorithm: sliding_log, rate: 3 per 10s, count_denied: true }",
    "{ algorithm: sliding_log, rates: [20 per 10s, 9 per 2s], count_denied: true }",
    "{ algorithm: sliding_window, rate: 7/m }",
    "{ algorithm: sliding_window, rate: 7 per 1500us, rounding: up }",
    "{ algorithm: sliding_window, rate: 500000/m }",
    "{ algorithm: sliding_window, rate: 5 per 10s, slices: 5 }",
    "{ algorithm: sliding_window, rate: 70000/s, slices: 7 }",
    "{ algorithm: smooth_bursty, rate: 5/s }",
    "{ algorithm: warm_up, rate: 5/s, warm_up: 4s }",
    "{ algorithm: warm_up, rate: 7/s, warm_up: 3s, cold_factor: 5 }",
    "{ algorithm: cycle, permits: 5, period: 10s }",
    "{ algorithm: concurrency, max: 3, lease: 10s }",
    "{ algorithm: unlimited }",
    "{ algorithm: tally, rate: 5 per 10s }",
    "{ algorithm: tally, rate: 0/m }",
    "{ algorithm: tally, rate: 9007199254740991/day }",
];

const MODES: [&str; 6] = [
    "hard",
    "hard",
    "{ soft: 50% }",
    "shadow",
    "{ elastic: { up_to: 2x, below: 70%, above: 85% } }",
    "{ elastic: { up_to: 1.5x, below: 70%, above: 85% } }",
];

/// One event.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// Time step, possibly negative.
    pub(super) on: i64,
    pub(super) event: Event,
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    /// Requests batched into one call.
    Asks(Vec<Asked>),
    /// Lease calls that ride in one.
    Lease(Vec<Leasing>),
    /// Any operation on some of the identities, by the optimistic path.
    Long {
        op: Op,
        keys: Vec<usize>,
        spare_capacity: bool,
    },
    Renew {
        key: usize,
        holder: Holder,
    },
    Forget {
        key: usize,
        holder: Holder,
    },
    /// Other limits for one of them.
    Change {
        key: usize,
        rule: Ruled,
        keep: CarryOver,
    },
}

/// A lease call of a node.
#[derive(Debug, Clone)]
pub(super) struct Leasing {
    pub(super) key: usize,
    pub(super) node: u64,
    /// How many calls ago it was sent.
    pub(super) late: u64,
    /// In percent of the maximum that it may hold; their sum may be more.
    pub(super) give: u64,
    pub(super) hold: u64,
    pub(super) want: u64,
    pub(super) ttl: Span,
}

#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) op: ScriptOp,
    pub(super) parts: Vec<AskedPart>,
    pub(super) holder: Option<Holder>,
    pub(super) count: u32,
}

#[derive(Debug, Clone)]
pub(super) struct AskedPart {
    pub(super) key: usize,
    pub(super) cost: u64,
    pub(super) spare_capacity: bool,
    pub(super) combine: Combine,
}

/// Limits and a mode as they are written.
#[derive(Debug, Clone)]
pub(super) struct Ruled {
    pub(super) limits: Vec<&'static str>,
    pub(super) mode: &'static str,
}

impl Ruled {
    /// The rule of this number; where the mode does not fit a limit, a hard one.
    pub(super) fn rule(&self, number: usize) -> Rule {
        let text = format!("[{}]", self.limits.join(", "));
        let limits = limits("limits", &text).unwrap();
        let mode = mode("mode", self.mode).unwrap();
        let rule = Rule::new(limits.clone(), mode);
        rule.unwrap_or_else(|_| Rule::new(limits, Default::default()).unwrap()).with_number(number)
    }
}

pub(super) fn ruled() -> impl Strategy<Value = Ruled> {
    let limits = prop::collection::vec(prop::sample::select(&LIMITS[..]), 1..5);
    (limits, prop::sample::select(&MODES[..])).prop_map(|(limits, mode)| Ruled { limits, mode })
}

/// Limits that can be leased, most of them.
pub(super) fn leasable() -> impl Strategy<Value = Ruled> {
    let some = |text: &&&str| {
        ["algorithm: fixed", "algorithm: sliding_window", "algorithm: token"]
            .iter()
            .any(|known| text.contains(known))
            && !text.contains("refill")
            && !text.contains("slices")
    };
    let limits: Vec<&'static str> = LIMITS.iter().filter(some).copied().collect();
    let limits = prop::collection::vec(prop::sample::select(limits), 1..4);
    limits.prop_map(|limits| Ruled { limits, mode: "hard" })
}

/// A turn among nodes that lease.
pub(super) fn leased_turn() -> impl Strategy<Value = Turn> {
    let change = (0..KEYS, leasable(), keep()).prop_map(|(key, rule, keep)| Event::Change {
        key,
        rule,
        keep,
    });
    let event = prop_oneof![10 => lease(), 10 => event(), 1 => change];
    (on(), event).prop_map(|(on, event)| Turn { on, event })
}

fn lease() -> impl Strategy<Value = Event> {
    let late = prop_oneof![8 => Just(0u64), 1 => 1..4u64];
    let percent = || prop_oneof![4 => Just(0u64), 4 => 0..60u64, 2 => Just(100u64)];
    let ttl = prop_oneof![
        4 => 1..3_000_000u64,
        2 => 0..20_000_000u64,
        1 => 0..4_000_000_000u64,
    ];
    let want = prop_oneof![3 => Just(0u64), 4 => 1..30u64, 2 => cost()];
    let one = (0..KEYS, 1..4u64, late, percent(), percent(), want, ttl);
    let one = one.prop_map(|(key, node, late, give, hold, want, ttl)| {
        let node = node.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Leasing { key, node, late, give, hold, want, ttl: Span::from_micros(ttl) }
    });
    prop::collection::vec(one, 1..4).prop_map(|mut all| {
        let mut seen = Vec::new();
        all.retain(|leasing| {
            !seen.contains(&leasing.key) && {
                seen.push(leasing.key);
                true
            }
        });
        Event::Lease(all)
    })
}

pub(super) fn turn() -> impl Strategy<Value = Turn> {
    (on(), event()).prop_map(|(on, event)| Turn { on, event })
}

/// Not a step, but to where the next window of ten seconds begins.
pub(super) const NEXT_EDGE: i64 = i64::MAX;
pub(super) const EDGE_EVERY: i64 = 10_000_000;

/// The lengths of windows, to the microsecond.
const EDGES: [i64; 9] =
    [1, 1_500, 2_000_000, 3_000_000, 5_000_000, 10_000_000, 9_999_999, 10_000_001, 20_000_000];

fn on() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => Just(0i64),
        6 => 0..200_000i64,
        6 => 0..20_000_000i64,
        4 => prop::sample::select(&EDGES[..]),
        3 => Just(NEXT_EDGE),
        2 => 0..200_000_000_000i64,
        1 => 0..4_000_000_000_000i64,
        2 => -3_000_000..0i64,
        1 => -200_000_000_000..0i64,
        1 => -40_000_000_000_000..0i64,
    ]
}

/// Logs with several windows.
pub(super) fn logs() -> [Ruled; KEYS] {
    let log = |text| Ruled { limits: vec![text], mode: "hard" };
    [
        log("{ algorithm: sliding_log, rates: [10/m, 2 per 3s], min_gap: 1s }"),
        log("{ algorithm: sliding_log, rates: [9/m, 6 per 20s, 4 per 5s] }"),
        log("{ algorithm: sliding_log, rates: [20 per 10s, 9 per 2s], count_denied: true }"),
    ]
}

/// Windows of slices.
pub(super) fn slices() -> [Ruled; KEYS] {
    let sliced = |text| Ruled { limits: vec![text], mode: "hard" };
    [
        sliced("{ algorithm: sliding_window, rate: 5 per 10s, slices: 2 }"),
        sliced("{ algorithm: sliding_window, rate: 6 per 15s, slices: 3 }"),
        sliced("{ algorithm: sliding_window, rate: 9 per 12s, slices: 12 }"),
    ]
}

pub(super) fn hit_on_an_edge() -> impl Strategy<Value = Turn> {
    let on = prop::sample::select(&[0i64, 0, 1_000_000, 2_000_000, 3_000_000, 5_000_000][..]);
    (on, 0..KEYS, 1..3u64).prop_map(|(on, key, cost)| {
        let part = AskedPart { key, cost, spare_capacity: false, combine: Combine::Independent };
        let asked = Asked { op: ScriptOp::Hit, parts: vec![part], holder: None, count: 1 };
        Turn { on, event: Event::Asks(vec![asked]) }
    })
}

fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => Just(1u64),
        6 => 0..12u64,
        1 => Just(EXACT_MAX),
        1 => 0..=EXACT_MAX,
        1 => (0..54u32).prop_map(|bits| (1u64 << bits) - 1),
        1 => Just(1u64 << 60),
    ]
}

fn holder() -> impl Strategy<Value = Holder> {
    (0..4u64).prop_map(|n| Holder(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn event() -> impl Strategy<Value = Event> {
    let keys = || prop::sample::subsequence((0..KEYS).collect::<Vec<_>>(), 1..=KEYS);
    prop_oneof![
        20 => prop::collection::vec(asked(), 1..4).prop_map(Event::Asks),
        2 => lease(),
        8 => (op(), keys(), any::<bool>()).prop_map(|(op, keys, spare_capacity)| Event::Long { op, keys, spare_capacity }),
        1 => (0..KEYS, holder()).prop_map(|(key, holder)| Event::Renew { key, holder }),
        1 => (0..KEYS, holder()).prop_map(|(key, holder)| Event::Forget { key, holder }),
        1 => (0..KEYS, ruled(), keep()).prop_map(|(key, rule, keep)| Event::Change { key, rule, keep }),
    ]
}

fn keep() -> impl Strategy<Value = CarryOver> {
    prop::sample::select(
        &[CarryOver::Used, CarryOver::Remaining, CarryOver::Proportion, CarryOver::Nothing][..],
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let op = prop_oneof![
        10 => Just(ScriptOp::Hit),
        1 => Just(ScriptOp::Charge),
        2 => Just(ScriptOp::Refund),
    ];
    let combine = prop::sample::select(
        &[Combine::Independent, Combine::Quota, Combine::AllOrNothing, Combine::AllOrNothing][..],
    );
    let part = (0..KEYS, cost(), any::<bool>(), combine).prop_map(
        |(key, cost, spare_capacity, combine)| AskedPart { key, cost, spare_capacity, combine },
    );
    let count = prop_oneof![6 => Just(1u32), 2 => 2..6u32];
    (op, prop::collection::vec(part, 1..4), prop::option::weighted(0.9, holder()), count).prop_map(
        |(op, mut parts, holder, count)| {
            // All-or-nothing parts have distinct identities.
            let mut seen = Vec::new();
            for part in parts.iter_mut().filter(|part| part.combine == Combine::AllOrNothing) {
                if seen.contains(&part.key) {
                    part.combine = Combine::Independent;
                }
                seen.push(part.key);
            }
            Asked { op, parts, holder, count }
        },
    )
}

/// Any operation of the core.
fn op() -> impl Strategy<Value = Op> {
    let span = || (0..30_000_000u64).prop_map(Span::from_micros);
    prop_oneof![
        (cost(), prop::option::of(holder())).prop_map(|(cost, holder)| Op::Hit { cost, holder }),
        cost().prop_map(|cost| Op::Peek { cost }),
        cost().prop_map(|cost| Op::Take { cost }),
        cost().prop_map(|cost| Op::Charge { cost }),
        cost().prop_map(|cost| Op::Refund { cost }),
        (cost(), any::<bool>()).prop_map(|(cost, force)| Op::Add { cost, force }),
        Just(Op::Drain),
        Just(Op::Reset),
        (cost(), span(), prop::option::of(holder()))
            .prop_map(|(cost, patience, holder)| Op::Acquire { cost, max_wait: patience, holder }),
        (cost(), span(), holder()).prop_map(|(cost, ttl, holder)| Op::Reserve {
            cost,
            ttl,
            holder
        }),
        (cost(), holder()).prop_map(|(cost, holder)| Op::Commit { cost, holder }),
        (cost(), holder()).prop_map(|(cost, holder)| Op::CommitPart { cost, holder }),
        (span(), holder()).prop_map(|(ttl, holder)| Op::Renew { ttl, holder }),
        holder().prop_map(|holder| Op::Cancel { holder }),
    ]
}
