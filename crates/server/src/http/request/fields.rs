//! Building blocks of bodies: objects with known fields, bounded lists, strings and numbers, and
//! the position of errors.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::marker::PhantomData;
use std::str::Utf8Error;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use sluicegate::config::suggest::nearest;
use sluicegate_core::arithmetic::EXACT_MAX;
use smallvec::SmallVec;

use super::super::BodyLimits;

/// Fields of an object, in the order of the body.
pub(super) trait ObjectFields<'de> {
    /// Example for error messages.
    const SHAPE: &'static str;

    /// Reads the value of a field.
    fn field<A: MapAccess<'de>>(
        &mut self,
        name: Cow<'de, str>,
        value: FieldValue<'_, '_, A>,
    ) -> Result<(), A::Error>;

    /// Called after the last field.
    fn end<E: Error>(&mut self) -> Result<(), E> {
        Ok(())
    }
}

/// The value of a field, which is read once.
pub(super) struct FieldValue<'r, 'm, A> {
    map: &'r mut A,
    pub(super) context: &'r mut ParseContext<'m>,
}

/// An object.
pub(super) struct JsonObject<'r, 'm, F> {
    pub(super) fields: &'r mut F,
    pub(super) context: &'r mut ParseContext<'m>,
}

/// Items of a list.
pub(super) trait ListItems<'de> {
    /// Their name, in the plural.
    const NAME: &'static str;

    /// Reads an item.
    fn item<D: Deserializer<'de>>(
        &mut self,
        json: D,
        context: &mut ParseContext<'_>,
    ) -> Result<(), D::Error>;
}

/// A list with a limit.
struct BoundedList<'r, 'm, I> {
    max: usize,
    items: I,
    context: &'r mut ParseContext<'m>,
}

/// A string with a limit in bytes.
#[derive(Clone, Copy)]
pub(super) struct BoundedText(pub(super) usize);

/// A non-negative integer, saturated at the largest that is exact in a double.
struct HitCount;

/// Rejects a second occurrence of a field.
pub(super) fn reject_duplicate<E: Error>(is_duplicate: bool) -> Result<(), E> {
    if is_duplicate { Err(E::custom("occurs twice; remove one of them")) } else { Ok(()) }
}

/// Error of an unknown field.
pub(super) fn unknown_field<E: Error>(name: &str, known: &[&str]) -> E {
    let short: String = name.chars().take(40).collect();
    let meant = nearest(&short, known.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
    E::custom(format_args!("unknown field `{short}`; {meant}known are {}", known.join(", ")))
}

impl<'de, A: MapAccess<'de>> FieldValue<'_, '_, A> {
    pub(super) fn read<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }

    pub(super) fn text(self) -> Result<Cow<'de, str>, A::Error> {
        let seed = BoundedText(self.context.limits.text_bytes);
        self.read(seed)
    }

    pub(super) fn hits(self) -> Result<u64, A::Error> {
        self.read(HitCount)
    }

    pub(super) fn boolean(self) -> Result<bool, A::Error> {
        self.read(PhantomData)
    }

    pub(super) fn list(self, max: usize, items: impl ListItems<'de>) -> Result<(), A::Error> {
        self.map.next_value_seed(BoundedList { max, items, context: self.context })
    }

    pub(super) fn object(self, fields: &mut impl ObjectFields<'de>) -> Result<(), A::Error> {
        self.map.next_value_seed(JsonObject { fields, context: self.context })
    }
}

impl<'de, F: ObjectFields<'de>> DeserializeSeed<'de> for JsonObject<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, F: ObjectFields<'de>> Visitor<'de> for JsonObject<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::SHAPE)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(BoundedText(usize::MAX))? {
            let value = FieldValue { map: &mut map, context: &mut *self.context };
            let read = self.fields.field(name.clone(), value);
            if let Err(error) = read {
                self.context.failed_at(PathSegment::field(&name));
                return Err(error);
            }
        }
        self.fields.end()
    }
}

/// An item of a list.
struct ListItem<'r, 'm, I> {
    items: &'r mut I,
    context: &'r mut ParseContext<'m>,
    /// The limit, if it is reached.
    limit_reached: Option<usize>,
}

impl<'de, I: ListItems<'de>> DeserializeSeed<'de> for ListItem<'_, '_, I> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.limit_reached {
            Some(max) => Err(self.context.too_many(I::NAME, max)),
            None => self.items.item(json, self.context),
        }
    }
}

impl<'de, I: ListItems<'de>> DeserializeSeed<'de> for BoundedList<'_, '_, I> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, I: ListItems<'de>> Visitor<'de> for BoundedList<'_, '_, I> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", I::NAME)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        for index in 0usize.. {
            let limit_reached = (index == self.max).then_some(self.max);
            let one =
                ListItem { items: &mut self.items, context: &mut *self.context, limit_reached };
            match list.next_element_seed(one) {
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(error) => {
                    self.context.failed_at(PathSegment::Index(index));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for BoundedText {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl BoundedText {
    fn check<E: Error>(self, text: &str) -> Result<(), E> {
        match text.len() <= self.0 {
            true => Ok(()),
            false => Err(E::custom(format_args!(
                "has {} bytes; a string may have {}; use something shorter, such as a hash",
                text.len(),
                self.0
            ))),
        }
    }

    fn not_quoted<E: Error>(value: impl fmt::Display) -> E {
        E::custom(format_args!("must be a string, got `{value}`; write it in quotes: \"{value}\""))
    }
}

impl<'de> Visitor<'de> for BoundedText {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        self.check(text)?;
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.check(text)?;
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Err(Self::not_quoted(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Err(Self::not_quoted(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Err(Self::not_quoted(number))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Err(Self::not_quoted(value))
    }
}

impl<'de> DeserializeSeed<'de> for HitCount {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_any(self)
    }
}

impl Visitor<'_> for HitCount {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 on")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number.min(EXACT_MAX))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // What is beyond 64 bits comes as such, and so does `1e3`.
        if number >= 0.0 && number.trunc() == number {
            return Ok((number as u64).min(EXACT_MAX));
        }
        Err(E::custom(format_args!("must be a whole number from 0 on, got `{number}`")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        Err(E::custom(format_args!(
            "must be a whole number from 0 on, got `{number}`; to give hits back, send a positive \
             number to /v1/refund or /v1/keys/credit"
        )))
    }
}

// === errors and their position ===

/// Bytes of a body in which a multipart form has its first header: a boundary has up to 70.
const MULTIPART_HEAD_BYTES: usize = 200;

/// Why a body is malformed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct RequestError {
    /// What is wrong and what to do.
    pub(in crate::http) message: String,
    /// The field, such as `descriptors[0].hits`; empty for the whole body.
    pub(in crate::http) field: String,
    /// From 1 on.
    pub(in crate::http) line: usize,
    /// From 1 on.
    pub(in crate::http) column: usize,
}

/// Context of parsing. The path of an error is collected from the inside out while it propagates,
/// so that valid bodies pay nothing for it.
pub(super) struct ParseContext<'m> {
    pub(super) limits: &'m BodyLimits,
    /// Descriptors of all checks so far.
    descriptors: usize,
    error_path: SmallVec<[PathSegment; 8]>,
}

/// A segment of the path to a value.
#[derive(Debug)]
enum PathSegment {
    Field(String),
    Index(usize),
}

impl<'m> ParseContext<'m> {
    pub(super) const fn new(limits: &'m BodyLimits) -> Self {
        Self { limits, descriptors: 0, error_path: SmallVec::new_const() }
    }

    fn failed_at(&mut self, step: PathSegment) {
        self.error_path.push(step);
    }

    /// Too many items.
    pub(super) fn too_many<E: Error>(&self, name: &str, max: usize) -> E {
        E::custom(format_args!("more than {max} {name}; send them in several requests"))
    }

    /// Counts the descriptors of a check in a list, since each status is longer than its
    /// descriptor.
    pub(super) fn count_descriptors<E: Error>(
        &mut self,
        count: usize,
        lists_limits: bool,
    ) -> Result<(), E> {
        let (weight, what) = match lists_limits {
            true => (16, "descriptors in all checks, one with `limits` counted as 16"),
            false => (1, "descriptors in all checks"),
        };
        self.descriptors = self.descriptors.saturating_add(count.saturating_mul(weight));
        let max = self.limits.batch_descriptors;
        if self.descriptors > max {
            return Err(self.too_many(what, max));
        }
        Ok(())
    }

    /// Limits the length of a key.
    pub(super) fn check_key<E: Error>(&self, name: &str) -> Result<(), E> {
        let (bytes, max) = (name.len(), self.limits.text_bytes);
        match bytes <= max {
            true => Ok(()),
            false => Err(E::custom(format_args!("has {bytes} bytes; a key may have {max}"))),
        }
    }

    /// Adds the position to an error.
    pub(super) fn error(&self, error: &serde_json::Error) -> RequestError {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let position = format!(" at line {line} column {column}");
        let message = text.strip_suffix(&position).unwrap_or(&text).to_owned();
        let mut field = String::new();
        for step in self.error_path.iter().rev() {
            // Writing to a string cannot fail.
            let _ = match step {
                PathSegment::Index(index) => write!(field, "[{index}]"),
                PathSegment::Field(name) if field.is_empty() => write!(field, "{name}"),
                PathSegment::Field(name) => write!(field, ".{name}"),
            };
        }
        RequestError { message, field, line, column }
    }
}

impl PathSegment {
    fn field(name: &str) -> Self {
        Self::Field(name.chars().take(40).collect())
    }
}

impl RequestError {
    /// A better message for a body that is empty, a form, as `curl -d user=42` or `curl -F user=42`
    /// sends it, or has single quotes where it cannot be read. `shape` ends with an example.
    pub(super) fn not_json(body: &str, read: &Self, shape: &str) -> Option<Self> {
        let text = body.trim_start();
        let is_form = || {
            let key = text.split(['=', '&']).next().unwrap_or_default();
            let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.%+[]".contains(&byte);
            let starts =
                key.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_');
            text.contains('=') && starts && key.bytes().all(is_key)
        };
        let is_multipart = || {
            let head = text.get(..MULTIPART_HEAD_BYTES).unwrap_or(text);
            text.starts_with("--") && head.to_ascii_lowercase().contains("content-disposition:")
        };
        let is_single_quoted = || {
            let line = body.lines().nth(read.line.saturating_sub(1)).unwrap_or_default();
            line.as_bytes().get(read.column.saturating_sub(1)) == Some(&b'\'')
        };
        let (what, remedy, (line, column)) = match text {
            "" => ("the body is empty", "send JSON", (1, 1)),
            _ if is_form() => ("the body is form-encoded", "send JSON", (1, 1)),
            _ if is_multipart() => ("the body is a multipart form", "send JSON", (1, 1)),
            _ if is_single_quoted() => (
                "there is a single quote",
                "send JSON, with double quotes around names and strings",
                (read.line, read.column),
            ),
            _ => return None,
        };
        let example = shape.find('{').and_then(|at| shape.get(at..)).unwrap_or(shape);
        let message = format!("{what}; {remedy}, such as `{example}`");
        Some(Self { message, field: String::new(), line, column })
    }

    pub(super) fn not_utf8(body: &[u8], error: &Utf8Error) -> Self {
        let good = body.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + good.iter().rev().take_while(|byte| **byte != b'\n').count();
        let message = "not UTF-8; use `\\u` escapes for other characters".to_owned();
        Self { message, field: String::new(), line, column }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, field, line, column } = self;
        match field.is_empty() {
            true => write!(f, "line {line}, column {column}: {message}"),
            false => write!(f, "line {line}, column {column}, `{field}`: {message}"),
        }
    }
}
