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
mod parts;
mod place;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::{Error, MapAccess};
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use smallvec::SmallVec;

pub(super) use self::place::NotAsked;

use self::check::{CheckFields, Checks};
use self::parts::{Each, Fields, Object, once};
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
    let mut reading = Reading::new(most);
    // Once for all of it: texts need no second look then.
    let text = str::from_utf8(body).map_err(|error| NotAsked::not_utf8(body, &error))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let mut top = Top::default();
    let read = Object { fields: &mut top, reading: &mut reading }.read(&mut json);
    match read.and_then(|()| json.end()) {
        Ok(()) => Ok(Ask { many: top.many, checks: top.checks }),
        Err(error) => Err(reading.not_asked(&error)),
    }
}

// === impl Check ===

impl Check<'_> {
    /// As the engine is asked.
    pub(super) fn ask<R>(&self, ask: impl FnOnce(&Request<'_>) -> R) -> R {
        let entries = self.entries.iter().map(|(key, value)| Entry::new(key, value));
        let entries: SmallVec<[Entry<'_>; 4]> = entries.collect();
        let mut from = 0;
        let descriptors = self.descriptors.iter().map(|described| {
            let to = described.entries_end;
            let entries = entries.get(from..to).unwrap_or_default();
            from = to;
            Descriptor { entries, hits: described.hits, limit: described.limit }
        });
        let descriptors: SmallVec<[Descriptor<'_>; 4]> = descriptors.collect();
        ask(&Request { domain: &self.domain, descriptors: &descriptors, hits: self.hits })
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
