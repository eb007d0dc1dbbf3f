//! How long a request waits for the store, on virtual time.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use redis::Value;
use sluicegate::backend::Call;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Operation, Timestamp, rules_of};
use sluicegate_redis::{
    CallError, Link, RedisBackend, Store, StoreOptions, Transport, TransportCall,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A store whose replies take a while.
#[derive(Debug)]
struct Slow {
    store: Mutex<sluicegate_sim::store::Store>,
    delay: Mutex<Duration>,
    /// Whether it answers other calls meanwhile.
    is_alive: Mutex<bool>,
}

impl Transport for Slow {
    fn call(&self, sent: TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        let TransportCall { script, keys, args } = sent;
        let reply = self.store.lock().run(script, &keys, &args, START.as_micros());
        let delay = *self.delay.lock();
        Box::pin(async move {
            sleep(delay).await;
            reply.map_err(|why| CallError::Refused(why.into()))
        })
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn changed(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn is_up(&self) -> bool {
        *self.is_alive.lock()
    }
}

struct Node {
    transport: Arc<Slow>,
    engine: Engine<RedisBackend>,
}

impl Node {
    /// A node that has observed that one of ten is used.
    async fn start() -> Self {
        let transport = Arc::new(Slow {
            store: Mutex::new(sluicegate_sim::store::Store::new().unwrap()),
            delay: Mutex::new(Duration::ZERO),
            is_alive: Mutex::new(true),
        });
        let clock = ManualClock::at(START);
        let rules = "domain: shop\ndescriptors: [{ key: user, limits: { algorithm: fixed_window, rate: 10/year } }]";
        let engine = Engine::builder(rules_of(rules).unwrap()).clock(clock.clone()).build();
        let options =
            StoreOptions { clock: Some(Arc::new(clock)), seed: Some(1), ..StoreOptions::default() };
        let store = Store::new(Link::with_transport(transport.clone()), options);
        let node = Self { transport, engine: RedisBackend::attach(engine.unwrap(), store) };
        node.check().await;
        node
    }

    fn is_slow(&self, millis: u64, is_alive: bool) {
        *self.transport.delay.lock() = Duration::from_millis(millis);
        *self.transport.is_alive.lock() = is_alive;
    }

    /// What is left after one more, and how long the answer took in milliseconds.
    async fn check(&self) -> (i64, u128) {
        self.check_within(None).await
    }

    async fn check_within(&self, deadline: Option<Instant>) -> (i64, u128) {
        self.check_user("ada", deadline).await
    }

    async fn check_user(&self, user: &str, deadline: Option<Instant>) -> (i64, u128) {
        let entries = [Entry::new("user", user)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        let asked = Instant::now();
        let (rules, mut checked) = (self.engine.snapshot(), Checked::default());
        let call = self.engine.call(&rules, &request);
        let call = Call { deadline: deadline.map(Instant::into_std), ..call };
        self.engine.apply(Operation::Hit, call, &mut checked).await.unwrap();
        assert!(checked.allowed);
        (checked.statuses[0].verdict.remaining.unwrap(), asked.elapsed().as_millis())
    }

    fn local_decisions(&self) -> u64 {
        self.engine.backend().store().stats().fallbacks().map(|(_, count)| count).sum()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_alive_is_waited_for() {
    let node = Node::start().await;
    node.is_slow(350, true);
    assert_eq!(node.check().await, (8, 350));
    assert_eq!(node.local_decisions(), 0);
    // But not for ever.
    node.is_slow(600, true);
    assert_eq!(node.check().await.1, 400);
    assert_eq!(node.local_decisions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_is_waited_for_one_timeout() {
    let node = Node::start().await;
    node.is_slow(600, false);
    assert_eq!(node.check().await, (8, 100));
    assert_eq!(node.local_decisions(), 1);
    // The reply arrives late, and nothing is charged twice.
    sleep(Duration::from_secs(2)).await;
    node.is_slow(0, true);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(node.check().await, (7, 0));
    assert_eq!(node.engine.backend().store().link().stats().late_replies, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_gets_its_answer_before_it_stops_waiting() {
    let node = Node::start().await;
    node.is_slow(350, true);
    let deadline = Instant::now() + Duration::from_millis(15);
    assert_eq!(node.check_within(Some(deadline)).await, (8, 15));
    assert_eq!(node.local_decisions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_time_out_is_not_paid_by_requests_that_came_later_into_the_same_batch() {
    let node = Node::start().await;
    let later = |millis| sleep(Duration::from_millis(millis));
    let calls = || node.engine.backend().store().link().stats().calls;
    // As many calls as are in flight at once; the next batch waits for them.
    node.is_slow(90, true);
    let in_flight = join_all(["a", "b", "c"].into_iter().enumerate().map(|(millis, user)| {
        let (node, later) = (&node, later(millis as u64));
        async move {
            later.await;
            node.check_user(user, None).await
        }
    }));
    let first = async {
        later(3).await;
        node.check_user("first", None).await
    };
    let second = async {
        later(80).await;
        node.is_slow(600, false);
        let before = calls();
        let took = node.check_user("second", None).await;
        (took, calls() - before)
    };
    let (in_flight, first, (second, sent)) = tokio::join!(in_flight, first, second);
    assert_eq!(in_flight, [(9, 90); 3]);
    assert_eq!(sent, 1, "both are in one call");
    assert_eq!((first.1, second.1), (100, 100), "each waits for its own timeout");
    assert_eq!(node.local_decisions(), 2);
}
