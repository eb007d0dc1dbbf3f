//! An account as bytes: its cells, then what it has pending.

use super::Account;
use super::holds::{HOLDS_MAX, Hold, Holds, Kind, Receipt};
use super::step_state::Cell;
use crate::algorithm::Ticket;
use crate::algorithm::concurrency::Holder;
use crate::codec::{
    Written, byte, each_once, read_all, read_number, with_kind, write_all, write_number,
};
use crate::limit::State;
use crate::time::{Span, Timestamp};

// === impl Account ===

impl Account {
    /// Appends this account to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_all(&self.cells, out);
        write_all(self.holds.all(), out);
    }

    /// The account at the front of `bytes`, which is taken away from them; `None` if there is none.
    ///
    /// It says nothing about the plan that it belongs to: under another, states that do not fit start anew.
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
        let cells = read_all(bytes, u64::MAX)?;
        Some(Self { cells, holds: read_holds(bytes)?, ..Self::default() })
    }

    /// What is pending, as bytes; nothing where nothing is.
    pub(crate) fn holds_as_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.holds.is_empty() {
            write_all(self.holds.all(), &mut out);
        }
        out
    }

    /// The same account with this pending; `None` if the bytes are not what [`Account::holds_as_bytes`] gives.
    pub(crate) fn with_holds_of(self, mut bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(self);
        }
        let holds = read_holds(&mut bytes)?;
        bytes.is_empty().then_some(Self { holds, ..self })
    }
}

fn read_holds(bytes: &mut &[u8]) -> Option<Holds> {
    let holds: Vec<Hold> = read_all(bytes, HOLDS_MAX as u64)?;
    each_once(holds.iter().map(|hold| hold.holder))?;
    Some(Holds::of(holds))
}

impl Written for Cell {
    fn write_to(&self, out: &mut Vec<u8>) {
        self.plain.write(out);
        self.boost.write(out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { plain: State::read(bytes)?, boost: State::read(bytes)? })
    }
}

// === impl Written for what is pending ===

impl Written for Hold {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_number(out, self.holder.0);
        self.kind.write_to(out);
        write_number(out, self.cost);
        write_all(&self.receipts, out);
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self {
            holder: Holder(read_number(bytes)?),
            kind: Kind::read_from(bytes)?,
            cost: read_number(bytes)?,
            receipts: read_all(bytes, u64::MAX)?,
        })
    }
}

impl Written for Kind {
    fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Booking { made, turn } => {
                with_kind(0, made, out);
                turn.write_to(out);
            }
            Self::Reservation { deadline, ttl } => {
                with_kind(1, deadline, out);
                ttl.write_to(out);
            }
            Self::Expired { deadline } => with_kind(2, deadline, out),
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        Some(match byte(bytes)? {
            0 => Self::Booking {
                made: Timestamp::read_from(bytes)?,
                turn: Timestamp::read_from(bytes)?,
            },
            1 => Self::Reservation {
                deadline: Timestamp::read_from(bytes)?,
                ttl: Span::read_from(bytes)?,
            },
            2 => Self::Expired { deadline: Timestamp::read_from(bytes)? },
            _ => return None,
        })
    }
}

impl Written for Receipt {
    /// Which tickets there are, and then these.
    fn write_to(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.plain.is_some()) | u8::from(self.boost.is_some()) << 1);
        for ticket in [self.plain, self.boost].iter().flatten() {
            ticket.write_to(out);
        }
    }

    fn read_from(bytes: &mut &[u8]) -> Option<Self> {
        let which = byte(bytes).filter(|which| *which <= 3)?;
        let mut ticket = |bit: u8| match which & bit {
            0 => Some(None),
            _ => Ticket::read_from(bytes).map(Some),
        };
        Some(Self { plain: ticket(1)?, boost: ticket(2)? })
    }
}
