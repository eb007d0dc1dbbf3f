//! Parser of request bodies: one check, or `{"checks":[…]}`.
//!
//! ```text
//!   check       {"domain": text, "descriptors": [descriptor, …], "hits": number?,
//!                "limits": boolean?, "pool": text?}
//!   descriptor  {"user": "42", "path": "/login", "hits": number?, "limit": limit?}
//!               {"entries": [{"key": "user", "value": "42"}, …], "hits": number?, "limit": limit?}
//!   limit       {"requests_per_unit": number, "unit": "minute"}
//! ```
//!
//! In the short form of a descriptor every string field is an entry, in order. `entries`, `hits`
//! and `limit` are never entries there: the long form is for keys of these names, and for keys that
//! occur twice. Strings borrow from the body, unless they contain an escape.

mod descriptor;
mod fields;
mod settle;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess};
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use smallvec::SmallVec;

pub(super) use self::fields::RequestError;
pub(super) use self::settle::{DurationField, SettleBody, SettleOperation, read_settle};

use self::descriptor::DescriptorItems;
use self::fields::{
    FieldValue, JsonObject, ListItems, ObjectFields, ParseContext, reject_duplicate, unknown_field,
};
use super::BodyLimits;

/// Checks of a body, decided one by one.
#[derive(Debug, Default)]
pub(super) struct ParsedChecks<'a> {
    /// Whether they are a list, and get a list of results.
    pub(super) is_list: bool,
    pub(super) checks: SmallVec<[ParsedCheck<'a>; 1]>,
}

/// A check, as parsed.
#[derive(Debug, Default)]
pub(super) struct ParsedCheck<'a> {
    domain: Cow<'a, str>,
    hits: u64,
    /// Whether the body has them; else they are 1.
    pub(super) has_hits: bool,
    /// Whether statuses list the state of every limit.
    pub(super) lists_limits: bool,
    /// The pool to draw from.
    pub(super) pool: Option<Cow<'a, str>>,
    /// The pools that a check has charged, by descriptor, for its refund.
    pub(super) charged_pools: Vec<Option<Box<str>>>,
    descriptors: SmallVec<[ParsedDescriptor; 4]>,
    /// Entries of all descriptors.
    entries: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 4]>,
}

/// A descriptor; its entries are stored with those of the check.
#[derive(Debug, Default)]
struct ParsedDescriptor {
    entries_end: usize,
    hits: Option<u64>,
    limit: Option<Override>,
}

/// Reads one check or a list of checks.
pub(super) fn read_checks<'a>(
    body: &'a [u8],
    limits: &BodyLimits,
) -> Result<ParsedChecks<'a>, RequestError> {
    let mut fields = BodyFields::new(&[]);
    read_object(body, limits, &mut fields)?;
    Ok(ParsedChecks { is_list: fields.is_list, checks: fields.checks })
}

/// Reads a check and durations in milliseconds, `None` where one is absent.
pub(super) fn read_timed<'a, const N: usize>(
    body: &'a [u8],
    limits: &BodyLimits,
    durations: &'static [DurationField; N],
) -> Result<(ParsedCheck<'a>, [Option<u64>; N]), RequestError> {
    let mut fields = BodyFields::new(durations);
    read_object(body, limits, &mut fields)?;
    let check = fields.checks.pop().unwrap_or_default();
    let mut millis = [None; N];
    for (field, read) in millis.iter_mut().zip(fields.millis) {
        *field = read;
    }
    Ok((check, millis))
}

/// Reads a body that is an object.
fn read_object<'a, F: ObjectFields<'a>>(
    body: &'a [u8],
    limits: &BodyLimits,
    fields: &mut F,
) -> Result<(), RequestError> {
    let mut context = ParseContext::new(limits);
    // Once for the whole body, so that strings need no check of their own.
    let text = str::from_utf8(body).map_err(|error| RequestError::not_utf8(body, &error))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = JsonObject { fields, context: &mut context }.deserialize(&mut json);
    let read = read.and_then(|()| json.end());
    read.map_err(|error| {
        let read = context.error(&error);
        RequestError::not_json(text, &read, F::SHAPE).unwrap_or(read)
    })
}

impl<'a> ParsedCheck<'a> {
    /// Calls `f` with the request.
    pub(super) fn with_request<R>(&self, f: impl FnOnce(&Request<'_>) -> R) -> R {
        let parts = self.parts();
        f(&parts.request(&parts.descriptors()))
    }

    /// The parts of the request, for callers that keep it.
    pub(super) fn parts(&self) -> RequestParts<'_, 'a> {
        let entries = self.entries.iter().map(|(key, value)| Entry::new(key, value));
        RequestParts { check: self, entries: entries.collect() }
    }
}

/// Borrowed parts of a request.
pub(super) struct RequestParts<'c, 'a> {
    check: &'c ParsedCheck<'a>,
    entries: SmallVec<[Entry<'c>; 4]>,
}

impl RequestParts<'_, '_> {
    #[inline]
    pub(super) fn descriptors(&self) -> SmallVec<[Descriptor<'_>; 4]> {
        let mut from = 0;
        let check = self.check;
        let descriptors = check.descriptors.iter().enumerate().map(|(index, described)| {
            let to = described.entries_end;
            let entries = self.entries.get(from..to).unwrap_or_default();
            from = to;
            let charged = check.charged_pools.get(index).and_then(|pool| pool.as_deref());
            let pool = charged.or(check.pool.as_deref());
            Descriptor { entries, hits: described.hits, limit: described.limit, pool }
        });
        descriptors.collect()
    }

    #[inline]
    pub(super) fn request<'d>(&'d self, descriptors: &'d [Descriptor<'d>]) -> Request<'d> {
        Request { domain: &self.check.domain, descriptors, hits: self.check.hits }
    }
}

// === the whole body ===

/// Most durations of an endpoint.
const DURATIONS_MAX: usize = 2;

/// Fields of a check, and of a list of checks, or of durations if the endpoint has any.
struct BodyFields<'a> {
    one: CheckFields<'a>,
    is_list: bool,
    checks: SmallVec<[ParsedCheck<'a>; 1]>,
    durations: &'static [DurationField],
    millis: [Option<u64>; DURATIONS_MAX],
}

impl BodyFields<'_> {
    fn new(durations: &'static [DurationField]) -> Self {
        let (one, is_list, checks, millis) = Default::default();
        Self { one, is_list, checks, durations, millis }
    }
}

impl<'de> ObjectFields<'de> for BodyFields<'de> {
    const SHAPE: &'static str =
        r#"an object such as {"domain":"shop","descriptors":[{"user":"42"}]}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        let mut durations = self.durations.iter().zip(&mut self.millis);
        if let Some((duration, millis)) = durations.find(|(duration, _)| name == duration.name) {
            reject_duplicate(millis.is_some())?;
            *millis = Some(value.read(*duration)?);
            return Ok(());
        }
        if name == "checks" && self.durations.is_empty() {
            reject_duplicate(std::mem::replace(&mut self.is_list, true))?;
            let max = value.context.limits.checks;
            return value.list(max, CheckItems(&mut self.checks));
        }
        match self.durations {
            [] => {
                let known = ["domain", "descriptors", "hits", "limits", "pool", "checks"];
                self.one.read(&name, value, &known)
            }
            durations => {
                let names = durations.iter().map(|duration| duration.name);
                let known = ["domain", "descriptors", "hits", "limits", "pool"];
                let known: SmallVec<[&str; 7]> = known.into_iter().chain(names).collect();
                self.one.read(&name, value, &known)
            }
        }
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if !self.is_list {
            self.checks.push(self.one.check()?);
        } else if self.one.is_any() {
            return Err(E::custom(
                "`checks` stands alone; put `domain`, `descriptors`, `hits`, `limits` and `pool` into each check",
            ));
        } else if self.checks.is_empty() {
            return Err(E::custom("`checks` is empty; send at least one check"));
        }
        Ok(())
    }
}

// === one check ===

/// Fields of a check, so far.
#[derive(Default)]
struct CheckFields<'a> {
    check: ParsedCheck<'a>,
    domain: bool,
    hits: bool,
    limits: bool,
    pool: bool,
    descriptors: bool,
}

/// Items of a list of checks.
struct CheckItems<'r, 'a>(&'r mut SmallVec<[ParsedCheck<'a>; 1]>);

impl<'a> CheckFields<'a> {
    /// Whether any field was read.
    const fn is_any(&self) -> bool {
        self.domain || self.hits || self.limits || self.pool || self.descriptors
    }

    fn read<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        value: FieldValue<'_, '_, A>,
        known: &[&str],
    ) -> Result<(), A::Error> {
        match name {
            "domain" => {
                reject_duplicate(std::mem::replace(&mut self.domain, true))?;
                self.check.domain = value.text()?;
            }
            "descriptors" => {
                reject_duplicate(std::mem::replace(&mut self.descriptors, true))?;
                let max = value.context.limits.descriptors;
                value.list(max, DescriptorItems(&mut self.check))?;
            }
            "hits" => {
                reject_duplicate(std::mem::replace(&mut self.hits, true))?;
                self.check.hits = value.hits()?;
            }
            "limits" => {
                reject_duplicate(std::mem::replace(&mut self.limits, true))?;
                self.check.lists_limits = value.boolean()?;
            }
            "pool" => {
                reject_duplicate(std::mem::replace(&mut self.pool, true))?;
                self.check.pool = Some(value.text()?);
            }
            _ => return Err(unknown_field(name, known)),
        }
        Ok(())
    }

    /// The check, if all required fields are present.
    fn check<E: Error>(&mut self) -> Result<ParsedCheck<'a>, E> {
        if !self.domain {
            return Err(E::custom(
                "`domain` is missing; name the domain of the rules, such as \"example\"",
            ));
        }
        if self.check.domain.is_empty() {
            return Err(E::custom(
                "`domain` is empty; name the domain of the rules, such as \"example\"",
            ));
        }
        if self.check.descriptors.is_empty() {
            let problem = if self.descriptors { "is empty" } else { "is missing" };
            return Err(E::custom(format_args!(
                "`descriptors` {problem}; send at least one, such as [{{\"user\":\"42\"}}]"
            )));
        }
        self.check.has_hits = self.hits;
        if !self.hits {
            self.check.hits = 1;
        }
        Ok(std::mem::take(&mut self.check))
    }
}

impl<'de> ObjectFields<'de> for CheckFields<'de> {
    const SHAPE: &'static str =
        r#"a check such as {"domain":"shop","descriptors":[{"user":"42"}]}"#;

    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error> {
        self.read(&name, value, &["domain", "descriptors", "hits", "limits", "pool"])
    }
}

impl<'de> ListItems<'de> for CheckItems<'_, 'de> {
    const NAME: &'static str = "checks";

    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        context: &mut ParseContext<'_>,
    ) -> Result<(), D::Error> {
        let mut fields = CheckFields::default();
        JsonObject { fields: &mut fields, context }.deserialize(json)?;
        let check = fields.check()?;
        context.count_descriptors(check.descriptors.len(), check.lists_limits)?;
        self.0.push(check);
        Ok(())
    }
}
