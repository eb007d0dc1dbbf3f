//! Decoder of `RateLimitRequest`.
//!
//! ```text
//!   RateLimitRequest     domain = 1, descriptors = 2, hits_addend = 3
//!   RateLimitDescriptor  entries = 1 { key = 1, value = 2 },
//!                        limit = 2 { requests_per_unit = 1, unit = 2 },
//!                        hits_addend = 3 { value = 1 }, is_negative_hits = 4
//! ```

use smallvec::SmallVec;

pub use super::wire::WireError;
use super::wire::{WireReader, WireType};
use sluicegate_rules::request::Entry;

/// Descriptors and entries that need no heap allocation.
const INLINE: usize = 4;

/// A request; its strings borrow from the encoded bytes.
///
/// ```
/// use sluicegate_server::rls::request::{RateLimitRequest, RequestLimits};
///
/// // domain: "shop", descriptors: [{ entries: [{ key: "user", value: "42" }] }]
/// let bytes = b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242";
/// let request = RateLimitRequest::decode(bytes, RequestLimits::default())?;
/// assert_eq!(request.domain, "shop");
/// let entries = request.entries(&request.descriptors[0]);
/// assert_eq!((entries[0].key, entries[0].value), ("user", "42"));
/// # Ok::<(), sluicegate_server::rls::request::WireError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimitRequest<'a> {
    /// Domain of the rules.
    pub domain: &'a str,
    /// Descriptors.
    pub descriptors: SmallVec<[RateLimitDescriptor; INLINE]>,
    /// Hits of descriptors without their own; 0 if unset.
    pub hits_addend: u32,
    entries: SmallVec<[Entry<'a>; INLINE]>,
}

/// A descriptor; its entries are stored with those of the request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateLimitDescriptor {
    entries: std::ops::Range<usize>,
    /// Limit that replaces those of the rules.
    pub limit: Option<RateLimitOverride>,
    /// Hits, if set.
    pub hits_addend: Option<u64>,
    /// Whether the hits are refunded.
    pub is_negative_hits: bool,
}

/// Limit of a descriptor, not validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimitOverride {
    /// Requests per unit.
    pub requests_per_unit: u32,
    /// Number of the unit.
    pub unit: i32,
}

/// Size limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Descriptors.
    pub descriptors: usize,
    /// Entries of all descriptors.
    pub entries: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self { descriptors: 256, entries: 4_096 }
    }
}

impl<'a> RateLimitRequest<'a> {
    /// Decodes a request.
    ///
    /// # Errors
    /// When the bytes are malformed, or exceed `limits`.
    pub fn decode(bytes: &'a [u8], limits: RequestLimits) -> Result<Self, WireError> {
        let mut request = Self::default();
        let mut reader = WireReader::new(bytes);
        while let Some((number, wire_type)) = reader.field()? {
            match number {
                1 => {
                    wire_type.expect(WireType::Bytes)?;
                    request.domain = reader.text()?;
                }
                2 => {
                    wire_type.expect(WireType::Bytes)?;
                    let descriptor = request.descriptor(reader.bytes()?, limits)?;
                    if request.descriptors.len() == limits.descriptors {
                        return Err(WireError::TooMany);
                    }
                    request.descriptors.push(descriptor);
                }
                3 => {
                    wire_type.expect(WireType::Varint)?;
                    request.hits_addend = reader.varint()? as u32;
                }
                _ => reader.skip(number, wire_type)?,
            }
        }
        Ok(request)
    }

    /// The entries of a descriptor of this request.
    ///
    /// # Panics
    /// May panic if the descriptor is of another request.
    #[must_use]
    pub fn entries(&self, descriptor: &RateLimitDescriptor) -> &[Entry<'a>] {
        &self.entries[descriptor.entries.clone()]
    }

    fn descriptor(
        &mut self,
        bytes: &'a [u8],
        limits: RequestLimits,
    ) -> Result<RateLimitDescriptor, WireError> {
        let start = self.entries.len();
        let mut descriptor = RateLimitDescriptor::default();
        let mut reader = WireReader::new(bytes);
        while let Some((number, wire_type)) = reader.field()? {
            match number {
                1 => {
                    wire_type.expect(WireType::Bytes)?;
                    let entry = entry(reader.bytes()?)?;
                    if self.entries.len() == limits.entries {
                        return Err(WireError::TooMany);
                    }
                    self.entries.push(entry);
                }
                2 => {
                    wire_type.expect(WireType::Bytes)?;
                    limit(reader.bytes()?, descriptor.limit.get_or_insert_default())?;
                }
                3 => {
                    wire_type.expect(WireType::Bytes)?;
                    wrapped(reader.bytes()?, descriptor.hits_addend.get_or_insert_default())?;
                }
                4 => {
                    wire_type.expect(WireType::Varint)?;
                    descriptor.is_negative_hits = reader.varint()? != 0;
                }
                _ => reader.skip(number, wire_type)?,
            }
        }
        descriptor.entries = start..self.entries.len();
        Ok(descriptor)
    }
}

fn entry(bytes: &[u8]) -> Result<Entry<'_>, WireError> {
    let mut entry = Entry::new("", "");
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match number {
            1 | 2 => {
                wire_type.expect(WireType::Bytes)?;
                let text = reader.text()?;
                *(if number == 1 { &mut entry.key } else { &mut entry.value }) = text;
            }
            _ => reader.skip(number, wire_type)?,
        }
    }
    Ok(entry)
}

/// A message field that occurs twice is merged.
fn limit(bytes: &[u8], limit: &mut RateLimitOverride) -> Result<(), WireError> {
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match number {
            1 => {
                wire_type.expect(WireType::Varint)?;
                limit.requests_per_unit = reader.varint()? as u32;
            }
            2 => {
                wire_type.expect(WireType::Varint)?;
                limit.unit = reader.varint()? as i32;
            }
            _ => reader.skip(number, wire_type)?,
        }
    }
    Ok(())
}

fn wrapped(bytes: &[u8], value: &mut u64) -> Result<(), WireError> {
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match number {
            1 => {
                wire_type.expect(WireType::Varint)?;
                *value = reader.varint()?;
            }
            _ => reader.skip(number, wire_type)?,
        }
    }
    Ok(())
}
