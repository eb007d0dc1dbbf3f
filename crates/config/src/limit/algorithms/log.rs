//! The sliding log, which takes one rate or a list of them.

use sluicegate_core::algorithm::sliding_log::{LOG_WINDOWS_MAX, SlidingLog};
use sluicegate_core::limit::Limit;
use sluicegate_core::quota::Rate;
use sluicegate_core::time::Span;

use super::Allows;
use super::known::{RATE, field};
use crate::fields::{Field, Fields, Value};
use crate::problem::{Report, Reported};
use crate::quota::requirement;
use crate::units::{self, WrittenRate};

pub(crate) const RATES: &str = "rates";
const RATES_EXAMPLE: &str = "[10/m, 2 per 3s]";
pub(crate) const COUNT_DENIED: Field<bool> = field("count_denied", "true", units::truth);
pub(crate) const MIN_GAP: Field<Span> = field("min_gap", "200ms", units::span_or_zero);

pub(super) fn sliding_log(
    fields: &mut Fields<'_>,
    report: &mut Report,
) -> Result<Allows, Reported> {
    let count_denied = fields.optional(&COUNT_DENIED, report);
    let min_gap = fields.optional(&MIN_GAP, report);
    // An invalid value counts as false, so that each error is reported once.
    let counts_denied = count_denied.unwrap_or_default().unwrap_or_default();
    let rates = rates(fields, counts_denied, report)?;
    count_denied?;
    let min_gap = min_gap?.unwrap_or_default();
    let Some(rates) = rates else {
        return Ok(Allows::Fixed(Limit::Closed));
    };
    let log = log_of(&rates, counts_denied).map_err(|(error, remedy)| {
        let message = format!("{}, got {}; {remedy}", requirement(&error), fields.written(RATES));
        fields.refuse(RATES, report, message)
    })?;
    Ok(Allows::Fixed(Limit::SlidingLog(log.with_min_gap(min_gap))))
}

/// Checks the fields of a log separately.
pub(super) fn check_values(fields: &mut Fields<'_>, report: &mut Report) {
    let _ = fields.optional(&COUNT_DENIED, report);
    let _ = fields.optional(&MIN_GAP, report);
    if let Ok(Some(list)) = fields.filled(RATES, RATES_EXAMPLE, report) {
        for item in list.items() {
            let _ = item.read(RATE.example, RATE.read, report);
        }
    }
}

/// The rates, from whichever field holds them; `None` if one of them is 0.
fn rates(
    fields: &mut Fields<'_>,
    counts_denied: bool,
    report: &mut Report,
) -> Result<Option<Vec<Rate>>, Reported> {
    let one = fields.filled(RATE.name, RATE.example, report);
    let list = fields.filled(RATES, RATES_EXAMPLE, report);
    let mut read = Vec::new();
    if let Ok(Some(value)) = one {
        read.push(rate(&value, "rate: 10/s", counts_denied, report));
    }
    if let Ok(Some(value)) = list {
        read.extend(rates_in(&value, counts_denied, report)?);
    }
    match (one?, list?) {
        (Some(_), Some(_)) => {
            let message = "stands beside `rate`, got both; keep one of them".to_owned();
            return Err(fields.refuse(RATES, report, message));
        }
        (None, None) => {
            let remedy =
                format!("add it, like `rate: 5/m`, or several as `rates: {RATES_EXAMPLE}`");
            return Err(fields.missing(RATE.name, &remedy, report));
        }
        _ => {}
    }
    read.into_iter().collect()
}

fn rates_in(
    value: &Value<'_, '_>,
    counts_denied: bool,
    report: &mut Report,
) -> Result<Vec<Result<Option<Rate>, Reported>>, Reported> {
    let like = format!("write it like `rates: {RATES_EXAMPLE}`");
    if !value.is_list() {
        let got = value.node.described();
        let message = format!("must be a list of rates, got {got}; {like}");
        return Err(value.refuse(report, message));
    }
    let items = value.items();
    let count = items.len();
    let rates = items.map(|item| rate(&item, RATE.example, counts_denied, report)).collect();
    if count == 0 || count > LOG_WINDOWS_MAX {
        let message = format!("must hold 1 to {LOG_WINDOWS_MAX} rates, got `{count}`; {like}");
        return Err(value.refuse(report, message));
    }
    Ok(rates)
}

/// One rate, checked separately against the bounds of a log, so that a rate above them is named.
fn rate(
    value: &Value<'_, '_>,
    example: &str,
    counts_denied: bool,
    report: &mut Report,
) -> Result<Option<Rate>, Reported> {
    let written: WrittenRate = value.read(example, RATE.read, report)?;
    let checked = match written.to_rate() {
        Ok(None) => return Ok(None),
        Ok(Some(rate)) => log_of(&[rate], counts_denied).map(|_| Some(rate)),
        Err(error) => Err((error, "write another rate")),
    };
    checked.map_err(|(error, remedy)| {
        let (wrong, got) = (requirement(&error), value.node.described());
        value.refuse(report, format!("{wrong}, got {got}; {remedy}"))
    })
}

fn log_of(
    rates: &[Rate],
    counts_denied: bool,
) -> Result<SlidingLog, (sluicegate_core::quota::QuotaError, &'static str)> {
    let remedy = "lower its number, or use `sliding_window`, which keeps two counts and no log";
    let log = SlidingLog::new(rates).map_err(|error| (error, remedy))?;
    if !counts_denied {
        return Ok(log);
    }
    let remedy = "lower its number, or leave out `count_denied`, which needs room for denied hits";
    log.counting_denied().map_err(|error| (error, remedy))
}
