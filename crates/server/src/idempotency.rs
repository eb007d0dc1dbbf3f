//! Answers to whoever asks again: the same key, the same answer, and nothing is charged twice.
//!
//! Only what changed something is kept. A denial charged nothing, so that whoever asks again after it is asked anew, and may go.
//!
//! What is kept has a bound of time and one of bytes. Beyond the latter the oldest answers are forgotten, and [`Once::forgotten`] counts them: a client that
//! comes back after that is charged again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate::{Span, Timestamp};

/// The longest key.
pub const KEY_BYTES_MAX: usize = 255;

/// How long an answer is kept.
const KEPT_FOR: Span = Span::from_secs(600);
/// What the answers may take, all together.
const BYTES_MAX: usize = 64 << 20;
const SHARDS: usize = 64;

/// Answers that are kept for whoever asks again.
///
/// ```
/// use sluicegate::Timestamp;
/// use sluicegate_server::reservations::{Before, Once};
///
/// let (once, now) = (Once::<String>::default(), Timestamp::EPOCH);
/// let mut charged = 0;
/// for _ in 0..2 {
///     let (answer, _) = once.answer(b"retry 7", b"what is asked", now, || {
///         charged += 1;
///         ("you may".to_owned(), Some(7))
///     });
///     assert_eq!(answer.as_deref(), Ok("you may"));
/// }
/// assert_eq!(charged, 1);
/// let (other, _) = once.answer(b"retry 7", b"something else", now, || unreachable!());
/// assert_eq!(other, Err(Before::Other));
/// ```
#[derive(Debug)]
pub struct Once<V> {
    /// Two of them: a collision of one half would answer somebody with an answer to somebody else.
    hashers: [RandomState; 2],
    shards: Vec<Mutex<Shard<V>>>,
    forgotten: AtomicU64,
    /// Keys of those who cannot be answered at once.
    under_way: Mutex<HashSet<Key>>,
}

/// Somebody who cannot be answered at once, and whose key is nobody else's until this is dropped.
#[derive(Debug)]
pub struct UnderWay<'a, V> {
    once: &'a Once<V>,
    key: Key,
}

/// What was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Something else was asked under this key.
    Other,
}

#[derive(Debug)]
struct Shard<V> {
    kept: HashMap<Key, Kept<V>>,
    /// In the order in which they came, which is that in which they are forgotten.
    row: VecDeque<Key>,
    bytes: usize,
}

type Key = (u64, u64);

#[derive(Debug)]
struct Kept<V> {
    asked: Key,
    answer: V,
    bytes: usize,
    until: Timestamp,
}

// === impl Once ===

impl<V: Clone> Once<V> {
    /// The answer that was given under this key before, and whether it was; or else what `answer` says now, which is kept if it tells how many bytes
    /// it has.
    ///
    /// Whoever asks for the same at the same time waits for it.
    ///
    /// # Errors
    /// When something else was asked under this key.
    pub fn answer(
        &self,
        key: &[u8],
        asked: &[u8],
        now: Timestamp,
        answer: impl FnOnce() -> (V, Option<usize>),
    ) -> (Result<V, Before>, bool) {
        let (key, asked) = (self.hash(key), self.hash(asked));
        let mut shard = self.shard(key).lock();
        self.forget(&mut shard, now);
        if let Some(kept) = shard.kept.get(&key) {
            let same = kept.asked == asked;
            return (if same { Ok(kept.answer.clone()) } else { Err(Before::Other) }, same);
        }
        let (answer, bytes) = answer();
        if let Some(bytes) = bytes {
            self.keep(&mut shard, key, asked, answer.clone(), bytes, now);
        }
        (Ok(answer), false)
    }

    /// Keeps others from asking under this key until there is an answer: for whoever cannot work one out at once. `None` if somebody else does.
    #[must_use]
    pub fn begin(&self, key: &[u8]) -> Option<UnderWay<'_, V>> {
        let key = self.hash(key);
        let is_new = self.under_way.lock().insert(key);
        // Made only where it is new: dropping it takes the key out.
        is_new.then(|| UnderWay { once: self, key })
    }

    /// The answer that was given before, if there was one.
    ///
    /// # Errors
    /// When something else was asked under this key.
    pub fn before(&self, key: &[u8], asked: &[u8], now: Timestamp) -> Result<Option<V>, Before> {
        let (key, asked) = (self.hash(key), self.hash(asked));
        let mut shard = self.shard(key).lock();
        self.forget(&mut shard, now);
        match shard.kept.get(&key) {
            None => Ok(None),
            Some(kept) if kept.asked == asked => Ok(Some(kept.answer.clone())),
            Some(_) => Err(Before::Other),
        }
    }

    /// Keeps an answer of so many bytes, unless there is one.
    pub fn put(&self, key: &[u8], asked: &[u8], answer: V, bytes: usize, now: Timestamp) {
        let (key, asked) = (self.hash(key), self.hash(asked));
        let mut shard = self.shard(key).lock();
        if !shard.kept.contains_key(&key) {
            self.keep(&mut shard, key, asked, answer, bytes, now);
        }
    }

    /// Removes and returns the stored answer if it matches the request and the predicate. A later
    /// request with the same key is processed anew.
    pub fn take(
        &self,
        key: &[u8],
        asked: &[u8],
        now: Timestamp,
        is_wanted: impl FnOnce(&V) -> bool,
    ) -> Option<V> {
        let (key, asked) = (self.hash(key), self.hash(asked));
        let mut shard = self.shard(key).lock();
        self.forget(&mut shard, now);
        shard.kept.get(&key).filter(|kept| kept.asked == asked && is_wanted(&kept.answer))?;
        // Linear, from the newest: a shard holds a few thousand answers, and refunds follow soon.
        if let Some(place) = shard.row.iter().rposition(|other| *other == key) {
            shard.row.remove(place);
        }
        let kept = shard.kept.remove(&key)?;
        shard.bytes -= kept.bytes;
        Some(kept.answer)
    }

    /// How many answers were forgotten before their time, for want of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn keep(
        &self,
        shard: &mut Shard<V>,
        key: Key,
        asked: Key,
        answer: V,
        bytes: usize,
        now: Timestamp,
    ) {
        let bytes = bytes.saturating_add(Shard::<V>::BESIDE);
        shard.kept.insert(key, Kept { asked, answer, bytes, until: now.after(KEPT_FOR) });
        shard.row.push_back(key);
        shard.bytes += bytes;
        while shard.bytes > BYTES_MAX / SHARDS && shard.drop_oldest() {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn forget(&self, shard: &mut Shard<V>, now: Timestamp) {
        let is_over = |shard: &Shard<V>| {
            let oldest = shard.row.front().and_then(|key| shard.kept.get(key));
            oldest.is_some_and(|kept| kept.until <= now)
        };
        while is_over(shard) && shard.drop_oldest() {}
    }

    fn shard(&self, key: Key) -> &Mutex<Shard<V>> {
        &self.shards[key.0 as usize % SHARDS]
    }

    fn hash(&self, bytes: &[u8]) -> Key {
        let [one, other] = &self.hashers;
        (one.hash_one(bytes), other.hash_one(bytes))
    }
}

impl<V> Default for Once<V> {
    fn default() -> Self {
        let shard = || Mutex::new(Shard { kept: HashMap::new(), row: VecDeque::new(), bytes: 0 });
        let shards = std::iter::repeat_with(shard).take(SHARDS).collect();
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            shards,
            forgotten: AtomicU64::new(0),
            under_way: Mutex::default(),
        }
    }
}

impl<V> Drop for UnderWay<'_, V> {
    fn drop(&mut self) {
        self.once.under_way.lock().remove(&self.key);
    }
}

impl<V> Shard<V> {
    /// What an answer takes beside what it says itself: its place in the map and in the row. Both may be twice as large as they need to be.
    const BESIDE: usize = 2 * (size_of::<(Key, Kept<V>)>() + size_of::<Key>() + 1);

    /// Whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(key) = self.row.pop_front() else { return false };
        if let Some(kept) = self.kept.remove(&key) {
            self.bytes -= kept.bytes;
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

    fn ask(once: &Once<u64>, key: &str, now: u64, answer: u64) -> (Result<u64, Before>, bool) {
        once.answer(key.as_bytes(), b"asked", at(now), || (answer, Some(8)))
    }

    #[test]
    fn an_answer_is_kept_for_its_time() {
        let once = Once::default();
        assert_eq!(ask(&once, "a", 0, 1), (Ok(1), false));
        assert_eq!(ask(&once, "a", 599, 2), (Ok(1), true));
        assert_eq!(ask(&once, "b", 599, 3), (Ok(3), false));
        assert_eq!(ask(&once, "a", 600, 4), (Ok(4), false));
    }

    #[test]
    fn what_changed_nothing_is_not_kept() {
        let once = Once::default();
        let denied = || once.answer(b"a", b"asked", at(0), || (0, None)).0;
        assert_eq!((denied(), denied()), (Ok(0), Ok(0)));
        assert_eq!(ask(&once, "a", 1, 1), (Ok(1), false));
    }

    #[test]
    fn beyond_its_bytes_the_oldest_are_forgotten() {
        let once = Once::<u64>::default();
        let large = BYTES_MAX / SHARDS / 2;
        for n in 0u32..1_000 {
            let _ = once.answer(&n.to_le_bytes(), b"asked", at(0), || (0, Some(large)));
        }
        let bytes: usize = once.shards.iter().map(|shard| shard.lock().bytes).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        assert!(once.forgotten() >= 1_000 - SHARDS as u64);
        let kept: usize = once.shards.iter().map(|shard| shard.lock().kept.len()).sum();
        assert_eq!(kept as u64 + once.forgotten(), 1_000);
    }

    #[test]
    fn an_answer_is_taken_out_once() {
        let once = Once::default();
        for n in 0..3 {
            assert_eq!(ask(&once, "a", n, n), (Ok(n), false), "asked anew");
            assert_eq!(once.take(b"a", b"other", at(n), |_| true), None);
            assert_eq!(once.take(b"a", b"asked", at(n), |_| false), None);
            assert_eq!(once.take(b"a", b"asked", at(n), |_| true), Some(n));
            assert_eq!(once.take(b"a", b"asked", at(n), |_| true), None);
        }
        let bytes: usize = once.shards.iter().map(|shard| shard.lock().bytes).sum();
        let row: usize = once.shards.iter().map(|shard| shard.lock().row.len()).sum();
        assert_eq!((bytes, row), (0, 0));
    }

    #[test]
    fn a_late_answer_is_kept_unless_there_is_one() {
        let once = Once::default();
        assert_eq!(once.before(b"a", b"asked", at(0)), Ok(None));
        once.put(b"a", b"asked", 1, 8, at(1));
        once.put(b"a", b"asked", 2, 8, at(2));
        assert_eq!(once.before(b"a", b"asked", at(3)), Ok(Some(1)));
        assert_eq!(once.before(b"a", b"other", at(3)), Err(Before::Other));
    }
}
