//! A message that arrives in pieces.
//!
//! Nearly every message is one piece, which is neither copied nor charged. A message in several
//! pieces, or one that waits for its end, is copied into memory of its own, since a piece keeps the
//! buffer alive that it was read into, and is charged to its connection.

use std::sync::Arc;

use bytes::Bytes;

use super::{Account, Charge};

/// Smallest memory for a message in several pieces.
const BYTES_MIN: usize = 1 << 10;

/// Pieces of a message, so far.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    first: Bytes,
    gathered: Gathered,
}

#[derive(Debug, Default)]
struct Gathered {
    bytes: Vec<u8>,
    charge: Option<Charge>,
}

/// Reason to give a message up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatherError {
    /// Longer than its limit.
    TooLong,
    /// The memory budget is exhausted.
    Exhausted,
}

impl Gather {
    /// Adds a piece of a message of at most `bytes_max`.
    pub(crate) fn push(
        &mut self,
        piece: Bytes,
        bytes_max: usize,
        account: &Arc<Account>,
    ) -> Result<(), GatherError> {
        if self.is_empty() && piece.len() <= bytes_max {
            self.first = piece;
            return Ok(());
        }
        self.detach(bytes_max, account)?;
        self.gathered.append(&piece, bytes_max, account)
    }

    /// Copies a first piece that has to wait for more.
    pub(crate) fn detach(
        &mut self,
        bytes_max: usize,
        account: &Arc<Account>,
    ) -> Result<(), GatherError> {
        let first = std::mem::take(&mut self.first);
        if first.is_empty() {
            return Ok(());
        }
        self.gathered.append(&first, bytes_max, account)
    }

    /// The beginning of the message, as far as it has arrived and was copied.
    pub(crate) fn detached(&self) -> &[u8] {
        &self.gathered.bytes
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_empty() && self.gathered.bytes.is_empty()
    }

    /// The whole message; its charge lasts as long as the bytes do.
    pub(crate) fn take(&mut self) -> Bytes {
        let gathered = std::mem::take(&mut self.gathered);
        if gathered.bytes.is_empty() {
            return std::mem::take(&mut self.first);
        }
        Bytes::from_owner(gathered)
    }
}

impl Gathered {
    fn append(
        &mut self,
        piece: &[u8],
        bytes_max: usize,
        account: &Arc<Account>,
    ) -> Result<(), GatherError> {
        let length = self.bytes.len().saturating_add(piece.len());
        if length > bytes_max {
            return Err(GatherError::TooLong);
        }
        if length > self.bytes.capacity() {
            // By what has arrived, never by what was announced.
            let capacity = length.next_power_of_two().max(BYTES_MIN).min(bytes_max);
            let fits = match &mut self.charge {
                Some(charge) => charge.resize(capacity),
                charge => {
                    *charge = account.charge(capacity);
                    charge.is_some()
                }
            };
            if !fits {
                return Err(GatherError::Exhausted);
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl AsRef<[u8]> for Gathered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryBudget, Share};
    use super::*;

    #[test]
    fn only_messages_in_several_pieces_are_charged() {
        let budget = MemoryBudget::new(256 << 10);
        let account = Account::open(&budget.endpoint(Share::Clients), 0).unwrap();
        let mut gather = Gather::default();
        let piece = Bytes::from(vec![7; 1_000]);
        gather.push(piece.clone(), 1 << 20, &account).unwrap();
        assert_eq!(gather.take().as_ptr(), piece.as_ptr(), "one piece is not copied");
        assert_eq!(budget.reserved_bytes(), 0);

        for _ in 0..3 {
            gather.push(piece.clone(), 1 << 20, &account).unwrap();
        }
        let whole = gather.take();
        assert_eq!(whole.len(), 3_000);
        assert!(budget.reserved_bytes() > 0, "charged as long as the bytes exist");
        drop(whole);
        account.trim();
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn a_message_ends_at_its_limit_and_at_the_budget() {
        let budget = MemoryBudget::new(256 << 10);
        let account = Account::open(&budget.endpoint(Share::Clients), 0).unwrap();
        let mut gather = Gather::default();
        let too_long = gather.push(Bytes::from_static(&[0; 11]), 10, &account);
        assert_eq!(too_long, Err(GatherError::TooLong));
        let piece = Bytes::from(vec![0; 20 << 10]);
        let pushed = |gather: &mut Gather| gather.push(piece.clone(), 1 << 20, &account);
        let refused = (0..20).find_map(|_| pushed(&mut gather).err());
        assert_eq!(refused, Some(GatherError::Exhausted));
    }
}
