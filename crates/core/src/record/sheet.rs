//! What a script has to know of a plan.

use super::cell::has_set;
use crate::algorithm::fixed_window::Align;
use crate::algorithm::gcra::{self, Gcra};
use crate::algorithm::period::Period;
use crate::algorithm::periodic::{Periodic, PeriodicVariant};
use crate::algorithm::sliding_window::Rounding;
use crate::codec::write_varint;
use crate::limit::{Kernel, Limit};
use crate::mode::EnforcedLimit;
use crate::quota::Rate;

/// What a script has to know of a plan: the numbers of every limit, and no more.
///
/// All are whole numbers of eight bytes, lowest first, which a script takes apart in one call; a
/// kind is one byte.
///
/// ```
/// use sluicegate_core::limit::Limit;
/// use sluicegate_core::mode::EnforcedLimit;
/// use sluicegate_core::record::Sheet;
///
/// let sheet = Sheet::new(&[EnforcedLimit::hard(Limit::Unlimited)]);
/// assert_eq!(sheet.fingerprint().len(), 8);
/// assert_eq!(sheet.sets(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    fingerprint: String,
    text: Vec<u8>,
    sets: usize,
    one_rule: Option<usize>,
}

/// Kinds of limits, as the script numbers them.
mod kind {
    pub(super) const OPEN: u8 = 0;
    pub(super) const CLOSED: u8 = 1;
    pub(super) const METER: u8 = 2;
    pub(super) const STEPS: u8 = 3;
    pub(super) const COUNTER: u8 = 4;
    pub(super) const LOG: u8 = 5;
    pub(super) const WARM_UP: u8 = 6;
    pub(super) const SLOTS: u8 = 7;
    pub(super) const TALLY: u8 = 8;
}

const ENFORCED: u8 = 1;
const BOOSTED: u8 = 2;

// === impl Sheet ===

impl Sheet {
    /// The sheet of a plan.
    #[must_use]
    pub fn new(plan: &[EnforcedLimit]) -> Self {
        Self::named(plan, [])
    }

    /// The sheet of a plan whose limits have these names, as far as they have some. A limit of
    /// another name is another limit, whatever its numbers.
    ///
    /// ```
    /// use sluicegate_core::limit::Limit;
    /// use sluicegate_core::mode::EnforcedLimit;
    /// use sluicegate_core::record::Sheet;
    ///
    /// let plan = [EnforcedLimit::hard(Limit::Closed)];
    /// let daily = Sheet::named(&plan, [Some("daily")]);
    /// assert_ne!(daily.fingerprint(), Sheet::new(&plan).fingerprint());
    /// assert_eq!(daily.fingerprint(), Sheet::named(&plan, [Some("daily")]).fingerprint());
    /// ```
    #[must_use]
    pub fn named<'a>(
        plan: &[EnforcedLimit],
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        let fingerprint = fingerprint(plan, names);
        let mut text = fingerprint.clone().into_bytes();
        text.push(u8::try_from(plan.len()).unwrap_or(u8::MAX));
        let mut sets = 0usize;
        for step in plan {
            let boosted = if step.boost.is_some() { BOOSTED } else { 0 };
            text.push(if step.enforced { ENFORCED } else { 0 } | boosted);
            for limit in std::iter::once(&step.limit).chain(&step.boost) {
                tell(limit, &mut text);
                sets = sets.saturating_add(usize::from(has_set(limit)));
            }
        }
        let mut rules = plan.iter().map(|step| step.rule);
        let one_rule = rules.next().or(Some(0)).filter(|first| rules.all(|rule| rule == *first));
        Self { fingerprint, text, sets, one_rule }
    }

    /// Eight digits that stand for the limits and their mode. Where the windows of a calendar lie
    /// just now makes no difference.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What the script is told.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// How many sorted sets lie beside a record: one for each log and each concurrency limit, and
    /// as many again where they are elastic.
    #[must_use]
    pub const fn sets(&self) -> usize {
        self.sets
    }

    /// The rule that all steps belong to, if it is one: the script knows no more of rules than that
    /// two plans are of the same.
    #[must_use]
    pub const fn rule(&self) -> Option<usize> {
        self.one_rule
    }
}

// === what a script is told ===

fn tell(limit: &Limit, out: &mut Vec<u8>) {
    match limit.kernel() {
        Kernel::Open => out.push(kind::OPEN),
        Kernel::Closed => out.push(kind::CLOSED),
        Kernel::Gcra(gcra) => tell_meter(gcra, out),
        Kernel::Periodic(steps) => tell_steps(steps, out),
        Kernel::Counter(counter) => {
            let up = u64::from(counter.rounding() == Rounding::Up);
            let window = counter.rate().period().as_micros();
            numbers(kind::COUNTER, &[counter.rate().count(), window, up], out);
        }
        Kernel::Log(log) => {
            let (gap, denied) = (log.min_gap().as_micros(), u64::from(log.counts_denied()));
            numbers(kind::LOG, &[log.rates().count() as u64, gap, denied], out);
            for (max, length) in log.rates() {
                more(&[max, length.as_micros()], out);
            }
        }
        Kernel::WarmUp(warm_up) => {
            let (gather, threshold) = warm_up.gathering();
            let ((units, micros), (permits, time)) = (warm_up.rate().reduced(), gather.reduced());
            let (length, factor) = (warm_up.warm_up().as_micros(), warm_up.cold_factor());
            let all = [units, micros, permits, time, length, factor, threshold];
            numbers(kind::WARM_UP, &all, out);
        }
        Kernel::Slots(slots) => {
            numbers(kind::SLOTS, &[slots.max(), slots.lease().as_micros()], out);
        }
        Kernel::Tally(tally) => {
            numbers(kind::TALLY, &[tally.limit(), tally.period().as_micros()], out);
        }
    }
}

fn tell_meter(gcra: &Gcra, out: &mut Vec<u8>) {
    let variant = match gcra.variant {
        gcra::Variant::Bucket => 0,
        gcra::Variant::Queue => 1,
        gcra::Variant::Smooth => 2,
    };
    let Gcra { rate, capacity, full, start, forget_after, .. } = gcra;
    let (units, micros) = Rate::reduced(rate);
    let spans = [full.us(), full.frac(), start.us(), start.frac(), forget_after.as_micros()];
    numbers(kind::METER, &[variant, units, micros, *capacity], out);
    more(&spans, out);
}

fn tell_steps(steps: &Periodic, out: &mut Vec<u8>) {
    let variant = match steps.variant {
        PeriodicVariant::Bucket => 0,
        PeriodicVariant::Window => 1,
        PeriodicVariant::Cycle => 2,
    };
    let (align, edges) = match &steps.period {
        Period::Clock(_) => (0, &[][..]),
        Period::FirstHit(_) => (1, &[][..]),
        Period::Calendar(edges) => (2, edges.starts()),
    };
    let (capacity, refill) = (steps.capacity.get(), steps.refill.get());
    let spans = [steps.forget_after.as_micros(), steps.period.longest().as_micros()];
    numbers(kind::STEPS, &[variant, capacity, refill, steps.start], out);
    more(&spans, out);
    more(&[align, edges.len() as u64], out);
    for edge in edges {
        more(&[edge.as_micros()], out);
    }
}

fn numbers(kind: u8, all: &[u64], out: &mut Vec<u8>) {
    out.push(kind);
    more(all, out);
}

fn more(all: &[u64], out: &mut Vec<u8>) {
    for number in all {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

// === the fingerprint ===

/// FNV-1a of the limits as bytes, cut to 32 bits. It tells revisions of one rule apart, and nobody
/// gains by two that are alike.
fn fingerprint<'a>(
    plan: &[EnforcedLimit],
    names: impl IntoIterator<Item = Option<&'a str>>,
) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut bytes = Vec::new();
    for step in plan {
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

/// A limit as bytes; of a calendar only how long its windows are, and of a tally too: it counts
/// what comes, whatever the limit, so the count is the same under any.
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
