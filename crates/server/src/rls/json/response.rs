//! `RateLimitResponse` as JSON.

use serde_json::{Map, Value, json};

use super::super::wire::{WireError, WireReader, WireType};
use super::UNITS;

/// Number, name and kind of the fields of a message.
type Fields = &'static [(u32, &'static str, Kind)];

/// Kind of a field.
enum Kind {
    Code,
    Unit,
    Number,
    Text,
    Seconds,
    Struct,
    Message(Fields),
    List(Fields),
}

const RESPONSE: Fields = &[
    (1, "overallCode", Kind::Code),
    (2, "statuses", Kind::List(STATUS)),
    (3, "responseHeadersToAdd", Kind::List(HEADER)),
    (4, "requestHeadersToAdd", Kind::List(HEADER)),
    (6, "dynamicMetadata", Kind::Struct),
];
const STATUS: Fields = &[
    (1, "code", Kind::Code),
    (2, "currentLimit", Kind::Message(LIMIT)),
    (3, "limitRemaining", Kind::Number),
    (4, "durationUntilReset", Kind::Seconds),
];
const LIMIT: Fields =
    &[(1, "requestsPerUnit", Kind::Number), (2, "unit", Kind::Unit), (3, "name", Kind::Text)];
const HEADER: Fields = &[(1, "key", Kind::Text), (2, "value", Kind::Text)];
const DURATION: Fields = &[(1, "seconds", Kind::Number)];

/// Converts a `RateLimitResponse` from protobuf to JSON, without fields that are 0 or empty.
///
/// ```
/// let bytes = b"\x08\x01\x12\x02\x08\x01";
/// let json = sluicegate_server::rls::json::response(bytes)?;
/// assert_eq!(json.to_string(), r#"{"overallCode":"OK","statuses":[{"code":"OK"}]}"#);
/// # Ok::<(), sluicegate_server::rls::request::WireError>(())
/// ```
///
/// # Errors
/// When the bytes are malformed.
pub fn response(bytes: &[u8]) -> Result<Value, WireError> {
    message(bytes, RESPONSE).map(Value::Object)
}

fn message(bytes: &[u8], fields: Fields) -> Result<Map<String, Value>, WireError> {
    let mut object = Map::new();
    each_field(bytes, |number, wire_type, reader| {
        let known =
            |(known, _, kind): &&(u32, _, Kind)| *known == number && kind.wire_type() == wire_type;
        let Some((_, name, kind)) = fields.iter().find(known) else { return Ok(false) };
        let value = match kind {
            Kind::Code => code(reader.varint()?),
            Kind::Unit => unit_name(reader.varint()?),
            Kind::Number => reader.varint()?.into(),
            Kind::Text => reader.text()?.into(),
            Kind::Seconds => {
                let duration = message(reader.bytes()?, DURATION)?;
                json!(format!("{}s", duration.get("seconds").unwrap_or(&json!(0))))
            }
            Kind::Struct => structure(reader.bytes()?)?,
            Kind::Message(fields) => message(reader.bytes()?, fields)?.into(),
            Kind::List(fields) => {
                let one = message(reader.bytes()?, fields)?;
                if let Value::Array(list) = object.entry(*name).or_insert_with(|| json!([])) {
                    list.push(one.into());
                }
                return Ok(true);
            }
        };
        object.insert((*name).to_owned(), value);
        Ok(true)
    })?;
    Ok(object)
}

impl Kind {
    const fn wire_type(&self) -> WireType {
        match self {
            Self::Code | Self::Unit | Self::Number => WireType::Varint,
            _ => WireType::Bytes,
        }
    }
}

/// Calls `read` with each field; those that it does not read (`false`) are skipped.
fn each_field<'a>(
    bytes: &'a [u8],
    mut read: impl FnMut(u32, WireType, &mut WireReader<'a>) -> Result<bool, WireError>,
) -> Result<(), WireError> {
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        if !read(number, wire_type, &mut reader)? {
            reader.skip(number, wire_type)?;
        }
    }
    Ok(())
}

/// A `google.protobuf.Struct` is an object.
fn structure(bytes: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    each_field(bytes, |number, wire_type, reader| {
        if (number, wire_type) != (1, WireType::Bytes) {
            return Ok(false);
        }
        let (mut name, mut value) = (String::new(), Value::Null);
        each_field(reader.bytes()?, |number, wire_type, reader| {
            match (number, wire_type) {
                (1, WireType::Bytes) => name = reader.text()?.to_owned(),
                (2, WireType::Bytes) => value = any_value(reader.bytes()?)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        object.insert(name, value);
        Ok(true)
    })?;
    Ok(object.into())
}

fn any_value(bytes: &[u8]) -> Result<Value, WireError> {
    let mut value = Value::Null;
    each_field(bytes, |number, wire_type, reader| {
        value = match (number, wire_type) {
            (2, WireType::Fixed64) => double(reader.double()?),
            (3, WireType::Bytes) => reader.text()?.into(),
            (4, WireType::Varint) => (reader.varint()? != 0).into(),
            (5, WireType::Bytes) => structure(reader.bytes()?)?,
            (6, WireType::Bytes) => values(reader.bytes()?)?,
            _ => return Ok(false),
        };
        Ok(true)
    })?;
    Ok(value)
}

fn values(bytes: &[u8]) -> Result<Value, WireError> {
    let mut all = Vec::new();
    each_field(bytes, |number, wire_type, reader| {
        let is_value = (number, wire_type) == (1, WireType::Bytes);
        if is_value {
            all.push(any_value(reader.bytes()?)?);
        }
        Ok(is_value)
    })?;
    Ok(all.into())
}

/// Integral doubles without `.0`.
fn double(number: f64) -> Value {
    // Up to here every integer is exact in a double.
    const EXACT: f64 = (1_u64 << 53) as f64;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return (number as i64).into();
    }
    number.into()
}

fn code(number: u64) -> Value {
    match number {
        1 => "OK".into(),
        2 => "OVER_LIMIT".into(),
        _ => "UNKNOWN".into(),
    }
}

/// A response also names a week.
fn unit_name(number: u64) -> Value {
    let known = usize::try_from(number).ok().and_then(|index| UNITS.get(index).copied());
    match number {
        7 => "WEEK".into(),
        number => known.map_or_else(|| number.into(), Value::from),
    }
}
