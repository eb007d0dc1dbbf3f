//! Waiting requests on a virtual clock.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use sluicegate::backend::{Backend, Call};
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, rules_of};
use sluicegate_config::gateway::route::{OnLimit, ShapeConfig};
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

use super::*;
use crate::body::RequestBody;
use crate::error::ProxyError;

const STEP: Duration = Duration::from_millis(1);

/// A limit that is shaped, and the requests that wait for it.
#[derive(Clone)]
struct Shaper {
    engine: Engine<dyn Backend>,
    clock: ManualClock,
    queues: Rc<Queues>,
    config: Rc<ShapeConfig>,
}

impl Shaper {
    /// One limit for all clients, and one for each.
    fn new(all: &str, each: &str, config: ShapeConfig) -> Self {
        let rules = format!(
            "domain: api
descriptors:
  - {{ key: all, limits: {{ {all} }}, on_limit: shape }}
  - {{ key: client, limits: {{ {each} }}, on_limit: shape }}
  - {{ key: urgent, limits: {{ algorithm: fixed_window, rate: 1000000/s }}, priority: 9 }}
"
        );
        let clock = ManualClock::new();
        let builder = Engine::builder(rules_of(&rules).unwrap()).clock(clock.clone());
        let (queues, config) = (Rc::default(), Rc::new(config));
        Self { engine: builder.build().unwrap().into(), clock, queues, config }
    }

    /// Decides a request of a client, as the gateway does.
    async fn admit(&self, client: u64, is_urgent: bool) -> Result<bool, ProxyError> {
        let name = client.to_string();
        let of_client = [Entry::new("client", &name)];
        let (all, urgent) = ([Entry::new("all", "")], [Entry::new("urgent", "")]);
        let descriptors =
            [Descriptor::of(&all), Descriptor::of(&of_client), Descriptor::of(&urgent)];
        let descriptors = if is_urgent { &descriptors[..] } else { &descriptors[..2] };
        let request = Request { domain: "api", descriptors, hits: 1 };
        let (queues, config) = (&*self.queues, &*self.config);
        let shaping = Shaping { queues, on_limit: OnLimit::Rules, config, client };
        let blocked = {
            let (rules, now) = (self.engine.snapshot(), self.engine.now());
            match shaping.occupied(&rules, &request) {
                Some(blocked) => blocked,
                None => {
                    let mut checked = Checked::default();
                    let call = Call { retries: true, ..Call::new(&rules, &request, now) };
                    assert!(self.engine.check_now(&call, &mut checked));
                    if checked.allowed {
                        return Ok(true);
                    }
                    let Some(blocked) = shaping.blocked(&rules, &checked, now) else {
                        return Ok(false);
                    };
                    blocked
                }
            }
        };
        let mut body = RequestBody::Empty;
        let waited = shaping.wait(&self.engine, &request, &mut body, false, blocked).await?;
        Ok(matches!(waited, Waited::Turn { .. }))
    }

    /// A request on a task of its own.
    fn spawn(&self, client: u64, is_urgent: bool) -> JoinHandle<bool> {
        let shaper = self.clone();
        spawn_local(async move { shaper.admit(client, is_urgent).await.unwrap() })
    }

    /// Moves the clock on.
    async fn advance(&self, time: Duration) {
        for _ in 0..time.as_micros() / STEP.as_micros() {
            self.clock.advance(STEP);
            self.settle().await;
        }
    }

    async fn settle(&self) {
        for _ in 0..6 {
            yield_now().await;
        }
    }
}

fn config(queue_max: usize, max_wait: Duration) -> ShapeConfig {
    ShapeConfig { queue_max, max_wait, ..ShapeConfig::default() }
}

const UNLIMITED: &str = "algorithm: fixed_window, rate: 1000000/s";

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn clients_with_different_demand_get_equal_shares_and_the_rate_is_exact() {
    run(async {
        let minute = Duration::from_secs(60);
        let time = Duration::from_secs(10);
        let shaper = Shaper::new(
            "algorithm: token_bucket, rate: 300/s, burst: 1",
            UNLIMITED,
            config(1_000, minute * 60),
        );
        let served = Rc::new(RefCell::new([0_u32; 3]));
        for (client, requests) in [(0, 1), (1, 1), (2, 100)] {
            for _ in 0..requests {
                let (shaper, served) = (shaper.clone(), served.clone());
                spawn_local(async move {
                    while shaper.admit(client as u64, false).await.unwrap() {
                        served.borrow_mut()[client] += 1;
                    }
                });
            }
        }
        shaper.settle().await;
        *served.borrow_mut() = [0; 3];
        shaper.advance(time).await;
        let served = *served.borrow();
        let total: u32 = served.iter().sum();
        assert!(total.abs_diff(3_000) <= 3, "300/s for ten seconds: {served:?}");
        let spread = served.iter().max().unwrap() - served.iter().min().unwrap();
        assert!(spread <= 2, "{served:?}");
    });
}

#[test]
fn a_full_queue_of_one_client_leaves_room_for_the_others() {
    run(async {
        let limit = "algorithm: token_bucket, rate: 30/s, burst: 1";
        let shaper = Shaper::new(limit, UNLIMITED, config(10, Duration::from_secs(10)));
        let served = Rc::new(RefCell::new([0_u32; 3]));
        // Demands of 1 : 1 : 100, each above its share of ten a second.
        for millis in 0..10_000 {
            for (client, every) in [(0, 50), (1, 50), (2, 1)] {
                if millis % every == 0 {
                    let count = if client == 2 { 2 } else { 1 };
                    for _ in 0..count {
                        let (shaper, served) = (shaper.clone(), served.clone());
                        spawn_local(async move {
                            let is_served = shaper.admit(client as u64, false).await.unwrap();
                            served.borrow_mut()[client] += u32::from(is_served);
                        });
                    }
                }
            }
            shaper.advance(STEP).await;
        }
        let served = *served.borrow();
        let total: u32 = served.iter().sum();
        assert!(total.abs_diff(300) <= 3, "30/s for ten seconds: {served:?}");
        assert!(served.iter().all(|one| one.abs_diff(100) <= 3), "{served:?}");
    });
}

#[test]
fn a_client_that_leaves_costs_nobody_a_turn() {
    run(async {
        let second = Duration::from_secs(1);
        let limit = "algorithm: token_bucket, rate: 1/s, burst: 1";
        let shaper = Shaper::new(limit, UNLIMITED, config(100, second * 60));
        assert!(shaper.admit(0, false).await.unwrap());
        let waiting: Vec<_> = (1..=4).map(|client| shaper.spawn(client, false)).collect();
        shaper.settle().await;
        assert_eq!(shaper.queues.waiting(), 4);
        // The first has its turn booked, the third is in the middle.
        shaper.advance(Duration::from_millis(980)).await;
        waiting[0].abort();
        waiting[2].abort();
        shaper.settle().await;
        assert_eq!(shaper.queues.waiting(), 2);
        shaper.advance(Duration::from_millis(20)).await;
        assert!(waiting[1].is_finished(), "in the turn that was the first one's");
        shaper.advance(second).await;
        assert!(waiting[3].is_finished());
        assert!(shaper.queues.is_empty());
    });
}

#[test]
fn a_turn_that_nobody_takes_is_returned() {
    run(async {
        let limit = "algorithm: token_bucket, rate: 1/s, burst: 1";
        let shaper = Shaper::new(limit, UNLIMITED, config(100, Duration::from_secs(60)));
        assert!(shaper.admit(0, false).await.unwrap());
        let only = shaper.spawn(1, false);
        shaper.advance(Duration::from_millis(980)).await;
        only.abort();
        shaper.advance(Duration::from_millis(20)).await;
        assert!(shaper.queues.is_empty());
        let next = shaper.spawn(2, false);
        shaper.settle().await;
        assert!(next.is_finished(), "the turn of the second second was cancelled");
    });
}

#[test]
fn a_request_whose_turn_comes_too_late_is_denied_at_once() {
    run(async {
        let limit = "algorithm: token_bucket, rate: 1/s, burst: 1";
        let shaper = Shaper::new(limit, UNLIMITED, config(100, Duration::from_secs(3)));
        assert!(shaper.admit(0, false).await.unwrap());
        let waiting: Vec<_> = (0..6).map(|_| shaper.spawn(1, false)).collect();
        shaper.settle().await;
        let denied = waiting.iter().filter(|one| one.is_finished()).count();
        assert_eq!((denied, shaper.queues.waiting()), (3, 3));
        let other = shaper.spawn(2, false);
        shaper.advance(Duration::from_secs(3)).await;
        assert!(other.await.unwrap(), "the second turn is another client's");
        assert!(shaper.queues.is_empty());
        let mut admitted = 0;
        for one in waiting {
            admitted += u32::from(one.await.unwrap());
        }
        assert_eq!(admitted, 2, "two of the three turns, the third was its last moment");
    });
}

#[test]
fn the_highest_priority_goes_first() {
    run(async {
        let limit = "algorithm: token_bucket, rate: 1/s, burst: 1";
        let shaper = Shaper::new(limit, UNLIMITED, config(100, Duration::from_secs(60)));
        assert!(shaper.admit(0, false).await.unwrap());
        let plain = shaper.spawn(1, false);
        shaper.settle().await;
        let urgent = shaper.spawn(2, true);
        shaper.advance(Duration::from_secs(1)).await;
        assert!(urgent.is_finished() && !plain.is_finished());
        shaper.advance(Duration::from_secs(1)).await;
        assert!(plain.is_finished());
    });
}

#[test]
fn a_client_over_its_own_limit_does_not_delay_the_others() {
    run(async {
        let each = "algorithm: token_bucket, rate: 1/s, burst: 1";
        let all = "algorithm: token_bucket, rate: 10/s, burst: 1";
        let shaper = Shaper::new(all, each, config(100, Duration::from_secs(60)));
        let greedy: Vec<_> = (0..5).map(|_| shaper.spawn(1, false)).collect();
        let others: Vec<_> = (2..=10).map(|client| shaper.spawn(client, false)).collect();
        shaper.advance(Duration::from_millis(1_050)).await;
        assert!(others.iter().all(JoinHandle::is_finished), "ten a second for all");
        assert_eq!(greedy.iter().filter(|one| one.is_finished()).count(), 2, "one a second");
    });
}

#[test]
fn requests_beyond_a_window_wait_for_the_next_one() {
    run(async {
        let limit = "algorithm: fixed_window, rate: 2/s";
        let shaper = Shaper::new(limit, UNLIMITED, config(100, Duration::from_secs(60)));
        let all: Vec<_> = (0..6).map(|client| shaper.spawn(client, false)).collect();
        shaper.settle().await;
        let done = || all.iter().filter(|one| one.is_finished()).count();
        let first = done();
        assert_eq!(first, 2);
        shaper.advance(Duration::from_secs(1)).await;
        assert_eq!(done(), 4);
        shaper.advance(Duration::from_secs(1)).await;
        assert_eq!(done(), 6);
    });
}

#[test]
fn a_released_slot_goes_to_the_first_request() {
    run(async {
        let limit = "algorithm: concurrency, max: 1, lease: 1h";
        let shaper = Shaper::new(limit, UNLIMITED, config(100, Duration::from_secs(60)));
        let (queues, waiting) = (shaper.queues.clone(), shaper.spawn(1, false));
        shaper.settle().await;
        assert!(waiting.is_finished(), "the slot is free");
        let next = shaper.spawn(2, false);
        shaper.advance(Duration::from_millis(10)).await;
        assert!(!next.is_finished());
        let (all, client) = ([Entry::new("all", "")], [Entry::new("client", "1")]);
        let descriptors = [Descriptor::of(&all), Descriptor::of(&client)];
        shaper
            .engine
            .apply(
                sluicegate::Operation::Reset,
                shaper.engine.call(
                    &shaper.engine.snapshot(),
                    &Request { domain: "api", descriptors: &descriptors, hits: 1 },
                ),
                &mut Checked::default(),
            )
            .await
            .unwrap();
        queues.slot_released();
        shaper.settle().await;
        assert!(next.is_finished());
    });
}
