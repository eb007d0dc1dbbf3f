//! Binary format of an account: its states, then its holds.

use super::Account;
use super::holds::{HOLDS_MAX, Hold, HoldKind, Holds, Receipt};
use super::step_state::StepState;
use crate::algorithm::Ticket;
use crate::algorithm::concurrency::Holder;
use crate::codec::{Encode, all_distinct, byte, decode_list, encode_list, encode_variant};
use crate::limit::State;
use crate::time::{Span, Timestamp};

impl Account {
    /// Appends this account to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        encode_list(&self.states, out);
        encode_list(self.holds.all(), out);
    }

    /// Decodes an account from the front of `bytes` and advances them; `None` if they are
    /// malformed.
    ///
    /// The plan is not encoded: under another plan, states that do not fit start anew.
    ///
    /// ```
    /// use sluicegate_core::account::Account;
    /// use sluicegate_core::limit::State;
    ///
    /// let account = Account::from_states([(State::Spent(3), State::New)]);
    /// let mut bytes = Vec::new();
    /// account.write(&mut bytes);
    /// assert_eq!(Account::read(&mut &bytes[..]), Some(account));
    /// ```
    #[must_use]
    pub fn read(bytes: &mut &[u8]) -> Option<Self> {
        let states = decode_list(bytes, u64::MAX)?;
        Some(Self { states, holds: read_holds(bytes)?, ..Self::default() })
    }

    /// The encoded holds; empty if there are none.
    pub(crate) fn encoded_holds(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.holds.is_empty() {
            encode_list(self.holds.all(), &mut out);
        }
        out
    }

    /// The same account with holds encoded by [`Account::encoded_holds`]; `None` if malformed.
    pub(crate) fn with_encoded_holds(self, mut bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(self);
        }
        let holds = read_holds(&mut bytes)?;
        bytes.is_empty().then_some(Self { holds, ..self })
    }
}

fn read_holds(bytes: &mut &[u8]) -> Option<Holds> {
    let holds: Vec<Hold> = decode_list(bytes, HOLDS_MAX as u64)?;
    all_distinct(holds.iter().map(|hold| hold.holder))?;
    Some(Holds::new(holds))
}

impl Encode for StepState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.plain.write(out);
        self.boost.write(out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { plain: State::read(bytes)?, boost: State::read(bytes)? })
    }
}

impl Encode for Hold {
    fn encode(&self, out: &mut Vec<u8>) {
        self.holder.encode(out);
        self.kind.encode(out);
        self.cost.encode(out);
        encode_list(&self.receipts, out);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            holder: Holder::decode(bytes)?,
            kind: HoldKind::decode(bytes)?,
            cost: u64::decode(bytes)?,
            receipts: decode_list(bytes, u64::MAX)?,
        })
    }
}

impl Encode for HoldKind {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Booking { made, turn } => {
                encode_variant(0, made, out);
                turn.encode(out);
            }
            Self::Reservation { deadline, ttl, used } => {
                // Without a final part as before there were any.
                encode_variant(if *used == 0 { 1 } else { 3 }, deadline, out);
                ttl.encode(out);
                if *used > 0 {
                    used.encode(out);
                }
            }
            Self::Expired { deadline } => encode_variant(2, deadline, out),
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let variant = byte(bytes)?;
        Some(match variant {
            0 => Self::Booking { made: Timestamp::decode(bytes)?, turn: Timestamp::decode(bytes)? },
            1 | 3 => Self::Reservation {
                deadline: Timestamp::decode(bytes)?,
                ttl: Span::decode(bytes)?,
                used: match variant {
                    1 => 0,
                    _ => u64::decode(bytes).filter(|used| *used > 0)?,
                },
            },
            2 => Self::Expired { deadline: Timestamp::decode(bytes)? },
            _ => return None,
        })
    }
}

impl Encode for Receipt {
    /// A bit for each ticket present, then the tickets.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.plain.is_some()) | u8::from(self.boost.is_some()) << 1);
        for ticket in [self.plain, self.boost].iter().flatten() {
            ticket.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let which = byte(bytes).filter(|which| *which <= 3)?;
        let mut ticket = |bit: u8| match which & bit {
            0 => Some(None),
            _ => Ticket::decode(bytes).map(Some),
        };
        Some(Self { plain: ticket(1)?, boost: ticket(2)? })
    }
}
