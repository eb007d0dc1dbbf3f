//! Nodes on a real server.

use sluicegate_core::verdict::Outcome;
use sluicegate_testkit::redis::Single;

use super::*;
use sluicegate::Level;

/// Longer than these tests run: syncs happen only on demand.
const SLOW: Span = Span::from_secs(60);
const FAST: Span = Span::from_millis(20);

#[tokio::test]
async fn what_one_has_counted_the_other_knows_when_it_asks() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let [one, two] = [(); 2].map(|()| Peer::new(server.url(), &rule, SLOW));
    assert_eq!(one.hit("alice", 1), Local::Unknown, "nobody knows how many have passed");
    assert!(one.allows("alice", 6).await);
    one.pull("alice").await;
    let (verdict, promise) = two.decide("alice", 5).await;
    assert!(!verdict.is_allowed());
    assert_eq!((verdict.remaining, promise.level), (Some(4), Level::Eventual));
    assert!(two.allows("alice", 4).await);
    assert_eq!(one.left("alice").await, 4, "not heard yet");
    two.pull("alice").await;
    one.pull("alice").await;
    assert_eq!(one.left("alice").await, 0);
    assert_eq!(one.left("bob").await, 10);
}

#[tokio::test]
async fn a_cost_that_can_never_pass_never_does_and_nothing_always() {
    let server = Single::start();
    let peer = Peer::new(server.url(), &rule(vec![fixed(10, YEARS)]), SLOW);
    let never = Outcome::Never { max_cost: 10 };
    assert_eq!(peer.decide("alice", 11).await.0.outcome, never);
    assert!(peer.allows("alice", 10).await);
    assert!(peer.allows("alice", 0).await);
}

#[tokio::test]
async fn a_hit_that_does_not_happen_is_not_counted_by_anybody() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let [one, two] = [(); 2].map(|()| Peer::new(server.url(), &rule, SLOW));
    assert!(one.allows("alice", 6).await);
    one.pull("alice").await;
    one.eventual.undo(&one.step("alice", 6), one.eventual.tick());
    assert_eq!(one.left("alice").await, 10);
    one.pull("alice").await;
    assert_eq!(two.left("alice").await, 10);
}

#[tokio::test]
async fn what_is_given_back_is_so_for_everybody() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let [one, two] = [(); 2].map(|()| Peer::new(server.url(), &rule, SLOW));
    assert!(one.allows("alice", 8).await);
    one.pull("alice").await;
    // By another node than the one that admitted it, and never more than there was.
    let given = two.eventual.refund(&two.step("alice", 3), SLOW).await.unwrap();
    assert_eq!((given.is_allowed(), given.remaining), (true, Some(5)));
    one.pull("alice").await;
    assert_eq!(one.left("alice").await, 5);
    let given = two.eventual.refund(&two.step("alice", 30), SLOW).await.unwrap();
    assert_eq!(given.remaining, Some(10));
    one.pull("alice").await;
    assert_eq!(one.left("alice").await, 10);
}

#[tokio::test]
async fn a_reset_is_one_for_everybody() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let [one, two] = [(); 2].map(|()| Peer::new(server.url(), &rule, SLOW));
    assert!(one.allows("alice", 8).await);
    one.pull("alice").await;
    let stands = two.eventual.reset(&two.step("alice", 1), SLOW).await.unwrap();
    assert_eq!((stands.is_allowed(), stands.remaining), (true, Some(10)));
    assert!(two.allows("alice", 1).await);
    one.pull("alice").await;
    assert_eq!(one.left("alice").await, 10, "it has begun anew, and not heard of the one");
    assert!(one.allows("alice", 2).await);
    one.pull("alice").await;
    two.pull("alice").await;
    one.pull("alice").await;
    assert_eq!((one.left("alice").await, two.left("alice").await), (7, 7));
}

#[tokio::test]
async fn who_comes_instead_of_one_that_has_gone_goes_on_with_what_it_had_told() {
    let server = Single::start();
    let rule = rule(vec![fixed(10, YEARS)]);
    let one = Peer::new(server.url(), &rule, SLOW);
    assert!(one.allows("alice", 3).await);
    one.eventual.close().await;
    assert_eq!((read(&one.counters.pushes), read(&one.counters.pushes_failed)), (1, 0));
    assert!(one.allows("alice", 2).await);
    // Without a final push.
    drop(one);
    let two = Peer::new(server.url(), &rule, SLOW);
    assert_eq!(two.left("alice").await, 7);
}

#[tokio::test]
async fn limits_that_change_go_on_with_what_was_counted() {
    let server = Single::start();
    let old = rule(vec![fixed(10, YEARS)]);
    let mut one = Peer::new(server.url(), &old, SLOW);
    assert!(one.allows("alice", 8).await);
    one.rule = rule(vec![fixed(20, YEARS)]);
    assert_eq!(one.left("alice").await, 12);
    one.rule = rule(vec![fixed(5, YEARS)]);
    assert_eq!(one.left("alice").await, 0);
    one.pull("alice").await;
    assert_eq!(read(&one.counters.over_observed), 0, "nobody was above the limit that there was");
    one.rule = rule(vec![fixed(5, Span::from_secs(999_999_999))]);
    assert_eq!(one.left("alice").await, 5, "other windows");
}

/// Nodes exchange counts in the background, without requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_hear_of_each_other_by_themselves() {
    let server = Single::start();
    let rule = rule(vec![fixed(1_000_000, YEARS), sliding(1_000_000, YEARS, Rounding::Floor)]);
    let peers: Vec<Peer> = (0..4).map(|_| Peer::new(server.url(), &rule, FAST)).collect();
    for peer in &peers {
        assert!(peer.allows("alice", 10).await);
    }
    let everybody_knows = || {
        peers.iter().all(|peer| match peer.hit("alice", 0) {
            Local::Decided(verdict, _) => verdict.remaining == Some(1_000_000 - 40),
            Local::Unknown => false,
        })
    };
    tokio::task::block_in_place(|| {
        sluicegate_testkit::until("all to know", || everybody_knows().then_some(()))
    });
    assert!(peers.iter().all(|peer| read(&peer.counters.synced) == 1));
}

/// Under full load the limit is reached, and exceeded at most by the reported bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_under_load_stay_within_what_they_say() {
    const LIMIT: u64 = 20_000;
    let server = Single::start();
    let rule = rule(vec![fixed(LIMIT, YEARS)]);
    let peers: Arc<Vec<Peer>> =
        Arc::new((0..4).map(|_| Peer::new(server.url(), &rule, FAST)).collect());
    let drive = |node: usize| {
        let peers = peers.clone();
        tokio::spawn(async move {
            let mut admitted = 0;
            while peers[node].allows("alice", 1).await {
                admitted += 1;
                if admitted % 50 == 0 {
                    // Pulls of another key pace the load.
                    peers[node].pull("bob").await;
                }
            }
            admitted
        })
    };
    let mut admitted = 0;
    for task in (0..4).map(drive).collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }
    for peer in peers.iter().chain(peers.iter()) {
        peer.pull("alice").await;
    }
    let most = |of: fn(&LevelCounters) -> &AtomicU64| {
        peers.iter().map(|peer| read(of(&peer.counters))).max().unwrap()
    };
    let bound = most(|counters| &counters.over_bound);
    let observed = most(|counters| &counters.over_observed);
    println!("{admitted} of {LIMIT}: {observed} over, at most {bound} were said");
    assert!(admitted >= LIMIT, "nobody was denied before its time: {admitted}");
    assert_eq!(admitted - LIMIT, observed, "everything was heard, once");
    assert!(observed <= bound, "{observed} over, {bound} said");
    for peer in peers.iter() {
        assert!(!peer.allows("alice", 1).await);
    }
}
