//! Bodies of `/v1/commit` and `/v1/cancel`, and the duration of `/v1/reserve` and `/v1/wait`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::super::BodyLimits;
use super::fields::{
    BoundedText, FieldValue, ObjectFields, RequestError, reject_duplicate, unknown_field,
};
use super::read_object;
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
#[derive(Debug)]
pub(in crate::http) struct SettleBody<'a> {
    pub(in crate::http) reservation: Cow<'a, str>,
    /// Hits that were used; `None` of a cancel.
    pub(in crate::http) hits: Option<u64>,
}

/// Reads the body of a commit, which has hits, or of a cancel.
pub(in crate::http) fn read_settle<'a>(
    body: &'a [u8],
    limits: &BodyLimits,
    with_hits: bool,
) -> Result<SettleBody<'a>, RequestError> {
    let mut fields = SettleFields { with_hits, ..SettleFields::default() };
    read_object(body, limits, &mut fields)?;
    let SettleFields { reservation, hits, .. } = fields;
    Ok(SettleBody { reservation: reservation.unwrap_or_default(), hits })
}

// === a duration ===

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
    reservation: Option<Cow<'a, str>>,
    hits: Option<u64>,
}

impl<'de> ObjectFields<'de> for SettleFields<'de> {
    const SHAPE: &'static str = r#"an object such as {"reservation":"…"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        match &*name {
            "reservation" => {
                reject_duplicate(self.reservation.is_some())?;
                self.reservation = Some(value.read(BoundedText(TICKET_BYTES_MAX))?);
            }
            "hits" if self.with_hits => {
                reject_duplicate(self.hits.is_some())?;
                self.hits = Some(value.hits()?);
            }
            _ if self.with_hits => return Err(unknown_field(&name, &["reservation", "hits"])),
            _ => return Err(unknown_field(&name, &["reservation"])),
        }
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.reservation.is_none() {
            return Err(E::custom(
                "`reservation` is missing; send the one that `/v1/reserve` returned",
            ));
        }
        if self.with_hits && self.hits.is_none() {
            return Err(E::custom("`hits` is missing; send what was used, 0 if nothing"));
        }
        Ok(())
    }
}
