//! Network conditions, and the readers of numbers that scenarios have in common.

use super::NetworkConfig;
use crate::fields::{Field, Value, unknown};
use crate::problem::{Report, Reported, quoted};
use crate::units::{self, UnitError};

/// Longest time in a scenario.
const LONGEST_MS: u64 = 3_600_000;

const DELAY: Field<u64> = Field { name: "delay", example: "2ms", read: millis };
const JITTER: Field<u64> = Field { name: "jitter", example: "1ms", read: millis };
const LOSS: Field<u64> = Field { name: "loss", example: "1%", read: share };
const LOST_REPLIES: Field<u64> = Field { name: "lost_replies", example: "1%", read: share };
const DUPLICATES: Field<u64> = Field { name: "duplicates", example: "0.5%", read: share };
const LATE_SHARE: Field<u64> = Field { name: "share", example: "5%", read: share };
const UP_TO: Field<u64> = Field { name: "up_to", example: "400ms", read: millis };

const KEYS: [&str; 6] = ["delay", "jitter", "late", "loss", "lost_replies", "duplicates"];
const EXAMPLE: &str = "{ delay: 2ms, jitter: 1ms, loss: 1% }";

/// Reads network conditions.
pub(super) fn network(
    value: &Value<'_, '_>,
    report: &mut Report,
) -> Result<NetworkConfig, Reported> {
    let mut fields = value.fields("a network", EXAMPLE, report)?;
    let delay = fields.optional(&DELAY, report);
    let jitter = fields.optional(&JITTER, report);
    let loss = fields.optional(&LOSS, report);
    let lost_replies = fields.optional(&LOST_REPLIES, report);
    let duplicates = fields.optional(&DUPLICATES, report);
    let late = match fields.filled("late", "{ share: 5%, up_to: 400ms }", report)? {
        Some(value) => late(&value, report),
        None => Ok((0, 0)),
    };
    fields.finish(report, |key| unknown(key, &KEYS))?;
    Ok(NetworkConfig {
        delay_ms: delay?.unwrap_or(0),
        jitter_ms: jitter?.unwrap_or(0),
        late: late?,
        loss: loss?.unwrap_or(0),
        lost_replies: lost_replies?.unwrap_or(0),
        duplicates: duplicates?.unwrap_or(0),
    })
}

fn late(value: &Value<'_, '_>, report: &mut Report) -> Result<(u64, u64), Reported> {
    let mut fields = value.fields("late calls", "{ share: 5%, up_to: 400ms }", report)?;
    let share = fields.required(&LATE_SHARE, report);
    let up_to = fields.required(&UP_TO, report);
    fields.finish(report, |key| unknown(key, &["share", "up_to"]))?;
    Ok((share?, up_to?))
}

/// A time in whole milliseconds, the resolution of the simulator; `0s` is fine.
pub(super) fn millis(text: &str) -> Result<u64, UnitError> {
    let us = units::span_or_zero(text)?.as_micros();
    let got = quoted(text);
    if !us.is_multiple_of(1_000) {
        return Err(UnitError::new(format!(
            "must be whole milliseconds, got {got}; the simulated clock has no finer time"
        )));
    }
    match us / 1_000 {
        ms if ms <= LONGEST_MS => Ok(ms),
        _ => Err(UnitError::new(format!("must be at most `1h`, got {got}; write less"))),
    }
}

/// A time that may be negative.
pub(super) fn signed_millis(text: &str) -> Result<i64, UnitError> {
    let (text, sign) = match text.trim().strip_prefix('-') {
        Some(rest) => (rest, -1),
        None => (text, 1),
    };
    millis(text).map(|ms| sign * i64::try_from(ms).unwrap_or(i64::MAX))
}

/// A share in thousandths, written as a percentage with at most one decimal.
pub(super) fn share(text: &str) -> Result<u64, UnitError> {
    let wrong = || {
        let got = quoted(text);
        UnitError::new(format!(
            "must be a percentage up to 100% with at most one decimal, got {got}; write it like \
             `1%` or `0.5%`"
        ))
    };
    let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
    // In thousandths of a percent.
    let share = units::decimal(number).map_err(|_| wrong())?;
    if share.is_multiple_of(100) && share <= 100_000 { Ok(share / 100) } else { Err(wrong()) }
}

/// A rate in thousandths of requests per second.
pub(super) fn rate_milli(text: &str) -> Result<u64, UnitError> {
    let written = units::rate(text)?;
    let period = written.period().as_micros().max(1);
    let milli = u128::from(written.count()) * 1_000_000_000 / u128::from(period);
    match u64::try_from(milli) {
        Ok(milli) if (1..=10_000_000_000).contains(&milli) => Ok(milli),
        _ => {
            let got = quoted(text);
            Err(UnitError::new(format!(
                "must be between `1/1000s` and `10_000_000/s`, got {got}; write it like `300/s`"
            )))
        }
    }
}
