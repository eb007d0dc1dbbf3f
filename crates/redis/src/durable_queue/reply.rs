//! Replies of Redis to commands about streams and sorted sets.

use redis::Value;

use super::QueueClaim;

/// The texts of a list, nested ones included.
pub(super) fn ids_of(reply: &Value) -> Vec<String> {
    let Value::Array(values) = reply else { return Vec::new() };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
        Value::SimpleString(text) => vec![text.clone()],
        Value::Double(number) => vec![number.to_string()],
        Value::Array(_) => ids_of(value),
        _ => Vec::new(),
    };
    values.iter().flat_map(text).collect()
}

/// The messages of a reply to `XREADGROUP` or `XAUTOCLAIM`: an id, and the field `queue`.
pub(super) fn claims_of(reply: &Value) -> Vec<QueueClaim> {
    if let Value::Map(streams) = reply {
        return streams.iter().flat_map(|(_, messages)| claims_of(messages)).collect();
    }
    let Value::Array(values) = reply else { return Vec::new() };
    if let [Value::BulkString(id), fields @ (Value::Array(_) | Value::Map(_))] = values.as_slice()
        && let Some(queue) = queue_of(fields)
    {
        return vec![QueueClaim { queue, id: String::from_utf8_lossy(id).into_owned() }];
    }
    values.iter().flat_map(claims_of).collect()
}

fn queue_of(fields: &Value) -> Option<String> {
    let flat = match fields {
        Value::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
        Value::Array(values) => values.iter().collect::<Vec<_>>(),
        _ => return None,
    };
    match flat.as_slice() {
        [Value::BulkString(key), Value::BulkString(queue), ..] if key == b"queue" => {
            Some(String::from_utf8_lossy(queue).into_owned())
        }
        _ => None,
    }
}

pub(super) fn number_of(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn bytes_of(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}
