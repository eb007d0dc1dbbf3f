//! The Redis in memory says what a real one says, and has the same in it.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::Value;
use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Checked, Engine, Holder, Operation, Span, Timestamp, rules_of};
use sluicegate_redis::{
    Address, CallError, Link, LinkOptions, RedisBackend, Store, StoreOptions, Transport,
    TransportCall,
};
use sluicegate_sim::SimRng;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::{RULES_OF_EVERY_ALGORITHM, Reply};
use tokio::sync::watch;

const KEYS: [&str; 8] =
    ["user", "address", "api_key", "queue", "path", "slot", "watched", "warming"];
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// Straight to the store, at once.
#[derive(Debug)]
struct Straight(Arc<Mutex<sluicegate_sim::store::Store>>);

impl Transport for Straight {
    fn call(&self, sent: TransportCall) -> BoxFuture<'static, Result<Value, CallError>> {
        let TransportCall { script, keys, args } = sent;
        let said = self.0.lock().run(script, &keys, &args, START.as_micros());
        Box::pin(async move { said.map_err(|why| CallError::Refused(why.into())) })
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn changed(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(20)
    }
}

fn engine(link: Link, clock: &ManualClock) -> Engine<RedisBackend> {
    let rules = rules_of(RULES_OF_EVERY_ALGORITHM).unwrap();
    let engine = Engine::builder(rules).clock(clock.clone()).build().unwrap();
    let options =
        StoreOptions { clock: Some(Arc::new(clock.clone())), seed: Some(1), ..Default::default() };
    RedisBackend::attach(engine, Store::new(link, options))
}

/// Does something by chance; what was said.
async fn ask(engine: &Engine<RedisBackend>, mut rng: SimRng, step: u64) -> String {
    let count = rng.within(1, 3);
    let entries: Vec<[Entry<'_>; 1]> =
        (0..count).map(|_| [Entry::new(rng.choose(&KEYS), rng.choose(&["a", "b"]))]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::of(entries)).collect();
    let hits = rng.choose(&[1, 1, 1, 2, 3, 0]);
    let request = Request { domain: "shop", descriptors: &descriptors, hits };
    let (rules, mut checked) = (engine.snapshot(), Checked::default());
    let holder = Holder(step);
    let said = match rng.within(0, 9) {
        // A hit that holds a slot does so under an id that nobody can guess: here it is told.
        0..=4 if entries.iter().all(|entries| entries[0].key != "slot") => {
            format!(
                "{:?}",
                engine.apply(Operation::Hit, engine.call(&rules, &request), &mut checked).await
            )
        }
        0..=6 => {
            let ttl = Span::from_secs(2);
            format!(
                "{:?}",
                engine.reserve(engine.call(&rules, &request), holder, ttl, &mut checked).await
            )
        }
        7 => format!(
            "{:?}",
            engine.apply(Operation::Peek, engine.call(&rules, &request), &mut checked).await
        ),
        8 => format!(
            "{:?}",
            engine.apply(Operation::Refund, engine.call(&rules, &request), &mut checked).await
        ),
        _ => format!(
            "{:?}",
            engine.apply(Operation::Reset, engine.call(&rules, &request), &mut checked).await
        ),
    };
    format!("{said} {checked:?}")
}

fn keyspace(server: &Single) -> Vec<String> {
    let text = |command: &[&str]| match server.command(command) {
        Reply::Text(text) | Reply::Status(text) => text,
        other => panic!("{command:?}: {other:?}"),
    };
    let many = |command: &[&str]| -> Vec<String> {
        let Reply::Array(replies) = server.command(command) else { panic!("{command:?}") };
        let text = |reply| match reply {
            Reply::Text(text) => text,
            other => panic!("{command:?}: {other:?}"),
        };
        replies.into_iter().map(text).collect()
    };
    let mut all = BTreeMap::new();
    for key in many(&["KEYS", "*"]) {
        let value = match text(&["TYPE", &key]).as_str() {
            "string" => text(&["GET", &key]),
            "zset" => {
                let members = many(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]);
                let pairs = members.as_chunks::<2>().0.iter();
                pairs.map(|[name, score]| format!("{name}={score}")).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{key} is a {other}"),
        };
        all.insert(key.clone(), format!("{key} {value}"));
    }
    all.into_values().collect()
}

#[test]
fn the_redis_in_memory_is_one() {
    let server = Single::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = ManualClock::at(START);
        let memory = sluicegate_sim::store::Store::new().unwrap();
        let memory = Arc::new(Mutex::new(memory));
        let ours = engine(Link::with_transport(Arc::new(Straight(memory.clone()))), &clock);
        let ample = LinkOptions { timeout: Duration::from_secs(20), ..LinkOptions::default() };
        let link = Link::open(Address::parse(server.url()).unwrap(), ample).unwrap();
        let theirs = engine(link, &clock);
        let mut rng = SimRng::new(1, "redis");
        // Who is there, and what they are asked for, is told by the real time.
        let is_told = |line: &String| !line.starts_with("sg:1:{nodes}");
        for step in 0..1_500 {
            clock.advance(Duration::from_millis(rng.choose(&[0, 0, 7, 90, 700, 3_000])));
            let own = SimRng::new(rng.number(), "ask");
            let (one, other) = (ask(&ours, own.clone(), step).await, ask(&theirs, own, step).await);
            assert_eq!(one, other, "step {step}");
            if step % 50 == 0 {
                let here: Vec<_> = memory.lock().text().into_iter().filter(is_told).collect();
                let there: Vec<_> = keyspace(&server).into_iter().filter(is_told).collect();
                assert_eq!(here, there, "step {step}");
                assert!(step == 0 || here.len() > 8, "{here:?}");
            }
        }
    });
}
