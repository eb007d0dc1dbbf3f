//! All fields of limits: name, example and parser.

use sluicegate_core::algorithm::sliding_slices::{SLICES_MAX, SLICES_MIN};
use sluicegate_core::algorithm::sliding_window::Rounding;
use sluicegate_core::algorithm::token_bucket::Refill;
use sluicegate_core::algorithm::warm_up::{COLD_FACTOR_MAX, WARM_UP_MAX};
use sluicegate_core::time::Span;
use sluicegate_rules::calendar::{Calendar, CalendarUnit};

use super::{FORMS, log};
use crate::fields::{Field, Fields};
use crate::problem::{Report, quoted};
use crate::units::{self, UnitError, WrittenRate, show_factor, show_span};

pub(super) const fn field<T>(
    name: &'static str,
    example: &'static str,
    read: fn(&str) -> Result<T, UnitError>,
) -> Field<T> {
    Field { name, example, read }
}

pub(crate) const RATE: Field<WrittenRate> = field("rate", "10/s", units::rate);
pub(crate) const BURST: Field<u64> = field("burst", "50", burst);
pub(crate) const INITIAL: Field<u64> = field("initial", "0", units::whole);
pub(crate) const REFILL: Field<Refill> =
    field("refill", "greedy", |text| units::choice(text, &REFILLS));
pub(crate) const FORGET_AFTER: Field<Span> = field("forget_after", "24h", units::span);
pub(crate) const QUEUE: Field<u64> = field("queue", "20", units::whole);
pub(crate) const ALIGN: Field<Aligned> =
    field("align", "clock", |text| units::choice(text, &ALIGNS));
pub(crate) const ZONE: Field<String> = field("zone", "Europe/Berlin", zone);
pub(crate) const ROUNDING: Field<Rounding> =
    field("rounding", "floor", |text| units::choice(text, &ROUNDINGS));
pub(crate) const SLICES: Field<u64> = field("slices", "6", slices);
pub(crate) const MAX_BURST: Field<Span> = field("max_burst", "1s", units::span_or_zero);
pub(crate) const WARM_UP: Field<Span> = field("warm_up", "10s", warm_up);
pub(crate) const COLD_FACTOR: Field<u64> = field("cold_factor", "3", cold_factor);
pub(crate) const PERMITS: Field<u64> = field("permits", "50", units::whole);
pub(crate) const PERIOD: Field<Span> = field("period", "500ms", units::span);
pub(crate) const MAX: Field<u64> = field("max", "10", units::whole);
pub(crate) const LEASE: Field<Span> = field("lease", "30s", units::span);

pub(crate) const REFILLS: [(&str, Refill); 3] =
    [("greedy", Refill::Greedy), ("interval", Refill::Interval), ("aligned", Refill::Aligned)];
pub(crate) const ALIGNS: [(&str, Aligned); 3] =
    [("clock", Aligned::Clock), ("first_hit", Aligned::FirstHit), ("calendar", Aligned::Calendar)];
pub(crate) const ROUNDINGS: [(&str, Rounding); 2] =
    [("floor", Rounding::Floor), ("up", Rounding::Up)];

/// Where a window begins, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aligned {
    Clock,
    FirstHit,
    Calendar,
}

fn burst(text: &str) -> Result<u64, UnitError> {
    match units::whole(text)? {
        0 => {
            let got = quoted(text);
            Err(UnitError::new(format!(
                "must be at least `1`, got {got}; to let nothing pass write `rate: 0/s`"
            )))
        }
        burst => Ok(burst),
    }
}

fn slices(text: &str) -> Result<u64, UnitError> {
    let slices = units::whole(text)?;
    if (SLICES_MIN..=SLICES_MAX).contains(&slices) {
        return Ok(slices);
    }
    let got = quoted(text);
    Err(UnitError::new(format!(
        "must be from `{SLICES_MIN}` to `{SLICES_MAX}`, got {got}; leave it out for two counts, or \
         use `sliding_log` for an exact window"
    )))
}

fn warm_up(text: &str) -> Result<Span, UnitError> {
    let span = units::span(text)?;
    if span <= WARM_UP_MAX {
        return Ok(span);
    }
    let (longest, got) = (show_span(WARM_UP_MAX), quoted(text));
    Err(UnitError::new(format!("must last at most `{longest}`, got {got}; write a shorter time")))
}

fn cold_factor(text: &str) -> Result<u64, UnitError> {
    let factor = units::decimal(text)?;
    if (1_000..=COLD_FACTOR_MAX).contains(&factor) {
        return Ok(factor);
    }
    let (max, got) = (show_factor(COLD_FACTOR_MAX), quoted(text));
    Err(UnitError::new(format!("must be from `1` to `{max}`, got {got}; leave it out for `3`")))
}

fn zone(text: &str) -> Result<String, UnitError> {
    match Calendar::new(text, CalendarUnit::Day) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => {
            let got = quoted(text);
            Err(UnitError::new(format!(
                "unknown time zone, got {got}; use a name of the IANA time zone database, like \
                 `Europe/Berlin`"
            )))
        }
    }
}

// === where the algorithm is not known ===

/// Every field of any limit, each once.
pub(crate) fn field_names() -> Vec<&'static str> {
    let mut names = vec!["algorithm", "name"];
    for name in FORMS.iter().flat_map(|form| form.fields) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

/// Checks every known field separately, for an unknown algorithm.
pub(in crate::limit) fn check_values(fields: &mut Fields<'_>, report: &mut Report) {
    let _ = fields.optional(&RATE, report);
    for field in [&BURST, &INITIAL, &QUEUE, &PERMITS, &MAX, &COLD_FACTOR] {
        let _ = fields.optional(field, report);
    }
    for field in [&FORGET_AFTER, &MAX_BURST, &WARM_UP, &PERIOD, &LEASE] {
        let _ = fields.optional(field, report);
    }
    let _ = fields.optional(&REFILL, report);
    let _ = fields.optional(&ALIGN, report);
    let _ = fields.optional(&ZONE, report);
    let _ = fields.optional(&ROUNDING, report);
    let _ = fields.optional(&SLICES, report);
    log::check_values(fields, report);
}
