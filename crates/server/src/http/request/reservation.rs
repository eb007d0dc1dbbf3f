//! Bodies of `/v1/reserve`, `/v1/wait`, `/v1/commit` and `/v1/cancel`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::super::BodyLimits;
use super::fields::{
    BoundedText, HitCount, ObjectFields, ParseContext, RequestError, reject_duplicate,
    unknown_field,
};
use super::{CheckFields, ParsedCheck, read_object};
use crate::reservations::TICKET_BYTES_MAX;

/// A field with a duration in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct DurationField {
    /// Name of the field.
    pub(in crate::http) name: &'static str,
    /// Minimum.
    pub(in crate::http) min: u64,
    /// Maximum.
    pub(in crate::http) max: u64,
    /// Default.
    pub(in crate::http) default: u64,
}

/// Body of a commit or a cancel.
#[derive(Debug, Default)]
pub(in crate::http) struct SettleBody<'a> {
    pub(in crate::http) reservation: Cow<'a, str>,
    /// Hits that were used; 0 of a cancel.
    pub(in crate::http) hits: u64,
}

/// Reads a check and a duration in milliseconds.
pub(in crate::http) fn read_timed<'a>(
    body: &'a [u8],
    limits: &BodyLimits,
    duration: DurationField,
) -> Result<(ParsedCheck<'a>, u64), RequestError> {
    let mut fields =
        TimedFields { duration, millis: None, check: CheckFields::default(), parsed: None };
    read_object(body, limits, &mut fields)?;
    Ok((fields.parsed.unwrap_or_default(), fields.millis.unwrap_or(duration.default)))
}

/// Reads the body of a commit.
pub(in crate::http) fn read_commit<'a>(
    body: &'a [u8],
    limits: &BodyLimits,
) -> Result<SettleBody<'a>, RequestError> {
    let mut fields = SettleFields { with_hits: true, ..SettleFields::default() };
    read_object(body, limits, &mut fields)?;
    Ok(fields.body)
}

/// Reads the body of a cancel.
pub(in crate::http) fn read_cancel<'a>(
    body: &'a [u8],
    limits: &BodyLimits,
) -> Result<SettleBody<'a>, RequestError> {
    let mut fields = SettleFields::default();
    read_object(body, limits, &mut fields)?;
    Ok(fields.body)
}

// === a check and a duration ===

struct TimedFields<'a> {
    duration: DurationField,
    millis: Option<u64>,
    check: CheckFields<'a>,
    parsed: Option<ParsedCheck<'a>>,
}

impl<'de> ObjectFields<'de> for TimedFields<'de> {
    const SHAPE: &'static str =
        r#"an object such as {"domain":"shop","descriptors":[{"user":"42"}]}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        context: &mut ParseContext<'_>,
    ) -> Result<(), A::Error> {
        let duration = self.duration.name;
        if name != duration {
            return self.check.read(
                &name,
                map,
                context,
                &["domain", "descriptors", "hits", duration],
            );
        }
        reject_duplicate(self.millis.is_some())?;
        self.millis = Some(map.next_value_seed(self.duration)?);
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        self.parsed = Some(self.check.check()?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for DurationField {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_any(self)
    }
}

impl DurationField {
    fn error<E: Error>(self, got: impl fmt::Display) -> E {
        let Self { min, max, .. } = self;
        E::custom(format_args!("must be from {min} to {max} milliseconds, got {got}"))
    }
}

impl Visitor<'_> for DurationField {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number of milliseconds from {} to {}", self.min, self.max)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        match (self.min..=self.max).contains(&number) {
            true => Ok(number),
            false => Err(self.error(format_args!("`{number}`"))),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Err(self.error(format_args!("`{number}`")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // Such as `1e3`.
        if number.trunc() == number && (0.0..1e15).contains(&number) {
            return self.visit_u64(number as u64);
        }
        Err(self.error(format_args!("`{number}`")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let shown: String = text.chars().take(20).collect();
        Err(self.error(format_args!("`{shown}` in quotes; leave them out")))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<u64, E> {
        Err(self.error(format_args!("`{value}`")))
    }

    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Err(self.error("`null`"))
    }
}

// === a reservation ===

#[derive(Default)]
struct SettleFields<'a> {
    with_hits: bool,
    body: SettleBody<'a>,
    reservation: bool,
    hits: bool,
}

impl<'de> ObjectFields<'de> for SettleFields<'de> {
    const SHAPE: &'static str = r#"an object such as {"reservation":"…"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        _: &mut ParseContext<'_>,
    ) -> Result<(), A::Error> {
        match &*name {
            "reservation" => {
                reject_duplicate(std::mem::replace(&mut self.reservation, true))?;
                self.body.reservation = map.next_value_seed(BoundedText(TICKET_BYTES_MAX))?;
            }
            "hits" if self.with_hits => {
                reject_duplicate(std::mem::replace(&mut self.hits, true))?;
                self.body.hits = map.next_value_seed(HitCount)?;
            }
            _ if self.with_hits => return Err(unknown_field(&name, &["reservation", "hits"])),
            _ => return Err(unknown_field(&name, &["reservation"])),
        }
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if !self.reservation {
            return Err(E::custom(
                "`reservation` is missing; send the one that `/v1/reserve` returned",
            ));
        }
        if self.with_hits && !self.hits {
            return Err(E::custom("`hits` is missing; send what was used, 0 if nothing"));
        }
        Ok(())
    }
}
