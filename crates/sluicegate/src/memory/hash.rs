//! SipHash-1-3 of a byte slice.
//!
//! Colliding identities share a quota, so collisions must not be predictable: the hash is keyed.
//! This is the hash of the standard library's `HashMap`, for a complete slice: a third fewer
//! instructions than through the `Hasher` trait (`docs/DESIGN.md` has the figures). Tests compare
//! it with the crate `siphasher`.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The secret that hashes depend on.
#[derive(Clone, Copy)]
pub(crate) struct HashKey {
    pub(crate) words: [u64; 2],
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(hidden)")
    }
}

struct Sip {
    v: [u64; 4],
}

impl HashKey {
    /// A random key.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self { words: [random.hash_one(0u8), random.hash_one(1u8)] }
    }

    /// The hash of `bytes` under this key.
    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        let [k0, k1] = self.words;
        let mut sip = Sip {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
        };
        let (blocks, rest) = bytes.as_chunks::<8>();
        for block in blocks {
            sip.block(u64::from_le_bytes(*block));
        }
        // The last block has the remaining bytes, and the length in its highest byte.
        sip.block(tail(bytes, rest) | (bytes.len() as u64) << 56);
        sip.finish()
    }
}

/// Up to seven bytes at the end of a slice as a number.
#[inline]
fn tail(bytes: &[u8], rest: &[u8]) -> u64 {
    if rest.is_empty() {
        return 0;
    }
    match bytes.last_chunk() {
        // One load, with the bytes of the previous block shifted out.
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

impl Sip {
    #[inline]
    fn block(&mut self, block: u64) {
        self.v[3] ^= block;
        self.round();
        self.v[0] ^= block;
    }

    #[inline]
    fn finish(mut self) -> u64 {
        self.v[2] ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }

    #[inline]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.v;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.v = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip::SipHasher13;

    #[test]
    fn it_is_siphash_1_3() {
        let bytes: Vec<u8> = (0..200u8).map(|byte| byte.wrapping_mul(37)).collect();
        for words in [[0, 0], [1, 2], [u64::MAX, 0x0123_4567_89ab_cdef]] {
            let reference = SipHasher13::new_with_keys(words[0], words[1]);
            for start in 0..9 {
                for end in start..bytes.len() {
                    let some = &bytes[start..end];
                    assert_eq!(HashKey { words }.hash(some), reference.hash(some), "{some:?}");
                }
            }
        }
    }
}
