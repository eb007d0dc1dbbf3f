//! `RateLimitRequest`: its decoder, the repair of strings that are not UTF-8, and its descriptors
//! as the engine takes them.
//!
//! ```text
//!   RateLimitRequest     domain = 1, descriptors = 2, hits_addend = 3
//!   RateLimitDescriptor  entries = 1 { key = 1, value = 2 },
//!                        limit = 2 { requests_per_unit = 1, unit = 2 },
//!                        hits_addend = 3 { value = 1 }, is_negative_hits = 4
//! ```

use sluicegate::Snapshot;
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use sluicegate::rules::unit::Unit;
use smallvec::SmallVec;

use super::RefundPolicy;
use super::handler::Failure;
pub use super::wire::WireError;
use super::wire::{WireReader, WireType};
use crate::telemetry::Endpoint;

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

// === repair of strings that are not UTF-8 ===
//
// HTTP allows any byte above 127 in a header value, and Envoy forwards it in a protobuf string. If
// such a request failed, Envoy would let it pass by default, so one byte would bypass every limit.
// Each invalid byte is replaced instead, and the request is limited as usual. Values that differ
// only in such bytes share a counter.

/// ASCII SUBSTITUTE: one byte, so that lengths stay; no header value can contain it.
const SUBSTITUTE: u8 = 0x1A;

#[derive(Debug, Clone, Copy)]
enum RepairedMessage {
    Request,
    Descriptor,
    Entry,
}

/// A copy of a request in which all entries are valid UTF-8. The domain is not repaired: it comes
/// from a configuration.
pub(super) fn repaired(request: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut copy = request.to_vec();
    repair(RepairedMessage::Request, &mut copy)?;
    Ok(copy)
}

fn repair(message: RepairedMessage, mut bytes: &mut [u8]) -> Result<(), WireError> {
    loop {
        let mut reader = WireReader::new(bytes);
        let Some((number, wire_type)) = reader.field()? else {
            return Ok(());
        };
        let length = match wire_type {
            WireType::Bytes => reader.bytes()?.len(),
            _ => {
                reader.skip(number, wire_type)?;
                0
            }
        };
        let end = bytes.len() - reader.remaining();
        let (field, rest) = bytes.split_at_mut(end);
        let content = &mut field[end - length..];
        match (message, number) {
            (RepairedMessage::Request, 2) => repair(RepairedMessage::Descriptor, content)?,
            (RepairedMessage::Descriptor, 1) => repair(RepairedMessage::Entry, content)?,
            (RepairedMessage::Entry, 1 | 2) => substitute(content),
            _ => {}
        }
        bytes = rest;
    }
}

fn substitute(mut bytes: &mut [u8]) {
    while let Err(error) = str::from_utf8(bytes) {
        let start = error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |length| start + length);
        bytes[start..end].fill(SUBSTITUTE);
        bytes = &mut bytes[end..];
    }
}

// === charges and refunds ===

/// The descriptors of a request, split by what happens to their counters.
#[derive(Debug)]
pub(super) struct Charges<'a> {
    domain: &'a str,
    hits: u64,
    charged: DescriptorList<'a>,
    refunded: DescriptorList<'a>,
    /// Number of refunds before the first charge.
    leading_refunds: usize,
}

type DescriptorList<'a> = SmallVec<[Descriptor<'a>; 4]>;

/// Limit on negative hits, which carry no proof of a charge.
#[derive(Clone, Copy)]
pub(super) enum RefundRight<'a> {
    None,
    /// Unlimited for operators. Evaluated only for requests with negative hits.
    Operator(&'a (dyn Fn() -> bool + Sync)),
    /// The maximum of an Envoy configuration.
    Proxy,
    Any,
}

/// The largest `hits_addend` that Envoy accepts in its configuration.
const PROXY_REFUND_MAX: u64 = 1_000_000_000;

impl<'a> Charges<'a> {
    /// Splits the descriptors.
    ///
    /// # Errors
    /// When a limit has no unit, or the caller may not refund.
    #[inline]
    pub(super) fn new(
        message: &'a RateLimitRequest<'_>,
        rules: &Snapshot<'_>,
        refunds: RefundRight<'_>,
    ) -> Result<Self, Failure> {
        // Without rules for the domain, limits of descriptors have no effect.
        let is_known = rules.rules().domain(message.domain).is_some();
        let mut charges = Self {
            domain: message.domain,
            hits: u64::from(message.hits_addend.max(1)),
            charged: DescriptorList::new(),
            refunded: DescriptorList::new(),
            leading_refunds: 0,
        };
        for descriptor in &message.descriptors {
            let limit = if is_known { limit_of(descriptor)? } else { None };
            let entries = message.entries(descriptor);
            let is_refund = descriptor.is_negative_hits;
            let descriptor =
                Descriptor { hits: descriptor.hits_addend, limit, ..Descriptor::of(entries) };
            if is_refund {
                charges.leading_refunds += usize::from(charges.charged.is_empty());
                charges.refunded.push(descriptor);
            } else {
                charges.charged.push(descriptor);
            }
        }
        refunds.check(&charges.refunded, charges.hits)?;
        Ok(charges)
    }

    /// The request to charge.
    pub(super) fn charged(&self) -> Request<'_> {
        Request { domain: self.domain, descriptors: &self.charged, hits: self.hits }
    }

    /// Whether anything is refunded.
    pub(super) fn has_refunds(&self) -> bool {
        !self.refunded.is_empty()
    }

    /// The request to refund before the charge, if any: refunds and charges of one counter take
    /// effect in their order, except that all charges are decided together.
    pub(super) fn refunded_before(&self) -> Option<Request<'_>> {
        self.refund(self.refunded.get(..self.leading_refunds)?)
    }

    /// The request to refund after the charge, if any.
    pub(super) fn refunded_after(&self) -> Option<Request<'_>> {
        self.refund(self.refunded.get(self.leading_refunds..)?)
    }

    fn refund<'b>(&'b self, descriptors: &'b [Descriptor<'b>]) -> Option<Request<'b>> {
        let request = Request { domain: self.domain, descriptors, hits: self.hits };
        (!descriptors.is_empty()).then_some(request)
    }
}

fn limit_of(descriptor: &RateLimitDescriptor) -> Result<Option<Override>, Failure> {
    let Some(limit) = descriptor.limit else { return Ok(None) };
    match Unit::of_number(limit.unit) {
        Some(unit) => Ok(Some(Override { requests_per_unit: limit.requests_per_unit, unit })),
        None => Err(Failure::invalid(format!(
            "the limit of a descriptor has no unit, got `{}`; send 1 (second) to 7 (week)",
            limit.unit
        ))),
    }
}

impl<'a> RefundRight<'a> {
    /// gRPC peers are trusted proxies; `/json` shares the HTTP address with all clients.
    pub(super) fn new(
        policy: RefundPolicy,
        endpoint: Endpoint,
        is_operator: Option<&'a (dyn Fn() -> bool + Sync)>,
    ) -> Self {
        match (policy, endpoint) {
            (RefundPolicy::Open, _) => Self::Any,
            (RefundPolicy::Proven, Endpoint::ShouldRateLimit) => Self::Proxy,
            (RefundPolicy::Proven | RefundPolicy::Operators, _) => {
                is_operator.map_or(Self::None, Self::Operator)
            }
        }
    }

    /// Checks the descriptors with negative hits, before anything is charged.
    fn check(self, refunded: &[Descriptor<'_>], hits: u64) -> Result<(), Failure> {
        let max = match self {
            _ if refunded.is_empty() => return Ok(()),
            Self::Any => return Ok(()),
            Self::Operator(is_operator) if is_operator() => return Ok(()),
            Self::Proxy => PROXY_REFUND_MAX,
            Self::None | Self::Operator(_) => {
                return Err(Failure::invalid(
                    "negative hits are not permitted here; see SLUICEGATE_REFUNDS",
                ));
            }
        };
        let largest = refunded.iter().map(|one| one.hits.unwrap_or(hits)).max().unwrap_or(0);
        if largest <= max {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "`{largest}` negative hits: the maximum of one descriptor is {max}, as in Envoy"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_invalid_bytes_are_replaced() {
        for (before, after) in [
            (&b"jos\xe9"[..], &b"jos\x1a"[..]),
            (b"\xc3", b"\x1a"),
            (b"\xff\xfea\xe2\x82", b"\x1a\x1aa\x1a\x1a"),
            ("José €".as_bytes(), "José €".as_bytes()),
            (b"", b""),
        ] {
            let mut bytes = before.to_vec();
            substitute(&mut bytes);
            assert_eq!(bytes, after, "{before:?}");
        }
    }
}
