use sluicegate_testkit::redis::Single;

use super::*;
use crate::{Address, LinkOptions};

const BOUNDS: QueueBounds =
    QueueBounds { group_count: 3, queue_count: 2, queue_bytes: 100, bytes: 1_000 };

async fn queues(server: &Single) -> DurableQueues {
    let options = LinkOptions { timeout: Duration::from_secs(5), ..LinkOptions::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), options).unwrap();
    let queues = DurableQueues::new(link, "sg");
    queues.connected().await;
    queues
}

const fn entry<'a>(id: &'a str, queue: &'a str) -> QueueEntry<'a> {
    QueueEntry {
        id,
        queue,
        group: "g",
        version: 0,
        list: QUEUED,
        bytes: 10,
        time: 5,
        due: None,
        value: b"value",
        ttl: Duration::from_secs(600),
    }
}

#[tokio::test]
async fn a_queue_has_one_owner_until_it_is_empty() {
    let server = Single::start();
    let (one, two) = (queues(&server).await, queues(&server).await);
    assert_eq!(one.claim(10).await.unwrap(), [], "creates the group");
    for (id, ahead) in [("a", 0), ("b", 1)] {
        let pushed = one.push(entry(id, "q"), b"body", BOUNDS).await;
        assert_eq!(pushed.unwrap(), Pushed::Behind(ahead));
    }
    let claims = one.claim(10).await.unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(two.claim(10).await.unwrap(), []);
    assert_eq!(one.renew(&claims).await.unwrap(), [true]);
    assert_eq!(two.renew(&claims).await.unwrap(), [false], "of another node");
    assert!(!one.release(&claims[0], false).await.unwrap(), "it has entries");
    for id in ["a", "b"] {
        assert_eq!(one.first("q").await.unwrap().as_deref(), Some(id));
        let done = QueueEntry { version: 1, list: 1, ..entry(id, "q") };
        assert!(one.save(done, Some(b"response"), true).await.unwrap());
        assert!(one.save(done, Some(b"response"), true).await.unwrap(), "repeated");
        assert!(!one.save(QueueEntry { value: b"other", ..done }, None, false).await.unwrap());
    }
    // An entry that comes before the release finds an owner, and another one does not get it.
    one.push(entry("c", "q"), b"", BOUNDS).await.unwrap();
    assert_eq!(two.claim(10).await.unwrap(), []);
    assert!(!one.release(&claims[0], false).await.unwrap());
    assert!(one.release(&claims[0], true).await.unwrap(), "in any case");
    assert_eq!(two.claim(10).await.unwrap().len(), 1);
    assert_eq!(one.body("a", true).await.unwrap().as_deref(), Some(&b"response"[..]));
    assert_eq!(one.body("a", false).await.unwrap(), None, "not stored any more");
    let stats = one.stats().await.unwrap();
    assert_eq!((stats.counts, stats.oldest, stats.bytes), ([1, 2, 0], Some(5), 30));
    let keys = server.cli(&["KEYS", "*"]);
    for key in keys.lines().filter(|key| key.contains("{deferred}")) {
        let ttl: i64 = server.cli(&["PTTL", key]).parse().unwrap();
        assert!(ttl > 0, "{key} does not expire");
    }
}

#[tokio::test]
async fn bounds_hold_for_group_queue_and_bytes() {
    let server = Single::start();
    let queues = queues(&server).await;
    let push = async |id, queue, bytes, bounds| {
        queues.push(QueueEntry { bytes, ..entry(id, queue) }, b"", bounds).await.unwrap()
    };
    assert_eq!(push("a", "q", 10, BOUNDS).await, Pushed::Behind(0));
    assert_eq!(push("a", "q", 10, BOUNDS).await, Pushed::Behind(0), "repeated");
    assert_eq!(push("b", "q", 91, BOUNDS).await, Pushed::Exceeds(2));
    assert_eq!(push("b", "q", 10, BOUNDS).await, Pushed::Behind(1));
    assert_eq!(push("c", "q", 10, BOUNDS).await, Pushed::Exceeds(1));
    assert_eq!(push("c", "r", 10, BOUNDS).await, Pushed::Behind(0));
    assert_eq!(push("d", "s", 10, BOUNDS).await, Pushed::Exceeds(0));
    let bounds = QueueBounds { group_count: 9, bytes: 35, ..BOUNDS };
    assert_eq!(push("d", "s", 10, bounds).await, Pushed::Exceeds(3));
    assert!(queues.remove(entry("a", "q")).await.unwrap());
    assert!(!queues.remove(entry("a", "q")).await.unwrap());
    assert_eq!(push("d", "s", 10, BOUNDS).await, Pushed::Behind(0));
}
