//! Descriptors of the wire as the engine takes them.

use sluicegate::Snapshot;
use sluicegate::rules::request::{Descriptor, Override};
use sluicegate::rules::unit::Unit;
use smallvec::SmallVec;

use super::failure::Failure;
use super::request::{Ask, Asked};

type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

/// The limits that came with the descriptors. Where nobody has rules for the domain they mean
/// nothing, whatever they say.
pub(super) fn limits_of(
    ask: &Ask<'_>,
    rules: &Snapshot<'_>,
) -> Result<SmallVec<[Option<Override>; 4]>, Failure> {
    let known = rules.rules().domain(ask.domain).is_some();
    let limit = |asked: &Asked| match asked.limit.filter(|_| known) {
        None => Ok(None),
        Some(limit) => match Unit::of_number(limit.unit) {
            Some(unit) => Ok(Some(Override { requests_per_unit: limit.requests_per_unit, unit })),
            None => Err(Failure::invalid(format!(
                "the limit of a descriptor has no unit, got `{}`; send 1 (second) to 7 (week)",
                limit.unit
            ))),
        },
    };
    ask.descriptors.iter().map(limit).collect()
}

/// What is to be charged, and what is to be given back.
pub(super) fn descriptors_of<'a>(
    ask: &'a Ask<'_>,
    limits: &[Option<Override>],
) -> (Descriptors<'a>, Descriptors<'a>) {
    let (mut charged, mut refunded) = (Descriptors::new(), Descriptors::new());
    for (asked, limit) in ask.descriptors.iter().zip(limits) {
        let entries = ask.entries(asked);
        let descriptor = Descriptor { entries, hits: asked.hits_addend, limit: *limit };
        let list = if asked.is_negative_hits { &mut refunded } else { &mut charged };
        list.push(descriptor);
    }
    (charged, refunded)
}
