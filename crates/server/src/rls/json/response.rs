//! What is answered, written as JSON.

use serde_json::{Map, Value, json};

use super::UNITS;
use crate::rls::wire::{Kind, Reader, WireError};

/// A `RateLimitResponse` as JSON, in which what is 0 or empty goes without saying.
///
/// ```
/// let bytes = b"\x08\x01\x12\x02\x08\x01";
/// let told = sluicegate_server::rls::json::response(bytes)?;
/// assert_eq!(told.to_string(), r#"{"overallCode":"OK","statuses":[{"code":"OK"}]}"#);
/// # Ok::<(), sluicegate_server::rls::request::WireError>(())
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
