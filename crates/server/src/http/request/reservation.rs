//! What is asked of reservations, and by whoever would wait: a check and a time, or a reservation and what became of it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::check::CheckFields;
use super::fields::{Fields, Hits, Text, once, unknown};
use super::place::Reading;
use super::{Check, Most, NotAsked, read_object};
use crate::reservations::TICKET_BYTES_MAX;

/// How long something may take, as it is asked for.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Timed {
    /// What the field is called.
    pub(in crate::http) field: &'static str,
    /// The shortest, in milliseconds.
    pub(in crate::http) least: u64,
    /// The longest.
    pub(in crate::http) most: u64,
    /// Without a word.
    pub(in crate::http) default: u64,
}

/// What is settled.
#[derive(Debug, Default)]
pub(in crate::http) struct Settled<'a> {
    pub(in crate::http) reservation: Cow<'a, str>,
    /// What was really used.
    pub(in crate::http) hits: u64,
}

/// Reads a check, and for how many milliseconds.
pub(in crate::http) fn read_timed<'a>(
    body: &'a [u8],
    most: &Most,
    timed: Timed,
) -> Result<(Check<'a>, u64), NotAsked> {
    let mut fields = TimedFields { timed, millis: None, check: CheckFields::default(), done: None };
    read_object(body, most, &mut fields)?;
    Ok((fields.done.unwrap_or_default(), fields.millis.unwrap_or(timed.default)))
}

/// Reads which reservation, and what was used.
pub(in crate::http) fn read_commit<'a>(
    body: &'a [u8],
    most: &Most,
) -> Result<Settled<'a>, NotAsked> {
    let mut fields = SettledFields { with_hits: true, ..SettledFields::default() };
    read_object(body, most, &mut fields)?;
    Ok(fields.settled)
}

/// Reads which reservation.
pub(in crate::http) fn read_cancel<'a>(
    body: &'a [u8],
    most: &Most,
) -> Result<Settled<'a>, NotAsked> {
    let mut fields = SettledFields::default();
    read_object(body, most, &mut fields)?;
    Ok(fields.settled)
}

// === a check, and a time ===

struct TimedFields<'a> {
    timed: Timed,
    millis: Option<u64>,
    check: CheckFields<'a>,
    done: Option<Check<'a>>,
}

impl<'de> Fields<'de> for TimedFields<'de> {
    const SHAPE: &'static str =
        r#"an object such as {"domain":"shop","descriptors":[{"user":"42"}]}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        let field = self.timed.field;
        if name != field {
            return self.check.read(&name, map, reading, &["domain", "descriptors", "hits", field]);
        }
        once(self.millis.is_some())?;
        self.millis = Some(map.next_value_seed(self.timed)?);
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        self.done = Some(self.check.check()?);
        Ok(())
    }
}

/// Its value.
impl<'de> DeserializeSeed<'de> for Timed {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_any(self)
    }
}

impl Timed {
    fn not<E: Error>(self, got: impl fmt::Display) -> E {
        let Self { least, most, .. } = self;
        E::custom(format_args!("must be from {least} to {most} milliseconds, got {got}"))
    }
}

impl Visitor<'_> for Timed {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number of milliseconds from {} to {}", self.least, self.most)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        match (self.least..=self.most).contains(&number) {
            true => Ok(number),
            false => Err(self.not(format_args!("`{number}`"))),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Err(self.not(format_args!("`{number}`")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // `1e3` comes as such.
        if number.trunc() == number && (0.0..1e15).contains(&number) {
            return self.visit_u64(number as u64);
        }
        Err(self.not(format_args!("`{number}`")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let shown: String = text.chars().take(20).collect();
        Err(self.not(format_args!("`{shown}` in quotes; leave them out")))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<u64, E> {
        Err(self.not(format_args!("`{value}`")))
    }

    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Err(self.not("`null`"))
    }
}

// === a reservation ===

#[derive(Default)]
struct SettledFields<'a> {
    with_hits: bool,
    settled: Settled<'a>,
    reservation: bool,
    hits: bool,
}

impl<'de> Fields<'de> for SettledFields<'de> {
    const SHAPE: &'static str = r#"an object such as {"reservation":"…"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        _: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        match &*name {
            "reservation" => {
                once(std::mem::replace(&mut self.reservation, true))?;
                self.settled.reservation = map.next_value_seed(Text(TICKET_BYTES_MAX))?;
            }
            "hits" if self.with_hits => {
                once(std::mem::replace(&mut self.hits, true))?;
                self.settled.hits = map.next_value_seed(Hits)?;
            }
            _ if self.with_hits => return Err(unknown(&name, &["reservation", "hits"])),
            _ => return Err(unknown(&name, &["reservation"])),
        }
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if !self.reservation {
            return Err(E::custom(
                "`reservation` is missing; send what `/v1/reserve` answered as `reservation`",
            ));
        }
        if self.with_hits && !self.hits {
            return Err(E::custom("`hits` is missing; say what was really used, 0 if nothing was"));
        }
        Ok(())
    }
}
