//! The format of a file of rules as a JSON Schema (draft 2020-12), for editors.
//!
//! It is generated from the loader's tables, so that it includes every new key and algorithm; tests
//! compare the rest with the loader. Editors use it to complete keys and values, show descriptions
//! and mark errors. It is published as `docs/rules.schema.json`. To use it, begin a file of rules
//! with
//!
//! ```yaml
//! # yaml-language-server: $schema=rules.schema.json
//! ```
//!
//! where the name is a path relative to that file, or a URL; or map files to it in the settings of
//! VS Code with its YAML extension:
//!
//! ```json
//! { "yaml.schemas": { "./docs/rules.schema.json": "rules/**/*.yaml" } }
//! ```
//!
//! **Wider than the loader.** The schema accepts every file that the loader accepts, but not the
//! reverse: no schema can check whether a time zone exists, a regular expression compiles, or a
//! limit supports its `consistency`. One exception: the schema rejects duplicate keys and keys
//! without effect at their level, which envoyproxy/ratelimit accepts silently and the loader with a
//! warning. The editor must resolve `<<`.
//!
//! **YAML has types, the loader has none.** `value: 5` is a number to an editor and a text to the
//! loader; `unlimited: yes` is true in YAML 1.1 and a text in YAML 1.2. Where the loader reads a
//! scalar as text, the schema accepts every type that YAML assigns to it.
//!
//! **Old editors.** Most validate YAML by draft 7. Only `$defs` is newer, and it merely holds the
//! targets of references.

mod gateway;
mod keys;
mod limits;
mod timed;
mod values;

use serde_json::{Map, Value, json};

pub use self::gateway::gateway_schema;
use crate::rules::keys::Level;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

const USE: &str = "Generated, see crates/config/src/schema.rs. To use it, begin a file of \
                   rules with `# yaml-language-server: $schema=` and the path or URL of this file, \
                   or name both in the setting `yaml.schemas` of VS Code. Every file that Sluicegate \
                   accepts is valid here, but not the reverse: `sluicegate check` is stricter.";

/// The schema of a file of rules, as text that ends in a line break.
///
/// ```
/// let schema = sluicegate_config::schema::schema();
/// assert!(schema.contains("\"title\": \"Sluicegate rules\""));
/// assert!(schema.contains("\"token_bucket\""));
/// ```
#[must_use]
pub fn schema() -> String {
    format!("{:#}\n", document())
}

fn document() -> Value {
    let mut root = json!({
        "$schema": DRAFT,
        "$comment": USE,
        "title": "Sluicegate rules",
        "description": "The rate-limiting rules of one domain.",
    });
    extend(&mut root, keys::level(Level::Root));
    extend(&mut root, json!({ "$defs": definitions() }));
    root
}

fn definitions() -> Value {
    let mut definitions = Map::new();
    for (name, level) in [
        ("descriptor", Level::Descriptor),
        ("rate_limit", Level::RateLimit),
        ("entry", Level::Listed),
    ] {
        definitions.insert(name.to_owned(), keys::level(level));
    }
    definitions.insert("limit".to_owned(), limits::limit());
    definitions.extend(limits::algorithms());
    definitions.extend(values::definitions());
    Value::Object(definitions)
}

/// A place among the definitions.
fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Adds the keywords of one schema to another.
fn extend(schema: &mut Value, more: Value) {
    if let (Value::Object(schema), Value::Object(more)) = (schema, more) {
        schema.extend(more);
    }
}

/// A schema with the description and examples that an editor shows.
fn shown(description: &str, schema: Value, examples: Value) -> Value {
    let mut all = json!({ "description": description });
    extend(&mut all, schema);
    extend(&mut all, json!({ "examples": examples }));
    all
}

/// A condition: where the first holds, the second must hold too.
fn when(condition: Value, then: Value) -> Value {
    json!({ "if": condition, "then": then })
}

#[cfg(test)]
mod tests;
