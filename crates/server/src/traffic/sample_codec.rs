//! Requests of the sample as bytes, so that one takes one allocation.

use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use sluicegate::rules::unit::Unit;

/// A decoded request, which borrows from the bytes.
#[derive(Debug, Default)]
pub(super) struct DecodedRequest<'a> {
    domain: &'a str,
    hits: u64,
    entries: Vec<Entry<'a>>,
    descriptors: Vec<DecodedDescriptor<'a>>,
}

#[derive(Debug)]
struct DecodedDescriptor<'a> {
    entries: std::ops::Range<usize>,
    hits: Option<u64>,
    limit: Option<Override>,
    pool: Option<&'a str>,
}

/// The bytes of a request; `None` if there are too many.
pub(super) fn encode(request: &Request<'_>, max: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(128);
    out.extend(request.hits.to_le_bytes());
    put_text(&mut out, request.domain, max)?;
    put_length(&mut out, request.descriptors.len())?;
    for descriptor in request.descriptors {
        put_length(&mut out, descriptor.entries.len())?;
        for entry in descriptor.entries {
            put_text(&mut out, entry.key, max)?;
            put_text(&mut out, entry.value, max)?;
        }
        let flags = u8::from(descriptor.hits.is_some())
            | u8::from(descriptor.limit.is_some()) << 1
            | u8::from(descriptor.pool.is_some()) << 2;
        out.push(flags);
        out.extend(descriptor.hits.into_iter().flat_map(u64::to_le_bytes));
        if let Some(limit) = descriptor.limit {
            out.extend(limit.requests_per_unit.to_le_bytes());
            out.push(Unit::ALL.iter().position(|unit| *unit == limit.unit)? as u8);
        }
        if let Some(pool) = descriptor.pool {
            put_text(&mut out, pool, max)?;
        }
    }
    (out.len() <= max).then_some(out)
}

fn put_length(out: &mut Vec<u8>, length: usize) -> Option<()> {
    out.extend(u16::try_from(length).ok()?.to_le_bytes());
    Some(())
}

fn put_text(out: &mut Vec<u8>, text: &str, max: usize) -> Option<()> {
    // Before it is copied: a client may have sent a megabyte.
    if text.len() > max {
        return None;
    }
    put_length(out, text.len())?;
    out.extend(text.as_bytes());
    Some(())
}

/// The request of encoded bytes.
pub(super) fn decode(mut bytes: &[u8]) -> Option<DecodedRequest<'_>> {
    let rest = &mut bytes;
    let hits = u64::from_le_bytes(take(rest)?);
    let mut decoded = DecodedRequest { domain: text(rest)?, hits, ..DecodedRequest::default() };
    for _ in 0..length(rest)? {
        let start = decoded.entries.len();
        for _ in 0..length(rest)? {
            decoded.entries.push(Entry::new(text(rest)?, text(rest)?));
        }
        let [flags] = take(rest)?;
        let hits = if flags & 1 == 0 { None } else { Some(u64::from_le_bytes(take(rest)?)) };
        let limit = match flags & 2 {
            0 => None,
            _ => {
                let requests_per_unit = u32::from_le_bytes(take(rest)?);
                let [unit] = take(rest)?;
                Some(Override { requests_per_unit, unit: *Unit::ALL.get(usize::from(unit))? })
            }
        };
        let pool = if flags & 4 == 0 { None } else { Some(text(rest)?) };
        let entries = start..decoded.entries.len();
        decoded.descriptors.push(DecodedDescriptor { entries, hits, limit, pool });
    }
    Some(decoded)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*first)
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    Some(u16::from_le_bytes(take(rest)?).into())
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = length(rest)?;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    std::str::from_utf8(text).ok()
}

impl<'a> DecodedRequest<'a> {
    pub(super) const fn domain(&self) -> &'a str {
        self.domain
    }

    pub(super) const fn hits(&self) -> u64 {
        self.hits
    }

    pub(super) fn descriptors(&self) -> Vec<Descriptor<'_>> {
        let all = self.descriptors.iter();
        all.map(|one| Descriptor {
            entries: &self.entries[one.entries.clone()],
            hits: one.hits,
            limit: one.limit,
            pool: one.pool,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_codec() {
        let (one, two) =
            ([Entry::new("user", "ä|="), Entry::new("", "")], [Entry::new("path", "/x")]);
        let limit = Some(Override { requests_per_unit: 7, unit: Unit::Week });
        let descriptors = [
            Descriptor { hits: Some(9), pool: Some("credits"), ..Descriptor::of(&one) },
            Descriptor { limit, ..Descriptor::of(&two) },
            Descriptor::of(&[]),
        ];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 3 };
        let bytes = encode(&request, 2_048).unwrap();
        let decoded = decode(&bytes).unwrap();
        let back = decoded.descriptors();
        assert_eq!(
            Request { domain: decoded.domain(), descriptors: &back, hits: decoded.hits() },
            request
        );
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_none()));
        assert_eq!(encode(&request, bytes.len() - 1), None);
    }
}
