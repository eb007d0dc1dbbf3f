//! Nodes that tell each other what they counted: how much more than the limit passes, measured
//! beside its bound.
//!
//! Each client asks at times that no answer can move. In which window an answer was counted it says
//! itself, by when that window ends.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sluicegate_testkit::redis::Single;

use crate::client::{Answer, Client};
use crate::fleet::Fleet;
use crate::levels::now;

const INTERVALS_MS: [u64; 3] = [20, 100, 500];
/// Of all nodes together, whatever their number.
const CLIENTS: usize = 8;
/// Between two questions of a client.
const STEP: Duration = Duration::from_millis(8);
const WINDOW: Duration = Duration::from_secs(2);
/// Filled within 600 ms.
const LIMIT: u64 = 600;
/// Who was not denied in two windows by then asks less than the limit allows.
const QUESTIONS_MAX: u32 = 5_000;
/// What a call to the store may take, at least.
const CALL: Duration = Duration::from_millis(50);

fn rules() -> String {
    let rule = |ms| {
        format!(
            "
  - key: every{ms}
    consistency: {{ eventual: {{ sync_interval: {ms}ms }} }}
    limits: {{ algorithm: fixed_window, rate: {LIMIT}/2s }}
    on_store_failure: error
"
        )
    };
    INTERVALS_MS.map(rule).concat()
}

#[test]
fn two_nodes() {
    stay_within_their_bound(2);
}

#[test]
fn four_nodes() {
    stay_within_their_bound(4);
}

#[test]
fn eight_nodes() {
    stay_within_their_bound(8);
}

fn stay_within_their_bound(nodes: usize) {
    let server = Single::start();
    let fleet = Fleet::start(nodes, server.url(), &rules());
    println!("nodes  interval  limit  passed  over  bound  slowest");
    for ms in INTERVALS_MS {
        let asked = format!(r#"{{"every{ms}":"ada"}}"#);
        let heard = drive(&fleet, &asked);
        let slowest = heard.iter().map(|heard| heard.took).max().unwrap();
        // A call may take as long as an answer may: it is the same machine.
        let unheard = Duration::from_millis(ms) + slowest.max(CALL);
        let passed = by_window(&heard).into_values().max().unwrap();
        let bound = (nodes - 1) * most_of_a_node(&heard, nodes, unheard);
        let over = passed.saturating_sub(LIMIT);
        let slowest = slowest.as_millis();
        println!("{nodes:5} {ms:6} ms {LIMIT:6} {passed:7} {over:5} {bound:6} {slowest:5} ms");
        assert!(passed >= LIMIT, "demand was far above the limit: {passed} passed");
        assert!(over <= bound as u64, "{over} over, {bound} at most");
    }
    fleet.trusts_its_store();
}

/// An answer.
struct Heard {
    node: usize,
    is_allowed: bool,
    /// Since all began.
    at: Duration,
    took: Duration,
    /// The end of the window that it speaks of, since all began.
    ends: Duration,
}

/// Everybody asks for a while. What they were answered.
fn drive(fleet: &Fleet, asked: &str) -> Vec<Heard> {
    let began = now();
    let mut all = Vec::new();
    thread::scope(|scope| {
        let run = |client: usize| {
            let node = client % fleet.services.len();
            let address = &fleet.services[node].http;
            scope.spawn(move || run(Client::of(address).unwrap(), node, asked, began))
        };
        let clients: Vec<_> = (0..CLIENTS).map(run).collect();
        clients.into_iter().for_each(|client| all.extend(client.join().unwrap()));
    });
    all
}

/// One client, until it was denied in two windows.
fn run(mut client: Client, node: usize, asked: &str, began: Instant) -> Vec<Heard> {
    let mut all: Vec<Heard> = Vec::new();
    for number in 0..QUESTIONS_MAX {
        // It may wake up early, which does no harm.
        thread::park_timeout((STEP * number).saturating_sub(now() - began));
        let sent = now() - began;
        let (answer, told) = client.told(asked);
        let at = now() - began;
        let told: Value = serde_json::from_str(&told).unwrap();
        let left = told["statuses"][0]["reset_after_ms"].as_u64().unwrap();
        let (ends, is_allowed) = (at + Duration::from_millis(left), answer == Answer::Allowed);
        assert!(is_allowed || answer == Answer::Denied, "{answer:?}");
        all.push(Heard { node, is_allowed, at, took: at - sent, ends });
        let first_denied = all.iter().find(|heard| !heard.is_allowed);
        if !is_allowed && first_denied.is_some_and(|first| ends > first.ends + WINDOW / 2) {
            return all;
        }
    }
    panic!("too few are asked for: {} answers, and no two windows were full", all.len());
}

/// How much passed in each window. Their ends are told as of some time before the answer arrived,
/// and lie a window apart.
fn by_window(heard: &[Heard]) -> BTreeMap<u32, u64> {
    let first = heard.iter().map(|heard| heard.ends).min().unwrap();
    let mut passed = BTreeMap::new();
    for heard in heard.iter().filter(|heard| heard.is_allowed) {
        let windows = (heard.ends - first).as_secs_f64() / WINDOW.as_secs_f64();
        assert!(heard.took < WINDOW / 2, "the machine is too busy to tell windows apart");
        *passed.entry(windows.round() as u32).or_default() += 1;
    }
    passed
}

/// The most that one node admitted within this time.
fn most_of_a_node(heard: &[Heard], nodes: usize, within: Duration) -> usize {
    let of_node = |node| {
        let mut times: Vec<Duration> = heard
            .iter()
            .filter(|heard| heard.node == node && heard.is_allowed)
            .map(|heard| heard.at)
            .collect();
        times.sort();
        let from = |start: &Duration| {
            times.iter().filter(|at| (*start..=*start + within).contains(*at)).count()
        };
        times.iter().map(from).max().unwrap_or(0)
    };
    (0..nodes).map(of_node).max().unwrap_or(0)
}
