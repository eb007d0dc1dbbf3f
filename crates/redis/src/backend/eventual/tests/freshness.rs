//! For how long a pull is fresh, and the overshoot bound.

use super::*;
use crate::backend::eventual::key_replica::KeyReplica;
use crate::backend::eventual::overshoot::Overshoot;
use crate::script::{SyncOp, SyncReply};

const INTERVAL: Span = Span::from_millis(100);
/// Ten seconds, of which one begins here.
const WINDOW: Span = Span::from_secs(10);
const START: u64 = 1_794_770_800_000_000;
/// What this node's ticks are behind.
const BEHIND: u64 = 1_000_000_000_000_000;

fn tick(ms: u64) -> Timestamp {
    at(START - BEHIND + 1_000 * ms)
}

/// A reply with the peers' count, `ms` milliseconds into the window.
fn reply(ms: u64, others: i64) -> SyncReply {
    let name = WINDOW.as_micros().to_string().into();
    let others = vec![(name, at(START), others)];
    SyncReply { at: at(START + 1_000 * ms), epoch: 0, own: Vec::new(), others }
}

fn pull(replica: &mut KeyReplica, ms: u64, others: i64) -> Overshoot {
    replica.merge(&reply(ms, others), 0, (tick(ms), tick(ms)))
}

#[test]
fn a_pull_is_fresh_for_an_interval() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut replica = KeyReplica::new(&rule);
    assert_eq!(replica.hit(&rule, 1, INTERVAL, tick(5_000)), None, "never heard");
    pull(&mut replica, 5_000, 7);
    assert_eq!(replica.hit(&rule, 1, INTERVAL, tick(5_100)).unwrap().remaining, Some(92));
    assert_eq!(replica.hit(&rule, 1, INTERVAL, tick(5_101)), None);
    assert_eq!(replica.hit(&rule, 1, WINDOW, tick(5_101)).unwrap().remaining, Some(91));
    // A new window: there are no earlier counts to pull.
    assert_eq!(replica.hit(&rule, 1, INTERVAL, tick(10_010)).unwrap().remaining, Some(99));
    assert_eq!(replica.hit(&rule, 1, INTERVAL, tick(10_150)), None);
}

#[test]
fn a_sliding_window_looks_back_so_its_being_new_is_no_excuse() {
    let rule = rule(vec![fixed(100, WINDOW), sliding(100, WINDOW, Rounding::Up)]);
    let mut replica = KeyReplica::new(&rule);
    pull(&mut replica, 5_000, 7);
    assert!(replica.hit(&rule, 1, INTERVAL, tick(5_100)).is_some());
    assert_eq!(replica.hit(&rule, 1, INTERVAL, tick(10_010)), None);
}

#[test]
fn a_clock_that_steps_back_a_little_stands_still_and_far_begins_anew() {
    let rule = rule(vec![fixed(10, WINDOW)]);
    let mut replica = KeyReplica::new(&rule);
    pull(&mut replica, 10, 0);
    assert!(replica.hit(&rule, 8, INTERVAL, tick(10)).unwrap().is_allowed());
    // Another server answers, ten milliseconds before the window began.
    let back = |ago: Span| SyncReply { at: at(START).before(ago), ..reply(0, 0) };
    replica.merge(&back(Span::from_millis(10)), 0, (tick(20), tick(20)));
    assert_eq!(replica.peek(&rule, 1, INTERVAL, tick(20)).unwrap().remaining, Some(2));
    replica.merge(&back(Span::from_secs(3_600)), 0, (tick(30), tick(30)));
    assert_eq!(replica.peek(&rule, 1, INTERVAL, tick(30)).unwrap().remaining, Some(10));
}

#[test]
fn over_admission_is_bounded_by_unsynced_admissions_of_peers() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut replica = KeyReplica::new(&rule);
    let hit = |replica: &mut KeyReplica, ms| replica.hit(&rule, 1, INTERVAL, tick(ms)).unwrap();
    assert_eq!(pull(&mut replica, 1_000, 20).bound, 0, "known before anything was decided");
    assert_eq!(pull(&mut replica, 1_050, 40).bound, 0, "nothing was decided meanwhile");
    assert!(hit(&mut replica, 1_060).is_allowed());
    assert_eq!(pull(&mut replica, 1_100, 55), Overshoot { bound: 15, observed: 0 });
    assert_eq!(pull(&mut replica, 1_150, 60), Overshoot { bound: 20, observed: 0 });
    assert_eq!(replica.overshoot_bound(), 20);
    assert!(hit(&mut replica, 1_160).is_allowed());
    // The peers reach the limit by their own view.
    assert_eq!(pull(&mut replica, 1_200, 99), Overshoot { bound: 59, observed: 1 });
    assert!(!hit(&mut replica, 1_210).is_allowed());
    assert_eq!(pull(&mut replica, 1_250, 100), Overshoot { bound: 60, observed: 2 });
    assert_eq!(pull(&mut replica, 1_300, 100), Overshoot { bound: 45, observed: 0 }, "nothing new");
    for ms in [1_350, 1_400, 1_450] {
        pull(&mut replica, ms, 100);
    }
    assert_eq!(replica.overshoot_bound(), 0, "nothing was decided lately");
}

#[test]
fn what_the_store_forgot_is_not_forgotten_here() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut replica = KeyReplica::new(&rule);
    pull(&mut replica, 1_000, 20);
    let forgot = SyncReply { others: Vec::new(), ..reply(1_050, 0) };
    replica.merge(&forgot, 0, (tick(1_050), tick(1_050)));
    assert_eq!(replica.peek(&rule, 1, INTERVAL, tick(1_060)).unwrap().remaining, Some(80));
}

#[test]
fn counts_are_pulled_until_there_are_own_ones_to_push() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut replica = KeyReplica::new(&rule);
    assert_eq!(replica.sync_payload(tick(0)).op, SyncOp::PullAll);
    pull(&mut replica, 0, 0);
    assert_eq!(replica.sync_payload(tick(0)).op, SyncOp::Pull);
    replica.hit(&rule, 3, INTERVAL, tick(10)).unwrap();
    assert!(replica.has_unpushed(tick(10)));
    let payload = replica.sync_payload(tick(10));
    assert_eq!((payload.op, payload.counted[0].current.admitted), (SyncOp::Push, 3));
    replica.hit(&rule, 1, INTERVAL, tick(11)).unwrap();
    replica.merge(&reply(20, 0), payload.version, (tick(10), tick(20)));
    assert!(replica.has_unpushed(tick(20)), "of the last it has not heard");
    let version = replica.sync_payload(tick(20)).version;
    replica.merge(&reply(30, 0), version, (tick(20), tick(30)));
    assert!(!replica.has_unpushed(tick(30)));
    replica.hit(&rule, 1, INTERVAL, tick(31)).unwrap();
    assert!(!replica.has_unpushed(tick(20_100)), "no peer needs it any more");
}
