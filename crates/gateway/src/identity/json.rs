//! Fields of JSON: of request bodies and of tokens.
//!
//! A body is read up to a bound, and forwarded as it came.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use serde_json::Value;
use sluicegate_config::gateway::JsonBodyConfig;
use tokio::time::timeout;

use super::BufferedBody;
use crate::body::RequestBody;

/// Why fields of a body are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It has none, or its type is another one.
    NotJson,
    /// It is longer than the bound.
    TooLong,
    /// It is malformed.
    Malformed,
    /// It did not arrive in time.
    Timeout,
    /// The client closed the connection, or broke the framing.
    Aborted,
}

/// Reads a body and extracts fields.
pub(crate) async fn read_fields(
    headers: &HeaderMap,
    body: &mut RequestBody,
    config: JsonBodyConfig,
    names: &[Box<str>],
) -> Result<Box<[Option<Box<str>>]>, BodyError> {
    if !is_json(headers) || body.is_empty() {
        return Err(BodyError::NotJson);
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > config.bytes_max as u64) {
        return Err(BodyError::TooLong);
    }
    let buffered = buffer(body, config.bytes_max, config.timeout).await?;
    let bytes = buffered.ok_or(BodyError::TooLong)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| BodyError::Malformed)?;
    Ok(names.iter().map(|name| field(&value, name)).collect())
}

/// The whole body, if it is not longer than the bound; it can still be forwarded.
async fn buffer(
    body: &mut RequestBody,
    bytes_max: usize,
    time: Duration,
) -> Result<Option<Vec<u8>>, BodyError> {
    let mut buffered = BufferedBody::new(std::mem::replace(body, RequestBody::Empty));
    let read = timeout(time, buffered.read_up_to(bytes_max)).await;
    let bytes = match read {
        Err(_) => return Err(BodyError::Timeout),
        Ok(Err(_)) => return Err(BodyError::Aborted),
        Ok(Ok(is_complete)) => is_complete.then(|| buffered.bytes()),
    };
    *body = RequestBody::Buffered(Box::new(buffered));
    Ok(bytes)
}

/// Whether a body is plain JSON.
fn is_json(headers: &HeaderMap) -> bool {
    if headers.contains_key(CONTENT_ENCODING) {
        return false;
    }
    let Some(text) = headers.get(CONTENT_TYPE).and_then(|text| text.to_str().ok()) else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// A field by its name, or by the names of its parents and dots. Only texts, numbers and booleans
/// are values.
pub(super) fn field(value: &Value, name: &str) -> Option<Box<str>> {
    let found = find(value, name)?;
    match found {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(boolean) => Some(boolean.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    // Names may have dots themselves, such as those that are URLs.
    if let Some(found) = value.get(name) {
        return Some(found);
    }
    name.match_indices('.').find_map(|(dot, _)| {
        let (parent, rest) = name.split_at_checked(dot)?;
        find(value.get(parent)?, rest.get(1..)?)
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_by_name_and_by_dots() {
        let value = json!({
            "sub": "42", "n": 1.5, "yes": true, "none": null, "roles": ["a"],
            "a": { "b": { "c": 7 }, "x.y": "dotted" },
            "https://example.com/plan": "pro",
        });
        for (name, expected) in [
            ("sub", Some("42")),
            ("n", Some("1.5")),
            ("yes", Some("true")),
            ("none", None),
            ("roles", None),
            ("a", None),
            ("a.b.c", Some("7")),
            ("a.x.y", Some("dotted")),
            ("a.b.d", None),
            ("https://example.com/plan", Some("pro")),
            ("", None),
            (".", None),
        ] {
            assert_eq!(field(&value, name).as_deref(), expected, "{name}");
        }
        assert_eq!(field(&json!([1]), "0"), None);
    }

    #[test]
    fn only_plain_json_is_read() {
        for (text, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/plain", false),
            ("application/jsonp", false),
        ] {
            let value = HeaderValue::from_static(text);
            let mut headers: HeaderMap = [(CONTENT_TYPE, value)].into_iter().collect();
            assert_eq!(is_json(&headers), expected, "{text}");
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert!(!is_json(&headers));
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    proptest! {
        #[test]
        fn a_path_of_plain_names_is_that_of_a_naive_walk(
            names in proptest::collection::vec("[a-c]{1,2}", 1..5), leaf in "[a-z]{1,3}",
        ) {
            let mut value = Value::String(leaf.clone());
            for name in names.iter().rev() {
                value = json!({ name: value });
            }
            let found = field(&value, &names.join("."));
            prop_assert_eq!(found.as_deref(), Some(&*leaf));
        }
    }
}
