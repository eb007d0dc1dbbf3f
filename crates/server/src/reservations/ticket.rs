//! The name of a reservation: its request and its random id, as URL-safe base64.
//!
//! ```text
//!   version · checksum · holder · issued · expiry · domain · descriptors
//! ```
//!
//! Strings and lists have their length. It contains nothing that its holder has not sent before.
//! The id makes it unguessable: see [`sluicegate::new_holder`]. The checksum distinguishes a token
//! that was cut or mistyped, and so never issued, from one that is settled.

use std::fmt;
use std::ops::Range;

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Holder, Timestamp};
use smallvec::SmallVec;

use crate::rls::wire::put_varint;

/// Longest ticket.
pub const TICKET_BYTES_MAX: usize = 8 << 10;

const VERSION: u8 = 2;
/// Version without checksum and time of issue, which nodes of version 0.1.0 issue: still accepted,
/// so that reservations outlive a rolling upgrade.
const VERSION_WITHOUT_CHECKSUM: u8 = 1;
/// Version and checksum.
const HEAD_BYTES: usize = 9;

/// The name of a reservation.
///
/// ```
/// use sluicegate::rules::request::{Descriptor, Entry, Request};
/// use sluicegate::Timestamp;
/// use sluicegate_server::reservations::Ticket;
///
/// let entries = [Entry::new("user", "42")];
/// let descriptors = [Descriptor::of(&entries)];
/// let request = Request { domain: "llm", descriptors: &descriptors, hits: 800 };
/// let ticket = Ticket::slot(&request, sluicegate::new_holder(), Timestamp::EPOCH)?;
///
/// let read = Ticket::decode(&ticket.to_string())?;
/// let read = read.with_request(300, |request| (request.domain.to_owned(), request.hits));
/// assert_eq!(read, ("llm".to_owned(), 300));
/// assert!(Ticket::decode("what is this").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    holder: Holder,
    issued_at: Option<Timestamp>,
    forgotten_at: Timestamp,
    /// The encoded request.
    bytes: Vec<u8>,
    domain: Range<usize>,
    descriptors: Vec<TicketDescriptor>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TicketDescriptor {
    hits: Option<u64>,
    entries: Vec<(Range<usize>, Range<usize>)>,
}

/// Why a ticket is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketError {
    /// It was not issued by this service.
    Malformed,
    /// The request is too long for a ticket.
    TooLong {
        /// Length of the ticket.
        bytes: usize,
    },
}

/// Entries of a descriptor.
pub(crate) type EntryList<'a> = SmallVec<[Entry<'a>; 4]>;
/// Descriptors of a request.
pub(crate) type TicketDescriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl Ticket {
    /// Holder of a ticket with nothing to settle.
    pub const NO_HOLDER: Holder = Holder(0);

    /// Names what a request has reserved.
    ///
    /// # Errors
    /// When the request is too long.
    pub fn new(
        request: &Request<'_>,
        holder: Holder,
        issued_at: Timestamp,
        forgotten_at: Timestamp,
    ) -> Result<Self, TicketError> {
        let mut bytes = vec![VERSION];
        bytes.resize(HEAD_BYTES, 0);
        bytes.extend_from_slice(&holder.0.to_le_bytes());
        put_varint(issued_at.as_micros(), &mut bytes);
        put_varint(forgotten_at.as_micros(), &mut bytes);
        put_text(&mut bytes, request.domain);
        put_varint(request.descriptors.len() as u64, &mut bytes);
        for descriptor in request.descriptors {
            // Absent hits are 0, others are incremented.
            put_varint(descriptor.hits.map_or(0, |hits| hits.saturating_add(1)), &mut bytes);
            put_varint(descriptor.entries.len() as u64, &mut bytes);
            for entry in descriptor.entries {
                put_text(&mut bytes, entry.key);
                put_text(&mut bytes, entry.value);
            }
        }
        let checksum = checksum(bytes.get(HEAD_BYTES..).unwrap_or_default());
        if let Some(place) = bytes.get_mut(1..HEAD_BYTES) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
        let length = bytes.len().div_ceil(3).saturating_mul(4);
        if length > TICKET_BYTES_MAX {
            return Err(TicketError::TooLong { bytes: length });
        }
        Self::parse(bytes).ok_or(TicketError::Malformed)
    }

    /// Names the slots that a request has taken. Its hits are charged and not settled.
    ///
    /// # Errors
    /// When the request is too long.
    pub fn slot(
        request: &Request<'_>,
        holder: Holder,
        issued_at: Timestamp,
    ) -> Result<Self, TicketError> {
        Self::new(request, holder, issued_at, Timestamp::EPOCH)
    }

    /// Decodes a ticket.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn decode(text: &str) -> Result<Self, TicketError> {
        if text.len() > TICKET_BYTES_MAX {
            return Err(TicketError::Malformed);
        }
        base64_decode(text.as_bytes()).and_then(Self::parse).ok_or(TicketError::Malformed)
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let mut reader = TicketReader { bytes: &bytes, at: 0 };
        let version = reader.byte()?;
        let has_checksum = match version {
            VERSION => true,
            VERSION_WITHOUT_CHECKSUM => false,
            _ => return None,
        };
        if has_checksum && reader.word()? != checksum(bytes.get(reader.at..)?) {
            return None;
        }
        let holder = Holder(reader.word()?);
        let issued_at = match has_checksum {
            true => Some(Timestamp::from_micros(reader.number()?)),
            false => None,
        };
        let forgotten_at = Timestamp::from_micros(reader.number()?);
        let domain = reader.text()?;
        let mut descriptors = Vec::new();
        for _ in 0..reader.number()? {
            let hits = reader.number()?.checked_sub(1);
            let mut entries = Vec::new();
            for _ in 0..reader.number()? {
                entries.push((reader.text()?, reader.text()?));
            }
            descriptors.push(TicketDescriptor { hits, entries });
        }
        if reader.at != bytes.len() {
            return None;
        }
        Some(Self { holder, issued_at, forgotten_at, domain, descriptors, bytes })
    }

    /// The id of the reservation.
    #[must_use]
    pub const fn holder(&self) -> Holder {
        self.holder
    }

    /// When it was issued; `None` in tokens of version 0.1.0.
    #[must_use]
    pub const fn issued_at(&self) -> Option<Timestamp> {
        self.issued_at
    }

    /// Whether it names slots alone, with no reservation.
    #[must_use]
    pub fn is_slot(&self) -> bool {
        self.forgotten_at == Timestamp::EPOCH && self.holder != Self::NO_HOLDER
    }

    /// When the counters forget it.
    #[must_use]
    pub const fn forgotten_at(&self) -> Timestamp {
        self.forgotten_at
    }

    /// Its size in memory, roughly.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.descriptors.iter().map(|one| one.entries.len()).sum::<usize>();
        size_of::<Self>()
            + self.bytes.len()
            + self.descriptors.len() * size_of::<TicketDescriptor>()
            + entries * size_of::<(Range<usize>, Range<usize>)>()
    }

    /// Calls `f` with the request, for so many hits.
    pub fn with_request<R>(&self, hits: u64, f: impl FnOnce(&Request<'_>) -> R) -> R {
        let entries = self.entries();
        f(&self.request(hits, &self.descriptors(&entries)))
    }

    /// The entries of each descriptor.
    pub(crate) fn entries(&self) -> Vec<EntryList<'_>> {
        let all = self.descriptors.iter();
        all.map(|one| {
            one.entries.iter().map(|(k, v)| Entry::new(self.text(k), self.text(v))).collect()
        })
        .collect()
    }

    /// The descriptors.
    pub(crate) fn descriptors<'a>(&self, entries: &'a [EntryList<'_>]) -> TicketDescriptors<'a> {
        let all = self.descriptors.iter().zip(entries);
        all.map(|(one, entries)| Descriptor { hits: one.hits, ..Descriptor::of(entries) }).collect()
    }

    /// The request.
    pub(crate) fn request<'a>(
        &'a self,
        hits: u64,
        descriptors: &'a [Descriptor<'a>],
    ) -> Request<'a> {
        Request { domain: self.text(&self.domain), descriptors, hits }
    }

    fn text(&self, range: &Range<usize>) -> &str {
        let bytes = self.bytes.get(range.clone()).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64_encode(&self.bytes))
    }
}

// === encoding ===

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

struct TicketReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> TicketReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for index in 0..10 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << (7 * index);
            if shifted >> (7 * index) != bits {
                return None;
            }
            number |= shifted;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<Range<usize>> {
        let length = usize::try_from(self.number()?).ok()?;
        let from = self.at;
        str::from_utf8(self.take(length)?).ok()?;
        Some(from..self.at)
    }
}

// === URL-safe base64 without padding ===

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number = group.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for index in 0..=group.len() {
            text.push(LETTERS[(number >> (18 - 6 * index)) as usize & 63].into());
        }
    }
    text
}

fn base64_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut number = 0u32;
        for letter in group {
            number = number << 6 | value(*letter)?;
        }
        number <<= 6 * (4 - group.len());
        let whole = group.len() * 6 / 8;
        // Left-over bits must be 0, so that a ticket has one encoding.
        if group.len() == 1 || number & ((1 << (24 - 8 * whole)) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&number.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u32> {
    Some(match letter {
        b'A'..=b'Z' => u32::from(letter - b'A'),
        b'a'..=b'z' => u32::from(letter - b'a') + 26,
        b'0'..=b'9' => u32::from(letter - b'0') + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    })
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str(
                "this is not a reservation; send the whole `reservation` that `reserve` returned",
            ),
            Self::TooLong { bytes } => write!(
                f,
                "the name of this reservation would have {bytes} bytes, and {TICKET_BYTES_MAX} is the limit; use shorter values, such as hashes"
            ),
        }
    }
}

impl std::error::Error for TicketError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(
            domain in ".{0,20}",
            all in prop::collection::vec((prop::option::of(0..u64::MAX - 1), prop::collection::vec((".{0,9}", ".{0,9}"), 0..4)), 0..4),
            holder: u64, at in 0u64..1 << 60, hits: u64,
        ) {
            let entries: Vec<Vec<Entry<'_>>> =
                all.iter().map(|(_, entries)| entries.iter().map(|(k, v)| Entry::new(k, v)).collect()).collect();
            let descriptors: Vec<Descriptor<'_>> = all
                .iter()
                .zip(&entries)
                .map(|((hits, _), entries)| Descriptor { hits: *hits, ..Descriptor::of(entries) })
                .collect();
            let request = Request { domain: &domain, descriptors: &descriptors, hits };
            let ticket = Ticket::new(&request, Holder(holder), Timestamp::from_micros(at / 2), Timestamp::from_micros(at)).expect("short enough");
            let read = Ticket::decode(&ticket.to_string()).expect("one of ours");
            prop_assert_eq!(&read, &ticket);
            prop_assert_eq!((read.holder(), read.forgotten_at()), (Holder(holder), Timestamp::from_micros(at)));
            prop_assert_eq!(read.issued_at(), Some(Timestamp::from_micros(at / 2)));
            prop_assert!(read.with_request(hits, |again| again == &request));
        }

        #[test]
        fn anything_else_is_none_or_is_the_only_name_of_one(text in "[A-Za-z0-9_-]{0,60}|.{0,60}") {
            if let Ok(ticket) = Ticket::decode(&text) {
                prop_assert_eq!(ticket.to_string(), text);
            }
        }

        #[test]
        fn bytes_are_letters_and_back(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(base64_decode(base64_encode(&bytes).as_bytes()), Some(bytes));
        }
    }

    #[test]
    fn one_of_an_earlier_version_is_accepted() {
        let text = "Aeah40gV49AW8dScy6-RmAMEc2hvcAEAAQZidWNrZXQDYm9i";
        let ticket = Ticket::decode(text).expect("issued by version 0.1.0");
        assert_eq!((ticket.issued_at(), ticket.is_slot()), (None, false));
        ticket.with_request(9, |request| {
            let entries = [Entry::new("bucket", "bob")];
            let descriptors = [Descriptor::of(&entries)];
            assert_eq!(request, &Request { domain: "shop", descriptors: &descriptors, hits: 9 });
        });
    }

    #[test]
    fn one_that_was_cut_or_mistyped_was_never_issued() {
        let entries = [Entry::new("user", "42")];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "d", descriptors: &descriptors, hits: 1 };
        let text = Ticket::slot(&request, Holder(7), Timestamp::EPOCH).expect("short").to_string();
        for at in 0..text.len() {
            let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mistyped = [&text[..at], other, &text[at + 1..]].concat();
            assert_eq!(Ticket::decode(&mistyped), Err(TicketError::Malformed), "{at}");
            assert_eq!(Ticket::decode(&text[..at]), Err(TicketError::Malformed), "{at}");
        }
    }

    #[test]
    fn it_has_a_bound() {
        let value = "x".repeat(TICKET_BYTES_MAX);
        let entries = [Entry::new("user", &value)];
        let descriptors = [Descriptor::of(&entries)];
        let request = Request { domain: "d", descriptors: &descriptors, hits: 1 };
        let too_long = Ticket::slot(&request, Holder(1), Timestamp::EPOCH).expect_err("too long");
        assert!(too_long.to_string().contains("8192 is the limit"), "{too_long}");
        assert_eq!(Ticket::decode(&"A".repeat(TICKET_BYTES_MAX + 1)), Err(TicketError::Malformed));
    }
}
