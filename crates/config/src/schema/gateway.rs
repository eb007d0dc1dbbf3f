//! The format of a gateway's file, from the table of its keys.

use serde_json::{Map, Value, json};

use super::values::{bits, bytes_pattern, truth};
use super::{DRAFT, extend, reference, shown, values};
use crate::gateway::keys::{GATEWAY, Kind, ROUTE, Section};
use crate::yaml::{self, Content, Node, Style};

const USE: &str = "Generated, see crates/config/src/schema/gateway.rs. To use it, begin a file of a \
                   gateway with `# yaml-language-server: $schema=` and the path or URL of this file. \
                   Every file that Sluicegate accepts is valid here, but not the reverse: \
                   `sluicegate check` is stricter.";

/// The schema of a gateway's file, as text that ends in a line break.
///
/// ```
/// let schema = sluicegate_config::schema::gateway_schema();
/// assert!(schema.contains("\"title\": \"Sluicegate gateway\""));
/// ```
#[must_use]
pub fn gateway_schema() -> String {
    format!("{:#}\n", document())
}

fn document() -> Value {
    let mut root = json!({
        "$schema": DRAFT,
        "$comment": USE,
        "title": "Sluicegate gateway",
        "description": "Listeners, routes and upstreams of a gateway.",
    });
    extend(&mut root, section(&GATEWAY));
    let mut definitions = Map::new();
    for name in ["rate", "duration", "percentage"] {
        if let Some(schema) = values::definitions().remove(name) {
            definitions.insert(name.to_owned(), schema);
        }
    }
    definitions.insert("route".to_owned(), route());
    extend(&mut root, json!({ "$defs": definitions }));
    root
}

fn section(section: &Section) -> Value {
    let property = |key: &crate::gateway::keys::KeyInfo| {
        let examples = json!([example(key.example)]);
        (key.name.to_owned(), shown(key.description, kind(&key.kind), examples))
    };
    let properties: Map<String, Value> = section.keys.iter().map(property).collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !section.required.is_empty() {
        extend(&mut schema, json!({ "required": section.required }));
    }
    schema
}

/// A route has one action.
fn route() -> Value {
    let mut schema = section(&ROUTE);
    let actions = ["upstream", "redirect", "files", "respond"];
    let one: Vec<Value> = actions.iter().map(|name| json!({ "required": [name] })).collect();
    extend(&mut schema, json!({ "oneOf": one }));
    schema
}

fn kind(of: &Kind) -> Value {
    match of {
        Kind::Text => json!({ "type": ["string", "number", "boolean"] }),
        Kind::Flag => truth(),
        Kind::Whole(min, max) => bits(*min, *max, ""),
        Kind::Bytes => {
            json!({ "type": ["integer", "string"], "minimum": 0, "pattern": bytes_pattern() })
        }
        Kind::Duration => reference("duration"),
        Kind::Rate => reference("rate"),
        Kind::Percent => reference("percentage"),
        Kind::Words(words) => {
            let numbers = words.iter().filter_map(|word| word.parse::<serde_json::Number>().ok());
            let words = words.iter().map(|word| json!(word));
            json!({ "enum": words.chain(numbers.map(Value::Number)).collect::<Vec<_>>() })
        }
        Kind::Section(one) if **one == ROUTE => reference("route"),
        Kind::Section(one) => section(one),
        Kind::OneOrMany(one) => json!({ "anyOf": [kind(one), list(one)] }),
        Kind::List(one) => list(one),
        Kind::Named(one) => json!({ "type": "object", "additionalProperties": kind(one) }),
        Kind::Either(kinds) => json!({ "anyOf": kinds.iter().map(kind).collect::<Vec<_>>() }),
    }
}

fn list(of: &Kind) -> Value {
    json!({ "type": "array", "minItems": 1, "items": kind(of) })
}

/// An example as JSON.
fn example(text: &str) -> Value {
    match yaml::document(text) {
        Ok(Some(node)) => json_of(&node),
        _ => json!(text),
    }
}

fn json_of(node: &Node) -> Value {
    match &node.content {
        Content::Scalar { text, style: Style::Quoted } => json!(&**text),
        Content::Scalar { text, .. } => match text.parse::<bool>() {
            Ok(flag) => json!(flag),
            Err(_) => text.parse::<u64>().map_or_else(|_| json!(&**text), |number| json!(number)),
        },
        Content::Sequence(items) => items.iter().map(json_of).collect(),
        Content::Mapping(pairs) => {
            let pair = |pair: &yaml::Pair| match &pair.key.content {
                Content::Scalar { text, .. } => Some((text.to_string(), json_of(&pair.value))),
                _ => None,
            };
            Value::Object(pairs.iter().filter_map(pair).collect())
        }
    }
}
