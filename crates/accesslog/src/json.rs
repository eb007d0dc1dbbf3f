//! A JSON object in each line, read by paths.
//!
//! `serde_json` reads the line once; members that are not mapped are skipped without being
//! decoded. At each level the mapped columns whose path leads there are a bit set. A dot of a path
//! may stand for a level or be part of a name: `a.b` finds `{"a": {"b": 1}}` and `{"a.b": 1}`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::mapping::Mapping;
use crate::parser::LineError;
use crate::record::Record;
use crate::scratch::{Arena, ArenaFull};
use crate::target::{RecordBuilder, Target, Value};
use crate::time::DateCache;

/// Reads a line.
pub(crate) fn parse<'a>(
    mapping: &'a Mapping,
    line: &'a [u8],
    arena: &mut Arena<'a>,
    dates: &mut DateCache,
) -> Result<Record<'a>, LineError> {
    let mut builder = RecordBuilder::default();
    let mut reading = JsonReading { mapping, builder: &mut builder, arena, dates, failure: None };
    let active = all(mapping.columns().len());
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let read = Members { reading: &mut reading, active, offset: 0, has_headers: false }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    let failure = reading.failure;
    if let Err(error) = read {
        let reason = failure.unwrap_or(match error.classify() {
            serde_json::error::Category::Eof => "the JSON object is incomplete",
            serde_json::error::Category::Data => "not a JSON object",
            _ => "not valid JSON",
        });
        return Err(LineError::at(error.column().saturating_sub(1), reason));
    }
    builder.finish(arena, dates).map_err(|reason| LineError::at(0, reason))
}

/// A set of this many columns.
const fn all(count: usize) -> u64 {
    if count >= u64::BITS as usize { u64::MAX } else { (1 << count) - 1 }
}

/// What is read, and where it goes.
#[derive(Debug)]
struct JsonReading<'r, 'a> {
    mapping: &'a Mapping,
    builder: &'r mut RecordBuilder<'a>,
    arena: &'r mut Arena<'a>,
    dates: &'r mut DateCache,
    /// Why a value is not one of its field.
    failure: Option<&'static str>,
}

/// The columns that a name leads to.
#[derive(Debug, Clone, Copy, Default)]
struct Matches {
    /// Those whose path ends with the name.
    ends: u64,
    /// Those whose path goes on.
    passes: u64,
    name_bytes: usize,
}

/// The members of an object.
#[derive(Debug)]
struct Members<'s, 'r, 'a> {
    reading: &'s mut JsonReading<'r, 'a>,
    /// Columns whose path leads here.
    active: u64,
    /// Where the rest of their paths begins.
    offset: usize,
    /// Whether each member is a header.
    has_headers: bool,
}

/// The name of a member.
#[derive(Debug)]
struct MemberName<'s, 'a> {
    mapping: &'a Mapping,
    active: u64,
    offset: usize,
    /// Is given the name, if each member is a header.
    header: Option<&'s mut Cow<'a, str>>,
}

/// The value of a member, or an element of a list that is its value.
#[derive(Debug)]
struct MemberValue<'s, 'r, 'a> {
    reading: &'s mut JsonReading<'r, 'a>,
    matches: Matches,
    offset: usize,
    /// The header that the value is of.
    header: Option<&'a str>,
}

impl<'a> JsonReading<'_, 'a> {
    /// Puts a value into the fields of columns.
    fn set<E: Error>(&mut self, columns: u64, value: Value<'a>) -> Result<(), E> {
        let mut rest = columns;
        while rest != 0 {
            let target = &self.mapping.columns()[rest.trailing_zeros() as usize].target;
            rest &= rest - 1;
            self.builder.set(target, value, self.arena, self.dates).map_err(|reason| {
                self.failure = Some(reason);
                E::custom(reason)
            })?;
        }
        Ok(())
    }

    fn store<E: Error>(&mut self, text: &[u8]) -> Result<&'a [u8], E> {
        self.arena.store_slice(text).map_err(|ArenaFull| E::custom("the line is too long"))
    }

    fn has_target(&self, columns: u64, target: &Target) -> bool {
        let mapped = self.mapping.columns().iter().enumerate();
        columns != 0
            && mapped
                .filter(|(index, _)| columns >> index & 1 == 1)
                .any(|(_, c)| c.target == *target)
    }

    /// The name of a header, in lower case.
    fn header_name<E: Error>(&mut self, name: &str) -> Result<&'a str, E> {
        let lower = self.arena.store(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        let lower = lower.map_err(|ArenaFull| E::custom("the line is too long"))?;
        str::from_utf8(lower).map_err(E::custom)
    }
}

impl<'a> DeserializeSeed<'a> for Members<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Members<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<(), M::Error> {
        let Self { reading, active, offset, has_headers } = self;
        loop {
            let mut name = Cow::Borrowed("");
            let header = has_headers.then_some(&mut name);
            let member = MemberName { mapping: reading.mapping, active, offset, header };
            let Some(matches) = members.next_key_seed(member)? else { return Ok(()) };
            if matches.ends | matches.passes == 0 && !has_headers {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let header = if has_headers { Some(reading.header_name(&name)?) } else { None };
            let offset = offset + matches.name_bytes + 1;
            members.next_value_seed(MemberValue { reading, matches, offset, header })?;
        }
    }
}

impl<'a> DeserializeSeed<'a> for MemberName<'_, 'a> {
    type Value = Matches;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Matches, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl MemberName<'_, '_> {
    fn matches(&self, name: &str) -> Matches {
        let mut matches = Matches { name_bytes: name.len(), ..Matches::default() };
        let (columns, mut rest) = (self.mapping.columns(), self.active);
        while rest != 0 {
            let index = rest.trailing_zeros();
            rest &= rest - 1;
            let path = columns[index as usize].name.as_bytes().get(self.offset..);
            let path = path.unwrap_or_default();
            // Most names differ by length, which spares the comparison.
            match path.get(name.len()) {
                None if path == name.as_bytes() => matches.ends |= 1 << index,
                Some(b'.') if path.starts_with(name.as_bytes()) => matches.passes |= 1 << index,
                _ => {}
            }
        }
        matches
    }
}

impl<'a> Visitor<'a> for MemberName<'_, 'a> {
    type Value = Matches;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(mut self, name: &'a str) -> Result<Matches, E> {
        if let Some(header) = self.header.as_deref_mut() {
            *header = Cow::Borrowed(name);
        }
        Ok(self.matches(name))
    }

    fn visit_str<E: Error>(mut self, name: &str) -> Result<Matches, E> {
        if let Some(header) = self.header.as_deref_mut() {
            *header = Cow::Owned(name.to_owned());
        }
        Ok(self.matches(name))
    }
}

impl<'a> DeserializeSeed<'a> for MemberValue<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> MemberValue<'_, '_, 'a> {
    fn set<E: Error>(self, value: Value<'a>) -> Result<(), E> {
        if let (Some(name), Value::Text(text)) = (self.header, value) {
            self.reading.builder.push_header(name, text);
        }
        self.reading.set(self.matches.ends, value)
    }
}

impl<'a> Visitor<'a> for MemberValue<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.set(Value::Text(text.as_bytes()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let text = self.reading.store(text.as_bytes())?;
        self.set(Value::Text(text))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.set(Value::Whole(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.set(Value::Float(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.set(Value::Float(number))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<(), E> {
        self.set(Value::Text(if flag { b"true" } else { b"false" }))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    /// The first element counts, as of a header with several values.
    fn visit_seq<S: SeqAccess<'a>>(self, mut elements: S) -> Result<(), S::Error> {
        let Self { reading, matches, offset, header } = self;
        let matches = Matches { passes: 0, ..matches };
        if elements.next_element_seed(MemberValue { reading, matches, offset, header })?.is_some() {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<M: MapAccess<'a>>(self, members: M) -> Result<(), M::Error> {
        let Self { reading, matches, offset, .. } = self;
        if reading.has_target(matches.ends, &Target::Tls) {
            reading.builder.set_tls();
        }
        let has_headers = reading.has_target(matches.ends, &Target::AnyHeader);
        Members { reading, active: matches.passes, offset, has_headers }.visit_map(members)
    }
}
