//! Bodies of `/v1/commit`, `/v1/renew` and `/v1/cancel`, and the durations of `/v1/reserve` and
//! `/v1/wait`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::super::BodyLimits;
use super::fields::{
    BoundedText, FieldValue, ObjectFields, RequestError, reject_duplicate, unknown_field,
};
use super::read_object;
use crate::reservations::TICKET_BYTES_MAX;

/// A field with a duration in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct DurationField {
    /// Name of the field.
    pub(in crate::http) name: &'static str,
    /// Minimum.
    pub(in crate::http) min: u64,
    /// Maximum.
    pub(in crate::http) max: u64,
}

/// Body of a request about a reservation.
#[derive(Debug)]
pub(in crate::http) struct SettleBody<'a> {
    pub(in crate::http) reservation: Cow<'a, str>,
    pub(in crate::http) operation: SettleOperation,
}

/// What a request does with its reservation. Fields without a value are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum SettleOperation {
    /// Settles it with what was used, or a part of it.
    Commit { hits: u64, partial: bool },
    /// Restarts its lifetime, in milliseconds.
    Renew { ttl: DurationField, ttl_ms: u64 },
    /// Cancels it.
    Cancel,
}

/// Reads the body of a request with the fields of this operation.
pub(in crate::http) fn read_settle<'a>(
    body: &'a [u8],
    limits: &BodyLimits,
    operation: SettleOperation,
) -> Result<SettleBody<'a>, RequestError> {
    let mut fields = SettleFields { operation, reservation: None, amount: None, partial: None };
    read_object(body, limits, &mut fields)?;
    let SettleFields { reservation, amount, partial, .. } = fields;
    let (amount, partial) = (amount.unwrap_or(0), partial.unwrap_or(false));
    let operation = match operation {
        SettleOperation::Commit { .. } => SettleOperation::Commit { hits: amount, partial },
        SettleOperation::Renew { ttl, .. } => SettleOperation::Renew { ttl, ttl_ms: amount },
        SettleOperation::Cancel => SettleOperation::Cancel,
    };
    Ok(SettleBody { reservation: reservation.unwrap_or_default(), operation })
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

struct SettleFields<'a> {
    operation: SettleOperation,
    reservation: Option<Cow<'a, str>>,
    /// Hits, or milliseconds.
    amount: Option<u64>,
    partial: Option<bool>,
}

impl SettleOperation {
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Commit { .. } => &["reservation", "hits", "partial"],
            Self::Renew { .. } => &["reservation", "ttl_ms"],
            Self::Cancel => &["reservation"],
        }
    }
}

impl<'de> ObjectFields<'de> for SettleFields<'de> {
    const SHAPE: &'static str = r#"an object such as {"reservation":"…"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        match (&*name, self.operation) {
            ("reservation", _) => {
                reject_duplicate(self.reservation.is_some())?;
                self.reservation = Some(value.read(BoundedText(TICKET_BYTES_MAX))?);
            }
            ("hits", SettleOperation::Commit { .. }) => {
                reject_duplicate(self.amount.is_some())?;
                self.amount = Some(value.hits()?);
            }
            ("partial", SettleOperation::Commit { .. }) => {
                reject_duplicate(self.partial.is_some())?;
                self.partial = Some(value.read(PhantomData::<bool>)?);
            }
            ("ttl_ms", SettleOperation::Renew { ttl, .. }) => {
                reject_duplicate(self.amount.is_some())?;
                self.amount = Some(value.read(ttl)?);
            }
            _ => return Err(unknown_field(&name, self.operation.fields())),
        }
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.reservation.is_none() {
            return Err(E::custom(
                "`reservation` is missing; send the one that `/v1/reserve` returned",
            ));
        }
        match self.operation {
            SettleOperation::Commit { .. } if self.amount.is_none() => {
                Err(E::custom("`hits` is missing; send what was used, 0 if nothing"))
            }
            SettleOperation::Renew { .. } if self.amount.is_none() => Err(E::custom(
                "`ttl_ms` is missing; send the milliseconds after which it expires, such as 60000",
            )),
            _ => Ok(()),
        }
    }
}
