//! `RateLimitResponse` as JSON.

use serde_json::{Map, Value, json};

use super::super::wire::{WireError, WireReader, WireType};
use super::UNITS;

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
    let (mut object, mut statuses) = (Map::new(), Vec::new());
    let (mut to_client, mut to_upstream, mut metadata) = (Vec::new(), Vec::new(), None);
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Varint) => {
                object.insert("overallCode".into(), code(reader.varint()?));
            }
            (2, WireType::Bytes) => statuses.push(status(reader.bytes()?)?),
            (3, WireType::Bytes) => to_client.push(header(reader.bytes()?)?),
            (4, WireType::Bytes) => to_upstream.push(header(reader.bytes()?)?),
            (6, WireType::Bytes) => metadata = Some(structure(reader.bytes()?)?),
            _ => reader.skip(number, wire_type)?,
        }
    }
    let lists = [
        ("statuses", statuses),
        ("responseHeadersToAdd", to_client),
        ("requestHeadersToAdd", to_upstream),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        object.insert(name.into(), list.into());
    }
    if let Some(metadata) = metadata {
        object.insert("dynamicMetadata".into(), metadata);
    }
    Ok(object.into())
}

fn header(bytes: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Bytes) => object.insert("key".into(), reader.text()?.into()),
            (2, WireType::Bytes) => object.insert("value".into(), reader.text()?.into()),
            _ => {
                reader.skip(number, wire_type)?;
                None
            }
        };
    }
    Ok(object.into())
}

/// A `google.protobuf.Struct` is an object.
fn structure(bytes: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Bytes) => {
                let (name, value) = field_of_structure(reader.bytes()?)?;
                object.insert(name, value);
            }
            _ => reader.skip(number, wire_type)?,
        }
    }
    Ok(object.into())
}

fn field_of_structure(bytes: &[u8]) -> Result<(String, Value), WireError> {
    let (mut name, mut value) = (String::new(), Value::Null);
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Bytes) => name = reader.text()?.to_owned(),
            (2, WireType::Bytes) => value = any_value(reader.bytes()?)?,
            _ => reader.skip(number, wire_type)?,
        }
    }
    Ok((name, value))
}

fn any_value(bytes: &[u8]) -> Result<Value, WireError> {
    let mut value = Value::Null;
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (2, WireType::Fixed64) => value = double(reader.double()?),
            (3, WireType::Bytes) => value = reader.text()?.into(),
            (4, WireType::Varint) => value = (reader.varint()? != 0).into(),
            (5, WireType::Bytes) => value = structure(reader.bytes()?)?,
            (6, WireType::Bytes) => value = values(reader.bytes()?)?,
            _ => reader.skip(number, wire_type)?,
        }
    }
    Ok(value)
}

fn values(bytes: &[u8]) -> Result<Value, WireError> {
    let mut all = Vec::new();
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Bytes) => all.push(any_value(reader.bytes()?)?),
            _ => reader.skip(number, wire_type)?,
        }
    }
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

fn status(bytes: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Varint) => object.insert("code".into(), code(reader.varint()?)),
            (2, WireType::Bytes) => object.insert("currentLimit".into(), current(reader.bytes()?)?),
            (3, WireType::Varint) => {
                object.insert("limitRemaining".into(), reader.varint()?.into())
            }
            (4, WireType::Bytes) => {
                object.insert("durationUntilReset".into(), duration(reader.bytes()?)?)
            }
            _ => {
                reader.skip(number, wire_type)?;
                None
            }
        };
    }
    Ok(object.into())
}

fn current(bytes: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Varint) => {
                object.insert("requestsPerUnit".into(), reader.varint()?.into())
            }
            (2, WireType::Varint) => object.insert("unit".into(), unit_name(reader.varint()?)),
            (3, WireType::Bytes) => object.insert("name".into(), reader.text()?.into()),
            _ => {
                reader.skip(number, wire_type)?;
                None
            }
        };
    }
    Ok(object.into())
}

fn duration(bytes: &[u8]) -> Result<Value, WireError> {
    let mut seconds = 0;
    let mut reader = WireReader::new(bytes);
    while let Some((number, wire_type)) = reader.field()? {
        match (number, wire_type) {
            (1, WireType::Varint) => seconds = reader.varint()?,
            _ => reader.skip(number, wire_type)?,
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

/// A response also names a week.
fn unit_name(number: u64) -> Value {
    let known = usize::try_from(number).ok().and_then(|index| UNITS.get(index).copied());
    match number {
        7 => "WEEK".into(),
        number => known.map_or_else(|| number.into(), Value::from),
    }
}
