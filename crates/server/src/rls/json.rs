//! The same messages as JSON, as protobuf writes them in it: names in `camelCase` or as they are, numbers also as texts, `null` for nothing.
//!
//! For `/json`, which people and scripts use; so it goes by way of the bytes, and there is one place that decides.

use serde_json::{Map, Number, Value, json};

use super::wire::{Kind, Reader, WireError, put_bytes, put_message, put_number};

/// Why a text is no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAsked(String);

/// The bytes of a `RateLimitRequest` that is written as JSON.
///
/// ```
/// use sluicegate_server::rls::json::request;
///
/// let text = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"42"}]}]}"#;
/// assert_eq!(request(text.as_bytes())?, b"\x0a\x04shop\x12\x0c\x0a\x0a\x0a\x04user\x12\x0242");
/// assert!(request(br#"{"domian":"shop"}"#).is_err());
/// # Ok::<(), sluicegate_server::rls::json::NotAsked>(())
/// ```
///
/// # Errors
/// When it is no JSON, or something else than a request.
pub fn request(text: &[u8]) -> Result<Vec<u8>, NotAsked> {
    let value: Value = serde_json::from_slice(text).map_err(|error| NotAsked(error.to_string()))?;
    let mut out = Vec::new();
    for (name, value) in fields(&value, "a request")? {
        match name {
            "domain" => put_text(1, value, &mut out)?,
            "descriptors" => {
                for one in list(value, "descriptors")? {
                    let bytes = descriptor(one)?;
                    put_bytes(2, &bytes, &mut out);
                }
            }
            "hitsAddend" | "hits_addend" => {
                put_number(3, number(value, u32::MAX.into())?, &mut out)
            }
            _ => return Err(stranger(name)),
        }
    }
    Ok(out)
}

fn descriptor(value: &Value) -> Result<Vec<u8>, NotAsked> {
    let mut out = Vec::new();
    for (name, value) in fields(value, "a descriptor")? {
        match name {
            "entries" => {
                for one in list(value, "entries")? {
                    let bytes = entry(one)?;
                    put_bytes(1, &bytes, &mut out);
                }
            }
            "limit" => {
                let bytes = limit(value)?;
                put_bytes(2, &bytes, &mut out);
            }
            "hitsAddend" | "hits_addend" => {
                let hits = number(value, u64::MAX)?;
                put_message(3, &mut out, |out| put_number(1, hits, out));
            }
            "isNegativeHits" | "is_negative_hits" => {
                let negative = value.as_bool().ok_or_else(|| wrong(name, "true or false"))?;
                put_number(4, u64::from(negative), &mut out);
            }
            _ => return Err(stranger(name)),
        }
    }
    Ok(out)
}

fn entry(value: &Value) -> Result<Vec<u8>, NotAsked> {
    let mut out = Vec::new();
    for (name, value) in fields(value, "an entry")? {
        match name {
            "key" => put_text(1, value, &mut out)?,
            "value" => put_text(2, value, &mut out)?,
            _ => return Err(stranger(name)),
        }
    }
    Ok(out)
}

fn limit(value: &Value) -> Result<Vec<u8>, NotAsked> {
    let mut out = Vec::new();
    for (name, value) in fields(value, "a limit")? {
        match name {
            "requestsPerUnit" | "requests_per_unit" => {
                put_number(1, number(value, u32::MAX.into())?, &mut out);
            }
            "unit" => put_number(2, unit(value)?, &mut out),
            _ => return Err(stranger(name)),
        }
    }
    Ok(out)
}

/// As Envoy's protocol calls them; there is none for a week.
const UNITS: [&str; 7] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"];

/// The name of the unit of a limit that comes with a request.
pub(super) fn unit_of_a_request(number: i32) -> Option<&'static str> {
    UNITS.get(usize::try_from(number).ok()?).copied()
}

fn unit(value: &Value) -> Result<u64, NotAsked> {
    match value {
        Value::String(name) => {
            let place = UNITS.iter().position(|known| known == name);
            place.map(|place| place as u64).ok_or_else(|| wrong("unit", "the name of a unit"))
        }
        other => number(other, i32::MAX as u64),
    }
}

// === parts ===

/// The fields of an object that hold something.
fn fields<'a>(
    value: &'a Value,
    what: &str,
) -> Result<impl Iterator<Item = (&'a str, &'a Value)>, NotAsked> {
    let object = value.as_object().ok_or_else(|| wrong(what, "an object"))?;
    Ok(object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (&**name, value)))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], NotAsked> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(name, "a list"))
}

fn put_text(field: u32, value: &Value, out: &mut Vec<u8>) -> Result<(), NotAsked> {
    let text = value.as_str().ok_or_else(|| wrong("a field", "a text"))?;
    put_bytes(field, text.as_bytes(), out);
    Ok(())
}

/// A whole number however JSON writes it, `1.0` and `1e3` too, in quotes or not.
fn number(value: &Value, most: u64) -> Result<u64, NotAsked> {
    let number = match value {
        // In quotes it is a number as well, and nothing else: no `+`, no blanks.
        Value::String(text) if text.trim() == text => serde_json::from_str(text).ok(),
        Value::Number(number) => Some(number.clone()),
        _ => None,
    };
    let number = number.as_ref().and_then(whole).filter(|number| *number <= most);
    number.ok_or_else(|| wrong("a field", "a whole number"))
}

fn whole(number: &Number) -> Option<u64> {
    let exact = |float: &f64| *float >= 0.0 && float.fract() == 0.0;
    // A wider integer: what is beyond 64 bits must not be taken for the largest that fits.
    let float =
        || number.as_f64().filter(exact).and_then(|float| u64::try_from(float as u128).ok());
    number.as_u64().or_else(float)
}

fn wrong(what: &str, should_be: &str) -> NotAsked {
    NotAsked(format!("`{what}` must be {should_be}"))
}

fn stranger(name: &str) -> NotAsked {
    NotAsked(format!("unknown field `{name}`"))
}

// === answers ===

/// A `RateLimitResponse` as JSON, in which what is 0 or empty goes without saying.
///
/// ```
/// let bytes = b"\x08\x01\x12\x02\x08\x01";
/// let told = sluicegate_server::rls::json::response(bytes)?;
/// assert_eq!(told.to_string(), r#"{"overallCode":"OK","statuses":[{"code":"OK"}]}"#);
/// # Ok::<(), sluicegate_server::rls::ask::WireError>(())
/// ```
///
/// # Errors
/// When the bytes are none.
pub fn response(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut told, mut statuses) = (Map::new(), Vec::new());
    let (mut to_client, mut to_upstream, mut metadata) = (Vec::new(), Vec::new(), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Varint) => {
                told.insert("overallCode".into(), code(reader.varint()?));
            }
            (2, Kind::Bytes) => statuses.push(status(reader.bytes()?)?),
            (3, Kind::Bytes) => to_client.push(header(reader.bytes()?)?),
            (4, Kind::Bytes) => to_upstream.push(header(reader.bytes()?)?),
            (6, Kind::Bytes) => metadata = Some(structure(reader.bytes()?)?),
            _ => reader.skip(number, kind)?,
        }
    }
    let lists = [
        ("statuses", statuses),
        ("responseHeadersToAdd", to_client),
        ("requestHeadersToAdd", to_upstream),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        told.insert(name.into(), list.into());
    }
    if let Some(metadata) = metadata {
        told.insert("dynamicMetadata".into(), metadata);
    }
    Ok(told.into())
}

fn header(bytes: &[u8]) -> Result<Value, WireError> {
    let mut told = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Bytes) => told.insert("key".into(), reader.text()?.into()),
            (2, Kind::Bytes) => told.insert("value".into(), reader.text()?.into()),
            _ => {
                reader.skip(number, kind)?;
                None
            }
        };
    }
    Ok(told.into())
}

/// A `google.protobuf.Struct` is an object.
fn structure(bytes: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Bytes) => {
                let (name, value) = field_of_structure(reader.bytes()?)?;
                object.insert(name, value);
            }
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(object.into())
}

fn field_of_structure(bytes: &[u8]) -> Result<(String, Value), WireError> {
    let (mut name, mut value) = (String::new(), Value::Null);
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Bytes) => name = reader.text()?.to_owned(),
            (2, Kind::Bytes) => value = any_value(reader.bytes()?)?,
            _ => reader.skip(number, kind)?,
        }
    }
    Ok((name, value))
}

fn any_value(bytes: &[u8]) -> Result<Value, WireError> {
    let mut value = Value::Null;
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (2, Kind::Fixed64) => value = whole_or_not(reader.double()?),
            (3, Kind::Bytes) => value = reader.text()?.into(),
            (4, Kind::Varint) => value = (reader.varint()? != 0).into(),
            (5, Kind::Bytes) => value = structure(reader.bytes()?)?,
            (6, Kind::Bytes) => value = values(reader.bytes()?)?,
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(value)
}

fn values(bytes: &[u8]) -> Result<Value, WireError> {
    let mut all = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Bytes) => all.push(any_value(reader.bytes()?)?),
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(all.into())
}

/// Without `.0` where there is nothing behind the point.
fn whole_or_not(number: f64) -> Value {
    // Up to here every whole number is exact in both.
    const EXACT: f64 = (1_u64 << 53) as f64;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return (number as i64).into();
    }
    number.into()
}

fn status(bytes: &[u8]) -> Result<Value, WireError> {
    let mut told = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Varint) => told.insert("code".into(), code(reader.varint()?)),
            (2, Kind::Bytes) => told.insert("currentLimit".into(), current(reader.bytes()?)?),
            (3, Kind::Varint) => told.insert("limitRemaining".into(), reader.varint()?.into()),
            (4, Kind::Bytes) => {
                told.insert("durationUntilReset".into(), duration(reader.bytes()?)?)
            }
            _ => {
                reader.skip(number, kind)?;
                None
            }
        };
    }
    Ok(told.into())
}

fn current(bytes: &[u8]) -> Result<Value, WireError> {
    let mut told = Map::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Varint) => told.insert("requestsPerUnit".into(), reader.varint()?.into()),
            (2, Kind::Varint) => told.insert("unit".into(), unit_name(reader.varint()?)),
            (3, Kind::Bytes) => told.insert("name".into(), reader.text()?.into()),
            _ => {
                reader.skip(number, kind)?;
                None
            }
        };
    }
    Ok(told.into())
}

fn duration(bytes: &[u8]) -> Result<Value, WireError> {
    let mut seconds = 0;
    let mut reader = Reader::new(bytes);
    while let Some((number, kind)) = reader.field()? {
        match (number, kind) {
            (1, Kind::Varint) => seconds = reader.varint()?,
            _ => reader.skip(number, kind)?,
        }
    }
    Ok(json!(format!("{seconds}s")))
}

fn code(number: u64) -> Value {
    match number {
        1 => "OK".into(),
        2 => "OVER_LIMIT".into(),
        _ => "UNKNOWN".into(),
    }
}

/// An answer has a name for a week too.
fn unit_name(number: u64) -> Value {
    let known = usize::try_from(number).ok().and_then(|place| UNITS.get(place).copied());
    match number {
        7 => "WEEK".into(),
        number => known.map_or_else(|| number.into(), Value::from),
    }
}

// === impl NotAsked ===

impl std::fmt::Display for NotAsked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAsked {}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go's protojson reads them, and so envoyproxy/ratelimit.
    #[test]
    fn whole_numbers_in_every_form() {
        let hits = |text: &str| request(format!(r#"{{"hitsAddend":{text}}}"#).as_bytes());
        for five in ["5", "5.0", "0.5e1", "50e-1", r#""5""#, r#""5.0""#, r#""5e0""#] {
            assert_eq!(hits(five).as_deref(), Ok(&b"\x18\x05"[..]), "{five}");
        }
        assert_eq!(hits("-0").as_deref(), Ok(&b""[..]));
        for wrong in [
            "5.5",
            "-1",
            "4294967296",
            "1e10",
            "1e400",
            "true",
            "[5]",
            "{}",
            r#""+5""#,
            r#"" 5""#,
            r#""5 ""#,
            r#""""#,
            r#""0x5""#,
            r#""NaN""#,
        ] {
            assert!(hits(wrong).is_err(), "{wrong}");
        }
        let of_one = |text: &str| {
            request(format!(r#"{{"descriptors":[{{"hitsAddend":{text}}}]}}"#).as_bytes())
        };
        assert!(of_one("18446744073709551615").is_ok());
        assert!(of_one("18446744073709551616").is_err(), "one more than 64 bits hold");
    }
}
