//! A descriptor: its entries in short or in long, and a limit that may come with it.

use std::borrow::Cow;

use serde::de::{Deserializer, Error, MapAccess};
use sluicegate::rules::request::Override;
use sluicegate::rules::unit::Unit;

use super::fields::{Each, Fields, Hits, Items, Object, Text, once, unknown};
use super::place::Reading;
use super::{Check, Described};

/// The descriptors of a check.
pub(super) struct Descriptors<'r, 'a>(pub(super) &'r mut Check<'a>);

struct DescriptorFields<'r, 'a> {
    check: &'r mut Check<'a>,
    described: Described,
    /// Where its entries begin.
    from: usize,
    in_long: bool,
    in_short: bool,
}

struct Entries<'r, 'a> {
    check: &'r mut Check<'a>,
}

#[derive(Default)]
struct EntryFields<'a> {
    key: Option<Cow<'a, str>>,
    value: Option<Cow<'a, str>>,
}

#[derive(Default)]
struct LimitFields {
    requests_per_unit: Option<u32>,
    unit: Option<Unit>,
}

impl<'de> Items<'de> for Descriptors<'_, 'de> {
    const WHAT: &'static str = "descriptors";

    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        reading: &mut Reading<'_>,
    ) -> Result<(), D::Error> {
        let from = self.0.entries.len();
        let described = Described::default();
        let check = &mut *self.0;
        let mut fields =
            DescriptorFields { check, described, from, in_long: false, in_short: false };
        Object { fields: &mut fields, reading }.read(json)?;
        let mut described = fields.described;
        described.entries_end = self.0.entries.len();
        self.0.descriptors.push(described);
        Ok(())
    }
}

impl<'de> Fields<'de> for DescriptorFields<'_, 'de> {
    const SHAPE: &'static str = r#"a descriptor such as {"user":"42"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        match &*name {
            "entries" => {
                once(std::mem::replace(&mut self.in_long, true))?;
                let (most, items) = (reading.most.entries, Entries { check: self.check });
                map.next_value_seed(Each { most, items, reading })
            }
            "hits" => {
                once(self.described.hits.is_some())?;
                self.described.hits = Some(map.next_value_seed(Hits)?);
                Ok(())
            }
            "limit" => {
                once(self.described.limit.is_some())?;
                let mut fields = LimitFields::default();
                map.next_value_seed(Object { fields: &mut fields, reading })?;
                self.described.limit = Some(fields.limit()?);
                Ok(())
            }
            _ => {
                let so_far = &self.check.entries[self.from..];
                if self.in_long {
                    return Err(unknown(&name, &["entries", "hits", "limit"]));
                }
                if so_far.len() == reading.most.entries {
                    return Err(reading.too_many("entries", reading.most.entries));
                }
                once(so_far.iter().any(|(key, _)| *key == name))?;
                reading.bound(&name)?;
                self.in_short = true;
                let value = map.next_value_seed(Text(reading.most.text_bytes))?;
                self.check.entries.push((name, value));
                Ok(())
            }
        }
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.in_long && self.in_short {
            return Err(E::custom(
                "has `entries` and entries beside them; write all of them in one of the two forms",
            ));
        }
        if self.check.entries.len() == self.from {
            return Err(E::custom("has no entries; say who it is, such as {\"user\":\"42\"}"));
        }
        Ok(())
    }
}

// === entries in long ===

impl<'de> Items<'de> for Entries<'_, 'de> {
    const WHAT: &'static str = "entries";

    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        reading: &mut Reading<'_>,
    ) -> Result<(), D::Error> {
        let mut fields = EntryFields::default();
        Object { fields: &mut fields, reading }.read(json)?;
        if let (Some(key), Some(value)) = (fields.key, fields.value) {
            self.check.entries.push((key, value));
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for EntryFields<'de> {
    const SHAPE: &'static str = r#"an entry such as {"key":"user","value":"42"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        let field = match &*name {
            "key" => &mut self.key,
            "value" => &mut self.value,
            _ => return Err(unknown(&name, &["key", "value"])),
        };
        once(field.is_some())?;
        *field = Some(map.next_value_seed(Text(reading.most.text_bytes))?);
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        match (&self.key, &self.value) {
            (Some(_), Some(_)) => Ok(()),
            (None, _) => Err(E::custom("`key` is missing; an entry has a `key` and a `value`")),
            (_, None) => Err(E::custom("`value` is missing; an entry has a `key` and a `value`")),
        }
    }
}

// === a limit ===

impl LimitFields {
    fn limit<E: Error>(&self) -> Result<Override, E> {
        match (self.requests_per_unit, self.unit) {
            (Some(requests_per_unit), Some(unit)) => Ok(Override { requests_per_unit, unit }),
            (None, _) => Err(E::custom("`requests_per_unit` is missing; say how many may pass")),
            (_, None) => Err(E::custom("`unit` is missing; say in which time, such as \"minute\"")),
        }
    }
}

impl<'de> Fields<'de> for LimitFields {
    const SHAPE: &'static str = r#"a limit such as {"requests_per_unit":5,"unit":"minute"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        match &*name {
            "requests_per_unit" => {
                once(self.requests_per_unit.is_some())?;
                let given = map.next_value_seed(Hits)?;
                let most = u32::MAX;
                let number = u32::try_from(given).map_err(|_| {
                    A::Error::custom(format_args!("must be at most {most}, got `{given}`"))
                })?;
                self.requests_per_unit = Some(number);
            }
            "unit" => {
                once(self.unit.is_some())?;
                let name = map.next_value_seed(Text(reading.most.text_bytes))?;
                let unit = Unit::of(&name).ok_or_else(|| {
                    let known = Unit::ALL.map(Unit::name).join(", ");
                    let name: String = name.chars().take(40).collect();
                    A::Error::custom(format_args!("unknown unit `{name}`; write one of {known}"))
                })?;
                self.unit = Some(unit);
            }
            _ => return Err(unknown(&name, &["requests_per_unit", "unit"])),
        }
        Ok(())
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        Ok(())
    }
}
