//! Both stores behave the same.

use bytes::Bytes;
use sluicegate_redis::{Address, DurableQueues, Link, LinkOptions};
use sluicegate_testkit::redis::Single;
use std::time::Duration;

use super::embedded::EmbeddedStore;
use super::redis::RedisStore;
use super::request::tests::request;
use super::request::{DeferredRequest, DeferredState, Stage, StoredCallback, StoredResponse};
use super::store::{
    BodyPart, Claim, DeferredStats, DeferredStore, Exceeded, PushError, Release, StoreBounds,
};

const BOUNDS: StoreBounds =
    StoreBounds { count: 100, queue_count: 50, queue_bytes: 10_000, bytes: 100_000 };

/// A folder that ends with this value.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let path =
            std::env::temp_dir().join(format!("sluicegate-deferred-{:016x}", fastrand::u64(..)));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.0.join("deferred.redb")).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn redis_store(server: &Single) -> RedisStore {
    let options = LinkOptions { timeout: Duration::from_secs(5), ..LinkOptions::default() };
    let link = Link::open(Address::parse(server.url()).unwrap(), options).unwrap();
    RedisStore::new(DurableQueues::new(link, "sg"))
}

/// Runs a test on both stores.
async fn on_each_store(test: impl AsyncFn(&dyn DeferredStore)) {
    let folder = Folder::new();
    test(&folder.open()).await;
    let server = Single::start();
    let store = redis_store(&server);
    assert!(store.durability_warning().await.unwrap().contains("appendonly no"));
    test(&store).await;
}

async fn push(store: &dyn DeferredStore, id: &str, queue: &str) -> DeferredRequest {
    let new = request(id, queue);
    store.push(&new, Bytes::from_static(b"hello"), BOUNDS).await.unwrap();
    store.get(id).await.unwrap().unwrap().0
}

/// The claims of all queues; those of a new store may take two calls.
async fn claim_all(store: &dyn DeferredStore) -> Vec<Claim> {
    let mut claims = store.claim(10).await.unwrap();
    claims.extend(store.claim(10).await.unwrap());
    claims
}

fn running(request: &DeferredRequest) -> DeferredRequest {
    let (version, attempts) = (request.version + 1, request.attempts + 1);
    DeferredRequest { state: DeferredState::Running, version, attempts, ..request.clone() }
}

fn done(request: &DeferredRequest) -> DeferredRequest {
    let mut done = DeferredRequest { version: request.version + 1, ..request.clone() };
    let headers = vec![("x-a".to_owned(), "b".to_owned())];
    done.response = Some(StoredResponse { status: 201, headers, body_bytes: Some(4) });
    done.finish(DeferredState::Done, 50_000, Duration::from_secs(10));
    done
}

#[tokio::test]
async fn requests_of_a_queue_are_in_order_until_they_are_final() {
    on_each_store(async |store| {
        assert!(!store.is_waiting("q").await.unwrap());
        for (index, id) in ["a", "b", "c"].into_iter().enumerate() {
            let ahead = store.push(&request(id, "q"), Bytes::new(), BOUNDS).await.unwrap();
            assert_eq!(ahead, index as u64);
        }
        push(store, "x", "other").await;
        assert!(store.is_waiting("q").await.unwrap());
        for id in ["a", "b", "c"] {
            let first = store.first("q").await.unwrap().unwrap();
            assert_eq!(first.id, id);
            let running = running(&first);
            assert!(store.save(&running, None).await.unwrap());
            assert_eq!(store.first("q").await.unwrap().unwrap().id, id, "it is still the first");
            assert!(store.save(&done(&running), Some(Bytes::from_static(b"made"))).await.unwrap());
            let (read, ahead) = store.get(id).await.unwrap().unwrap();
            assert_eq!((read.state, ahead), (DeferredState::Done, 0));
            assert_eq!(read.response.unwrap().status, 201);
            let response = store.body(id, BodyPart::Response).await.unwrap();
            assert_eq!(response.as_deref(), Some(&b"made"[..]));
            assert_eq!(store.body(id, BodyPart::Request).await.unwrap(), None);
        }
        assert!(store.first("q").await.unwrap().is_none());
        assert!(!store.is_waiting("q").await.unwrap());
        assert!(store.get("none").await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_change_of_an_outdated_version_has_no_effect() {
    on_each_store(async |store| {
        let queued = push(store, "a", "q").await;
        assert_eq!(
            store.body("a", BodyPart::Request).await.unwrap().as_deref(),
            Some(&b"hello"[..])
        );
        let one = running(&queued);
        assert!(store.save(&one, None).await.unwrap());
        let other = DeferredRequest { error: Some("other".to_owned()), ..running(&queued) };
        assert!(!store.save(&other, None).await.unwrap());
        assert!(!store.remove(&queued).await.unwrap(), "it runs by now");
        assert!(store.remove(&one).await.unwrap());
        assert!(!store.save(&done(&one), None).await.unwrap());
        assert!(store.get("a").await.unwrap().is_none());
        assert!(store.first("q").await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_queue_has_one_owner() {
    on_each_store(async |store| {
        assert!(claim_all(store).await.is_empty());
        let first = push(store, "a", "q").await;
        let claims = claim_all(store).await;
        assert_eq!(claims.len(), 1);
        let claim = &claims[0];
        assert_eq!(claim.queue, "q");
        push(store, "b", "q").await;
        assert!(claim_all(store).await.is_empty(), "owned already");
        assert!(store.renew(&claims).await.unwrap().is_empty());
        assert!(!store.release(claim, Release::IfEmpty).await.unwrap());
        assert!(store.release(claim, Release::Abandon).await.unwrap());
        let claims = claim_all(store).await;
        assert_eq!(claims.len(), 1, "for the next owner");
        for id in ["a", "b"] {
            let request = store.get(id).await.unwrap().unwrap().0;
            assert!(store.remove(&request).await.unwrap());
        }
        // It comes before the release: its owner finds it.
        let later = push(store, "c", "q").await;
        assert!(claim_all(store).await.is_empty());
        assert!(!store.release(&claims[0], Release::IfEmpty).await.unwrap());
        assert!(store.remove(&later).await.unwrap());
        assert!(store.release(&claims[0], Release::IfEmpty).await.unwrap());
        // And after the release it needs a new one.
        push(store, "d", "q").await;
        assert_eq!(claim_all(store).await.len(), 1);
        assert!(!store.save(&running(&first), None).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn bounds_are_of_route_queue_and_bytes() {
    on_each_store(async |store| {
        let push =
            async |id, queue, bounds| store.push(&request(id, queue), Bytes::new(), bounds).await;
        let bytes = request("a", "q").bytes();
        push("a", "q", BOUNDS).await.unwrap();
        for (bounds, exceeded) in [
            (StoreBounds { count: 1, ..BOUNDS }, Exceeded::Count),
            (StoreBounds { queue_count: 1, ..BOUNDS }, Exceeded::QueueCount),
            (StoreBounds { queue_bytes: 2 * bytes - 1, ..BOUNDS }, Exceeded::QueueBytes),
            (StoreBounds { bytes: 2 * bytes - 1, ..BOUNDS }, Exceeded::Bytes),
        ] {
            assert_eq!(push("b", "q", bounds).await, Err(PushError::Exceeded(exceeded)));
        }
        push("b", "q", StoreBounds { queue_bytes: 2 * bytes, bytes: 2 * bytes, ..BOUNDS })
            .await
            .unwrap();
        let bounds = StoreBounds { queue_count: 2, ..BOUNDS };
        push("c", "other", bounds).await.unwrap();
        let stats = store.stats().await.unwrap();
        let expected =
            DeferredStats { waiting: 3, oldest_at: Some(1_000), dead: 0, bytes: 3 * bytes };
        assert_eq!(stats, expected);
        // What has left a queue makes room in it.
        let a = store.get("a").await.unwrap().unwrap().0;
        assert!(store.save(&done(&running(&a)), None).await.is_ok_and(|is_saved| !is_saved));
        assert!(store.remove(&a).await.unwrap());
        push("d", "q", bounds).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn dead_letters_are_listed_and_redriven_to_the_end_of_their_queue() {
    on_each_store(async |store| {
        let first = push(store, "a", "q").await;
        push(store, "b", "q").await;
        let mut dead = DeferredRequest { version: first.version + 1, ..first.clone() };
        dead.finish(DeferredState::Failed, 60_000, Duration::from_secs(5));
        assert!(store.save(&dead, None).await.unwrap());
        let ids = async |stage| {
            let listed = store.list(stage, 0, 10).await.unwrap();
            listed.into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(
            (ids(Stage::Waiting).await, ids(Stage::Dead).await),
            (vec!["b".to_owned()], vec!["a".to_owned()])
        );
        assert!(store.list(Stage::Dead, 1, 10).await.unwrap().is_empty());
        assert_eq!(store.stats().await.unwrap().dead, 1);
        assert!(store.outdated(64_999, 10).await.unwrap().is_empty());
        assert_eq!(store.outdated(65_000, 10).await.unwrap().len(), 1);
        dead.redrive(70_000);
        dead.version += 1;
        assert!(store.save(&dead, None).await.unwrap());
        assert_eq!(store.first("q").await.unwrap().unwrap().id, "b");
        let (again, ahead) = store.get("a").await.unwrap().unwrap();
        assert_eq!((again.state, again.attempts, ahead), (DeferredState::Queued, 0, 1));
        assert_eq!(again.expires_at, 70_000 + 99_000, "its age begins again");
        assert!(store.outdated(u64::MAX >> 12, 10).await.unwrap().is_empty());
        let body = store.body("a", BodyPart::Request).await.unwrap();
        assert_eq!(body.as_deref(), Some(&b"hello"[..]));
    })
    .await;
}

#[tokio::test]
async fn callbacks_are_found_when_they_are_due() {
    on_each_store(async |store| {
        let mut new = request("a", "q");
        let url = "https://hooks.example.com/".to_owned();
        new.callback = Some(StoredCallback { url, attempts: 0, due_at: None, is_delivered: false });
        store.push(&new, Bytes::new(), BOUNDS).await.unwrap();
        let due = async |now| store.callbacks(now, 10).await.unwrap().len();
        assert_eq!(due(u64::MAX >> 12).await, 0, "not final");
        let mut final_one = done(&new);
        assert!(store.save(&final_one, None).await.unwrap());
        assert_eq!((due(49_999).await, due(50_000).await), (0, 1));
        final_one.callback.as_mut().unwrap().due_at = None;
        final_one.version += 1;
        assert!(store.save(&final_one, None).await.unwrap());
        assert_eq!(due(u64::MAX >> 12).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_file_has_everything_after_it_was_closed_and_one_process_uses_it() {
    let folder = Folder::new();
    let store = folder.open();
    push(&store, "a", "q").await;
    let b = push(&store, "b", "q").await;
    assert!(store.remove(&b).await.unwrap());
    push(&store, "c", "q").await;
    let again = EmbeddedStore::open(&folder.0.join("deferred.redb"));
    assert!(matches!(again, Err(super::embedded::OpenError::Locked)));
    store.close().await;
    assert!(store.get("a").await.is_err(), "closed");
    let store = folder.open();
    assert_eq!(store.first("q").await.unwrap().unwrap().id, "a");
    assert_eq!(store.claim(10).await.unwrap().len(), 1, "nobody owns it");
    assert_eq!(store.get("c").await.unwrap().unwrap().1, 1);
    let last = push(&store, "d", "q").await;
    assert!(last.sequence > b.sequence);
    let no_file = folder.0.join("none/deferred.redb");
    assert!(matches!(EmbeddedStore::open(&no_file), Err(super::embedded::OpenError::Unusable(_))));
}
