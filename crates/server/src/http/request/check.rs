//! A check.

use std::borrow::Cow;

use serde::de::{Deserializer, Error, MapAccess};
use smallvec::SmallVec;

use super::Check;
use super::descriptor::Descriptors;
use super::fields::{Each, Fields, Hits, Items, Object, Text, once, unknown};
use super::place::Reading;

/// A check, as far as it was read.
#[derive(Default)]
pub(super) struct CheckFields<'a> {
    check: Check<'a>,
    domain: bool,
    hits: bool,
    descriptors: bool,
}

/// A list of them.
pub(super) struct Checks<'r, 'a>(pub(super) &'r mut SmallVec<[Check<'a>; 1]>);

// === impl CheckFields ===

impl<'a> CheckFields<'a> {
    /// Whether anything of it was read.
    pub(super) const fn is_any(&self) -> bool {
        self.domain || self.hits || self.descriptors
    }

    pub(super) fn read<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut A,
        reading: &mut Reading<'_>,
        known: &[&str],
    ) -> Result<(), A::Error> {
        match name {
            "domain" => {
                once(std::mem::replace(&mut self.domain, true))?;
                self.check.domain = map.next_value_seed(Text(reading.most.text_bytes))?;
            }
            "descriptors" => {
                once(std::mem::replace(&mut self.descriptors, true))?;
                let (most, items) = (reading.most.descriptors, Descriptors(&mut self.check));
                map.next_value_seed(Each { most, items, reading })?;
            }
            "hits" => {
                once(std::mem::replace(&mut self.hits, true))?;
                self.check.hits = map.next_value_seed(Hits)?;
            }
            _ => return Err(unknown(name, known)),
        }
        Ok(())
    }

    /// The check, if everything is there that must be.
    pub(super) fn check<E: Error>(&mut self) -> Result<Check<'a>, E> {
        if !self.domain {
            return Err(E::custom("`domain` is missing; say whose rules, such as \"example\""));
        }
        if self.check.domain.is_empty() {
            return Err(E::custom("`domain` is empty; say whose rules, such as \"example\""));
        }
        if self.check.descriptors.is_empty() {
            let what = if self.descriptors { "is empty" } else { "is missing" };
            return Err(E::custom(format_args!(
                "`descriptors` {what}; say who wants what, such as [{{\"user\":\"42\"}}]"
            )));
        }
        if !self.hits {
            self.check.hits = 1;
        }
        Ok(std::mem::take(&mut self.check))
    }
}

impl<'de> Fields<'de> for CheckFields<'de> {
    const SHAPE: &'static str =
        r#"a check such as {"domain":"shop","descriptors":[{"user":"42"}]}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        self.read(&name, map, reading, &["domain", "descriptors", "hits"])
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        Ok(())
    }
}

// === impl Checks ===

impl<'de> Items<'de> for Checks<'_, 'de> {
    const WHAT: &'static str = "checks";

    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        reading: &mut Reading<'_>,
    ) -> Result<(), D::Error> {
        let mut fields = CheckFields::default();
        Object { fields: &mut fields, reading }.read(json)?;
        let check = fields.check()?;
        reading.count_descriptors(check.descriptors.len())?;
        self.0.push(check);
        Ok(())
    }
}
