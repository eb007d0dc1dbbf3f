//! What is asked, read from JSON, as strictly as protobuf's own reader: no field twice, under whichever names, and none that there is not.
//!
//! The text is taken apart level by level, and what is inside stays text until its turn: so numbers keep all their digits, and nothing is nested in the
//! program as deeply as somebody may nest brackets.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::UNITS;
use super::whole::whole;
use crate::rls::wire::{put_bytes, put_number};

/// Why a text is no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAsked(String);

/// A message: what it is called here, and its fields with all their names.
struct Message {
    what: &'static str,
    fields: &'static [(u32, &'static str)],
}

const REQUEST: Message = Message {
    what: "a request",
    fields: &[(1, "domain"), (2, "descriptors"), (3, "hitsAddend"), (3, "hits_addend")],
};

const DESCRIPTOR: Message = Message {
    what: "a descriptor",
    fields: &[
        (1, "entries"),
        (2, "limit"),
        (3, "hitsAddend"),
        (3, "hits_addend"),
        (4, "isNegativeHits"),
        (4, "is_negative_hits"),
    ],
};

const ENTRY: Message = Message { what: "an entry", fields: &[(1, "key"), (2, "value")] };

const LIMIT: Message = Message {
    what: "a limit",
    fields: &[(1, "requestsPerUnit"), (1, "requests_per_unit"), (2, "unit")],
};

/// The most fields that any of them has.
const FIELDS_MAX: usize = 4;

/// The bytes of a `RateLimitRequest` that is written as JSON.
///
/// ```
/// use sluicegate_server::rls::json::request;
///
/// let text = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"42"}]}]}"#;
/// assert_eq!(request(text.as_bytes())?, b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242");
/// let wrong = request(br#"{"domian":"shop"}"#).unwrap_err();
/// assert_eq!(wrong.to_string(), "a request has no field `domian`, only domain, descriptors, hitsAddend");
/// # Ok::<(), sluicegate_server::rls::json::NotAsked>(())
/// ```
///
/// # Errors
/// When it is no JSON, or something else than a request.
pub fn request(text: &[u8]) -> Result<Vec<u8>, NotAsked> {
    let text = str::from_utf8(text).map_err(|_| NotAsked("a request must be UTF-8".to_owned()))?;
    let mut out = Vec::new();
    for field in REQUEST.read(text)? {
        match field.number {
            1 => field.put_text(&mut out)?,
            2 => field.put_list(descriptor, &mut out)?,
            number => put_number(number, field.whole(u32::MAX.into())?, &mut out),
        }
    }
    Ok(out)
}

fn descriptor(text: &str) -> Result<Vec<u8>, NotAsked> {
    let mut out = Vec::new();
    for field in DESCRIPTOR.read(text)? {
        match field.number {
            1 => field.put_list(entry, &mut out)?,
            2 => put_bytes(2, &limit(field.text)?, &mut out),
            3 => {
                // One that is there and 0 is another thing than none.
                let mut wrapped = Vec::new();
                put_number(1, field.whole(u64::MAX)?, &mut wrapped);
                put_bytes(3, &wrapped, &mut out);
            }
            number => put_number(number, field.truth()?.into(), &mut out),
        }
    }
    Ok(out)
}

fn entry(text: &str) -> Result<Vec<u8>, NotAsked> {
    let mut out = Vec::new();
    for field in ENTRY.read(text)? {
        field.put_text(&mut out)?;
    }
    Ok(out)
}

fn limit(text: &str) -> Result<Vec<u8>, NotAsked> {
    let mut out = Vec::new();
    for field in LIMIT.read(text)? {
        match field.number {
            1 => put_number(1, field.whole(u32::MAX.into())?, &mut out),
            // Protobuf writes a negative one as it would one of 64 bits.
            number => put_number(number, i64::from(field.unit()?).cast_unsigned(), &mut out),
        }
    }
    Ok(out)
}

// === impl Message ===

impl Message {
    /// The fields of a message that hold something.
    fn read<'a>(&self, text: &'a str) -> Result<Vec<Field<'a>>, NotAsked> {
        let Pairs(pairs) = serde_json::from_str(text).map_err(|error| match error.is_data() {
            true => NotAsked(format!("{} must be an object, got `{}`", self.what, clipped(text))),
            false => NotAsked(format!("{} cannot be read: {error}", self.what)),
        })?;
        let (mut seen, mut fields) = (0_u32, Vec::new());
        for (name, value) in pairs {
            let known = self.fields.iter().find(|(_, known)| *known == name);
            let (number, name) = *known.ok_or_else(|| self.stranger(&name))?;
            if seen & 1 << number > 0 {
                return Err(NotAsked(format!("{} has `{name}` twice", self.what)));
            }
            seen |= 1 << number;
            fields.push(Field { number, name, text: value.get() });
        }
        fields.retain(|field| field.text != "null");
        Ok(fields)
    }

    fn stranger(&self, name: &str) -> NotAsked {
        let names = self.fields.iter().map(|(_, known)| *known);
        let names: Vec<&str> = names.filter(|known| !known.contains('_')).collect();
        let (name, names) = (clipped(name), names.join(", "));
        NotAsked(format!("{} has no field `{name}`, only {names}", self.what))
    }
}

/// The names and values of an object, in their order; a name may be there more than once.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    // With one too many there is one that is wrong.
                    if pairs.len() <= FIELDS_MAX {
                        pairs.push(pair);
                    }
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(Each)
    }
}

/// A field that holds something.
struct Field<'a> {
    number: u32,
    name: &'static str,
    text: &'a str,
}

impl Field<'_> {
    fn put_text(&self, out: &mut Vec<u8>) -> Result<(), NotAsked> {
        put_bytes(self.number, self.string("a text")?.as_bytes(), out);
        Ok(())
    }

    /// Messages, one after the other.
    fn put_list(
        &self,
        message: fn(&str) -> Result<Vec<u8>, NotAsked>,
        out: &mut Vec<u8>,
    ) -> Result<(), NotAsked> {
        let all: Vec<&RawValue> =
            serde_json::from_str(self.text).map_err(|_| self.wrong("a list"))?;
        for (place, one) in all.into_iter().enumerate() {
            let bytes = message(one.get())
                .map_err(|NotAsked(why)| NotAsked(format!("{}[{place}]: {why}", self.name)))?;
            put_bytes(self.number, &bytes, out);
        }
        Ok(())
    }

    /// A number, with or without quotes.
    fn whole(&self, most: u64) -> Result<u64, NotAsked> {
        let should_be = format!("a whole number from 0 to {most}");
        let number = match self.text.starts_with('"') {
            true => whole(&self.string(&should_be)?),
            false => whole(self.text),
        };
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.filter(|number| *number <= most).ok_or_else(|| self.wrong(&should_be))
    }

    fn truth(&self) -> Result<bool, NotAsked> {
        self.text.parse().map_err(|_| self.wrong("true or false"))
    }

    /// The number of a unit, which need not be one; but a name has to be.
    fn unit(&self) -> Result<i32, NotAsked> {
        let should_be = "a unit: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, or a number from 1 to 7";
        let number = if self.text.starts_with('"') {
            let name = self.string(should_be)?;
            UNITS.iter().position(|known| *known == name).and_then(|place| place.try_into().ok())
        } else {
            whole(self.text).and_then(|number| number.try_into().ok())
        };
        number.ok_or_else(|| self.wrong(should_be))
    }

    fn string(&self, should_be: &str) -> Result<String, NotAsked> {
        serde_json::from_str(self.text).map_err(|_| self.wrong(should_be))
    }

    fn wrong(&self, should_be: &str) -> NotAsked {
        NotAsked(format!("`{}` must be {should_be}, got `{}`", self.name, clipped(self.text)))
    }
}

/// As much of it as helps.
fn clipped(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    match text.char_indices().nth(CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

// === impl NotAsked ===

impl fmt::Display for NotAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAsked {}
