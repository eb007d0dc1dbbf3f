//! Layout of the records of some limits: their fingerprint, and the sets beside a record.

use super::cell::has_set;
use crate::algorithm::fixed_window::Align;
use crate::codec::write_varint;
use crate::limit::Limit;
use crate::mode::EnforcedLimit;

/// Layout of the records of some limits.
///
/// ```
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::record::Layout;
///
/// let layout = Layout::new(&[EnforcedLimit::hard(Limit::Unlimited)]);
/// assert_eq!(layout.fingerprint().len(), 8);
/// assert_eq!(layout.sets(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    fingerprint: String,
    sets: usize,
}

impl Layout {
    /// Layout for limits without names.
    #[must_use]
    pub fn new(limits: &[EnforcedLimit]) -> Self {
        Self::named(limits, [])
    }

    /// Layout for limits of these names, as far as they have some. A limit of another name is
    /// another limit, whatever its parameters.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::record::Layout;
    ///
    /// let limits = [EnforcedLimit::hard(Limit::Closed)];
    /// let daily = Layout::named(&limits, [Some("daily")]);
    /// assert_ne!(daily.fingerprint(), Layout::new(&limits).fingerprint());
    /// assert_eq!(daily.fingerprint(), Layout::named(&limits, [Some("daily")]).fingerprint());
    /// ```
    #[must_use]
    pub fn named<'a>(
        limits: &[EnforcedLimit],
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        let with_sets =
            limits.iter().flat_map(EnforcedLimit::stages).filter(|limit| has_set(limit));
        Self { fingerprint: fingerprint(limits, names), sets: with_sets.count() }
    }

    /// Eight digits that identify the limits and their mode. The present window of a calendar makes
    /// no difference.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Number of sorted sets beside a record: one for each log and each concurrency limit, and as
    /// many again where they are elastic.
    #[must_use]
    pub const fn sets(&self) -> usize {
        self.sets
    }
}

// === the fingerprint ===

/// FNV-1a of the limits as bytes, folded to 32 bits. It distinguishes the revisions of one rule; a
/// collision has no effect on limits.
fn fingerprint<'a>(
    limits: &[EnforcedLimit],
    names: impl IntoIterator<Item = Option<&'a str>>,
) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut bytes = Vec::new();
    for step in limits {
        bytes.push(u8::from(step.enforced));
        write_varint(&mut bytes, step.slack);
        for limit in [Some(&step.limit), step.plain.as_ref(), step.boost.as_ref()] {
            match limit {
                Some(limit) => without_edges(limit, &mut bytes),
                None => bytes.push(u8::MAX),
            }
        }
    }
    for (index, name) in (0u8..).zip(names) {
        if let Some(name) = name {
            bytes.extend([u8::MAX, index]);
            bytes.extend_from_slice(name.as_bytes());
        }
    }
    let hash =
        bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    format!("{:08x}", (hash ^ (hash >> 32)) & 0xffff_ffff)
}

/// A limit as bytes: of a calendar only the length of its windows, and of a tally too, whose count
/// is the same under any limit.
fn without_edges(limit: &Limit, out: &mut Vec<u8>) {
    if let Limit::FixedWindow(window) = limit
        && let Align::Calendar(edges) = window.align()
    {
        out.push(u8::MAX - 1);
        for number in [window.rate().count(), window.rate().period().as_micros()] {
            write_varint(out, number);
        }
        write_varint(out, edges.longest().as_micros());
        return;
    }
    if let Limit::Tally(tally) = limit {
        out.push(u8::MAX - 2);
        write_varint(out, tally.period().as_micros());
        return;
    }
    limit.write(out);
}
