//! The ids, and the random order in which they are asked for.

use std::fmt::Write as _;

use crate::cell::Order;

/// How long an id is: `user:` and twelve digits.
pub(crate) const LENGTH: usize = 17;

/// Ids read at random. The order costs a multiplication and a few shifts; what a read costs beyond that
/// (two cache misses: the `String`, then its bytes) is shown by the two rows that only read ids.
#[derive(Debug)]
pub(crate) struct Picks<'a> {
    ids: &'a [String],
    state: u64,
    order: Order,
    place: usize,
}

/// All the ids of a cell.
pub(crate) fn build(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| {
            let mut id = String::with_capacity(LENGTH);
            write(&mut id, number);
            id
        })
        .collect()
}

/// Writes one id over what the buffer held: for those who must not keep ids of their own.
pub(crate) fn write(buffer: &mut String, number: usize) {
    buffer.clear();
    // Writing to a String cannot fail.
    let _ = write!(buffer, "user:{number:012}");
}

// === impl Picks ===

impl<'a> Picks<'a> {
    /// A different order for every seed.
    pub(crate) fn new(ids: &'a [String], seed: u64, order: Order) -> Self {
        Self { ids, state: (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), order, place: 0 }
    }

    /// The next id.
    #[inline]
    pub(crate) fn next(&mut self) -> &'a String {
        if self.order == Order::InTurn {
            self.place = if self.place + 1 < self.ids.len() { self.place + 1 } else { 0 };
            return &self.ids[self.place];
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // The high word of the product is uniform below the length, without a division.
        let place = (u128::from(self.state) * self.ids.len() as u128) >> 64;
        &self.ids[place as usize]
    }

    /// Makes the next pick depend on this.
    #[inline]
    pub(crate) fn stir(&mut self, by: u64) {
        self.state ^= by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_length() {
        let ids = build(1_001);
        assert!(ids.iter().all(|id| id.len() == LENGTH));
        assert_eq!(ids[1_000], "user:000000001000");
    }

    #[test]
    fn every_id_is_asked_for_about_as_often() {
        let ids = build(1_000);
        let mut seen = vec![0u32; ids.len()];
        let mut picks = Picks::new(&ids, 7, Order::Random);
        for _ in 0..100_000 {
            let number: usize = picks.next()[5..].parse().unwrap();
            seen[number] += 1;
        }
        assert!(seen.iter().all(|&times| (50..=150).contains(&times)), "{seen:?}");
    }
}
