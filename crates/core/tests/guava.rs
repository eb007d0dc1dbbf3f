//! Guava's `SmoothRateLimiter`, transcribed from its definition in floats, call by call.
//!
//! Guava keeps whole microseconds and cuts every price down to one; the core carries the fraction of the
//! stable price and rounds the premium up. Both choices add up over a run, in opposite directions, so what
//! is compared is each call: both start from the same moment the limiter is free, and must price the call
//! within two microseconds of each other. What is stored is never brought into line, and must not drift.
//!
//! One allowance: a change of the rate counts what is stored, kept as time, in other fractions of a
//! microsecond, and rounds it against the client: down for a bursty limiter, up (colder) for one that warms
//! up. That is less than a microsecond of stored time for each change since the limiter was last empty, or
//! full, and no more in a call's price than the steepest price of so much: see [`Kind::cut`].

mod support;

use proptest::prelude::*;
use sluicegate_core::change::CarryOver;
use sluicegate_core::limit::Limit;
use support::limits::{smooth, warm_up};
use support::{SECOND, World, acquire, at};

const FOR_EVER: u64 = 1 << 52;
/// How far two prices of a call may lie apart, in microseconds.
const PRICE: f64 = 2.0;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Bursty { max_burst: u64 },
    WarmingUp { warm_up: u64, cold_factor: u64 },
}

impl Kind {
    /// By how much the price of a call may change with a microsecond of stored time.
    fn cut(&self) -> f64 {
        match self {
            Self::Bursty { .. } => 1.0,
            Self::WarmingUp { cold_factor, .. } => {
                // The premium of all that is above the threshold, by what is above the threshold.
                let c = *cold_factor as f64 / 1_000.0;
                (c - 1.0) * (c + 5.0) / (2.0 * (c + 1.0))
            }
        }
    }
}

/// A float transcription. Times in microseconds.
#[derive(Debug)]
struct Guava {
    kind: Kind,
    stable_interval: f64,
    stored_permits: f64,
    max_permits: f64,
    threshold_permits: f64,
    slope: f64,
    next_free_ticket: f64,
}

impl Guava {
    fn new(kind: Kind, (count, period): (u64, u64), now: u64) -> Self {
        let mut guava = Self {
            kind,
            stable_interval: 0.0,
            stored_permits: 0.0,
            max_permits: 0.0,
            threshold_permits: 0.0,
            slope: 0.0,
            next_free_ticket: now as f64,
        };
        guava.set_rate((count, period), now);
        guava
    }

    fn set_rate(&mut self, (count, period): (u64, u64), now: u64) {
        if self.max_permits > 0.0 {
            self.resync(now);
        }
        self.stable_interval = period as f64 / count as f64;
        let old_max = self.max_permits;
        match self.kind {
            Kind::Bursty { max_burst } => {
                self.max_permits = max_burst as f64 / self.stable_interval;
                self.stored_permits = match old_max {
                    0.0 => 0.0,
                    _ => self.stored_permits * self.max_permits / old_max,
                };
            }
            Kind::WarmingUp { warm_up, cold_factor } => {
                let warm_up = warm_up as f64;
                let cold_interval = self.stable_interval * cold_factor as f64 / 1_000.0;
                self.threshold_permits = 0.5 * warm_up / self.stable_interval;
                self.max_permits =
                    self.threshold_permits + 2.0 * warm_up / (self.stable_interval + cold_interval);
                self.slope = (cold_interval - self.stable_interval)
                    / (self.max_permits - self.threshold_permits);
                self.stored_permits = match old_max {
                    0.0 => self.max_permits,
                    _ => self.stored_permits * self.max_permits / old_max,
                };
            }
        }
    }

    fn cool_down_interval(&self) -> f64 {
        match self.kind {
            Kind::Bursty { .. } => self.stable_interval,
            Kind::WarmingUp { warm_up, .. } => warm_up as f64 / self.max_permits,
        }
    }

    fn resync(&mut self, now: u64) {
        let now = now as f64;
        if now > self.next_free_ticket {
            let new_permits = (now - self.next_free_ticket) / self.cool_down_interval();
            self.stored_permits = self.max_permits.min(self.stored_permits + new_permits);
            self.next_free_ticket = now;
        }
    }

    /// Whether what was rounded in changes of the rate is of no account any more: there is nothing
    /// stored to be less, or no room to be colder.
    fn forgets(&self) -> bool {
        match self.kind {
            Kind::Bursty { .. } => self.stored_permits <= 0.0,
            Kind::WarmingUp { .. } => self.stored_permits >= self.max_permits,
        }
    }

    /// When the call is granted, and what it makes the next one wait.
    fn reserve(&mut self, permits: u64, now: u64) -> (f64, f64) {
        self.resync(now);
        let granted = self.next_free_ticket;
        let from_stored = self.stored_permits.min(permits as f64);
        let fresh = permits as f64 - from_stored;
        let price = self.stored_to_wait_time(from_stored) + fresh * self.stable_interval;
        self.next_free_ticket += price;
        self.stored_permits -= from_stored;
        (granted, price)
    }

    fn stored_to_wait_time(&self, permits_to_take: f64) -> f64 {
        if matches!(self.kind, Kind::Bursty { .. }) {
            return 0.0;
        }
        let above = self.stored_permits - self.threshold_permits;
        let mut price = 0.0;
        let mut rest = permits_to_take;
        if above > 0.0 {
            let taken = above.min(permits_to_take);
            let to_time = |permits: f64| self.stable_interval + permits * self.slope;
            price = taken * (to_time(above) + to_time(above - taken)) / 2.0;
            rest -= taken;
        }
        price + self.stable_interval * rest
    }

    fn limit(&self, (count, period): (u64, u64)) -> Limit {
        match self.kind {
            Kind::Bursty { max_burst } => smooth(count, period, max_burst),
            Kind::WarmingUp { warm_up: time, cold_factor } => {
                warm_up(count, period, time, cold_factor)
            }
        }
    }
}

/// A call after a pause, or a change of the rate.
#[derive(Debug, Clone, Copy)]
enum Call {
    Acquire { pause: u64, permits: u64 },
    SetRate { pause: u64, rate: (u64, u64) },
}

fn rates() -> impl Strategy<Value = (u64, u64)> {
    (1u64..100, 1_000u64..3 * SECOND)
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pause = prop_oneof![3 => Just(0u64), 3 => 0u64..SECOND, 1 => 0..30 * SECOND];
    let acquire = (pause.clone(), prop_oneof![3 => Just(1u64), 1 => 1u64..60])
        .prop_map(|(pause, permits)| Call::Acquire { pause, permits });
    let set_rate = (pause, rates()).prop_map(|(pause, rate)| Call::SetRate { pause, rate });
    prop::collection::vec(prop_oneof![9 => acquire, 1 => set_rate], 1..60)
}

/// The moment the limiter is free, as a caller would be told.
fn free_at(world: &World, now: u64) -> u64 {
    now + world.would(acquire(1, FOR_EVER), now).wait()
}

fn agree(kind: Kind, first: (u64, u64), calls: Vec<Call>) -> Result<(), TestCaseError> {
    let mut now = 1_700_000_000_000_000;
    let mut guava = Guava::new(kind, first, now);
    let mut world = World::hard(guava.limit(first));
    // Guava's limiter is made before it is used; an identity is new with its first call.
    let made = Call::Acquire { pause: 0, permits: 1 };
    let mut allowance = PRICE;
    for call in std::iter::once(made).chain(calls) {
        match call {
            Call::SetRate { pause, rate } => {
                now += pause;
                allowance += kind.cut();
                let new = World::hard(guava.limit(rate)).plan;
                guava.set_rate(rate, now);
                world.account.change(&world.plan, &new, &[Some(0)], CarryOver::Used, at(now));
                world.plan = new;
                let free = free_at(&world, now);
                prop_assert!(
                    (free as f64 - guava.next_free_ticket).abs() <= 1.0,
                    "booked time stays"
                );
            }
            Call::Acquire { pause, permits } => {
                now += pause;
                let free = free_at(&world, now);
                let decision = world.ask(acquire(permits, FOR_EVER), now);
                guava.resync(now);
                if guava.forgets() {
                    allowance = PRICE;
                }
                let (granted, price) = guava.reserve(permits, now);
                prop_assert_eq!(now + decision.wait(), free);
                prop_assert!(
                    (granted - free as f64).abs() <= 1.0,
                    "granted at {}, not {}",
                    free,
                    granted
                );
                let ours = free_at(&world, now) as f64 - free as f64;
                prop_assert!(
                    (ours - price).abs() <= allowance,
                    "{:?} cost {}, not {}",
                    call,
                    ours,
                    price
                );
                // Both go on from the same moment.
                guava.next_free_ticket = free_at(&world, now) as f64;
                let stored = guava.stored_permits.floor();
                let left = decision.remaining.unwrap_or(0) as f64;
                prop_assert!(
                    (left - stored).abs() <= 1.0,
                    "{} stored, not {}",
                    left,
                    guava.stored_permits
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(support::cases(1_500))]

    #[test]
    fn a_bursty_limiter_prices_each_call_as_guava_does(
        max_burst in prop_oneof![Just(SECOND), 1u64..10 * SECOND], rate in rates(), calls in calls(),
    ) {
        agree(Kind::Bursty { max_burst }, rate, calls)?;
    }

    #[test]
    fn a_warming_up_limiter_prices_each_call_as_guava_does(
        warm_up in prop_oneof![1u64..1_000, 1_000u64..20 * SECOND, 1u64..3_600 * SECOND],
        cold_factor in prop_oneof![Just(3_000u64), 1_000u64..20_000, 1_000u64..=100_000],
        rate in rates(),
        calls in calls(),
    ) {
        agree(Kind::WarmingUp { warm_up, cold_factor }, rate, calls)?;
    }
}

#[test]
fn a_cold_limiter_asks_the_price_of_guavas_own_example() {
    // 2 permits a second, warming up over 4 seconds, cold factor 3: threshold 4, maximum 8 permits; the
    // area over [4, 8] is the warm-up period, over [0, 4] half of it.
    let mut world = World::hard(warm_up(2, SECOND, 4 * SECOND, 3_000));
    let mut now = SECOND;
    let mut prices = Vec::new();
    for _ in 0..10 {
        let decision = world.ask(acquire(1, FOR_EVER), now);
        now += decision.wait();
        prices.push(decision.wait());
    }
    let due =
        [0, 1_375_000, 1_125_000, 875_000, 625_000, 500_000, 500_000, 500_000, 500_000, 500_000];
    for (price, due) in prices.iter().zip(due) {
        assert!(price.abs_diff(due) <= 2, "{prices:?}");
    }
    assert!(prices[1..5].iter().sum::<u64>().abs_diff(4 * SECOND) <= 4, "the warm-up period");
}
