//! Fields of JSON: of request bodies and of tokens.
//!
//! A body is read up to a bound, and forwarded as it came. One that servers read differently has no
//! fields: a limit would count another value than the one that the server uses.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
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
    let body: UniqueNames = serde_json::from_slice(&bytes).map_err(|_| BodyError::Malformed)?;
    Ok(names.iter().map(|name| field(&body.0, name)).collect())
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
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(text), None) = (lines.next(), lines.next()) else { return false };
    let text = text.to_str().unwrap_or_default().to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let is_utf8 = |part: &str| match part.strip_prefix("charset=") {
        Some(charset) => charset.trim_matches('"') == "utf-8",
        None => true,
    };
    (essence == "application/json" || essence.ends_with("+json"))
        && parts.all(is_utf8)
        && !headers.contains_key(CONTENT_ENCODING)
}

/// A field by its name, or by the names of its parents and dots. Only texts, numbers and booleans
/// are values.
pub(super) fn field(value: &Value, name: &str) -> Option<Box<str>> {
    let found = find(value, name)?;
    match found {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(canonical(number).into()),
        Value::Bool(boolean) => Some(boolean.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `1`, `1.0` and `1e0` are one number to servers.
fn canonical(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

/// The field that a name means, if it means one only: names may have dots themselves, such as those
/// that are URLs.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let mut found = Vec::new();
    find_all(value, name, &mut found);
    found.pop().filter(|_| found.is_empty())
}

fn find_all<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    found.extend(member(value, name));
    for (dot, _) in name.match_indices('.') {
        if let Some((parent, rest)) = name.split_at_checked(dot)
            && let Some(parent) = member(value, parent)
        {
            find_all(parent, rest.get(1..).unwrap_or_default(), found);
        }
    }
}

/// The member of this name, unless another one differs by case only, which some servers ignore.
fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let members = value.as_object()?;
    let found = members.get(name)?;
    let name = folded(name);
    let same = members.keys().filter(|key| folded(key) == name).count();
    (same == 1).then_some(found)
}

/// A name without case. By way of capitals, because `ſ` and `s` have the same one.
fn folded(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// A value none of whose objects has a name twice: servers differ in which one they use.
struct UniqueNames(Value);

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueNamesVisitor).map(Self)
    }
}

struct UniqueNamesVisitor;

impl<'de> Visitor<'de> for UniqueNamesVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueNames(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, UniqueNames(value))) = entries.next_entry::<String, _>()? {
            if members.insert(name, value).is_some() {
                return Err(de::Error::custom("a name occurs twice"));
            }
        }
        Ok(members.into())
    }
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

    fn field_of_body(body: &str, name: &str) -> Option<Box<str>> {
        let body: UniqueNames = serde_json::from_str(body).ok()?;
        field(&body.0, name)
    }

    #[test]
    fn what_servers_read_differently_has_no_fields() {
        for (body, expected) in [
            (r#"{"user":{"id":"a"}}"#, Some("a")),
            (r#"{"user":{"id":"a"},"other":{"id":"b"}}"#, Some("a")),
            (r#"{"user":{"id":"b","id":"a"}}"#, None),
            (r#"{"user":{"id":"b","i\u0064":"a"}}"#, None),
            (r#"{"user":{"id":"b","ID":"a"}}"#, None),
            (r#"{"User":{"id":"b"},"user":{"id":"a"}}"#, None),
            (r#"{"u\u017fer":{"id":"b"},"user":{"id":"a"}}"#, None),
            (r#"{"user.id":"b","user":{"id":"a"}}"#, None),
            (r#"{"user":{"id":"a"}} {}"#, None),
            (r#"{"user":{"id":7}}"#, Some("7")),
            (r#"{"user":{"id":7.0}}"#, Some("7")),
            (r#"{"user":{"id":70e-1}}"#, Some("7")),
            (r#"{"user":{"id":-7.25}}"#, Some("-7.25")),
            (r#"{"user":{"id":18446744073709551615}}"#, Some("18446744073709551615")),
        ] {
            assert_eq!(field_of_body(body, "user.id").as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn only_plain_json_is_read() {
        for (text, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("application/json; charset=\"UTF-8\"", true),
            ("application/json; charset=utf-7", false),
            ("text/plain", false),
            ("application/jsonp", false),
        ] {
            let value = HeaderValue::from_static(text);
            let mut headers: HeaderMap = [(CONTENT_TYPE, value)].into_iter().collect();
            assert_eq!(is_json(&headers), expected, "{text}");
            headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            assert!(!is_json(&headers), "two types");
            headers.remove(CONTENT_TYPE);
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            assert!(!is_json(&headers));
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(".{0,3}", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_body_with_unique_names_is_read_as_it_is(value in values()) {
            let text = value.to_string();
            let read: UniqueNames = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.0, serde_json::from_str::<Value>(&text).unwrap());
        }

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
