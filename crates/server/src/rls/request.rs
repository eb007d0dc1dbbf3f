//! `RateLimitRequest`: what Envoy asks.
//!
//! ```text
//!   RateLimitRequest     domain = 1, descriptors = 2, hits_addend = 3
//!   RateLimitDescriptor  entries = 1 { key = 1, value = 2 }, limit = 2 { requests_per_unit = 1, unit = 2 },
//!                        hits_addend = 3 { value = 1 }, is_negative_hits = 4
//! ```

use smallvec::SmallVec;

pub use super::wire::WireError;
use super::wire::{Kind, Reader};
use sluicegate_rules::request::Entry;

/// How many descriptors and entries a request may have before its lists go to the heap.
const INLINE: usize = 4;

/// What Envoy asks; texts are those of the bytes that it came in.
///
/// ```
/// use sluicegate_server::rls::request::{Ask, Most};
///
/// // domain: "shop", descriptors: [{ entries: [{ key: "user", value: "42" }] }]
/// let bytes = b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242";
/// let ask = Ask::read(bytes, Most::default())?;
/// assert_eq!(ask.domain, "shop");
/// let entries = ask.entries(&ask.descriptors[0]);
/// assert_eq!((entries[0].key, entries[0].value), ("user", "42"));
/// # Ok::<(), sluicegate_server::rls::request::WireError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask<'a> {
    /// Whose rules.
    pub domain: &'a str,
    /// Who wants what.
    pub descriptors: SmallVec<[Asked; INLINE]>,
    /// How many hits; 0 if it does not say.
    pub hits_addend: u32,
    entries: SmallVec<[Entry<'a>; INLINE]>,
}

/// A descriptor; its entries lie with the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    entries: std::ops::Range<usize>,
    /// The limit that came with it.
    pub limit: Option<AskedLimit>,
    /// How many hits, if it says so.
    pub hits_addend: Option<u64>,
    /// Whether those hits are given back.
    pub is_negative_hits: bool,
}

/// A limit that came with a descriptor, as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AskedLimit {
    /// How many.
    pub requests_per_unit: u32,
    /// The number of the unit, which need not be one.
    pub unit: i32,
}

/// The most that a request may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Descriptors.
    pub descriptors: usize,
    /// Entries of all descriptors.
    pub entries: usize,
}

impl Default for Most {
    fn default() -> Self {
        Self { descriptors: 256, entries: 4_096 }
    }
}

impl<'a> Ask<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// When the bytes are none, or hold more than `most`.
    pub fn read(bytes: &'a [u8], most: Most) -> Result<Self, WireError> {
        let mut ask = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, kind)) = reader.field()? {
            match number {
                1 => {
                    kind.must_be(Kind::Bytes)?;
                    ask.domain = reader.text()?;
                }
                2 => {
                    kind.must_be(Kind::Bytes)?;
                    let descriptor = ask.descriptor(reader.bytes()?, most)?;
                    if ask.descriptors.len() == most.descriptors {
                        return Err(WireError::TooMany);
                    }
                    ask.descriptors.push(descriptor);
                }
                3 => {
                    kind.must_be(Kind::Varint)?;
                    ask.hits_addend = reader.varint()? as u32;
                }
                _ => reader.skip(number, kind)?,
            }
        }
        Ok(ask)
    }

    /// The entries of one of its descriptors.
    ///
    /// # Panics
    /// When the descriptor is of another request.
    #[must_use]
    pub fn entries(&self, descriptor: &Asked) -> &[Entry<'a>] {
        &self.entries[descriptor.entries.clone()]
    }

    fn descriptor(&mut self, bytes: &'a [u8], most: Most) -> Result<Asked, WireError> {
        let start = self.entries.len();
        let mut asked = Asked::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, kind)) = reader.field()? {
            match number {
                1 => {
                    kind.must_be(Kind::Bytes)?;
                    let entry = entry(reader.bytes()?)?;
                    if self.entries.len() == most.entries {
                        return Err(WireError::TooMany);
                    }
                    self.entries.push(entry);
                }
                2 => {
                    kind.must_be(Kind::Bytes)?;
                    limit(reader.bytes()?, asked.limit.get_or_insert_default())?;
                }
                3 => {
                    kind.must_be(Kind::Bytes)?;
                    wrapped(reader.bytes()?, asked.hits_addend.get_or_insert_default())?;
                }
                4 => {
                    kind.must_be(Kind::Varint)?;
                    asked.is_negative_hits = reader.varint()? != 0;
                }
                _ => reader.skip(number, kind)?,
            }
        }
        asked.entries = start..self.entries.len();
        Ok(asked)
    }
}

fn entry(bytes: &[u8]) -> Result<Entry<'_>, WireError> {
    let mut entry = Entry::new("", "");
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match number {
            1 | 2 => {
                kind.must_be(Kind::Bytes)?;
                let text = reader.text()?;
                *(if number == 1 { &mut entry.key } else { &mut entry.value }) = text;
            }
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(entry)
}

/// A message that comes in two pieces is both of them.
fn limit(bytes: &[u8], limit: &mut AskedLimit) -> Result<(), WireError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match number {
            1 => {
                kind.must_be(Kind::Varint)?;
                limit.requests_per_unit = reader.varint()? as u32;
            }
            2 => {
                kind.must_be(Kind::Varint)?;
                limit.unit = reader.varint()? as i32;
            }
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(())
}

fn wrapped(bytes: &[u8], value: &mut u64) -> Result<(), WireError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match number {
            1 => {
                kind.must_be(Kind::Varint)?;
                *value = reader.varint()?;
            }
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(())
}
