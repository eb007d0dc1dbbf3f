//! The name of a record.
//!
//! `sg:1:{shop|user_id=42}`: the namespace, the version of what is kept, and the identity, which is the hash tag too: on a Cluster everything that belongs to
//! one identity is on one node.

use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};
use sluicegate_rules::set::write_readable;

/// The version of what is kept. Nodes of another one do not see it.
const VERSION: &str = "1";
/// A longer identity is cut, and told from others by a hash of all of it.
const TEXT_MAX: usize = 200;

/// The name of what is kept of an identity; `beside` tells counters of one identity apart.
pub(super) fn key_of(namespace: &str, identity: &[u8], beside: &str) -> Arc<[u8]> {
    let mut key = Vec::with_capacity(namespace.len() + identity.len() + beside.len() + 8);
    key.extend_from_slice(namespace.as_bytes());
    key.push(b':');
    key.extend_from_slice(VERSION.as_bytes());
    key.extend_from_slice(b":{");
    let from = key.len();
    write_readable(identity, &mut key);
    if key.len() - from > TEXT_MAX {
        cut(&mut key, from, identity);
    }
    key.push(b'}');
    key.extend_from_slice(beside.as_bytes());
    key.into()
}

/// The same for all nodes, so under no secret: whoever could make two identities meet would only hurt the two.
fn cut(key: &mut Vec<u8>, from: usize, identity: &[u8]) {
    use std::hash::Hasher;
    let mut hasher = SipHasher13::new_with_keys(0x736c_7569_6365, 0x6761_7465);
    hasher.write(identity);
    let hash = hasher.finish128().as_u128();
    // Not within a letter.
    let text = String::from_utf8_lossy(&key[from..from + TEXT_MAX / 2]).into_owned();
    key.truncate(from);
    key.extend_from_slice(text.trim_end_matches(char::REPLACEMENT_CHARACTER).as_bytes());
    key.extend_from_slice(format!("!{hash:032x}").as_bytes());
}

/// What a rule is known by to all nodes, from what it is known by when rules are replaced.
pub(super) fn rule_id(lasting: &str) -> u64 {
    use std::hash::Hasher;
    let mut hasher = SipHasher13::new_with_keys(0x736c_7569_6365, 0x7275_6c65);
    hasher.write(lasting.as_bytes());
    hasher.finish128().as_u128() as u64
}

/// The name of something that belongs to no identity.
pub(super) fn plain_key(namespace: &str, name: &[u8]) -> Arc<[u8]> {
    [namespace.as_bytes(), b":", VERSION.as_bytes(), b":", name].concat().into()
}
