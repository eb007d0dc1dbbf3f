//! What is answered to whoever asks the rules: five numbers, and sometimes a sixth thing.

use bytes::Bytes;

use super::reply::Replies;
use crate::reservations::Kept;

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Limited, limit, remaining, retry_after, reset_after.
    pub(super) numbers: [i64; 5],
    pub(super) sixth: Sixth,
    /// Whether it charged everything that it names.
    pub(super) is_refundable: bool,
}

/// What else there is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sixth {
    Nothing,
    /// The name of what is held, if something is.
    Ticket(Option<String>),
    /// How much was given back.
    Returned(u64),
}

impl Answer {
    pub(super) fn is_limited(&self) -> bool {
        self.numbers[0] != 0
    }

    pub(super) fn put(&self, out: &mut Replies<'_>) {
        match &self.sixth {
            Sixth::Nothing => return out.numbers(self.numbers),
            Sixth::Ticket(_) | Sixth::Returned(_) => out.array(6),
        }
        self.numbers.into_iter().for_each(|number| out.int(number));
        match &self.sixth {
            Sixth::Ticket(Some(ticket)) => out.bulk(ticket.as_bytes()),
            Sixth::Returned(returned) => out.int(i64::try_from(*returned).unwrap_or(i64::MAX)),
            Sixth::Ticket(None) | Sixth::Nothing => out.null(),
        }
    }

    /// As it is kept for whoever asks again, perhaps by the other protocol.
    pub(super) fn to_kept(&self) -> Kept {
        let mut body: Vec<u8> = self.numbers.into_iter().flat_map(i64::to_le_bytes).collect();
        match &self.sixth {
            Sixth::Nothing => body.push(0),
            Sixth::Ticket(None) => body.push(1),
            Sixth::Ticket(Some(ticket)) => {
                body.push(2);
                body.extend_from_slice(ticket.as_bytes());
            }
            Sixth::Returned(returned) => {
                body.push(3);
                body.extend(returned.to_le_bytes());
            }
        }
        let is_refundable = self.is_refundable;
        Kept { body: Bytes::from(body), is_refundable, ..Kept::default() }
    }

    /// What was kept.
    pub(super) fn of_kept(kept: &Kept) -> Option<Self> {
        let (numbers, rest) = kept.body.split_at_checked(40)?;
        let mut all = [0; 5];
        for (number, bytes) in all.iter_mut().zip(numbers.chunks_exact(8)) {
            *number = i64::from_le_bytes(*bytes.first_chunk()?);
        }
        let sixth = match rest {
            [0] => Sixth::Nothing,
            [1] => Sixth::Ticket(None),
            [2, ticket @ ..] => Sixth::Ticket(Some(String::from_utf8(ticket.to_vec()).ok()?)),
            [3, returned @ ..] => Sixth::Returned(u64::from_le_bytes(*returned.first_chunk()?)),
            _ => return None,
        };
        Some(Self { numbers: all, sixth, is_refundable: kept.is_refundable })
    }
}

impl From<[i64; 5]> for Answer {
    fn from(numbers: [i64; 5]) -> Self {
        Self { numbers, sixth: Sixth::Nothing, is_refundable: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_the_same_later() {
        let ticket = |ticket: Option<&str>| Sixth::Ticket(ticket.map(str::to_owned));
        for sixth in [Sixth::Nothing, ticket(None), ticket(Some("AX")), Sixth::Returned(u64::MAX)] {
            let numbers = [0, 1, -1, i64::MAX, i64::MIN];
            let answer = Answer { numbers, sixth, is_refundable: true };
            assert_eq!(Answer::of_kept(&answer.to_kept()), Some(answer));
        }
        assert_eq!(Answer::of_kept(&Kept::default()), None);
    }
}
