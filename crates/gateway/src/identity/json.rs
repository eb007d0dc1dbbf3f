//! Fields of JSON: of request bodies and of tokens.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

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
    let same = members.keys().filter(|key| folded(key).eq(folded(name))).count();
    (same == 1).then_some(found)
}

/// A name without case. By way of capitals, because `ſ` and `s` have the same one.
pub(crate) fn folded(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

/// A value none of whose objects has a name twice: servers differ in which one they use.
pub(super) struct UniqueNames(Value);

impl UniqueNames {
    /// `None` if it is not valid.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// A field by its name.
    pub(super) fn field(&self, name: &str) -> Option<Box<str>> {
        field(&self.0, name)
    }
}

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
            let read = UniqueNames::parse(body.as_bytes());
            let field = read.and_then(|read| read.field("user.id"));
            assert_eq!(field.as_deref(), expected, "{body}");
        }
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
