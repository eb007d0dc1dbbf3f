//! Parses the fields of each algorithm and builds the limit.
//!
//! Each reader takes all its fields first, so that every error is reported, then builds the limit.
//! A placeholder replaces a rate that is 0 or invalid, so that the other fields are still checked
//! against core's bounds.

pub(crate) mod known;
pub(crate) mod log;

pub(super) use known::{check_values, field_names};

use sluicegate_core::algorithm::concurrency::Concurrency;
use sluicegate_core::algorithm::cycle::Cycle;
use sluicegate_core::algorithm::fixed_window::{Align, FixedWindow};
use sluicegate_core::algorithm::leaky_bucket::LeakyBucket;
use sluicegate_core::algorithm::sliding_slices::SlidingSlices;
use sluicegate_core::algorithm::sliding_window::SlidingWindow;
use sluicegate_core::algorithm::smooth::{MAX_BURST as SMOOTH_MAX_BURST, SmoothBursty};
use sluicegate_core::algorithm::tally::Tally;
use sluicegate_core::algorithm::token_bucket::TokenBucket;
use sluicegate_core::algorithm::warm_up::{COLD_FACTOR as COLD, WarmUp};
use sluicegate_core::arithmetic::EXACT_MAX;
use sluicegate_core::limit::Limit;
use sluicegate_core::quota::{QuotaError, Rate};
use sluicegate_core::time::Span;
use sluicegate_rules::calendar::Calendar;

use self::known::{
    ALIGN, Aligned, BURST, COLD_FACTOR, FORGET_AFTER, INITIAL, LEASE, MAX, MAX_BURST, PERIOD,
    PERMITS, QUEUE, RATE, REFILL, ROUNDING, SLICES, WARM_UP, ZONE,
};
use crate::fields::{Field, Fields};
use crate::problem::{Report, Reported, quoted};
use crate::quota::requirement;
use crate::units::WrittenRate;

/// An algorithm as it is written.
#[derive(Debug)]
pub(crate) struct AlgorithmForm {
    pub(crate) name: &'static str,
    /// Its own fields, beside those of every limit.
    pub(crate) fields: &'static [&'static str],
    pub(super) read: fn(&mut Fields<'_>, &mut Report) -> Result<Allows, Reported>,
}

/// The quota of a limit, before it has its name.
#[derive(Debug)]
pub(super) enum Allows {
    Fixed(Limit),
    Calendar(Rate, Calendar),
}

/// Every algorithm, in the order that messages list them.
pub(crate) const FORMS: [AlgorithmForm; 11] = [
    AlgorithmForm {
        name: "token_bucket",
        fields: &["rate", "burst", "initial", "refill", "forget_after"],
        read: token_bucket,
    },
    AlgorithmForm { name: "leaky_bucket", fields: &["rate", "queue"], read: leaky_bucket },
    AlgorithmForm { name: "fixed_window", fields: &["rate", "align", "zone"], read: fixed_window },
    AlgorithmForm {
        name: "sliding_log",
        fields: &["rate", "rates", "count_denied", "min_gap"],
        read: log::sliding_log,
    },
    AlgorithmForm {
        name: "sliding_window",
        fields: &["rate", "rounding", "slices"],
        read: sliding_window,
    },
    AlgorithmForm {
        name: "smooth_bursty",
        fields: &["rate", "max_burst", "forget_after"],
        read: smooth_bursty,
    },
    AlgorithmForm { name: "warm_up", fields: &["rate", "warm_up", "cold_factor"], read: warm_up },
    AlgorithmForm { name: "cycle", fields: &["permits", "period"], read: cycle },
    AlgorithmForm { name: "concurrency", fields: &["max", "lease"], read: concurrency },
    AlgorithmForm { name: "tally", fields: &["rate"], read: tally },
    AlgorithmForm {
        name: "unlimited",
        fields: &[],
        read: |_, _| Ok(Allows::Fixed(Limit::Unlimited)),
    },
];

// === a rate that may be 0 ===

/// The rate to make a limit with, and whether that limit counts.
struct Pace {
    rate: Rate,
    counts: Result<Counts, Reported>,
}

#[derive(Clone, Copy)]
enum Counts {
    /// As it is.
    Open,
    /// Its number is 0: nothing passes.
    Closed,
}

impl Pace {
    /// The rate as written, or the given number per second where it is 0 or invalid.
    fn of(
        written: Result<WrittenRate, Reported>,
        per_second: u64,
        fields: &Fields<'_>,
        report: &mut Report,
    ) -> Result<Self, Reported> {
        let mut rate = placeholder_rate(per_second);
        let counts = match written {
            Ok(written) if written.count() > 0 => {
                rate = Rate::new(written.count(), written.period());
                Ok(Counts::Open)
            }
            Ok(_) => Ok(Counts::Closed),
            Err(reported) => Err(reported),
        };
        let lower = "write a lower one";
        let rate = rate.map_err(|error| refuse(fields, &RATE, &error, lower, report))?;
        Ok(Self { rate, counts })
    }

    fn allows(&self, limit: Limit) -> Result<Allows, Reported> {
        Ok(Allows::Fixed(counted(self.counts?, limit)))
    }
}

/// No burst is too large for this many per second.
const FASTEST: u64 = EXACT_MAX;

fn placeholder_rate(per_second: u64) -> Result<Rate, QuotaError> {
    Rate::new(per_second, Span::from_secs(1))
}

const fn counted(counts: Counts, limit: Limit) -> Limit {
    match counts {
        Counts::Open => limit,
        Counts::Closed => Limit::Closed,
    }
}

/// A number of which 0 closes the limit, and the one to make it with.
fn number_or_one(number: u64) -> (u64, Counts) {
    match number {
        0 => (1, Counts::Closed),
        number => (number, Counts::Open),
    }
}

/// Reports core's error for a field.
fn refuse<T>(
    fields: &Fields<'_>,
    field: &Field<T>,
    error: &QuotaError,
    remedy: &str,
    report: &mut Report,
) -> Reported {
    let (wrong, got) = (requirement(error), fields.written(field.name));
    fields.refuse(field.name, report, format!("{wrong}, got {got}; {remedy}"))
}

// === the algorithms ===

fn token_bucket(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report);
    let burst = fields.optional(&BURST, report);
    let initial = fields.optional(&INITIAL, report);
    let refill = fields.optional(&REFILL, report);
    let forget_after = fields.optional(&FORGET_AFTER, report);
    let pace = Pace::of(rate, FASTEST, fields, report)?;

    let burst = burst?.unwrap_or(pace.rate.count());
    let remedy = "lower it, or raise `rate`";
    let bucket = TokenBucket::new(pace.rate, burst)
        .map_err(|error| refuse(fields, &BURST, &error, remedy, report));
    let initial = initial?.unwrap_or(burst);
    // Checked against the burst alone, so that it is reported even if the rate is too slow for the
    // burst.
    let remedy = "lower it, or raise `burst`";
    placeholder_rate(FASTEST)
        .and_then(|fastest| TokenBucket::new(fastest, burst)?.with_initial(initial))
        .map_err(|error| refuse(fields, &INITIAL, &error, remedy, report))?;
    let mut bucket = bucket?
        .with_initial(initial)
        .map_err(|error| refuse(fields, &INITIAL, &error, remedy, report))?;
    let remedy = "leave it out";
    bucket = bucket
        .with_refill(refill?.unwrap_or_default())
        .map_err(|error| refuse(fields, &REFILL, &error, remedy, report))?;
    if let Some(forget_after) = forget_after? {
        bucket = bucket
            .with_forget_after(forget_after)
            .map_err(|error| refuse(fields, &FORGET_AFTER, &error, remedy, report))?;
    }
    pace.allows(Limit::TokenBucket(bucket))
}

fn leaky_bucket(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report);
    let queue = fields.optional(&QUEUE, report);
    let pace = Pace::of(rate, FASTEST, fields, report)?;

    let queue = queue?.unwrap_or(0);
    let bucket = LeakyBucket::new(pace.rate, queue).map_err(|error| {
        // Core counts the one being served too.
        let error = match error {
            QuotaError::TooMuch { what, max, .. } => {
                QuotaError::TooMuch { what, amount: queue, max: max.saturating_sub(1) }
            }
            other => other,
        };
        refuse(fields, &QUEUE, &error, "lower it, or raise `rate`", report)
    })?;
    pace.allows(Limit::LeakyBucket(bucket))
}

fn fixed_window(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report);
    let align = fields.optional(&ALIGN, report);
    let zone = fields.optional(&ZONE, report);
    let align = align?.unwrap_or(Aligned::Clock);
    let pace = Pace::of(rate, 1, fields, report)?;
    let align = match align {
        Aligned::Calendar => return calendar_window(&pace, rate, zone, fields, report),
        Aligned::Clock => Align::Clock,
        Aligned::FirstHit => Align::FirstHit,
    };
    if let Ok(Some(zone)) = &zone {
        let got = quoted(zone);
        let message = format!(
            "has a meaning only with `align: calendar`, got {got}; remove it, or write `align: \
             calendar`"
        );
        return Err(fields.refuse(ZONE.name, report, message));
    }
    zone?;
    pace.allows(Limit::FixedWindow(FixedWindow::new(pace.rate, align)))
}

fn calendar_window(
    pace: &Pace,
    rate: Result<WrittenRate, Reported>,
    zone: Result<Option<String>, Reported>,
    fields: &Fields<'_>,
    report: &mut Report,
) -> Result<Allows, Reported> {
    let Some(unit) = rate?.calendar() else {
        let got = fields.written(RATE.name);
        let message = format!(
            "must be per exactly one day, week, month or year with `align: calendar`, got {got}; \
             write it like `10000/day`, or use `align: clock`"
        );
        return Err(fields.refuse(RATE.name, report, message));
    };
    let zone = zone?.unwrap_or_else(|| "UTC".to_owned());
    let calendar = Calendar::new(&zone, unit).map_err(|error| {
        let message = format!("{error}; use a name of the IANA time zone database");
        fields.refuse(ZONE.name, report, message)
    })?;
    Ok(match pace.counts? {
        Counts::Open => Allows::Calendar(pace.rate, calendar),
        Counts::Closed => Allows::Fixed(Limit::Closed),
    })
}

fn sliding_window(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report);
    let rounding = fields.optional(&ROUNDING, report);
    let slices = fields.optional(&SLICES, report);
    let pace = Pace::of(rate, 1, fields, report)?;
    if let (Ok(Some(_)), Ok(Some(_))) = (&rounding, &slices) {
        let got = fields.written(ROUNDING.name);
        let message = format!(
            "has no meaning with `slices`, which count whole hits, got {got}; remove one of them"
        );
        return Err(fields.refuse(ROUNDING.name, report, message));
    }
    if let Some(slices) = slices? {
        rounding?;
        let remedy = "write fewer slices, or a longer window";
        let window = SlidingSlices::new(pace.rate, slices)
            .map_err(|error| refuse(fields, &SLICES, &error, remedy, report))?;
        return pace.allows(Limit::SlidingSlices(window));
    }
    pace.allows(Limit::SlidingWindow(SlidingWindow::new(pace.rate, rounding?.unwrap_or_default())))
}

fn smooth_bursty(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report);
    let max_burst = fields.optional(&MAX_BURST, report);
    let forget_after = fields.optional(&FORGET_AFTER, report);
    let pace = Pace::of(rate, 1, fields, report)?;
    let remedy = "leave it out";
    let mut smooth = SmoothBursty::new(pace.rate, max_burst?.unwrap_or(SMOOTH_MAX_BURST))
        .map_err(|error| refuse(fields, &MAX_BURST, &error, remedy, report))?;
    if let Some(forget_after) = forget_after? {
        smooth = smooth
            .with_forget_after(forget_after)
            .map_err(|error| refuse(fields, &FORGET_AFTER, &error, remedy, report))?;
    }
    pace.allows(Limit::SmoothBursty(smooth))
}

fn warm_up(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report);
    let warm_up = fields.required(&WARM_UP, report);
    let cold_factor = fields.optional(&COLD_FACTOR, report);
    let pace = Pace::of(rate, 1, fields, report)?;
    let limit = WarmUp::new(pace.rate, warm_up?, cold_factor?.unwrap_or(COLD)).map_err(|_| {
        // Each field is within its bounds; only their ratio can still be invalid.
        let got = fields.written(RATE.name);
        let message = format!(
            "cannot be held exactly together with this `cold_factor`, got {got}; write a rounder \
             rate, or leave out `cold_factor`"
        );
        fields.refuse(RATE.name, report, message)
    })?;
    pace.allows(Limit::WarmUp(limit))
}

fn cycle(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let permits = fields.required(&PERMITS, report);
    let period = fields.required(&PERIOD, report);
    let (permits, counts) = number_or_one(permits?);
    let cycle = Cycle::new(permits, period?).map_err(|error| match error {
        QuotaError::BadSpan { .. } => refuse(fields, &PERIOD, &error, "write another time", report),
        _ => refuse(fields, &PERMITS, &error, "write less", report),
    })?;
    Ok(Allows::Fixed(counted(counts, Limit::Cycle(cycle))))
}

fn concurrency(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let max = fields.required(&MAX, report);
    let lease = fields.required(&LEASE, report);
    let (max, counts) = number_or_one(max?);
    // The lease does not affect the maximum: a valid one replaces a rejected one.
    let slots = Concurrency::new(max, lease.unwrap_or(Span::from_secs(1)));
    let slots = slots.map_err(|error| match error {
        QuotaError::BadSpan { .. } => refuse(fields, &LEASE, &error, "write another time", report),
        _ => refuse(fields, &MAX, &error, "write less", report),
    })?;
    lease?;
    Ok(Allows::Fixed(counted(counts, Limit::Concurrency(slots))))
}

/// A number of 0 does not close it: such a tally lets a cost of 0 pass until something else came,
/// as Envoy's does.
fn tally(fields: &mut Fields<'_>, report: &mut Report) -> Result<Allows, Reported> {
    let rate = fields.required(&RATE, report)?;
    let tally = Tally::new(rate.count(), rate.period())
        .map_err(|error| refuse(fields, &RATE, &error, "write a lower one", report))?;
    Ok(Allows::Fixed(Limit::Tally(tally)))
}
