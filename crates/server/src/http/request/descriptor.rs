//! A descriptor: its entries in the short or the long form, its hits and its limit.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess};
use sluicegate::rules::request::Override;
use sluicegate::rules::unit::Unit;

use super::fields::{
    FieldValue, JsonObject, ListItems, ObjectFields, ParseContext, reject_duplicate, unknown_field,
};
use super::{ParsedCheck, ParsedDescriptor};

/// Descriptors of a check.
pub(super) struct DescriptorItems<'r, 'a>(pub(super) &'r mut ParsedCheck<'a>);

struct DescriptorFields<'r, 'a> {
    check: &'r mut ParsedCheck<'a>,
    descriptor: ParsedDescriptor,
    /// Index of its first entry.
    start: usize,
    has_list: bool,
    has_fields: bool,
}

struct EntryItems<'r, 'a> {
    check: &'r mut ParsedCheck<'a>,
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

impl<'de> ListItems<'de> for DescriptorItems<'_, 'de> {
    const NAME: &'static str = "descriptors";

    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        context: &mut ParseContext<'_>,
    ) -> Result<(), D::Error> {
        let start = self.0.entries.len();
        let descriptor = ParsedDescriptor::default();
        let check = &mut *self.0;
        let mut fields =
            DescriptorFields { check, descriptor, start, has_list: false, has_fields: false };
        JsonObject { fields: &mut fields, context }.deserialize(json)?;
        let mut descriptor = fields.descriptor;
        descriptor.entries_end = self.0.entries.len();
        self.0.descriptors.push(descriptor);
        Ok(())
    }
}

impl<'de> ObjectFields<'de> for DescriptorFields<'_, 'de> {
    const SHAPE: &'static str = r#"a descriptor such as {"user":"42"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        match &*name {
            "entries" => {
                reject_duplicate(std::mem::replace(&mut self.has_list, true))?;
                let max = value.context.limits.entries;
                value.list(max, EntryItems { check: self.check })
            }
            "hits" => {
                reject_duplicate(self.descriptor.hits.is_some())?;
                self.descriptor.hits = Some(value.hits()?);
                Ok(())
            }
            "limit" => {
                reject_duplicate(self.descriptor.limit.is_some())?;
                let mut fields = LimitFields::default();
                value.object(&mut fields)?;
                self.descriptor.limit = Some(fields.limit()?);
                Ok(())
            }
            _ => {
                let (entries, context) = (&self.check.entries[self.start..], &*value.context);
                if self.has_list {
                    return Err(unknown_field(&name, &["entries", "hits", "limit"]));
                }
                if entries.len() == context.limits.entries {
                    return Err(context.too_many("entries", context.limits.entries));
                }
                reject_duplicate(entries.iter().any(|(key, _)| *key == name))?;
                context.check_key(&name)?;
                self.has_fields = true;
                self.check.entries.push((name, value.text()?));
                Ok(())
            }
        }
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if self.has_list && self.has_fields {
            return Err(E::custom("has `entries` and entries as fields; use one of the two forms"));
        }
        if self.check.entries.len() == self.start {
            return Err(E::custom("has no entries; add one, such as {\"user\":\"42\"}"));
        }
        Ok(())
    }
}

// === long form of entries ===

impl<'de> ListItems<'de> for EntryItems<'_, 'de> {
    const NAME: &'static str = "entries";

    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        context: &mut ParseContext<'_>,
    ) -> Result<(), D::Error> {
        let mut fields = EntryFields::default();
        JsonObject { fields: &mut fields, context }.deserialize(json)?;
        if let (Some(key), Some(value)) = (fields.key, fields.value) {
            self.check.entries.push((key, value));
        }
        Ok(())
    }
}

impl<'de> ObjectFields<'de> for EntryFields<'de> {
    const SHAPE: &'static str = r#"an entry such as {"key":"user","value":"42"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        let field = match &*name {
            "key" => &mut self.key,
            "value" => &mut self.value,
            _ => return Err(unknown_field(&name, &["key", "value"])),
        };
        reject_duplicate(field.is_some())?;
        *field = Some(value.text()?);
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
            (None, _) => {
                Err(E::custom("`requests_per_unit` is missing; send the number of requests"))
            }
            (_, None) => {
                Err(E::custom("`unit` is missing; send a unit of time, such as \"minute\""))
            }
        }
    }
}

impl<'de> ObjectFields<'de> for LimitFields {
    const SHAPE: &'static str = r#"a limit such as {"requests_per_unit":5,"unit":"minute"}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        match &*name {
            "requests_per_unit" => {
                reject_duplicate(self.requests_per_unit.is_some())?;
                let given = value.hits()?;
                let max = u32::MAX;
                let number = u32::try_from(given).map_err(|_| {
                    A::Error::custom(format_args!("must be at most {max}, got `{given}`"))
                })?;
                self.requests_per_unit = Some(number);
            }
            "unit" => {
                reject_duplicate(self.unit.is_some())?;
                let name = value.text()?;
                let unit = Unit::of(&name).ok_or_else(|| {
                    let known = Unit::ALL.map(Unit::name).join(", ");
                    let name: String = name.chars().take(40).collect();
                    A::Error::custom(format_args!("unknown unit `{name}`; write one of {known}"))
                })?;
                self.unit = Some(unit);
            }
            _ => return Err(unknown_field(&name, &["requests_per_unit", "unit"])),
        }
        Ok(())
    }
}
