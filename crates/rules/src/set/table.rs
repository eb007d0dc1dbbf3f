//! An immutable hash table with linear probing: finds the node of a level by its text.
//!
//! Its keys come from the rules, lookups from clients. A lookup inserts nothing, so clients cannot
//! degrade it, and the hash is fast and unkeyed.

/// Finds nodes by level and text.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    slots: Box<[Slot]>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The upper half of the hash; the lower half selects the slot.
    mark: u32,
    /// The node, or [`EMPTY`].
    node: u32,
}

/// No node has this number.
const EMPTY: u32 = u32::MAX;

impl Table {
    /// A table of these nodes, by the hash of each.
    pub(super) fn new(hashes: impl ExactSizeIterator<Item = (u64, u32)>) -> Self {
        // At most half full, so that probe sequences are short.
        let size = hashes.len().saturating_mul(2).next_power_of_two();
        let mut slots = vec![Slot { mark: 0, node: EMPTY }; size].into_boxed_slice();
        for (hash, node) in hashes {
            let mut at = index(hash, size);
            while slots[at].node != EMPTY {
                at = (at + 1) % size;
            }
            slots[at] = Slot { mark: mark(hash), node };
        }
        Self { slots }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// The nodes that may have this hash, in insertion order.
    #[inline]
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> {
        let size = self.slots.len();
        let (mut at, mark) = (index(hash, size), mark(hash));
        std::iter::from_fn(move || {
            loop {
                let slot = self.slots.get(at).filter(|slot| slot.node != EMPTY)?;
                at = (at + 1) & (size - 1);
                if slot.mark == mark {
                    return Some(slot.node);
                }
            }
        })
    }
}

#[inline]
fn index(hash: u64, size: usize) -> usize {
    // A power of two; or 0 in an empty set, which has no slots.
    (hash as usize) & size.wrapping_sub(1)
}

#[inline]
const fn mark(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The hash of a text on a level.
#[inline]
pub(super) fn hash(seed: u32, text: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    // Spread over all bits, so that bytes cannot compensate for a length.
    let length = (text.len() as u64).wrapping_mul(0xA24B_AED4_963E_E407);
    let mut state = u64::from(seed).wrapping_mul(ODD) ^ length;
    let mut rest = text;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        state = fold(state ^ u64::from_le_bytes(*word), ODD);
        rest = after;
    }
    // The last bytes as one number: two overlapping halves if there are enough.
    let last = match (rest.first_chunk::<4>(), rest.last_chunk::<4>(), rest) {
        (Some(first), Some(last), _) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        (_, _, [a, b, c]) => u64::from(*a) << 16 | u64::from(*b) << 8 | u64::from(*c),
        (_, _, [a, b]) => u64::from(*a) << 8 | u64::from(*b),
        (_, _, [a]) => u64::from(*a),
        _ => 0,
    };
    fold(state ^ last, 0xD6E8_FEB8_6659_FD93)
}

/// The product of two words, its halves combined by xor.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn what_was_put_in_is_found() {
        let texts: Vec<String> = (0..10_000).map(|n| format!("user_id_{n}")).collect();
        let hashes: Vec<(u64, u32)> =
            texts.iter().zip(0..).map(|(text, node)| (hash(7, text.as_bytes()), node)).collect();
        let table = Table::new(hashes.iter().copied());
        for (hash, node) in hashes {
            assert!(table.candidates(hash).any(|found| found == node));
        }
        assert_eq!(table.candidates(hash(8, b"user_id_1")).count(), 0, "of another level");
    }

    #[test]
    fn an_empty_table_has_nothing() {
        let table = Table::new(std::iter::empty::<(u64, u32)>().collect::<Vec<_>>().into_iter());
        assert_eq!(table.candidates(hash(0, b"a")).count(), 0);
        assert_eq!(Table::default().candidates(hash(0, b"a")).count(), 0);
    }

    #[test]
    fn texts_that_look_alike_have_hashes_of_their_own() {
        let mut seen = HashSet::new();
        for length in 0..40 {
            for last in 0..=255 {
                let mut text = vec![0u8; length];
                text.push(last);
                assert!(seen.insert(hash(1, &text)), "{length} {last}");
            }
        }
    }
}
