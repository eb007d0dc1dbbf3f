//! A request that is used again and again: the digits of the key are written over.
//!
//! All keys have the same number of digits, so all requests have the same length, whatever encoding holds them. Where the digits are
//! is found by making the request for two keys that have no digit in common: what differs is the key.

use bytes::BytesMut;

/// The bytes of a request with places for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Where digits of a key begin.
    places: Vec<usize>,
    digits: usize,
}

// === impl Template ===

impl Template {
    /// By whoever makes the request of a key. It must do nothing with it but write it, or not.
    pub(crate) fn of(digits: usize, request: impl Fn(&str) -> Vec<u8>) -> Self {
        let (bytes, other) = (request(&"0".repeat(digits)), request(&"1".repeat(digits)));
        debug_assert_eq!(bytes.len(), other.len(), "requests of one length");
        let mut places = Vec::new();
        let mut at = 0;
        while at < bytes.len().min(other.len()) {
            let differs = bytes[at] != other[at];
            if differs {
                places.push(at);
            }
            at += if differs { digits } else { 1 };
        }
        Self { bytes, places, digits }
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the request of a key, which has at most so many digits.
    pub(crate) fn write(&self, key: u64, out: &mut BytesMut) {
        let begins = out.len();
        out.extend_from_slice(&self.bytes);
        let written = &mut out[begins..];
        for place in &self.places {
            let mut rest = key;
            for digit in written[*place..*place + self.digits].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn writing_over_is_making_anew(
            parts in proptest::collection::vec("[a-z{}01]{0,4}", 1..5), digits in 1usize..8, key: u64, before in "[a-z]{0,3}",
        ) {
            let key = key % 10u64.pow(digits as u32);
            let request = |key: &str| parts.join(key).into_bytes();
            let mut written = BytesMut::from(before.as_bytes());
            Template::of(digits, request).write(key, &mut written);
            let made = [before.into_bytes(), request(&format!("{key:0digits$}"))].concat();
            prop_assert_eq!(&written[..], &made[..]);
        }
    }
}
