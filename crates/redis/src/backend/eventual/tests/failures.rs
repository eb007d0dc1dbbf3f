//! A store that is away, and more identities than can be held.

use sluicegate_testkit::redis::Single;

use super::*;
use crate::CallError;

const SLOW: Span = Span::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_not_heard_for_two_intervals_asks_and_says_later_what_it_could_not() {
    let server = Single::start();
    let rule = rule(vec![fixed(100, YEARS)]);
    let interval = Span::from_millis(100);
    let peer = Peer::new(server.url(), &rule, interval);
    assert!(peer.allows("alice", 3).await);
    server.kill();
    // It decides locally until its last pull is stale.
    let asks = || peer.hit("alice", 1) == Local::Unknown;
    tokio::task::block_in_place(|| sluicegate_testkit::until("it to ask", || asks().then_some(())));
    let failed = peer.eventual.pull(&peer.step("alice", 1), interval).await;
    assert!(failed.is_err(), "{failed:?}");
    assert!(read(&peer.counters.pushes_failed) > 0);
    server.restart();
    let knows = || peer.hit("alice", 0) != Local::Unknown;
    tokio::task::block_in_place(|| {
        sluicegate_testkit::until("it to hear again", || knows().then_some(()))
    });
    peer.pull("alice").await;
    let left = peer.left("alice").await;
    assert!(left < 97, "some passed while the store was away: {left}");
    let other = Peer::new(server.url(), &rule, interval);
    assert_eq!(
        other.left("alice").await,
        left,
        "a store that has forgotten everything knows again"
    );
}

#[tokio::test]
async fn more_than_can_be_held_are_guests_and_nothing_of_them_is_lost() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let peer = Peer::of(server.url(), &rule, SLOW, ReplicaTable::with_max(2));
    for name in ["a", "b", "guest", "another"] {
        assert!(peer.allows(name, 2).await, "{name}");
    }
    assert_eq!(peer.eventual.table.len(), 4);
    let no_room = peer.eventual.pull(&peer.step("too many", 1), SLOW).await;
    assert_eq!(no_room, Err(CallError::Busy));
    // As after a long idle time.
    let later = peer.eventual.tick().after(Span::from_secs(600));
    let go = || {
        let ids = peer.eventual.table.ids().into_iter();
        ids.filter(|name| peer.eventual.table.sync_schedule(*name, later).is_none()).count()
    };
    assert_eq!(go(), 0, "nobody has heard of them");
    peer.eventual.close().await;
    assert_eq!(go(), 4);
    assert_eq!(peer.eventual.table.len(), 2, "guests have gone");
    assert_eq!(peer.hit("guest", 2), Local::Unknown);
    assert!(peer.allows("guest", 2).await);
    assert_eq!(peer.left("guest").await, 6, "it goes on where it stood");
    peer.pull("guest").await;
    let other = Peer::new(server.url(), &rule, SLOW);
    assert_eq!(other.left("guest").await, 6);
}

#[tokio::test]
async fn what_is_over_is_forgotten() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, Span::from_secs(1))]);
    let peer = Peer::new(server.url(), &rule, Span::from_millis(100));
    assert!(peer.allows("alice", 2).await);
    let sweep = |later: u64| {
        let tick = peer.eventual.tick().after(Span::from_secs(later));
        for name in peer.eventual.table.ids() {
            peer.eventual.table.sync_schedule(name, tick);
        }
        (0..super::super::table::SHARDS).for_each(|shard| peer.eventual.table.sweep(shard, tick));
        peer.eventual.table.len()
    };
    assert_eq!(sweep(0), 1);
    assert_eq!(sweep(5), 0);
    assert_eq!(read(&peer.counters.synced), 0);
}
