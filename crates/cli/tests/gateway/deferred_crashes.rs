//! Deferred requests across crashes of gateways and of Redis, and between nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use sluicegate_testkit::redis::{Options, Single};
use sluicegate_testkit::until;

use crate::deferred::{Deferring, Delivered, QUEUE, RULES, location, post, try_post};
use crate::gateway::Gateway;
use crate::support::http::get;

/// Sends requests until so many are acknowledged, while gateways and stores are killed. Each that
/// was acknowledged arrives, and what arrives again has the same key.
fn survives(place: &str, store: Option<&Single>, acknowledged_min: u64) {
    const CLIENTS: u64 = 4;
    let more: Vec<&str> = store.map_or(Vec::new(), |store| vec!["--store", store.url()]);
    let it = Deferring::start(place, "{ per_identity: { count: 1000 } }", &more);
    let Deferring { mut gateway, recorder, config, folder: _folder, upstream: _upstream } = it;
    let address = gateway.address.clone();
    let (acknowledged, next) = (Mutex::new(BTreeSet::new()), AtomicU64::new(0));
    let count = || acknowledged.lock().unwrap().len() as u64;
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while count() < acknowledged_min {
                    let number = next.fetch_add(1, Relaxed);
                    let (user, body) = (format!("user{}", number % 10), number.to_string());
                    let headers = [("x-user", user.as_str())];
                    match try_post(&address, "/jobs/a", &headers, &body) {
                        Some(text) if text.starts_with("HTTP/1.1 202") => {
                            acknowledged.lock().unwrap().insert(body);
                        }
                        Some(_) => {}
                        // It is down, and restarted soon.
                        None => until("it is back", || TcpStream::connect(&address).ok().map(drop)),
                    }
                }
            });
        }
        let restart =
            || Gateway::start(&[&["--config", &config, "--listen", &address], &more[..]].concat());
        until("a third is acknowledged", || (count() >= acknowledged_min / 3).then_some(()));
        gateway.process.kill();
        gateway = restart();
        let two_thirds = 2 * acknowledged_min / 3;
        until("two thirds are acknowledged", || (count() >= two_thirds).then_some(()));
        if let Some(store) = store {
            store.kill();
            store.restart();
        }
        gateway.process.kill();
        gateway = restart();
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    let missing = || {
        let arrived: BTreeSet<String> = recorder.bodies().into_iter().collect();
        acknowledged.iter().filter(|body| !arrived.contains(*body)).count()
    };
    // As long as requests arrive, it goes on.
    let mut left = missing();
    while left > 0 {
        until("more requests arrive", || Some(missing()).filter(|now| *now < left));
        left = missing();
    }
    let mut keys = BTreeMap::<String, BTreeSet<String>>::new();
    let requests = recorder.requests.lock().unwrap();
    for one in requests.iter().filter(|one| acknowledged.contains(&one.body)) {
        keys.entry(one.body.clone()).or_default().insert(one.key().to_owned());
    }
    assert_eq!(keys.len(), acknowledged.len(), "each was delivered");
    assert!(keys.values().all(|keys| keys.len() == 1), "repetitions have the same key");
    let repeated = requests.len() - recorder_unique(&requests);
    println!("{} acknowledged, {} arrived, {repeated} again", acknowledged.len(), requests.len());
}

fn recorder_unique(requests: &[Delivered]) -> usize {
    requests.iter().map(|one| &one.body).collect::<BTreeSet<_>>().len()
}

#[test]
fn nothing_is_lost_when_the_gateway_is_killed() {
    survives("deferred.redb", None, 1_000);
}

#[test]
fn nothing_is_lost_when_gateway_and_redis_are_killed() {
    let redis = Single::with(Options { appendonly: true, ..Options::default() });
    survives("{ store: redis }", Some(&redis), 1_000);
}

#[test]
fn nodes_on_one_redis_share_tickets_and_queues() {
    let redis = Single::with(Options { appendonly: true, ..Options::default() });
    let mut it = Deferring::start("{ store: redis }", QUEUE, &["--store", redis.url()]);
    let other = Gateway::start(&["--config", &it.config, "--store", redis.url()]);
    assert_eq!(it.post("/slow/a", "alice", "").status, 201);
    let deferred = it.post("/slow/a", "alice", "later");
    let path = location(&deferred).to_owned();
    let ticket = get(&other.address, &path, &[]);
    assert!(ticket.status == 200 && ticket.body.contains("\"queued\""), "{ticket:?}");
    let behind = post(&other.address, "/slow/a", &[("x-user", "alice")], "behind");
    assert!(behind.body.contains("\"position\":1"), "{}", behind.body);
    // The node that owns the queue goes away, and the limit is gone: the other one sends it.
    it.gateway.process.kill();
    it.folder.file("rules.yaml", &RULES.replace("1/year", "1000/s"));
    until("the other node sends it", || {
        (get(&other.address, &path, &[]).body.contains("\"done\"")).then_some(())
    });
    let bodies = it.recorder.bodies();
    assert_eq!(&bodies[..2], ["", "later"]);
}
