//! Idempotency keys: a request that is repeated with its key gets the stored response, and is not
//! charged twice.
//!
//! Only responses that changed counters are stored: a denial charged nothing, so the same request
//! may be tried again. Responses are stored for a limited time and in limited memory; beyond, the
//! oldest are evicted ([`IdempotencyTable::evicted`]), and a repeated request is charged again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate::backend::ready;
use sluicegate::{Span, Timestamp};

use crate::app::App;
use crate::http::ApiResponse;
use crate::resp::Reply;
use crate::telemetry::Endpoint;

/// Longest key.
pub const KEY_BYTES_MAX: usize = 255;

const RETENTION: Span = Span::from_secs(600);
/// Memory of all responses.
const BYTES_MAX: usize = 64 << 20;
const SHARDS: usize = 64;

/// Responses by idempotency key.
///
/// ```
/// use sluicegate::Timestamp;
/// use sluicegate_server::idempotency::{IdempotencyError, IdempotencyTable};
///
/// let (table, now) = (IdempotencyTable::<String>::default(), Timestamp::EPOCH);
/// let mut charged = 0;
/// for _ in 0..2 {
///     let stored = table.get_or_insert_with(b"key 7", b"request", now, || {
///         charged += 1;
///         Some(("admitted".to_owned(), 8))
///     });
///     stored.unwrap();
/// }
/// assert_eq!(charged, 1);
/// let other = table.get_or_insert_with(b"key 7", b"another request", now, || unreachable!());
/// assert_eq!(other, Err(IdempotencyError::KeyReused));
/// ```
#[derive(Debug)]
pub struct IdempotencyTable<V> {
    /// Two, for 128 bits: a collision would answer one client with the response of another.
    hashers: [RandomState; 2],
    shards: Vec<Mutex<ResponseShard<V>>>,
    evicted: AtomicU64,
    /// Keys of requests that are being processed asynchronously.
    in_progress: Mutex<HashSet<KeyHash>>,
}

/// Reserves a key until dropped.
#[derive(Debug)]
pub struct InProgress<'a, V> {
    table: &'a IdempotencyTable<V>,
    key: KeyHash,
}

/// Why a request with an idempotency key is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdempotencyError {
    /// The key was used for another request.
    KeyReused,
    /// A request with the key is in progress.
    InProgress,
}

#[derive(Debug)]
struct ResponseShard<V> {
    responses: HashMap<KeyHash, TableEntry<V>>,
    /// In order of insertion, which is that of expiry.
    order: VecDeque<KeyHash>,
    bytes: usize,
}

type KeyHash = (u64, u64);

#[derive(Debug)]
struct TableEntry<V> {
    request: KeyHash,
    response: V,
    bytes: usize,
    expires_at: Timestamp,
}

// === requests of both protocols ===

/// A request with an idempotency key.
#[derive(Debug)]
pub(crate) struct KeyedRequest<'a> {
    /// The key, scoped by endpoint.
    key: Vec<u8>,
    /// The request, to detect a reused key.
    request: Cow<'a, [u8]>,
}

/// A stored response of either protocol.
#[derive(Debug, Clone)]
pub(crate) enum StoredResponse {
    Http(ApiResponse),
    Resp(Reply),
}

/// A response that can be stored.
pub(crate) trait Replayable: Sized {
    /// Whether it changed counters.
    fn is_charge(&self) -> bool;
    /// Its memory, roughly.
    fn bytes(&self) -> usize;
    fn store(&self) -> StoredResponse;
    /// `None` if it is of the other protocol.
    fn restore(stored: StoredResponse) -> Option<Self>;
}

impl<'a> KeyedRequest<'a> {
    pub(crate) fn new(endpoint: Endpoint, key: &[u8], request: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { key: [&[endpoint as u8], key].concat(), request: request.into() }
    }
}

impl StoredResponse {
    const fn is_refundable(&self) -> bool {
        match self {
            Self::Http(response) => response.is_refundable,
            Self::Resp(reply) => reply.is_refundable,
        }
    }
}

impl App {
    /// The stored response of a repeated request, and that it is one; else the response of
    /// `respond`.
    #[inline]
    pub(crate) async fn idempotent<R: Replayable, E: From<IdempotencyError>>(
        &self,
        keyed: Option<KeyedRequest<'_>>,
        now: Timestamp,
        respond: impl Future<Output = Result<R, E>>,
    ) -> Result<(R, bool), E> {
        match keyed {
            None => Ok((respond.await?, false)),
            Some(keyed) if self.is_local() => {
                // With counters in memory the future is ready; a repeated request waits for it.
                let ready = || ready(respond).unwrap_or(Err(IdempotencyError::InProgress.into()));
                self.idempotent_now(&keyed, now, ready)
            }
            keyed => self.idempotent_later(keyed, now, respond).await,
        }
    }

    fn idempotent_now<R: Replayable, E: From<IdempotencyError>>(
        &self,
        keyed: &KeyedRequest<'_>,
        now: Timestamp,
        respond: impl FnOnce() -> Result<R, E>,
    ) -> Result<(R, bool), E> {
        let mut fresh = None;
        let table = self.idempotency();
        let stored = table.get_or_insert_with(&keyed.key, &keyed.request, now, || {
            let response = fresh.insert(respond()).as_ref().ok()?;
            response.is_charge().then(|| (response.store(), response.bytes()))
        });
        match fresh {
            Some(response) => Ok((response?, false)),
            None => restored(stored?),
        }
    }

    /// The same for a response that has to be waited for. A request that is repeated meanwhile is
    /// rejected.
    pub(crate) async fn idempotent_later<R: Replayable, E: From<IdempotencyError>>(
        &self,
        keyed: Option<KeyedRequest<'_>>,
        now: Timestamp,
        respond: impl Future<Output = Result<R, E>>,
    ) -> Result<(R, bool), E> {
        let Some(KeyedRequest { key, request }) = keyed else { return Ok((respond.await?, false)) };
        let table = self.idempotency();
        let _in_progress = table.begin(&key).ok_or(IdempotencyError::InProgress)?;
        if let Some(stored) = table.get(&key, &request, now)? {
            return restored(Some(stored));
        }
        let response = respond.await?;
        if response.is_charge() {
            let (stored, now) = (response.store(), self.engine().now());
            table.insert(&key, &request, stored, response.bytes(), now);
        }
        Ok((response, false))
    }

    /// Consumes the stored response of a check that charged all its descriptors: the proof of a
    /// refund.
    pub(crate) fn take_charge(
        &self,
        check: &KeyedRequest<'_>,
        now: Timestamp,
    ) -> Option<StoredResponse> {
        let is_refundable = StoredResponse::is_refundable;
        self.idempotency().take_if(&check.key, &check.request, now, is_refundable)
    }
}

fn restored<R: Replayable, E: From<IdempotencyError>>(
    stored: Option<StoredResponse>,
) -> Result<(R, bool), E> {
    let response = stored.and_then(R::restore).ok_or(IdempotencyError::KeyReused)?;
    Ok((response, true))
}

impl<V: Clone> IdempotencyTable<V> {
    /// The stored response; `None` after `respond` was called, whose response is stored, with its
    /// size, if any. A concurrent request with the same key waits.
    ///
    /// # Errors
    /// When the key was used for another request.
    pub fn get_or_insert_with(
        &self,
        key: &[u8],
        request: &[u8],
        now: Timestamp,
        respond: impl FnOnce() -> Option<(V, usize)>,
    ) -> Result<Option<V>, IdempotencyError> {
        let (key, request) = (self.hash(key), self.hash(request));
        let mut shard = self.shard(key).lock();
        shard.expire(now);
        let found = shard.get(key, request)?;
        if found.is_none()
            && let Some((response, bytes)) = respond()
        {
            self.store(&mut shard, key, request, response, bytes, now);
        }
        Ok(found)
    }

    /// Reserves a key for a request that is processed asynchronously; `None` if it is reserved.
    #[must_use]
    pub fn begin(&self, key: &[u8]) -> Option<InProgress<'_, V>> {
        let key = self.hash(key);
        let is_new = self.in_progress.lock().insert(key);
        // Created only if new: its drop releases the key.
        is_new.then(|| InProgress { table: self, key })
    }

    /// The stored response.
    ///
    /// # Errors
    /// When the key was used for another request.
    pub fn get(
        &self,
        key: &[u8],
        request: &[u8],
        now: Timestamp,
    ) -> Result<Option<V>, IdempotencyError> {
        let (key, request) = (self.hash(key), self.hash(request));
        let mut shard = self.shard(key).lock();
        shard.expire(now);
        shard.get(key, request)
    }

    /// Stores a response of so many bytes, unless there is one.
    pub fn insert(&self, key: &[u8], request: &[u8], response: V, bytes: usize, now: Timestamp) {
        let (key, request) = (self.hash(key), self.hash(request));
        let mut shard = self.shard(key).lock();
        if !shard.responses.contains_key(&key) {
            self.store(&mut shard, key, request, response, bytes, now);
        }
    }

    /// Removes and returns the stored response if it matches the request and the predicate. A later
    /// request with the same key is processed anew.
    pub fn take_if(
        &self,
        key: &[u8],
        request: &[u8],
        now: Timestamp,
        predicate: impl FnOnce(&V) -> bool,
    ) -> Option<V> {
        let (key, request) = (self.hash(key), self.hash(request));
        let mut shard = self.shard(key).lock();
        shard.expire(now);
        let found = shard.responses.get(&key);
        found.filter(|stored| stored.request == request && predicate(&stored.response))?;
        // Linear, from the newest: a shard holds a few thousand responses, and refunds follow soon.
        if let Some(index) = shard.order.iter().rposition(|other| *other == key) {
            shard.order.remove(index);
        }
        let stored = shard.responses.remove(&key)?;
        shard.bytes -= stored.bytes;
        Some(stored.response)
    }

    /// Responses that were evicted before they expired, for lack of memory.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn store(
        &self,
        shard: &mut ResponseShard<V>,
        key: KeyHash,
        request: KeyHash,
        response: V,
        bytes: usize,
        now: Timestamp,
    ) {
        let bytes = bytes.saturating_add(ResponseShard::<V>::OVERHEAD);
        let expires_at = now.after(RETENTION);
        shard.responses.insert(key, TableEntry { request, response, bytes, expires_at });
        shard.order.push_back(key);
        shard.bytes += bytes;
        while shard.bytes > BYTES_MAX / SHARDS && shard.drop_oldest() {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shard(&self, key: KeyHash) -> &Mutex<ResponseShard<V>> {
        &self.shards[key.0 as usize % SHARDS]
    }

    fn hash(&self, bytes: &[u8]) -> KeyHash {
        let [high, low] = &self.hashers;
        (high.hash_one(bytes), low.hash_one(bytes))
    }
}

impl<V> Default for IdempotencyTable<V> {
    fn default() -> Self {
        let shard = || {
            let (responses, order) = Default::default();
            Mutex::new(ResponseShard { responses, order, bytes: 0 })
        };
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            evicted: AtomicU64::new(0),
            in_progress: Mutex::default(),
        }
    }
}

impl<V> Drop for InProgress<'_, V> {
    fn drop(&mut self) {
        self.table.in_progress.lock().remove(&self.key);
    }
}

impl<V> ResponseShard<V> {
    /// Memory of a response beside its content: in the map and in the queue, each of which may have
    /// twice the capacity it needs.
    const OVERHEAD: usize = 2 * (size_of::<(KeyHash, TableEntry<V>)>() + size_of::<KeyHash>() + 1);

    fn get(&self, key: KeyHash, request: KeyHash) -> Result<Option<V>, IdempotencyError>
    where
        V: Clone,
    {
        match self.responses.get(&key) {
            None => Ok(None),
            Some(stored) if stored.request == request => Ok(Some(stored.response.clone())),
            Some(_) => Err(IdempotencyError::KeyReused),
        }
    }

    fn expire(&mut self, now: Timestamp) {
        let is_expired = |shard: &Self| {
            let oldest = shard.order.front().and_then(|key| shard.responses.get(key));
            oldest.is_some_and(|stored| stored.expires_at <= now)
        };
        while is_expired(self) && self.drop_oldest() {}
    }

    /// Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(key) = self.order.pop_front() else { return false };
        if let Some(stored) = self.responses.remove(&key) {
            self.bytes -= stored.bytes;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.after(Span::from_secs(seconds))
    }

    fn ask(
        table: &IdempotencyTable<u64>,
        key: &str,
        now: u64,
        answer: u64,
    ) -> (Result<u64, IdempotencyError>, bool) {
        let respond = || Some((answer, 8));
        match table.get_or_insert_with(key.as_bytes(), b"request", at(now), respond) {
            Ok(Some(stored)) => (Ok(stored), true),
            Ok(None) => (Ok(answer), false),
            Err(error) => (Err(error), false),
        }
    }

    #[test]
    fn a_response_is_stored_for_its_time() {
        let table = IdempotencyTable::default();
        assert_eq!(ask(&table, "a", 0, 1), (Ok(1), false));
        assert_eq!(ask(&table, "a", 599, 2), (Ok(1), true));
        assert_eq!(ask(&table, "b", 599, 3), (Ok(3), false));
        assert_eq!(ask(&table, "a", 600, 4), (Ok(4), false));
    }

    #[test]
    fn a_response_without_a_charge_is_not_stored() {
        let table = IdempotencyTable::default();
        let denied = || table.get_or_insert_with(b"a", b"request", at(0), || None);
        assert_eq!((denied(), denied()), (Ok(None), Ok(None)));
        assert_eq!(ask(&table, "a", 1, 1), (Ok(1), false));
    }

    #[test]
    fn beyond_the_memory_limit_the_oldest_are_evicted() {
        let table = IdempotencyTable::<u64>::default();
        let large = BYTES_MAX / SHARDS / 2;
        for n in 0u32..1_000 {
            let respond = || Some((0, large));
            let _ = table.get_or_insert_with(&n.to_le_bytes(), b"request", at(0), respond);
        }
        let bytes: usize = table.shards.iter().map(|shard| shard.lock().bytes).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        assert!(table.evicted() >= 1_000 - SHARDS as u64);
        let stored: usize = table.shards.iter().map(|shard| shard.lock().responses.len()).sum();
        assert_eq!(stored as u64 + table.evicted(), 1_000);
    }

    #[test]
    fn a_response_is_taken_once() {
        let table = IdempotencyTable::default();
        for n in 0..3 {
            assert_eq!(ask(&table, "a", n, n), (Ok(n), false), "processed anew");
            assert_eq!(table.take_if(b"a", b"other", at(n), |_| true), None);
            assert_eq!(table.take_if(b"a", b"request", at(n), |_| false), None);
            assert_eq!(table.take_if(b"a", b"request", at(n), |_| true), Some(n));
            assert_eq!(table.take_if(b"a", b"request", at(n), |_| true), None);
        }
        let bytes: usize = table.shards.iter().map(|shard| shard.lock().bytes).sum();
        let order: usize = table.shards.iter().map(|shard| shard.lock().order.len()).sum();
        assert_eq!((bytes, order), (0, 0));
    }

    #[test]
    fn a_late_response_is_stored_unless_there_is_one() {
        let table = IdempotencyTable::default();
        assert_eq!(table.get(b"a", b"request", at(0)), Ok(None));
        table.insert(b"a", b"request", 1, 8, at(1));
        table.insert(b"a", b"request", 2, 8, at(2));
        assert_eq!(table.get(b"a", b"request", at(3)), Ok(Some(1)));
        assert_eq!(table.get(b"a", b"other", at(3)), Err(IdempotencyError::KeyReused));
    }
}
