//! A file of rules as an editor hands it to a schema: with the types that YAML gives to scalars.

use serde_json::{Map, Value, json};

use crate::rules::scalar::{Meaning, meaning};
use crate::yaml::{self, Content, Node, Style};

/// The rules by which a bare scalar gets its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Types {
    /// YAML 1.1: `yes` is true, `1_000` a number.
    Yaml11,
    /// The core schema of YAML 1.2, which editors use.
    Yaml12,
}

/// The first document of a text; `None` if it is no YAML.
pub(super) fn json(text: &str, types: Types) -> Option<Value> {
    yaml::first_document(text).ok()?.0.map(|root| of(&root, types))
}

fn of(node: &Node, types: Types) -> Value {
    match &node.content {
        Content::Scalar { text, style: Style::Quoted } => json!(&**text),
        Content::Scalar { text, style: Style::Plain } => match types {
            Types::Yaml11 => by_meaning(text),
            Types::Yaml12 => by_core_schema(text),
        },
        Content::Sequence(items) => items.iter().map(|item| of(item, types)).collect(),
        Content::Mapping(pairs) => {
            // A written key overrides a merged one.
            let (merged, written): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.merged);
            let mut map = Map::new();
            for pair in merged.into_iter().chain(written) {
                if let Content::Scalar { text, .. } = &pair.key.content {
                    map.insert(text.to_string(), of(&pair.value, types));
                }
            }
            Value::Object(map)
        }
    }
}

fn by_meaning(text: &str) -> Value {
    match meaning(text) {
        Meaning::Null => Value::Null,
        Meaning::Bool(truth) => json!(truth),
        Meaning::Int(number) => json!(number),
        Meaning::Large(number) => json!(number),
        Meaning::Float(number) => float(number),
        Meaning::Text => json!(text),
    }
}

fn by_core_schema(text: &str) -> Value {
    let radix = |prefix: &str, radix| {
        let digits = text.strip_prefix(prefix).filter(|digits| !digits.starts_with(['+', '-']))?;
        u64::from_str_radix(digits, radix).ok().map(|number| json!(number))
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let decimal = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => json!(true),
        "false" | "False" | "FALSE" => json!(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => float(f64::NAN),
        _ if decimal => text.parse::<i64>().map_or_else(|_| float_of(text), |number| json!(number)),
        _ => radix("0x", 16).or_else(|| radix("0o", 8)).unwrap_or_else(|| float_of(text)),
    }
}

fn float_of(text: &str) -> Value {
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match text.parse::<f64>() {
        Ok(number) if numeric => float(number),
        _ => json!(text),
    }
}

/// JSON has no infinity; an editor has, and takes it for a number.
fn float(number: f64) -> Value {
    json!(if number.is_finite() { number } else { f64::MAX })
}
