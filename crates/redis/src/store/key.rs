//! Names and hashes of keys.
//!
//! `sg:1:{shop|user_id=42}`: the namespace, the version of the record format, and the identity,
//! which is the hash tag: on a Cluster, everything of an identity is on one node.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};
use sluicegate_rules::set::write_readable;

/// Version of the record format. Nodes of another version use other keys.
const VERSION: &str = "1";
/// A longer identity is truncated and gets a hash of the whole.
const IDENTITY_BYTES_MAX: usize = 200;

/// The key of an identity; `suffix` separates counters of one identity.
pub(super) fn key_of(namespace: &str, identity: &[u8], suffix: &str) -> Arc<[u8]> {
    let mut key = Vec::with_capacity(namespace.len() + identity.len() + suffix.len() + 8);
    key.extend_from_slice(namespace.as_bytes());
    key.push(b':');
    key.extend_from_slice(VERSION.as_bytes());
    key.extend_from_slice(b":{");
    let start = key.len();
    write_readable(identity, &mut key);
    if key.len() - start > IDENTITY_BYTES_MAX {
        truncate(&mut key, start, identity);
    }
    key.push(b'}');
    key.extend_from_slice(suffix.as_bytes());
    key.into()
}

/// The hash is equal on all nodes, so it has no secret: a forged collision affects only the
/// identities of its author.
fn truncate(key: &mut Vec<u8>, start: usize, identity: &[u8]) {
    let hash = sip128(0x6761_7465, identity);
    // At a character boundary.
    let text = String::from_utf8_lossy(&key[start..start + IDENTITY_BYTES_MAX / 2]).into_owned();
    key.truncate(start);
    key.extend_from_slice(text.trim_end_matches(char::REPLACEMENT_CHARACTER).as_bytes());
    key.extend_from_slice(format!("!{hash:032x}").as_bytes());
}

/// Id of a rule on all nodes, from its key that survives reloads.
pub(super) fn rule_id(stable_key: &str) -> u64 {
    sip128(0x7275_6c65, stable_key.as_bytes()) as u64
}

fn sip128(key: u64, bytes: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new_with_keys(0x736c_7569_6365, key);
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

/// A key that belongs to no identity.
pub(super) fn plain_key(namespace: &str, name: &[u8]) -> Arc<[u8]> {
    [namespace.as_bytes(), b":", VERSION.as_bytes(), b":", name].concat().into()
}

/// Hashes keys within this node: with a random secret, or reproducibly with a seed.
#[derive(Debug, Clone)]
pub(super) enum KeyHasher {
    Random(RandomState),
    Seeded(u64),
}

impl KeyHasher {
    pub(super) fn new(seed: Option<u64>) -> Self {
        seed.map_or_else(|| Self::Random(RandomState::new()), Self::Seeded)
    }
}

impl BuildHasher for KeyHasher {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match self {
            Self::Random(state) => state.build_hasher(),
            Self::Seeded(seed) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*seed);
                hasher
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_hash() {
        let of = |seed| KeyHasher::new(seed).hash_one("alice");
        assert_eq!(of(Some(7)), of(Some(7)));
        assert_ne!(of(Some(7)), of(Some(8)));
        assert_ne!(of(None), of(None));
    }
}
