//! Verified tokens of one worker.
//!
//! Two generations, each of at most half the capacity: a full young one replaces the old one, and
//! a token that is used again moves to the young one. So a flood of new tokens cannot grow it, and
//! all operations take constant time.

use std::collections::HashMap;
use std::sync::Arc;

use super::Token;

/// SHA-256 of a token.
pub(super) type TokenHash = [u8; 32];

#[derive(Debug)]
pub(super) struct TokenCache {
    young: HashMap<TokenHash, Entry>,
    old: HashMap<TokenHash, Entry>,
    generation_max: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    token: Arc<Token>,
    /// Revision of the keys that verified it.
    revision: u64,
}

impl TokenCache {
    pub(super) fn new(capacity: usize) -> Self {
        let generation_max = (capacity / 2).max(1);
        Self { young: HashMap::new(), old: HashMap::new(), generation_max }
    }

    /// A token that these keys verified, unless it has expired.
    pub(super) fn get(&mut self, hash: &TokenHash, revision: u64, now: u64) -> Option<Arc<Token>> {
        let is_valid = |entry: &Entry| entry.revision == revision && now < entry.token.expires_at;
        if let Some(entry) = self.young.get(hash) {
            if is_valid(entry) {
                return Some(entry.token.clone());
            }
            self.young.remove(hash);
            return None;
        }
        let entry = self.old.remove(hash).filter(is_valid)?;
        self.insert(*hash, revision, entry.token.clone());
        Some(entry.token)
    }

    pub(super) fn insert(&mut self, hash: TokenHash, revision: u64, token: Arc<Token>) {
        if self.young.len() >= self.generation_max {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(hash, Entry { token, revision });
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(expires_at: u64) -> Arc<Token> {
        Arc::new(Token { expires_at, claims: Box::default() })
    }

    fn hash(number: u8) -> TokenHash {
        [number; 32]
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let mut cache = TokenCache::new(8);
        cache.insert(hash(1), 0, token(100));
        assert!(cache.get(&hash(1), 0, 99).is_some());
        assert!(cache.get(&hash(1), 0, 100).is_none());
        assert_eq!(cache.len(), 0, "an expired token is dropped");
    }

    #[test]
    fn new_keys_verify_again() {
        let mut cache = TokenCache::new(8);
        cache.insert(hash(1), 0, token(100));
        assert!(cache.get(&hash(1), 1, 50).is_none());
    }

    #[test]
    fn a_token_in_use_survives_a_flood() {
        let mut cache = TokenCache::new(8);
        cache.insert(hash(0), 0, token(100));
        for number in 1..200 {
            cache.insert(hash(number), 0, token(100));
            assert!(cache.get(&hash(0), 0, 50).is_some(), "after {number}");
        }
    }

    proptest! {
        #[test]
        fn it_is_bounded_and_never_invents(steps in proptest::collection::vec((any::<bool>(), 0u8..20), 0..200)) {
            let mut cache = TokenCache::new(8);
            let mut inserted = std::collections::HashSet::new();
            for (inserts, number) in steps {
                if inserts {
                    cache.insert(hash(number), 0, token(u64::from(number) + 1));
                    inserted.insert(number);
                } else if let Some(token) = cache.get(&hash(number), 0, 0) {
                    prop_assert!(inserted.contains(&number));
                    prop_assert_eq!(token.expires_at, u64::from(number) + 1);
                }
                prop_assert!(cache.len() <= 8);
            }
        }
    }
}
