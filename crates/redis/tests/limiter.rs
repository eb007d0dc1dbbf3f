//! A limiter on Redis is the limiter on memory: the same code, the same answers, the same clock.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::backend::{Backend, StoreFailure};
use sluicegate::clock::ManualClock;
use sluicegate::limit::{
    Concurrency, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use sluicegate::{
    Builder, Consistency, CounterStore, Denied, Engine, Event, Holder, LimitError, Limiter,
    Listener, Memory, OnStoreFailure, Op, Span, rules_of,
};
use sluicegate_redis::{LinkOptions, Redis, RedisBackend};
use sluicegate_testkit::redis::Single;

const LONG: Duration = Duration::from_secs(20);

async fn connect(server: &Single) -> Redis {
    let link = LinkOptions { timeout: LONG, ..LinkOptions::default() };
    let redis = Redis::builder(server.url()).link(link).connect().expect("a handle");
    assert!(redis.connected(LONG).await, "no connection");
    redis
}

fn logins() -> Builder {
    Limiter::builder().name("logins").limit(FixedWindow::per_day(3).named("daily"))
}

/// Every kind of limiter, by its name.
fn builders() -> Vec<Builder> {
    let new = |name: &str| Limiter::builder().name(name);
    vec![
        new("bucket").limit(TokenBucket::per_second(2).burst(5)),
        new("window").limit(FixedWindow::per_minute(4)),
        new("sliding").limit(SlidingWindow::per_minute(4)),
        new("log").limit(SlidingLog::per_minute(4)),
        new("leaky").limit(LeakyBucket::per_second(2).queue(3)),
        new("slots").limit(Concurrency::at_most(2).lease(Duration::from_secs(30))),
        new("both").limit(TokenBucket::per_second(2).burst(5)).limit(FixedWindow::per_day(9)),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Hit,
    HitWithId,
    Peek,
    Take,
    Charge,
    Refund,
    Add,
    Drain,
    Reset,
    Reserve,
    Commit,
    Cancel,
}

fn step() -> impl Strategy<Value = (Step, u64, u64, u64)> {
    use Step::*;
    let step = prop_oneof![
        6 => Just(Hit), 2 => Just(HitWithId), 2 => Just(Peek), 1 => Just(Take), 1 => Just(Charge),
        1 => Just(Refund), 1 => Just(Add), 1 => Just(Drain), 1 => Just(Reset), 2 => Just(Reserve),
        2 => Just(Commit), 2 => Just(Cancel),
    ];
    // A denial is cached for 100 ms: its remaining quota is that of its time.
    let later_us = prop_oneof![Just(0u64), 100_000u64..900_000, 1_000_000u64..20_000_000];
    (step, 0u64..4, 1u64..4, later_us)
}

/// The answer to a step, as text.
async fn run<B: Backend>(
    limiter: &Limiter<B>,
    (step, cost, id, _): (Step, u64, u64, u64),
) -> String {
    fn text(answer: &impl Debug) -> String {
        format!("{answer:?}")
    }
    let (ops, holder) = (limiter.of("alice").cost(cost), Holder(id));
    match step {
        Step::Hit => text(&ops.hit_async().await),
        Step::HitWithId => text(&ops.ask_async(Op::Hit { cost, holder: Some(holder) }).await),
        Step::Peek => text(&ops.peek_async().await),
        Step::Take => text(&ops.take_async().await),
        Step::Charge => text(&ops.charge_async().await),
        Step::Refund => text(&ops.refund_async().await),
        Step::Add => text(&ops.add_async().await),
        Step::Drain => text(&ops.drain_async().await),
        Step::Reset => text(&ops.reset_async().await),
        Step::Reserve => {
            let ttl = Span::from_secs(3);
            text(&ops.ask_async(Op::Reserve { cost, ttl, holder }).await)
        }
        Step::Commit => text(&ops.ask_async(Op::Commit { cost, holder }).await),
        Step::Cancel => text(&ops.ask_async(Op::Cancel { holder }).await),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_memory_answer_the_same() {
    let server = Single::start();
    let redis = connect(&server).await;
    let mut runner = TestRunner::new(Config::default());
    for round in 0..6 {
        server.cli(&["FLUSHALL"]);
        for (one, other) in builders().into_iter().zip(builders()) {
            let clock = ManualClock::new();
            clock.advance(Duration::from_secs(86_400 * round));
            let memory = one.clock(clock.clone()).on(&Memory::new()).expect("on memory");
            let shared = other.clock(clock.clone()).on(&redis).expect("on Redis");
            assert_eq!(memory.policies(), shared.policies());
            let steps = prop::collection::vec(step(), 40).new_tree(&mut runner);
            let steps = steps.expect("steps").current();
            for (index, step) in steps.iter().enumerate() {
                clock.advance(Duration::from_micros(step.3));
                let (one, other) = (run(&memory, *step).await, run(&shared, *step).await);
                let (name, so_far) = (shared.name(), &steps[..=index]);
                assert_eq!(one, other, "`{name}`, step {index} of {so_far:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_repeated_denial_has_the_quota_that_remains_now() {
    let server = Single::start();
    let redis = connect(&server).await;
    let limiter = logins().clock(ManualClock::new()).on(&redis).expect("a limiter");
    let remaining = async |cost| {
        let verdict = limiter.of("alice").cost(cost).hit_async().await.expect("an answer");
        verdict.remaining
    };
    assert_eq!(remaining(4).await, Some(3), "denied");
    assert_eq!(remaining(1).await, Some(2));
    assert_eq!(remaining(4).await, Some(2), "denied again");
}

#[tokio::test]
async fn processes_share_what_has_the_same_name() {
    let server = Single::start();
    let clock = ManualClock::new();
    let nodes = [connect(&server).await, connect(&server).await];
    let limiters: Vec<Limiter<RedisBackend>> = nodes
        .iter()
        .map(|node| logins().clock(clock.clone()).on(node).expect("a limiter"))
        .collect();
    for (node, left) in [(0, 2), (1, 1), (0, 0)] {
        let verdict = limiters[node].hit_async("alice").await.expect("an answer");
        assert_eq!((verdict.is_allowed(), verdict.remaining), (true, Some(left)));
    }
    let denied = limiters[1].hit_async("alice").await.expect("an answer");
    assert!(!denied.is_allowed());
    assert_eq!(limiters[1].decided_by(&denied).expect("a limit").name, "daily");
    assert_eq!(server.cli(&["EXISTS", "sg:1:{@limiter|logins=alice}"]).trim(), "1");
    clock.advance(Duration::from_secs(86_400));
    assert!(limiters[0].hit_async("alice").await.expect("an answer").is_allowed());
    assert!(limiters[0].hit_async("").await.expect("an answer").is_allowed(), "the empty key");
}

#[tokio::test]
async fn keys_of_any_bytes_are_distinct() {
    let server = Single::start();
    let redis = connect(&server).await;
    let limiter = Limiter::builder().name("once").limit(FixedWindow::per_year(1)).on(&redis);
    let limiter = limiter.expect("a limiter");
    let keys: [&[u8]; 6] = [b"\xff", b"\xfe", b"\0bytes:ff", b"ff", b"\xff\xff", b"{@|= }"];
    for admits in [true, false] {
        for key in keys {
            let verdict = limiter.hit_async(key).await.expect("an answer");
            assert_eq!(verdict.is_allowed(), admits, "{key:?}");
        }
    }
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let server = Single::start();
    let redis = connect(&server).await;
    let first = logins().on(&redis).expect("the first");
    let error = logins().on(&redis.clone()).expect_err("the second");
    assert_eq!(error, LimitError::NameTaken { name: "logins".to_owned() });
    assert!(error.to_string().contains("`logins`"), "{error}");
    let clone = first.clone();
    drop(first);
    assert!(logins().on(&redis).is_err(), "a clone has it");
    drop(clone);
    logins().on(&redis).expect("it is free again");
    let nameless = Limiter::builder().limit(FixedWindow::per_day(3)).on(&redis);
    assert_eq!(nameless.expect_err("no name"), LimitError::NameMissing);
    let without_limits = Limiter::builder().name("nothing").on(&redis);
    assert!(without_limits.expect_err("no limits").to_string().contains("number of limits"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_slot_has_the_same_estimate_on_every_store() {
    async fn waits(store: &impl CounterStore) -> Vec<Option<Span>> {
        let (clock, lease) = (ManualClock::new(), Duration::from_secs(60));
        let slots = Limiter::builder().name("slots").limit(Concurrency::at_most(1).lease(lease));
        let limiter = slots.clock(clock.clone()).on(store).expect("a limiter");
        let mut waits = Vec::new();
        let reserve = || async { limiter.of("alice").reserve_for_async(lease).await };
        let first = reserve().await.expect("a slot");
        waits.push(reserve().await.expect_err("none is free").retry_after());
        clock.advance(Duration::from_secs(8));
        first.commit_async(1).await.expect("it is held");
        let second = reserve().await.expect("a slot");
        for seconds in [3, 25] {
            clock.advance(Duration::from_secs(seconds));
            waits.push(reserve().await.expect_err("none is free").retry_after());
            let permit = limiter.of("alice").within(Duration::ZERO).permit_async().await;
            waits.push(permit.expect_err("none is free").retry_after());
            waits.push(limiter.hit_async("alice").await.expect("an answer").retry_after());
        }
        second.commit_async(1).await.expect("it is held");
        waits
    }

    let server = Single::start();
    let redis = connect(&server).await;
    let on_redis = waits(&redis).await;
    assert_eq!(on_redis, [60, 5, 5, 5, 20, 20, 20].map(|s| Some(Span::from_secs(s))));
    assert_eq!(on_redis, waits(&Memory::new()).await);
}

/// The bounds of waits are real time: the store's clock decides.
#[tokio::test]
async fn guards_release_on_drop() {
    let server = Single::start();
    let redis = connect(&server).await;
    let slots = Limiter::builder().name("slots").limit(Concurrency::at_most(1)).on(&redis);
    let slots = slots.expect("a limiter");
    let permit = slots.of("alice").permit_async().await.expect("a slot");
    permit.renew_async().await.expect("still held");
    let at_once = slots.of("alice").within(Duration::ZERO);
    assert!(matches!(at_once.permit_async().await, Err(Denied::NotNow(_))));
    // Not on a thread of the runtime.
    std::thread::spawn(move || drop(permit)).join().expect("no panic");
    let next = slots.of("alice").within(LONG).permit_async().await.expect("it is free again");
    assert!(next.verdict().is_allowed());

    let tokens = Limiter::builder().name("tokens").limit(TokenBucket::per_day(1_000)).on(&redis);
    let tokens = tokens.expect("a limiter");
    let reservation = tokens.of("team").cost(400).reserve_async().await.expect("a reservation");
    assert_eq!(reservation.verdict().remaining, Some(600));
    let settled = reservation.commit_async(150).await.expect("settled");
    assert_eq!(settled.remaining, Some(850));
    let acquired = tokens.of("team").cost(50).acquire().await.expect("a turn");
    assert!(acquired.is_allowed());
    assert_eq!(tokens.of("team").peek_async().await.expect("an answer").remaining, Some(800));
}

#[tokio::test]
async fn a_lost_store_follows_the_policy_of_the_limiter() {
    use OnStoreFailure::{Allow, Deny, Error, Local};

    let server = Single::start();
    let redis = connect(&server).await;
    let of = |policy: OnStoreFailure| {
        let builder = Limiter::builder().name(format!("{policy:?}")).on_store_failure(policy);
        builder.limit(FixedWindow::per_year(1)).on(&redis).expect("a limiter")
    };
    let limiters = [Allow, Deny, Error, Local].map(of);
    server.kill();
    let mut answers = Vec::new();
    for limiter in &limiters {
        for _ in 0..2 {
            answers.push(limiter.hit_async("alice").await.map(|verdict| verdict.is_allowed()));
        }
    }
    let down = |answer: &Result<bool, StoreFailure>| answer.is_err();
    assert_eq!(answers[..4], [Ok(true), Ok(true), Ok(false), Ok(false)]);
    assert!(answers[4..6].iter().all(down), "{answers:?}");
    assert_eq!(answers[6..], [Ok(true), Ok(false)], "this node's share");
    let reserved: Vec<_> = [
        limiters[0].of("bob").reserve_async().await.map(|_| ()),
        limiters[1].of("bob").reserve_async().await.map(|_| ()),
        limiters[2].of("bob").reserve_async().await.map(|_| ()),
    ]
    .into();
    assert!(reserved[0].is_ok(), "{reserved:?}");
    assert!(matches!(reserved[1], Err(Denied::NotNow(_))), "{reserved:?}");
    assert!(matches!(reserved[2], Err(Denied::Store(_))), "{reserved:?}");
}

#[tokio::test]
async fn levels_are_options_of_the_limiter() {
    let server = Single::start();
    let redis = connect(&server).await;
    let sync_interval = Span::from_millis(100);
    for (name, consistency) in
        [("leased", Consistency::Leased), ("eventual", Consistency::Eventual { sync_interval })]
    {
        let limiter = Limiter::builder()
            .name(name)
            .limit(FixedWindow::per_day(1_000))
            .consistency(consistency)
            .on(&redis)
            .expect("a limiter");
        assert!(limiter.hit_async("alice").await.expect("an answer").is_allowed());
        let refunded = limiter.of("alice").refund_async().await.expect("an answer");
        assert!(refunded.is_allowed());
        let reserved = limiter.of("alice").reserve_async().await;
        assert_eq!(reserved.is_err(), name == "eventual", "{reserved:?}");
        if let Err(denied) = reserved {
            assert!(denied.to_string().contains("eventual"), "{denied}");
        }
        limiter.engine().expect("an engine").backend().close().await;
    }
}

#[tokio::test]
async fn listeners_get_the_decisions() {
    #[derive(Default)]
    struct Denials(parking_lot::Mutex<Vec<String>>);
    impl Listener for Denials {
        fn decided(&self, event: &Event<'_>) {
            let key = String::from_utf8_lossy(event.key.unwrap_or_default()).into_owned();
            let allowed = event.verdict.is_allowed();
            self.0.lock().push(format!("{} {:?} {key} {allowed}", event.limiter, event.op));
        }
    }

    let server = Single::start();
    let redis = connect(&server).await;
    let log = std::sync::Arc::new(Denials::default());
    let limiter = logins().listener(log.clone()).on(&redis).expect("a limiter");
    assert!(limiter.of("alice").cost(3).hit_async().await.expect("an answer").is_allowed());
    assert!(!limiter.hit_async("alice").await.expect("an answer").is_allowed());
    assert_eq!(*log.0.lock(), ["logins Hit alice true", "logins Hit alice false"]);
}

/// The engine has the same constructor, and shares the connections.
#[tokio::test]
async fn engines_are_built_on_the_same_handle() {
    use sluicegate::rules::request::{Descriptor, Entry, Request};

    async fn admitted(store: &impl CounterStore, clock: &ManualClock) -> Vec<bool> {
        let rules = rules_of(
            "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 2/day }
",
        );
        let engine = Engine::builder(rules.expect("rules")).clock(clock.clone());
        let engine = engine.on(store).expect("an engine");
        let entries = [Entry::new("user", "alice")];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        let mut admitted = Vec::new();
        for _ in 0..3 {
            admitted.push(engine.check_async(&request).await.expect("an answer").allowed);
        }
        clock.advance(Duration::from_secs(86_400));
        admitted.push(engine.check_async(&request).await.expect("an answer").allowed);
        admitted
    }

    let server = Single::start();
    let redis = connect(&server).await;
    let on_memory = admitted(&Memory::new(), &ManualClock::new()).await;
    let on_redis = admitted(&redis, &ManualClock::new()).await;
    assert_eq!(on_memory, [true, true, false, true]);
    assert_eq!(on_redis, on_memory);
    let connections = redis.link().stats().servers.len();
    assert_eq!(connections, 1, "one pool");
}

/// A limiter may be built on a thread outside of the runtime.
#[test]
fn limiters_are_built_outside_of_the_runtime() {
    let server = Single::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio");
    let redis = runtime.block_on(connect(&server));
    let limiter = logins().on(&redis).expect("a limiter");
    let verdict = runtime.block_on(limiter.hit_async("alice")).expect("an answer");
    assert_eq!(verdict.remaining, Some(2));
    assert!(matches!(Redis::connect(server.url()), Err(sluicegate_redis::LinkError::NoRuntime)));
}
