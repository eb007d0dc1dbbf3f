//! An engine whose counters are in Redis says what one with its own memory says, request by request.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::backend::{Backend, Call};
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use sluicegate::rules::unit::Unit;
use sluicegate::{
    Checked, Engine, Holder, Operation, Span, Status, Timestamp, new_holder, rules_of,
};
use sluicegate_redis::{Address, Link, LinkOptions, RedisBackend, Store, StoreOptions};
use sluicegate_testkit::RULES_OF_EVERY_ALGORITHM;
use sluicegate_testkit::redis::Single;
use std::time::Duration;

const KEYS: [&str; 14] = [
    "user",
    "address",
    "api_key",
    "queue",
    "path",
    "shared",
    "quota",
    "other_quota",
    "slot",
    "softly",
    "watched",
    "smooth",
    "warming",
    "pooled",
];

#[derive(Debug, Clone)]
struct Asked {
    later_us: u64,
    want: Want,
    descriptors: Vec<(usize, usize, Option<u64>, Option<u32>)>,
    hits: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Check,
    Peek,
    Refund,
    Reset,
    Reserve,
    Commit,
    CommitPart,
    Renew,
    /// A check whose slots are released by its id.
    Hold,
    /// A reservation that may wait, of what is there at once.
    ReserveWaiting,
    Cancel,
    Inspect,
}

fn asked() -> impl Strategy<Value = Asked> {
    let want = prop_oneof![
        12 => Just(Want::Check),
        2 => Just(Want::Peek),
        2 => Just(Want::Refund),
        1 => Just(Want::Reset),
        3 => Just(Want::Reserve),
        2 => Just(Want::Commit),
        2 => Just(Want::CommitPart),
        2 => Just(Want::Renew),
        2 => Just(Want::Hold),
        2 => Just(Want::ReserveWaiting),
        2 => Just(Want::Cancel),
        1 => Just(Want::Inspect),
    ];
    let later = prop_oneof![3 => Just(0u64), 4 => 1u64..900_000, 2 => 1_000_000u64..20_000_000];
    let hits = prop_oneof![6 => Just(1u64), 2 => 2u64..5, 1 => Just(0), 1 => Just(1_000)];
    let limit = prop_oneof![9 => Just(None), 1 => (0u32..4).prop_map(Some)];
    let own = prop_oneof![8 => Just(None), 1 => (0u64..4).prop_map(Some)];
    let descriptor = (0..KEYS.len(), 0usize..2, own, limit);
    let descriptors = prop_oneof![
        5 => prop::collection::vec(descriptor.clone(), 1..2),
        3 => prop::collection::vec(descriptor, 2..5),
    ];
    (later, want, descriptors, hits).prop_map(|(later_us, want, descriptors, hits)| Asked {
        later_us,
        want,
        descriptors,
        hits,
    })
}

struct Both {
    own: Engine,
    shared: Engine<RedisBackend>,
    clock: ManualClock,
    held: Vec<(Asked, Holder)>,
    next: u64,
}

impl Both {
    fn new(redis: &Single, namespace: &str) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let engine = || {
            Engine::builder(rules_of(RULES_OF_EVERY_ALGORITHM).expect("it answers"))
                .clock(clock.clone())
                .build()
                .expect("it answers")
        };
        let options = LinkOptions { timeout: Duration::from_secs(20), ..LinkOptions::default() };
        let link = Link::open(Address::parse(redis.url()).expect("it answers"), options)
            .expect("it answers");
        let (namespace, given) = (namespace.to_owned(), std::sync::Arc::new(clock.clone()));
        let store = Store::new(
            link,
            StoreOptions { namespace, clock: Some(given), ..StoreOptions::default() },
        );
        let shared = RedisBackend::attach(engine(), store);
        Self { own: engine(), shared, clock, held: Vec::new(), next: 1 }
    }

    /// Asks both; what each of them said.
    async fn ask(&mut self, asked: &Asked) -> (String, String) {
        let now = self.own.now().after(Span::from_micros(asked.later_us));
        self.clock.set(now);
        let mut asked = asked.clone();
        let mut holder = Holder(self.next);
        self.next += 1;
        match asked.want {
            Want::Reserve | Want::Hold | Want::ReserveWaiting => {
                self.held.push((asked.clone(), holder));
            }
            Want::CommitPart | Want::Renew if !self.held.is_empty() => {
                let (want, place) = (asked.want, asked.hits as usize % self.held.len());
                let hits = asked.hits;
                (asked, holder) = self.held[place].clone();
                (asked.want, asked.hits) = (want, hits);
            }
            Want::Commit | Want::Cancel if !self.held.is_empty() => {
                let (want, place) = (asked.want, asked.hits as usize % self.held.len());
                let hits = asked.hits;
                (asked, holder) = self.held.remove(place);
                (asked.want, asked.hits) = (want, hits);
            }
            _ => {}
        }
        let values = ["/abc", "/b"];
        let entries: Vec<[Entry<'_>; 1]> = asked
            .descriptors
            .iter()
            .map(|(key, value, ..)| [Entry::new(KEYS[*key], values[*value])])
            .collect();
        let descriptors: Vec<Descriptor<'_>> = asked
            .descriptors
            .iter()
            .zip(&entries)
            .map(|((_, _, hits, limit), entries)| {
                let limit = limit
                    .map(|requests_per_unit| Override { requests_per_unit, unit: Unit::Minute });
                Descriptor { hits: *hits, limit, ..Descriptor::of(entries) }
            })
            .collect();
        let request = Request { domain: "shop", descriptors: &descriptors, hits: asked.hits };
        let (rules, mut own) = (self.own.snapshot(), Checked::default());
        let (theirs, mut shared) = (self.shared.snapshot(), Checked::default());
        let call = |rules| Call::new(rules, &request, now);
        let (one, other) = (
            run(&self.own, asked.want, call(&rules), holder, &mut own).await,
            run(&self.shared, asked.want, call(&theirs), holder, &mut shared).await,
        );
        if asked.want == Want::Inspect {
            return (one, other);
        }
        let told = |checked: &Checked, more: &str| {
            let statuses: Vec<&Status> = checked.statuses.iter().collect();
            format!("{} {more} {statuses:#?}", checked.allowed)
        };
        let errs = one.starts_with("Err");
        // What is refused says nothing about how things stand.
        if errs { (one, other) } else { (told(&own, &one), told(&shared, &other)) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_keeps_is_what_memory_keeps() {
    let redis = Single::start();
    let mut runner = TestRunner::new(Config::default());
    for round in 0..24 {
        let mut both = Both::new(&redis, &format!("round{round}"));
        let requests =
            prop::collection::vec(asked(), 60).new_tree(&mut runner).expect("it answers").current();
        for (place, asked) in requests.iter().enumerate() {
            let (own, shared) = both.ask(asked).await;
            assert_eq!(own, shared, "request {place} of {:#?}", &requests[..=place]);
        }
        assert_eq!(both.shared.backend().store().stats().disagreements, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_has_come_is_forgotten_and_its_slot_is_held() {
    const BOTH: &str = "
domain: shop
descriptors:
  - key: both
    limits:
      - { algorithm: token_bucket, rate: 1/s, burst: 1 }
      - { algorithm: concurrency, max: 1, lease: 60s }
";
    let redis = Single::start();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let rules = rules_of(BOTH).expect("rules");
    let engine = Engine::builder(rules).clock(clock.clone()).build().expect("an engine");
    let options = LinkOptions { timeout: Duration::from_secs(20), ..LinkOptions::default() };
    let address = Address::parse(redis.url()).expect("an address");
    let link = Link::open(address, options).expect("a link");
    let given = std::sync::Arc::new(clock.clone());
    let store = Store::new(link, StoreOptions { clock: Some(given), ..StoreOptions::default() });
    let shared = RedisBackend::attach(engine, store);

    let entries = [Entry::new("both", "x")];
    let descriptors = [Descriptor::of(&entries)];
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
    let (one, other) = (new_holder(), new_holder());
    let waited = shared.wait(&request, one, Span::ZERO).await.expect("it answers");
    assert!(waited.checked.allowed && waited.has_slot);
    let record = redis.cli(&["GET", "sg:1:{shop|both=x}"]);
    assert!(record.contains(':') && !record.contains('@'), "nothing is pending: {record}");

    clock.advance(Duration::from_secs(1));
    let waited = shared.wait(&request, other, Span::ZERO).await.expect("it answers");
    assert!(!waited.checked.allowed, "the slot is in use");
    let (snapshot, mut checked) = (shared.snapshot(), Checked::default());
    let freed = shared.cancel(shared.call(&snapshot, &request), one, &mut checked).await;
    assert_eq!(freed, Ok(1));
    let waited = shared.wait(&request, other, Span::ZERO).await.expect("it answers");
    assert!(waited.checked.allowed && waited.has_slot);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_waited_for_is_settled() {
    const WINDOW: &str = "
domain: llm
descriptors:
  - key: tokens
    limits: { algorithm: fixed_window, rate: 1000/m }
";
    let redis = Single::start();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_040_000_000));
    let rules = rules_of(WINDOW).expect("rules");
    let engine = Engine::builder(rules).clock(clock.clone()).build().expect("an engine");
    let options = LinkOptions { timeout: Duration::from_secs(20), ..LinkOptions::default() };
    let link = Link::open(Address::parse(redis.url()).expect("an address"), options);
    let options =
        StoreOptions { clock: Some(std::sync::Arc::new(clock.clone())), ..StoreOptions::default() };
    let shared = RedisBackend::attach(engine, Store::new(link.expect("a link"), options));

    let entries = [Entry::new("tokens", "alice")];
    let descriptors = [Descriptor::of(&entries)];
    let request = |hits| Request { domain: "llm", descriptors: &descriptors, hits };
    assert!(shared.check_async(&request(800)).await.expect("it answers").allowed);
    let (holder, estimate) = (new_holder(), request(800));
    let (ttl, timeout) = (Span::from_secs(30), Span::from_secs(90));
    let waiting = shared.reserve_waiting(&estimate, holder, ttl, timeout);
    let next_window = async {
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(60));
    };
    let (waited, ()) = tokio::join!(waiting, next_window);
    assert!(waited.expect("it answers").checked.allowed);
    let (snapshot, mut checked) = (shared.snapshot(), Checked::default());
    let used = request(250);
    let returned = shared.commit(shared.call(&snapshot, &used), holder, &mut checked).await;
    assert_eq!(returned, Ok(550));
    assert_eq!(checked.statuses[0].verdict.remaining, Some(750));
}

/// Requests that share a script call with a corrupt record get their own answers.
#[tokio::test]
async fn a_corrupt_record_fails_no_other_request() {
    const LOG: &str = "
domain: shop
descriptors:
  - key: user
    limits: { algorithm: sliding_log, rate: 5/m }
";
    let redis = Single::start();
    let engine = Engine::new(rules_of(LOG).expect("rules")).expect("an engine");
    let options = LinkOptions { timeout: Duration::from_secs(20), ..LinkOptions::default() };
    let link = Link::open(Address::parse(redis.url()).expect("an address"), options);
    let store = Store::new(link.expect("a link"), StoreOptions::default());
    let shared = RedisBackend::attach(engine, store);
    let check = async |user: usize| {
        let value = user.to_string();
        let entries = [Entry::new("user", &value)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 2 };
        let checked = shared.check_async(&request).await.expect("it answers");
        checked.statuses[0].verdict.remaining
    };
    assert_eq!(check(0).await, Some(3));
    // seen:sum:denied:first:last:sequence
    let (key, set) = ("sg:1:{shop|user=0}", "sg:1:{shop|user=0}:1");
    let record = redis.cli(&["GET", key]);
    let mut numbers: Vec<&str> = record.split(':').collect();
    let before = (numbers[4].parse::<u64>().expect("a time") - 1).to_string();
    numbers[1] = "4";
    redis.cli(&["SET", key, &numbers.join(":")]);
    redis.cli(&["ZADD", set, &before, "foreign"]);
    let all = futures_util::future::join_all((0..16).map(&check)).await;
    assert_eq!(all, [Some(3); 16], "the corrupt record counts as empty");
    assert_eq!(check(0).await, Some(1), "and was replaced");
    let stats = shared.backend().store().stats();
    assert_eq!((stats.corrupt, stats.disagreements), (1, 0));
}

/// Runs an operation on an engine; its result as text.
async fn run<B: Backend>(
    engine: &Engine<B>,
    want: Want,
    call: Call<'_>,
    holder: Holder,
    checked: &mut Checked,
) -> String {
    let operation = match want {
        Want::Check => Operation::Hit,
        Want::Peek => Operation::Peek,
        Want::Refund => Operation::Refund,
        Want::Reset => Operation::Reset,
        Want::Reserve => {
            let ttl = Span::from_secs(3);
            return format!("{:?}", engine.reserve(call, holder, ttl, checked).await);
        }
        Want::ReserveWaiting => {
            let ttl = Span::from_secs(3);
            let waited = engine.reserve_waiting(call.request, holder, ttl, Span::ZERO).await;
            return match waited {
                Ok(waited) => {
                    *checked = waited.checked;
                    format!("{:?} {:?}", waited.waited, checked.allowed && waited.has_slot)
                }
                Err(error) => format!("Err({error:?})"),
            };
        }
        Want::CommitPart => {
            return format!("{:?}", engine.commit_part(call, holder, checked).await);
        }
        Want::Renew => {
            let ttl = Span::from_secs(2);
            return format!("{:?}", engine.renew(call, holder, ttl, checked).await);
        }
        Want::Hold => {
            let call = Call { holder: Some(holder), ..call };
            engine.apply(Operation::Hit, call, checked).await.expect("it answers");
            return String::new();
        }
        Want::Commit => return format!("{:?}", engine.commit(call, holder, checked).await),
        Want::Cancel => return format!("{:?}", engine.cancel(call, holder, checked).await),
        Want::Inspect => {
            return format!("{:#?}", engine.inspect(call).await.expect("it answers"));
        }
    };
    engine.apply(operation, call, checked).await.expect("it answers");
    String::new()
}
