//! The bytes of an answer, on their way out.

use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::memory::{Account, Charge};

/// As long as most answers: these need no memory of their own.
const SMALL: usize = 96;
const _: () = assert!(SMALL <= u8::MAX as usize);

/// A message that is to be sent. It knows when it was given away, since the connection keeps it until the client has read that far.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Stored,
    _since: Since,
}

#[derive(Debug)]
enum Stored {
    Small { bytes: [u8; SMALL], from: u8, to: u8 },
    Large { bytes: Bytes, _charge: Option<Charge> },
}

/// What h2 needs for a call, measured. It keeps as much for as many calls as there ever were at a
/// time on the connection.
pub(super) const CALL_BYTES: usize = 2_304;
/// Longest answer that is not charged by itself, but with the call while it is not read.
pub(super) const UNCHARGED_BYTES: usize = 1_536;

/// A span of time; shared by all the answers that were given in it and have not gone out yet.
pub(super) type Since = Arc<()>;

/// Whether the client reads its answers.
#[derive(Debug, Default)]
pub(super) struct Unread {
    now: Since,
    before: Since,
}

impl Answer {
    /// Nothing if it is long, and the memory budget does not allow it.
    pub(super) fn new(message: &[u8], since: Since, account: &Arc<Account>) -> Option<Self> {
        let mut bytes = [0; SMALL];
        let bytes = match bytes.get_mut(..message.len()) {
            Some(start) => {
                start.copy_from_slice(message);
                Stored::Small { bytes, from: 0, to: message.len() as u8 }
            }
            None if message.len() <= UNCHARGED_BYTES => {
                Stored::Large { bytes: Bytes::copy_from_slice(message), _charge: None }
            }
            None => {
                let _charge = Some(account.charge(message.len())?);
                Stored::Large { bytes: Bytes::copy_from_slice(message), _charge }
            }
        };
        Some(Self { bytes, _since: since })
    }
}

impl Buf for Answer {
    fn remaining(&self) -> usize {
        match &self.bytes {
            Stored::Small { from, to, .. } => usize::from(to - from),
            Stored::Large { bytes, .. } => bytes.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.bytes {
            Stored::Small { bytes, from, to } => &bytes[usize::from(*from)..usize::from(*to)],
            Stored::Large { bytes, .. } => bytes.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.bytes {
            Stored::Small { from, to, .. } => {
                // No further than the end: whoever asks for more is wrong, and gets no more.
                *from =
                    u8::try_from(count).map_or(*to, |count| from.saturating_add(count).min(*to));
            }
            Stored::Large { bytes, .. } => bytes.advance(count),
        }
    }
}

impl Unread {
    /// For an answer that is given now.
    pub(super) fn since(&self) -> Since {
        self.now.clone()
    }

    /// Calls whose answers are not out.
    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.now) + Arc::strong_count(&self.before) - 2
    }

    /// A span is over. Whether an answer has waited for the whole of it.
    pub(super) fn is_stuck(&mut self) -> bool {
        // Its own, and one of each answer that is not out.
        let is_stuck = Arc::strong_count(&self.before) > 1;
        self.before = std::mem::take(&mut self.now);
        is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryBudget, Share};

    fn answer_of(message: &[u8], since: Since) -> Answer {
        let endpoint = MemoryBudget::default().endpoint(Share::Clients);
        Answer::new(message, since, &Account::open(&endpoint, 0).unwrap()).unwrap()
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        for length in [0, 1, SMALL - 1, SMALL, SMALL + 1, 1_000, 5_000] {
            let message: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let mut answer = answer_of(&message, Since::default());
            let mut read = Vec::new();
            while answer.has_remaining() {
                assert_eq!(answer.remaining(), length - read.len());
                let some = answer.chunk().len().min(7);
                read.extend_from_slice(&answer.chunk()[..some]);
                answer.advance(some);
            }
            assert_eq!(read, message);
        }
    }

    #[test]
    fn an_answer_is_stuck_once_it_has_waited_for_a_whole_span() {
        let mut unread = Unread::default();
        let answer = answer_of(b"42", unread.since());
        assert!(!unread.is_stuck(), "it came in the middle of this one");
        assert!(unread.is_stuck());
        let mut unread = Unread::default();
        let _late = answer_of(b"43", unread.since());
        drop(answer);
        assert!(!unread.is_stuck());
    }

    #[test]
    fn answers_that_go_out_are_not_stuck() {
        let mut unread = Unread::default();
        for _ in 0..5 {
            let answer = answer_of(b"42", unread.since());
            assert!(!unread.is_stuck());
            drop(answer);
        }
    }
}
