//! `schedule`: limits at certain times of the week.

use sluicegate_rules::schedule::{DAY_MINUTES, DAYS, PARTS_MAX, Period};
use sluicegate_rules::zone::Zone;

use super::plans::PlannedLimits;
use super::reader::Reader;
use crate::fields::{Field, Value, unknown};
use crate::limit::algorithms::known::ZONE;
use crate::problem::{Reported, quoted};
use crate::suggest;
use crate::units::UnitError;

/// A part of a schedule, its limits perhaps by plan.
pub(super) struct PlannedPart {
    pub(super) period: Period,
    pub(super) limits: PlannedLimits,
}

pub(crate) const DAYS_FIELD: Field<[bool; 7]> =
    Field { name: "days", example: "mon-fri", read: days };
pub(crate) const FROM: Field<u16> = Field { name: "from", example: "09:00", read: begin };
pub(crate) const UNTIL: Field<u16> = Field { name: "until", example: "18:00", read: clock };
pub(crate) const LIMITS: &str = "limits";

const EXAMPLE: &str = "{ days: mon-fri, from: 09:00, until: 18:00, zone: Europe/Berlin, limits: { \
                       algorithm: token_bucket, rate: 5/s } }";

impl Reader<'_> {
    pub(super) fn schedule(&mut self, list: &Value<'_, '_>) -> Result<Vec<PlannedPart>, Reported> {
        let count = list.items().len();
        if !list.is_list() || count == 0 || count > PARTS_MAX {
            let got = if list.is_list() { count.to_string() } else { list.node.described() };
            let message = format!(
                "must be a list of 1 to {PARTS_MAX} times with limits, got {got}; write it like \
                 `schedule: [{EXAMPLE}]`"
            );
            return Err(self.refuse(list, message));
        }
        let parts: Vec<_> = list.items().map(|item| self.scheduled_part(&item)).collect();
        parts.into_iter().collect()
    }

    fn scheduled_part(&mut self, input: &Value<'_, '_>) -> Result<PlannedPart, Reported> {
        let mut fields = input.fields("a part of a schedule", EXAMPLE, self.report)?;
        let days = fields.optional(&DAYS_FIELD, self.report);
        let from = fields.optional(&FROM, self.report);
        let until = fields.optional(&UNTIL, self.report);
        let zone = fields.optional(&ZONE, self.report);
        let limits = match fields.value(LIMITS) {
            Some(limits) => self.planned_or_word(&limits),
            None => {
                let remedy = "add the limits that hold then, or `unlimited`, or `deny`";
                Err(fields.missing(LIMITS, remedy, self.report))
            }
        };
        let same = match (&from, &until) {
            (Ok(Some(from)), Ok(Some(until))) if from % DAY_MINUTES == until % DAY_MINUTES => {
                (*from, *until) != (0, DAY_MINUTES)
            }
            (Ok(Some(0)), Ok(None)) | (Ok(None), Ok(None | Some(_))) => false,
            _ => false,
        };
        let is_whole_week = matches!((&days, &from, &until), (Ok(None), Ok(None), Ok(None)));
        let wrong = if same {
            let got = fields.written(UNTIL.name);
            let message = format!(
                "must differ from `from`, got {got}; leave both out for the whole day, or write \
                 `24:00` for its end"
            );
            Some(fields.refuse(UNTIL.name, self.report, message))
        } else {
            None
        };
        let known = [DAYS_FIELD.name, FROM.name, UNTIL.name, ZONE.name, LIMITS];
        fields.finish(self.report, |key| unknown(key, &known))?;
        let (days, from, until) = (days?, from?, until?);
        let (zone, limits) = (zone?, limits?);
        if let Some(reported) = wrong {
            return Err(reported);
        }
        if is_whole_week {
            let message = "has neither `days` nor `from` and `until`, so it always holds; add one of \
                           them, like `days: mon-fri`";
            return Err(self.refuse(input, message.to_owned()));
        }
        let period = Period {
            days: days.unwrap_or([true; 7]),
            from: from.unwrap_or(0),
            until: until.unwrap_or(DAY_MINUTES),
            zone: zone.as_deref().and_then(Zone::new).unwrap_or_else(Zone::utc),
        };
        Ok(PlannedPart { period, limits })
    }
}

/// `mon-fri`, `sat, sun`, `daily`.
fn days(text: &str) -> Result<[bool; 7], UnitError> {
    let mut days = [false; 7];
    if text.trim() == "daily" {
        return Ok([true; 7]);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (day_of(first, text)?, day_of(last, text)?);
        // `fri-mon` goes over the end of the week.
        loop {
            if let Some(slot) = days.get_mut(day) {
                *slot = true;
            }
            if day == last {
                break;
            }
            day = (day + 1) % DAYS.len();
        }
    }
    Ok(days)
}

fn day_of(word: &str, text: &str) -> Result<usize, UnitError> {
    const LONG: [&str; 7] =
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let word = word.trim().to_lowercase();
    let is = |(short, long): (&&str, &&str)| word == *short || word == *long;
    DAYS.iter().zip(&LONG).position(is).ok_or_else(|| {
        let (got, hint) = (quoted(text), suggest::hint(&word, DAYS));
        UnitError::new(format!(
            "must be days of the week, got {got}; {hint}write them like `mon-fri` or `sat, sun`"
        ))
    })
}

fn begin(text: &str) -> Result<u16, UnitError> {
    match clock(text)? {
        DAY_MINUTES => Err(UnitError::new(
            "must be before the end of the day, got `24:00`; write `00:00` and the next day"
                .to_owned(),
        )),
        minutes => Ok(minutes),
    }
}

/// `09:00`, `9`, `24:00`.
fn clock(text: &str) -> Result<u16, UnitError> {
    let trimmed = text.trim();
    let (hours, minutes) = trimmed.split_once(':').unwrap_or((trimmed, "00"));
    let number = |digits: &str, max: u16| {
        let is_short = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() <= 2;
        digits.parse::<u16>().ok().filter(|number| is_short && *number <= max)
    };
    let all = number(hours, 24).zip(number(minutes, 59).filter(|_| minutes.len() == 2));
    let total = all.map(|(hours, minutes)| hours * 60 + minutes);
    total.filter(|total| *total <= DAY_MINUTES).ok_or_else(|| {
        let got = quoted(text);
        UnitError::new(format!(
            "must be a time of the day from `00:00` to `24:00`, got {got}; write it like `09:00`"
        ))
    })
}
