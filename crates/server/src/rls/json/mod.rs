//! The messages in protobuf's JSON mapping, for `/json`.
//!
//! Requests are converted to protobuf bytes, so that one handler serves both. As strict as
//! protobuf's own parser: duplicate and unknown fields are rejected. Nested values stay raw text
//! until they are converted: numbers keep all digits, and nesting does not recurse.

mod response;

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

pub use self::response::response;
use super::wire::{put_bytes, put_number};

/// Names of the units in a request; there is none for a week.
const UNITS: [&str; 7] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"];

/// Why JSON is not a valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError(String);

/// Name and fields of a message type; a field may have two names.
struct MessageSchema {
    name: &'static str,
    fields: &'static [(u32, &'static str)],
}

const REQUEST: MessageSchema = MessageSchema {
    name: "a request",
    fields: &[(1, "domain"), (2, "descriptors"), (3, "hitsAddend"), (3, "hits_addend")],
};

const DESCRIPTOR: MessageSchema = MessageSchema {
    name: "a descriptor",
    fields: &[
        (1, "entries"),
        (2, "limit"),
        (3, "hitsAddend"),
        (3, "hits_addend"),
        (4, "isNegativeHits"),
        (4, "is_negative_hits"),
    ],
};

const ENTRY: MessageSchema =
    MessageSchema { name: "an entry", fields: &[(1, "key"), (2, "value")] };

const LIMIT: MessageSchema = MessageSchema {
    name: "a limit",
    fields: &[(1, "requestsPerUnit"), (1, "requests_per_unit"), (2, "unit")],
};

/// Fields of the largest message.
const FIELDS_MAX: usize = 4;

/// Converts a `RateLimitRequest` from JSON to protobuf.
///
/// ```
/// use sluicegate_server::rls::json::request;
///
/// let text = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"42"}]}]}"#;
/// assert_eq!(request(text.as_bytes())?, b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242");
/// let wrong = request(br#"{"domian":"shop"}"#).unwrap_err();
/// let message = "a request has no field `domian`, only domain, descriptors, hitsAddend";
/// assert_eq!(wrong.to_string(), message);
/// # Ok::<(), sluicegate_server::rls::json::JsonError>(())
/// ```
///
/// # Errors
/// When it is not JSON, or has unknown, duplicate or mistyped fields.
pub fn request(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let text = str::from_utf8(text).map_err(|_| JsonError("a request must be UTF-8".to_owned()))?;
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

fn descriptor(text: &str) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    for field in DESCRIPTOR.read(text)? {
        match field.number {
            1 => field.put_list(entry, &mut out)?,
            2 => put_bytes(2, &limit(field.text)?, &mut out),
            3 => {
                // 0 differs from unset.
                let mut wrapped = Vec::new();
                put_number(1, field.whole(u64::MAX)?, &mut wrapped);
                put_bytes(3, &wrapped, &mut out);
            }
            number => put_number(number, field.boolean()?.into(), &mut out),
        }
    }
    Ok(out)
}

fn entry(text: &str) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    for field in ENTRY.read(text)? {
        field.put_text(&mut out)?;
    }
    Ok(out)
}

fn limit(text: &str) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::new();
    for field in LIMIT.read(text)? {
        match field.number {
            1 => put_number(1, field.whole(u32::MAX.into())?, &mut out),
            // Protobuf encodes a negative enum value in 64 bits.
            number => put_number(number, i64::from(field.unit()?).cast_unsigned(), &mut out),
        }
    }
    Ok(out)
}

impl MessageSchema {
    /// The fields of a message that are not null.
    fn read<'a>(&self, text: &'a str) -> Result<Vec<Field<'a>>, JsonError> {
        let Pairs(pairs) = serde_json::from_str(text).map_err(|error| match error.is_data() {
            true => JsonError(format!("{} must be an object, got `{}`", self.name, clipped(text))),
            false => JsonError(format!("{} cannot be read: {error}", self.name)),
        })?;
        let (mut seen, mut fields) = (0_u32, Vec::new());
        for (name, value) in pairs {
            let known = self.fields.iter().find(|(_, known)| *known == name);
            let (number, name) = *known.ok_or_else(|| self.unknown_field(&name))?;
            if seen & 1 << number > 0 {
                return Err(JsonError(format!("{} has `{name}` twice", self.name)));
            }
            seen |= 1 << number;
            fields.push(Field { number, name, text: value.get() });
        }
        fields.retain(|field| field.text != "null");
        Ok(fields)
    }

    fn unknown_field(&self, name: &str) -> JsonError {
        let names = self.fields.iter().map(|(_, known)| *known);
        let names: Vec<&str> = names.filter(|known| !known.contains('_')).collect();
        let (name, names) = (clipped(name), names.join(", "));
        JsonError(format!("{} has no field `{name}`, only {names}", self.name))
    }
}

/// Names and values of an object, in order and with duplicates.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    // With one too many, one is a duplicate or unknown.
                    if pairs.len() <= FIELDS_MAX {
                        pairs.push(pair);
                    }
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(PairsVisitor)
    }
}

/// A field that is not null.
struct Field<'a> {
    number: u32,
    name: &'static str,
    text: &'a str,
}

impl Field<'_> {
    fn put_text(&self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        put_bytes(self.number, self.string("a string")?.as_bytes(), out);
        Ok(())
    }

    /// Appends a list of messages.
    fn put_list(
        &self,
        message: fn(&str) -> Result<Vec<u8>, JsonError>,
        out: &mut Vec<u8>,
    ) -> Result<(), JsonError> {
        let all: Vec<&RawValue> =
            serde_json::from_str(self.text).map_err(|_| self.mistyped("a list"))?;
        for (index, one) in all.into_iter().enumerate() {
            let bytes = message(one.get())
                .map_err(|JsonError(why)| JsonError(format!("{}[{index}]: {why}", self.name)))?;
            put_bytes(self.number, &bytes, out);
        }
        Ok(())
    }

    /// An integer, with or without quotes.
    fn whole(&self, max: u64) -> Result<u64, JsonError> {
        let expected = format!("a whole number from 0 to {max}");
        let number = match self.text.starts_with('"') {
            true => whole(&self.string(&expected)?),
            false => whole(self.text),
        };
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.filter(|number| *number <= max).ok_or_else(|| self.mistyped(&expected))
    }

    fn boolean(&self) -> Result<bool, JsonError> {
        self.text.parse().map_err(|_| self.mistyped("true or false"))
    }

    /// Number of a unit: any number, or a known name.
    fn unit(&self) -> Result<i32, JsonError> {
        let expected = "a unit: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, or a number from 1 to 7";
        let number = if self.text.starts_with('"') {
            let name = self.string(expected)?;
            UNITS.iter().position(|known| *known == name).and_then(|index| index.try_into().ok())
        } else {
            whole(self.text).and_then(|number| number.try_into().ok())
        };
        number.ok_or_else(|| self.mistyped(expected))
    }

    fn string(&self, expected: &str) -> Result<String, JsonError> {
        serde_json::from_str(self.text).map_err(|_| self.mistyped(expected))
    }

    fn mistyped(&self, expected: &str) -> JsonError {
        JsonError(format!("`{}` must be {expected}, got `{}`", self.name, clipped(self.text)))
    }
}

/// At most 40 characters, for messages.
fn clipped(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    match text.char_indices().nth(CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Name of the unit of a limit in a request.
pub(super) fn unit_name(number: i32) -> Option<&'static str> {
    UNITS.get(usize::try_from(number).ok()?).copied()
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

// === numbers ===

/// Parses `1`, but also `1.0`, `10e-1` and `0.1e1`; `None` for `1.5` and for invalid JSON such as
/// `01` or `+1`. Works on digits, so nothing is rounded.
fn whole(text: &str) -> Option<i128> {
    // Digits of `u64::MAX`; longer numbers would be expanded only to be rejected.
    const DIGITS_MAX: i64 = 20;
    let (positive, rest) = text.strip_prefix('-').map_or((true, text), |rest| (false, rest));
    let (digits, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (before, after) = digits.split_once('.').unwrap_or((digits, "0"));
    let signless = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let zero_too_many = before.len() > 1 && before.starts_with('0');
    if zero_too_many || ![before, after, signless].into_iter().all(is_digits) {
        return None;
    }
    let (before, after) = (before.trim_start_matches('0'), after.trim_end_matches('0'));
    if before.is_empty() && after.is_empty() {
        return Some(0);
    }
    let exponent = i64::from(exponent.parse::<i32>().ok()?);
    let mut digits = [before, after].concat();
    // Zeros to append, or to remove if negative.
    let shift = exponent - i64::try_from(after.len()).ok()?;
    if shift >= 0 {
        let length = i64::try_from(before.len()).ok()? + exponent;
        let zeros = usize::try_from(shift).ok().filter(|_| length <= DIGITS_MAX)?;
        digits.extend(std::iter::repeat_n('0', zeros));
    } else {
        let whole = digits.len().checked_sub(usize::try_from(-shift).ok()?)?;
        if digits.bytes().skip(whole).any(|digit| digit != b'0') {
            return None;
        }
        digits.truncate(whole);
    }
    let number = i128::from(digits.parse::<u64>().ok()?);
    Some(if positive { number } else { -number })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_that_are_whole_however_they_are_written() {
        let numbers = [
            ("0", 0),
            ("-0", 0),
            ("-0.00e-7", 0),
            ("0e99999999999", 0),
            ("1.0", 1),
            ("1E0", 1),
            ("1e+1", 10),
            ("10e-1", 1),
            ("0.1e1", 1),
            ("0.001e4", 10),
            ("1.50e1", 15),
            ("-12.0", -12),
            ("18446744073709551615", i128::from(u64::MAX)),
            ("1.8446744073709551615e19", i128::from(u64::MAX)),
            ("100000000000000000000000000e-26", 1),
        ];
        for (text, number) in numbers {
            assert_eq!(whole(text), Some(number), "{text}");
        }
    }

    #[test]
    fn what_is_none() {
        let no_numbers =
            "|-|+1|01|-01|00|1.|.1|1e|1e+|1e1.0|1e1e1|--1|0x1| 1|1 |NaN|true|null|1_0|١|1,0";
        let no_whole_ones =
            "1.5|1e-1|-0.5|1.05e1|10e-2|1e-2147483648|0.5e-2147483648|1e-99999999999";
        let too_large = "18446744073709551616|1e20|1e2147483647|1e2147483648|-1e20";
        for text in
            [no_numbers, no_whole_ones, too_large].into_iter().flat_map(|all| all.split('|'))
        {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn moving_the_point_there_and_back_changes_nothing(number: u64, places in 0_usize..=20) {
            let zeros = "0".repeat(if number > 0 { places } else { 0 });
            prop_assert_eq!(whole(&format!("{number}{zeros}e-{places}")), Some(number.into()));
            let padded = format!("{number:0>width$}", width = places + 1);
            let (before, after) = padded.split_at(padded.len() - places);
            let point = if after.is_empty() { "" } else { "." };
            prop_assert_eq!(whole(&format!("{before}{point}{after}e{places}")), Some(number.into()));
        }

        #[test]
        fn whatever_is_one_is_what_a_floating_number_comes_near(text in "-?[0-9]{1,9}(\\.[0-9]{1,9})?([eE][-+]?[0-9])?") {
            let near: f64 = text.parse().map_err(|_| TestCaseError::fail("no number at all"))?;
            if let Some(number) = whole(&text) {
                prop_assert!((near - number as f64).abs() <= near.abs() * 1e-15);
            }
        }
    }
}
