//! What is asked, as JSON: one check, or `{"checks":[…]}`.
//!
//! ```text
//!   check       {"domain": text, "descriptors": [descriptor, …], "hits": number?}
//!   descriptor  {"user": "42", "path": "/login", "hits": number?, "limit": limit?}
//!               {"entries": [{"key": "user", "value": "42"}, …], "hits": number?, "limit": limit?}
//!   limit       {"requests_per_unit": number, "unit": "minute"}
//! ```
//!
//! In the short form of a descriptor every field with a text is an entry, in the order in which they are written. `entries`, `hits` and `limit` are
//! never entries there: the long form is for keys of these names, and for a key that comes twice. Texts are those of the body, unless they hold an
//! escape; nothing is built in between.

mod check;
mod descriptor;
mod fields;
mod place;
mod reservation;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::{Error, MapAccess};
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use smallvec::SmallVec;

pub(super) use self::place::NotAsked;
pub(super) use self::reservation::{Timed, read_cancel, read_commit, read_timed};

use self::check::{CheckFields, Checks};
use self::fields::{Each, Fields, Object, once};
use self::place::Reading;
use super::options::Most;

/// What is asked; checks that are judged one by one.
#[derive(Debug, Default)]
pub(super) struct Ask<'a> {
    /// Whether they came in a list, and so are answered in one.
    pub(super) many: bool,
    pub(super) checks: SmallVec<[Check<'a>; 1]>,
}

/// A request to the engine, as it came.
#[derive(Debug, Default)]
pub(super) struct Check<'a> {
    domain: Cow<'a, str>,
    hits: u64,
    descriptors: SmallVec<[Described; 4]>,
    /// Of all descriptors.
    entries: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>,
}

/// A descriptor; its entries lie with the others, up to here.
#[derive(Debug, Default)]
struct Described {
    entries_end: usize,
    hits: Option<u64>,
    limit: Option<Override>,
}

/// Reads what is asked.
pub(super) fn read<'a>(body: &'a [u8], most: &Most) -> Result<Ask<'a>, NotAsked> {
    let mut top = Top::default();
    read_object(body, most, &mut top)?;
    Ok(Ask { many: top.many, checks: top.checks })
}

/// Reads the fields of the object that a body is.
fn read_object<'a>(
    body: &'a [u8],
    most: &Most,
    fields: &mut impl Fields<'a>,
) -> Result<(), NotAsked> {
    let mut reading = Reading::new(most);
    // Once for all of it: texts need no second look then.
    let text = str::from_utf8(body).map_err(|error| NotAsked::not_utf8(body, &error))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Object { fields, reading: &mut reading }.read(&mut json);
    read.and_then(|()| json.end()).map_err(|error| reading.not_asked(&error))
}

// === impl Check ===

impl<'a> Check<'a> {
    /// As the engine is asked.
    pub(super) fn ask<R>(&self, ask: impl FnOnce(&Request<'_>) -> R) -> R {
        let parts = self.parts();
        ask(&parts.request(&parts.descriptors()))
    }

    /// The same in pieces, for whoever needs them for longer.
    pub(super) fn parts(&self) -> Parts<'_, 'a> {
        let entries = self.entries.iter().map(|(key, value)| Entry::new(key, value));
        Parts { check: self, entries: entries.collect() }
    }
}

/// What a request to the engine is made of.
pub(super) struct Parts<'c, 'a> {
    check: &'c Check<'a>,
    entries: SmallVec<[Entry<'c>; 4]>,
}

impl Parts<'_, '_> {
    #[inline]
    pub(super) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 4]> {
        let mut from = 0;
        let descriptors = self.check.descriptors.iter().map(|described| {
            let to = described.entries_end;
            let entries = self.entries.get(from..to).unwrap_or_default();
            from = to;
            Descriptor { entries, hits: described.hits, limit: described.limit }
        });
        descriptors.collect()
    }

    #[inline]
    pub(super) fn request<'d>(&'d self, descriptors: &'d [Descriptor<'d>]) -> Request<'d> {
        Request { domain: &self.check.domain, descriptors, hits: self.check.hits }
    }
}

// === the whole body ===

#[derive(Default)]
struct Top<'a> {
    many: bool,
    checks: SmallVec<[Check<'a>; 1]>,
    one: CheckFields<'a>,
}

impl<'de> Fields<'de> for Top<'de> {
    const SHAPE: &'static str =
        r#"an object such as {"domain":"shop","descriptors":[{"user":"42"}]}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        map: &mut A,
        reading: &mut Reading<'_>,
    ) -> Result<(), A::Error> {
        if name != "checks" {
            const KNOWN: &[&str] = &["domain", "descriptors", "hits", "checks"];
            return self.one.read(&name, map, reading, KNOWN);
        }
        once(self.many)?;
        self.many = true;
        let (most, items) = (reading.most.checks, Checks(&mut self.checks));
        map.next_value_seed(Each { most, items, reading })
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if !self.many {
            self.checks.push(self.one.check()?);
        } else if self.one.is_any() {
            return Err(E::custom(
                "`checks` goes alone; put `domain`, `descriptors` and `hits` into each of them",
            ));
        } else if self.checks.is_empty() {
            return Err(E::custom("`checks` is empty; put at least one check into it"));
        }
        Ok(())
    }
}
